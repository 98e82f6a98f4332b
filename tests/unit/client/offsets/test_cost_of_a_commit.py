"""What a commit costs the background of a settled member, counted in calls: only the parts that it concerns work."""

from __future__ import annotations

import re

import pytest

from kohort.client.consumer.application_events import CommitAsked
from kohort.client.consumer.core.consumer_machine import ConsumerMachine
from kohort.ids import TopicPartition
from support.dialogues.consumer_dialogue import ConsumerDialogue
from support.work import calls_of

#: Functions that run because time may have passed, as `tools/house.py` knows them.
TICKS = re.compile(r"(^|_)(ticks?|deadlines?|rearm)(_|$)")


def settled() -> ConsumerDialogue:
    """A member whose first commit is over and whose heartbeat is held by its coordinator."""
    member = ConsumerDialogue()
    member.stable(0)
    ask(member)
    member.accept_commit()
    member.settle()
    return member


def ask(member: ConsumerDialogue) -> None:
    event = CommitAsked(offsets={TopicPartition("orders", 0): 3}, ticket="t", deadline_ms=member.now_ms + 30_000)
    member.take(event)


@pytest.mark.parametrize(("step", "limit"), [("asked", 25), ("answered", 22)])
def test_commit_wakes_only_the_parts_that_it_concerns(step: str, limit: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """The machine's part of the row "commit_calls" of `tools/house.py`, which counts a whole client."""
    member, counts, ticks = settled(), [], []
    handle = ConsumerMachine.handle

    def counted(machine: ConsumerMachine, event: object, now_ms: int) -> object:
        result: list[object] = []
        names = calls_of(lambda: result.append(handle(machine, event, now_ms)))  # type: ignore[arg-type]
        counts.append(len(names))
        ticks.append(sum(TICKS.search(name) is not None for name in names))
        return result[0]

    if step == "answered":
        ask(member)
    monkeypatch.setattr(ConsumerMachine, "handle", counted)
    if step == "asked":
        ask(member)
    else:
        member.accept_commit()
    assert 0 < counts[0] <= limit, counts
    assert ticks[0] <= 2, ticks
