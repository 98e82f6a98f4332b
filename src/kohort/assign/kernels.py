"""Loops of the assignors over flat arrays; plain Python that compiles where the package is built with Cython.

Laws: every array is of C ints (typecode "i"); -1 in `owner` is "nobody". A kernel changes only the arrays it is given.
Source: architecture rule 16.
"""

from __future__ import annotations

from array import array

NOBODY = -1


def count_loads(owner: array[int], member_count: int) -> array[int]:
    """Partitions per member: loads[m] of m in 0 to member_count - 1."""
    loads = array("i", bytes(4 * member_count))
    for member in owner:
        if member >= 0:
            loads[member] += 1
    return loads


def keep_to_quota(owner: array[int], kept: array[int], quota: int, extra: int) -> int:
    """Set partitions free that their owner has beyond its share; returns how many are free then.

    Args:
        owner: partition -> member; changed in place.
        kept: member -> 0; on return what each member kept.
        quota: what each member may keep.
        extra: how many members may keep one more; the first ones that have it do.
    """
    free = 0
    for partition in range(len(owner)):
        member = owner[partition]
        if member < 0:
            free += 1
            continue
        has = kept[member]
        if has < quota:
            kept[member] = has + 1
        elif has == quota and extra > 0:
            kept[member] = has + 1
            extra -= 1
        else:
            owner[partition] = NOBODY
            free += 1
    return free


def deal(owner: array[int], receivers: array[int]) -> None:
    """Give the free partitions, in their order, to `receivers`, in theirs; there are as many of one as of the other."""
    partition = -1
    for receiver in receivers:
        partition = owner.index(NOBODY, partition + 1)
        owner[partition] = receiver


def find_changed(before: array[int], after: array[int], changed: bytearray) -> None:
    """Mark with 1 the members that lose or gain a partition between two arrays of owners of equal length."""
    for partition in range(len(after)):
        old = before[partition]
        new = after[partition]
        if old != new:
            if old >= 0:
                changed[old] = 1
            if new >= 0:
                changed[new] = 1
