"""A record's future beside `concurrent.futures.Future`: the same to whoever waits, in whatever order things happen."""

from __future__ import annotations

import asyncio
import gc
import threading
from collections.abc import Callable
from concurrent.futures import CancelledError, as_completed, wait

import pytest

from kohort.client.producer.record_future import BatchEnd, RecordFuture
from kohort.client.records import RecordMetadata
from kohort.errors import KohortTimeoutError

WAIT_SECONDS = 10.0


def batch_of(count: int) -> tuple[BatchEnd, list[RecordFuture]]:
    """Records that share their end."""
    end = BatchEnd("orders", 3)
    records = [RecordFuture("orders", None, b"x", 5, 25) for _ in range(count)]
    for index, record in enumerate(records):
        record.join(end, index)
    return end, records


def settle(end: BatchEnd, records: list[RecordFuture], *, error: KohortTimeoutError | None = None) -> None:
    """As the machine does it."""
    end.base_offset, end.error = 40, error
    end.is_over = True
    for record in records:
        if record.is_noticed:
            record.on_end()


def settle_soon(end: BatchEnd, record: RecordFuture) -> threading.Thread:
    """Give it its end from another thread, as soon as somebody waits."""

    def work() -> None:
        while not record._waiters and not record._condition._waiters:  # type: ignore[attr-defined]
            pass
        settle(end, [record])

    thread = threading.Thread(target=work)
    thread.start()
    return thread


def test_end_before_the_first_look() -> None:
    """What most futures go through: settled, then asked, or never; its place in the batch makes its offset."""
    end, records = batch_of(3)
    settle(end, records)
    assert records[2].result(0) == RecordMetadata("orders", 3, 42, 5)
    assert records[1].done() and not records[1].cancelled()
    assert records[0].exception(0) is None
    assert not any(record.is_watched for record in records)

    end, records = batch_of(1)
    settle(end, records, error=KohortTimeoutError("gone"))
    with pytest.raises(KohortTimeoutError, match="gone"):
        records[0].result(0)
    assert isinstance(records[0].exception(0), KohortTimeoutError)


def test_time_of_the_broker_counts_where_it_sets_one() -> None:
    """`message.timestamp.type=LogAppendTime`."""
    end, records = batch_of(1)
    end.append_time_ms = 77
    settle(end, records)
    assert records[0].result(0).timestamp == 77


def test_look_before_the_end() -> None:
    """Not done, a timeout, then the end that wakes the one who waits."""
    end, (record,) = batch_of(1)
    assert not record.done()
    with pytest.raises(TimeoutError):
        record.result(0)
    thread = settle_soon(end, record)
    assert record.result(WAIT_SECONDS).offset == 40
    thread.join()


def test_look_before_it_is_in_a_batch() -> None:
    """It waits in a queue for the machine, or for its topic."""
    record = RecordFuture("orders", None, b"x", 5, 25)
    assert not record.done()
    with pytest.raises(TimeoutError):
        record.result(0)
    end = BatchEnd("orders", 0)
    record.join(end, 0)
    settle(end, [record])
    assert record.result(0).offset == 40


def test_record_that_ends_by_itself() -> None:
    """Its topic is missing, or its partition."""
    called: list[str] = []
    record = RecordFuture("orders", None, b"x", 5, 25)
    record.add_done_callback(lambda done: called.append(str(done.exception())))
    record.fail(KohortTimeoutError("late"))
    assert called == ["late"]
    assert record.done()


def test_callbacks_are_called_once_whenever_they_are_added() -> None:
    """Before the end and after it."""
    called: list[int] = []
    end, (record,) = batch_of(1)
    record.add_done_callback(lambda done: called.append(done.result().offset))
    settle(end, [record])
    record.add_done_callback(lambda done: called.append(done.result().offset + 1))
    record.on_end()
    assert called == [40, 41]


def test_standard_tools_take_it() -> None:
    """`wait`, `as_completed`, asyncio."""
    batches = [batch_of(1) for _ in range(3)]
    futures = [records[0] for _, records in batches]
    settle(*batches[0])
    thread = settle_soon(batches[1][0], futures[1])
    assert wait(futures[:2], WAIT_SECONDS).not_done == set()
    thread.join()
    assert wait(futures, 0).not_done == {futures[2]}
    assert [future.result().offset for future in as_completed(futures[:1], WAIT_SECONDS)] == [40]

    async def await_it() -> RecordMetadata:
        wrapped = asyncio.wrap_future(futures[2])
        settle(*batches[2])
        return await asyncio.wait_for(wrapped, WAIT_SECONDS)

    assert asyncio.run(await_it()).offset == 40


def test_waiting_for_some_is_not_over_before_all_of_them_are() -> None:
    """The end of a batch has come, its records are being told: none may count twice."""
    end, records = batch_of(2)
    other_end, (other,) = batch_of(1)
    for record in (*records, other):
        assert not wait([record], 0).done
    end.base_offset, end.is_over = 40, True
    assert wait([*records, other], 0).done == set()
    for record in records:
        record.on_end()
    assert wait([*records, other], 0).done == set(records)
    settle(other_end, [other])
    assert wait([*records, other], 0).not_done == set()


@pytest.mark.parametrize("look", [RecordFuture.cancelled, lambda record: record.add_done_callback(print)])
def test_cancelled_one_takes_no_result(look: Callable[[RecordFuture], object]) -> None:
    """As any future, looked at before or not; the record is sent all the same."""
    end, (record,) = batch_of(1)
    look(record)
    assert record.cancel()
    settle(end, [record])
    assert record.cancelled() and record.done()
    with pytest.raises(CancelledError):
        record.result(0)
    with pytest.raises(CancelledError):
        record.exception(0)


def test_one_that_has_ended_cannot_be_cancelled() -> None:
    end, (record,) = batch_of(1)
    settle(end, [record])
    assert not record.cancel()
    assert record.result(0).offset == 40


def test_missing_attribute_is_an_attribute_error() -> None:
    """Only the parts of a future are made on demand."""
    with pytest.raises(AttributeError, match="no attribute colour"):
        batch_of(1)[1][0].colour  # type: ignore[attr-defined]  # noqa: B018


def test_names_of_kafka_python_are_answered_with_ours() -> None:
    """Whoever comes from there calls get."""
    with pytest.raises(AttributeError, match=r"no attribute get: call result$"):
        batch_of(1)[1][0].get(timeout=10)  # type: ignore[attr-defined]


def test_first_looks_and_ends_at_the_same_time() -> None:
    """Two threads, many futures: nobody waits for an end that has come, nobody misses one."""
    batches = [batch_of(10) for _ in range(2_000)]

    def work() -> None:
        for batch in batches:
            settle(*batch)

    thread = threading.Thread(target=work)
    thread.start()
    found = [record.result(WAIT_SECONDS).offset for _, records in batches for record in records]
    assert found == [*range(40, 50)] * 2_000
    thread.join()


def test_error_behind_a_cancelled_await_is_not_logged() -> None:
    """Its task does not ask any more; conftest fails a test after which asyncio has logged."""
    end, (record,) = batch_of(1)

    async def wait_for_it() -> None:
        await record

    async def cancel_it() -> None:
        task = asyncio.ensure_future(wait_for_it())
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        settle(end, [record], error=KohortTimeoutError("late"))
        await asyncio.sleep(0)

    asyncio.run(cancel_it())
    assert isinstance(record.exception(0), KohortTimeoutError)
    gc.collect()
