"""The difference of two arrays of owners: kept partitions, number of moves, evenness of loads.

Laws: a partition moves if it had an owner that still subscribes to its topic and gets another one; one whose owner is
gone or wants it no more is free, and free partitions are always given out.
Source: requirements H2 (balance against moves) and H8 (difference and balance as array operations).
"""

from __future__ import annotations

from array import array

from kohort.assign.choice import kernels
from kohort.assign.interface import UNLIMITED, Assignable
from kohort.assign.kernels import NOBODY
from kohort.assign.order import mark_subscribers


def kept_owners(group: Assignable) -> array[int]:
    """Return the present owners, without those that no longer subscribe to the topic."""
    owner = group.owner[:]
    for start, size, marks in zip(group.space.starts, group.space.counts, mark_subscribers(group), strict=True):
        kernels.drop_strangers(owner, start, start + size, marks)
    return owner


def loads_of(owner: array[int], member_count: int) -> array[int]:
    """Count the partitions of each member.

    >>> list(loads_of(array("i", [2, 0, -1, 2]), 3))
    [1, 0, 2]
    """
    loads = array("i", bytes(4 * member_count))
    kernels.count_loads(owner, loads)
    return loads


def spread_of(loads: array[int]) -> int:
    """Return the difference of the largest and the smallest load.

    >>> spread_of(array("i", [1, 0, 2])), spread_of(array("i"))
    (2, 0)
    """
    return max(loads) - min(loads) if loads else 0


def limit_moves(group: Assignable, wanted: array[int]) -> array[int]:
    """Make as many of the moves to `wanted` as `group.max_moves` allows; other partitions stay.

    The next computation goes on from there.
    """
    if group.max_moves == UNLIMITED:
        return wanted
    kept = kept_owners(group)
    if kernels.count_moves(kept, wanted) <= group.max_moves:
        return wanted
    for partition, member in enumerate(kept):
        if member == NOBODY:
            kept[partition] = wanted[partition]
    # Low numbers move first, so that equal partitions of several topics move together.
    moves = sorted(
        (flat - start, flat)
        for start, count in zip(group.space.starts, group.space.counts, strict=True)
        for flat in range(start, start + count)
        if kept[flat] != wanted[flat]
    )
    for _, flat in moves[: group.max_moves]:
        kept[flat] = wanted[flat]
    return kept
