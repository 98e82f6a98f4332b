"""The uniform assignor: even loads, and as few moves as that allows.

Laws: every partition that somebody subscribes to is owned on return, by a subscriber. An owner keeps what it has
unless evenness needs it. Equal input gives equal output. Racks play no part: one broker has no partition elsewhere.
Source: KIP-848 (uniform assignor); Apache Kafka's behaviour, not its algorithm: free partitions are dealt out one
each, so that the partitions of one topic spread over the members.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from heapq import heapify, heappop, heapreplace
from typing import Final

from kohort.assign.interface import UNLIMITED, Assignable
from kohort.assign.kernels import (
    NOBODY,
    count_loads,
    deal,
    keep_at_most,
    lower_to,
    raise_to,
    sum_above,
    sum_below,
)
from kohort.assign.moves import limit_moves
from kohort.assign.ownership import PartitionSpace

#: A round without a move ends the balancing; this bounds it where loads chase each other over topics.
MAX_ROUNDS = 16


class Uniform:
    """Even loads, few moves."""

    name: Final = "uniform"

    def assign(self, group: Assignable) -> array[int]:
        """The new owners: two members with the same choice differ by 1 at most, or by 1 + `imbalance`."""
        owner = group.owner[:]
        if not owner:
            return owner
        if group.is_homogeneous:
            assign_homogeneous(owner, len(group.members), max_moves=group.max_moves, imbalance=group.imbalance)
            return owner
        assign_heterogeneous(group.space, owner, group.subscribers, imbalance=group.imbalance)
        return limit_moves(group, owner)


def assign_homogeneous(owner: array[int], member_count: int, *, max_moves: int = UNLIMITED, imbalance: int = 0) -> None:
    """Make `owner` even where every member subscribes to every topic.

    Args:
        owner: partition -> member 0 to member_count - 1, or -1; changed in place. On return loads differ by at most
            1 + `imbalance`, and the number of partitions that stay is the largest possible.
        member_count: at least 1.
        max_moves: no more partitions than this leave an owner, those of the largest loads first.
        imbalance: the difference beyond 1 that is worth no move.
    """
    assert member_count >= 1
    loads = array("i", bytes(4 * member_count))
    free = count_loads(owner, loads)
    moves = _moves_needed(loads, free, imbalance)
    if max_moves != UNLIMITED:
        moves = min(moves, max_moves)
    if not free and not moves:
        return
    _lower_top(loads, moves)
    kept = loads[:]
    _raise_bottom(loads, free + moves)
    wants = array("i", [load - has for load, has in zip(loads, kept, strict=True)])
    keep_at_most(owner, kept)
    deal(owner, wants)


def _moves_needed(loads: array[int], free: int, imbalance: int) -> int:
    """The least number of partitions that must leave their owners until loads differ by 1 + `imbalance` at most."""
    average = (sum(loads) + free) // len(loads)

    def moves_with(low: int) -> int:
        return max(sum_above(loads, low + 1 + imbalance), sum_below(loads, low) - free)

    # The number is convex in the lowest load: as it rises, the top gives less and the bottom needs more.
    first, last = max(average - imbalance, 0), average
    while first < last:
        middle = (first + last) // 2
        if moves_with(middle) <= moves_with(middle + 1):
            last = middle
        else:
            first = middle + 1
    return moves_with(first)


def _lower_top(loads: array[int], count: int) -> None:
    """Take `count` partitions away, each from the largest load."""
    if not count:
        return
    low, high = 0, max(loads)
    while low < high:
        middle = (low + high) // 2
        if sum_above(loads, middle) <= count:
            high = middle
        else:
            low = middle + 1
    lower_to(loads, low, count - sum_above(loads, low))


def _raise_bottom(loads: array[int], count: int) -> None:
    """Add `count` partitions, each to the smallest load."""
    low, high = min(loads), max(loads) + count
    while low < high:
        middle = (low + high + 1) // 2
        if sum_below(loads, middle) <= count:
            low = middle
        else:
            high = middle - 1
    raise_to(loads, low, count - sum_below(loads, low))


def assign_heterogeneous(
    space: PartitionSpace, owner: array[int], subscribers: Sequence[Sequence[int]], *, imbalance: int = 0
) -> None:
    """Make `owner` as even as moves of single partitions can where members subscribe to different topics.

    Args:
        space: what the numbers in `owner` mean.
        owner: partition -> member, or -1; changed in place. On return no partition can go from its owner to
            a subscriber of its topic that has at least 2 + `imbalance` partitions less.
        subscribers: per topic of `space`, ascending members that subscribe to it; a topic without any is nobody's.
        imbalance: the difference beyond 1 that is worth no move.
    """
    member_count = 1 + max((members[-1] for members in subscribers if members), default=NOBODY)
    _drop_unsubscribed(space, owner, subscribers)
    loads = array("i", bytes(4 * max(member_count, 1)))
    count_loads(owner, loads)
    # The topics with the least choice first: what they need cannot go elsewhere.
    order = sorted(range(len(space.topic_ids)), key=lambda topic: (len(subscribers[topic]), topic))
    for topic in order:
        _assign_free(space, owner, loads, topic, subscribers[topic])
    for _ in range(MAX_ROUNDS):
        if not sum(_balance(space, owner, loads, topic, subscribers[topic], imbalance=imbalance) for topic in order):
            break


def _drop_unsubscribed(space: PartitionSpace, owner: array[int], subscribers: Sequence[Sequence[int]]) -> None:
    for topic, start in enumerate(space.starts):
        allowed = set(subscribers[topic])
        for flat in range(start, start + space.counts[topic]):
            if owner[flat] >= 0 and owner[flat] not in allowed:
                owner[flat] = NOBODY


def _assign_free(
    space: PartitionSpace, owner: array[int], loads: array[int], topic: int, subscribers: Sequence[int]
) -> None:
    """Give each free partition of the topic to the subscriber that has least."""
    start = space.starts[topic]
    free = [flat for flat in range(start, start + space.counts[topic]) if owner[flat] < 0]
    if not free or not subscribers:
        return
    least = [(loads[member], member) for member in subscribers]
    heapify(least)
    for flat in free:
        load, member = least[0]
        owner[flat] = member
        loads[member] = load + 1
        heapreplace(least, (load + 1, member))


def _balance(
    space: PartitionSpace,
    owner: array[int],
    loads: array[int],
    topic: int,
    subscribers: Sequence[int],
    *,
    imbalance: int,
) -> int:
    """Move partitions of the topic from who has most to who has least; returns how many moved."""
    if len(subscribers) < 2:
        return 0
    low = min(loads[member] for member in subscribers)
    if max(loads[member] for member in subscribers) - low <= 1 + imbalance:
        return 0
    start = space.starts[topic]
    # Highest partitions leave first, so that the lowest stay where they are.
    held: dict[int, list[int]] = {}
    for flat in range(start, start + space.counts[topic]):
        held.setdefault(owner[flat], []).append(flat)
    givers = [(-loads[member], member) for member in held]
    takers = [(loads[member], member) for member in subscribers]
    heapify(givers)
    heapify(takers)
    moved = 0
    while givers:
        load, giver = -givers[0][0], givers[0][1]
        least, taker = takers[0]
        if least != loads[taker]:
            heapreplace(takers, (loads[taker], taker))
            continue
        if load != loads[giver]:
            heapreplace(givers, (-loads[giver], giver))
            continue
        if load - least <= 1 + imbalance:
            break
        flat = held[giver].pop()
        owner[flat] = taker
        loads[giver] -= 1
        loads[taker] += 1
        moved += 1
        if held[giver]:
            heapreplace(givers, (-loads[giver], giver))
        else:
            heappop(givers)
        heapreplace(takers, (loads[taker], taker))
    return moved
