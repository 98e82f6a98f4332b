"""Each call of the admin client once, so that docs/reference/admin.md can say which broker has it.

What a call has to say does not matter here, only whether the broker has what it takes.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

import kohort
from kohort.client.foreign_names import ADMINS
from kohort.errors import KohortError, UnsupportedFeatureError

TEXT: Final = (Path(__file__).resolve().parents[3] / "docs" / "reference" / "admin.md").read_text()
#: What asks no broker, and what follows upon another call.
SILENT: Final = frozenset({"close", "from_config", "metrics", "wait_for_moves"})


class Names:
    """What the calls are about: a topic with one partition, and what nobody else uses."""

    def __init__(self, topic: str) -> None:
        self.topic = self.group = topic
        self.partition = kohort.TopicPartition(topic, 0)


CALLS: Final[Mapping[str, Callable[[Any, Names], object]]] = {
    "list_topics": lambda admin, _: admin.list_topics(),
    "describe_topics": lambda admin, of: admin.describe_topics([of.topic]),
    "create_topic": lambda admin, of: admin.create_topic(f"{of.topic}-1", validate_only=True),
    "create_topics": lambda admin, of: admin.create_topics([f"{of.topic}-1"], validate_only=True),
    "create_partitions": lambda admin, of: admin.create_partitions(of.topic, 2, validate_only=True),
    "delete_topics": lambda admin, of: admin.delete_topics([f"{of.topic}-1"]),
    "describe_configs": lambda admin, of: admin.describe_configs([("topic", of.topic)]),
    "alter_configs": lambda admin, of: admin.alter_configs(
        [("topic", of.topic)], {"retention.ms": 1000}, validate_only=True
    ),
    "list_offsets": lambda admin, of: admin.list_offsets([of.partition]),
    "delete_records": lambda admin, of: admin.delete_records({of.partition: 0}),
    "list_groups": lambda admin, _: admin.list_groups(),
    "summarize_groups": lambda admin, _: admin.summarize_groups(),
    "describe_group": lambda admin, of: admin.describe_group(of.group),
    "describe_groups": lambda admin, of: _only(admin.describe_groups([of.group])),
    "group_offsets": lambda admin, of: admin.group_offsets(of.group),
    "groups_offsets": lambda admin, of: _only(admin.groups_offsets([of.group])),
    "list_group_offsets": lambda admin, of: _only(admin.list_group_offsets([of.group])),
    "alter_group_offsets": lambda admin, of: admin.alter_group_offsets(of.group, {of.partition: 0}),
    "reset_offsets": lambda admin, of: admin.reset_offsets(of.group, "earliest", of=[of.topic]),
    "delete_group_offsets": lambda admin, of: admin.delete_group_offsets(of.group, [of.partition]),
    "remove_members": lambda admin, of: admin.remove_members(of.group),
    "describe_group_configs": lambda admin, of: admin.describe_group_configs(of.group),
    "alter_group_configs": lambda admin, of: admin.alter_group_configs(
        of.group, {"consumer.session.timeout.ms": 50_000}, validate_only=True
    ),
    "delete_groups": lambda admin, of: admin.delete_groups([of.group]),
    "group_history": lambda admin, of: admin.group_history(of.group),
    "explain_group": lambda admin, of: admin.explain_group(of.group),
    "submit_moves": lambda admin, of: admin.submit_moves(of.group, {of.partition: "nobody"}),
    "switch_partition": lambda admin, of: admin.switch_partition(of.group, of.partition, "nobody"),
    "enable_static_membership": lambda admin, of: admin.enable_static_membership(of.group, 60_000, 1_000),
    "enable_dynamic_membership": lambda admin, of: admin.enable_dynamic_membership(of.group),
    "force_rebalance": lambda admin, of: admin.force_rebalance(of.group),
    "moves": lambda admin, of: admin.moves(of.group),
    "describe_cluster": lambda admin, _: admin.describe_cluster(include_fenced=True),
    "describe_features": lambda admin, _: admin.describe_features(),
    "update_features": lambda admin, _: admin.update_features({"group.version": 1}, validate_only=True),
    "describe_broker": lambda admin, _: admin.describe_broker(),
    "describe_quorum": lambda admin, _: admin.describe_quorum(),
    "describe_log_dirs": lambda admin, _: admin.describe_log_dirs(),
    "describe_replica_log_dirs": lambda admin, of: admin.describe_replica_log_dirs([(*of.partition, 1)]),
    "alter_replica_log_dirs": lambda admin, of: admin.alter_replica_log_dirs({(*of.partition, 1): "/not/there"}),
    "elect_leaders": lambda admin, of: admin.elect_leaders([of.partition]),
    "alter_partition_reassignments": lambda admin, of: admin.alter_partition_reassignments({of.partition: None}),
    "list_partition_reassignments": lambda admin, _: admin.list_partition_reassignments(),
    "list_transactions": lambda admin, _: admin.list_transactions(),
    "describe_transactions": lambda admin, of: admin.describe_transactions([of.topic]),
    "transaction_history": lambda admin, of: admin.transaction_history(of.topic),
    "fence_producers": lambda admin, of: admin.fence_producers([of.topic]),
    "describe_producers": lambda admin, of: admin.describe_producers([of.partition]),
    "find_hanging_transactions": lambda admin, of: admin.find_hanging_transactions([of.partition]),
    "abort_transaction": lambda admin, of: admin.abort_transaction(of.partition, 0),
    "create_acls": lambda admin, of: admin.create_acls([_entry(of)]),
    "describe_acls": lambda admin, _: admin.describe_acls(),
    "delete_acls": lambda admin, of: admin.delete_acls([_entry(of)]),
    "describe_user_scram_credentials": lambda admin, of: admin.describe_user_scram_credentials([of.topic]),
    "alter_user_scram_credentials": lambda admin, of: admin.alter_user_scram_credentials(
        deletions=[(of.topic, "SCRAM-SHA-512")]
    ),
    "describe_client_quotas": lambda admin, _: admin.describe_client_quotas(),
    "alter_client_quotas": lambda admin, of: admin.alter_client_quotas(
        [kohort.ClientQuota(entity={"user": of.topic}, values={"request_percentage": 1})], validate_only=True
    ),
    "describe_tokens": lambda admin, _: admin.describe_tokens(),
    "revoke_tokens": lambda admin, of: admin.revoke_tokens(labels=[of.topic]),
}


def _entry(of: Names) -> kohort.Acl:
    return kohort.Acl(resource_type="topic", name=of.topic, principal=f"User:{of.topic}", operation="read")


def _only(said: Mapping[str, object]) -> object:
    """What is said of the only group; an error is raised."""
    (found,) = said.values()
    if isinstance(found, KohortError):
        raise found
    return found


def table() -> dict[str, dict[str, bool]]:
    """Of each call in the text: which broker has it, by the heading of its column."""
    lines = TEXT.partition("| call | ")[2].split("\n\n", 1)[0].splitlines()
    columns = [each.strip() for each in lines[0].strip("| ").split(" | ")]
    found = {}
    for line in lines[2:]:
        calls, *cells = [each.strip() for each in line.strip("|").split(" | ")]
        for call in re.findall(r"`(\w+)`", calls):
            assert call not in found, f"{call} stands there twice"
            found[call] = {column: cell == "yes" for column, cell in zip(columns, cells, strict=True)}
    return found


def public_calls() -> set[str]:
    """What asks a broker."""
    return {name for name in dir(kohort.Admin) if not name.startswith("_")} - SILENT - ADMINS.keys()


def has(admin: kohort.Admin, call: str, topic: str, software: str) -> bool:
    """Whether the brokers have what a call needs; if not, the error says what they are."""
    try:
        CALLS[call](admin, Names(topic))
    except UnsupportedFeatureError as why:
        assert f" is {software} and has no " in str(why), why
        assert why.during in str(why), why
        return False
    except KohortError:
        """It has said something, which is all that is asked here."""
    return True
