"""Differences between two arrays of owners, a limit on moves, and validation of an assignor's result.

Laws: a partition moves if its owner still subscribes to its topic, and it gets another owner. A partition whose owner
has left or unsubscribed is free. Free partitions are always assigned, and do not count as moves.
Source: requirements H2 (balance against moves) and H8 (difference and balance as array operations).
"""

from __future__ import annotations

from array import array

from kohort.assign.choice import kernels
from kohort.assign.interface import UNLIMITED, Assignable
from kohort.assign.kernels import NOBODY
from kohort.assign.subscribers import mark_subscribers


def kept_owners(group: Assignable) -> array[int]:
    """Return the present owners; partitions of members that no longer subscribe have none."""
    owner = group.owner[:]
    for start, size, marks in zip(group.space.starts, group.space.counts, mark_subscribers(group), strict=True):
        kernels.drop_strangers(owner, start, start + size, marks)
    return owner


def spread_of(loads: array[int]) -> int:
    """Return the difference between the largest and the smallest load.

    >>> spread_of(array("i", [1, 0, 2])), spread_of(array("i"))
    (2, 0)
    """
    return max(loads) - min(loads) if loads else 0


def limit_moves(group: Assignable, wanted: array[int]) -> array[int]:
    """Return `wanted` with at most `group.max_moves` moves; later computations make the others."""
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


# Validation of an assignor's result, before it is used.
#
# Laws: the result may be any object; nothing is written. A valid result is safe for the compiled kernels, which do not
# check their arrays.


def find_fault(group: Assignable, answer: object) -> str:
    """Describe an assignor's invalid result as the end of a sentence; "" if the result is valid.

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
