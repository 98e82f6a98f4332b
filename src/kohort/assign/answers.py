"""The check of an assignor's answer, before it is used.

Laws: the answer may be any object; nothing is written. An answer without fault is safe for the compiled kernels, which
trust their arrays.
"""

from __future__ import annotations

from array import array

from kohort.assign.choice import kernels
from kohort.assign.interface import Assignable
from kohort.assign.order import mark_subscribers


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
