"""Each state and each event: what the table says happens, and nothing else happens."""

from __future__ import annotations

import pytest

from kohort.coordinator.transactions.commands import Partition
from kohort.coordinator.transactions.invariants import LEGAL
from kohort.coordinator.transactions.states import (
    ANSWERED,
    HELD,
    TRANSITIONS,
    Event,
    TransactionState,
)
from kohort.errors import ErrorCode
from support.dialogues.transaction_dialogue import Answer, TransactionDialogue

S, E = TransactionState, Event
#: Apache Kafka's `TransactionState.validPreviousStates`, without PrepareEpochFence, in which nothing is ever stored.
KAFKAS = {
    S.EMPTY: {S.EMPTY, S.COMPLETE_COMMIT, S.COMPLETE_ABORT},
    S.ONGOING: {S.ONGOING, S.EMPTY, S.COMPLETE_COMMIT, S.COMPLETE_ABORT},
    S.PREPARE_COMMIT: {S.ONGOING},
    S.PREPARE_ABORT: {S.ONGOING, S.EMPTY, S.COMPLETE_COMMIT, S.COMPLETE_ABORT},
    S.COMPLETE_COMMIT: {S.PREPARE_COMMIT},
    S.COMPLETE_ABORT: {S.PREPARE_ABORT},
    S.DEAD: {S.EMPTY, S.COMPLETE_ABORT, S.COMPLETE_COMMIT},
}


def bring_to(tx: TransactionDialogue, state: TransactionState) -> tuple[int, int]:
    """Lead "tx" into a state; returns the producer's id and epoch as the producer knows them."""
    if state is S.DEAD:
        return 1, 0
    producer = tx.init().producer()
    if state is S.EMPTY:
        return producer
    tx.add(producer)
    if state is S.ONGOING:
        return producer
    after = tx.end(producer, commit=state in (S.PREPARE_COMMIT, S.COMPLETE_COMMIT)).producer()
    if state in (S.COMPLETE_COMMIT, S.COMPLETE_ABORT):
        tx.write_markers()
    return after


def play(tx: TransactionDialogue, event: Event, producer: tuple[int, int]) -> Answer | None:
    """Let an event happen to "tx"; `None` if it is no request."""
    former = producer[0], producer[1] - 1
    match event:
        case E.INIT:
            return tx.init()
        case E.ADD:
            return tx.add(producer, ("u", 0))
        case E.COMMIT | E.ABORT:
            return tx.end(producer, commit=event is E.COMMIT)
        case E.COMMIT_AGAIN | E.ABORT_AGAIN if tx.state() is S.EMPTY:
            # Only a producer of the older flow asks for that.
            return tx.end(producer, commit=event is E.COMMIT_AGAIN, version=0)
        case E.COMMIT_AGAIN | E.ABORT_AGAIN:
            return tx.end(former, commit=event is E.COMMIT_AGAIN)
        case E.MARKED:
            tx.write_markers()
        case E.TIMEOUT:
            tx.advance(60_000)
        case E.EXPIRATION:
            tx.advance(tx.settings.transactional_id_expiration_ms)
    return None


@pytest.mark.parametrize(("state", "event"), TRANSITIONS, ids=lambda each: each.name)
def test_what_happens_is_in_the_table(tx: TransactionDialogue, state: TransactionState, event: Event) -> None:
    outcome, producer = TRANSITIONS[state, event], bring_to(tx, state)
    assert tx.state() is state
    written = len(tx.log)

    answer = play(tx, event, producer)

    if isinstance(outcome, TransactionState):
        # An abort without partitions is complete at once.
        is_at_once = outcome is S.PREPARE_ABORT and state is not S.ONGOING
        assert tx.state() is (S.COMPLETE_ABORT if is_at_once else outcome)
        assert len(tx.log) == written + 1
        assert answer is None or answer.is_held == (event is E.INIT and state is S.ONGOING)
        return
    assert answer is not None
    assert (tx.state(), len(tx.log)) == (state, written)
    if outcome is HELD:
        is_certain = (state, event) in {(S.PREPARE_COMMIT, E.ABORT_AGAIN), (S.PREPARE_ABORT, E.COMMIT_AGAIN)}
        assert answer.is_held or answer.refused() is ErrorCode.INVALID_TXN_STATE
        assert answer.is_held != (is_certain or event is E.COMMIT)
    elif outcome is ANSWERED:
        assert answer.producer() == producer
    else:
        assert answer.refused() is outcome


@pytest.mark.parametrize("state", [S.PREPARE_COMMIT, S.PREPARE_ABORT, S.ONGOING])
def test_what_is_not_in_the_table_does_not_happen(tx: TransactionDialogue, state: TransactionState) -> None:
    """A transaction in work keeps its id from expiring, and a decided one has no timeout any more."""
    tx = TransactionDialogue(transactional_id_expiration_ms=1_000)
    bring_to(tx, state)
    tx.advance(59_999)
    assert tx.state() is state


def test_the_table_is_as_apache_kafkas() -> None:
    assert {(before, after) for after, befores in KAFKAS.items() for before in befores} | {(S.DEAD, S.EMPTY)} == LEGAL


def test_partitions_gather_and_are_marked_one_after_the_other(tx: TransactionDialogue) -> None:
    a: Partition = ("a", 0)
    b: Partition = ("b", 1)
    producer = tx.begun(b)
    tx.add(producer, a)
    tx.add(producer, a, b)
    assert len(tx.log) == 3, "known partitions are not written again"
    tx.end(producer)
    (order,) = tx.markers
    assert order.partitions == (a, b)
    assert (order.producer_epoch, order.coordinator_epoch, order.is_commit, order.version) == (1, 7, True, 2)

    tx.write_markers(b)
    tx.report(order, [b])
    assert tx.state() is S.PREPARE_COMMIT
    tx.report(order, [a])
    assert tx.state() is S.COMPLETE_COMMIT
    written = len(tx.log)
    tx.report(order)
    assert len(tx.log) == written


def test_a_report_of_an_earlier_transaction_ends_no_later_one(tx: TransactionDialogue) -> None:
    producer = tx.end(tx.begun()).producer()
    (first,) = tx.write_markers()
    tx.add(producer)
    tx.end(producer)

    tx.report(first)

    assert tx.state() is S.PREPARE_COMMIT
    tx.write_markers()
    assert tx.state() is S.COMPLETE_COMMIT


def test_a_decided_transaction_goes_on_behind_a_restart(tx: TransactionDialogue) -> None:
    """A marker is written again where that is not known; Apache Kafka's loader does so too."""
    producer = tx.begun(("a", 0), ("b", 0))
    tx.end(producer, commit=False)
    tx.write_markers(("a", 0))

    tx.restart(is_down_ms=10**9)

    (order,) = tx.markers
    assert order.partitions == (("a", 0), ("b", 0))
    assert not order.is_commit
    tx.write_markers()
    assert tx.state() is S.COMPLETE_ABORT


def test_an_open_transaction_keeps_its_timeout_behind_a_restart(tx: TransactionDialogue) -> None:
    tx.begun()
    tx.restart(is_down_ms=59_999)
    assert tx.state() is S.ONGOING
    tx.advance(1)
    assert tx.state() is S.PREPARE_ABORT


def test_a_clock_that_was_set_back_during_a_restart_prolongs_no_transaction(tx: TransactionDialogue) -> None:
    tx.begun()
    tx.restart(is_down_ms=-500_000)
    tx.advance(60_000)
    assert tx.state() is S.PREPARE_ABORT


def test_a_step_of_the_clock_moves_the_deadline_along(tx: TransactionDialogue) -> None:
    producer = tx.begun()
    tx.now_ms += 3_600_000
    tx.shard.follow_clock(3_600_000)
    tx.settle()
    tx.add(producer, ("u", 0))
    assert tx.state() is S.ONGOING
    tx.shard.shift(500)
    tx.advance(60_499)
    assert tx.state() is S.ONGOING
    tx.advance(1)
    assert tx.state() is S.PREPARE_ABORT


def test_what_could_not_be_written_did_not_happen(tx: TransactionDialogue) -> None:
    """A full disk: the deadline is tried again, and heals by itself."""
    tx.begun()
    tx.is_disk_full = True
    tx.advance(60_000)
    assert tx.state() is S.ONGOING
    tx.is_disk_full = False
    tx.advance(tx.settings.retry_ms)
    assert tx.state() is S.PREPARE_ABORT
