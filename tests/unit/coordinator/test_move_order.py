"""Which of the moves that wait begins next: by name, by lag or by size (H4)."""

from __future__ import annotations

import pytest

from kohort.coordinator.commands import LogExtent
from kohort.coordinator.consumer.reconciliation.move_throttle import WEIGHED_FOR_MS, moves_key
from kohort.errors import ErrorCode
from support.dialogues.coordinator_dialogue import GroupDialogue
from support.dialogues.moves import submit

ORDER = "group.moves.order"


def fill(group: GroupDialogue, ends: dict[int, int], *, start: int = 0) -> None:
    """Records in partitions of "t", whose sizes are the other way round."""
    group.extents = {(group.topic_id("t"), number): LogExtent(start, end, 1_000 - end) for number, end in ends.items()}


@pytest.fixture
def paced() -> GroupDialogue:
    """One move a second; a has four partitions, and b, who has just come, is to have them all."""
    group = GroupDialogue({"t": 4}, group_moves_per_second=1.0)
    group.heartbeat("a", epoch=0)
    group.settle()
    group.heartbeat("b", epoch=0)
    submit(group, dict.fromkeys(range(4), "b"))
    return group


def begun(group: GroupDialogue, count: int = 4) -> list[int]:
    """The next that b gets, in the order in which it gets them."""
    seen: list[int] = []
    before = group.holders()["b"]
    while len(seen) < count:
        due_ms = group.shard.timers.deadline(moves_key("g"))
        assert due_ms is not None
        group.advance(ms=max(0, due_ms - group.now_ms))
        group.settle()
        seen += sorted({number for _, number in group.holders()["b"] - before} - set(seen))
    return seen


def test_by_name_nothing_is_looked_at(paced: GroupDialogue) -> None:
    fill(paced, {0: 1, 1: 2, 2: 3, 3: 4})
    assert begun(paced) == [0, 1, 2, 3]
    assert paced.measured == []


def test_by_lag_that_with_most_records_that_are_not_committed_is_next(paced: GroupDialogue) -> None:
    fill(paced, {0: 100, 1: 100, 2: 100, 3: 100}, start=20)
    paced.commit({0: 90, 1: 10, 2: 50}, member_id="a", epoch=paced.member("a").member_epoch)
    paced.alter_configs({ORDER: "lag"})
    assert begun(paced) == [1, 3, 2, 0], "what is before the first record that is there nobody can read"


def test_by_size_that_with_most_bytes_is_next(paced: GroupDialogue) -> None:
    fill(paced, {0: 4, 1: 1, 2: 2, 3: 3})
    paced.alter_configs({ORDER: "size"})
    assert begun(paced) == [1, 2, 3, 0]


def test_what_is_not_known_comes_last_by_name(paced: GroupDialogue) -> None:
    fill(paced, {2: 0})
    paced.alter_configs({ORDER: "lag"})
    assert begun(paced) == [2, 0, 1, 3]


def test_it_is_looked_at_again_after_some_seconds_and_where_there_is_a_choice(paced: GroupDialogue) -> None:
    fill(paced, {0: 1, 1: 2, 2: 3, 3: 4})
    paced.alter_configs({ORDER: "lag"})
    assert begun(paced, 1) == [3]
    fill(paced, {0: 5, 1: 2, 2: 3, 3: 4})
    assert begun(paced, 1) == [2], "what was looked at a second ago counts still"
    paced.alter_configs({"group.moves.paused": "true"})
    paced.advance(ms=WEIGHED_FOR_MS)
    assert len(paced.measured) == 1, "nobody looks while nothing may begin"
    paced.alter_configs({"group.moves.paused": "false"})
    assert begun(paced, 2) == [0, 1]
    assert [len(places) for places in paced.measured] == [4, 2], "where one is left there is no choice"


def test_another_order_is_in_effect_while_moves_wait(paced: GroupDialogue) -> None:
    fill(paced, {0: 1, 1: 2, 2: 3, 3: 4})
    paced.alter_configs({ORDER: "lag"})
    assert begun(paced, 1) == [3]
    paced.alter_configs({ORDER: "size"})
    assert begun(paced, 1) == [0]
    paced.alter_configs({ORDER: None})
    assert begun(paced, 1) == [1]


def test_without_a_pace_there_is_no_order() -> None:
    group = GroupDialogue({"t": 4}, group_moves_order="lag")
    group.stable(a=[0, 1], b=[2, 3])
    submit(group, {0: "b", 1: "b"})
    assert group.measured == []


def test_a_restart_looks_again(paced: GroupDialogue) -> None:
    fill(paced, {0: 1, 1: 2, 2: 3, 3: 4})
    paced.alter_configs({ORDER: "lag"})
    begun(paced, 1)
    paced.restart()
    assert begun(paced, 1) == [2]


def test_a_group_that_is_gone_needs_no_order(paced: GroupDialogue) -> None:
    paced.alter_configs({ORDER: "lag"})
    paced.fire_due()
    for name in "ab":
        paced.leave(name)
    paced.delete_group().is_done()
    paced.fire_due()
    assert "g" not in paced.shard.groups.consumer


@pytest.mark.parametrize("value", ["", "Lag", "name,lag", "offset"])
def test_an_order_that_there_is_not_is_refused(paced: GroupDialogue, value: str) -> None:
    paced.alter_configs({ORDER: value}).is_refused(ErrorCode.INVALID_CONFIG, saying="one of name, lag, size")
