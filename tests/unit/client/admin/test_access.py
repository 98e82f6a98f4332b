"""Who may do what, who can log in, how much clients may: wrong words, halves, many at once, secrets."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

import kohort
from kohort import Acl, AclFilter, Admin, ClientQuota, ScramCredential
from kohort.client.admin.results.users import UserScramCredential
from kohort.errors import (
    AuthorizationError,
    BrokerError,
    ConfigError,
    ErrorCode,
    PartlyDoneError,
)
from kohort.wire.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
    AlterUserScramCredentialsResult,
)
from kohort.wire.messages.create_acls import AclCreationResult, CreateAclsRequest, CreateAclsResponse
from kohort.wire.messages.delete_acls import (
    DeleteAclsFilterResult,
    DeleteAclsMatchingAcl,
    DeleteAclsRequest,
    DeleteAclsResponse,
)
from kohort.wire.messages.describe_acls import (
    AclDescription,
    DescribeAclsRequest,
    DescribeAclsResource,
    DescribeAclsResponse,
)
from kohort.wire.messages.metadata import MetadataResponse, MetadataResponseBroker
from kohort.wire.registry import ApiKey
from kohort.wire.schema import Message
from support.dialogues.scripted_broker import ScriptedBroker

READ = Acl(resource_type="topic", name="orders", principal="User:bob", operation="read")
WRITE = Acl(resource_type="topic", name="orders", principal="User:bob", operation="write")
SECRET = "open-sesame"


@contextmanager
def broker_that(answer: Callable[[Any], Message | None]) -> Iterator[tuple[Admin, list[Any]]]:
    """An admin client of a broker that says what `answer` does, and what that was asked."""
    asked: list[Any] = []

    def handle(api: ApiKey, version: int, request: Message) -> Message | None:
        if api is ApiKey.METADATA:
            here = scripted.endpoint
            return MetadataResponse(brokers=[MetadataResponseBroker(node_id=1, host=here.host, port=here.port)])
        asked.append(request)
        return answer(request)

    with ScriptedBroker(handle) as scripted, Admin(bootstrap_servers=str(scripted.endpoint)) as admin:
        yield admin, asked


def allowed(request: CreateAclsRequest) -> CreateAclsResponse:
    return CreateAclsResponse(results=[AclCreationResult() for _ in request.creations])


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda admin: admin.create_acls(READ), "a list is expected"),
        (lambda admin: admin.create_acls("orders"), "a list is expected"),
        (lambda admin: admin.create_acls([AclFilter()]), "an entry cannot be"),
        (lambda admin: admin.create_acls([acl(operation="raed")]), "operation cannot be 'raed': one of all, read"),
        (lambda admin: admin.create_acls([acl(operation=3)]), "operation cannot be 3"),
        (lambda admin: admin.create_acls([acl(resource_type="share")]), "resource_type cannot be 'share'"),
        (lambda admin: admin.create_acls([acl(pattern_type="match")]), "pattern_type cannot be 'match'"),
        (lambda admin: admin.create_acls([acl(principal="bob")]), "like 'User:bob'"),
        (lambda admin: admin.create_acls([acl(name="")]), "name has 0 characters"),
        (lambda admin: admin.create_acls([acl(name="\udc80")]), "UTF-8 cannot carry"),
        (lambda admin: admin.create_acls([acl(name="n" * 40_000)]), "name has 40000 characters"),
        (lambda admin: admin.create_acls([acl(resource_type="cluster")]), "is called kafka-cluster"),
        (lambda admin: admin.describe_acls("orders"), "a filter cannot be 'orders'"),
        (lambda admin: admin.describe_acls(AclFilter(pattern_type="match")), "name says which"),
        (lambda admin: admin.delete_acls(AclFilter()), "a list is expected"),
        (lambda admin: admin.describe_user_scram_credentials("bob"), "a list is expected"),
        (lambda admin: admin.describe_user_scram_credentials([""]), "the name of a user is empty"),
        (lambda admin: admin.alter_user_scram_credentials([("bob", SECRET)]), "a credential cannot be a tuple"),
        (lambda admin: admin.alter_user_scram_credentials([login(password="")]), "the password of bob is empty"),
        (lambda admin: admin.alter_user_scram_credentials([login(password=b"x")]), "password must be text"),
        (lambda admin: admin.alter_user_scram_credentials([login(iterations=4095)]), "from 4096 to 16384"),
        (lambda admin: admin.alter_user_scram_credentials([login(mechanism="PLAIN")]), "mechanism cannot be 'PLAIN'"),
        (lambda admin: admin.alter_user_scram_credentials([login(), login()]), "is named twice"),
        (lambda admin: admin.alter_user_scram_credentials([login()], [("bob", "SCRAM-SHA-512")]), "is named twice"),
        (lambda admin: admin.alter_user_scram_credentials(deletions=("bob", "SCRAM-SHA-512")), "a deletion cannot be"),
        (lambda admin: admin.alter_client_quotas(quota()), "a list is expected"),
        (lambda admin: admin.alter_client_quotas([quota(), quota()]), "user bob is named twice"),
        (lambda admin: admin.alter_client_quotas([quota(entity={})]), "a quota needs an entity"),
        (lambda admin: admin.alter_client_quotas([quota(entity={"topic": "t"})]), "cannot be about 'topic'"),
        (lambda admin: admin.alter_client_quotas([quota(entity={"user": ""})]), "None stands for the default"),
        (lambda admin: admin.alter_client_quotas([quota(entity={"user": ...})]), "... is for looking up"),
        (lambda admin: admin.alter_client_quotas([quota(values={"x": 0})]), "a number above 0"),
        (lambda admin: admin.alter_client_quotas([quota(values={"x": float("nan")})]), "a number above 0"),
        (lambda admin: admin.alter_client_quotas([quota(values={"x": 10**400})]), "a number above 0"),
        (lambda admin: admin.alter_client_quotas([quota(values={"x": "1"})]), "x cannot be '1'"),
        (lambda admin: admin.describe_client_quotas("bob"), "a mapping is expected"),
        (lambda admin: admin.describe_client_quotas({"user": 1}), "must be text or None"),
    ],
)
def test_what_cannot_be_meant_is_refused_before_anybody_is_asked(call: Callable[[Any], Any], says: str) -> None:
    with Admin(bootstrap_servers="127.0.0.1:1") as admin, pytest.raises((ConfigError, TypeError)) as told:
        call(admin)
    assert says in str(told.value)
    assert SECRET not in str(told.value)


def acl(**other: Any) -> Acl:
    return Acl(**{"resource_type": "topic", "name": "t", "principal": "User:bob", "operation": "read", **other})


def login(**other: Any) -> ScramCredential:
    return ScramCredential(**{"user": "bob", "password": SECRET, **other})


def quota(**other: Any) -> ClientQuota:
    return ClientQuota(**{"entity": {"user": "bob"}, "values": {"producer_byte_rate": 1}, **other})


def test_nothing_is_asked_for_nothing() -> None:
    with Admin(bootstrap_servers="127.0.0.1:1") as admin:
        admin.create_acls([])
        assert admin.delete_acls([]) == []
        admin.alter_user_scram_credentials()
        assert admin.describe_user_scram_credentials([]) == []
        admin.alter_client_quotas([])


def test_entries_of_which_some_are_refused_are_told_apart() -> None:
    def refuses_writing(request: CreateAclsRequest) -> CreateAclsResponse:
        bad = AclCreationResult(error_code=ErrorCode.INVALID_REQUEST, error_message="not today")
        return CreateAclsResponse(
            results=[bad if row.operation == 4 else AclCreationResult() for row in request.creations]
        )

    with broker_that(refuses_writing) as (admin, _):
        with pytest.raises(PartlyDoneError, match=r"1 of 2 done \(allow User:bob to read topic orders\)") as some:
            admin.create_acls([READ, WRITE])
        with pytest.raises(BrokerError, match=r"INVALID_REQUEST while adding entries .*: not today"):
            admin.create_acls([WRITE])
    assert list(some.value.done) == [READ]
    assert list(some.value.failed) == [WRITE]


@pytest.mark.large
def test_many_entries_are_named_once_and_go_in_parts() -> None:
    """Apache Kafka changes 10,000 at once at most, and none if there are more."""
    many = [acl(name=f"t{number}") for number in range(12_000)]
    with broker_that(allowed) as (admin, asked):
        admin.create_acls([*many, *many])
    assert [len(request.creations) for request in asked] == [5_000, 5_000, 2_000]


def test_what_passes_is_asked_again_and_what_is_done_is_not() -> None:
    """The controller moved between two entries."""
    codes = iter([[0, int(ErrorCode.NOT_CONTROLLER)], [0]])

    def moves(_: CreateAclsRequest) -> CreateAclsResponse:
        return CreateAclsResponse(results=[AclCreationResult(error_code=code) for code in next(codes)])

    with broker_that(moves) as (admin, asked):
        admin.create_acls([READ, WRITE])
    assert [len(request.creations) for request in asked] == [2, 1]


def test_filters_say_what_each_has_removed() -> None:
    row = DeleteAclsMatchingAcl(
        resource_type=2, resource_name="orders", principal="User:bob", host="*", operation=3, permission_type=3
    )
    answer = DeleteAclsResponse(filter_results=[DeleteAclsFilterResult(matching_acls=[row]), DeleteAclsFilterResult()])
    with broker_that(lambda _: answer) as (admin, asked):
        assert admin.delete_acls([AclFilter(principal="User:bob"), WRITE]) == [[READ], []]
    (request,) = asked
    assert isinstance(request, DeleteAclsRequest)
    everything, exact = request.filters
    assert (everything.resource_type_filter, everything.resource_name_filter, everything.pattern_type_filter) == (
        1,
        None,
        1,
    )
    assert (exact.resource_type_filter, exact.resource_name_filter, exact.pattern_type_filter) == (2, "orders", 3)
    assert (exact.operation, exact.permission_type, exact.host_filter) == (4, 3, "*")


def test_words_of_the_future_are_unknown() -> None:
    """A newer broker may know operations that are not known here."""
    entry = AclDescription(principal="User:bob", host="*", operation=99, permission_type=3)
    answer = DescribeAclsResponse(resources=[DescribeAclsResource(resource_type=42, resource_name="x", acls=[entry])])
    with broker_that(lambda _: answer) as (admin, asked):
        (found,) = admin.describe_acls(AclFilter(operation="Describe-Configs"))
        assert (found.resource_type, found.operation) == ("unknown", "unknown")
        with pytest.raises(ConfigError, match="resource_type cannot be 'unknown'"):
            admin.delete_acls([found])
    assert isinstance(asked[0], DescribeAclsRequest)
    assert asked[0].operation == 10


def test_password_is_salted_here_and_in_no_text() -> None:
    """One request for each mechanism: a broker changes a user once by each."""
    wanted = [login(), login(mechanism="scram_sha_256", iterations=4096), login(user="eve")]

    def takes(request: AlterUserScramCredentialsRequest) -> AlterUserScramCredentialsResponse:
        users = [each.name for each in (*request.upsertions, *request.deletions)]
        return AlterUserScramCredentialsResponse(results=[AlterUserScramCredentialsResult(user=user) for user in users])

    with broker_that(takes) as (admin, asked):
        admin.alter_user_scram_credentials(
            wanted, [UserScramCredential(user="eve", mechanism="SCRAM-SHA-256", iterations=1)]
        )
    first, second = asked
    assert ([each.name for each in first.upsertions], [each.name for each in first.deletions]) == (["bob"], ["eve"])
    assert [each.name for each in second.upsertions] == ["bob", "eve"]
    for request, name, rounds in ((first, "sha256", 4096), (second, "sha512", 8192)):
        for each in request.upsertions:
            assert each.salted_password == hashlib.pbkdf2_hmac(name, SECRET.encode(), each.salt, rounds)
    assert len({each.salt for request in asked for each in request.upsertions}) == 3
    for text in (repr(wanted), str(wanted[0]), repr(first.upsertions)):
        assert SECRET not in text
        assert repr(first.upsertions[0].salted_password) not in text


def test_right_that_is_missing_is_named() -> None:
    answer = DescribeAclsResponse(
        error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED, error_message="Request Request(...)"
    )
    with broker_that(lambda _: answer) as (admin, _), pytest.raises(AuthorizationError) as told:
        admin.describe_acls()
    assert (told.value.operation, told.value.resource_type, told.value.name) == ("describe", "cluster", "kafka-cluster")
    assert "this user lacks describe on the cluster; kohort acl add" in str(told.value)
    assert "Request" not in str(told.value)


def test_our_broker_keeps_users_and_limits() -> None:
    """As Apache Kafka does, whether a listener asks for a login or not."""
    with kohort.Broker() as broker, Admin(bootstrap_servers=broker.bootstrap_servers) as admin:
        admin.alter_user_scram_credentials([login()])
        assert [(row.user, row.mechanism) for row in admin.describe_user_scram_credentials()] == [
            (login().user, login().mechanism)
        ]
        admin.alter_client_quotas([quota()])
        assert admin.describe_client_quotas() == [quota()]


def test_our_broker_keeps_access_lists_where_it_looks_at_rights() -> None:
    """As Apache Kafka's: without an authorizer there are none."""
    with kohort.Broker() as broker, Admin(bootstrap_servers=broker.bootstrap_servers) as admin:
        for call in (lambda: admin.create_acls([READ]), admin.describe_acls, lambda: admin.delete_acls([READ])):
            with pytest.raises(BrokerError) as found:
                call()
            assert found.value.code == ErrorCode.SECURITY_DISABLED
            assert "set authorizer.class.name" in str(found.value)
    config = {"authorizer.class.name": "kafka.security.authorizer.AclAuthorizer", "super.users": "User:ANONYMOUS"}
    with kohort.Broker(config=config) as broker, Admin(bootstrap_servers=broker.bootstrap_servers) as admin:
        admin.create_acls([READ, WRITE])
        assert admin.describe_acls(READ) == [READ]
        assert admin.delete_acls([READ, AclFilter()]) == [[READ], sorted([READ, WRITE], key=str)]
        assert admin.describe_acls() == []
