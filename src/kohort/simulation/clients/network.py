"""A network between whole programs: streams of bytes with delay, loss and silence.

Losses on TCP break the connection: both ends notice at once, a little later, or only by their own timeouts. Data sent
before an end closed still arrives, so that a broker may carry out a request that its client has abandoned.

Laws: each direction of a connection keeps its order and delivers each byte once; nothing arrives after a break.
"""

from __future__ import annotations

import asyncio
import gc
import os
import selectors
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import Context, ContextVar, copy_context
from heapq import heapify, heappop, heappush
from random import Random
from struct import Struct
from typing import Any, Final
from unittest.mock import patch

from kohort.client.producer import encoder
from kohort.simulation.network import GOOD, NetworkQuality
from kohort.wire.registry import ApiKey

#: The program that opens connections in the present task.
PROGRAM: ContextVar[str] = ContextVar("PROGRAM", default="?")
#: How long a connection attempt to nowhere hangs, s: longer than any client waits.
NOWHERE_S: Final = 3_600.0

#: Between two messages of one direction, s.
TICK_S: Final = 1e-6

#: The requests of a membership.
MEMBERSHIP: Final = (ApiKey.CONSUMER_GROUP_HEARTBEAT, ApiKey.HEARTBEAT, ApiKey.JOIN_GROUP, ApiKey.SYNC_GROUP)
_HEAD: Final = Struct(">ih")

Address = tuple[str, int]


class Listening:
    """Stands for a listening socket."""

    def __init__(self, network: Network, address: Address, name: str) -> None:
        self._network = network
        self._address = address
        #: Of the program that listens.
        self.name = name
        self.factory: Callable[[], Any] | None = None
        self.context: Context | None = None

    def getsockname(self) -> Address:
        """Return the address."""
        return self._address

    def close(self) -> None:
        """Stop accepting connections."""
        if self._network.listening.get(self._address) is self:
            del self._network.listening[self._address]


class _Socket:
    """The socket below a simulated transport."""

    def setsockopt(self, *_: object) -> None:
        """Do nothing: a simulated socket has no options."""


class Endpoint(asyncio.Transport):
    """One end of a connection."""

    def __init__(self, wire: Connection, name: str, context: Context, here: Address, there: Address) -> None:
        super().__init__({"socket": _Socket(), "sockname": here, "peername": there})
        self.wire: Final = wire
        #: The program at this end.
        self.name: Final = name
        self.context: Final = context
        self.other: Endpoint
        self.protocol: Any = None
        #: Bytes that have arrived while reading is paused.
        self._arrived: deque[bytes | None] = deque()
        self._is_reading = True
        self._is_closed = False
        #: When the latest of what was sent from here arrives, s.
        self.last_s = 0.0

    def write(self, data: Any) -> None:
        """Send bytes."""
        if not self._is_closed and len(data):
            self.wire.carry(self, bytes(data))

    def writelines(self, list_of_data: Iterable[Any]) -> None:
        """Send all the parts as one piece."""
        self.write(b"".join(list_of_data))

    def close(self) -> None:
        """Close the transport; bytes already sent still arrive."""
        if not self._is_closed:
            self._is_closed = True
            self.wire.carry(self, None)
            self.call_soon(self.protocol.connection_lost, None)

    abort = close

    def is_closing(self) -> bool:
        """Return whether this end was closed by its own program."""
        return self._is_closed

    def pause_reading(self) -> None:
        """Buffer incoming bytes until reading resumes."""
        self._is_reading = False

    def resume_reading(self) -> None:
        """Deliver the buffered bytes, and incoming ones from now on."""
        if not self._is_reading:
            self._is_reading = True
            self.call_soon(self._hand_out)

    def is_reading(self) -> bool:
        """Return whether incoming bytes are delivered to the protocol."""
        return self._is_reading

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """Do nothing: this network takes every byte."""

    def get_write_buffer_size(self) -> int:
        """Return the size of the write buffer, which is always empty."""
        return 0

    def call_soon(self, function: Callable[..., object], *arguments: object) -> None:
        """Call a function in the context of this end's program."""
        self.wire.network.loop.call_soon(function, *arguments, context=self.context)

    def arrive(self, data: bytes | None) -> None:
        """Take bytes that arrive, or the end of the stream."""
        self._arrived.append(data)
        self._hand_out()

    def break_off(self) -> None:
        """Tell the program that the connection is lost."""
        if not self._is_closed:
            self._is_closed = True
            self.call_soon(self.protocol.connection_lost, ConnectionResetError(104, "Connection reset by peer"))

    def _hand_out(self) -> None:
        while self._arrived and self._is_reading and not self._is_closed:
            data = self._arrived.popleft()
            if data is None:
                self._is_closed = True
                self.protocol.connection_lost(None)
                return
            view = memoryview(data)
            while view and not self._is_closed:
                space = self.protocol.get_buffer(-1)
                count = min(len(space), len(view))
                space[:count] = view[:count]
                view = view[count:]
                self.protocol.buffer_updated(count)
                if not self._is_reading and view:
                    self._arrived.appendleft(bytes(view))
                    return


class Connection:
    """A connection between two programs."""

    def __init__(self, network: Network) -> None:
        self.network: Final = network
        self.is_whole = True
        #: It swallows everything, and neither end knows.
        self.is_silent = False
        self.ends: tuple[Endpoint, Endpoint]

    def carry(self, sender: Endpoint, data: bytes | None) -> None:
        """Let bytes, or the end of the stream, arrive at the other end."""
        network = self.network
        if not self.is_whole or self.is_silent:
            return
        if loss := network.quality.draw_loss(network.random):
            if loss == "silent":
                self.is_silent = True
            else:
                self.cut()
            return
        if data is not None and sender.name in network.unheard:
            data = without_membership(data)
            if not data:
                return
        loop = network.loop
        # Later than what was sent before: the loop's heap does not keep the order of one instant.
        arrival_s = max(loop.time() + network.draw_delay_s(), sender.last_s + TICK_S)
        for end in self.ends if network.stalled else ():
            arrival_s = max(arrival_s, network.stalled.get(end.name, 0.0))
        sender.last_s = arrival_s
        loop.call_at(arrival_s, self._arrive, sender.other, data, context=sender.other.context)

    def _arrive(self, receiver: Endpoint, data: bytes | None) -> None:
        if self.is_whole and not self.is_silent:
            receiver.arrive(data)

    def cut(self) -> None:
        """Break the connection; each end is notified after a while."""
        if self.is_whole:
            self.is_whole = False
            for end in self.ends:
                self.network.loop.call_later(self.network.random.randint(0, 200) / 1000, end.break_off)


class Network:
    """The network of a world: all its connections."""

    def __init__(self, loop: asyncio.AbstractEventLoop, random: Random) -> None:
        self.loop: Final = loop
        self.random: Final = random
        self.quality: NetworkQuality = GOOD
        self.listening: Final[dict[Address, Listening]] = {}
        self.wires: list[Connection] = []
        #: Programs of which no word of membership arrives anywhere, though all else does: half of a split network.
        self.unheard: Final[set[str]] = set()
        #: Programs that are cut off.
        self._cut_off: Final[set[str]] = set()
        #: Program -> when it goes on, s: it stands still, as after SIGSTOP.
        self.stalled: Final[dict[str, float]] = {}
        self._last_port = 40_000

    def bind(self, host: str, port: int, name: str) -> Listening:
        """Return a simulated listening socket; port 0 takes a free port."""
        if port == 0:
            self._last_port += 1
            port = self._last_port
        if (host, port) in self.listening:
            raise OSError(98, "Address already in use")
        found = self.listening[host, port] = Listening(self, (host, port), name)
        return found

    def listen(self, factory: Callable[[], Any], listening: Listening) -> Listening:
        """Accept connections from now on."""
        listening.factory, listening.context = factory, copy_context()
        return listening

    async def connect(self, factory: Callable[[], Any], host: str, port: int) -> tuple[Endpoint, Any]:
        """Open a connection from the present program."""
        name, context = PROGRAM.get(), copy_context()
        await asyncio.sleep(self.draw_delay_s() * 2)
        if name in self._cut_off:
            await asyncio.sleep(NOWHERE_S)
        there = self.listening.get((host, port))
        if there is None or there.factory is None or there.context is None:
            raise ConnectionRefusedError(111, "Connection refused")
        self._last_port += 1
        here = ("127.0.0.1", self._last_port)
        wire = Connection(self)
        near = Endpoint(wire, name, context, here, (host, port))
        far = Endpoint(wire, there.name, there.context.copy(), (host, port), here)
        near.other, far.other = far, near
        wire.ends = near, far
        self.wires = [each for each in self.wires if each.is_whole]
        self.wires.append(wire)
        far.protocol = far.context.run(there.factory)
        far.context.run(far.protocol.connection_made, far)
        near.protocol = factory()
        near.protocol.connection_made(near)
        return near, near.protocol

    def of(self, name: str) -> list[Connection]:
        """Return the open connections of a program."""
        return [wire for wire in self.wires if wire.is_whole and name in (wire.ends[0].name, wire.ends[1].name)]

    def cut_off(self, name: str) -> None:
        """Cut a program off from every broker; its connections go silent."""
        self._cut_off.add(name)
        for wire in self.of(name):
            wire.is_silent = True

    def restore(self, name: str) -> None:
        """Let a program connect again, and reset its silent connections."""
        self._cut_off.discard(name)
        for wire in self.of(name):
            if wire.is_silent:
                wire.cut()

    def stall(self, name: str, seconds: float) -> None:
        """Stall a program: bytes to and from it are delayed by this many seconds."""
        self.stalled[name] = self.loop.time() + seconds

    def heal(self) -> None:
        """End every fault of the network."""
        self.quality = GOOD
        self.unheard.clear()
        self.stalled.clear()
        for name in sorted(self._cut_off):
            self.restore(name)
        for wire in self.wires:
            if wire.is_silent:
                wire.cut()

    def draw_delay_s(self) -> float:
        """Draw the delay of the next message, seconds."""
        return self.quality.draw_delay_ms(self.random) / 1000


def without_membership(data: bytes) -> bytes:
    """Pass on whole requests except those of `MEMBERSHIP`."""
    kept, at = b"", 0
    while at < len(data):
        length, key = _HEAD.unpack_from(data, at)
        end = at + 4 + length
        assert end <= len(data), "a client sends whole requests"
        if key not in MEMBERSHIP:
            kept += data[at:end]
        at = end
    return kept


# An event loop with virtual time and simulated connections, on which real programs run unchanged.
#
# Laws: nothing waits: when there is nothing to do the clock jumps to what is due next; a loop on which nothing will
# ever happen again ends with an error. While it runs, the process's clocks are its own and its random bytes come from a
# seed, and garbage waits for its end: when the collector runs depends on everything that the process has done before.
# Source: FoundationDB's way of testing: the real code on simulated time, network and disk.

#: When every world begins, seconds since 1970.
EPOCH_S: Final = 1_700_000_000
#: As asyncio's: the longest wait of one turn and the resolution of the clock, s; timers from which on it cleans up.
_LONGEST_JUMP_S: Final = 24 * 3_600
_RESOLUTION_S: Final = 1e-9
_MANY_TIMERS: Final = 100


class Standstill(AssertionError):
    """The error of a loop on which every task waits and no event is due."""


class _Jump(selectors.BaseSelector):
    """A selector without files, because the virtual loop never polls sockets: it jumps to the next event."""

    def __init__(self) -> None:
        self._keys: dict[int, selectors.SelectorKey] = {}

    def register(self, fileobj: Any, events: int, data: Any = None) -> selectors.SelectorKey:
        key = self._keys[fileobj] = selectors.SelectorKey(fileobj, fileobj, events, data)
        return key

    def unregister(self, fileobj: Any) -> selectors.SelectorKey:
        return self._keys.pop(fileobj)

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        return []

    def get_map(self) -> Mapping[Any, selectors.SelectorKey]:
        return self._keys


class _Timer(asyncio.TimerHandle):
    """A timer that compares by identity, so that the heap does not compare callbacks."""

    __slots__ = ()
    __eq__ = object.__eq__
    __hash__ = object.__hash__


class VirtualLoop(asyncio.SelectorEventLoop):
    """The event loop on virtual time; see the module."""

    _ready: deque[asyncio.Handle]
    _stopping: bool
    _timer_cancelled_count: int

    def __init__(self, random: Random) -> None:
        #: Seconds since the beginning of the world, and nanoseconds, rounded to a microsecond.
        self._now_s, self._now_ns = 0.0, 0
        super().__init__(_Jump())
        #: (when, timer): pairs are compared without a call of Python, and where two are equal in no other way.
        self._scheduled: list[tuple[float, _Timer]] = []
        self.network: Final = Network(self, random)

    def call_at(  # type: ignore[override]
        self, when: float, callback: Any, *args: Any, context: Context | None = None
    ) -> asyncio.TimerHandle:
        """Call back at a time, as every loop does."""
        timer = _Timer(when, callback, args, self, context)
        heappush(self._scheduled, (when, timer))
        timer._scheduled = True  # type: ignore[attr-defined]
        return timer

    def _run_once(self) -> None:
        """Run what is ready, or jump to what is due next: asyncio's own turn of the loop without files."""
        ready, scheduled = self._ready, self._forget_cancelled()
        if not ready and not self._stopping:
            if not scheduled:
                raise Standstill("all tasks wait, and nothing will ever happen")
            if (wait_s := scheduled[0][0] - self._now_s) > 0:
                self._now_s += min(wait_s, _LONGEST_JUMP_S)
                # Sums of fractions are not exact.
                self._now_ns = round(self._now_s * 1_000_000) * 1_000
        end_s = self._now_s + _RESOLUTION_S
        while scheduled and scheduled[0][0] < end_s:
            timer: Any = heappop(scheduled)[1]
            timer._scheduled = False
            ready.append(timer)
        for _ in range(len(ready)):
            handle: Any = ready.popleft()
            if not handle._cancelled:
                handle._run()

    def _forget_cancelled(self) -> list[tuple[float, _Timer]]:
        """Drop cancelled timers at the head, or all if most of many are cancelled; return the others."""
        scheduled = self._scheduled
        if len(scheduled) > _MANY_TIMERS and self._timer_cancelled_count * 2 > len(scheduled):
            for _, timer in scheduled:
                timer._scheduled = not timer.cancelled()  # type: ignore[attr-defined]
            self._scheduled = scheduled = [each for each in scheduled if not each[1].cancelled()]
            heapify(scheduled)
            self._timer_cancelled_count = 0
        while scheduled and scheduled[0][1]._cancelled:
            self._timer_cancelled_count -= 1
            heappop(scheduled)[1]._scheduled = False  # type: ignore[attr-defined]
        return scheduled

    def time(self) -> float:
        """Return the seconds since the beginning of the world."""
        return self._now_s

    def now_ms(self) -> int:
        """Return the milliseconds since the beginning of the world."""
        return self._now_ns // 1_000_000

    def now_ns(self) -> int:
        """Return the nanoseconds since the beginning of the world, rounded to a microsecond."""
        return self._now_ns

    async def create_connection(self, protocol_factory: Any, host: Any = None, port: Any = None, **_: Any) -> Any:
        """Connect over the simulated network."""
        return await self.network.connect(protocol_factory, host, port)

    async def create_server(self, protocol_factory: Any, *_: Any, sock: Any = None, **__: Any) -> Any:
        """Listen on the simulated network."""
        return self.network.listen(protocol_factory, sock)

    def _write_to_self(self) -> None:
        """Do nothing: no other thread wakes this loop."""


def run_virtually(world: Callable[[VirtualLoop], Any], random: Random) -> Any:
    """Run the coroutine that `world` makes to its end."""
    loop = VirtualLoop(random)
    with _taken_over(loop, random), _garbage_kept():
        try:
            asyncio.set_event_loop(loop)
            return loop.run_until_complete(world(loop))
        finally:
            _cancel_all(loop)
            # Tasks and futures with an error that was never looked at tell the loop when they are freed.
            gc.collect()
            asyncio.set_event_loop(None)
            loop.close()


@contextmanager
def _taken_over(loop: VirtualLoop, random: Random) -> Iterator[None]:
    start_ns = EPOCH_S * 1_000_000_000
    with (
        patch.object(time, "monotonic", loop.time),
        patch.object(time, "monotonic_ns", loop.now_ns),
        patch.object(time, "clock_gettime_ns", lambda _: loop.now_ns()),
        patch.object(time, "clock_gettime", lambda _: loop.time()),
        patch.object(time, "time", lambda: EPOCH_S + loop.time()),
        patch.object(time, "time_ns", lambda: start_ns + loop.now_ns()),
        # It has a name of its own for the clock; a record's timestamp takes more or fewer bytes of its batch.
        patch.object(encoder, "time_ns", lambda: start_ns + loop.now_ns()),
        patch.object(os, "urandom", random.randbytes),
    ):
        yield


@contextmanager
def _garbage_kept() -> Iterator[None]:
    was_enabled = gc.isenabled()
    gc.disable()
    # The collection at the end need not walk over the objects that exist already.
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()
        if was_enabled:
            gc.enable()


def _cancel_all(loop: VirtualLoop) -> None:
    tasks = asyncio.all_tasks(loop)
    for task in tasks:
        task.cancel()
    if tasks:
        loop.run_until_complete(asyncio.gather(*tasks, return_exceptions=True))
    loop.run_until_complete(loop.shutdown_asyncgens())
