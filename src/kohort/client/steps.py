"""Calls that are written once, as coroutines, and the two ways to carry them out.

A call awaits what it waits for, a `Wait`, and is resumed with what came of it, or with the exception. The blocking door
waits in the thread, the asyncio door on the loop. `blocking` and `awaited` make a door's method of a call of an object
that the door holds, `held` of one that never waits. A `Call` is an entry in the one list of several doors.

Laws: a call that is broken off at a wait has lost nothing: what it was about to return has not been taken yet.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine, Generator
from concurrent.futures import Future
from dataclasses import dataclass
from functools import wraps
from typing import Any, Concatenate, Generic, ParamSpec, Protocol, TypeVar, overload

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


@dataclass(frozen=True, slots=True)
class Returned:
    """Wait for what a callback of an asyncio application has returned."""

    awaitable: Awaitable[object]

    def __await__(self) -> Generator[Returned, object, object]:
        return (yield self)


#: What a call waits for.
Wait = Pause | Returned


class Door(Protocol):
    """A client as its methods see it: it holds the calls."""

    @property
    def _calls(self) -> dict[str, Any]:
        """The objects that have the calls, by the names of their classes."""


class BlockingDoor(Door, Protocol):
    """A door that carries its calls out in the thread of the caller."""

    def _run(self, call: Coroutine[Any, Any, R]) -> R: ...


class AwaitedDoor(Door, Protocol):
    """A door that carries its calls out on the running loop."""

    async def _run(self, call: Coroutine[Any, Any, R]) -> R: ...


class Call(Generic[P, R]):
    """A call in the list of a class that several doors inherit: each door makes a method of it, in its own way."""

    def __init__(self, call: Callable[Concatenate[Any, P], Coroutine[Any, Any, R]]) -> None:
        self.call = call

    @overload
    def __get__(self, door: BlockingDoor, kind: type | None = None) -> Callable[P, R]: ...

    @overload
    def __get__(self, door: AwaitedDoor, kind: type | None = None) -> Callable[P, Coroutine[Any, Any, R]]: ...

    def __get__(self, door: object, kind: type | None = None) -> Any:
        raise AssertionError("the class of the door has a method in place of this")


def blocking(call: Callable[Concatenate[Any, P], Coroutine[Any, Any, R]]) -> Callable[Concatenate[Any, P], R]:
    """Make a blocking door's method of a call."""
    family = _family_of(call)

    @wraps(call)
    def method(door: BlockingDoor, /, *args: P.args, **kwargs: P.kwargs) -> R:
        return door._run(call(door._calls[family], *args, **kwargs))

    return method


def awaited(
    call: Callable[Concatenate[Any, P], Coroutine[Any, Any, R]],
) -> Callable[Concatenate[Any, P], Coroutine[Any, Any, R]]:
    """Make an asyncio door's method of a call; it has no example, since those are of the blocking door."""
    family = _family_of(call)

    @wraps(call)
    async def method(door: AwaitedDoor, /, *args: P.args, **kwargs: P.kwargs) -> R:
        return await door._run(call(door._calls[family], *args, **kwargs))

    paragraphs = (call.__doc__ or "").split("\n\n")
    method.__doc__ = "\n\n".join(each for each in paragraphs if not each.lstrip().startswith(">>>"))
    return method


def held(call: Callable[Concatenate[Any, P], R]) -> Callable[Concatenate[Any, P], R]:
    """Make a method of a call that never waits, for either door."""
    family = _family_of(call)

    @wraps(call)
    def method(door: Door, /, *args: P.args, **kwargs: P.kwargs) -> R:
        return call(door._calls[family], *args, **kwargs)

    return method


def run(call: Coroutine[Wait, object, R], wait: Callable[[Wait], object]) -> R:
    """Carry a call out in this thread, which waits by `wait` where the call does."""
    steps = _carry_out(call, wait, on_loop=False)
    try:
        # Nothing is left to a loop, so the first step is the last.
        steps.send(None)
    except StopIteration as end:
        return end.value  # type: ignore[no-any-return]
    finally:
        # An interrupt before the first step ends the call, too.
        steps.close()
        call.close()
    raise AssertionError("a call in a thread has waited for a loop")


def run_on_loop(call: Coroutine[Wait, object, R], wait: Callable[[Wait], Awaitable[object]]) -> Coroutine[Any, Any, R]:
    """Carry a call out on the running loop; `wait` is awaited where the call waits."""
    return _carry_out(call, wait, on_loop=True)


async def _carry_out(call: Coroutine[Wait, object, R], wait: Callable[[Wait], Any], *, on_loop: bool) -> R:
    outcome: object = None
    failure: BaseException | None = None
    try:
        while True:
            wanted = call.send(outcome) if failure is None else call.throw(failure)
            outcome = failure = None
            try:
                outcome = await wait(wanted) if on_loop else wait(wanted)
            except BaseException as why:
                # It is thrown outside of this block: what the call raises after it has dealt with it stands alone.
                failure = why
    except StopIteration as end:
        return end.value  # type: ignore[no-any-return]
    finally:
        # The exception knows this frame: together they would stay until the garbage collector comes.
        failure = None
        # An interrupt between two steps ends the call, too.
        call.close()


def _family_of(call: Callable[..., object]) -> str:
    """The name of the class that has the call."""
    return call.__qualname__.rpartition(".")[0]
