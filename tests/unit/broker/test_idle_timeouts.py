"""Clients that are silent or slow, in virtual time: how long they are borne, and who is not troubled."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from random import Random
from typing import Any

import pytest

from kohort.broker.connections import idle_timeouts
from kohort.simulation.clients.network import VirtualLoop, run_virtually
from kohort.wire.messages.api_versions import ApiVersionsRequest
from kohort.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from kohort.wire.registry import ApiKey
from support.dialogues.broker_wire import batch_of, encode_request, produce_request
from support.dialogues.virtual_broker import beside_a_broker
from support.dialogues.virtual_callers import Caller, call
from support.dialogues.wired_connection import Wire, WiredConnection, wired_broker

API_VERSIONS = encode_request(ApiKey.API_VERSIONS, 0, ApiVersionsRequest())
#: One look may be a little later than it is due.
SOON_S = 0.5
MEBI = 1 << 20


def long_produce(size: int) -> bytes:
    return encode_request(ApiKey.PRODUCE, 9, produce_request("t", batch_of(bytes(size))))


async def drip(caller: Caller, data: bytes, *, bytes_per_s: int, for_s: float) -> None:
    """Send at a rate, ten times a second, until the broker hangs up or the time is over."""
    piece = max(1, bytes_per_s // 10)
    for begin in range(0, int(for_s * 10) * piece, piece):
        if caller.lasted_s is not None or begin >= len(data):
            return
        caller.send(data[begin : begin + piece])
        await asyncio.sleep(piece / bytes_per_s)


def test_who_connects_says_something_within_five_seconds(caplog: pytest.LogCaptureFixture) -> None:
    async def play(address: str) -> float | None:
        caller = await call(address)
        await asyncio.sleep(20)
        return caller.lasted_s

    with caplog.at_level(logging.WARNING, logger="kohort"):
        lasted_s = beside_a_broker(play, topics={})
    assert lasted_s == pytest.approx(5, abs=SOON_S)
    assert "reason='nothing was said by a new connection'" in caplog.text


def test_who_has_said_something_may_be_silent() -> None:
    async def play(address: str) -> tuple[float | None, bytes]:
        caller = await call(address)
        caller.send(API_VERSIONS)
        await caller.answer()
        await asyncio.sleep(120)
        caller.send(API_VERSIONS)
        return caller.lasted_s, await caller.answer()

    lasted_s, answer = beside_a_broker(play, topics={})
    assert lasted_s is None
    assert answer


@pytest.mark.parametrize("have", [1, 4, 13, len(API_VERSIONS) - 1])
def test_half_a_header_is_waited_for_ten_seconds(caplog: pytest.LogCaptureFixture, have: int) -> None:
    async def play(address: str) -> float | None:
        caller = await call(address)
        caller.send(API_VERSIONS[:have])
        await asyncio.sleep(30)
        return caller.lasted_s

    with caplog.at_level(logging.WARNING, logger="kohort"):
        lasted_s = beside_a_broker(play, topics={})
    assert lasted_s == pytest.approx(10, abs=SOON_S)
    assert "reason='half a request came, and the rest too slowly'" in caplog.text


@pytest.mark.parametrize(("bytes_per_s", "is_borne"), [(900, False), (1100, True)])
def test_half_a_request_comes_at_a_kilobyte_a_second(bytes_per_s: int, is_borne: bool) -> None:
    async def play(address: str) -> bool:
        caller = await call(address)
        await drip(caller, long_produce(MEBI), bytes_per_s=bytes_per_s, for_s=60)
        return caller.lasted_s is None

    assert beside_a_broker(play, topics={"t": 1}) is is_borne


def test_requests_that_come_whole_may_be_as_small_and_as_seldom_as_they_like() -> None:
    """A byte of the next request is always here, and seldom more: what counts is that requests are carried out."""

    async def play(address: str) -> float | None:
        caller = await call(address)
        caller.send(API_VERSIONS[:1])
        for _ in range(20):
            await asyncio.sleep(6)
            caller.send(API_VERSIONS[1:] + API_VERSIONS[:1])
            assert await caller.answer()
        return caller.lasted_s

    assert beside_a_broker(play, topics={}) is None


def test_half_a_request_behind_one_that_waits_for_its_answer_is_no_fault_of_the_client() -> None:
    async def play(address: str) -> tuple[float | None, list[bytes]]:
        caller = await call(address)
        row = FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1)
        fetch = FetchRequest(max_wait_ms=40_000, min_bytes=1, topics=[FetchTopic(topic="t", partitions=[row])])
        caller.send(encode_request(ApiKey.FETCH, 11, fetch) + API_VERSIONS + API_VERSIONS[:9])
        await asyncio.sleep(30)
        lasted_s = caller.lasted_s
        caller.send(API_VERSIONS[9:])
        return lasted_s, [await caller.answer() for _ in range(3)]

    lasted_s, answers = beside_a_broker(play, topics={"t": 1}, config={"queued.max.requests": 1})
    assert lasted_s is None
    assert all(answers)


def test_three_that_fill_the_memory_keep_nobody_out_and_do_not_stay() -> None:
    """9 MB each and then a byte now and then: short requests go on at once, and the memory comes back."""

    async def play(address: str) -> list[float | None]:
        greedy = [await call(address) for _ in range(3)]
        for each in greedy:
            each.send(long_produce(20 * MEBI)[: 9 * MEBI])
        await asyncio.sleep(1)
        other = await call(address)
        other.send(long_produce(100_000))
        assert await asyncio.wait_for(other.answer(), 1)
        for _ in range(50):
            await asyncio.sleep(1)
            for each in greedy:
                each.send(b"x")
        return [each.lasted_s for each in greedy]

    limits = {"queued.max.request.bytes": 32 * MEBI, "message.max.bytes": 30 * MEBI}
    lasted_s = beside_a_broker(play, topics={"t": 1}, config=limits)
    # The third is not read while it waits for memory, and what it then reads counts for its first look.
    assert lasted_s == pytest.approx([1, 1, 20], abs=3 * SOON_S)


def test_who_fills_the_memory_is_as_fast_as_its_size_asks_while_others_wait() -> None:
    """A KB a second is enough for a request of 20 MB, but not while somebody waits for the memory that it takes."""

    async def play(address: str) -> tuple[float | None, bytes]:
        greedy = await call(address)
        request = long_produce(8 * MEBI)
        greedy.send(request[: 5 * MEBI])
        task = asyncio.ensure_future(drip(greedy, bytes(MEBI), bytes_per_s=2_000, for_s=50))
        await asyncio.sleep(25)
        assert greedy.lasted_s is None
        other = await call(address)
        other.send(long_produce(3_500_000))
        answer = await other.answer()
        await task
        return greedy.lasted_s, answer

    limits = {"queued.max.request.bytes": 8 * MEBI, "message.max.bytes": 30 * MEBI}
    lasted_s, answer = beside_a_broker(play, topics={"t": 1}, config=limits)
    assert lasted_s is not None
    assert answer


@pytest.mark.large
@pytest.mark.parametrize("size", [MEBI - 1000, 20 * MEBI])
def test_many_that_fill_the_memory_and_say_no_more_keep_others_out_for_seconds(size: int) -> None:
    """Half a megabyte of a short request or of a long one, and others come as these go."""
    begun = long_produce(size)[: MEBI // 2]

    async def play(address: str) -> list[float]:
        loop = asyncio.get_running_loop()

        async def fill() -> None:
            while True:
                caller = await call(address)
                caller.send(begun)
                while caller.lasted_s is None:
                    caller.has_news.clear()
                    await caller.has_news.wait()

        greedy = [asyncio.ensure_future(fill()) for _ in range(20)]
        await asyncio.sleep(30)
        took_s = []
        for _ in range(5):
            began_s = loop.time()
            other = await call(address)
            other.send(long_produce(100_000))
            assert await other.answer()
            took_s.append(loop.time() - began_s)
        for each in greedy:
            each.cancel()
        return took_s

    limits = {"queued.max.request.bytes": 8 * MEBI, "message.max.bytes": 30 * MEBI}
    assert max(beside_a_broker(play, topics={"t": 1}, config=limits)) < 5


class SlowWire(Wire):
    """The wire of a client that takes what the test says."""

    def write(self, data: bytes | bytearray | memoryview) -> None:
        super().write(data)
        self.untaken_bytes += len(data)


def beside_slow_clients(play: Callable[[list[SlowWire], list[WiredConnection]], Awaitable[Any]]) -> Any:
    """Three connections with answers of which their clients have taken nothing yet, in virtual time."""

    async def begin(loop: VirtualLoop) -> Any:
        del loop
        with wired_broker({}) as context:
            context.idle_timeouts.start()
            wires = [SlowWire() for _ in range(3)]
            clients = [WiredConnection(context, wire) for wire in wires]
            for client in clients:
                client.feed(API_VERSIONS)
            found = await play(wires, clients)
            context.idle_timeouts.stop()
            return found

    return run_virtually(begin, Random("slow clients"))


def test_who_takes_nothing_goes_when_all_together_hold_too_much(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """It is who holds most, and neither who has taken something nor who was not needed to make room."""

    async def play(wires: list[SlowWire], clients: list[WiredConnection]) -> list[bool]:
        for wire, size in zip(wires, (9_000, 8_000, 1_000), strict=True):
            wire.untaken_bytes = size
        await asyncio.sleep(5.5)
        assert not any(client.is_closed for client in clients)
        monkeypatch.setattr(idle_timeouts, "MOST_UNTAKEN_BYTES", 10_000)
        wires[0].untaken_bytes -= 500
        await asyncio.sleep(1)
        return [client.is_closed for client in clients]

    assert beside_slow_clients(play) == [False, True, False]
    assert caplog.text.count("reason='answers are not taken, and the memory is short'") == 1


def test_who_takes_its_answers_slowly_is_borne_while_there_is_memory() -> None:
    async def play(wires: list[SlowWire], clients: list[WiredConnection]) -> list[bool]:
        for wire, client in zip(wires, clients, strict=True):
            wire.untaken_bytes = 3 * MEBI
            client.connection.pause_writing()
        for _ in range(100):
            await asyncio.sleep(1)
            wires[0].untaken_bytes -= 10_000
        return [client.is_closed for client in clients]

    assert beside_slow_clients(play) == [False, True, True]


def stand_still(seconds: float) -> None:
    """The loop does nothing meanwhile, and finds then that much is due."""
    loop = asyncio.get_running_loop()
    assert isinstance(loop, VirtualLoop)
    loop._now_s += seconds


def test_time_in_which_the_broker_stood_still_is_not_held_against_a_new_connection() -> None:
    """What it has said meanwhile may lie in the socket, unread: it gets its time anew."""

    async def play(address: str) -> float | None:
        caller = await call(address)
        await asyncio.sleep(1)
        stand_still(30)
        await asyncio.sleep(20)
        return caller.lasted_s

    assert beside_a_broker(play, topics={}) == pytest.approx(1 + 30 + 5, abs=2 * SOON_S)


def test_time_in_which_the_broker_stood_still_is_not_held_against_who_takes_its_answers(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Nothing was written to it meanwhile, either."""

    async def play(wires: list[SlowWire], clients: list[WiredConnection]) -> list[list[bool]]:
        monkeypatch.setattr(idle_timeouts, "MOST_UNTAKEN_BYTES", 10_000)
        for wire, size in zip(wires, (9_000, 8_000, 1_000), strict=True):
            wire.untaken_bytes = size
        await asyncio.sleep(0.5)
        stand_still(5)
        await asyncio.sleep(0.1)
        closed = [[client.is_closed for client in clients]]
        await asyncio.sleep(1.5)
        return [*closed, [client.is_closed for client in clients]]

    assert beside_slow_clients(play) == [[False, False, False], [True, False, False]]


def test_nothing_is_looked_at_after_the_stop() -> None:
    """Whichever timers were running."""

    async def begin(loop: VirtualLoop) -> list[bool]:
        with wired_broker({}) as context:
            context.idle_timeouts.start()
            client = WiredConnection(context, SlowWire())
            client.feed(API_VERSIONS + API_VERSIONS[:5])
            context.idle_timeouts.expect_first_byte(client.connection)
            context.idle_timeouts._on_short()
            context.idle_timeouts.stop()
            now = loop.time()
            return [when > now for when, handle in loop._scheduled if not handle.cancelled()]

    assert run_virtually(begin, Random("stop")) == []
