"""The coordinator against a model of a transactional id: who may act, in which transaction, and what the markers say.

After each step the coordinator's invariants hold, and a restart gives the same state (`TransactionDialogue`).
"""

from __future__ import annotations

from dataclasses import dataclass, field

from hypothesis import given, settings
from hypothesis import strategies as st

from kohort.coordinator.commands import Refusal
from kohort.coordinator.transactions.commands import Partition
from kohort.coordinator.transactions.decision import SendMarkers
from support.depth import at_depth
from support.dialogues.transaction_dialogue import Answer, TransactionDialogue

IDS = ("a", "b")
TIMEOUT_MS = 1_000


@dataclass
class Model:
    """One transactional id. `epochs`: each id and epoch that was given out, in their order; the last one may act."""

    epochs: list[tuple[int, int]] = field(default_factory=list)
    partitions: set[Partition] = field(default_factory=set)
    #: The result of the latest transaction that was ended by its producer, and the epoch that ended it.
    ended: tuple[tuple[int, int], bool] | None = None
    #: Markers that the next orders must be: partitions and result.
    expected: list[tuple[frozenset[Partition], bool]] = field(default_factory=list)

    def end(self, *, is_commit: bool) -> None:
        if self.partitions:
            self.expected.append((frozenset(self.partitions), is_commit))
            self.partitions.clear()


class Pair:
    """The coordinator and its model, led through the same steps."""

    def __init__(self) -> None:
        self.tx = TransactionDialogue(concurrent_transactions_wait_ms=300)
        self.models = {name: Model() for name in IDS}
        self.seen: list[SendMarkers] = []

    def init(self, name: str) -> None:
        model = self.models[name]
        if self.tx.state(name).name == "ONGOING":
            model.end(is_commit=False)
        answer = self.answered(self.tx.init(name, timeout_ms=TIMEOUT_MS))
        given_out = answer.producer()
        assert given_out not in model.epochs, "an epoch is given to two"
        assert all(given_out not in other.epochs for other in self.models.values())
        model.epochs.append(given_out)
        model.ended = None

    def add(self, name: str, back: int, partition: int) -> None:
        """By the producer whose epoch is so far back."""
        model = self.models[name]
        if len(model.epochs) <= back:
            return
        answer = self.answered(self.tx.add(model.epochs[-1 - back], ("t", partition), transactional_id=name))
        if back:
            assert isinstance(answer.body, Refusal)
        elif not isinstance(answer.body, Refusal):
            model.partitions.add(("t", partition))

    def end(self, name: str, back: int, *, is_commit: bool) -> None:
        model = self.models[name]
        if len(model.epochs) <= back:
            return
        producer = model.epochs[-1 - back]
        was_open = self.tx.state(name).name == "ONGOING"
        answer = self.answered(self.tx.end(producer, commit=is_commit, transactional_id=name))
        is_again = model.ended == (producer, is_commit)
        if isinstance(answer.body, Refusal):
            # Only a fenced producer, another result, or a commit of nothing is refused.
            assert back or not was_open
            assert not is_again or was_open or self.tx.state(name).name == "EMPTY"
            return
        assert is_again or not back, "a fenced producer has ended a transaction"
        if is_again:
            assert answer.producer() == model.epochs[-1]
            return
        assert was_open or not is_commit
        model.end(is_commit=is_commit)
        model.ended = producer, is_commit
        model.epochs.append(answer.producer())

    def overdue(self) -> None:
        """Let every open transaction exceed its timeout."""
        for name, model in self.models.items():
            if self.tx.state(name).name == "ONGOING":
                # Its producer may still end it as an abort.
                model.end(is_commit=False)
                model.ended = model.epochs[-1], False
                model.epochs.append((self.tx.stored(name).producer_id, self.tx.stored(name).producer_epoch + 1))
        self.tx.advance(TIMEOUT_MS)

    def restart(self) -> None:
        self.tx.restart()
        self.write()

    def write(self) -> None:
        """Write all markers, and compare them."""
        self.seen += self.tx.write_markers()
        for name, model in self.models.items():
            told = [
                (frozenset(order.partitions), order.is_commit) for order in self.seen if order.transactional_id == name
            ]
            # A restart orders those again that are not known to be written.
            assert [
                each for index, each in enumerate(told) if index >= len(told) - len(model.expected)
            ] == model.expected
            model.expected.clear()
        self.seen.clear()

    def answered(self, answer: Answer) -> Answer:
        """Write markers, for which a request may wait, before its answer is looked at."""
        if answer.is_held:
            self.seen += self.tx.write_markers()
        assert not answer.is_held
        return answer


NAMES, BACK = st.sampled_from(IDS), st.sampled_from((0, 0, 0, 1, 2))
STEPS = st.one_of(
    st.tuples(st.just("init"), NAMES),
    st.tuples(st.just("add"), NAMES, BACK, st.integers(0, 2)),
    st.tuples(st.just("commit"), NAMES, BACK),
    st.tuples(st.just("abort"), NAMES, BACK),
    st.sampled_from([("write",), ("restart",), ("overdue",)]),
)


@settings(max_examples=at_depth(500, 20_000), deadline=None)
@given(steps=st.lists(STEPS, min_size=5, max_size=16))
def test_the_coordinator_does_as_its_model(steps: list[tuple[str, ...]]) -> None:
    pair = Pair()
    for step in steps:
        match step:
            case "init", name:
                pair.init(name)
            case "add", name, back, partition:
                pair.add(name, int(back), int(partition))
            case ("commit" | "abort") as how, name, back:
                pair.end(name, int(back), is_commit=how == "commit")
            case ("write",):
                pair.write()
            case ("restart",):
                pair.restart()
            case ("overdue",):
                pair.overdue()
    pair.write()
