"""Heartbeats that come again word for word: answered as if they were read anew, for as long as that is so."""

from __future__ import annotations

import asyncio
import gc
import weakref
from collections.abc import Awaitable, Callable
from struct import pack
from types import SimpleNamespace
from typing import Any, cast

import pytest

import kohort
from kohort.broker.access.rights import EVERYTHING
from kohort.broker.connections.buffers import BASE_BYTES, KEPT_BYTES
from kohort.broker.connections.heartbeats import LONGEST_REPEAT_BYTES, CachedHeartbeat
from kohort.broker.connections.request import Peer, ReplyQueue, Request
from kohort.broker.dispatch import Routes
from kohort.broker.embedded import Broker
from kohort.coordinator import commands
from kohort.coordinator.commands import CommitOffsets, OffsetToCommit
from kohort.coordinator.settings import GroupSettings
from kohort.errors import ErrorCode
from kohort.ids import ZERO_TOPIC_ID
from kohort.testing.disks import MemoryFileSystem
from kohort.wire.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest, TopicPartitions
from kohort.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest
from kohort.wire.registry import ApiKey
from support.builders.storage_logs import empty_log
from support.dialogues.broker_wire import RawClient, batch_of, encode_request, fetch_request, produce_request
from support.dialogues.running_coordinator import RunningCoordinator
from support.dialogues.wired_connection import WiredConnection, wired_broker

BEAT = ApiKey.CONSUMER_GROUP_HEARTBEAT


def beat_request(member_id: str, epoch: int, **fields: Any) -> ConsumerGroupHeartbeatRequest:
    if epoch == 0:
        fields = {"rebalance_timeout_ms": 10_000, "subscribed_topic_names": ["t"], "topic_partitions": [], **fields}
    return ConsumerGroupHeartbeatRequest(group_id="g", member_id=member_id, member_epoch=epoch, **fields)


def settle(client: RawClient, version: int = 1) -> Any:
    """Member "a" has all of "t"; the answer that stands from now on."""
    topic_id = client.create_topic("t", partitions=2)
    epoch = client.ask(BEAT, version, beat_request("a", 0)).member_epoch
    owned = [TopicPartitions(topic_id=topic_id, partitions=[0, 1])]
    client.ask(BEAT, version, beat_request("a", epoch, topic_partitions=owned))
    standing = client.ask(BEAT, version, beat_request("a", epoch))
    assert (standing.error_code, standing.member_epoch, standing.assignment) == (ErrorCode.NONE, epoch, None)
    return standing


@pytest.mark.parametrize("version", [0, 1])
def test_answer_stands_and_has_the_id_of_each_request(client: RawClient, version: int) -> None:
    standing = settle(client, version)
    request = beat_request("a", standing.member_epoch)

    assert client.ask(BEAT, version, request) == standing
    frames = [encode_request(BEAT, version, request, correlation_id=number) for number in (7, -1, 7, 2**31 - 1)]
    client.socket.sendall(b"".join(frames))

    assert [client.receive(BEAT, version) for _ in frames] == [(id_, standing) for id_ in (7, -1, 7, 2**31 - 1)]


def test_heartbeat_tells_since_when_no_application_polls(client: RawClient, broker: Broker) -> None:
    standing = settle(client)
    with kohort.Admin(bootstrap_servers=broker.bootstrap_servers) as admin:
        (member,) = admin.describe_group("g").members
        assert member.last_poll_ms is None, "a stock client tells nothing"
        for _ in range(2):
            assert client.ask(BEAT, 1, beat_request("a", standing.member_epoch, last_poll_ms=7_000)) == standing
            (member,) = admin.describe_group("g").members
            assert member.last_poll_ms is not None and member.last_heard_ms is not None
            assert member.last_poll_ms == 7_000 + member.last_heard_ms
        admin.alter_group_configs("g", {"group.liveness": "fetch"})
        assert admin.describe_group("g").members[0].last_poll_ms is None, "a fetch is no word of polls"


def test_same_bytes_are_answered_anew_once_there_is_something_new(client: RawClient) -> None:
    standing = settle(client)
    request = beat_request("a", standing.member_epoch)

    joined = client.ask(BEAT, 1, beat_request("b", 0))
    told = client.ask(BEAT, 1, request)

    assert joined.member_epoch > standing.member_epoch
    assert [row.partitions for row in told.assignment.topic_partitions] == [[0]], "it has to give one up"


def test_member_that_is_gone_hears_of_it(client: RawClient) -> None:
    standing = settle(client)
    assert client.ask(BEAT, 1, beat_request("a", -1)).error_code == ErrorCode.NONE

    assert client.ask(BEAT, 1, beat_request("a", standing.member_epoch)).error_code == ErrorCode.UNKNOWN_MEMBER_ID


def test_another_member_on_the_same_connection_is_not_mistaken(client: RawClient) -> None:
    standing = settle(client)

    assert client.ask(BEAT, 1, beat_request("b", standing.member_epoch)).error_code == ErrorCode.UNKNOWN_MEMBER_ID
    assert client.ask(BEAT, 1, beat_request("a", standing.member_epoch)) == standing
    assert client.ask(BEAT, 1, beat_request("a", standing.member_epoch + 1)).error_code == (
        ErrorCode.FENCED_MEMBER_EPOCH
    )


def test_interval_that_was_set_meanwhile_is_told(client: RawClient, broker: Broker) -> None:
    standing = settle(client)
    with kohort.Admin(bootstrap_servers=broker.bootstrap_servers) as admin:
        assert client.ask(BEAT, 1, beat_request("a", standing.member_epoch)) == standing
        for interval_ms in (700, 800):
            admin.alter_group_configs("g", {"consumer.heartbeat.interval.ms": str(interval_ms)})
            for _ in range(2):
                told = client.ask(BEAT, 1, beat_request("a", standing.member_epoch))
                assert (told.error_code, told.heartbeat_interval_ms) == (ErrorCode.NONE, interval_ms)


def test_answer_waits_for_those_of_earlier_requests(client: RawClient) -> None:
    """A long poll stands in between: answers leave in the order of their requests."""
    standing = settle(client)
    poll = client.send(ApiKey.FETCH, 11, fetch_request("t", max_wait_ms=100))
    beat = client.send(BEAT, 1, beat_request("a", standing.member_epoch))

    assert client.receive(ApiKey.FETCH, 11)[0] == poll
    assert client.receive(BEAT, 1) == (beat, standing)


def test_each_is_counted(client: RawClient, broker: Broker) -> None:
    standing = settle(client)

    def counted() -> int:
        with kohort.Admin(bootstrap_servers=broker.bootstrap_servers) as admin:
            return admin.group_history("g").counts["heartbeats"]

    before = counted()
    for _ in range(5):
        client.ask(BEAT, 1, beat_request("a", standing.member_epoch))
    assert counted() == before + 5


# One connection, and a test in the place of its socket.


def wired(dialogue: Callable[[WiredConnection, bytes, Any], Awaitable[None]], **config: object) -> None:
    """A dialogue with a connection whose member "a" is settled: the connection, its heartbeat, the standing answer."""

    async def main() -> None:
        with wired_broker({"group.consumer.assignment.window.ms": 0, **config}) as context:
            connection = WiredConnection(context)
            row = CreatableTopic(name="t", num_partitions=2, replication_factor=1)
            created = await connection.ask(ApiKey.CREATE_TOPICS, 7, CreateTopicsRequest(topics=[row]))
            epoch = (await connection.ask(BEAT, 1, beat_request("a", 0))).member_epoch
            owned = [TopicPartitions(topic_id=created.topics[0].topic_id, partitions=[0, 1])]
            await connection.ask(BEAT, 1, beat_request("a", epoch, topic_partitions=owned))
            request = beat_request("a", epoch)
            standing = await connection.ask(BEAT, 1, request)
            await dialogue(connection, encode_request(BEAT, 1, request, correlation_id=5), standing)

    asyncio.run(main())


def test_repeat_is_not_handed_to_a_coordinator() -> None:
    async def dialogue(connection: WiredConnection, beat: bytes, standing: Any) -> None:
        before = connection.requests_carried_out()
        for _ in range(3):
            connection.feed(beat)
            assert connection.take_answers(BEAT, 1) == [(5, standing)]
        assert connection.requests_carried_out() == before + 1

        connection.feed(beat, beat)
        assert connection.take_answers(BEAT, 1) == [(5, standing)] * 2
        assert connection.requests_carried_out() == before + 4, "of several that come at once each is read"

    wired(dialogue)


def test_repeat_waits_while_its_client_does_not_read() -> None:
    async def dialogue(connection: WiredConnection, beat: bytes, standing: Any) -> None:
        connection.connection.pause_writing()
        before = connection.counted("g", "heartbeats")
        connection.feed(beat)
        assert (connection.take_written(), connection.counted("g", "heartbeats")) == (b"", before)
        connection.connection.resume_writing()
        assert await connection.receive(BEAT, 1) == [(5, standing)]
        assert connection.counted("g", "heartbeats") == before + 1

    wired(dialogue)


def test_repeat_is_not_answered_once_the_broker_stops() -> None:
    async def dialogue(connection: WiredConnection, beat: bytes, standing: Any) -> None:
        connection.connection.finish()
        connection.feed(beat)
        assert connection.take_written() == b""

    wired(dialogue)


def test_buffer_that_grew_is_given_back_also_if_a_repeat_comes_last() -> None:
    """A long request and the repeat come together, and handling stops between them."""

    async def dialogue(connection: WiredConnection, beat: bytes, standing: Any) -> None:
        long = encode_request(ApiKey.PRODUCE, 9, produce_request("t", batch_of(b"x" * (KEPT_BYTES + 1)), acks=0))
        connection.feed(long, beat)
        assert await connection.receive(BEAT, 1) == [(5, standing)]
        assert len(connection.connection.get_buffer(-1)) == BASE_BYTES

    wired(dialogue, **{"queued.max.requests": 1, "message.max.bytes": 2 * KEPT_BYTES})


def test_long_heartbeat_is_not_kept() -> None:
    async def dialogue(connection: WiredConnection, beat: bytes, standing: Any) -> None:
        long = encode_request(BEAT, 1, beat_request("a" * LONGEST_REPEAT_BYTES, 3))
        connection.feed(long)
        before = connection.requests_carried_out()
        connection.feed(long)
        assert connection.requests_carried_out() == before + 2
        connection.feed(beat)
        assert connection.requests_carried_out() == before + 3, "the one before is still kept"

    wired(dialogue)


@pytest.mark.large
def test_connection_that_is_closed_is_freed_at_once() -> None:
    """What is kept knows its connection: nobody waits for the collector."""

    async def dialogue(connection: WiredConnection, beat: bytes, standing: Any) -> None:
        connection.feed(beat)
        reference = weakref.ref(connection.connection)
        connection.connection.connection_lost(None)
        gc.collect()
        gc.disable()
        try:
            del connection.connection
            assert reference() is None
        finally:
            gc.enable()

    wired(dialogue)


def test_nothing_is_told_before_the_disk_has_what_was_appended() -> None:
    """A repeat that only reads would tell of what a crash takes back: it waits, like any other request."""

    async def dialogue() -> None:
        settings = GroupSettings(
            group_consumer_assignment_window_ms=0, group_consumer_rebalance_heartbeat_interval_ms=0
        )
        coordinator = RunningCoordinator(empty_log(MemoryFileSystem(), "/__consumer_offsets-0"), settings)
        reply = await coordinator.ask(heartbeat(coordinator, 0, subscribed_topic_names=("t",), topic_partitions={}))
        assert isinstance(reply, commands.ConsumerGroupHeartbeatReply)
        assert reply.assignment is not None
        await coordinator.ask(heartbeat(coordinator, reply.member_epoch, topic_partitions=reply.assignment))
        again = heartbeat(coordinator, reply.member_epoch)
        assert coordinator.runtime.renew(again) == settings.group_consumer_heartbeat_interval_ms

        committed = coordinator.ask(commit(coordinator, reply.member_epoch))
        assert coordinator.runtime.renew(again) is None
        await committed
        assert coordinator.runtime.renew(again) == settings.group_consumer_heartbeat_interval_ms

        await coordinator.stop()
        assert coordinator.runtime.renew(again) is None

    asyncio.run(dialogue())


def heartbeat(coordinator: RunningCoordinator, epoch: int, **fields: Any) -> commands.ConsumerGroupHeartbeat:
    if epoch == 0:
        fields["rebalance_timeout_ms"] = 10_000
    return commands.ConsumerGroupHeartbeat(
        **coordinator.ids(),
        group_id="g",
        member_id="a",
        member_epoch=epoch,
        client_id="c",
        client_host="/127.0.0.1",
        **fields,
    )


def commit(coordinator: RunningCoordinator, epoch: int) -> CommitOffsets:
    return CommitOffsets(
        **coordinator.ids(),
        group_id="g",
        member_id="a",
        generation_or_member_epoch=epoch,
        offsets=(OffsetToCommit(topic="t", topic_id=ZERO_TOPIC_ID, partition=0, offset=1),),
    )


class Answered:
    """A standing heartbeat of a client that never waits."""

    def hold_ms(self) -> int:
        return -1

    def hold(self, request: Request, hold_ms: int) -> bool:
        raise AssertionError("it never waits")

    def renew(self) -> bytes | None:
        return b"body"


def encode_answer(correlation_id: int, body: bytes) -> bytes:
    """Length, correlation id, no tags, body."""
    return pack(">iiB", 5 + len(body), correlation_id, 0) + body


@pytest.mark.parametrize(
    ("other", "is_same"),
    [
        (encode_request(BEAT, 1, beat_request("a", 3), correlation_id=9), True),
        (encode_request(BEAT, 0, beat_request("a", 3)), False),
        (encode_request(BEAT, 1, beat_request("b", 3)), False),
        (encode_request(BEAT, 1, beat_request("a", 4)), False),
        (encode_request(BEAT, 1, beat_request("a", 3, rack_id="")), False),
        (encode_request(BEAT, 1, beat_request("a", 3))[:-1], False),
        (encode_request(BEAT, 1, beat_request("a", 3)) + b"\0", False),
    ],
)
def test_repeat_differs_in_its_correlation_id_alone(other: bytes, is_same: bool) -> None:
    frame = memoryview(encode_request(BEAT, 1, beat_request("a", 3)))[4:]
    connection = cast(Peer, SimpleNamespace(rights=EVERYTHING))  # nobody asks it for more
    request = Request(connection, Routes().resolve(BEAT, 1), 5, "raw")
    repeat = CachedHeartbeat(frame, request, Answered())

    is_long = len(other) == repeat.size
    answer = repeat.carry_out(connection, memoryview(other), ReplyQueue(1)) if is_long else None

    assert answer == (encode_answer(9, b"body") if is_same else None)
