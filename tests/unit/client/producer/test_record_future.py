"""A record's future beside `concurrent.futures.Future`: the same to whoever waits, in whatever order things happen."""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import CancelledError, Future, InvalidStateError, as_completed, wait

import pytest

from kohort.client.producer.record_future import RecordFuture

WAIT_SECONDS = 10.0


def settle_soon(future: Future[int], result: int) -> threading.Thread:
    """Give it its end from another thread, as soon as somebody waits."""

    def settle() -> None:
        while not future._waiters and not future._condition._waiters:  # type: ignore[attr-defined]
            pass
        future.set_result(result)

    thread = threading.Thread(target=settle)
    thread.start()
    return thread


def test_end_before_the_first_look() -> None:
    """What most futures go through: settled, then asked, or never."""
    future: RecordFuture[int] = RecordFuture()
    future.set_result(7)
    assert future.result(0) == 7
    assert future.done() and not future.cancelled()
    assert future.exception(0) is None

    failed: RecordFuture[int] = RecordFuture()
    failed.set_exception(KeyError("gone"))
    with pytest.raises(KeyError):
        failed.result(0)
    assert isinstance(failed.exception(0), KeyError)


def test_look_before_the_end() -> None:
    """Not done, a timeout, then the end that wakes the one who waits."""
    future: RecordFuture[int] = RecordFuture()
    assert not future.done()
    with pytest.raises(TimeoutError):
        future.result(0)
    thread = settle_soon(future, 5)
    assert future.result(WAIT_SECONDS) == 5
    thread.join()


def test_callbacks_are_called_once_whenever_they_are_added() -> None:
    """Before the end and after it."""
    called: list[int] = []
    future: RecordFuture[int] = RecordFuture()
    future.add_done_callback(lambda done: called.append(done.result()))
    future.set_result(1)
    future.add_done_callback(lambda done: called.append(done.result() + 1))
    assert called == [1, 2]


def test_standard_tools_take_it() -> None:
    """`wait`, `as_completed`, asyncio."""
    futures: list[RecordFuture[int]] = [RecordFuture() for _ in range(3)]
    futures[0].set_result(0)
    thread = settle_soon(futures[1], 1)
    assert wait(futures[:2], WAIT_SECONDS).not_done == set()
    thread.join()
    assert wait(futures, 0).not_done == {futures[2]}
    assert [future.result() for future in as_completed(futures[:1], WAIT_SECONDS)] == [0]

    async def await_it() -> int:
        wrapped = asyncio.wrap_future(futures[2])
        futures[2].set_result(2)
        return await asyncio.wait_for(wrapped, WAIT_SECONDS)

    assert asyncio.run(await_it()) == 2


def test_cancelled_one_takes_no_result() -> None:
    """As any future: the one who settles learns of it."""
    future: RecordFuture[int] = RecordFuture()
    assert future.cancel()
    with pytest.raises(InvalidStateError):
        future.set_result(1)
    with pytest.raises(CancelledError):
        future.result(0)


def test_one_end_only() -> None:
    """Whether somebody has looked or not."""
    future: RecordFuture[int] = RecordFuture()
    future.set_result(1)
    with pytest.raises(InvalidStateError):
        future.set_result(2)
    with pytest.raises(InvalidStateError):
        future.set_exception(KeyError())
    assert future.result(0) == 1
    assert not future.cancel()


def test_missing_attribute_is_an_attribute_error() -> None:
    """Only the parts of a future are made on demand."""
    with pytest.raises(AttributeError, match="no attribute colour"):
        RecordFuture().colour  # noqa: B018


def test_first_looks_and_ends_at_the_same_time() -> None:
    """Two threads, many futures: nobody waits for an end that has come, nobody misses one."""
    futures: list[RecordFuture[int]] = [RecordFuture() for _ in range(20_000)]

    def settle() -> None:
        for number, future in enumerate(futures):
            future.set_result(number)

    thread = threading.Thread(target=settle)
    thread.start()
    assert [each.result(WAIT_SECONDS) for each in futures] == list(range(20_000))
    thread.join()
