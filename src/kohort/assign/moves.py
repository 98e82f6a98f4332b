"""The difference of two arrays of owners: kept partitions, moves, loads; and the check of an answer.

Laws: a partition moves if it had an owner that still subscribes to its topic and gets another one; one whose owner is
gone or wants it no more is free, and free partitions are always given out.
Source: requirements H2 (balance against moves) and H8 (difference and balance as array operations).
"""

from __future__ import annotations

from array import array

from kohort.assign.choice import kernels
from kohort.assign.interface import UNLIMITED, Assignable
from kohort.assign.kernels import NOBODY
from kohort.assign.subscribers import mark_subscribers


def kept_owners(group: Assignable) -> array[int]:
    """Return the present owners, without those that no longer subscribe to the topic."""
    owner = group.owner[:]
    for start, size, marks in zip(group.space.starts, group.space.counts, mark_subscribers(group), strict=True):
        kernels.drop_strangers(owner, start, start + size, marks)
    return owner


def spread_of(loads: array[int]) -> int:
    """Return the difference of the largest and the smallest load.

    >>> spread_of(array("i", [1, 0, 2])), spread_of(array("i"))
    (2, 0)
    """
    return max(loads) - min(loads) if loads else 0


def limit_moves(group: Assignable, wanted: array[int]) -> array[int]:
    """Make as many of the moves to `wanted` as `group.max_moves` allows; the next computation goes on from there."""
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


# The check of an assignor's answer, before it is used.
#
# Laws: the answer may be any object; nothing is written. An answer without fault is safe for the compiled kernels,
# which trust their arrays.


def find_fault(group: Assignable, answer: object) -> str:
    """Describe the fault of an assignor's answer as the end of a sentence; "" if there is none.

    >>> from kohort.assign.ownership import PartitionSpace
    >>> group = Assignable(space=PartitionSpace([]), topic_names=(), members=(), subscribers=(), owner=array("i"))
    >>> find_fault(group, array("i")), find_fault(group, array("i", [0])), find_fault(group, None)
    ('', 'gave 1 owners for 0 partitions', "gave NoneType instead of array('i')")
    """
    if not isinstance(answer, array):
        return f"gave {type(answer).__name__} instead of array('i')"
    if answer.typecode != "i":
        return f"gave array({answer.typecode!r}) instead of array('i')"
    if len(answer) != len(group.space):
        return f"gave {len(answer)} owners for {len(group.space)} partitions"
    for topic, (start, is_subscriber) in enumerate(zip(group.space.starts, mark_subscribers(group), strict=True)):
        found = kernels.find_stranger(answer, start, start + group.space.counts[topic], is_subscriber)
        if found >= 0:
            name = f"{group.topic_names[topic]}-{found - start}"
            if not 0 <= answer[found] < len(group.members):
                return f"left partition {name} without an owner (number {answer[found]})"
            return f"gave partition {name} to member {group.members[answer[found]].member_id}, which does not want it"
    return ""
