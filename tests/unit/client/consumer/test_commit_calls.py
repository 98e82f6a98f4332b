"""Commits through the door: what may be given, where callbacks run, and what works in one."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from types import SimpleNamespace
from typing import Any
from uuid import uuid4

import confluent_kafka
import pytest

import kohort
from kohort import Consumer, ConsumerRecord, OffsetAndMetadata, TopicPartition
from kohort.client.arguments import to_offsets
from kohort.errors import ConfigError, KohortError, StateError
from support.waiting import PATIENCE_SECONDS, until

FIRST, SECOND = TopicPartition("orders", 0), TopicPartition("orders", 1)


def record(partition: int, offset: int, epoch: int = 3) -> ConsumerRecord:
    return ConsumerRecord("orders", partition, offset, 0, 0, None, b"", (), epoch)


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    with kohort.Broker() as broker:
        with kohort.Admin(bootstrap_servers=broker.bootstrap_servers) as admin:
            admin.create_topic("orders", 2)
        with kohort.Producer(bootstrap_servers=broker.bootstrap_servers) as producer:
            producer.send("orders", value=b"one", partition=0).result(10)
            for number in range(9):
                producer.send("nine", b"%d" % number, partition=0)
        yield broker.bootstrap_servers


@pytest.fixture
def consumer(address: str, request: pytest.FixtureRequest) -> Iterator[Consumer]:
    with Consumer(
        bootstrap_servers=address,
        group_id=request.node.name,
        auto_offset_reset="earliest",
        enable_auto_commit=False,
    ) as made:
        made.assign([FIRST, SECOND])
        yield made


def test_records_stand_for_the_offset_behind_them() -> None:
    """What is committed is where to go on; of several records of a partition the last one counts."""
    assert to_offsets(record(0, 7)) == {FIRST: OffsetAndMetadata(8, "", 3)}
    several = [record(0, 7), record(1, 2, -1), record(0, 8)]
    assert to_offsets(several) == {FIRST: OffsetAndMetadata(9, "", 3), SECOND: OffsetAndMetadata(3)}
    assert to_offsets([]) == {}


def test_metadata_of_other_clients_is_taken() -> None:
    """kafka-python's OffsetAndMetadata, and confluent-kafka's TopicPartition, whose fields may be None."""
    theirs = SimpleNamespace(offset=4, metadata="x", leader_epoch=-1)
    assert to_offsets({FIRST: theirs}) == {FIRST: OffsetAndMetadata(4, "x", -1)}
    partition = SimpleNamespace(topic="orders", partition=0, offset=4, metadata=None, leader_epoch=None)
    assert to_offsets([partition]) == {FIRST: 4}


@pytest.mark.parametrize(
    ("offsets", "error"),
    [
        ({FIRST: OffsetAndMetadata(-1)}, ConfigError),
        ({FIRST: OffsetAndMetadata(1, "x" * 2**15)}, ConfigError),
        ({FIRST: OffsetAndMetadata(1, "\ud800")}, ConfigError),
        ({FIRST: OffsetAndMetadata(1, b"x")}, TypeError),  # type: ignore[arg-type]
        ({FIRST: OffsetAndMetadata(1, "", -2)}, ConfigError),
        ({FIRST: OffsetAndMetadata(1, "", 0.5)}, ConfigError),  # type: ignore[arg-type]
        ([record(-1, 7)], ConfigError),
        ([FIRST], TypeError),
    ],
)
def test_impossible_offsets_are_refused_at_the_call(offsets: Any, error: type[Exception], consumer: Consumer) -> None:
    """By the call that waits and by the one that does not; the next good one works."""
    with pytest.raises(error, match=r"expected|text"):
        consumer.commit(offsets)
    with pytest.raises(error, match=r"expected|text"):
        consumer.commit_async(offsets)

    consumer.commit({FIRST: 1})
    assert consumer.committed(FIRST) == 1


def test_callback_that_is_none_is_refused(consumer: Consumer) -> None:
    """And so are offsets and a message at once."""
    with pytest.raises(TypeError, match="callback cannot be 'later'"):
        consumer.commit_async({FIRST: 1}, "later")  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="one of them is expected"):
        consumer.commit({FIRST: 1}, message=record(0, 7))


def test_commit_without_anything_to_commit_ends_well(consumer: Consumer) -> None:
    """Its callback is called by the next poll, as any other."""
    ends: list[tuple[KohortError | None, object]] = []
    consumer.commit_async(None, lambda error, offsets: ends.append((error, offsets)))
    assert ends == []

    consumer.poll(0)

    assert ends == [(None, {})]


def test_callback_runs_in_the_thread_that_polls(consumer: Consumer) -> None:
    """Not in the one that commits, and not in the background."""
    threads: list[int] = []
    elsewhere = threading.Thread(
        target=lambda: consumer.commit_async({FIRST: 1}, lambda *_: threads.append(threading.get_ident()))
    )
    elsewhere.start()
    elsewhere.join()

    until(lambda: bool(threads), what="the callback", step=lambda: consumer.poll(0.1))

    assert threads == [threading.get_ident()]


def test_callback_may_commit_and_ask_but_not_poll(consumer: Consumer) -> None:
    """As a rebalance callback; it is not called below itself."""
    seen: list[object] = []

    def again(error: KohortError | None, offsets: object) -> None:
        seen.append(error)
        if len(seen) == 1:
            consumer.commit({FIRST: 2})
            seen.append(consumer.committed(FIRST))
            consumer.commit_async({FIRST: 3}, again)
            with pytest.raises(StateError, match="poll cannot be called inside a callback"):
                consumer.poll(0)

    consumer.commit_async({FIRST: 1}, again)
    until(lambda: len(seen) == 3, what="two callbacks", step=lambda: consumer.poll(0.1))

    assert seen == [None, 2, None]
    assert consumer.committed(FIRST) == 3


def test_exception_of_a_callback_is_raised_by_poll(consumer: Consumer) -> None:
    """The callbacks behind it are called by the next one."""
    seen: list[int] = []

    def fail(_: object, __: object) -> None:
        raise ZeroDivisionError

    consumer.commit_async({FIRST: 1}, fail)
    consumer.commit_async({FIRST: 2}, lambda *_: seen.append(2))
    with pytest.raises(ZeroDivisionError):
        until(lambda: bool(seen), what="the callback", step=lambda: consumer.poll(0.1))
    until(lambda: bool(seen), what="the callback", step=lambda: consumer.poll(0.1))

    assert seen == [2]


def test_callback_learns_why(address: str) -> None:
    """A typed error."""
    ends: list[KohortError | None] = []
    with Consumer(bootstrap_servers=address, group_id="why") as consumer:
        consumer.assign([FIRST])
        consumer.commit_async({FIRST: OffsetAndMetadata(1, "x" * 5_000)}, lambda error, _: ends.append(error))
        until(lambda: bool(ends), what="the callback", step=lambda: consumer.poll(0.1))
        with pytest.raises(kohort.errors.BrokerError) as refused:
            consumer.commit({FIRST: OffsetAndMetadata(1, "x" * 5_000)})

    assert isinstance(ends[0], kohort.errors.BrokerError)
    assert ends[0].code is refused.value.code is kohort.errors.ErrorCode.OFFSET_METADATA_TOO_LARGE


def test_revocation_callback_of_close_may_commit(address: str) -> None:
    """The last chance of an application that commits by itself."""
    with Consumer(bootstrap_servers=address, group_id="last", enable_auto_commit=False) as consumer:
        consumer.subscribe(["orders"], on_revoked=lambda consumer, _: consumer.commit({FIRST: 5}))
        until(lambda: len(consumer.assignment()) == 2, what="an assignment", step=lambda: consumer.poll(0.1))
    with pytest.raises(StateError, match="closed"):
        consumer.commit({FIRST: 6})

    with Consumer(bootstrap_servers=address, group_id="last") as consumer:
        assert consumer.committed(FIRST) == 5


# -- stored offsets ---------------------------------------------------------------------------------------------------


def storing(address: str, group: str, **options: Any) -> Consumer:
    made = Consumer(
        bootstrap_servers=address,
        group_id=group,
        auto_offset_reset="earliest",
        enable_auto_offset_store=False,
        **options,
    )
    made.assign([FIRST, SECOND])
    return made


def committed(address: str, group: str) -> dict[TopicPartition, int | None]:
    with Consumer(bootstrap_servers=address, group_id=group) as reader:
        return reader.committed([FIRST, SECOND])


def test_only_what_is_stored_is_committed(address: str) -> None:
    """By close, by the interval, by a commit without offsets; reading commits nothing."""
    with storing(address, "by close") as consumer:
        until(lambda: bool(consumer.poll(0.1)), what="a record")
        consumer.poll(0)
    assert committed(address, "by close") == {FIRST: None, SECOND: None}
    with storing(address, "by close") as consumer:
        (found,) = consumer.consume(1, 10)
        consumer.store_offsets(found)
        consumer.store_offsets({SECOND: OffsetAndMetadata(0, "nothing yet")})
    assert committed(address, "by close") == {FIRST: 1, SECOND: 0}

    with storing(address, "by interval", auto_commit_interval_ms=50) as consumer:
        # Nobody polls meanwhile: what is done is done.
        consumer.store_offsets({FIRST: 1})
        until(lambda: consumer.committed(FIRST) == 1, what="an automatic commit")

    with storing(address, "by commit", enable_auto_commit=False) as consumer:
        consumer.store_offsets(message=record(0, 0))
        consumer.commit()
        consumer.store_offsets({FIRST: 0})
    assert committed(address, "by commit") == {FIRST: 1, SECOND: None}


def test_application_that_fails_has_done_what_it_stored(address: str) -> None:
    """The record at which it failed is read again, the ones before it are not."""
    with pytest.raises(ZeroDivisionError), storing(address, "failing") as consumer:
        consumer.store_offsets({FIRST: 1})
        raise ZeroDivisionError

    assert committed(address, "failing") == {FIRST: 1, SECOND: None}


class TestCloseWhileAnExceptionPasses:
    """As users of other clients write it: `finally: consumer.close()`; what is in work is read again."""

    @pytest.fixture
    def reader(self, address: str, request: pytest.FixtureRequest) -> Consumer:
        made = Consumer(bootstrap_servers=address, group_id=request.node.name, auto_offset_reset="earliest")
        made.assign([FIRST])
        return made

    @pytest.fixture
    def stored(self, address: str, request: pytest.FixtureRequest) -> Callable[[], int | None]:
        return lambda: committed(address, request.node.name)[FIRST]

    def take(self, consumer: Consumer) -> None:
        record = consumer.poll_one(PATIENCE_SECONDS)
        assert record is not None and record.offset == 0

    @pytest.mark.parametrize("kind", [ZeroDivisionError, KeyboardInterrupt, SystemExit, GeneratorExit])
    def test_record_in_work_is_not_committed(
        self, reader: Consumer, stored: Callable[[], int | None], kind: type[BaseException]
    ) -> None:
        def work() -> None:
            try:
                self.take(reader)
                raise kind
            finally:
                reader.close()

        with pytest.raises(kind):
            work()
        assert stored() == 0

    @pytest.mark.parametrize(
        ("way", "done"),
        [
            (lambda c: [c.poll_one(PATIENCE_SECONDS) for _ in range(7)], 6),
            (lambda c: [next(c) for _ in range(7)], 6),
            (lambda c: [c.poll(PATIENCE_SECONDS, max_records=3) for _ in range(2)], 3),
            (lambda c: [c.poll_one(PATIENCE_SECONDS), c.poll(PATIENCE_SECONDS, max_records=3)], 1),
            (lambda c: [c.poll_one(PATIENCE_SECONDS), c.consume(8, PATIENCE_SECONDS)], 1),
            (lambda c: [c.consume(2, PATIENCE_SECONDS), c.consume(7, PATIENCE_SECONDS)], 2),
            (lambda c: [c.poll_arrow(PATIENCE_SECONDS, max_records=4) for _ in range(2)], 4),
            (lambda c: [c.poll(PATIENCE_SECONDS, max_records=3), c.poll(0, max_records=9), c.poll(0)], 9),
        ],
    )
    @pytest.mark.parametrize("end", ["with", "finally"])
    def test_what_came_before_is_committed(
        self, address: str, way: Callable[[Consumer], object], done: int, end: str
    ) -> None:
        """Up to the call that has handed out last."""
        nine, group = TopicPartition("nine", 0), f"before-{uuid4()}"
        consumer = Consumer(bootstrap_servers=address, group_id=group, auto_offset_reset="earliest")
        consumer.assign([nine])

        def work() -> None:
            if end == "with":
                with consumer:
                    way(consumer)
                    raise ZeroDivisionError
            try:
                way(consumer)
                raise ZeroDivisionError
            finally:
                consumer.close()

        with pytest.raises(ZeroDivisionError):
            work()
        with Consumer(bootstrap_servers=address, group_id=group) as other:
            assert other.committed(nine) == done

    def test_one_that_is_being_handled_has_ended_the_work_too(
        self, reader: Consumer, stored: Callable[[], int | None]
    ) -> None:
        try:
            self.take(reader)
            raise KeyboardInterrupt
        except KeyboardInterrupt:
            reader.close()
        assert stored() == 0

    def test_record_that_is_done_is_committed(self, reader: Consumer, stored: Callable[[], int | None]) -> None:
        try:
            self.take(reader)
            with suppress(ZeroDivisionError):
                raise ZeroDivisionError
        finally:
            reader.close()
        assert stored() == 1

    def test_exception_that_was_there_before_the_record_does_not_count(
        self, reader: Consumer, stored: Callable[[], int | None]
    ) -> None:
        """The consumer is what another way of doing things is replaced with."""
        try:
            raise ZeroDivisionError
        except ZeroDivisionError:
            self.take(reader)
            reader.close()
        assert stored() == 1


def test_many_threads_may_store(address: str) -> None:
    """Each its own partition; what each stored last is committed."""

    def work(consumer: Consumer, partition: TopicPartition) -> None:
        for offset in range(1, 2_000):
            consumer.store_offsets({partition: offset})

    with storing(address, "threads", auto_commit_interval_ms=10) as consumer:
        workers = [threading.Thread(target=work, args=(consumer, each)) for each in (FIRST, SECOND)]
        for worker in workers:
            worker.start()
        until(lambda: not any(worker.is_alive() for worker in workers), what="the end", step=lambda: consumer.poll(0))

    assert committed(address, "threads") == {FIRST: 1_999, SECOND: 1_999}


def test_storing_is_refused_where_it_makes_no_sense(consumer: Consumer, address: str) -> None:
    """One sentence each; nothing of a refused call is stored."""
    with pytest.raises(StateError, match="enable_auto_offset_store=False"):
        consumer.store_offsets({FIRST: 1})
    with storing(address, "refused") as storer:
        with pytest.raises(StateError, match="orders-7 is not assigned"):
            storer.store_offsets({FIRST: 1, TopicPartition("orders", 7): 1})
        with pytest.raises(TypeError, match="a mapping is expected"):
            storer.store_offsets()
        with pytest.raises(ConfigError, match="one of them is expected"):
            storer.store_offsets({FIRST: 1}, message=record(0, 0))
    with pytest.raises(StateError, match="closed"):
        storer.store_offsets({FIRST: 1})
    assert committed(address, "refused") == {FIRST: None, SECOND: None}
    with Consumer(bootstrap_servers=address, enable_auto_offset_store=False) as alone:
        alone.assign([FIRST])
        with pytest.raises(StateError, match="no group to commit for"):
            alone.store_offsets({FIRST: 1})


# -- partitions that bring an offset along ----------------------------------------------------------------------------


@pytest.mark.parametrize(("offset", "position"), [(5, 5), (-2, 0), (-1, 1), (-1001, 0), (-1000, 0)])
def test_offset_of_a_partition_is_where_it_begins(consumer: Consumer, offset: int, position: int) -> None:
    """confluent-kafka's TopicPartition, its OFFSET_BEGINNING, OFFSET_END, OFFSET_INVALID and OFFSET_STORED."""
    theirs = confluent_kafka.TopicPartition("orders", 0, offset)
    consumer.assign([theirs])
    assert consumer.position(FIRST) == position

    if offset > -1000:
        consumer.seek(FIRST, 3)
        consumer.seek(theirs)
        assert consumer.position(FIRST) == position
    else:
        with pytest.raises(ConfigError, match="offset cannot be None"):
            consumer.seek(theirs)


def test_partition_that_is_read_goes_on_unless_it_says_otherwise(consumer: Consumer) -> None:
    """In an assignment that is replaced."""
    consumer.seek(FIRST, 1)
    consumer.seek(SECOND, 1)
    consumer.assign([FIRST, confluent_kafka.TopicPartition("orders", 1, 0)])

    assert (consumer.position(FIRST), consumer.position(SECOND)) == (1, 0)


def test_offsets_of_partitions_are_checked(consumer: Consumer) -> None:
    """By `assign`, before anything has changed."""
    with pytest.raises(ConfigError, match="offset cannot be -7"):
        consumer.assign([SimpleNamespace(topic="orders", partition=0, offset=-7)])  # type: ignore[list-item]
    assert consumer.assignment() == {FIRST, SECOND}


def test_callback_may_outlast_the_close_that_runs_it(address: str) -> None:
    """The background has ended by then, as it was told to: nothing is left to be said to it."""
    with Consumer(bootstrap_servers=address, group_id="late", enable_auto_commit=False) as consumer:

        def outlast(consumer: Consumer, _: object) -> None:
            until(lambda: not consumer._context.host.is_running, what="the end of the background")

        consumer.subscribe(["orders"], on_revoked=outlast)
        until(lambda: len(consumer.assignment()) == 2, what="an assignment", step=lambda: consumer.poll(0.1))
        consumer.close(timeout=0.1)
