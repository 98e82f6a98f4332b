"""The table of needed rights, beside what every API asks for; and what the denied do and learn."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from kohort.broker.access import required_rights
from kohort.broker.access.required_rights import REQUIRED_RIGHTS, Need, rights_of, rows
from kohort.broker.apis import list_groups
from kohort.broker.context import BrokerContext
from kohort.broker.groups.runtime import Runtime
from kohort.errors import ErrorCode
from kohort.security.access_control import AclOperation, ResourceType
from kohort.wire.codec import encode
from kohort.wire.private import PrivateApiKey
from kohort.wire.registry import AnyApiKey, ApiKey
from support.dialogues.broker_wire import batch_of, make, produce_request
from support.dialogues.wired_connection import WiredConnection, wired_broker
from support.scenarios.needed_rights import (
    HIDDEN,
    SECRET,
    SEEN,
    TestedRights,
    prepare,
    requests_of,
    served_keys,
    state_of,
    tells,
)

CONFIG = {"group.consumer.assignment.window.ms": 0, "auto.create.topics.enable": True}
TOPIC, GROUP, CLUSTER = ResourceType.TOPIC, ResourceType.GROUP, ResourceType.CLUSTER


def play(scene: Callable[[BrokerContext, dict[str, bytes]], Awaitable[None]]) -> None:
    """Let a scene play in a broker with the topics and groups of `prepare`."""

    async def run() -> None:
        with wired_broker(CONFIG) as context:
            await scene(context, await prepare(WiredConnection(context)))

    asyncio.run(asyncio.wait_for(run(), 60))


def client_with(context: BrokerContext, rights: TestedRights) -> WiredConnection:
    client = WiredConnection(context)
    client.connection.rights = rights
    return client


def test_every_served_api_is_in_the_table() -> None:
    assert [key.name for key in served_keys() if key not in REQUIRED_RIGHTS] == []


def test_an_api_that_is_left_out_of_the_table_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """A planted fault: one of ours, which no page of Kafka's names."""
    without = {key: needs for key, needs in REQUIRED_RIGHTS.items() if key != PrivateApiKey.SUBMIT_MOVES}
    monkeypatch.setattr(required_rights, "REQUIRED_RIGHTS", without)
    left_out = [key for key in served_keys() if key not in required_rights.REQUIRED_RIGHTS]
    assert left_out == [PrivateApiKey.SUBMIT_MOVES]


async def asked_of(context: BrokerContext, key: AnyApiKey, ids: dict[str, bytes]) -> set[required_rights.Right]:
    """What an API asks for of clients that may everything, that may nothing, and that lack one of its needs each."""
    lacking = [TestedRights(lambda *_: True), TestedRights(lambda *_: False)]
    for need in REQUIRED_RIGHTS[key]:
        lacking += [TestedRights(_but(need, instead=instead)) for instead in (False, True)]
    found: set[required_rights.Right] = set()
    for rights in lacking:
        for version, request in requests_of(key, ids):
            await client_with(context, rights).ask(key, version, request)
        found |= {(operation, resource) for operation, resource, _ in rights.asked}
    return found


def _but(need: Need, *, instead: bool) -> Callable[[AclOperation, ResourceType, str], bool]:
    """Everything is allowed but this need, or but what serves instead of it."""
    missing = need.instead if instead and need.instead is not None else (need.operation, need.resource)
    return lambda operation, resource, _: (operation, resource) != missing


def test_every_api_asks_for_exactly_what_the_table_says() -> None:
    async def scene(context: BrokerContext, ids: dict[str, bytes]) -> None:
        wrong = {}
        for key in served_keys():
            asked = await asked_of(context, key, ids)
            if asked != rights_of(key):
                wrong[key.name] = asked ^ rights_of(key)
        assert wrong == {}

    play(scene)


def test_a_check_that_is_left_out_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """A planted fault: an API that lists all groups to everyone."""

    def everyone(context: BrokerContext, request: Any, message: Any) -> None:
        rights, request.connection.rights = request.connection.rights, TestedRights(lambda *_: True)
        real(context, request, message)
        request.connection.rights = rights

    real = list_groups.handle
    monkeypatch.setattr(list_groups, "handle", everyone)

    async def scene(context: BrokerContext, ids: dict[str, bytes]) -> None:
        assert await asked_of(context, ApiKey.LIST_GROUPS, ids) == set()

    play(scene)


def test_rows_for_the_docs_say_what_is_needed() -> None:
    """Every API has a row; a right that serves instead is named."""
    found = list(rows())
    assert {row.number for row in found} == {int(key) for key in REQUIRED_RIGHTS}
    (creation,) = [row for row in found if row.api == "Metadata" and "CREATE" in row.needs]
    assert creation == (3, "Metadata", "CREATE TOPIC or CREATE CLUSTER", "each topic to create", creation.denied)
    assert creation.denied == "TOPIC_AUTHORIZATION_FAILED"
    assert [row.needs for row in found if row.api == "ApiVersions"] == [""]


# ---- the denied


def test_without_a_right_nothing_is_done_and_nothing_is_told() -> None:
    """Every API and form of request: the broker is as before, and no answer has a record, an offset or a name."""

    async def scene(context: BrokerContext, ids: dict[str, bytes]) -> None:
        before = state_of(context)
        for key in served_keys():
            for version, request in requests_of(key, ids):
                client = client_with(context, TestedRights(lambda *_: False))
                answer = encode(await client.ask(key, version, request), version)
                assert not tells(request, answer), key
        assert state_of(context) == before

    play(scene)


def only(*names: str) -> Callable[[AclOperation, ResourceType, str], bool]:
    """Everything on the named topics, and on every group; the cluster is another matter."""
    return lambda _, resource, name: resource is GROUP or (resource is TOPIC and name in names)


def test_answers_are_cut_to_what_is_allowed() -> None:
    """As Apache Kafka: filtered where all is asked for, refused by name, and without names where ids are."""

    async def scene(context: BrokerContext, ids: dict[str, bytes]) -> None:
        client = client_with(context, TestedRights(only(SEEN)))
        everything = await client.ask(ApiKey.METADATA, 13, make(ApiKey.METADATA, topics=None))
        assert [row.name for row in everything.topics] == [SEEN]
        by_id = [{"topic_id": ids[each], "name": None} for each in (SEEN, HIDDEN)]
        named = await client.ask(ApiKey.METADATA, 13, make(ApiKey.METADATA, topics=by_id))
        assert {(row.name, row.error_code) for row in named.topics} == {
            (SEEN, ErrorCode.NONE),
            (None, ErrorCode.TOPIC_AUTHORIZATION_FAILED),
        }
        whole = make(ApiKey.OFFSET_FETCH, groups=[{"group_id": "all", "topics": None}])
        offsets = await client.ask(ApiKey.OFFSET_FETCH, 9, whole)
        assert [row.name for row in offsets.groups[0].topics] == [SEEN]
        described = await client.ask(
            ApiKey.CONSUMER_GROUP_DESCRIBE, 1, make(ApiKey.CONSUMER_GROUP_DESCRIBE, group_ids=[SEEN])
        )
        assert described.groups[0].error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED
        assert described.groups[0].members == []
        history = await client.ask(
            PrivateApiKey.GROUP_HISTORY, 1, make(PrivateApiKey.GROUP_HISTORY, group_id=SEEN, after_sequence=0)
        )
        assert history.rows
        text = repr(history)
        assert SEEN in text and HIDDEN not in text and "more" in text

    play(scene)


def test_a_name_that_may_be_created_and_not_described_is_not_created() -> None:
    """Metadata with the broker's leave to create: CREATE on the topic or on the cluster, and DESCRIBE before it."""

    async def ask(context: BrokerContext, *allowed: tuple[AclOperation, ResourceType]) -> int:
        rights = TestedRights(lambda operation, resource, _: (operation, resource) in allowed)
        request = make(ApiKey.METADATA, topics=[{"name": f"new{len(context.cluster.topics)}"}])
        answer = await client_with(context, rights).ask(ApiKey.METADATA, 9, request)
        code: int = answer.topics[0].error_code
        return code

    async def scene(context: BrokerContext, ids: dict[str, bytes]) -> None:
        describe, create = (AclOperation.DESCRIBE, TOPIC), (AclOperation.CREATE, TOPIC)
        before = len(context.cluster.topics)
        for allowed in [(), (describe,), (create,), ((AclOperation.CREATE, CLUSTER),)]:
            assert await ask(context, *allowed) == ErrorCode.TOPIC_AUTHORIZATION_FAILED
        assert len(context.cluster.topics) == before
        for allowed in [(describe, create), (describe, (AclOperation.CREATE, CLUSTER))]:
            assert await ask(context, *allowed) == ErrorCode.NONE
        assert len(context.cluster.topics) == before + 2

    play(scene)


def test_authorized_operations_are_those_of_the_client() -> None:
    """Metadata, DescribeGroups, ConsumerGroupDescribe, DescribeCluster, DescribeTopicPartitions (KIP-430)."""
    some = {AclOperation.READ, AclOperation.DESCRIBE}
    bits = sum(1 << operation for operation in some)

    async def scene(context: BrokerContext, ids: dict[str, bytes]) -> None:
        client = client_with(context, TestedRights(lambda operation, *_: operation in some))
        metadata = make(
            ApiKey.METADATA, topics=[{"name": SEEN}], include_topic_authorized_operations=True,
            include_cluster_authorized_operations=True,
        )  # fmt: skip
        answer = await client.ask(ApiKey.METADATA, 9, metadata)
        assert (answer.topics[0].topic_authorized_operations, answer.cluster_authorized_operations) == (bits, 1 << 8)
        groups = make(ApiKey.CONSUMER_GROUP_DESCRIBE, group_ids=[SEEN], include_authorized_operations=True)
        answer = await client.ask(ApiKey.CONSUMER_GROUP_DESCRIBE, 1, groups)
        assert answer.groups[0].authorized_operations == bits
        pages = await client.ask(
            ApiKey.DESCRIBE_TOPIC_PARTITIONS, 0, make(ApiKey.DESCRIBE_TOPIC_PARTITIONS, topics=[{"name": SEEN}])
        )
        assert pages.topics[0].topic_authorized_operations == bits
        nobody = client_with(context, TestedRights(lambda *_: False))
        cluster = make(ApiKey.DESCRIBE_CLUSTER, include_cluster_authorized_operations=True)
        assert (await nobody.ask(ApiKey.DESCRIBE_CLUSTER, 1, cluster)).cluster_authorized_operations == 0
        assert (await client.ask(ApiKey.DESCRIBE_CLUSTER, 1, cluster)).cluster_authorized_operations == 1 << 8

    play(scene)


# ---- fetches


def fetch(*names: str, session_id: int = 0, session_epoch: int = -1) -> Any:
    rows = [
        {"topic": name, "partitions": [{"partition": 0, "fetch_offset": 0, "partition_max_bytes": 1_000}]}
        for name in names
    ]
    return make(
        ApiKey.FETCH, max_wait_ms=0, min_bytes=1, max_bytes=1 << 20, session_id=session_id,
        session_epoch=session_epoch, topics=rows,
    )  # fmt: skip


def test_rights_of_a_session_are_asked_once_and_again_when_they_change() -> None:
    """A fetch of thousands of topics costs no decision until the edition is another."""

    async def scene(context: BrokerContext, ids: dict[str, bytes]) -> None:
        rights = TestedRights(only(SEEN, HIDDEN))
        client = client_with(context, rights)
        first = await client.ask(ApiKey.FETCH, 12, fetch(SEEN, HIDDEN, session_epoch=0))
        assert [row.topic for row in first.responses] == [SEEN, HIDDEN]
        assert len(rights.asked) == 2
        for epoch in (1, 2):
            later = fetch(session_id=first.session_id, session_epoch=epoch)
            await client.ask(ApiKey.FETCH, 12, later)
        assert len(rights.asked) == 2
        rights.decide, rights.number = only(SEEN), 1
        for epoch in (3, 4):
            later = fetch(session_id=first.session_id, session_epoch=epoch)
            answer = await client.ask(ApiKey.FETCH, 12, later)
            denied = {row.topic: row.partitions[0].error_code for row in answer.responses}
            assert denied[HIDDEN] == ErrorCode.TOPIC_AUTHORIZATION_FAILED
        rights.decide, rights.number = only(SEEN, HIDDEN), 2
        again = await client.ask(ApiKey.FETCH, 12, fetch(session_id=first.session_id, session_epoch=5))
        assert {row.topic: row.partitions[0].error_code for row in again.responses} == {HIDDEN: 0, SEEN: 0}
        assert SECRET in bytes(again.responses[0].partitions[0].records)

    play(scene)


def test_a_client_that_calls_itself_a_replica_needs_the_right_of_one() -> None:
    """CVE-2018-1288: the right to read a topic is none to read it as a replica, and the reverse."""

    async def scene(context: BrokerContext, ids: dict[str, bytes]) -> None:
        for version in (12, 18):
            _, replica, *_ = (each for number, each in requests_of(ApiKey.FETCH, ids) if number == version)
            reader = TestedRights(lambda operation, *_: operation is AclOperation.READ)
            answer = await client_with(context, reader).ask(ApiKey.FETCH, version, replica)
            codes = {row.partitions[0].error_code for row in answer.responses}
            assert codes == {ErrorCode.TOPIC_AUTHORIZATION_FAILED}
            follower = TestedRights(lambda operation, *_: operation is AclOperation.CLUSTER_ACTION)
            answer = await client_with(context, follower).ask(ApiKey.FETCH, version, replica)
            assert {row.partitions[0].error_code for row in answer.responses} == {ErrorCode.NONE}

    play(scene)


def test_a_parked_fetch_looks_at_the_rights_before_it_answers() -> None:
    """What came after the right was taken away is not told, even if the fetch was let in before."""

    async def scene(context: BrokerContext, ids: dict[str, bytes]) -> None:
        rights = TestedRights(only(SEEN, HIDDEN))
        client, root = client_with(context, rights), WiredConnection(context)
        request = fetch(HIDDEN)
        request.max_wait_ms, request.topics[0].partitions[0].fetch_offset = 10_000, 1
        asking = asyncio.ensure_future(client.ask(ApiKey.FETCH, 12, request))
        await asyncio.sleep(0)
        rights.decide, rights.number = only(SEEN), 1
        await root.ask(ApiKey.PRODUCE, 9, produce_request(HIDDEN, batch_of(SECRET)))
        answer = await asking
        (row,) = answer.responses[0].partitions
        assert (row.error_code, bytes(row.records)) == (ErrorCode.TOPIC_AUTHORIZATION_FAILED, b"")

    play(scene)


# ---- patterns


def test_a_pattern_shows_what_may_be_described_also_when_topics_and_rights_change() -> None:
    """KAFKA-18813, with topics that are created later: by a client that may see them, and by one that may not."""
    pytest.importorskip("re2")

    async def scene(context: BrokerContext, ids: dict[str, bytes]) -> None:
        runtime, root = context.runtime, WiredConnection(context)
        assert isinstance(runtime, Runtime)
        runtime.hides_topics = True
        rights = TestedRights(only(SEEN, "created"))
        client = client_with(context, rights)
        request = make(
            ApiKey.CONSUMER_GROUP_HEARTBEAT, group_id="patterns", member_id="p", member_epoch=0,
            rebalance_timeout_ms=60_000, subscribed_topic_names=[], subscribed_topic_regex="(seen|hidden|created).*",
            topic_partitions=[],
        )  # fmt: skip
        answer = await client.ask(ApiKey.CONSUMER_GROUP_HEARTBEAT, 1, request)
        assert [row.topic_id for row in answer.assignment.topic_partitions] == [ids[SEEN]]
        for name in ("created", "hidden2"):
            row = {"name": name, "num_partitions": 1, "replication_factor": 1}
            await root.ask(ApiKey.CREATE_TOPICS, 7, make(ApiKey.CREATE_TOPICS, topics=[row], timeout_ms=1_000))
        assert await assigned(root) == {SEEN, "created"}
        rights.decide, rights.number = only("created", HIDDEN), 1
        runtime.sights_changed()
        assert await assigned(root) == {"created", HIDDEN}

    async def assigned(root: WiredConnection) -> set[str]:
        # The target is computed by a timer that is due at once.
        for _ in range(100):
            await asyncio.sleep(0)
        described = make(ApiKey.CONSUMER_GROUP_DESCRIBE, group_ids=["patterns"])
        answer = await root.ask(ApiKey.CONSUMER_GROUP_DESCRIBE, 1, described)
        (member,) = answer.groups[0].members
        return {row.topic_name for row in member.target_assignment.topic_partitions}

    play(scene)
