"""Who lets clients in, when the system has no descriptor for one: nobody turns in circles, and all heals."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import logging
import socket

import pytest
import uvloop

from kohort.broker.listener import ACCEPTED_AT_ONCE, Listeners
from kohort.wire.messages.api_versions import ApiVersionsRequest
from kohort.wire.registry import ApiKey
from support.dialogues.broker_wire import encode_request
from support.dialogues.wired_connection import wired_broker
from support.waiting import PATIENCE_SECONDS

LOOPS = {"asyncio": asyncio.SelectorEventLoop, "uvloop": uvloop.new_event_loop}


class Exhausted(socket.socket):
    """A listening socket of a process that has no descriptor left."""

    tries = 0
    is_full = True

    def accept(self) -> tuple[socket.socket, object]:
        self.tries += 1
        if self.is_full:
            raise OSError(errno.EMFILE, "Too many open files")
        return super().accept()


class Counting(socket.socket):
    """A listening socket that knows how many it has let in."""

    let_in = 0

    def accept(self) -> tuple[socket.socket, object]:
        accepted = super().accept()
        self.let_in += 1
        return accepted


@pytest.mark.parametrize("loop", LOOPS)
def test_a_crowd_is_let_in_in_a_few_turns(loop: str) -> None:
    """One in each turn: behind a hundred the next client waited for as many turns, however long they were."""
    crowd = ACCEPTED_AT_ONCE + 6

    async def play() -> list[int]:
        with contextlib.ExitStack() as stack:
            context = stack.enter_context(wired_broker({}))
            listening = stack.enter_context(Counting())
            listening.bind(("127.0.0.1", 0))
            listening.listen(crowd)
            clients = [socket.create_connection(listening.getsockname(), PATIENCE_SECONDS) for _ in range(crowd)]
            listener = Listeners(context)
            await listener.start([listening])
            let_in = [0]
            while len(context.connections) < crowd:
                await asyncio.sleep(0)
                let_in.append(listening.let_in)
            for client in clients:
                client.close()
            listener.abort()
            await asyncio.sleep(0)
            await listener.wait_closed()
            return let_in

    with asyncio.Runner(loop_factory=LOOPS[loop]) as runner:
        assert list(dict.fromkeys(runner.run(play()))) == [0, ACCEPTED_AT_ONCE, crowd]


class Watching(socket.socket):
    """A listening socket that knows how many of those it has let in were open at once."""

    def __init__(self) -> None:
        super().__init__()
        self.let_in: list[socket.socket] = []
        self.most_open = 0

    def accept(self) -> tuple[socket.socket, object]:
        accepted = super().accept()
        self.let_in = [each for each in (*self.let_in, accepted[0]) if each.fileno() >= 0]
        self.most_open = max(self.most_open, len(self.let_in))
        return accepted


@pytest.mark.parametrize("loop", LOOPS)
def test_crowd_without_room_takes_no_more_descriptors_than_there_are_connections(loop: str) -> None:
    """Each takes the place of a silent one, whose descriptor comes back turns later: files need the others."""
    limit, crowd = 10, 2 * ACCEPTED_AT_ONCE

    async def play() -> int:
        with contextlib.ExitStack() as stack:
            context = stack.enter_context(wired_broker({"max.connections": limit}))
            listening = stack.enter_context(Watching())
            listening.bind(("127.0.0.1", 0))
            listening.listen(crowd)
            clients = [socket.create_connection(listening.getsockname(), PATIENCE_SECONDS) for _ in range(crowd)]
            listener = Listeners(context)
            await listener.start([listening])
            most = [0]
            while len(context.connection_quotas) + context.connection_quotas.refused < crowd:
                await asyncio.sleep(0)
                most.append(listening.most_open)
            for client in clients:
                client.close()
            listener.abort()
            await asyncio.sleep(0)
            await listener.wait_closed()
            return max(most)

    with asyncio.Runner(loop_factory=LOOPS[loop]) as runner:
        assert limit <= runner.run(play()) <= limit + 5


@pytest.mark.parametrize("loop", LOOPS)
def test_who_cannot_be_let_in_waits_and_the_loop_rests(loop: str, caplog: pytest.LogCaptureFixture) -> None:
    async def play() -> int:
        with wired_broker({}) as context, Exhausted() as listening:
            listening.bind(("127.0.0.1", 0))
            listener = Listeners(context)
            await listener.start([listening])
            reader, writer = await asyncio.open_connection(*listening.getsockname())
            writer.write(encode_request(ApiKey.API_VERSIONS, 0, ApiVersionsRequest()))
            for _ in range(1_000):
                # The socket is ready all the time.
                await asyncio.sleep(0)
            tried = listening.tries
            listening.is_full = False
            assert await reader.readexactly(4)
            writer.close()
            listener.finish()
            await listener.wait_closed()
            return tried

    with caplog.at_level(logging.WARNING, logger="kohort"), asyncio.Runner(loop_factory=LOOPS[loop]) as runner:
        assert runner.run(play()) == 1
    assert "event=accept_failed reason='[Errno 24] Too many open files' pause_ms=1000" in caplog.text
