"""Calls as steps: what a call does between two waits, without saying how to wait.

A call that may have to wait is a generator or a coroutine. It yields or awaits what it waits for and is resumed with
what came of it, or with the exception. The blocking door waits in the thread, the asyncio door on the loop; the call is
written once. `blocking` and `awaited` make methods of the two doors of a coroutine.

Laws: a call that is broken off at a wait has lost nothing: what it was about to return has not been taken yet.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Coroutine, Generator
from concurrent.futures import Future
from dataclasses import dataclass
from functools import wraps
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, Protocol, TypeVar

if TYPE_CHECKING:
    from kohort.client.io.in_loop import InLoop
    from kohort.client.io.thread import IoThread

T = TypeVar("T")
R = TypeVar("R")
P = ParamSpec("P")


@dataclass(frozen=True, slots=True)
class Pause:
    """Wait for the end of a ticket, whose result comes back, or without one for the next delivery of the machine.

    The admin client's machine delivers nothing: without a ticket its calls wait until the time is over.
    """

    #: At most so long; a ticket that has not ended by then is a `KohortTimeoutError`.
    seconds: float
    ticket: Future[object] | None = None

    def __await__(self) -> Generator[Pause, object, object]:
        return (yield self)


#: What a call waits for; the awaitable is what a rebalance callback of an asyncio application has returned.
Wait = Pause | Awaitable[object]
Steps = Generator[Wait, object, T]


class BlockingDoor(Protocol):
    """A door that runs its calls in the thread of the caller."""

    @property
    def _io(self) -> IoThread[Any]: ...

    @property
    def _calls(self) -> dict[str, Any]:
        """The objects that have the calls, by the names of their classes."""


class AwaitedDoor(Protocol):
    """A door that runs its calls on the running loop."""

    @property
    def _io(self) -> InLoop[Any]: ...

    @property
    def _calls(self) -> dict[str, Any]:
        """The objects that have the calls, by the names of their classes."""


def blocking(call: Callable[Concatenate[Any, P], Coroutine[Any, Any, R]]) -> Callable[Concatenate[Any, P], R]:
    """Make a blocking door's method of a call: the thread waits where the call does."""
    family = _family_of(call)

    @wraps(call)
    def method(door: BlockingDoor, /, *args: P.args, **kwargs: P.kwargs) -> R:
        steps = call(door._calls[family], *args, **kwargs)
        host = door._io
        outcome: object = None
        failure: BaseException | None = None
        try:
            while True:
                pause = steps.send(outcome) if failure is None else steps.throw(failure)
                outcome = failure = None
                try:
                    if pause.ticket is None:
                        time.sleep(pause.seconds)
                    else:
                        outcome = host.wait(pause.ticket, pause.seconds)
                except BaseException as why:
                    # It is thrown outside of this block: what the call raises after it has dealt with it stands alone.
                    failure = why
        except StopIteration as end:
            return end.value  # type: ignore[no-any-return]
        finally:
            # The exception knows this frame: together they would stay until the garbage collector comes.
            failure = None
            # After a Ctrl-C between two steps, so that it is not said to be never awaited.
            steps.close()

    return method


def awaited(
    call: Callable[Concatenate[Any, P], Coroutine[Any, Any, R]],
) -> Callable[Concatenate[Any, P], Coroutine[Any, Any, R]]:
    """Make an asyncio door's method of a call; it has no example, since those are of the blocking door."""
    import asyncio

    family = _family_of(call)

    @wraps(call)
    async def method(door: AwaitedDoor, /, *args: P.args, **kwargs: P.kwargs) -> R:
        steps = call(door._calls[family], *args, **kwargs)
        host = door._io
        outcome: object = None
        failure: BaseException | None = None
        try:
            while True:
                pause = steps.send(outcome) if failure is None else steps.throw(failure)
                outcome = failure = None
                try:
                    if pause.ticket is None:
                        await asyncio.sleep(pause.seconds)
                    else:
                        outcome = await host.wait(pause.ticket, pause.seconds)
                except BaseException as why:
                    failure = why
        except StopIteration as end:
            return end.value  # type: ignore[no-any-return]
        finally:
            failure = None
            steps.close()

    method.__doc__ = without_examples(call.__doc__ or "")
    return method


def without_examples(text: str) -> str:
    """The docstring without the paragraphs that are examples."""
    return "\n\n".join(each for each in text.split("\n\n") if not each.lstrip().startswith(">>>"))


def _family_of(call: Callable[..., object]) -> str:
    """The name of the class that has the call."""
    return call.__qualname__.rpartition(".")[0]
