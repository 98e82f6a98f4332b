"""Each kind of mistake that a coordinator of transactions and its shell may make, planted: a world finds it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from kohort.coordinator.transactions import shard, transitions
from kohort.coordinator.transactions.commands import AddPartitions, EndTransaction, InitProducer, MarkersWritten
from kohort.coordinator.transactions.decision import Decision, Hold, Reply
from kohort.coordinator.transactions.records import TransactionStored
from kohort.coordinator.transactions.shard import TransactionShard
from kohort.coordinator.transactions.states import ANSWERED, COMPLETION, TRANSITIONS, Event, TransactionState
from kohort.errors import InvariantViolation
from kohort.simulation.transactions.partition_log import SimulatedLog
from kohort.simulation.transactions.transaction_world import SimulatedBroker, TransactionPlan, TransactionWorld
from support.scenarios.finding_seeds import note_seed, seeds_to_play

#: So many worlds are played at most.
SEEDS = 200
Plant = Callable[[pytest.MonkeyPatch], None]
S, E = TransactionState, Event


def law_that_finds(plan: TransactionPlan | None = None) -> str:
    """The law that the first world that finds a bug is broken by."""
    for seed in seeds_to_play(SEEDS):
        try:
            TransactionWorld(seed, plan=plan).run()
        except InvariantViolation as broken:
            assert f"make seed WORLD=transactions SEED={seed}" in str(broken)
            note_seed(seed)
            return broken.law.partition(":")[0]
    return "none"


def wrap(monkeypatch: pytest.MonkeyPatch, owner: Any, name: str, change: Callable[..., Any]) -> None:
    """Replace a function by `change`, which gets the former one first."""
    former = getattr(owner, name)
    monkeypatch.setattr(owner, name, lambda *args, **more: change(former, *args, **more))


def markers_before_the_decision_is_durable(monkeypatch: pytest.MonkeyPatch) -> None:
    """A crash loses the decision, and the other partitions get the other marker."""

    def at_once(self: SimulatedBroker, action: Any) -> None:
        if getattr(action, "func", None) == self._write_markers:
            action()
        else:
            later(self, action)

    later = SimulatedBroker._when_durable
    monkeypatch.setattr(SimulatedBroker, "_when_durable", at_once)


def answers_before_they_are_durable(monkeypatch: pytest.MonkeyPatch) -> None:
    """A crash takes an epoch or a result back that a producer was told."""

    def at_once(self: SimulatedBroker, action: Any) -> None:
        if getattr(action, "func", None) == self._write_markers:
            later(self, action)
        else:
            action()

    later = SimulatedBroker._when_durable
    monkeypatch.setattr(SimulatedBroker, "_when_durable", at_once)


def no_markers_behind_a_restart(monkeypatch: pytest.MonkeyPatch) -> None:
    def load(former: Any, self: TransactionShard, now_ms: int) -> None:
        former(self, now_ms)
        self.take_markers()

    wrap(monkeypatch, TransactionShard, "on_loaded", load)


def no_deadlines_behind_a_restart(monkeypatch: pytest.MonkeyPatch) -> None:
    def load(former: Any, self: TransactionShard, now_ms: int) -> None:
        former(self, now_ms)
        for name in self.transactions:
            self.timers.disarm(shard.TimerKey(name))

    wrap(monkeypatch, TransactionShard, "on_loaded", load)


def complete_with_the_first_marker(monkeypatch: pytest.MonkeyPatch) -> None:
    def decide(former: Any, self: TransactionShard, command: MarkersWritten, *, now_ms: int) -> Decision:
        stored = self.transactions[command.transactional_id]
        return former(self, replace(command, partitions=stored.partitions), now_ms=now_ms)

    wrap(monkeypatch, TransactionShard, "_decide_written", decide)


def a_report_of_another_transaction_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    def decide(former: Any, self: TransactionShard, command: MarkersWritten, *, now_ms: int) -> Decision:
        stored = self.transactions[command.transactional_id]
        of = {"producer_id": stored.producer_id, "producer_epoch": stored.producer_epoch}
        number = self._numbers.get(command.transactional_id, 0)
        return former(self, replace(command, number=number, **of), now_ms=now_ms)

    wrap(monkeypatch, TransactionShard, "_decide_written", decide)


def partitions_replace_those_before(monkeypatch: pytest.MonkeyPatch) -> None:
    def decide(former: Any, transaction: Any, command: AddPartitions, *rest: Any, **more: Any) -> Decision:
        decision = former(transaction, command, *rest, **more)
        return replace(decision, records=tuple(_only(each, command) for each in decision.records))

    def _only(record: TransactionStored, command: AddPartitions) -> TransactionStored:
        return replace(record, partitions=tuple(sorted(set(command.partitions))))

    wrap(monkeypatch, transitions, "decide_add", decide)


def partitions_are_added_to_a_decided_transaction(monkeypatch: pytest.MonkeyPatch) -> None:
    """Instead of waiting for its end."""

    def decide(former: Any, transaction: Any, command: AddPartitions, *rest: Any, **more: Any) -> Decision:
        decision = former(transaction, command, *rest, **more)
        if not any(isinstance(effect, Hold) for effect in decision.effects):
            return decision
        reply = transitions.AddPartitionsReply(errors=(ANSWERED,))
        return Decision(effects=(Reply(command.request, reply),))

    wrap(monkeypatch, transitions, "decide_add", decide)


def batches_are_not_verified_when_they_are_appended(monkeypatch: pytest.MonkeyPatch) -> None:
    """The transaction ends between the verification and the append, and the batch begins one that never ends."""
    monkeypatch.setattr(SimulatedLog, "markers_of", lambda *_: 0)


def batches_are_never_verified(monkeypatch: pytest.MonkeyPatch) -> None:
    """As before KIP-890: a batch that was given up arrives behind the end of its transaction."""

    def produce(former: Any, self: SimulatedBroker, producer: Any, ask: Any, reply: Any) -> None:
        if producer.version < 2:
            self._append(self.logs[ask.partition], ask, reply, begins=True)
        else:
            former(self, producer, ask, reply)

    wrap(monkeypatch, SimulatedBroker, "_produce", produce)


def a_second_producer_gets_the_epoch_of_the_first(monkeypatch: pytest.MonkeyPatch) -> None:
    def init(former: Any, transaction: Any, command: InitProducer) -> Any:
        found = former(transaction, command)
        return None if found is None else replace(found, producer_epoch=transaction.producer_epoch)

    wrap(monkeypatch, transitions, "_next_producer", init)


def a_second_producer_does_not_wait_for_the_abort(monkeypatch: pytest.MonkeyPatch) -> None:
    def end(former: Any, transaction: Any, event: Event, command: Any, *rest: Any, **more: Any) -> Decision:
        decision = former(transaction, event, command, *rest, **more)
        if event is not E.INIT or not decision.records:
            return decision
        told = decision.records[-1]
        reply = transitions.InitProducerReply(producer_id=told.producer_id, producer_epoch=told.producer_epoch)
        return replace(decision, effects=(Reply(command.request, reply),))

    wrap(monkeypatch, transitions, "_end", end)


def an_end_without_a_new_epoch(monkeypatch: pytest.MonkeyPatch) -> None:
    """A batch of the transaction that was given up arrives in the next one, or after it."""

    def end(former: Any, transaction: Any, event: Event, command: Any, version: int, **more: Any) -> Decision:
        decision = former(transaction, event, command, version, **more)
        kept = tuple(replace(each, producer_epoch=transaction.producer_epoch) for each in decision.records)
        effects = tuple(_same(effect, transaction) for effect in decision.effects)
        return replace(decision, records=kept, effects=effects)

    def _same(effect: Any, transaction: TransactionStored) -> Any:
        if not isinstance(effect, Reply):
            return effect
        return replace(effect, body=replace(effect.body, producer_epoch=transaction.producer_epoch))

    wrap(monkeypatch, transitions, "_end", end)


def a_repeated_end_ends_the_next_transaction(monkeypatch: pytest.MonkeyPatch) -> None:
    """The epoch is not looked at."""

    def decide(former: Any, transaction: Any, command: EndTransaction, *rest: Any, **more: Any) -> Decision:
        of = {"producer_id": transaction.producer_id, "producer_epoch": transaction.producer_epoch}
        return former(transaction, replace(command, **of) if transaction else command, *rest, **more)

    wrap(monkeypatch, transitions, "decide_end", decide)


def a_commit_of_an_aborted_transaction_is_answered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(TRANSITIONS, (S.COMPLETE_ABORT, E.COMMIT_AGAIN), ANSWERED)


def an_overdue_transaction_is_committed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(TRANSITIONS, (S.ONGOING, E.TIMEOUT), S.PREPARE_COMMIT)


def a_decided_commit_is_completed_as_an_abort(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(COMPLETION, S.PREPARE_COMMIT, S.COMPLETE_ABORT)


def requests_that_wait_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    def commit(former: Any, self: TransactionShard, decision: Decision, *, now_ms: int) -> Any:
        replies = former(self, decision, now_ms=now_ms)
        self._ready.clear()
        return replies

    wrap(monkeypatch, TransactionShard, "commit", commit)


def a_new_producer_id_is_that_of_another(monkeypatch: pytest.MonkeyPatch) -> None:
    def give(former: Any, self: SimulatedBroker, needed: Any) -> None:
        self._next_id = min(self._next_id, 100)
        former(self, needed)

    wrap(monkeypatch, SimulatedBroker, "_give_id", give)


def the_producer_id_stays_behind_its_last_epoch(monkeypatch: pytest.MonkeyPatch) -> None:
    def build(former: Any, transaction: TransactionStored, now_ms: int) -> TransactionStored:
        return replace(former(transaction, now_ms), producer_id=transaction.producer_id)

    wrap(monkeypatch, transitions, "build_completed", build)


def a_late_marker_ends_the_next_transaction(monkeypatch: pytest.MonkeyPatch) -> None:
    """The log does not ask for a higher epoch."""

    def mark(former: Any, self: SimulatedLog, entry: Any, *, is_bumped: bool, now_ms: int) -> None:
        former(self, entry, is_bumped=False, now_ms=now_ms)

    wrap(monkeypatch, SimulatedLog, "mark", mark)


def a_marker_is_readable_before_it_is_durable(monkeypatch: pytest.MonkeyPatch) -> None:
    """A crash takes it back, and the last stable offset with it."""

    def note(former: Any, self: SimulatedLog, *rest: Any) -> None:
        former(self, *rest)
        self._ending.clear()
        self.durable = len(self.entries)
        self.stable_offset()

    def crash(former: Any, self: SimulatedLog, kept: int, now_ms: int) -> None:
        self.durable = 0
        former(self, kept, now_ms)

    wrap(monkeypatch, SimulatedLog, "_note", note)
    wrap(monkeypatch, SimulatedLog, "crash", crash)


#: Producers of the flow before KIP-890 part 2, late requests, and a slow disk of the coordinator.
OLDER = TransactionPlan(
    partitions=1,
    transactional_ids=3,
    producers=3,
    transactions=8,
    timeout_ms=500,
    perturbed_ms=4_000,
    rate_ms=900,
    weights={"kill_producer": 1},
    lost=0.1,
    late=0.2,
    late_ms=4_000,
    older=1.0,
    sync_ms=60,
    remote_ms=200,
    marker_ms=200,
    is_worn=False,
)
#: Bug -> the plan of the worlds that find it, where they are not drawn.
PLANS: dict[Plant, TransactionPlan] = {
    batches_are_never_verified: OLDER,
    a_report_of_another_transaction_counts: replace(
        OLDER, partitions=4, timeout_ms=500, lost=0.0, late=0.0, remote_ms=0
    ),
    batches_are_not_verified_when_they_are_appended: replace(
        OLDER, timeout_ms=2_000, late_ms=600, remote_ms=1_000, marker_ms=10
    ),
}
#: Bug -> the laws of which one finds it.
BUGS: dict[Plant, set[str]] = {
    markers_before_the_decision_is_durable: {"NothingUndecided"},
    answers_before_they_are_durable: {"OneHolder", "AllOrNothing", "EndsInTime"},
    no_markers_behind_a_restart: {"NothingIsLeft", "EndsInTime"},
    no_deadlines_behind_a_restart: {"EveryTransactionEnds"},
    complete_with_the_first_marker: {"NothingIsLeft", "EndsInTime", "AllOrNothing"},
    a_report_of_another_transaction_counts: {"NothingIsLeft", "EndsInTime", "AllOrNothing", "LegalTransition"},
    partitions_replace_those_before: {"NothingIsLeft", "EndsInTime", "AllOrNothing"},
    partitions_are_added_to_a_decided_transaction: {"NothingIsLeft", "EndsInTime", "AllOrNothing"},
    batches_are_not_verified_when_they_are_appended: {"NothingIsLeft", "EndsInTime", "AllOrNothing"},
    batches_are_never_verified: {"NothingIsLeft", "EndsInTime", "AllOrNothing"},
    a_second_producer_gets_the_epoch_of_the_first: {"EpochIsMonotonic", "OneHolder"},
    a_second_producer_does_not_wait_for_the_abort: {"OneHolder"},
    an_end_without_a_new_epoch: {"NothingIsLeft", "EndsInTime", "AllOrNothing", "OneHolder"},
    a_repeated_end_ends_the_next_transaction: {"AllOrNothing", "OneHolder"},
    a_commit_of_an_aborted_transaction_is_answered: {"AllOrNothing"},
    an_overdue_transaction_is_committed: {"AllOrNothing"},
    a_decided_commit_is_completed_as_an_abort: {"LegalTransition"},
    requests_that_wait_are_forgotten: {"NoRequestIsForgotten"},
    a_new_producer_id_is_that_of_another: {"NoTwoHolders", "EpochIsMonotonic", "OneHolder"},
    the_producer_id_stays_behind_its_last_epoch: {"EpochIsMonotonic"},
    a_late_marker_ends_the_next_transaction: {"NothingIsLeft", "AllOrNothing", "NothingUndecided"},
    a_marker_is_readable_before_it_is_durable: {"StableOffset"},
}


@pytest.mark.parametrize("bug", BUGS, ids=lambda bug: bug.__name__)
def test_a_planted_bug_is_found(monkeypatch: pytest.MonkeyPatch, bug: Plant) -> None:
    bug(monkeypatch)
    assert law_that_finds(PLANS.get(bug)) in BUGS[bug]
