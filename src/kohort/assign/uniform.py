"""The uniform assignor: even loads, and as few moves as that allows.

Laws: every partition that somebody subscribes to is owned on return, by a subscriber. An owner keeps what it has
unless evenness needs it. Equal input gives equal output.
Source: KIP-848 (uniform assignor); Apache Kafka's behaviour, not its algorithm: free partitions are dealt out one
each, so that the partitions of one topic spread over the members.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from heapq import heapify, heappop, heapreplace

from kohort.assign.kernels import NOBODY, count_loads, deal, keep_to_quota
from kohort.assign.ownership import PartitionSpace

#: A round without a move ends the balancing; this bounds it where loads chase each other over topics.
MAX_ROUNDS = 16


def assign_homogeneous(owner: array[int], member_count: int) -> None:
    """Make `owner` even where every member subscribes to every topic.

    Args:
        owner: partition -> member 0 to member_count - 1, or -1; changed in place. Loads differ by at most 1 on return,
            and the number of partitions that stay is the largest possible.
        member_count: at least 1.
    """
    assert member_count >= 1
    quota, extra = divmod(len(owner), member_count)
    kept = array("i", bytes(4 * member_count))
    free = keep_to_quota(owner, kept, quota, extra)
    if free:
        deal(owner, _receivers(kept, quota, extra))


def _receivers(kept: array[int], quota: int, extra: int) -> array[int]:
    """Members in the order in which they get free partitions: one each per round, until each has its share."""
    receivers = array("i")
    # The largest shares go to who keeps one already, then to the first members.
    left = extra - sum(1 for has in kept if has > quota)
    wants: list[tuple[int, int]] = []
    for member, has in enumerate(kept):
        want = quota - has
        if want >= 0 and left > 0:
            want += 1
            left -= 1
        if want > 0:
            wants.append((member, want))
    taken = 0
    while wants:
        receivers.extend(member for member, _ in wants)
        taken += 1
        wants = [pair for pair in wants if pair[1] > taken]
    return receivers


def assign_heterogeneous(space: PartitionSpace, owner: array[int], subscribers: Sequence[Sequence[int]]) -> None:
    """Make `owner` as even as moves of single partitions can where members subscribe to different topics.

    Args:
        space: what the numbers in `owner` mean.
        owner: partition -> member, or -1; changed in place. On return no partition can go from its owner to
            a subscriber of its topic that has at least two partitions less.
        subscribers: per topic of `space`, ascending members that subscribe to it; a topic without any is nobody's.
    """
    member_count = 1 + max((members[-1] for members in subscribers if members), default=NOBODY)
    _drop_unsubscribed(space, owner, subscribers)
    loads = count_loads(owner, max(member_count, 1))
    # The topics with the least choice first: what they need cannot go elsewhere.
    order = sorted(range(len(space.topic_ids)), key=lambda topic: (len(subscribers[topic]), topic))
    for topic in order:
        _assign_free(space, owner, loads, topic, subscribers[topic])
    for _ in range(MAX_ROUNDS):
        if not sum(_balance(space, owner, loads, topic, subscribers[topic]) for topic in order):
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
    space: PartitionSpace, owner: array[int], loads: array[int], topic: int, subscribers: Sequence[int]
) -> int:
    """Move partitions of the topic from who has most to who has least; returns how many moved."""
    if len(subscribers) < 2:
        return 0
    low = min(loads[member] for member in subscribers)
    if max(loads[member] for member in subscribers) - low <= 1:
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
        if load - least <= 1:
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
