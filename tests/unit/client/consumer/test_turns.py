"""A consumer belongs to one thread at a time; what may be called from any does what it says."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial

import pytest

from kohort import Admin, Broker, Consumer, ConsumerRecord, Producer, TopicPartition
from kohort.client.consumer.context import Turn
from kohort.errors import StateError
from support.waiting import PATIENCE_SECONDS, until

ORDERS = TopicPartition("orders", 0)
CONFIG = {"group.consumer.heartbeat.interval.ms": 100, "group.consumer.min.heartbeat.interval.ms": 50}


@pytest.fixture
def broker() -> Iterator[Broker]:
    with Broker(config=CONFIG) as running:
        with Admin(bootstrap_servers=running.bootstrap_servers) as admin:
            admin.create_topic("orders", 2)
        yield running


@pytest.fixture
def pool() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor() as running:
        yield running


def member(broker: Broker, **options: object) -> Consumer:
    return Consumer(
        bootstrap_servers=broker.bootstrap_servers, group_id="billing", auto_offset_reset="earliest", **options
    )


def reader(broker: Broker) -> Consumer:
    consumer = Consumer(bootstrap_servers=broker.bootstrap_servers, auto_offset_reset="earliest")
    consumer.assign([ORDERS])
    return consumer


def fill(broker: Broker, count: int) -> None:
    with Producer(bootstrap_servers=broker.bootstrap_servers) as producer:
        for number in range(count):
            producer.send("orders", value=b"%d" % number, partition=0)


def is_in_a_call(consumer: Consumer) -> bool:
    return consumer._context.turn.owner is not None


class HeldInCallback:
    """A member whose first poll stays in its callback, in a thread, until `let_go`."""

    def __init__(self, consumer: Consumer, pool: ThreadPoolExecutor) -> None:
        self.let_go = threading.Event()
        entered = threading.Event()

        def on_assigned(_: Consumer, __: list[TopicPartition]) -> None:
            entered.set()
            assert self.let_go.wait(PATIENCE_SECONDS)

        consumer.subscribe(["orders"], on_assigned=on_assigned)
        self.poll: Future[list[ConsumerRecord]] = pool.submit(consumer.poll, PATIENCE_SECONDS)
        assert entered.wait(PATIENCE_SECONDS)


class TestSecondThread:
    @pytest.mark.parametrize(
        "call",
        [
            pytest.param(lambda consumer: consumer.poll(0), id="poll"),
            pytest.param(lambda consumer: consumer.poll_one(0), id="poll_one"),
            pytest.param(lambda consumer: consumer.consume(5, 0), id="consume"),
            pytest.param(lambda consumer: consumer.poll_arrow(0), id="poll_arrow"),
            pytest.param(next, id="iteration"),
            pytest.param(lambda consumer: consumer.subscribe(["other"]), id="subscribe"),
            pytest.param(lambda consumer: consumer.unsubscribe(), id="unsubscribe"),
            pytest.param(lambda consumer: consumer.assign([ORDERS]), id="assign"),
            pytest.param(lambda consumer: consumer.seek(ORDERS, 0), id="seek"),
            pytest.param(lambda consumer: consumer.pause([ORDERS]), id="pause"),
            pytest.param(lambda consumer: consumer.commit(), id="commit of what was returned"),
        ],
    )
    def test_is_refused_while_the_first_is_in_poll(
        self, broker: Broker, pool: ThreadPoolExecutor, call: object
    ) -> None:
        """The records would be divided between the two without a word."""
        with member(broker) as consumer:
            held = HeldInCallback(consumer, pool)
            with pytest.raises(StateError, match="another thread or task"):
                call(consumer)
            held.let_go.set()
            consumer.wakeup()
            held.poll.result(PATIENCE_SECONDS)
            consumer.poll(0)

    def test_may_ask_what_only_the_background_knows(self, broker: Broker, pool: ThreadPoolExecutor) -> None:
        fill(broker, 3)
        with member(broker) as consumer:
            held = HeldInCallback(consumer, pool)
            assert consumer.end_offsets([ORDERS]) == {ORDERS: 3}
            assert consumer.partitions_for("orders") == [0, 1]
            held.let_go.set()
            assert [record.offset for record in held.poll.result(PATIENCE_SECONDS)] == [0, 1, 2]
            consumer.commit({ORDERS: 2})
            assert pool.submit(consumer.committed, [ORDERS]).result(PATIENCE_SECONDS) == {ORDERS: 2}

    def test_may_go_on_when_the_first_is_done(self, broker: Broker, pool: ThreadPoolExecutor) -> None:
        """One after the other is no trouble: each record comes once."""
        fill(broker, 50)
        with reader(broker) as consumer:
            seen: list[int] = []
            until(
                lambda: len(seen) >= 50,
                what="all records, from two threads in turn",
                step=lambda: seen.extend(
                    record.offset
                    for found in (
                        pool.submit(consumer.poll, 1.0, max_records=3).result(),
                        consumer.poll(0, max_records=2),
                    )
                    for record in found
                ),
            )
        assert seen == list(range(50))


class TestWakeup:
    def test_ends_a_poll_that_waits(self, broker: Broker, pool: ThreadPoolExecutor) -> None:
        with reader(broker) as consumer:
            waiting = pool.submit(consumer.poll, 10 * PATIENCE_SECONDS)
            until(partial(is_in_a_call, consumer), what="the poll has begun")
            consumer.wakeup()
            assert waiting.result(PATIENCE_SECONDS) == []

    def test_before_a_poll_ends_that_one_and_no_other(self, broker: Broker) -> None:
        with reader(broker) as consumer:
            consumer.wakeup()
            assert consumer.poll(10 * PATIENCE_SECONDS) == []
            fill(broker, 1)
            assert [record.offset for record in consumer.poll(PATIENCE_SECONDS)] == [0]

    def test_loses_nothing_that_is_there(self, broker: Broker) -> None:
        fill(broker, 3)
        with reader(broker) as consumer:
            seen = [consumer.poll_one(PATIENCE_SECONDS)]
            for _ in range(2):
                consumer.wakeup()
                seen.append(consumer.poll_one(PATIENCE_SECONDS))
        assert [record.offset for record in seen if record is not None] == [0, 1, 2]


class TestCloseFromElsewhere:
    def test_ends_a_poll_that_waits(self, broker: Broker, pool: ThreadPoolExecutor) -> None:
        consumer = reader(broker)
        waiting = pool.submit(consumer.poll, 10 * PATIENCE_SECONDS)
        until(partial(is_in_a_call, consumer), what="the poll has begun")
        consumer.close()
        assert waiting.result(PATIENCE_SECONDS) == []
        with pytest.raises(StateError, match="closed"):
            consumer.poll(0)

    def test_does_not_count_what_another_thread_is_at_work_on(self, broker: Broker, pool: ThreadPoolExecutor) -> None:
        fill(broker, 3)
        consumer = member(broker)
        consumer.subscribe(["orders"])
        assert len(pool.submit(consumer.poll, PATIENCE_SECONDS).result()) == 3
        consumer.close()
        with member(broker) as again:
            again.subscribe(["orders"])
            assert [record.offset for record in again.poll(PATIENCE_SECONDS)] == [0, 1, 2]

    def test_waits_no_longer_than_it_may_for_a_callback(
        self, broker: Broker, pool: ThreadPoolExecutor, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """The rest happens in the background, which has time for it here however busy the machine is."""
        monkeypatch.setattr("kohort.client.consumer.context._GRACE_S", PATIENCE_SECONDS)
        consumer = member(broker)
        held = HeldInCallback(consumer, pool)
        consumer.close(timeout=0.1)
        held.let_go.set()
        assert held.poll.result(PATIENCE_SECONDS) == []
        with Admin(bootstrap_servers=broker.bootstrap_servers) as admin:
            until(lambda: not admin.describe_group("billing").members, what="the member has left")

    def test_a_signal_handler_may_close(self, broker: Broker, pool: ThreadPoolExecutor) -> None:
        """Below a poll of the same thread: that poll ends, and leaves the group before it returns."""
        revoked: list[TopicPartition] = []
        consumer = member(broker)
        consumer.subscribe(["orders"], on_revoked=lambda _, partitions: revoked.extend(partitions))
        until(consumer.assignment, what="an assignment", step=lambda: consumer.poll(0.1))
        before = signal.signal(signal.SIGUSR1, lambda *_: consumer.close())
        try:
            sent = pool.submit(
                lambda: (
                    until(partial(is_in_a_call, consumer), what="the poll has begun"),
                    os.kill(os.getpid(), signal.SIGUSR1),
                )
            )
            assert consumer.poll(10 * PATIENCE_SECONDS) == []
            sent.result(PATIENCE_SECONDS)
        finally:
            signal.signal(signal.SIGUSR1, before)
        assert sorted(revoked) == [ORDERS, TopicPartition("orders", 1)]
        with Admin(bootstrap_servers=broker.bootstrap_servers) as admin:
            assert admin.describe_group("billing").members == ()
        consumer.close()


class TestIteration:
    def test_gives_record_by_record(self, broker: Broker) -> None:
        fill(broker, 5)
        with reader(broker) as consumer:
            seen = []
            for record in consumer:
                seen.append(record.offset)
                assert consumer.position(ORDERS) == record.offset + 1
                if record.offset == 4:
                    break
        assert seen == [0, 1, 2, 3, 4]

    def test_commits_no_record_that_was_not_handed_out(self, broker: Broker) -> None:
        fill(broker, 5)
        with member(broker, enable_auto_commit=False) as consumer:
            consumer.subscribe(["orders"])
            for record in consumer:
                consumer.commit()
                if record.offset == 2:
                    break
            assert consumer.committed([ORDERS]) == {ORDERS: 3}

    def test_ends_with_the_consumer(self, broker: Broker) -> None:
        fill(broker, 5)
        consumer = reader(broker)
        seen = []
        for record in consumer:
            seen.append(record.offset)
            if record.offset == 1:
                consumer.close()
        assert seen == [0, 1]

    def test_ends_after_the_time_that_was_set(self, broker: Broker) -> None:
        fill(broker, 2)
        with Consumer(
            bootstrap_servers=broker.bootstrap_servers, auto_offset_reset="earliest", consumer_timeout_ms=500
        ) as consumer:
            consumer.assign([ORDERS])
            assert [record.offset for record in consumer] == [0, 1]
            fill(broker, 1)
            assert [record.offset for record in consumer] == [2]


class TestConsume:
    def test_waits_for_as_many_as_are_wanted(self, broker: Broker, pool: ThreadPoolExecutor) -> None:
        fill(broker, 2)
        with reader(broker) as consumer:
            wanted = pool.submit(consumer.consume, 5, PATIENCE_SECONDS)
            fill(broker, 4)
            assert [record.offset for record in wanted.result()] == [0, 1, 2, 3, 4]
            rest: list[int] = []
            until(
                lambda: rest,
                what="fewer than are wanted",
                step=lambda: rest.extend(record.offset for record in consumer.consume(5, 0.1)),
            )
            assert rest == [5]

    def test_raises_next_time_what_came_after_some_were_taken(self, broker: Broker, pool: ThreadPoolExecutor) -> None:
        fill(broker, 2)
        other = TopicPartition("other", 0)

        def on_assigned(_: Consumer, partitions: list[TopicPartition]) -> None:
            if other in partitions:
                raise ValueError("no room for more")

        with member(broker, allow_auto_create_topics=False, metadata_max_age_ms=200) as consumer:
            consumer.subscribe(["orders", "other"], on_assigned=on_assigned)
            under_way = pool.submit(consumer.consume, 100, PATIENCE_SECONDS)
            until(lambda: consumer._context.handler.positions([ORDERS]) == {ORDERS: 2}, what="some are taken")
            with Producer(bootstrap_servers=broker.bootstrap_servers) as producer:
                producer.send("other", value=b"x").result(PATIENCE_SECONDS)
            assert [record.offset for record in under_way.result()] == [0, 1]
            with pytest.raises(ValueError, match="no room"):
                consumer.consume(1, 0)
            assert [record.topic for record in consumer.consume(1, PATIENCE_SECONDS)] == ["other"]


def test_topics_may_be_given_first(broker: Broker) -> None:
    fill(broker, 1)
    with Consumer(
        "orders", bootstrap_servers=broker.bootstrap_servers, group_id="billing", auto_offset_reset="earliest"
    ) as consumer:
        assert consumer.subscription() == {"orders"}
        assert [record.value for record in consumer.poll(PATIENCE_SECONDS)] == [b"0"]


def test_a_turn_is_taken_once() -> None:
    turn = Turn()
    turn.take("poll")
    assert turn.is_mine
    assert not turn.try_take()
    with pytest.raises(StateError, match="seek was called while another call"):
        turn.take("seek")
    free = turn.wait()
    turn.give_back()
    assert free.done()
    assert turn.try_take()
