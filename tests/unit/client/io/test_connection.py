"""Frames out of a byte stream, and the memory that they are received into."""

from __future__ import annotations

import asyncio
import socket
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kohort.base.clock import SystemClock
from kohort.client.core.actions import Endpoint
from kohort.client.core.connection import BodyPool, Connection, FrameReceiver, connect
from kohort.client.metrics import Traffic
from kohort.errors import RemoteProtocolError


def feed(receiver: FrameReceiver, stream: bytes, steps: list[int]) -> list[bytes]:
    """Put the stream into the receiver in steps of these sizes, as a socket would."""
    frames: list[bytes] = []
    position, turn = 0, 0
    while position < len(stream):
        space = receiver.buffer()
        assert len(space) > 0
        count = min(steps[turn % len(steps)], len(space), len(stream) - position)
        turn += 1
        space[:count] = stream[position : position + count]
        position += count
        frames += [bytes(frame) for frame in receiver.received(count)]
    return frames


@given(
    bodies=st.lists(st.integers(4, 300_000).map(lambda size: bytes([size % 251]) * size), max_size=6),
    steps=st.lists(st.integers(1, 200_000), min_size=1, max_size=6),
)
def test_frames_come_out_as_they_went_in(bodies: list[bytes], steps: list[int]) -> None:
    """However the network cuts them."""
    if max(steps) < 2_000:
        steps = [*steps, 50_000]
    stream = b"".join(struct.pack(">i", len(body)) + body for body in bodies)

    assert feed(FrameReceiver(limit_bytes=1 << 20), stream, steps) == bodies


@pytest.mark.parametrize("size", [-1, 0, 3, (1 << 20) + 1, (1 << 31) - 1])
def test_impossible_length_is_refused_before_memory_is_given(size: int) -> None:
    """Everything that is read from a socket is bounded."""
    receiver = FrameReceiver(limit_bytes=1 << 20)

    with pytest.raises(RemoteProtocolError, match="a frame of"):
        feed(receiver, struct.pack(">i", size) + b"xxxx", [8])


def test_memory_of_a_large_frame_is_used_again_when_nobody_looks() -> None:
    """Fresh memory costs more than receiving."""
    pool = BodyPool(limit_bytes=1 << 20)
    first = pool.take(200_000)
    first[0] = 7
    del first

    assert pool.take(150_000)[0] == 7


def test_memory_that_is_looked_at_is_left_alone() -> None:
    """A slice of the frame is enough to keep it."""
    pool = BodyPool(limit_bytes=1 << 20)
    kept = pool.take(200_000)[10:20]
    kept[0] = 7

    pool.take(200_000)[10] = 9

    assert kept[0] == 7


def test_pool_is_bounded() -> None:
    """What does not fit is left to whoever looks at it."""
    pool = BodyPool(limit_bytes=1 << 20)

    views = [pool.take(400_000) for _ in range(10)]

    assert pool.held_bytes <= 1 << 20
    assert len({id(view.obj) for view in views}) == 10


def test_name_is_looked_up_where_no_thread_can_be_started(monkeypatch: pytest.MonkeyPatch) -> None:
    """As at the end of a program; the first address of a name need not be the one that listens."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        found = [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (host, port)) for host in ("127.0.0.9", "127.0.0.1")]

        async def open_one() -> None:
            await asyncio.get_running_loop().run_in_executor(None, int)
            await asyncio.get_running_loop().shutdown_default_executor()
            monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: found)
            transport = await connect(unused_connection, Endpoint("broker.example", port))
            assert transport.get_extra_info("peername") == ("127.0.0.1", port)
            transport.abort()
            await asyncio.sleep(0)

        asyncio.run(open_one())


def test_name_that_leads_nowhere_is_an_os_error_there_too(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]

    async def open_one() -> None:
        await asyncio.get_running_loop().run_in_executor(None, int)
        await asyncio.get_running_loop().shutdown_default_executor()
        found = [(socket.AF_INET, socket.SOCK_STREAM, 6, "", ("127.0.0.1", port))]
        monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: found)
        with pytest.raises(ConnectionRefusedError):
            await connect(unused_connection, Endpoint("broker.example", port))

    asyncio.run(open_one())


def test_receivers_share_the_memory_of_their_pool() -> None:
    """A client of many brokers keeps no more for later than a client of one."""
    pool = BodyPool(limit_bytes=256 * 1024)
    for _ in range(3):
        receiver = FrameReceiver(limit_bytes=1 << 20, pool=pool)
        (frame,) = feed(receiver, (200_000).to_bytes(4, "big") + bytes(200_000), [65_536])
        assert len(frame) == 200_000
        del frame

    assert pool.held_bytes == 256 * 1024, "one buffer, used three times"


def unused_connection() -> Connection:
    return Connection(
        client_id="test",
        frame_limit_bytes=1000,
        pool=BodyPool(limit_bytes=1000),
        traffic=Traffic(SystemClock()),
        on_ready=lambda: None,
        on_response=lambda *_: None,
        on_closed=lambda *_: None,
    )
