"""An event loop with virtual time and simulated connections, on which real programs run unchanged.

Laws: nothing waits: when there is nothing to do the clock jumps to what is due next; a loop on which nothing will ever
happen again ends with an error. While it runs, the process's clocks are its own and its random bytes come from a seed,
and garbage waits for its end: when the collector runs depends on everything that the process has done before.
Source: FoundationDB's way of testing: the real code on simulated time, network and disk.
"""

from __future__ import annotations

import asyncio
import gc
import os
import selectors
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from random import Random
from typing import Any, Final
from unittest.mock import patch

from kohort.client.producer import encoder
from kohort.testing.clients.network import Internet, Listening

#: When every world begins, seconds since 1970.
EPOCH_S: Final = 1_700_000_000


class Standstill(AssertionError):
    """The error of a loop on which every task waits and no event is due."""


class _Jump(selectors.BaseSelector):
    """A selector that waits for no file, and lets virtual time pass instead."""

    def __init__(self) -> None:
        self.now_s = 0.0
        self._keys: dict[int, selectors.SelectorKey] = {}

    def register(self, fileobj: Any, events: int, data: Any = None) -> selectors.SelectorKey:
        key = self._keys[fileobj] = selectors.SelectorKey(fileobj, fileobj, events, data)
        return key

    def unregister(self, fileobj: Any) -> selectors.SelectorKey:
        return self._keys.pop(fileobj)

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        if timeout is None:
            raise Standstill("everybody waits, and nothing will ever happen")
        self.now_s += max(0.0, timeout)
        return []

    def get_map(self) -> Mapping[Any, selectors.SelectorKey]:
        return self._keys


class VirtualLoop(asyncio.SelectorEventLoop):
    """The event loop on virtual time; see the module."""

    def __init__(self, random: Random) -> None:
        self._jump = _Jump()
        super().__init__(self._jump)
        self.internet: Final = Internet(self, random)

    def time(self) -> float:
        """Return the seconds since the beginning of the world."""
        return self._jump.now_s

    def now_ms(self) -> int:
        """Return the milliseconds since the beginning of the world."""
        return self.now_ns() // 1_000_000

    def now_ns(self) -> int:
        """Return the nanoseconds since the beginning of the world, rounded to a microsecond."""
        # Sums of fractions are not exact.
        return round(self._jump.now_s * 1_000_000) * 1_000

    async def create_connection(self, protocol_factory: Any, host: Any = None, port: Any = None, **_: Any) -> Any:
        """Connect over the simulated network."""
        return await self.internet.connect(protocol_factory, host, port)

    async def create_server(self, protocol_factory: Any, *_: Any, sock: Any = None, **__: Any) -> Any:
        """Listen on the simulated network."""
        return self.internet.listen(protocol_factory, sock)

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


__all__ = ["EPOCH_S", "Internet", "Listening", "Standstill", "VirtualLoop", "run_virtually"]
