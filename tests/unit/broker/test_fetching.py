"""Fetches from the first look at the logs to the answer: many rows, few bytes, cold disks, files that somebody cut."""

from __future__ import annotations

import asyncio
import gc
import os
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
import uvloop

from kohort.broker.apis import fetch
from kohort.broker.embedded import Broker
from kohort.broker.fetch.fetchsessions import FetchSessions
from kohort.broker.limits import memory
from kohort.broker.options.settings import BrokerSettings
from kohort.broker.scheduling import warm
from kohort.broker.server import Server
from kohort.errors import ErrorCode
from kohort.storage.files.descriptors import NotResidentError
from kohort.storage.partitions.partition import PartitionLog
from kohort.storage.segments.segment import segment_name
from kohort.testing import Fault, FaultyFileSystem
from kohort.wire.messages.delete_records import DeleteRecordsPartition, DeleteRecordsRequest, DeleteRecordsTopic
from kohort.wire.messages.delete_topics import DeleteTopicsRequest
from kohort.wire.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic
from kohort.wire.registry import ApiKey
from support.builders.coldness import make_cold
from support.dialogues.broker_wire import RawClient, batch_of, encode_request
from support.waiting import PATIENCE_SECONDS

VERSION = 11
LOOPS = {"asyncio": asyncio.SelectorEventLoop, "uvloop": uvloop.new_event_loop}


def build(
    offsets: dict[int, int] | list[tuple[int, int]],
    *,
    min_bytes: int = 1,
    max_wait_ms: int = 0,
    max_bytes: int = 1 << 24,
    session: tuple[int, int] = (0, -1),
) -> FetchRequest:
    """A fetch of partitions of t at these offsets."""
    rows = [
        FetchPartition(partition=number, fetch_offset=offset, partition_max_bytes=1 << 20)
        for number, offset in (offsets.items() if isinstance(offsets, dict) else offsets)
    ]
    return FetchRequest(
        max_wait_ms=max_wait_ms,
        min_bytes=min_bytes,
        max_bytes=max_bytes,
        session_id=session[0],
        session_epoch=session[1],
        topics=[FetchTopic(topic="t", partitions=rows)],
    )


def sizes_of(answer: FetchResponse) -> dict[int, int]:
    """Partition -> bytes of records."""
    (topic,) = answer.responses
    assert len({row.partition_index for row in topic.partitions}) == len(topic.partitions)
    assert not any(row.error_code for row in topic.partitions)
    return {row.partition_index: len(row.records) for row in topic.partitions}


@pytest.fixture
def other(broker: Broker) -> Iterator[RawClient]:
    """A second connection."""
    with RawClient(broker.port) as client:
        yield client


@pytest.mark.parametrize("rows_at_once", [1, 7, 250])
def test_many_rows_are_read_slice_by_slice(
    client: RawClient, other: RawClient, monkeypatch: pytest.MonkeyPatch, rows_at_once: int
) -> None:
    """All are in the answer, in their order; whoever asks meanwhile is answered."""
    monkeypatch.setattr(fetch, "ROWS_AT_ONCE", rows_at_once)
    client.create_topic("t", partitions=60)
    client.produce("t", b"a", partition=41)
    client.send(ApiKey.FETCH, VERSION, build(dict.fromkeys(range(60), 0), min_bytes=900_000, max_wait_ms=60_000))
    other.produce("t", b"b", partition=3)
    other.produce("t", bytes(900_000), partition=59)
    _, answer = client.receive(ApiKey.FETCH, VERSION)

    one = len(batch_of(b"a"))
    sizes = sizes_of(answer)
    assert sizes.pop(3) in (0, one), "what comes behind the slice that read a partition may wait for the next fetch"
    expected = {41: one, 59: len(batch_of(bytes(900_000)))}
    assert sizes == {**dict.fromkeys(sizes, 0), **expected}
    assert [row.partition_index for row in answer.responses[0].partitions] == list(range(60))


def test_a_fetch_waits_for_all_its_bytes(client: RawClient, other: RawClient, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is there is counted once, and a log that grows is measured without the others."""
    measured: list[int] = []
    measure = PartitionLog.measure

    def note(log: PartitionLog, *arguments: int, up_to: int, wait: bool) -> int:
        measured.append(log.partition)
        return measure(log, *arguments, up_to=up_to, wait=wait)

    client.create_topic("t", partitions=3)
    size = len(batch_of(b"a"))
    client.send(ApiKey.FETCH, VERSION, build(dict.fromkeys(range(3), 0), min_bytes=3 * size, max_wait_ms=60_000))
    monkeypatch.setattr(PartitionLog, "measure", note)
    other.produce("t", b"a", partition=0)
    other.produce("t", b"a", partition=2)
    other.ask(ApiKey.FETCH, VERSION, build({1: 0}))
    assert measured == [0, 2]
    other.produce("t", b"a", partition=0)

    _, answer = client.receive(ApiKey.FETCH, VERSION)
    assert sizes_of(answer) == {0: 2 * size, 1: 0, 2: size}


def test_a_partition_that_is_named_twice_is_read_once(client: RawClient) -> None:
    """As it was named last."""
    client.create_topic("t", partitions=2)
    client.produce("t", b"a", partition=1)
    answer = client.ask(ApiKey.FETCH, VERSION, build([(1, 5), (0, 0), (1, 0), (1, 0)]))
    assert sizes_of(answer) == {1: len(batch_of(b"a")), 0: 0}


def test_a_topic_that_is_deleted_ends_the_wait(client: RawClient, broker: Broker) -> None:
    client.create_topic("t")
    client.send(ApiKey.FETCH, VERSION, build({0: 0}, max_wait_ms=60_000))
    with RawClient(broker.port) as other:
        other.ask(ApiKey.DELETE_TOPICS, 1, DeleteTopicsRequest(topic_names=["t"], timeout_ms=1000))
    _, answer = client.receive(ApiKey.FETCH, VERSION)
    assert answer.responses[0].partitions[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_answers_hold_a_bounded_share_of_memory(
    client: RawClient, broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing left: one batch, however large, so that everybody gets on."""
    client.create_topic("t", partitions=2)
    for _ in range(3):
        client.produce("t", bytes(1000))
        client.produce("t", bytes(1000), partition=1)
    size = len(batch_of(bytes(1000)))
    monkeypatch.setattr(memory, "HELD_BYTES", memory.ONE_OF * (2 * size + 10))
    assert sizes_of(client.ask(ApiKey.FETCH, VERSION, build({0: 0, 1: 0}))) == {0: 2 * size, 1: 0}
    monkeypatch.setattr(memory, "HELD_BYTES", -1)
    assert sizes_of(client.ask(ApiKey.FETCH, VERSION, build({0: 0, 1: 0}))) == {0: size, 1: 0}


@pytest.mark.parametrize("loop", LOOPS)
def test_memory_of_answers_is_given_back_when_their_connection_goes(
    loop: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whether anything is read after that or not, and whether garbage is collected: it stayed with an idle broker."""
    monkeypatch.setattr(memory, "SETTLE_SECONDS", 0.01)

    async def play() -> None:
        server = Server(BrokerSettings.of({}, port=0, data_dir=str(tmp_path / "data")))
        await server.start()
        assert server._context is not None
        held, connections = server._context.store.fs.held, server._context.connections
        _, writer = await asyncio.open_connection("127.0.0.1", server.port)
        await asyncio.to_thread(fill, server.port)
        writer.write(encode_request(ApiKey.FETCH, VERSION, build({0: 0, 1: 0})) * 20)
        async with asyncio.timeout(PATIENCE_SECONDS):
            for _ in iter(lambda: any(each.untaken_bytes for each in connections), True):
                await asyncio.sleep(0)
            assert held._lent
            writer.transport.abort()
            for _ in iter(lambda: held._lent or held._kept, 0):
                await asyncio.sleep(0)
        await server.stop()

    def fill(port: int) -> None:
        with RawClient(port) as client:
            client.create_topic("t", partitions=2)
            for number in range(2):
                client.produce("t", bytes(900_000), partition=number)

    gc.disable()
    try:
        with asyncio.Runner(loop_factory=LOOPS[loop]) as runner:
            runner.run(play())
    finally:
        gc.enable()


@pytest.fixture
def on_disk(tmp_path: Path) -> Iterator[RawClient]:
    """A connection to a broker on a disk, with 50 batches in each of three partitions of t."""
    with Broker(data_dir=str(tmp_path / "data")) as broker, RawClient(broker.port) as client:
        client.create_topic("t", partitions=3)
        for number in range(3):
            for _ in range(50):
                client.produce("t", bytes(1000), partition=number)
        yield client


def test_cold_data_is_fetched_by_a_thread(on_disk: RawClient, tmp_path: Path) -> None:
    """Two partitions have to be fetched from the disk, one has not; the answer has them all."""
    for number in (0, 2):
        make_cold(tmp_path / "data" / f"t-{number}" / segment_name(0))
    assert not any(thread.name.startswith("kohort-read") for thread in threading.enumerate())

    answer = on_disk.ask(ApiKey.FETCH, VERSION, build({0: 3, 1: 48, 2: 0}))

    size = len(batch_of(bytes(1000)))
    assert sizes_of(answer) == {0: 47 * size, 1: 2 * size, 2: 50 * size}
    assert any(thread.name.startswith("kohort-read") for thread in threading.enumerate())


def test_cold_data_that_is_always_gone_again_is_waited_for(
    on_disk: RawClient, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Memory that is short must not keep a reader from its records."""
    monkeypatch.setattr(fetch, "warm", lambda _: None)
    monkeypatch.setattr(fetch, "MOST_TRIES", 1)
    make_cold(tmp_path / "data" / "t-0" / segment_name(0))
    assert sizes_of(on_disk.ask(ApiKey.FETCH, VERSION, build({0: 0}))) == {0: 50 * len(batch_of(bytes(1000)))}


def test_a_disk_that_cannot_read_is_an_error_of_that_partition(
    on_disk: RawClient, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What the thread meets is told, and not tried again on the loop."""

    def fail(cold: object) -> None:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(fetch, "warm", fail)
    make_cold(tmp_path / "data" / "t-0" / segment_name(0))
    answer = on_disk.ask(ApiKey.FETCH, VERSION, build({0: 0, 1: 0}))
    codes = {row.partition_index: row.error_code for row in answer.responses[0].partitions}
    assert codes == {0: ErrorCode.KAFKA_STORAGE_ERROR, 1: 0}


def test_a_segment_that_somebody_cuts_fails_alone(on_disk: RawClient, tmp_path: Path) -> None:
    """By a mapping it would be the end of the process."""
    os.truncate(tmp_path / "data" / "t-0" / segment_name(0), 1500)

    for offset in (0, 20):
        answer = on_disk.ask(ApiKey.FETCH, VERSION, build({0: offset, 1: 0}))
        codes = {row.partition_index: row.error_code for row in answer.responses[0].partitions}
        assert codes == {0: ErrorCode.KAFKA_STORAGE_ERROR, 1: 0}
    assert on_disk.produce("t", b"a", partition=1).error_code == 0


class SlowDisk:
    """A disk of which the first read is under way for as long as a test wants."""

    def __init__(self) -> None:
        self._is_asked = threading.Event()
        self._may_answer = threading.Event()

    def warm(self, cold: NotResidentError) -> None:
        """What threads do instead."""
        self._is_asked.set()
        assert self._may_answer.wait(PATIENCE_SECONDS)
        warm(cold)

    def wait(self) -> None:
        """Until somebody waits for the disk."""
        assert self._is_asked.wait(PATIENCE_SECONDS)

    def answer(self) -> None:
        """Let all reads go on."""
        self._may_answer.set()


@pytest.fixture
def slow_disk(on_disk: RawClient, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> SlowDisk:
    """It has the first partition of t, and has to be asked for it."""
    slow = SlowDisk()
    monkeypatch.setattr(fetch, "warm", slow.warm)
    make_cold(tmp_path / "data" / "t-0" / segment_name(0))
    return slow


@pytest.fixture
def waiting(on_disk: RawClient, slow_disk: SlowDisk) -> Iterator[RawClient]:
    """A connection whose fetch waits for the disk."""
    with RawClient(on_disk.socket.getpeername()[1]) as client:
        client.send(ApiKey.FETCH, VERSION, build({0: 0}))
        slow_disk.wait()
        yield client


def test_a_client_that_goes_away_while_the_disk_is_asked_harms_nobody(
    on_disk: RawClient, slow_disk: SlowDisk, waiting: RawClient
) -> None:
    waiting.socket.close()
    assert sizes_of(on_disk.ask(ApiKey.FETCH, VERSION, build({1: 49}))) == {1: len(batch_of(bytes(1000)))}
    slow_disk.answer()
    assert sizes_of(on_disk.ask(ApiKey.FETCH, VERSION, build({0: 0}))) == {0: 50 * len(batch_of(bytes(1000)))}


def test_records_that_are_deleted_while_the_disk_is_asked_are_out_of_range(
    on_disk: RawClient, slow_disk: SlowDisk, waiting: RawClient
) -> None:
    rows = [DeleteRecordsPartition(partition_index=0, offset=30)]
    request = DeleteRecordsRequest(topics=[DeleteRecordsTopic(name="t", partitions=rows)], timeout_ms=1000)
    assert on_disk.ask(ApiKey.DELETE_RECORDS, 2, request).topics[0].partitions[0].error_code == 0
    slow_disk.answer()
    _, answer = waiting.receive(ApiKey.FETCH, VERSION)
    (row,) = answer.responses[0].partitions
    assert (row.error_code, row.log_start_offset) == (ErrorCode.OFFSET_OUT_OF_RANGE, 30)


def test_a_topic_that_is_deleted_while_the_disk_is_asked_is_unknown(
    on_disk: RawClient, slow_disk: SlowDisk, waiting: RawClient
) -> None:
    on_disk.ask(ApiKey.DELETE_TOPICS, 1, DeleteTopicsRequest(topic_names=["t"], timeout_ms=1000))
    slow_disk.answer()
    _, answer = waiting.receive(ApiKey.FETCH, VERSION)
    assert answer.responses[0].partitions[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_a_page_that_cannot_be_read_fails_its_partition_until_it_can() -> None:
    """Nothing else of the broker, and nothing for good."""
    disk = FaultyFileSystem()

    def ask(port: int) -> None:
        with RawClient(port) as client:
            client.create_topic("t", partitions=2)
            for number in range(2):
                client.produce("t", b"a", partition=number)
            for cause, code in ((Fault.UNREADABLE, ErrorCode.KAFKA_STORAGE_ERROR), (None, ErrorCode.NONE)):
                if cause is None:
                    disk.heal()
                else:
                    disk.inject(cause, where=lambda operation: "t-0/" in operation.path)
                answer = client.ask(ApiKey.FETCH, VERSION, build({0: 0, 1: 0}))
                rows = {row.partition_index: row for row in answer.responses[0].partitions}
                assert {number: row.error_code for number, row in rows.items()} == {0: code, 1: 0}
                assert len(rows[1].records) == len(batch_of(b"a"))
                assert client.produce("t", b"b", partition=0).error_code == 0

    async def serve() -> None:
        server = Server(BrokerSettings.of({}, port=0, data_dir="/data"), fs=disk)
        await server.start()
        try:
            await asyncio.to_thread(ask, server.port)
        finally:
            await server.stop()

    asyncio.run(serve())
    assert disk.struck


class Peer:
    """As much of a connection as sessions look at."""

    def __init__(self, number: int) -> None:
        self.number = number


def test_sessions_have_so_many_slots() -> None:
    """One that nobody used for two minutes makes room; until then others go without."""
    sessions = FetchSessions(2)
    first, second, third = (Peer(number) for number in (1, 2, 3))

    def begin(peer: Peer, now_ms: int) -> bool:
        return sessions.find(peer, build({0: 0}, session=(0, 0)), VERSION, now_ms=now_ms) is not None  # type: ignore[arg-type]

    assert begin(first, 0) and begin(second, 1_000)
    assert begin(first, 2_000), "in the place of its own"
    assert not begin(third, 120_999)
    assert begin(third, 121_000)
    assert not begin(second, 121_000), "it has lost its place"
    assert len(sessions) == 2
