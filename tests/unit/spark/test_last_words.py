"""What a query says to its group when it ends, step by step; no broker takes part."""

from __future__ import annotations

from kohort import TopicPartition
from kohort.spark.checkpoint import BatchState
from kohort.spark.member.core import Membership
from kohort.spark.member.lineage import Holder, Ledger
from kohort.spark.member.requests import Existing, Fetch, LeaveNotes, Wait
from kohort.spark.offsets import QueryOffset, Span

PARTITION = TopicPartition("orders", 0)


def test_a_run_that_ends_before_its_first_plan_says_what_the_one_before_it_has_finished() -> None:
    """Stopped between two triggers, started and stopped again: nobody may take its batch for one in doubt."""
    core = Membership("kohort-1", waits=True, join_patience_ms=1_000, doubt_patience_ms=1_000)
    finished = QueryOffset(spans={PARTITION: Span(0, 50)}, name="kohort-1", since={PARTITION: 0})
    plan = core.plan(finished, 0)
    assert isinstance(next(plan), Wait)
    core.on_assigned([])
    plan.close()

    planned = Ledger(offset=0, chain=(Holder("kohort-1", 0),), planned=50, count=1)
    part = core.part(BatchState.UNKNOWN)
    assert isinstance(next(part), Existing)
    assert part.send([PARTITION]) == Fetch((PARTITION,))
    assert part.send({PARTITION: planned}) == Fetch((PARTITION,))
    settled = Ledger(offset=50, chain=planned.chain, count=1)
    assert part.send({PARTITION: planned}) == LeaveNotes({PARTITION: settled})
    try:
        part.send(True)
    except StopIteration as end:
        assert end.value is True
    else:
        raise AssertionError("it has more to say")
