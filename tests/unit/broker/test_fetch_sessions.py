"""Fetch sessions (KIP-227) as bytes on the wire: what is not named is remembered, what is not news is not answered."""

from __future__ import annotations

import asyncio
import gc
import tracemalloc
from random import Random
from typing import cast

import pytest

from kohort.broker.connections.request import Peer, ReplyQueue, Request
from kohort.broker.dispatch import Routes
from kohort.broker.embedded import Broker
from kohort.broker.fetch import fetchsessions
from kohort.broker.fetch.fetchsessions import CachedFetch, FetchSession
from kohort.errors import ErrorCode
from kohort.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest
from kohort.wire.messages.delete_records import DeleteRecordsPartition, DeleteRecordsRequest, DeleteRecordsTopic
from kohort.wire.messages.fetch import (
    FetchableTopicResponse,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    ForgottenTopic,
    PartitionData,
)
from kohort.wire.registry import ApiKey
from support.dialogues.broker_wire import RawClient, batch_of, encode_request
from support.dialogues.wired_connection import WiredConnection, wired_broker

BY_NAME, BY_ID = 11, 17


def ask(
    client: RawClient,
    offsets: dict[int, int],
    *,
    session: tuple[int, int],
    forgotten: tuple[int, ...] = (),
    version: int = BY_NAME,
    topic_id: bytes = bytes(16),
    max_bytes: int = 1 << 20,
    max_wait_ms: int = 0,
) -> FetchResponse:
    """A fetch that names partitions of t at these offsets, in the session (id, epoch)."""
    request = build(
        offsets, session, forgotten=forgotten, topic_id=topic_id, max_bytes=max_bytes, max_wait_ms=max_wait_ms
    )
    answer: FetchResponse = client.ask(ApiKey.FETCH, version, request)
    return answer


def build(
    offsets: dict[int, int],
    session: tuple[int, int],
    *,
    forgotten: tuple[int, ...] = (),
    topic_id: bytes = bytes(16),
    max_bytes: int = 1 << 20,
    max_wait_ms: int = 0,
) -> FetchRequest:
    """Its request."""
    rows = [
        FetchPartition(partition=index, fetch_offset=offset, partition_max_bytes=1 << 20)
        for index, offset in offsets.items()
    ]
    gone = ForgottenTopic(topic="t", topic_id=topic_id, partitions=list(forgotten))
    return FetchRequest(
        max_wait_ms=max_wait_ms,
        min_bytes=1,
        max_bytes=max_bytes,
        session_id=session[0],
        session_epoch=session[1],
        topics=[FetchTopic(topic="t", topic_id=topic_id, partitions=rows)] if rows else [],
        forgotten_topics_data=[gone] if forgotten else [],
    )


def rows_of(answer: FetchResponse) -> dict[int, tuple[int, bool]]:
    """Partition -> end of its log, and whether records came."""
    assert answer.error_code == 0
    return {
        row.partition_index: (row.high_watermark, bool(row.records))
        for topic in answer.responses
        for row in topic.partitions
    }


@pytest.fixture
def session_id(client: RawClient) -> int:
    """A session over three empty partitions of t, whose next epoch is 1."""
    client.create_topic("t", partitions=3)
    answer = ask(client, dict.fromkeys(range(3), 0), session=(0, 0))
    assert rows_of(answer) == dict.fromkeys(range(3), (0, False)), "the first answer tells everything"
    assert answer.session_id > 0
    return answer.session_id


def test_only_what_is_news_is_answered(client: RawClient, session_id: int) -> None:
    """Records, and ends of logs that have moved; nothing twice."""
    assert rows_of(ask(client, {}, session=(session_id, 1))) == {}

    client.produce("t", b"a", partition=1)
    assert rows_of(ask(client, {}, session=(session_id, 2))) == {1: (1, True)}
    assert rows_of(ask(client, {}, session=(session_id, 3))) == {1: (1, True)}, "it was not said that they have come"
    assert rows_of(ask(client, {1: 1}, session=(session_id, 4))) == {}


def test_log_whose_beginning_alone_has_moved_is_news(client: RawClient, session_id: int) -> None:
    """KIP-227: a consumer that lies behind it would not hear of it before it reads there."""
    for value in (b"a", b"b"):
        client.produce("t", value, partition=1)
    assert rows_of(ask(client, {1: 2}, session=(session_id, 1))) == {1: (2, False)}
    assert rows_of(ask(client, {}, session=(session_id, 2))) == {}

    row = DeleteRecordsPartition(partition_index=1, offset=1)
    topic = DeleteRecordsTopic(name="t", partitions=[row])
    client.ask(ApiKey.DELETE_RECORDS, 2, DeleteRecordsRequest(topics=[topic], timeout_ms=10_000))

    answer = ask(client, {}, session=(session_id, 3))
    assert rows_of(answer) == {1: (2, False)}
    assert answer.responses[0].partitions[0].log_start_offset == 1
    assert rows_of(ask(client, {}, session=(session_id, 4))) == {}


def test_fetch_that_waits_is_answered_with_the_news(client: RawClient, broker: Broker, session_id: int) -> None:
    """Whoever appends wakes it, though it names nothing."""
    client.send(ApiKey.FETCH, BY_NAME, build({}, (session_id, 1), max_wait_ms=60_000))
    with RawClient(broker.port) as other:
        other.produce("t", b"a", partition=2)

    _, answer = client.receive(ApiKey.FETCH, BY_NAME)

    assert rows_of(answer) == {2: (1, True)}


def test_partition_that_is_forgotten_is_read_no_more(client: RawClient, session_id: int) -> None:
    """Named again it is told anew."""
    client.produce("t", b"a", partition=0)
    client.produce("t", b"b", partition=1)

    assert rows_of(ask(client, {}, session=(session_id, 1), forgotten=(0, 2))) == {1: (1, True)}
    assert rows_of(ask(client, {1: 1, 2: 0}, session=(session_id, 2))) == {2: (0, False)}
    assert rows_of(ask(client, {0: 1}, session=(session_id, 3))) == {0: (1, False)}


def test_partitions_take_turns(client: RawClient, session_id: int) -> None:
    """Where the answer holds one batch; the client does not say in which order any more."""
    size = len(batch_of(bytes(1_000)))
    for partition in range(3):
        client.produce("t", bytes(1_000), partition=partition)

    told = [rows_of(ask(client, {}, session=(session_id, 1 + turn), max_bytes=size)) for turn in range(6)]

    assert [[index for index, (_, has_records) in rows.items() if has_records] for rows in told] == [
        [0], [1], [2], [0], [1], [2],
    ]  # fmt: skip


def test_error_is_told_each_time_and_its_end_too(client: RawClient, session_id: int) -> None:
    """KIP-227: what is wrong is always news."""
    for epoch in (1, 2):
        answer = ask(client, {0: 99} if epoch == 1 else {}, session=(session_id, epoch))
        assert [row.error_code for row in answer.responses[0].partitions] == [ErrorCode.OFFSET_OUT_OF_RANGE]

    assert rows_of(ask(client, {0: 0}, session=(session_id, 3))) == {0: (0, False)}


def test_other_epoch_or_session_is_refused(client: RawClient, broker: Broker, session_id: int) -> None:
    """The client goes on with a full fetch; a session belongs to its connection."""
    assert ask(client, {}, session=(session_id, 2)).error_code == ErrorCode.INVALID_FETCH_SESSION_EPOCH
    assert ask(client, {}, session=(session_id + 1, 1)).error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    with RawClient(broker.port) as other:
        assert ask(other, {}, session=(session_id, 1)).error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    assert rows_of(ask(client, {}, session=(session_id, 1))) == {}, "what is refused changes nothing"


def test_names_and_ids_do_not_mix(client: RawClient, session_id: int) -> None:
    """KIP-516."""
    answer = ask(client, {}, session=(session_id, 1), version=BY_ID)
    assert answer.error_code == ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR


def test_session_by_topic_ids(client: RawClient) -> None:
    """From version 13 on."""
    topic_id = client.create_topic("t", partitions=2)
    opened = ask(client, {0: 0, 1: 0}, session=(0, 0), version=BY_ID, topic_id=topic_id)
    client.produce("t", b"a", partition=1)

    assert rows_of(ask(client, {}, session=(opened.session_id, 1), version=BY_ID)) == {1: (1, True)}


def test_session_that_is_closed_or_begun_anew_is_gone(client: RawClient, broker: Broker, session_id: int) -> None:
    """Epoch 0 with its id begins another in its place, epoch -1 ends it."""
    again = ask(client, {0: 0}, session=(session_id, 0))
    assert rows_of(again) == {0: (0, False)}
    client.produce("t", b"a", partition=1)
    assert rows_of(ask(client, {}, session=(again.session_id, 1))) == {}, "it is about partition 0 alone"

    last = ask(client, {0: 0}, session=(again.session_id, -1))

    assert last.session_id == 0
    assert ask(client, {}, session=(again.session_id, 2)).error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND


def test_fetch_without_a_session_gets_none(client: RawClient, session_id: int) -> None:
    """Nor does one that asks for nothing."""
    assert ask(client, {0: 0}, session=(0, -1)).session_id == 0
    assert ask(client, {}, session=(0, 0)).session_id == 0


def test_session_is_bounded(client: RawClient, session_id: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """What a client names goes on to take memory: more than that is fetched in full each time."""
    monkeypatch.setattr(fetchsessions, "MOST_PARTITIONS", 3)

    assert ask(client, {3: 0}, session=(session_id, 1)).error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    assert ask(client, dict.fromkeys(range(4), 0), session=(0, 0)).session_id == 0
    assert ask(client, dict.fromkeys(range(3), 0), session=(0, 0)).session_id > 0


def test_session_goes_with_its_connection() -> None:
    """Whenever the garbage collector comes: half a gigabyte stayed with an idle broker."""

    async def play() -> None:
        with wired_broker({}) as context:
            client = WiredConnection(context)
            topic = CreatableTopic(name="t", num_partitions=2, replication_factor=1)
            await client.ask(ApiKey.CREATE_TOPICS, 5, CreateTopicsRequest(topics=[topic]))
            answer = await client.ask(ApiKey.FETCH, BY_NAME, build({0: 0, 1: 0}, (0, 0)))
            assert answer.session_id > 0 and len(context.fetch_sessions) == 1
            gc.disable()
            client.connection.connection_lost(None)
            assert len(context.fetch_sessions) == 0

    try:
        asyncio.run(play())
    finally:
        gc.enable()


@pytest.mark.large
def test_rows_of_a_session_take_few_bytes() -> None:
    """However large their numbers are; and all of them are given back."""

    def begin() -> FetchSession:
        session = FetchSession(1, by_id=False, now_ms=0)
        session.update(build({number: (1 << 40) + 7 * number for number in range(5_000)}, (0, 0)))
        ends = {number: (1 << 39, (1 << 41) + number, True) for number in reversed(range(5_000))}
        assert len(session.reduce(answer_of(ends)).responses[0].partitions) == 5_000
        return session

    held, left = [], []
    tracemalloc.start()
    try:
        # What the first one leaves for good, such as byte code, is none of its rows'.
        begin()
        # Other threads of the process allocate, too, though not each time.
        for _ in range(3):
            before = tracemalloc.get_traced_memory()[0]
            sessions = [begin() for _ in range(2)]
            held.append(tracemalloc.get_traced_memory()[0] - before)
            del sessions
            left.append(tracemalloc.get_traced_memory()[0] - before)
    finally:
        tracemalloc.stop()
    assert 10_000 * 20 < min(held) < 10_000 * 150
    assert min(left) < 10_000


def answer_of(ends: dict[int, tuple[int, int, bool]], stable: dict[int, int] | None = None) -> FetchResponse:
    """A full answer: partition of t -> begin and end of its log, and whether records came; where it is stable."""
    rows = [
        PartitionData(
            partition_index=number,
            log_start_offset=start,
            high_watermark=end,
            last_stable_offset=end if stable is None else stable[number],
            records=b"records" if has_records else b"",
        )
        for number, (start, end, has_records) in ends.items()
    ]
    return FetchResponse(responses=[FetchableTopicResponse(topic="t", topic_id=bytes(16), partitions=rows)])


@pytest.mark.parametrize("seed", range(20))
def test_session_is_what_a_plain_dictionary_says(seed: int) -> None:
    """What is asked in which order, and what is news, over partitions that come, go and are read in any order."""
    random = Random(seed)
    session = FetchSession(1, by_id=False, now_ms=0)
    asked: dict[int, int] = {}
    told: dict[int, tuple[int, int, int]] = {}
    numbers = [random.randint(0, 2**31 - 1), *range(random.choice((0, 5)), 12)]
    for _ in range(60):
        named = {number: random.randint(0, 9) for number in random.sample(numbers, random.randint(0, 5))}
        gone = tuple(random.sample(numbers, random.choice((0, 0, 3))))
        session.update(build(named, (1, 1), forgotten=gone))
        asked.update(named)
        for number in gone:
            asked.pop(number, None)
            told.pop(number, None)

        found = {number: offset for _, columns in session.asked() for number, offset in zip(*columns[:2], strict=True)}
        assert list(found.items()) == list(asked.items())
        assert session.size == len(asked)

        ends = {number: (random.randint(0, 1), random.randint(2, 3), random.random() < 0.2) for number in asked}
        # Most logs have no open transaction.
        stable = {number: end - (random.random() < 0.2) for number, (_, end, _) in ends.items()}
        now = {number: (start, end, stable[number]) for number, (start, end, _) in ends.items()}
        news = [number for number, (_, _, is_read) in ends.items() if is_read or told.get(number) != now[number]]
        answer = session.reduce(answer_of(ends, stable))
        assert [row.partition_index for topic in answer.responses for row in topic.partitions] == news
        for number, (_, _, is_read) in ends.items():
            told[number] = now[number]
            assert session.knows(("t", bytes(16)), number, now[number])
            if is_read:
                asked[number] = asked.pop(number)


class Twins:
    """Two sessions that are asked alike; the bytes of one never come again, so that each of its fetches is read."""

    def __init__(self, repeating: RawClient, changing: RawClient, topic_id: bytes) -> None:
        self.clients = (repeating, changing)
        self.topic_id = topic_id
        self.sessions = [0, 0]
        self.epoch = 0
        self.asked = 0

    def ask(self, offsets: dict[int, int], *, epoch: int | None = None, max_wait_ms: int = 1) -> FetchResponse:
        """The answer that both give; `epoch`: of one that is not the next."""
        self.asked += 1
        answers = [
            ask(
                client,
                offsets,
                session=(self.sessions[at], self.epoch if epoch is None else epoch),
                version=BY_ID,
                topic_id=self.topic_id,
                max_bytes=(1 << 20) + at * (1 + self.asked % 2),
                max_wait_ms=max_wait_ms,
            )
            for at, client in enumerate(self.clients)
        ]
        if not self.epoch:
            self.sessions = [answer.session_id for answer in answers]
        self.epoch += epoch is None
        for answer in answers:
            answer.session_id = 0
        assert answers[0] == answers[1]
        return answers[0]


@pytest.mark.parametrize("seed", range(3))
def test_fetch_that_comes_again_is_answered_as_if_it_were_read(client: RawClient, broker: Broker, seed: int) -> None:
    """Data, a new beginning, another offset, an epoch that is wrong, and in between nothing."""
    draw = Random(seed)
    topic_id = client.create_topic("t", partitions=2)
    with RawClient(broker.port) as changing, RawClient(broker.port) as steward:
        twins = Twins(client, changing, topic_id)
        ends, starts, offsets = [0, 0], [0, 0], [0, 0]
        twins.ask({0: 0, 1: 0})
        for _ in range(120):
            step, at = draw.choice([*["nothing"] * 5, "data", "read", "back", "cut", "epoch"]), draw.randrange(2)
            named: dict[int, int] = {}
            if step == "data":
                steward.produce("t", b"a", partition=at)
                ends[at] += 1
            elif step == "cut" and starts[at] < offsets[at]:
                starts[at] += 1
                row = DeleteRecordsPartition(partition_index=at, offset=starts[at])
                topic = DeleteRecordsTopic(name="t", partitions=[row])
                steward.ask(ApiKey.DELETE_RECORDS, 2, DeleteRecordsRequest(topics=[topic], timeout_ms=10_000))
            elif step == "read":
                named = {number: end for number, end in enumerate(ends) if end != offsets[number]}
            elif step == "back":
                named = {at: starts[at]}
            elif step == "epoch":
                assert twins.ask({}, epoch=twins.epoch + 5).error_code == ErrorCode.INVALID_FETCH_SESSION_EPOCH
            for number, offset in named.items():
                offsets[number] = offset
            found = rows_of(twins.ask(named))
            waiting = {number for number in range(2) if offsets[number] < ends[number]}
            assert {number for number, (_, has_records) in found.items() if has_records} == waiting


class Waited:
    """A fetch that waits whenever it is asked to."""

    def __init__(self) -> None:
        self.epochs: list[int] = []

    def wait_again(self, request: Request, epoch: int) -> bool:
        self.epochs.append(epoch)
        return True


@pytest.mark.parametrize("version", [14, BY_ID])
def test_fetch_comes_again_if_all_but_its_correlation_id_and_its_epoch_is_equal(version: int) -> None:
    def bytes_of(epoch: int, *, correlation_id: int = 1, max_wait_ms: int = 5) -> memoryview:
        request = build({}, (77, epoch), max_wait_ms=max_wait_ms)
        return memoryview(encode_request(ApiKey.FETCH, version, request, correlation_id=correlation_id))

    request = Request(cast(Peer, None), Routes().resolve(ApiKey.FETCH, version), 1, "raw")
    fetch = Waited()
    cached = CachedFetch.of(bytes_of(3)[4:], request, fetch)
    assert cached is not None
    again = cached.carry_out(request.connection, bytes_of(4, correlation_id=9), ReplyQueue(1))
    other = cached.carry_out(request.connection, bytes_of(4, max_wait_ms=6), ReplyQueue(1))
    assert again is not None and (again.correlation_id, fetch.epochs, other) == (9, [4], None)
