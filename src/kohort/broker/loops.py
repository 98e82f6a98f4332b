"""The event loop that a broker runs on: uvloop's where it is installed, asyncio's otherwise."""

from __future__ import annotations

import asyncio
import contextlib
import signal
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from kohort.broker.scheduling.loopwatch import LoopWatch, WatchedSelector
from kohort.broker.server import Server, run_broker

if TYPE_CHECKING:
    from kohort.broker.options.settings import BrokerSettings


def new_event_loop(watch: LoopWatch) -> asyncio.AbstractEventLoop:
    """Return a new loop that does not run yet; `watch` sees its turns if it is asyncio's."""
    try:
        import uvloop
    except ImportError:
        return asyncio.SelectorEventLoop(WatchedSelector(watch))
    loop: asyncio.AbstractEventLoop = uvloop.new_event_loop()
    return loop


def serve(
    settings: BrokerSettings,
    *,
    on_ready: Callable[[Server, asyncio.AbstractEventLoop], None],
    stop_on: Sequence[signal.Signals] = (),
) -> None:
    """Run a broker on a new loop until it is asked to stop; raise the error that made it fail.

    Args:
        settings: the broker's options.
        on_ready: called on the loop once clients can connect.
        stop_on: signals that stop the broker; only in the main thread.
    """
    watch = LoopWatch()
    loop = new_event_loop(watch)

    def announce(server: Server) -> None:
        for number in stop_on:
            loop.add_signal_handler(number, server.request_stop)
        on_ready(server, loop)

    try:
        asyncio.set_event_loop(loop)
        loop.run_until_complete(run_broker(settings, on_ready=announce, watch=watch))
    finally:
        with contextlib.suppress(RuntimeError):
            loop.run_until_complete(loop.shutdown_asyncgens())
        asyncio.set_event_loop(None)
        loop.close()
