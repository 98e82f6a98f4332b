"""The application's side of a rebalance: what callbacks see, what the machine is told, what exceptions do."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest

from kohort.client.consumer.application_events import (
    CallbackDone,
    CallbackKind,
    CallbackStarted,
    CallbackWanted,
    Chunk,
    ConsumerEvent,
    Fence,
    Identity,
    Recovered,
    Trouble,
)
from kohort.client.consumer.deliveries import Deliveries
from kohort.client.consumer.fetch.fetch_handler import FetchHandler
from kohort.client.consumer.rebalancing import Callbacks, Progress, Rebalancing
from kohort.errors import BrokerError, BrokersUnreachableError, ErrorCode, StateError
from kohort.ids import TopicPartition
from support.dialogues.consumer_dialogue import batch, orders


class Side:
    """Handler, deliveries and callbacks of one consumer, without a thread."""

    def __init__(self, *, commits: bool = True, is_stored: bool = False) -> None:
        self.handler = FetchHandler()
        self.deliveries = Deliveries(self.handler, member_id="m-1", signal=threading.Event())
        self.progress = Progress(self.handler, is_stored=is_stored)
        self.posted: list[ConsumerEvent] = []
        self.rebalancing: Rebalancing[Side] = Rebalancing(
            self.handler, self.deliveries, self.progress, self.posted.append, commits=commits
        )
        self.called: list[tuple[str, list[TopicPartition], set[TopicPartition]]] = []
        self.rebalancing.callbacks = Callbacks(
            lambda side, gained: side.note("assigned", gained),
            lambda side, given: side.note("revoked", given),
            lambda side, lost: side.note("lost", lost),
        )

    def note(self, what: str, partitions: list[TopicPartition]) -> None:
        self.called.append((what, partitions, self.handler.assignment))

    def wanted(self, kind: CallbackKind, *partitions: int, number: int) -> CallbackWanted:
        return CallbackWanted(number=number, kind=kind, partitions=tuple(orders(*partitions)), reason="a test")

    def ask(self, kind: CallbackKind, *partitions: int, number: int = 1, with_progress: bool = True) -> CallbackDone:
        self.deliveries.deliver(
            CallbackWanted(number=number, kind=kind, partitions=tuple(orders(*partitions)), reason="a test")
        )
        self.deliveries.drain()
        with pytest.raises(StopIteration):
            self.rebalancing.answer(self, with_progress=with_progress).send(None)
        done = self.posted[-1]
        assert isinstance(done, CallbackDone)
        return done

    def read(self, index: int, count: int) -> None:
        partition = orders(index)[0]
        records = memoryview(batch(0, count))
        fence = self.handler.starts([partition])[partition].fence
        chunk = Chunk(
            partition=partition,
            fence=fence,
            offset=0,
            next_offset=count,
            records=records,
            size_bytes=len(records),
            aborted=(),
        )
        self.deliveries.deliver(chunk)
        self.deliveries.drain()
        assert len(self.handler.take(count)) == count


def test_gained_partitions_are_held_when_the_callback_begins() -> None:
    """So that it can seek."""
    side = Side()

    done = side.ask(CallbackKind.ASSIGNED, 0, 1)

    assert side.called == [("assigned", orders(0, 1), set(orders(0, 1)))]
    assert set(done.starts) == set(orders(0, 1))
    assert side.posted[0] == CallbackStarted(number=1, starts=done.starts)


def test_seek_in_the_assigned_callback_decides_the_start() -> None:
    """The background has not begun to read."""
    side = Side()
    side.rebalancing.callbacks = Callbacks(lambda side, gained: side.handler.seek(gained[0], 42))

    done = side.ask(CallbackKind.ASSIGNED, 0)

    assert done.starts[orders(0)[0]].offset == 42


def test_revoked_partitions_are_held_until_the_callback_returns() -> None:
    """It may commit their positions; nothing of them is handed out any more."""
    side = Side()
    side.ask(CallbackKind.ASSIGNED, 0, 1)
    side.read(1, 3)

    done = side.ask(CallbackKind.REVOKED, 1, number=2)

    assert side.called[-1] == ("revoked", orders(1), set(orders(0, 1)))
    assert side.handler.assignment == set(orders(0))
    assert done.consumed == {orders(1)[0]: 3}


def test_without_auto_commit_nothing_is_reported_as_consumed() -> None:
    """The application commits itself."""
    side = Side(commits=False)
    side.ask(CallbackKind.ASSIGNED, 0)
    side.read(0, 3)

    assert side.ask(CallbackKind.REVOKED, 0, number=2).consumed == {}


def test_half_processed_records_are_not_reported_as_consumed() -> None:
    """Closing after an exception: they are read again."""
    side = Side()
    side.ask(CallbackKind.ASSIGNED, 0)
    side.read(0, 3)

    assert side.ask(CallbackKind.REVOKED, 0, number=2, with_progress=False).consumed == {}


def test_lost_partitions_that_were_given_up_already_cause_no_callback() -> None:
    """A member that is fenced in the middle of a revocation asks about both."""
    side = Side()
    side.ask(CallbackKind.ASSIGNED, 0, 1)
    side.ask(CallbackKind.REVOKED, 1, number=2)

    side.ask(CallbackKind.LOST, 0, 1, number=3)

    assert side.called[-1] == ("lost", orders(0), set(orders(0)))
    assert side.handler.assignment == set()


def test_loss_takes_the_place_of_callbacks_that_have_not_begun() -> None:
    """What was to be given up is gone: `on_revoked` would commit what belongs to others."""
    side = Side()
    side.ask(CallbackKind.ASSIGNED, 0, 1)
    side.deliveries.deliver(
        CallbackWanted(number=2, kind=CallbackKind.REVOKED, partitions=tuple(orders(1)), reason="others")
    )

    side.ask(CallbackKind.LOST, 0, 1, number=3)

    assert [what for what, _, _ in side.called] == ["assigned", "lost"]
    assert side.called[-1][1] == orders(0, 1)


def test_change_is_logged_with_its_reason(caplog: pytest.LogCaptureFixture) -> None:
    """One line, which names some of many partitions."""
    side = Side()
    with caplog.at_level("INFO", "kohort.client"):
        side.ask(CallbackKind.ASSIGNED, 0, 1)
        side.ask(CallbackKind.LOST, *range(2, 5), number=2)
        side.ask(CallbackKind.ASSIGNED, *range(12), number=3)

    assert [record.getMessage() for record in caplog.records] == [
        "assigned orders-0, orders-1: a test",
        f"assigned {', '.join(f'orders-{index}' for index in range(10))}, ...: a test",
    ]
    assert side.rebalancing.last == ("assigned", tuple(orders(*range(12))), "a test")


def test_data_of_revoked_partitions_waits_for_the_callback() -> None:
    """What was not handed out is where the next owner begins, and the callback can ask for it."""
    side = Side()
    side.ask(CallbackKind.ASSIGNED, 0)
    partition, records = orders(0)[0], memoryview(batch(5, 2))
    fence = side.handler.starts([partition])[partition].fence
    side.deliveries.deliver(
        Chunk(partition=partition, fence=fence, offset=5, next_offset=7, records=records, size_bytes=7, aborted=())
    )
    seen: list[int | None] = []
    side.rebalancing.callbacks = Callbacks(on_revoked=lambda side, _: seen.append(side.handler.position(partition)))

    side.ask(CallbackKind.REVOKED, 0, number=2)

    assert seen == [5]
    assert side.handler.released_bytes() == {partition: 7}


def test_exception_of_a_callback_reaches_the_application_after_the_answer() -> None:
    """The group does not wait for a bug of the application."""
    side = Side()
    side.ask(CallbackKind.ASSIGNED, 0)

    def broken(_: Side, __: list[TopicPartition]) -> None:
        raise RuntimeError("application bug")

    side.rebalancing.callbacks = Callbacks(on_revoked=broken)
    with pytest.raises(RuntimeError, match="application bug"):
        side.ask(CallbackKind.REVOKED, 0, number=2)

    assert isinstance(side.posted[-1], CallbackDone)
    assert side.handler.assignment == set()
    assert not side.rebalancing.is_in_callback


def trouble(error: Exception, *, is_fatal: bool = False, index: int | None = None) -> Trouble:
    partition = None if index is None else orders(index)[0]
    return Trouble(error=error, is_fatal=is_fatal, partition=partition)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "come",
    [
        lambda deliveries: deliveries.deliver(Recovered()),
        lambda deliveries: deliveries.wake(),
        lambda deliveries: deliveries.raise_next(StateError("later")),
        lambda deliveries: deliveries.fail(StateError("broken")),
    ],
)
def test_whatever_comes_ends_the_quick_way_of_single_records(come: Callable[[Deliveries], None]) -> None:
    """`poll_one` looks no further while it is still."""
    deliveries = Deliveries(FetchHandler(), member_id="m-1", signal=threading.Event())
    assert not deliveries.is_still, "nobody has looked"
    assert deliveries.is_quiet
    assert deliveries.is_still

    come(deliveries)

    assert not deliveries.is_still


def test_fatal_error_is_raised_by_every_poll() -> None:
    """Until the subscription changes."""
    deliveries = Deliveries(FetchHandler(), member_id="m-1", signal=threading.Event())
    deliveries.deliver(trouble(BrokerError(ErrorCode.GROUP_AUTHORIZATION_FAILED), is_fatal=True))
    deliveries.drain()
    for _ in range(2):
        with pytest.raises(BrokerError):
            deliveries.raise_trouble()

    deliveries.forget_trouble()
    deliveries.raise_trouble()


def test_report_that_no_broker_can_be_reached_is_kept_once_and_withdrawn() -> None:
    """Each round of addresses reports anew, while nobody polls."""
    deliveries = Deliveries(FetchHandler(), member_id="m-1", signal=threading.Event())
    for _ in range(3):
        deliveries.deliver(trouble(BrokersUnreachableError([("a:1", "refused")])))
    deliveries.drain()
    with pytest.raises(BrokersUnreachableError):
        deliveries.raise_trouble()
    deliveries.raise_trouble()

    deliveries.deliver(trouble(BrokersUnreachableError([("a:1", "refused")])))
    deliveries.deliver(Recovered())
    deliveries.drain()
    deliveries.raise_trouble()


def test_error_of_a_partition_that_is_gone_is_dropped() -> None:
    """It is somebody else's now."""
    handler = FetchHandler()
    handler.hold(orders(0))
    deliveries = Deliveries(handler, member_id="m-1", signal=threading.Event())
    deliveries.deliver(trouble(BrokerError(ErrorCode.OFFSET_OUT_OF_RANGE), index=1))
    deliveries.drain()

    deliveries.raise_trouble()


def test_identity_is_known_at_once() -> None:
    """Without a poll."""
    deliveries = Deliveries(FetchHandler(), member_id="m-1", signal=threading.Event())
    assert deliveries.identity == Identity(member_id="m-1", epoch=-1, has_assignment=False)

    deliveries.deliver(Identity(member_id="m-1", epoch=4, has_assignment=True))

    assert deliveries.identity.epoch == 4


def test_data_of_an_old_reading_gives_its_memory_back() -> None:
    """Even if it arrives after the partition has gone."""
    handler = FetchHandler()
    deliveries = Deliveries(handler, member_id="m-1", signal=threading.Event())
    records = memoryview(batch(0, 2))
    deliveries.deliver(
        Chunk(
            partition=orders(0)[0],
            fence=Fence(1),
            offset=0,
            next_offset=2,
            records=records,
            size_bytes=len(records),
            aborted=(),
        )
    )
    deliveries.drain()

    assert sum(handler.released_bytes().values()) == len(records)


@pytest.mark.parametrize("with_progress", [True, False])
def test_stored_offsets_are_reported_in_place_of_positions(with_progress: bool) -> None:
    """enable.auto.offset.store off: what the application says is done, even if it ends by an exception."""
    side = Side(is_stored=True)
    side.ask(CallbackKind.ASSIGNED, 0, 1)
    side.read(0, 5)
    side.read(1, 5)
    side.progress.store({orders(0)[0]: 3})

    assert side.ask(CallbackKind.REVOKED, 0, 1, with_progress=with_progress).consumed == {orders(0)[0]: 3}


def test_what_the_revocation_callback_stores_is_reported() -> None:
    """It finishes what is under way."""
    side = Side(is_stored=True)
    side.ask(CallbackKind.ASSIGNED, 0)
    side.read(0, 5)
    side.progress.store({orders(0)[0]: 3})
    side.rebalancing.callbacks = Callbacks(on_revoked=lambda side, given: side.progress.store({given[0]: 5}))

    assert side.ask(CallbackKind.REVOKED, 0).consumed == {orders(0)[0]: 5}


def test_what_was_stored_of_a_partition_goes_with_it() -> None:
    """Whoever gets it back starts from what the group has committed, not from what he once stored."""
    side = Side(is_stored=True)
    side.ask(CallbackKind.ASSIGNED, 0)
    side.progress.store({orders(0)[0]: 3})
    side.ask(CallbackKind.REVOKED, 0)
    with pytest.raises(StateError, match="orders-0 is not assigned"):
        side.progress.store({orders(0)[0]: 4})
    side.ask(CallbackKind.ASSIGNED, 0)

    assert not side.progress.has_news
    assert side.progress.done() == {}
