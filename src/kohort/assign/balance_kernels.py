# cython: boundscheck=False, wraparound=False, initializedcheck=False, annotation_typing=False, cdivision=True
# ruff: noqa: PLR0917 - kernels take their arrays by position, as a compiled call does
"""Loops that even out loads where members subscribe to different topics; plain Python, compiled by Cython.

A *class* is all topics with the same subscribers: their partitions are interchangeable. An *edge* is one subscriber of
one class. The edges of class `c` are `bounds[c]` to `bounds[c + 1]`, in ascending order of members. For edge `e`,
`shares[e]` counts the member's partitions of the class now, and `kept[e]` those it had before; `loads[m]` sums them up.

Laws: every array is of C ints (typecode "i"). A kernel changes only its own arguments. The sum of a class's shares
changes only in `fill`. Work is bounded by the budget argument, which counts visited edges.
Source: convex cost flow (optimal semi-matching, Harvey et al. 2003); architecture rule 16.
"""

from __future__ import annotations

from array import array


def index_members(
    bounds: array[int], subscribers: array[int], classes: array[int], firsts: array[int], edges: array[int]
) -> None:
    """Fill `classes` (edge -> class) and each member's edges, `edges[firsts[m]:firsts[m + 1]]`."""
    member_count = len(firsts) - 1
    for c in range(len(bounds) - 1):
        for e in range(bounds[c], bounds[c + 1]):
            classes[e] = c
            firsts[subscribers[e] + 1] += 1
    for m in range(member_count):
        firsts[m + 1] += firsts[m]
    places = array("i", firsts)
    for e in range(len(subscribers)):
        m = subscribers[e]
        edges[places[m]] = e
        places[m] += 1


def tally(
    owner: array[int],
    spans: array[int],
    bounds: array[int],
    subscribers: array[int],
    shares: array[int],
    free: array[int],
    loads: array[int],
) -> None:
    """Count each member's partitions of each class, and free partitions whose owner does not subscribe.

    Args:
        owner: partition -> member; changed in place.
        spans: three numbers per topic, classes ascending: class, first partition, last partition + 1.
        bounds: class -> its first edge.
        subscribers: edge -> member.
        shares: edge -> partitions, counted here.
        free: class -> partitions without an owner, counted here.
        loads: member -> partitions, counted here.
    """
    edge_of = array("i", [-1]) * len(loads)
    previous = -1
    for at in range(0, len(spans), 3):
        c = spans[at]
        low = bounds[c]
        if c != previous:
            for e in range(low, bounds[c + 1]):
                edge_of[subscribers[e]] = e
            previous = c
        for partition in range(spans[at + 1], spans[at + 2]):
            m = owner[partition]
            if m >= 0 and edge_of[m] >= low:
                shares[edge_of[m]] += 1
                loads[m] += 1
            else:
                owner[partition] = -1
                free[c] += 1


def count_moved(shares: array[int], kept: array[int]) -> int:
    """Count the partitions that are no longer with their former owner."""
    moved = 0
    for e in range(len(shares)):
        if shares[e] < kept[e]:
            moved += kept[e] - shares[e]
    return moved


def settle(
    owner: array[int],
    spans: array[int],
    bounds: array[int],
    subscribers: array[int],
    shares: array[int],
    rest: array[int],
) -> None:
    """Change `owner` so that each member has its share of each class.

    A member above its share keeps its first partitions; the others go to members below their share, one each per round.

    `rest`: scratch space, member -> 0; 0 again on return.
    """
    waiting = array("i", bytes(4 * len(rest)))
    at = 0
    while at < len(spans):
        c = spans[at]
        stop = at
        while stop < len(spans) and spans[stop] == c:
            stop += 3
        for e in range(bounds[c], bounds[c + 1]):
            rest[subscribers[e]] = shares[e]
        for span in range(at, stop, 3):
            for partition in range(spans[span + 1], spans[span + 2]):
                m = owner[partition]
                if m >= 0 and rest[m] > 0:
                    rest[m] -= 1
                else:
                    owner[partition] = -1
        count = 0
        for e in range(bounds[c], bounds[c + 1]):
            if rest[subscribers[e]] > 0:
                waiting[count] = subscribers[e]
                count += 1
        if count:
            _deal_class(owner, spans, at, stop, rest, waiting, count)
        at = stop


def _deal_class(
    owner: array[int], spans: array[int], at: int, stop: int, rest: array[int], waiting: array[int], count: int
) -> None:
    """Assign the free partitions of a class to the first `count` of `waiting`, one each per round."""
    turn = 0
    left = 0
    for span in range(at, stop, 3):
        for partition in range(spans[span + 1], spans[span + 2]):
            if owner[partition] >= 0:
                continue
            if turn == count:
                turn = 0
                count = left
                left = 0
            m = waiting[turn]
            turn += 1
            owner[partition] = m
            rest[m] -= 1
            if rest[m] > 0:
                waiting[left] = m
                left += 1


def fill(low: int, high: int, subscribers: array[int], shares: array[int], loads: array[int], count: int) -> None:
    """Assign `count` partitions of the class with edges `low` to `high` to the least loaded members."""
    level = loads[subscribers[low]]
    for e in range(low, high):
        level = min(level, loads[subscribers[e]])
    top = level + count
    while level < top:
        middle = level + (top - level + 1) // 2
        if _room(low, high, subscribers, loads, middle) <= count:
            level = middle
        else:
            top = middle - 1
    extra = count - _room(low, high, subscribers, loads, level)
    _raise(low, high, subscribers, shares, loads, level, extra)


def even_out(
    low: int, high: int, subscribers: array[int], shares: array[int], loads: array[int], tolerance: int
) -> int:
    """Move partitions of a class from the most to the least loaded members; return how many moved.

    On return the load of a member with a partition of the class exceeds no subscriber's by more than `tolerance`.
    """
    least = loads[subscribers[low]]
    most = least
    for e in range(low, high):
        load = loads[subscribers[e]]
        least = min(least, load)
        if shares[e] > 0:
            most = max(most, load)
    if most - least <= tolerance:
        return 0
    # The first level that asks for as much as those beyond it and the tolerance have to give.
    bottom = least
    top = most
    while bottom < top:
        middle = bottom + (top - bottom) // 2
        if _room(low, high, subscribers, loads, middle) >= _surplus(
            low, high, subscribers, shares, loads, middle + tolerance
        ):
            top = middle
        else:
            bottom = middle + 1
    moves = min(
        _room(low, high, subscribers, loads, bottom),
        _surplus(low, high, subscribers, shares, loads, bottom - 1 + tolerance),
    )
    _lower(low, high, subscribers, shares, loads, most, moves)
    fill(low, high, subscribers, shares, loads, moves)
    return moves


def _room(low: int, high: int, subscribers: array[int], loads: array[int], level: int) -> int:
    """Count the partitions needed to raise all members of a class to load `level`."""
    room = 0
    for e in range(low, high):
        load = loads[subscribers[e]]
        if load < level:
            room += level - load
    return room


def _surplus(low: int, high: int, subscribers: array[int], shares: array[int], loads: array[int], level: int) -> int:
    """Count the partitions of the class that its members have above load `level`."""
    surplus = 0
    for e in range(low, high):
        more = loads[subscribers[e]] - level
        if more > 0:
            surplus += min(more, shares[e])
    return surplus


def _raise(
    low: int, high: int, subscribers: array[int], shares: array[int], loads: array[int], level: int, extra: int
) -> None:
    """Raise all members of a class to load `level`, and the first `extra` of them by one more."""
    for e in range(low, high):
        m = subscribers[e]
        more = level - loads[m]
        if more < 0:
            continue
        if extra > 0:
            more += 1
            extra -= 1
        shares[e] += more
        loads[m] += more


def _lower(
    low: int, high: int, subscribers: array[int], shares: array[int], loads: array[int], most: int, count: int
) -> None:
    """Take `count` partitions of a class away, each from the most loaded member that has one."""
    level = 0
    top = most
    while level < top:
        middle = level + (top - level) // 2
        if _surplus(low, high, subscribers, shares, loads, middle) <= count:
            top = middle
        else:
            level = middle + 1
    extra = count - _surplus(low, high, subscribers, shares, loads, level)
    for e in range(high - 1, low - 1, -1):
        m = subscribers[e]
        less = loads[m] - level
        if less < 0:
            continue
        less = min(less, shares[e])
        if extra > 0 and loads[m] - less == level and shares[e] > less:
            less += 1
            extra -= 1
        shares[e] -= less
        loads[m] -= less
