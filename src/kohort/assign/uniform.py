"""The uniform assignor: even loads, and as few moves as that allows.

Laws: every partition with a subscriber is owned on return, by a subscriber. An owner keeps what it has
unless evenness needs it. Equal input gives equal output. Racks play no part: one broker has no partition elsewhere.
Source: KIP-848 (uniform assignor); Apache Kafka's behaviour, not its algorithm: free partitions are dealt out one
each, so that the partitions of one topic spread over the members.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Sequence
from functools import partial
from heapq import heapify, heappop, heappush
from itertools import pairwise
from operator import add
from typing import Final

from kohort.assign.choice import balance_kernels, chain_kernels, kernels
from kohort.assign.interface import UNLIMITED, Assignable
from kohort.assign.moves import spread_of
from kohort.assign.ownership import PartitionSpace


class Uniform:
    """The assignor `uniform`: even loads, few moves."""

    name: Final = "uniform"

    def assign(self, group: Assignable) -> array[int]:
        """Return the new owners: members with the same choice differ by at most 1, or 1 + `imbalance`."""
        return assign_evenly(group, each_move_pays=False)


def assign_evenly(group: Assignable, *, each_move_pays: bool) -> array[int]:
    """Return the new owners as `uniform` wants them, or as `sticky` does."""
    owner = group.owner[:]
    if not owner:
        return owner
    # More than this tolerates everything already.
    imbalance = min(group.imbalance, len(owner))
    if group.is_homogeneous:
        assign_homogeneous(owner, len(group.members), max_moves=group.max_moves, imbalance=imbalance)
        return owner
    assign_heterogeneous(
        group.space,
        owner,
        group.subscribers,
        max_moves=group.max_moves,
        imbalance=imbalance,
        each_move_pays=each_move_pays,
    )
    return owner


def assign_homogeneous(owner: array[int], member_count: int, *, max_moves: int = UNLIMITED, imbalance: int = 0) -> None:
    """Make `owner` even in place where every member subscribes to every topic.

    Args:
        owner: partition -> member 0 to member_count - 1, or -1. On return loads differ by at most 1 + `imbalance`, and
            the number of partitions that stay is the largest possible.
        max_moves: no more partitions than this leave an owner, those of the largest loads first.
    """
    assert member_count >= 1
    loads = array("i", bytes(4 * member_count))
    free = kernels.count_loads(owner, loads)
    moves = moves_needed(loads, free, imbalance)
    if max_moves != UNLIMITED:
        moves = min(moves, max_moves)
    if not free and not moves:
        return
    lower_top(loads, moves)
    kept = loads[:]
    raise_bottom(loads, free + moves)
    kernels.subtract(loads, kept)
    kernels.keep_at_most(owner, kept)
    kernels.deal(owner, loads)


# Even loads where members subscribe to different topics.
#
# Topics with the same subscribers form a class, whose partitions are interchangeable; what is computed is how many
# partitions of each class each member has. First every class is evened out by itself, over and over, then along chains
# over several classes, then moves that were not needed are taken back.
#
# Laws: given enough work, the sum of the squares of the loads is the least possible, and with that the number of moves;
# the work is bounded by a multiple of the subscriptions, so that a group of members with all different topics costs no
# more than a moment, too.
# Source: convex cost flow, see `chain_kernels`.

#: Work that any group may cost, and how much more per edge (subscription of a class); each in edges looked at.
LEAST_WORK: Final = 1_000_000
WORK_PER_EDGE: Final = 16
#: The weight of the sum of the squared loads beside the price of a move, more than the moves of any one chain.
WEIGHT: Final = 4096


def assign_heterogeneous(
    space: PartitionSpace,
    owner: array[int],
    subscribers: Sequence[Sequence[int]],
    *,
    max_moves: int = UNLIMITED,
    imbalance: int = 0,
    each_move_pays: bool = False,
) -> None:
    """Make `owner` even where members subscribe to different topics.

    Args:
        space: what the numbers in `owner` mean.
        owner: partition -> member, or -1; changed in place. On return no partition can go from its owner to
            a subscriber of its topic that has at least 2 + `imbalance` partitions less.
        subscribers: per topic of `space`, ascending members that subscribe to it; a topic without any stays unowned.
        max_moves: no more partitions than this leave an owner that subscribes to their topic.
        imbalance: the difference beyond 1 that is worth no move.
        each_move_pays: a chain of n moves is made only where it evens out loads that differ by more than n; without
            it balance comes first, and of all ways to the best one the way with the fewest moves is taken.
    """
    classes = _Classes(space, subscribers, 1 + kernels.largest(owner))
    if not classes.loads:
        return
    classes.tally(owner)
    before, kept, held = owner[:], classes.shares[:], classes.loads[:]
    classes.fill()
    classes.even_out(1 + imbalance)
    moved = balance_kernels.count_moved(classes.shares, kept)
    if (imbalance and moved) or spread_of(classes.loads) > 1 or moved > moves_needed(held, sum(classes.free), 0):
        price = 2 * WEIGHT * imbalance + 1
        classes.improve(kept, price + 2 * WEIGHT - 2 if each_move_pays else price)
    classes.settle(owner)
    if max_moves != UNLIMITED and kernels.count_moves(before, owner) > max_moves:
        take_moves_back(before, owner, classes.loads, max_moves)


def fill_heterogeneous(space: PartitionSpace, owner: array[int], subscribers: Sequence[Sequence[int]]) -> None:
    """Assign unowned partitions, and move none, where members subscribe to different topics.

    The arguments are those of `assign_heterogeneous`. Owners that subscribe keep what they have; on return the sum of
    the squares of the loads is the least that giving out the rest can lead to.
    """
    classes = _Classes(space, subscribers, 1 + kernels.largest(owner))
    if not classes.loads:
        return
    classes.tally(owner)
    if not any(classes.free):
        return
    kept, classes.shares = classes.shares, array("i", bytes(4 * len(classes.shares)))
    # Only partitions assigned here are in the shares, and only they are evened out; the loads count all.
    classes.fill()
    classes.even_out(1)
    if spread_of(classes.loads) > 1:
        classes.improve(array("i", bytes(4 * len(kept))), 1)
    classes.shares = array("i", map(add, classes.shares, kept))
    classes.settle(owner)


def take_moves_back(before: array[int], owner: array[int], loads: array[int], max_moves: int) -> None:
    """Take back all but `max_moves` moves, from the largest loads to the smallest."""
    moves: dict[int, list[int]] = {}
    for partition, old in enumerate(before):
        new = owner[partition]
        if old >= 0 and old != new:
            moves.setdefault(old, []).append(partition)
            loads[old] += 1
            loads[new] -= 1
    wanted = {partition: owner[partition] for partitions in moves.values() for partition in partitions}
    for partition in wanted:
        owner[partition] = before[partition]
    givers = [(-loads[member], member) for member in moves]
    heapify(givers)
    for _ in range(max_moves):
        # Loads of givers may have grown by what others gave them.
        while -givers[0][0] != loads[givers[0][1]]:
            heappush(givers, (-loads[givers[0][1]], heappop(givers)[1]))
        giver = givers[0][1]
        partition = min(moves[giver], key=lambda partition: (loads[wanted[partition]], partition))
        owner[partition] = wanted[partition]
        loads[giver] -= 1
        loads[wanted[partition]] += 1
        moves[giver].remove(partition)
        heappop(givers)
        if moves[giver]:
            heappush(givers, (-loads[giver], giver))


class _Classes:
    """The classes of a group, and each member's number of partitions of each class."""

    __slots__ = ("bounds", "free", "loads", "shares", "spans", "subscribers")

    def __init__(self, space: PartitionSpace, subscribers: Sequence[Sequence[int]], member_count: int) -> None:
        """Build the classes of a group of `member_count` members or more, by the numbers in `subscribers`."""
        topics_of: dict[bytes, list[int]] = {}
        known: dict[int, bytes] = {}
        for topic, members in enumerate(subscribers):
            if space.counts[topic]:
                key = known.get(id(members))
                if key is None:
                    key = known[id(members)] = array("i", members).tobytes()
                topics_of.setdefault(key, []).append(topic)
        #: Class -> its first edge, and behind the last class the number of edges.
        self.bounds = array("i", [0])
        #: Edge -> member.
        self.subscribers = array("i")
        #: Three per topic: its class, its first partition, the one behind its last.
        self.spans = array("i")
        # The classes with the least choice first: what they need cannot go elsewhere.
        for number, (key, topics) in enumerate(sorted(topics_of.items(), key=lambda item: (len(item[0]), item[1]))):
            self.subscribers.frombytes(key)
            self.bounds.append(len(self.subscribers))
            for topic in topics:
                start = space.starts[topic]
                self.spans.extend((number, start, start + space.counts[topic]))
        #: Edge -> partitions.
        self.shares = array("i", bytes(4 * len(self.subscribers)))
        #: Class -> partitions without an owner.
        self.free = array("i", bytes(4 * (len(self.bounds) - 1)))
        #: Member -> partitions.
        self.loads = array("i", bytes(4 * max(member_count, 1 + kernels.largest(self.subscribers))))

    def tally(self, owner: array[int]) -> None:
        """Count owned partitions; those of an owner that does not subscribe become free."""
        balance_kernels.tally(owner, self.spans, self.bounds, self.subscribers, self.shares, self.free, self.loads)

    def fill(self) -> None:
        """Give the free partitions to the least loaded members."""
        for number, count in enumerate(self.free):
            low, high = self.bounds[number], self.bounds[number + 1]
            if count and low < high:
                balance_kernels.fill(low, high, self.subscribers, self.shares, self.loads, count)

    def even_out(self, tolerance: int) -> None:
        """Even out each class until loads of its subscribers differ by at most `tolerance`."""
        budget = LEAST_WORK + WORK_PER_EDGE * len(self.subscribers)
        while budget > 0:
            moved = 0
            for low, high in pairwise(self.bounds):
                if high - low > 1:
                    moved += balance_kernels.even_out(low, high, self.subscribers, self.shares, self.loads, tolerance)
            budget -= len(self.subscribers)
            if not moved:
                break

    def improve(self, kept: array[int], price: int) -> None:
        """Improve balance by chains over several classes, and take needless moves back.

        Args:
            kept: edge -> partitions that do not count as moved while they stay.
            price: what a move costs; evening out two loads that differ by 2 is worth 2 * `WEIGHT`.
        """
        bounds, subscribers, shares, loads = self.bounds, self.subscribers, self.shares, self.loads
        edge_count = len(subscribers)
        classes = array("i", bytes(4 * edge_count))
        firsts = array("i", bytes(4 * (len(loads) + 1)))
        edges = array("i", bytes(4 * edge_count))
        balance_kernels.index_members(bounds, subscribers, classes, firsts, edges)
        budget = array("i", [LEAST_WORK + WORK_PER_EDGE * edge_count])
        # Where moves cost next to nothing, balance is sought without a look at them, and too many are taken back.
        held = kept if price > WEIGHT else array("i", bytes(4 * edge_count))
        chain_kernels.even_out_by_chains(bounds, subscribers, classes, firsts, edges, shares, held, loads, budget)
        budget[0] = LEAST_WORK + WORK_PER_EDGE * edge_count
        chain_kernels.improve(bounds, subscribers, classes, firsts, edges, shares, kept, loads, WEIGHT, price, budget)

    def settle(self, owner: array[int]) -> None:
        """Write the computed shares into `owner`."""
        balance_kernels.settle(
            owner, self.spans, self.bounds, self.subscribers, self.shares, array("i", bytes(4 * len(self.loads)))
        )


# Loads as levels: the moves needed to even them out, and the loads after such moves.
#
# Laws: loads are changed in place; partitions are taken from the largest loads and given to the smallest. Among members
# of equal load the first ones keep and get more.

#: level -> how many partitions lie above it, or are missing below it, over all loads.
LevelSum = Callable[[int], int]


def fewest_moves(average: int, free: int, imbalance: int, sum_above: LevelSum, sum_below: LevelSum) -> int:
    """Return the fewest partitions that must move until loads differ by at most 1 + `imbalance`.

    `average`: of the loads once the `free` partitions are given out, rounded down.
    """

    def moves_with(low: int) -> int:
        return max(sum_above(low + 1 + imbalance), sum_below(low) - free)

    # The number is convex in the lowest load: as it rises, the top gives less and the bottom needs more.
    first, last = max(average - imbalance, 0), average
    while first < last:
        middle = (first + last) // 2
        if moves_with(middle) <= moves_with(middle + 1):
            last = middle
        else:
            first = middle + 1
    return moves_with(first)


def lowest_top(largest: int, count: int, sum_above: LevelSum) -> int:
    """Return the lowest level above which at most `count` partitions are; `largest` is such a level."""
    low, high = 0, largest
    while low < high:
        middle = (low + high) // 2
        if sum_above(middle) <= count:
            high = middle
        else:
            low = middle + 1
    return low


def highest_bottom(smallest: int, largest: int, count: int, sum_below: LevelSum) -> int:
    """Return the highest level, between these two loads, below which at most `count` partitions lack."""
    low, high = smallest, largest + count
    while low < high:
        middle = (low + high + 1) // 2
        if sum_below(middle) <= count:
            low = middle
        else:
            high = middle - 1
    return low


def moves_needed(loads: array[int], free: int, imbalance: int) -> int:
    """Return `fewest_moves` of an array: member -> partitions, not empty."""
    average = (sum(loads) + free) // len(loads)
    return fewest_moves(average, free, imbalance, partial(kernels.sum_above, loads), partial(kernels.sum_below, loads))


def lower_top(loads: array[int], count: int) -> None:
    """Take `count` partitions away, each from the largest load."""
    if not count:
        return
    low = lowest_top(kernels.largest(loads), count, partial(kernels.sum_above, loads))
    kernels.lower_to(loads, low, count - kernels.sum_above(loads, low))


def raise_bottom(loads: array[int], count: int) -> None:
    """Add `count` partitions, each to the smallest load."""
    low = highest_bottom(min(loads), kernels.largest(loads), count, partial(kernels.sum_below, loads))
    kernels.raise_to(loads, low, count - kernels.sum_below(loads, low))
