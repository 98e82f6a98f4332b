"""Dialogues with a query's membership: what the group says, what Spark says, what is told to the group in between."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from kohort import TopicPartition
from kohort.errors import InvariantViolation
from kohort.spark.checkpoint import BatchState
from kohort.spark.member.core import ASSIGNED, ENDING, OPEN, TRANSITIONS, Membership, State, Step
from kohort.spark.member.lineage import Holder, Ledger, Place
from kohort.spark.member.requests import (
    Choose,
    Commit,
    Existing,
    Fetch,
    LeaveNotes,
    Names,
    NoAssignment,
    Plan,
    ReadNotes,
    Request,
    Steps,
    Wait,
)
from kohort.spark.offsets import QueryOffset, Span, from_json

ONE, TWO = TopicPartition("orders", 0), TopicPartition("orders", 1)


def ledger(offset: int, *, planned: int | None = None, count: int) -> Ledger:
    """Of a partition that the query has held from the beginning."""
    return Ledger(offset=offset, chain=(Holder("q", 0),), planned=planned, count=count)


class Dialogue:
    """A query `q`, its group's memory, and logs that end at `end`."""

    def __init__(self, *, waits: bool = True) -> None:
        self.member = Membership("q", waits=waits, join_patience_ms=5_000, doubt_patience_ms=60_000)
        self.ledgers: dict[TopicPartition, Ledger] = {}
        self.notes: dict[str, dict[TopicPartition, Ledger]] = {}
        self.names = {"q"}
        self.end = 10
        self.now_ms = 0
        self.is_fenced = False
        self.said: list[Request] = []

    def run(self, steps: Steps[Any], *, until: type | None = None) -> Any:
        """Answer requests; stop in front of the answer to one of the type `until`."""
        answer: Any = None
        try:
            while True:
                request = steps.send(answer)
                self.said.append(request)
                if until is not None and isinstance(request, until):
                    return None
                answer = self.answer(request)
        except StopIteration as end:
            return end.value

    def answer(self, request: Request) -> object:
        match request:
            case Fetch(partitions=partitions):
                return {each: self.ledgers[each] for each in partitions if each in self.ledgers}
            case Commit(ledgers=ledgers):
                if not self.is_fenced:
                    self.ledgers.update(ledgers)
                return not self.is_fenced
            case LeaveNotes(ledgers=ledgers):
                self.notes.setdefault("q", {}).update(ledgers)
                return True
            case ReadNotes(name=name, partitions=partitions):
                return {each: note for each, note in self.notes.get(name, {}).items() if each in partitions}
            case Names():
                return self.names
            case Existing():
                return [ONE, TWO]
            case Choose(places=places):
                return {
                    each: Span(
                        0 if place is None else place.start, self.end if place is None else place.stop or self.end
                    )
                    for each, place in places.items()
                }
            case Wait():
                self.now_ms += 200
                return self.now_ms

    def plan(self, start: QueryOffset | None = None) -> Plan:
        plan: Plan = self.run(self.member.plan(start or QueryOffset(spans={}), self.now_ms))
        return plan

    def told(self) -> Sequence[Request]:
        """What was asked since the last time, without questions."""
        said, self.said = self.said, []
        return [each for each in said if isinstance(each, Commit | LeaveNotes)]


@pytest.fixture
def query() -> Dialogue:
    return Dialogue()


def offset(plan: Plan) -> QueryOffset:
    """What Spark passes when the batch is finished."""
    since = {each: holder.since for each, holder in plan.taken.items()}
    return QueryOffset(spans={**plan.others, **plan.spans}, name="q", since=since)


def test_topic_made_anew_is_remembered_until_it_is_read(query: Dialogue) -> None:
    """The group gives its partition some batches later: what the checkpoint says until then is of the old one."""
    paid = TopicPartition("paid", 0)
    query.member.on_assigned([ONE, paid])
    start = offset(query.plan())
    query.member.on_given_up([paid])
    del query.ledgers[paid]
    query.end = 20
    for _ in range(2):
        plan = query.run(query.member.plan(start, query.now_ms, renewed={"paid"}))
        text = plan.offset("", start, name="q", topic_ids={"paid": "new", "orders": "o"}, renewed={"paid": "old"})
        start = from_json(text)
        assert (start.spans[paid], start.topic_ids) == (Span(10, 10), {"paid": "old", "orders": "o"})
        query.end += 10

    query.member.on_assigned([paid])
    query.run(query.member.plan(start, query.now_ms, renewed={"paid"}))

    (places,) = [each.places for each in query.said[-3:] if isinstance(each, Choose)]
    assert places[paid] == Place(10, None, (Holder("q", 0),), 0)


def test_one_commit_says_how_far_and_what_next(query: Dialogue) -> None:
    """P3: no request more than it takes."""
    query.member.on_assigned([ONE])
    first = query.plan()
    assert first.spans == {ONE: Span(0, 10)}
    assert query.told() == [Commit({ONE: ledger(0, planned=10, count=1)})]
    assert query.member.state is State.PLANNED

    query.end = 15
    query.plan(offset(first))

    assert query.told() == [Commit({ONE: ledger(10, planned=15, count=2)})]


def test_nothing_new_is_told_once(query: Dialogue) -> None:
    """An idle query says nothing to its group."""
    query.member.on_assigned([ONE])
    done = offset(query.plan())
    query.plan(done)
    assert query.told()[1:] == [Commit({ONE: ledger(10, count=1)})]
    assert query.member.state is State.OWNING
    query.plan(done)
    assert query.told() == []


def test_a_partition_stays_until_its_batch_is_told(query: Dialogue) -> None:
    """P4: what is wanted back goes behind the commit of the batch that reads it."""
    query.member.on_assigned([ONE, TWO])
    done = offset(query.plan())
    query.told()
    query.member.on_wanted_back([TWO])
    assert query.member.state is State.GIVING_UP
    assert not query.member.may_give_up([TWO])

    steps = query.member.plan(done, query.now_ms)
    query.run(steps, until=Commit)
    assert not query.member.may_give_up([TWO])
    assert query.told() == [Commit({TWO: ledger(10, count=1)})]
    with pytest.raises(StopIteration) as ended:
        answer: Any = True
        while True:
            request = steps.send(answer)
            answer = query.answer(request)

    assert query.member.may_give_up([TWO])
    assert set(ended.value.value.spans) == {ONE}


def test_a_commit_that_is_refused_plans_nothing(query: Dialogue) -> None:
    """Fenced between the plan and the commit: the plan begins again when the group has taken us in."""
    query.member.on_assigned([ONE])
    query.is_fenced = True
    steps = query.member.plan(QueryOffset(spans={}), 0)
    query.run(steps, until=Wait)
    query.member.on_lost([ONE])
    assert query.member.state is State.JOINING
    query.is_fenced = False
    query.member.on_assigned([TWO])
    with pytest.raises(StopIteration) as ended:
        answer: Any = query.now_ms
        while True:
            answer = query.answer(steps.send(answer))
    assert set(ended.value.value.spans) == {TWO}


def test_a_batch_of_others_is_waited_for_while_they_are_there(query: Dialogue) -> None:
    """In doubt: its query is in the group, or away for a while."""
    query.ledgers[ONE] = Ledger(offset=0, chain=(Holder("other", 0),), planned=8)
    query.names.add("other")
    query.member.on_assigned([ONE])
    assert query.plan().spans == {}

    query.names.discard("other")

    assert query.plan().spans == {ONE: Span(0, 10)}
    assert query.member.notes == [
        "offsets 0 to 7 of orders-0 may be read twice: other has planned them and did not come back"
    ]


def test_each_batch_of_others_is_waited_for_as_long(query: Dialogue) -> None:
    """Their first one is finished; the patience with the next one begins with that."""
    query.names.add("other")
    query.member.on_assigned([ONE])
    query.ledgers[ONE] = Ledger(offset=0, chain=(Holder("other", 0),), planned=8, count=1)
    assert query.plan().spans == {}
    query.now_ms += 50_000
    query.notes["other"] = {ONE: Ledger(offset=8, chain=(Holder("other", 0),), count=1)}
    done = offset(query.plan())
    query.member.on_wanted_back([ONE])
    query.plan(done)
    query.member.on_given_up([ONE])
    query.member.on_assigned([ONE])
    query.ledgers[ONE] = Ledger(offset=10, chain=(Holder("other", 0),), planned=12, count=2)
    query.end = 12
    query.now_ms += 50_000
    assert query.plan(done).spans == {}
    assert "may be read twice" not in "".join(query.member.notes)


def test_a_batch_of_others_that_they_have_noted_is_theirs(query: Dialogue) -> None:
    """They came back and finished it, and could not commit what we hold."""
    query.ledgers[ONE] = Ledger(offset=0, chain=(Holder("other", 0),), planned=8)
    query.notes["other"] = {ONE: Ledger(offset=8, chain=(Holder("other", 0),))}
    query.names.add("other")
    query.member.on_assigned([ONE])
    assert query.plan().spans == {ONE: Span(8, 10)}
    assert query.member.notes == []


def test_a_note_about_another_plan_says_nothing(query: Dialogue) -> None:
    """It was written before the batch that is open now was planned."""
    query.ledgers[ONE] = Ledger(offset=4, chain=(Holder("other", 0),), planned=8, count=3)
    query.notes["other"] = {ONE: Ledger(offset=4, chain=(Holder("other", 0),), count=2)}
    query.names.add("other")
    query.member.on_assigned([ONE])
    assert query.plan().spans == {}


def test_a_query_that_does_not_wait_takes_what_it_is_given() -> None:
    """`inDoubt=release`: at least once, with a line."""
    query = Dialogue(waits=False)
    query.ledgers[ONE] = Ledger(offset=0, chain=(Holder("other", 0),), planned=8)
    query.names.add("other")
    query.member.on_assigned([ONE])
    assert query.plan().spans == {ONE: Span(0, 10)}
    assert len(query.member.notes) == 1


def test_a_batch_that_is_finished_when_its_partition_is_gone_is_noted(query: Dialogue) -> None:
    """Fenced while it ran; whoever has the partition now is told."""
    query.member.on_assigned([ONE])
    done = offset(query.plan())
    query.member.on_lost([ONE])
    assert query.member.state is State.FENCED
    query.member.on_assigned([TWO])
    assert query.member.state is State.PLANNED
    query.plan(done)
    assert query.notes == {"q": {ONE: ledger(10, count=1)}}


def test_an_earlier_run_s_batch_is_in_doubt_before_the_group_has_spoken(query: Dialogue) -> None:
    """Who is ended then leaves as one that comes back."""
    end = QueryOffset(spans={ONE: Span(0, 10)}, name="q", since={ONE: 0})
    steps = query.member.resume(QueryOffset(spans={}), end, 0)
    query.run(steps, until=Wait)
    assert query.member.state is State.IN_DOUBT
    query.member.on_ending()
    assert query.member.state is State.AWAY


def test_batch_that_its_sink_has_committed_is_not_taken_back() -> None:
    """The query dies twice between the transaction and the commit log; others begin behind the batch all the time."""
    committed = ledger(10, planned=10, count=1)
    end = QueryOffset(spans={ONE: Span(0, 10)}, name="q", since={ONE: 0})
    for _ in range(2):
        query = Dialogue()
        query.ledgers[ONE] = committed
        query.member.on_assigned([ONE])
        assert query.run(query.member.resume(QueryOffset(spans={}), end, 0)) == {ONE: Span(0, 10)}
        assert query.told() == []
        assert query.member.claimed() == {ONE: (0, 10, 0, 0)}
    assert query.run(query.member.finish_open()) is True
    assert query.told() == [Commit({ONE: ledger(10, count=1)})]


def test_batch_of_an_older_copy_is_taken_back() -> None:
    """The group has later batches of the query, or has not committed this one."""
    end = QueryOffset(spans={ONE: Span(0, 10)}, name="q", since={ONE: 0})
    for found in (ledger(20, planned=20, count=2), ledger(10, count=1)):
        query = Dialogue()
        query.ledgers[ONE] = found
        query.member.on_assigned([ONE])
        query.run(query.member.resume(QueryOffset(spans={}), end, 0))
        assert query.told() == [Commit({ONE: ledger(0, planned=10, count=found.count)})]


def test_what_is_known_to_be_finished_is_told_at_once(query: Dialogue) -> None:
    """By the driver, or by Spark's checkpoint: then the end is clean."""
    query.member.on_assigned([ONE])
    query.plan()
    query.told()
    assert query.run(query.member.finish_open()) is True
    assert query.told() == [Commit({ONE: ledger(10, count=1)})]
    query.member.on_ending()
    assert query.member.state is State.LEAVING


def test_a_plan_that_spark_never_wrote_down_is_taken_back(query: Dialogue) -> None:
    """Nobody will repeat it."""
    query.member.on_assigned([ONE])
    query.plan()
    query.told()
    assert query.run(query.member.take_back()) is True
    assert query.told() == [Commit({ONE: ledger(0, count=1)})]
    assert not query.member.is_open


def test_a_plan_waits_for_an_assignment_and_not_for_ever(query: Dialogue) -> None:
    """`groupJoinTimeout`; an empty assignment is one, but not for a run that has an end."""
    with pytest.raises(NoAssignment) as none:
        query.plan()
    assert not none.value.is_joined
    query.member.on_assigned([])
    assert query.plan().spans == {}
    query.member.is_bounded = True
    with pytest.raises(NoAssignment) as empty:
        query.run(query.member.plan(QueryOffset(spans={}), query.now_ms))
    assert empty.value.is_joined


@pytest.mark.parametrize("state", State, ids=lambda state: state.value)
@pytest.mark.parametrize("step", Step, ids=lambda step: step.value)
def test_only_what_stands_in_the_table_can_happen(query: Dialogue, state: State, step: Step) -> None:
    """Anything else is a bug, and says so."""
    query.member.state = state
    if (state, step) in TRANSITIONS:
        query.member._move(step)
        assert query.member.state is TRANSITIONS[state, step]
        return
    with pytest.raises(InvariantViolation, match=f"a query that is {state.value} cannot take the step {step.value}"):
        query.member._move(step)


def test_every_state_is_reached_and_ends() -> None:
    """From joining, and to the end."""
    reached = {State.JOINING}
    while grown := {new for (state, _), new in TRANSITIONS.items() if state in reached} - reached:
        reached |= grown
    assert reached == set(State)
    ends = {State.LEFT}
    while grown := {state for (state, _), new in TRANSITIONS.items() if new in ends} - ends:
        ends |= grown
    assert ends == set(State)
    assert not ASSIGNED & ENDING
    assert {State.AWAY} == OPEN & ENDING


def test_an_order_that_spark_has_not_written_down_is_followed_by_the_next_run(query: Dialogue) -> None:
    """To where the query had begun: its checkpoint alone cannot tell this from what it has read already."""
    read = QueryOffset(spans={ONE: Span(0, 10)}, name="q", since={ONE: 0})
    query.ledgers = {ONE: Ledger(offset=0)}
    query.member.on_assigned([ONE])
    assert query.plan(read).spans == {ONE: Span(0, 10)}
    query.run(query.member.part(BatchState.UNWRITTEN))
    again = Dialogue()
    again.ledgers = query.ledgers
    again.member.on_assigned([ONE])
    plan = again.plan(read)
    assert plan.spans == {ONE: Span(0, 10)}
    assert plan.taken == {ONE: Holder("q", 0, 1)}
