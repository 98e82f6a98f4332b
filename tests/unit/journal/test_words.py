"""What rows name, as short text for a person."""

from __future__ import annotations

import pytest

from kohort.ids import TopicPartition
from kohort.journal.rows import TEXT_LIMIT
from kohort.journal.words import read_partitions, show_partitions, write_partitions


@pytest.mark.parametrize(
    ("partitions", "shown"),
    [
        ([], "-"),
        ([("a", 0)], "a:0"),
        ([("a", 0), ("a", 1)], "a:0-1"),
        ([("a", 0), ("a", 2), ("a", 4)], "a:0,2,4"),
        ([("orders", 7), ("orders", 0), ("returns", 1), ("orders", 1), ("orders", 2), ("orders", 3)],
         "orders:0-3,7 returns:1"),
        ([("a", 9), ("a", 10), ("a", 11)], "a:9-11"),
        ([("b", 0), ("a", 1)], "a:1 b:0"),
    ],
)  # fmt: skip
def test_partitions_are_shown_as_runs(partitions: list[tuple[str, int]], shown: str) -> None:
    assert show_partitions(TopicPartition(*each) for each in partitions) == shown


def test_a_set_is_shown_in_order() -> None:
    assert show_partitions({TopicPartition("a", number) for number in range(200)}) == "a:0-199"


@pytest.mark.parametrize("length", [1, 100, 249])
def test_names_of_partitions_are_never_cut_in_the_middle(length: int) -> None:
    """The rest is counted; half a name would be that of another partition."""
    partitions = [("t" * length, number) for number in range(100, 140)]
    text = write_partitions(partitions)
    named, more = read_partitions(text)
    assert len(text) <= TEXT_LIMIT
    assert set(named) <= set(partitions) and (named or length == 249)
    assert len(named) + more == len(partitions)
