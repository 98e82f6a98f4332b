"""Loops of the assignors over flat arrays; plain Python that compiles where the package is built with Cython.

Laws: every array is of C ints (typecode "i"); -1 in `owner` is "nobody". A kernel changes only the arrays it is given.
Source: architecture rule 16.
"""

from __future__ import annotations

from array import array

NOBODY = -1


def count_loads(owner: array[int], loads: array[int]) -> int:
    """Add to `loads` (member -> number) what each member owns; returns how many partitions nobody owns."""
    free = 0
    for partition in range(len(owner)):
        member = owner[partition]
        if member >= 0:
            loads[member] += 1
        else:
            free += 1
    return free


def sum_above(loads: array[int], level: int) -> int:
    """How many partitions the members own beyond `level` each."""
    total = 0
    for member in range(len(loads)):
        load = loads[member]
        if load > level:
            total += load - level
    return total


def sum_below(loads: array[int], level: int) -> int:
    """How many partitions it takes to give every member at least `level`."""
    total = 0
    for member in range(len(loads)):
        load = loads[member]
        if load < level:
            total += level - load
    return total


def lower_to(loads: array[int], level: int, extra: int) -> None:
    """Cut every load to `level`, and the last `extra` members that have this much by one more."""
    for member in range(len(loads) - 1, -1, -1):
        if loads[member] >= level:
            loads[member] = level
            if extra > 0:
                loads[member] = level - 1
                extra -= 1


def raise_to(loads: array[int], level: int, extra: int) -> None:
    """Lift every load to `level`, and the first `extra` members that have no more than this by one more."""
    for member in range(len(loads)):
        if loads[member] <= level:
            loads[member] = level
            if extra > 0:
                loads[member] = level + 1
                extra -= 1


def keep_at_most(owner: array[int], limits: array[int]) -> int:
    """Set partitions free that their owner has beyond its limit, the last ones first; returns how many are free then.

    Args:
        owner: partition -> member; changed in place.
        limits: member -> what it may keep; on return what it could have kept beyond what it had.
    """
    free = 0
    for partition in range(len(owner)):
        member = owner[partition]
        if member < 0:
            free += 1
        elif limits[member] > 0:
            limits[member] -= 1
        else:
            owner[partition] = NOBODY
            free += 1
    return free


def deal(owner: array[int], wants: array[int]) -> None:
    """Give the free partitions, in their order, to the members that want some, one each per round.

    Args:
        owner: partition -> member; changed in place.
        wants: member -> how many it gets, all together the number of free partitions; used up.
    """
    waiting = array("i", bytes(4 * len(wants)))
    count = 0
    for member in range(len(wants)):
        if wants[member] > 0:
            waiting[count] = member
            count += 1
    at = 0
    left = 0
    for partition in range(len(owner)):
        if owner[partition] >= 0:
            continue
        if at == count:
            # The next round is among those who still want some.
            at = 0
            count = left
            left = 0
        member = waiting[at]
        at += 1
        owner[partition] = member
        wants[member] -= 1
        if wants[member] > 0:
            waiting[left] = member
            left += 1


def deal_in_turns(owner: array[int], start: int, stop: int, receivers: array[int], first: int) -> None:
    """Give the partitions from `start` to `stop` to `receivers` in turns, beginning with number `first` of them."""
    at = first
    count = len(receivers)
    for partition in range(start, stop):
        owner[partition] = receivers[at]
        at += 1
        if at == count:
            at = 0


def deal_ranges(owner: array[int], start: int, stop: int, receivers: array[int]) -> None:
    """Cut the partitions from `start` to `stop` into a range per receiver, the first ones longer by one if need be."""
    count = len(receivers)
    quota = (stop - start) // count
    extra = (stop - start) % count
    partition = start
    for at in range(count):
        end = partition + quota
        if at < extra:
            end += 1
        while partition < end:
            owner[partition] = receivers[at]
            partition += 1
        if partition == stop:
            break


def drop_strangers(owner: array[int], start: int, stop: int, is_subscriber: bytearray) -> None:
    """Set the partitions from `start` to `stop` free whose owner is not marked with 1."""
    for partition in range(start, stop):
        member = owner[partition]
        if member >= 0 and not is_subscriber[member]:
            owner[partition] = NOBODY


def count_moves(before: array[int], after: array[int]) -> int:
    """How many partitions of `before` that had an owner have another one, or none, in `after`."""
    moves = 0
    for partition in range(len(after)):
        old = before[partition]
        if old >= 0 and old != after[partition]:
            moves += 1
    return moves


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
