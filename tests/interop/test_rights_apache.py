"""Every API of Kafka's with the same access lists: our answers beside those of Apache Kafka 4.3.

A client has no right, all of them, all but one, or one alone, for each right that an API needs; the topics and groups
are the same in both brokers. What is compared is what the answer says of errors, names and authorized operations.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any, NamedTuple

import pytest

import kohort
from kohort import Acl, Admin
from kohort.broker.access.required_rights import Right, rights_of
from kohort.broker.embedded import Broker
from kohort.ids import OFFSETS_TOPIC, TRANSACTIONS_TOPIC
from kohort.security.access_control import AclOperation, ResourceType
from kohort.wire.registry import AnyApiKey, ApiKey
from kohort.wire.schema import fields_of
from support.dialogues.broker_wire import RawClient, make
from support.peers.secured import PASSWORD, USER, SecuredKafka, quoted
from support.scenarios.needed_rights import HIDDEN, SEEN, requests_of, served_keys
from support.waiting import until

pytestmark = [pytest.mark.interop, pytest.mark.apache]

AUTHORIZER = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
CONFIG = {"authorizer.class.name": AUTHORIZER, "super.users": "User:ANONYMOUS", "auto.create.topics.enable": "true"}
PRINCIPAL = f"User:{USER}"
#: Not rights: what a client does before it has a name.
OPEN = (ApiKey.API_VERSIONS, ApiKey.SASL_HANDSHAKE, ApiKey.SASL_AUTHENTICATE)
#: Fields of an answer that are compared; a list is compared as a set.
COMPARED = frozenset(
    {
        "authorized_operations", "cluster_authorized_operations", "error_code", "group_id", "index", "key", "name",
        "partition", "partition_id", "partition_index", "resource_name", "resource_type", "topic",
        "topic_authorized_operations", "topic_config_error_code", "topic_name",
    }
)  # fmt: skip
#: Lists that say how a broker is, not what its client may.
LEFT_OUT = frozenset({"aborted_transactions", "brokers", "configs", "nodes", "members"})


class Side(NamedTuple):
    """One broker: a client that may everything, where the other logs in, and the ids of the topics."""

    admin: Admin
    root: RawClient
    port: int
    ids: dict[str, bytes]

    def login(self) -> RawClient:
        """A connection of the client with the rights of the test."""
        client = RawClient(self.port)
        hello = client.ask(ApiKey.SASL_HANDSHAKE, 1, make(ApiKey.SASL_HANDSHAKE, mechanism="PLAIN"))
        assert hello.error_code == 0
        token = f"\0{USER}\0{PASSWORD}".encode()
        answer = client.ask(ApiKey.SASL_AUTHENTICATE, 1, make(ApiKey.SASL_AUTHENTICATE, auth_bytes=token))
        assert answer.error_code == 0, answer.error_message
        return client


def prepared(stack: ExitStack, broker: Broker | SecuredKafka) -> Side:
    """The same topics, groups and offsets in either broker."""
    where = broker.bootstrap_of if isinstance(broker, Broker) else broker.bootstrap
    bootstrap, sasl_port = where("PLAINTEXT"), int(where("SASL_PLAINTEXT").rpartition(":")[2])
    root = stack.enter_context(RawClient(int(bootstrap.rpartition(":")[2])))
    admin = stack.enter_context(Admin(bootstrap_servers=bootstrap))
    ids = {name: root.create_topic(name, partitions=2) for name in (SEEN, HIDDEN)}
    for name in ids:
        until(lambda name=name: root.produce(name, b"x").error_code == 0, what="the topic has a leader")  # type: ignore[misc]
    # Apache Kafka makes the topic of the groups when the first one is looked for.
    found = make(ApiKey.FIND_COORDINATOR, coordinator_keys=[SEEN])
    until(
        lambda: root.ask(ApiKey.FIND_COORDINATOR, 4, found).coordinators[0].error_code == 0,
        what="the group has a coordinator",
    )
    # And that of transactions, whose coordinator then takes some time.
    begin = make(ApiKey.INIT_PRODUCER_ID, transactional_id=SEEN, transaction_timeout_ms=60_000)
    found_too = make(ApiKey.FIND_COORDINATOR, key_type=1, coordinator_keys=[SEEN])
    until(
        lambda: (
            root.ask(ApiKey.FIND_COORDINATOR, 4, found_too).coordinators[0].error_code == 0
            and root.ask(ApiKey.INIT_PRODUCER_ID, 5, begin).error_code == 0
        ),
        what="the transactional id has a coordinator",
    )
    for group_id, member_id in ((SEEN, "m"), (HIDDEN, "m"), (SEEN, "n")):
        joining = make(
            ApiKey.CONSUMER_GROUP_HEARTBEAT, group_id=group_id, member_id=member_id, member_epoch=0,
            rebalance_timeout_ms=600_000, subscribed_topic_names=[SEEN, HIDDEN], topic_partitions=[],
        )  # fmt: skip
        until(
            lambda joining=joining: root.ask(ApiKey.CONSUMER_GROUP_HEARTBEAT, 1, joining).error_code == 0,  # type: ignore[misc]
            what="the group has a coordinator",
        )
    partitions = [{"partition_index": 0, "committed_offset": 1, "committed_metadata": ""}]
    rows = [{"name": each, "partitions": partitions} for each in (SEEN, HIDDEN)]
    for group_id in ("all", "offsets"):
        root.ask(ApiKey.OFFSET_COMMIT, 9, make(ApiKey.OFFSET_COMMIT, group_id=group_id, topics=rows))
    return Side(admin, root, sasl_port, ids)


@pytest.fixture(scope="module")
def sides() -> Iterator[tuple[Side, Side]]:
    """Apache Kafka, and ours."""
    login = "org.apache.kafka.common.security.plain.PlainLoginModule required"
    ours = CONFIG | {
        # The member that a fetch of ours names has given its partitions up.
        "group.ownership.enforce": "off",
        "listeners": "PLAINTEXT://127.0.0.1:0,SASL_PLAINTEXT://127.0.0.1:0",
        "sasl.enabled.mechanisms": "PLAIN",
        "listener.name.sasl_plaintext.plain.sasl.jaas.config": f"{login} user_{USER}={quoted(PASSWORD)};",
        "group.consumer.assignment.window.ms": 0,
    }
    with SecuredKafka(CONFIG) as kafka, Broker(config=ours) as broker, ExitStack() as stack:
        yield prepared(stack, kafka), prepared(stack, broker)


def acl(right: Right, *, permission: str = "allow", name: str = "*") -> Acl:
    operation, resource = right
    if resource is ResourceType.CLUSTER:
        name = "kafka-cluster"
    return Acl(
        resource_type=resource.name.lower(), name=name, principal=PRINCIPAL, operation=operation.name.lower(),
        permission=permission,
    )  # fmt: skip


KINDS = (ResourceType.TOPIC, ResourceType.GROUP, ResourceType.CLUSTER)
EVERYTHING = [acl((AclOperation.ALL, kind)) for kind in KINDS]


def worlds() -> dict[str, list[Acl]]:
    """By name, the entries of the client."""
    rights = sorted({right for key in served_keys() for right in rights_of(key)})
    found: dict[str, list[Acl]] = {
        "nothing": [],
        "everything": EVERYTHING,
        "everything of its own": [acl((AclOperation.ALL, kind), name=SEEN) for kind in KINDS[:2]],
    }
    for right in rights:
        words = f"{right[0].name} {right[1].name}"
        found[f"all but {words}"] = [*EVERYTHING, acl(right, permission="deny")]
        found[f"only {words}"] = [acl(right, name=SEEN)]
    return found


def asked_for(key: AnyApiKey, world: str) -> bool:
    """Whether a world says something of an API."""
    words = {f"{operation.name} {resource.name}" for operation, resource in rights_of(key)}
    return world.startswith(("nothing", "every")) or any(world.endswith(each) for each in words)


@pytest.mark.parametrize("world", worlds())
def test_answers_are_those_of_apache_kafka(sides: tuple[Side, Side], world: str) -> None:
    entries = worlds()[world]
    for side in sides:
        side.admin.delete_acls([kohort.AclFilter(principal=PRINCIPAL)])
        side.admin.create_acls(entries)
        mine = kohort.AclFilter(principal=PRINCIPAL)
        until(lambda: sorted(map(repr, side.admin.describe_acls(mine))) == sorted(map(repr, entries)), what=world)  # noqa: B023
    wrong = []
    for key in served_keys():
        if not isinstance(key, ApiKey) or key in OPEN or not asked_for(key, world):
            continue
        theirs, ours = ([*answers(side, key, world)] for side in sides)
        for (version, said), (_, mine_said) in zip(theirs, ours, strict=True):
            if said != mine_said:
                wrong.append(f"{key.name} {version}:\n  theirs {said}\n  ours   {mine_said}")
    assert not wrong, "\n".join(wrong)


def answers(side: Side, key: ApiKey, world: str) -> Iterator[tuple[int, Any]]:
    """What a broker answers to the requests of an API."""
    for version, request in requests_of(key, side.ids):
        if key is ApiKey.DELETE_TOPICS:
            # Apache Kafka would delete the topic of its own.
            names = ["missing", "gone"] if may_delete(world) else ["missing", SEEN, HIDDEN]
            request.topic_names = names
            request.topics = make(key, topics=[{"name": each} for each in names]).topics
        client = side.login()
        try:
            yield version, compared(key, client.ask(key, version, request))
        finally:
            client.socket.close()


def may_delete(world: str) -> bool:
    return world.startswith(("every", "all but", "only DELETE"))


#: Codes that say how things stand behind a check that was passed: the records' age, a replica that is none, an election
#: or a creation that is not needed any more or not over yet, configs that only one of the brokers has.
_STATE = frozenset({1, 3, 5, 6, 14, 36, 40})


def compared(key: ApiKey, message: Any) -> Any:
    """What is compared of an answer."""
    found: list[Any] = []
    name = getattr(message, "name", None) or getattr(message, "resource_name", None) or ""
    is_new = str(name).startswith("new")
    for field in _slots(message):
        value = getattr(message, field)
        if field in ("name", "resource_name") and is_new:
            # Each request names another one.
            found.append((field, "new"))
        elif field == "error_code":
            found.append((field, 0 if value in _STATE and (is_new or key in _OF_STATE) else value))
        elif field in COMPARED:
            found.append((field, value))
        elif (
            isinstance(value, list)
            and field not in LEFT_OUT
            and name not in (OFFSETS_TOPIC, TRANSACTIONS_TOPIC)
            and not is_new
        ):
            rows = [compared(key, each) for each in value if not isinstance(each, (int, str, bytes))]
            once = {repr(row): row for row in rows if not _is_of_earlier(row)}
            found.append((field, [once[each] for each in sorted(once)]))
    return found


def _is_of_earlier(row: list[Any]) -> bool:
    """Whether a row is about what earlier requests, or the start, have left in one of the brokers alone."""
    told = dict(row)
    if told.get("name", told.get("resource_name")) == "new":
        return told.get("error_code", 0) == 0
    # Apache Kafka keeps a group whose offsets are deleted one by one, and has a user of SCRAM.
    return not row or told.get("group_id") == "offsets" or "credential_infos" in told


#: APIs whose answers depend on more than rights; see `_STATE`.
_OF_STATE = frozenset({ApiKey.FETCH, ApiKey.INIT_PRODUCER_ID, ApiKey.ALTER_CONFIGS})


def _slots(message: Any) -> list[str]:
    return [each.name for each in fields_of(type(message))]
