"""Who lets clients in, when the system has no descriptor for one: nobody turns in circles, and all heals."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import logging
import socket
from collections import Counter
from typing import NamedTuple

import pytest
import uvloop

from kohort.broker import listener as module
from kohort.broker.listener import ACCEPTED_AT_ONCE, Listeners
from kohort.storage.client_quotas import QuotaChange, entity_of
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


class Rated(NamedTuple):
    """What became of clients that came at once: those that were answered, when each was, or was closed, in seconds."""

    answered: int
    times: list[float]
    reached: Counter[str]


class TestRate:
    """KIP-612. With two windows of a second, a limit of ten a second lets ten in at once, and one more 100 ms later."""

    LIMIT = 10

    async def connections_of(self, config: dict[str, object], quotas: dict[str, float], crowd: int) -> Rated:
        """Clients that come at once."""
        with contextlib.ExitStack() as stack:
            context = stack.enter_context(wired_broker({"quota.window.num": 2, **config}))
            if quotas:
                change = QuotaChange(entity=entity_of({"ip": "127.0.0.1"}), limits=quotas)
                context.cluster.work.ask([context.cluster.quota_change([change], lambda _: None)])
            listening = stack.enter_context(Counting())
            listening.bind(("127.0.0.1", 0))
            listening.listen(crowd)
            clients = [socket.create_connection(listening.getsockname(), PATIENCE_SECONDS) for _ in range(crowd)]
            listener = Listeners(context)
            began = context.loop.time()
            await listener.start([listening])
            frame = encode_request(ApiKey.API_VERSIONS, 0, ApiVersionsRequest())
            answered, times = 0, []
            for client in clients:
                client.setblocking(False)
                with contextlib.suppress(OSError):
                    await context.loop.sock_sendall(client, frame)
                    answered += bool(await context.loop.sock_recv(client, 1))
                times.append(context.loop.time() - began)
                # The number of connections at once is another limit.
                client.close()
            listener.abort()
            await listener.wait_closed()
            return Rated(answered, times, context.connection_rates.reached)

    @pytest.mark.parametrize("loop", LOOPS)
    @pytest.mark.parametrize(
        "option", ["max.connection.creation.rate", "listener.name.plaintext.max.connection.creation.rate"]
    )
    def test_connections_of_a_listener_come_in_later(self, loop: str, option: str) -> None:
        with asyncio.Runner(loop_factory=LOOPS[loop]) as runner:
            found = runner.run(self.connections_of({option: self.LIMIT}, {}, self.LIMIT + 2))
        assert found.answered == self.LIMIT + 2
        assert found.times[self.LIMIT] >= 0.09
        assert found.times[self.LIMIT + 1] > found.times[self.LIMIT]
        assert found.reached["max.connection.creation.rate"] in (1, 2)

    @pytest.mark.parametrize("loop", LOOPS)
    def test_connections_of_an_address_are_closed_after_a_wait(self, loop: str) -> None:
        limit = {"connection_creation_rate": float(self.LIMIT)}
        with asyncio.Runner(loop_factory=LOOPS[loop]) as runner:
            found = runner.run(self.connections_of({}, limit, self.LIMIT + 3))
        assert found.answered == self.LIMIT
        assert found.times[-1] >= 0.09
        assert found.reached == {"connection_creation_rate": 3}

    @pytest.mark.parametrize("loop", LOOPS)
    def test_connections_that_wait_to_be_closed_are_bounded(self, loop: str, monkeypatch: pytest.MonkeyPatch) -> None:
        """Those beyond are closed at once: the descriptors are for others."""
        monkeypatch.setattr(module, "MOST_REFUSED", 2)

        async def play() -> tuple[int, int]:
            with contextlib.ExitStack() as stack:
                context = stack.enter_context(wired_broker({}))
                change = QuotaChange(entity=entity_of({"ip": None}), limits={"connection_creation_rate": 1e-9})
                context.cluster.work.ask([context.cluster.quota_change([change], lambda _: None)])
                listening = stack.enter_context(Watching())
                listening.bind(("127.0.0.1", 0))
                listening.listen(20)
                clients = [socket.create_connection(listening.getsockname(), PATIENCE_SECONDS) for _ in range(20)]
                listener = Listeners(context)
                await listener.start([listening])
                most = 0
                while context.connection_rates.reached["connection_creation_rate"] < 20:
                    await asyncio.sleep(0)
                    most = sum(each.fileno() >= 0 for each in listening.let_in)
                listener.finish()
                left = sum(each.fileno() >= 0 for each in listening.let_in)
                for client in clients:
                    client.close()
                listener.abort()
                await listener.wait_closed()
                return most, left

        with asyncio.Runner(loop_factory=LOOPS[loop]) as runner:
            assert runner.run(play()) == (2, 0)
