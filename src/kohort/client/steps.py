"""Calls that are written once, as coroutines, and run by the blocking clients as well as by the asyncio clients.

Where a call has to wait it awaits a `Wait`, and is resumed with its result or exception. A blocking client waits in the
caller's thread, an asyncio client on the loop. Both are called doors here. `blocking` and `awaited` wrap a call of an
object that the client holds as a method of the client; `held` wraps a call that never waits.

Laws: a call that is cancelled at a wait loses nothing: it takes records and results only after the wait.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine, Generator
from concurrent.futures import Future
from functools import wraps
from typing import Any, Concatenate, Generic, ParamSpec, Protocol, TypeVar, overload

from kohort.base.values import value

R = TypeVar("R")
P = ParamSpec("P")


@value(kw_only=False)
class Pause:
    """Wait for a ticket and return its result; without a ticket wait for the machine's next delivery.

    The admin client's machine delivers nothing, so without a ticket its calls wait for the whole time.
    """

    #: The longest wait; a ticket that has not ended by then raises `KohortTimeoutError`.
    seconds: float
    ticket: Future[object] | None = None

    def __await__(self) -> Generator[Pause, object, object]:
        return (yield self)


@value(kw_only=False)
class Returned:
    """Await the awaitable that a callback of an asyncio application has returned."""

    awaitable: Awaitable[object]

    def __await__(self) -> Generator[Returned, object, object]:
        return (yield self)


#: What a call waits for.
Wait = Pause | Returned


class Door(Protocol):
    """A client, blocking or asyncio, as the wrapped calls see it."""

    @property
    def _calls(self) -> dict[str, Any]:
        """The objects that have the calls, by the names of their classes."""


class BlockingDoor(Door, Protocol):
    """A blocking client: it runs its calls in the caller's thread."""

    def _run(self, call: Coroutine[Any, Any, R]) -> R: ...


class AwaitedDoor(Door, Protocol):
    """An asyncio client: it runs its calls on the running loop."""

    async def _run(self, call: Coroutine[Any, Any, R]) -> R: ...


class Call(Generic[P, R]):
    """A call in the list of a base class, which the blocking and the asyncio subclass each replace by a method."""

    def __init__(self, call: Callable[Concatenate[Any, P], Coroutine[Any, Any, R]]) -> None:
        self.call = call

    @overload
    def __get__(self, door: BlockingDoor, kind: type | None = None) -> Callable[P, R]: ...

    @overload
    def __get__(self, door: AwaitedDoor, kind: type | None = None) -> Callable[P, Coroutine[Any, Any, R]]: ...

    def __get__(self, door: object, kind: type | None = None) -> Any:
        raise AssertionError("the class of the door has a method in place of this")


def blocking(call: Callable[Concatenate[Any, P], Coroutine[Any, Any, R]]) -> Callable[Concatenate[Any, P], R]:
    """Wrap a call as a method of the blocking client."""
    family = _family_of(call)

    @wraps(call)
    def method(door: BlockingDoor, /, *args: P.args, **kwargs: P.kwargs) -> R:
        return door._run(call(door._calls[family], *args, **kwargs))

    return method


def awaited(
    call: Callable[Concatenate[Any, P], Coroutine[Any, Any, R]],
) -> Callable[Concatenate[Any, P], Coroutine[Any, Any, R]]:
    """Wrap a call as a method of the asyncio client, without the doctests, which use the blocking client."""
    family = _family_of(call)

    @wraps(call)
    async def method(door: AwaitedDoor, /, *args: P.args, **kwargs: P.kwargs) -> R:
        return await door._run(call(door._calls[family], *args, **kwargs))

    paragraphs = (call.__doc__ or "").split("\n\n")
    method.__doc__ = "\n\n".join(each for each in paragraphs if not each.lstrip().startswith(">>>"))
    return method


def held(call: Callable[Concatenate[Any, P], R]) -> Callable[Concatenate[Any, P], R]:
    """Wrap a call that never waits as a method of the blocking or the asyncio client."""
    family = _family_of(call)

    @wraps(call)
    def method(door: Door, /, *args: P.args, **kwargs: P.kwargs) -> R:
        return call(door._calls[family], *args, **kwargs)

    return method


def run(call: Coroutine[Wait, object, R], wait: Callable[[Wait], object]) -> R:
    """Run a call in this thread; `wait` is called where the call waits."""
    outcome: object = None
    failure: BaseException | None = None
    try:
        while True:
            wanted = call.send(outcome) if failure is None else call.throw(failure)
            outcome = failure = None
            try:
                outcome = wait(wanted)
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


# Apart from `run`: a driver that serves both costs each call a microsecond more.
async def run_on_loop(call: Coroutine[Wait, object, R], wait: Callable[[Wait], Awaitable[object]]) -> R:
    """Run a call on the running loop; `wait` is awaited where the call waits."""
    outcome: object = None
    failure: BaseException | None = None
    try:
        while True:
            wanted = call.send(outcome) if failure is None else call.throw(failure)
            outcome = failure = None
            try:
                outcome = await wait(wanted)
            except BaseException as why:
                failure = why
    except StopIteration as end:
        return end.value  # type: ignore[no-any-return]
    finally:
        failure = None
        call.close()


def _family_of(call: Callable[..., object]) -> str:
    """Return the name of the class that defines the call."""
    return call.__qualname__.rpartition(".")[0]
