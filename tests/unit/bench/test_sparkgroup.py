"""How long a partition that moves between two queries is nobody's."""

from __future__ import annotations

from typing import Any

from kohort import TopicPartition
from support.builders.benches import load_bench

group = load_bench("sparkgroup")
P0, P1 = TopicPartition("t", 0), TopicPartition("t", 1)


def batch(number: int, began_s: float, ended_s: float, *partitions: TopicPartition) -> Any:
    return group.GroupBatch(number, began_s, ended_s, dict.fromkeys(partitions, 1))


def test_pause_goes_from_the_last_batch_here_to_the_first_there() -> None:
    here = [batch(0, 10.0, 10.2, P0, P1), batch(1, 11.0, 11.2, P0, P1), batch(2, 12.0, 12.2, P0)]
    there = [batch(0, 11.7, 11.9, P1), batch(1, 12.7, 12.9, P1)]
    assert group.moves_s(here, there) == [11.7 - 11.2]


def test_what_was_never_here_has_not_moved() -> None:
    assert group.moves_s([batch(0, 10.0, 10.2, P0)], [batch(0, 11.0, 11.2, P1)]) == []


def test_partition_comes_back_behind_the_last_batch_of_a_query_that_is_gone() -> None:
    gone = [batch(0, 10.0, 10.2, P1)]
    stays = [batch(5, 9.9, 10.1, P0), batch(6, 10.9, 11.1, P0, P1)]
    assert group.moves_s(gone, group.behind(gone, stays)) == [10.9 - 10.2]
