"""The access control lists: the same answers as Apache Kafka 4.3, byte by byte and by its own command."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

import pytest

import kohort
from kohort.broker.embedded import Broker
from kohort.errors import ErrorCode
from kohort.security.access_control import AclOperation, AclPermission, PatternType, ResourceType
from kohort.wire.messages.create_acls import AclCreation, CreateAclsRequest
from kohort.wire.messages.delete_acls import DeleteAclsFilter, DeleteAclsRequest
from kohort.wire.messages.describe_acls import DescribeAclsRequest
from kohort.wire.registry import ApiKey
from support.dialogues.broker_wire import RawClient
from support.peers.apache_broker import ApacheKafka
from support.peers.cli import run_kohort
from support.peers.kafka_tools import run_kafka_tool
from support.waiting import until

pytestmark = [pytest.mark.interop, pytest.mark.apache]

AUTHORIZER = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
ACLS = "org.apache.kafka.tools.AclCommand"
CONFIG = {"authorizer.class.name": AUTHORIZER, "super.users": "User:ANONYMOUS"}
TOPIC, GROUP, CLUSTER = ResourceType.TOPIC, ResourceType.GROUP, ResourceType.CLUSTER
CREATE, DESCRIBE, DELETE = ApiKey.CREATE_ACLS, ApiKey.DESCRIBE_ACLS, ApiKey.DELETE_ACLS


@pytest.fixture(scope="module")
def ours() -> Iterator[Broker]:
    """A broker that looks at rights, where everyone may do everything."""
    with Broker(config=CONFIG) as broker:
        yield broker


@pytest.fixture(scope="module")
def both(ours: Broker) -> Iterator[tuple[RawClient, RawClient]]:
    """A connection to Apache Kafka, and one to ours."""
    with ApacheKafka(CONFIG) as kafka, RawClient(kafka.port) as theirs, RawClient(ours.port) as mine:
        yield theirs, mine


def creation(**fields: Any) -> AclCreation:
    """An entry that lets alice read a topic, but for what is said otherwise."""
    standard: dict[str, Any] = {
        "resource_type": TOPIC, "resource_name": "orders", "resource_pattern_type": PatternType.LITERAL,
        "principal": "User:alice", "host": "*", "operation": AclOperation.READ, "permission_type": AclPermission.ALLOW,
    }  # fmt: skip
    return AclCreation(**standard | fields)


def wanted(**fields: Any) -> dict[str, Any]:
    """The fields of a filter, everything but for what is said."""
    anything = {"resource_type_filter": 1, "pattern_type_filter": 1, "operation": 1, "permission_type": 1}
    texts = dict.fromkeys(("resource_name_filter", "principal_filter", "host_filter"))
    return {**anything, **texts, **fields}


def answer_of(client: RawClient, key: ApiKey, request: Any, version: int = 3) -> Any:
    """What a broker answers: errors with their texts, entries in an order."""
    answer = client.ask(key, version, request)
    if key is CREATE:
        return [(row.error_code, row.error_message) for row in answer.results]
    if key is DESCRIBE:
        rows = [(each.resource_type, each.pattern_type, each.resource_name, acl) for each in answer.resources for acl in each.acls]  # fmt: skip  # noqa: E501
        found = [(*place, acl.principal, acl.host, acl.operation, acl.permission_type) for *place, acl in rows]
        return answer.error_code, answer.error_message, sorted(found)
    return [(row.error_code, row.error_message, sorted(map(repr, row.matching_acls))) for row in answer.filter_results]


CREATIONS = {
    "plain": [creation()],
    "the same again, twice": [creation(), creation()],
    "prefixed": [creation(resource_pattern_type=4)],
    "wildcard": [creation(resource_name="*"), creation(resource_name="*", resource_pattern_type=4)],
    "cluster": [creation(resource_type=CLUSTER, resource_name="kafka-cluster"), creation(resource_type=CLUSTER)],
    "empty name": [creation(resource_name="")],
    "a name that no topic has": [creation(resource_name="a/b")],
    "operation that a group does not have": [creation(resource_type=GROUP, operation=AclOperation.WRITE)],
    "all of a token": [creation(resource_type=6, operation=AclOperation.ALL)],
    "user": [creation(resource_type=7, resource_name="User:bob", operation=AclOperation.CREATE_TOKENS)],
    "two phase commit": [creation(resource_type=5, operation=15)],
    "unknown operation": [creation(operation=99), creation()],
    "unknown permission": [creation(permission_type=9), creation()],
    "unknown pattern": [creation(resource_pattern_type=9), creation()],
    "unknown resource": [creation(resource_type=99), creation()],
    "operation any": [creation(operation=1), creation()],
    "permission any": [creation(permission_type=1), creation()],
    "pattern any": [creation(resource_pattern_type=1), creation()],
    "pattern match": [creation(resource_pattern_type=2), creation()],
    "resource any": [creation(resource_type=1), creation()],
    "no kind of principal": [creation(principal="alice"), creation()],
    "no principal": [creation(principal=""), creation()],
    "only a kind": [creation(principal="User:"), creation(principal=":alice")],
    "other kinds": [creation(principal="Group:dev"), creation(principal="user:alice"), creation(principal="User:*")],
    "hosts": [creation(host=""), creation(host="nonsense"), creation(host="10.0.0.0/8"), creation(host="::1")],
    "nothing": [],
}
FILTERS = {
    "everything": wanted(),
    "match": wanted(resource_type_filter=2, resource_name_filter="orders-eu", pattern_type_filter=2),
    "match without a name": wanted(pattern_type_filter=2),
    "literal": wanted(resource_name_filter="orders", pattern_type_filter=3),
    "any of a name": wanted(resource_name_filter="orders"),
    "wildcard": wanted(resource_name_filter="*"),
    "principal": wanted(principal_filter="User:alice"),
    "wildcard principal": wanted(principal_filter="User:*"),
    "host": wanted(host_filter="*"),
    "operation": wanted(operation=AclOperation.READ),
    "all operations": wanted(operation=AclOperation.ALL),
    "permission": wanted(permission_type=AclPermission.DENY),
    "empty name": wanted(resource_name_filter=""),
    "unknown operation": wanted(operation=99),
    "unknown pattern": wanted(pattern_type_filter=9),
    "unknown resource": wanted(resource_type_filter=99),
}


def same(both: tuple[RawClient, RawClient], key: ApiKey, request: Any, version: int = 3) -> Any:
    """The answer that both give."""
    theirs, mine = (answer_of(client, key, request, version) for client in both)
    assert mine == theirs
    return theirs


@pytest.mark.parametrize("version", [1, 2, 3])
def test_answers_are_those_of_apache_kafka(both: tuple[RawClient, RawClient], version: int) -> None:
    """Entries of every kind are added, described by every filter, and removed; version 3 has them all."""
    for rows in CREATIONS.values() if version == 3 else [CREATIONS["plain"], CREATIONS["no kind of principal"]]:
        same(both, CREATE, CreateAclsRequest(creations=rows), version)
    everything = DescribeAclsRequest(**wanted())
    # Apache Kafka's broker hears of a change from its controller.
    until(
        lambda: answer_of(both[0], DESCRIBE, everything) == answer_of(both[1], DESCRIBE, everything), what="all known"
    )
    for fields in FILTERS.values() if version == 3 else [wanted()]:
        same(both, DESCRIBE, DescribeAclsRequest(**fields), version)
    for fields in (*reversed(FILTERS.values()),) if version == 3 else [wanted()]:
        same(both, DELETE, DeleteAclsRequest(filters=[DeleteAclsFilter(**fields)]), version)
    until(lambda: answer_of(both[0], DESCRIBE, everything)[2] == [], what="all gone")
    assert answer_of(both[1], DESCRIBE, everything)[2] == []


@pytest.mark.parametrize(
    ("key", "request_"),
    [
        (CREATE, CreateAclsRequest(creations=[creation(operation=0)])),
        (DESCRIBE, DescribeAclsRequest(**wanted(resource_type_filter=0))),
        (DELETE, DeleteAclsRequest(filters=[DeleteAclsFilter(**wanted(permission_type=0))])),
    ],
)
def test_unknown_zero_closes_the_connection(
    both: tuple[RawClient, RawClient], ours: Broker, key: ApiKey, request_: Any
) -> None:
    """No client sends the number of what it does not know; Apache Kafka takes such a request for none."""
    for port in (both[0].socket.getpeername()[1], ours.port):
        with RawClient(port) as client:
            client.send(key, 3, request_)
            assert client.is_closed_by_broker()


def test_too_many_at_once_are_refused(both: tuple[RawClient, RawClient]) -> None:
    """10,000 is Apache Kafka's limit; the sentence to it is ours."""
    rows = [creation(resource_name=f"t{number}") for number in range(10_001)]
    for client in both:
        answer = answer_of(client, CREATE, CreateAclsRequest(creations=rows))
        assert {code for code, _ in answer} == {ErrorCode.POLICY_VIOLATION}
    assert answer_of(both[1], DESCRIBE, DescribeAclsRequest(**wanted()))[2] == []


def test_kafka_acls_administers_our_broker(ours: Broker) -> None:
    """Each verb of `kafka-acls`, and its ways to give a producer or a consumer all that it takes."""
    tool = partial(run_kafka_tool, ACLS, "--bootstrap-server", ours.bootstrap_servers)
    with kohort.Admin(bootstrap_servers=ours.bootstrap_servers) as admin:
        tool("--add", "--allow-principal", "User:alice", "--producer", "--topic", "orders", "--idempotent")
        tool("--add", "--allow-principal", "User:alice", "--consumer", "--topic", "orders", "--group", "billing")
        tool("--add", "--deny-principal", "User:eve", "--deny-host", "10.0.0.1", "--operation", "All", "--cluster")
        tool(
            "--add", "--allow-principal", "User:bob", "--operation", "Read", "--topic", "audit-",
            "--resource-pattern-type", "prefixed",
        )  # fmt: skip
        assert sorted(map(str, admin.describe_acls())) == [
            "allow User:alice to create topic orders",
            "allow User:alice to describe topic orders",
            "allow User:alice to idempotent_write cluster kafka-cluster",
            "allow User:alice to read group billing",
            "allow User:alice to read topic orders",
            "allow User:alice to write topic orders",
            "allow User:bob to read topic audit-*",
            "deny User:eve to all cluster kafka-cluster from 10.0.0.1",
        ]
        said = tool("--list", "--topic", "audit-log", "--resource-pattern-type", "match")
        assert "(principal=User:bob, host=*, operation=READ, permissionType=ALLOW)" in said
        assert "User:alice" not in said
        assert "User:alice" in tool("--list", "--principal", "User:alice")
        tool("--remove", "--force", "--allow-principal", "User:alice", "--operation", "Create", "--topic", "orders")
        tool("--remove", "--force", "--cluster")
        left = [str(acl) for acl in admin.describe_acls()]
        assert "allow User:alice to create topic orders" not in left
        assert len(left) == 5, "those of the cluster are gone"
        tool("--remove", "--force", "--topic", "orders", "--group", "billing")
        assert [acl.name for acl in admin.describe_acls()] == ["audit-"]
        admin.delete_acls([kohort.AclFilter()])


def test_kohort_acl_administers_our_broker(ours: Broker) -> None:
    """Each verb of `kohort acl`."""
    here = ("--bootstrap-server", ours.bootstrap_servers)
    entry = ("--principal", "bob", "--operation", "read", "--topic", "orders", "--group", "billing")
    assert run_kohort("acl", "add", *entry, *here).out.splitlines() == [
        "added: allow User:bob to read topic orders",
        "added: allow User:bob to read group billing",
    ]
    assert "billing" in run_kohort("acl", "list", "--principal", "bob", *here).out
    assert "billing" not in run_kohort("acl", "list", "--topic", "orders", "--match", *here).out
    assert run_kohort("acl", "remove", "--principal", "bob", "--execute", *here).code == 0
    with kohort.Admin(bootstrap_servers=ours.bootstrap_servers) as admin:
        assert admin.describe_acls() == []
