"""The authorizer of a broker: when it has one, what it keeps of decisions, and where its entries are kept."""

from __future__ import annotations

import asyncio
import ipaddress
import logging
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

import kohort
from kohort.broker.access import authorization
from kohort.broker.access.authorization import LONGEST_KEPT, Authorization, AuthorizedRights
from kohort.broker.access.rights import EVERYTHING
from kohort.broker.authorized_operations import TOPIC_OPERATIONS
from kohort.broker.context import BrokerContext
from kohort.broker.options.settings import BrokerSettings
from kohort.broker.topics import acls as lists
from kohort.broker.topics.acls import MOST_CHANGED, MOST_ENTRIES, AccessControlLists, authorizer_of, super_users_of
from kohort.broker.topics.topic_operations import Outcome
from kohort.errors import ConfigError, ErrorCode, KohortError, Refused
from kohort.security.access_control import AclOperation, AclPermission, PatternType, ResourceType
from kohort.security.authorizer import Acl, Authorizer, is_met
from kohort.wire.messages.create_acls import AclCreation, CreateAclsRequest
from kohort.wire.messages.delete_acls import DeleteAclsFilter, DeleteAclsRequest
from kohort.wire.messages.describe_acls import DescribeAclsRequest
from kohort.wire.registry import ApiKey
from support.dialogues.wired_connection import WiredConnection, wired_broker

TOPIC, GROUP = ResourceType.TOPIC, ResourceType.GROUP
READ, WRITE, DESCRIBE = AclOperation.READ, AclOperation.WRITE, AclOperation.DESCRIBE
DENY = AclPermission.DENY
ALICE = "User:alice"
AUTHORIZER = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
CONFIG: dict[str, object] = {"authorizer.class.name": AUTHORIZER, "super.users": "User:root;User:ANONYMOUS"}


def entry(name: str = "orders", *, principal: str = ALICE, pattern: PatternType = PatternType.LITERAL) -> Acl:
    """An entry that lets alice read a topic."""
    return Acl(TOPIC, pattern, name, principal, "*", READ, AclPermission.ALLOW)


class Asked(Authorizer):
    """An authorizer that counts the decisions that it is asked for."""

    asked = 0

    def grants(self, whos: tuple[tuple[str, str], ...], resource: ResourceType, name: str) -> int:
        self.asked += 1
        return super().grants(whos, resource, name)


@pytest.fixture
def asked() -> Asked:
    authorizer = Asked(super_users=["User:root"])
    authorizer.add(entry())
    return authorizer


def test_decision_is_kept_until_the_entries_change(asked: Asked) -> None:
    """A fetch of thousands of rows asks for each of its topics once."""
    part = Authorization(asked)
    rights = part.rights_of(ALICE, "10.0.0.7")
    edition = rights.edition
    for _ in range(3):
        assert rights.allows(READ, TOPIC, "orders")
        assert rights.allows(DESCRIBE, TOPIC, "orders")
        assert not rights.allows(WRITE, TOPIC, "orders")
        assert rights.operations(TOPIC, "orders") == 1 << READ | 1 << DESCRIBE
    assert asked.asked == 1, "one decision has all operations"
    assert rights.allows_any(READ, TOPIC)

    asked.remove(entry())
    part.changed()

    assert rights.edition != edition
    assert not rights.allows(READ, TOPIC, "orders")
    assert not rights.allows_any(READ, TOPIC)


def test_connections_of_a_principal_share_their_decisions(asked: Asked) -> None:
    """As long as there are any; another host is another question."""
    part = Authorization(asked)
    one, two = part.rights_of(ALICE, "10.0.0.7"), part.rights_of(ALICE, "10.0.0.7")
    assert one is two
    assert one is not part.rights_of(ALICE, "10.0.0.8")
    del one, two
    assert len(part._rights) == 0


def test_super_user_costs_no_decisions(asked: Asked) -> None:
    """Its rights are those of a broker without an authorizer."""
    assert Authorization(asked).rights_of("User:root", "10.0.0.7") is EVERYTHING
    assert Authorization().rights_of(ALICE, "10.0.0.7") is EVERYTHING
    assert EVERYTHING.operations(TOPIC, "orders") == TOPIC_OPERATIONS
    assert not EVERYTHING.is_restricted


def test_kept_decisions_are_bounded(asked: Asked, monkeypatch: pytest.MonkeyPatch) -> None:
    """A client chooses the names that it asks for; long ones are not kept at all."""
    monkeypatch.setattr(authorization, "MOST_KEPT", 100)
    part = Authorization(asked)
    rights = [part.rights_of(f"User:u{number}", "10.0.0.7") for number in range(10)]
    most = 0
    for number in range(1_000):
        rights[number % 10].allows(READ, TOPIC, f"topic-{number}")
        most = max(most, sum(len(each._granted[TOPIC]) for each in rights if isinstance(each, AuthorizedRights)))
    assert most == 100
    rights[0].allows(READ, GROUP, "g" * (LONGEST_KEPT + 1))
    assert isinstance(rights[0], AuthorizedRights)
    assert rights[0]._granted[GROUP] == {}


@pytest.mark.parametrize(
    ("config", "is_on"),
    [
        ({}, False),
        ({"authorizer.class.name": AUTHORIZER}, True),
        ({"authorizer.class.name": "kafka.security.authorizer.AclAuthorizer"}, True),
        ({"listeners": "SASL_PLAINTEXT://127.0.0.1:0", "sasl.enabled.mechanisms": "PLAIN"}, True),
        (
            {
                "listeners": "SASL_PLAINTEXT://127.0.0.1:0",
                "sasl.enabled.mechanisms": "PLAIN",
                "authorizer.class.name": "",
            },
            False,
        ),
    ],
)
def test_rights_are_looked_at_where_clients_prove_their_names(config: dict[str, object], is_on: bool) -> None:
    """Or where the options say so, in either direction."""
    assert (authorizer_of(BrokerSettings.of(config)) is not None) is is_on


@pytest.mark.parametrize("text", ["alice", "User:", ":alice", "User:alice;bob"])
def test_super_user_has_a_kind_and_a_name(text: str) -> None:
    """Apache Kafka ends its start as well; this sentence says what to write."""
    with pytest.raises(ConfigError, match="principals with semicolons are expected, like 'User:"):
        super_users_of(text)


@pytest.mark.parametrize(
    ("config", "is_warned"),
    [
        ({"super.users": ""}, True),
        ({}, False),
        ({"super.users": "", "allow.everyone.if.no.acl.found": True}, False),
    ],
)
def test_broker_on_which_nothing_is_allowed_says_what_to_set(
    config: dict[str, object], is_warned: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """One warning, at the start."""
    with caplog.at_level(logging.WARNING, "kohort.broker"), kohort.Broker(config=CONFIG | config):
        pass
    said = [record.getMessage() for record in caplog.records if "no_rights" in record.getMessage()]
    assert len(said) == is_warned
    assert all("super.users=User:NAME" in each for each in said)


def admin_of(broker: kohort.Broker) -> kohort.Admin:
    return kohort.Admin(bootstrap_servers=broker.bootstrap_servers)


def test_entries_are_there_after_a_restart(tmp_path: Path) -> None:
    """Those that are gone stay so; where rights are not looked at they are kept for later."""
    acl = kohort.Acl(resource_type="topic", name="orders", principal=ALICE, operation="read")
    other = kohort.Acl(resource_type="group", name="b\u00fcro", principal=ALICE, operation="read", permission="deny")
    with kohort.Broker(data_dir=tmp_path, config=CONFIG) as broker, admin_of(broker) as admin:
        admin.create_acls([acl, other])
    without = kohort.Broker(data_dir=tmp_path)
    with without as broker, admin_of(broker) as admin, pytest.raises(KohortError, match="keeps no access lists"):
        admin.describe_acls()
    with kohort.Broker(data_dir=tmp_path, config=CONFIG) as broker, admin_of(broker) as admin:
        assert admin.describe_acls() == [other, acl]
        assert admin.delete_acls([other]) == [[other]]
    with kohort.Broker(data_dir=tmp_path, config=CONFIG) as broker, admin_of(broker) as admin:
        assert admin.describe_acls() == [acl]


def change(context: BrokerContext, added: Sequence[Acl] = (), removed: Sequence[Acl] = ()) -> list[Outcome]:
    """Ask for entries to be added and removed; the outcomes so far."""
    assert context.acls is not None
    told: list[Outcome] = []
    wanted = [context.acls.addition(added, told.append)] if added else []
    wanted += [context.acls.removal(removed, told.append)] if removed else []
    context.cluster.work.ask(wanted)
    return told


def wired_lists(context: BrokerContext) -> tuple[AccessControlLists, Authorizer]:
    """The lists of a broker, and its authorizer."""
    assert context.acls is not None
    assert context.authorization.authorizer is not None
    return context.acls, context.authorization.authorizer


def test_many_entries_come_in_force_over_several_turns() -> None:
    """Changes that follow each other keep their order, and each is told when it is complete."""

    async def main() -> None:
        with wired_broker(CONFIG) as context:
            _, authorizer = wired_lists(context)
            acls = [entry(f"t{number}") for number in range(3_000)]
            told = change(context, added=acls)
            assert told == [], "not all of them are in force"
            gone = change(context, removed=acls[:2_000])
            turns = 0
            while len(told) + len(gone) < 2:
                turns += 1
                await asyncio.sleep(0)
            assert 5 < turns < 20
            assert (told, gone, len(authorizer)) == ([None], [None], 1_000)
            assert sorted(authorizer) == sorted(acls[2_000:])
            assert sorted(context.store.changes.catalog.acls) == sorted(acls[2_000:])

    asyncio.run(main())


def test_what_all_entries_take_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """By their number and by their bytes; what is there stays, and what goes makes room."""

    async def main() -> None:
        with wired_broker(CONFIG) as context:
            _, authorizer = wired_lists(context)
            (refused,) = change(context, added=[entry(f"t{number}") for number in range(MOST_CHANGED + 1)])
            assert isinstance(refused, Refused)
            assert (refused.code, len(authorizer)) == (ErrorCode.POLICY_VIOLATION, 0)
            monkeypatch.setattr(lists, "MOST_ENTRIES", 3)
            assert change(context, added=[entry("a"), entry("b"), entry("a")]) == [None]
            (refused,) = change(context, added=[entry("c"), entry("d")])
            assert "4 ACLs; 3 are allowed" in str(refused)
            monkeypatch.setattr(lists, "MOST_BYTES", 100)
            (refused,) = change(context, added=[entry("c" * 100)])
            assert "more than 100 bytes" in str(refused)
            assert change(context, removed=[entry("a"), entry("b")]) == [None]
            assert change(context, added=[entry("c" * 80)]) == [None]
            assert list(authorizer) == [entry("c" * 80)]

    asyncio.run(main())


def test_limit_of_entries_is_the_promised_one() -> None:
    """What the reference says."""
    assert MOST_ENTRIES == 100_000


@pytest.mark.parametrize("operation", [None, AclOperation.DESCRIBE, AclOperation.ALTER])
def test_lists_are_for_those_that_may_describe_and_alter_the_cluster(operation: AclOperation | None) -> None:
    """A client without the right is told so for each of its rows, and changes nothing."""

    async def main() -> None:
        with wired_broker(CONFIG | {"super.users": "User:root"}) as context:
            _, authorizer = wired_lists(context)
            if operation is not None:
                cluster = ResourceType.CLUSTER, PatternType.LITERAL, "kafka-cluster"
                authorizer.add(Acl(*cluster, "User:ANONYMOUS", "*", operation, AclPermission.ALLOW))
            client, before = WiredConnection(context), len(authorizer)
            row = AclCreation(
                resource_type=2, resource_name="t", principal=ALICE, host="*", operation=3, permission_type=3
            )
            everything: dict[str, Any] = {"resource_type_filter": 1, "operation": 1, "permission_type": 1}
            everything |= dict.fromkeys(("resource_name_filter", "principal_filter", "host_filter"))
            wanted = DeleteAclsFilter(**everything | {"resource_name_filter": "nothing"})
            created = await client.ask(ApiKey.CREATE_ACLS, 3, CreateAclsRequest(creations=[row, row]))
            deleted = await client.ask(ApiKey.DELETE_ACLS, 3, DeleteAclsRequest(filters=[wanted, wanted]))
            described = await client.ask(ApiKey.DESCRIBE_ACLS, 3, DescribeAclsRequest(**everything))
            may_alter, may_describe = operation is AclOperation.ALTER, operation is not None
            denied = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
            assert [each.error_code for each in created.results] == [0 if may_alter else denied] * 2
            assert [each.error_code for each in deleted.filter_results] == [0 if may_alter else denied] * 2
            assert described.error_code == (0 if may_describe else denied)
            assert bool(described.resources) is may_describe
            assert len(authorizer) == before + may_alter

    asyncio.run(main())


def test_principal_of_10_000_characters_is_refused() -> None:
    """It would be kept in memory and in the catalog; the longest name of a certificate is much shorter."""

    async def main() -> None:
        with wired_broker(CONFIG) as context:
            client = WiredConnection(context)
            row = AclCreation(
                resource_type=2, resource_name="t", principal="User:" + "x" * 10_000, host="*", operation=3,
                permission_type=3,
            )  # fmt: skip
            (found,) = (await client.ask(ApiKey.CREATE_ACLS, 3, CreateAclsRequest(creations=[row]))).results
            assert found.error_code == ErrorCode.INVALID_REQUEST
            assert found.error_message == "a principal or host of 10005 characters; 4096 are allowed"

    asyncio.run(main())


@pytest.mark.parametrize(
    ("principal", "host"),
    [
        ("User:eve", "::ffff:10.0.0.7"),
        ("User:eve", "2001:DB8::1"),
        ("User:eve", "0::1"),
        ("User:eve", "10.0.0.0/8"),
        ("User:eve", "10.0.0.7 "),
        ("User:eve", "eve.example.org"),
        ("User:eve", ""),
        ("user:eve", "*"),
        ("Group:eve", "*"),
    ],
)
def test_entry_that_would_deny_nothing_is_refused(principal: str, host: str) -> None:
    """What its author believes to be closed would be open. One that would allow nothing is taken, as by Kafka."""

    async def play() -> None:
        with wired_broker(CONFIG) as context:
            client = WiredConnection(context)
            sent = [
                AclCreation(
                    resource_type=TOPIC, resource_name="t", resource_pattern_type=PatternType.LITERAL,
                    principal=principal, host=host, operation=READ, permission_type=each,
                )
                for each in (AclPermission.DENY, AclPermission.ALLOW)
            ]  # fmt: skip
            answer = await client.ask(ApiKey.CREATE_ACLS, 3, CreateAclsRequest(creations=sent))
            assert [row.error_code for row in answer.results] == [ErrorCode.INVALID_REQUEST, ErrorCode.NONE]
            assert "would deny nothing" in answer.results[0].error_message

    asyncio.run(play())


@pytest.mark.parametrize("host", ["10.0.0.7", "::1", "0:0:0:0:0:0:0:1", "2001:db8::1", "2001:db8:0:0:0:0:0:1"])
def test_entry_denies_hosts_in_every_spelling_that_is_taken(host: str) -> None:
    """Whether it is written as Python or as Java writes it."""
    assert is_met("User:eve", host)
    authorizer = Authorizer()
    authorizer.add(entry(principal="User:eve"), entry(principal="User:eve")._replace(host=host, permission=DENY))
    assert not authorizer.allows("User:eve", str(ipaddress.ip_address(host)), READ, TOPIC, "orders")
    assert authorizer.allows("User:eve", "10.9.9.9", READ, TOPIC, "orders")
