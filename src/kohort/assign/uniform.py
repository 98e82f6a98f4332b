"""The uniform assignor: even loads, and as few moves as that allows.

Laws: every partition of a subscribed topic gets a subscriber as owner. An owner keeps its partitions unless balance
needs them. Equal input gives equal output. Racks are ignored: one broker has no replica in another rack.
Source: KIP-848 (uniform assignor). The behaviour is Apache Kafka's, the algorithm is not: members get unowned
partitions one each per round, so that the partitions of one topic spread over the members.
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
        """Return the new owners: loads of members with equal subscriptions differ by at most 1 + `imbalance`."""
        return assign_evenly(group, each_move_pays=False)


def assign_evenly(group: Assignable, *, each_move_pays: bool) -> array[int]:
    """Return the new owners of the assignor `uniform`; with `each_move_pays`, of `sticky`."""
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
    """Even out loads in `owner` where every member subscribes to every topic.

    Args:
        owner: partition -> member 0 to member_count - 1, or -1; changed in place. Then loads differ by at most
            1 + `imbalance`, unless `max_moves` prevents that, and as few partitions as possible have moved.
        max_moves: most partitions that may leave an owner; those of the largest loads go first.
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
# Topics with the same subscribers form a class, whose partitions are interchangeable. The computation finds the number
# of partitions of each class per member. First every class is evened out by itself, repeatedly, then along chains over
# several classes. Then moves that were not needed are taken back.
#
# Laws: with an unlimited budget the sum of the squared loads is the least possible, and among such results the number
# of moves is. The budget is a multiple of the subscriptions, so that a group of members with all different topics
# is computed in a moment, too.
# Source: convex cost flow, see `chain_kernels`.

#: Budget of any group, and the addition per edge (subscription of a class); both count visited edges.
LEAST_WORK: Final = 1_000_000
WORK_PER_EDGE: Final = 16
#: The weight of the sum of the squared loads, where one move costs 1: more than the moves of any one chain.
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
    """Even out loads in `owner` where members subscribe to different topics.

    Args:
        space: the partitions that the indexes of `owner` stand for.
        owner: partition -> member, or -1; changed in place. Without `max_moves`, no owner then has 2 + `imbalance` or
            more partitions beyond another subscriber of one of its topics.
        subscribers: topic of `space` -> its subscribers, ascending; a topic without subscribers stays unowned.
        max_moves: most partitions that may leave an owner that subscribes to their topic.
        imbalance: tolerated difference of loads, beyond 1.
        each_move_pays: make a chain of n moves only between loads that differ by more than n. Otherwise the best
            balance is reached, with the fewest moves that lead to it.
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

    The arguments are those of `assign_heterogeneous`. Owners that subscribe keep their partitions. The sum of the
    squared loads is then the least possible without a move.
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
    """Undo all but `max_moves` moves; moves from the largest to the smallest loads remain."""
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
        """Build the classes of a group of at least `member_count` members."""
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
        #: Three per topic: its class, its first partition, its last partition + 1.
        self.spans = array("i")
        # The classes with the fewest subscribers first: their partitions can go to no other members.
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
        """Count owned partitions, and free partitions whose owner does not subscribe."""
        balance_kernels.tally(owner, self.spans, self.bounds, self.subscribers, self.shares, self.free, self.loads)

    def fill(self) -> None:
        """Assign the free partitions to the least loaded members."""
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
        """Improve balance by chains over several classes, and undo needless moves.

        Args:
            kept: edge -> partitions that the member had before; only if they leave it is that a move.
            price: cost of a move. To even out two loads that differ by 2 gains 2 * `WEIGHT`.
        """
        bounds, subscribers, shares, loads = self.bounds, self.subscribers, self.shares, self.loads
        edge_count = len(subscribers)
        classes = array("i", bytes(4 * edge_count))
        firsts = array("i", bytes(4 * (len(loads) + 1)))
        edges = array("i", bytes(4 * edge_count))
        balance_kernels.index_members(bounds, subscribers, classes, firsts, edges)
        budget = array("i", [LEAST_WORK + WORK_PER_EDGE * edge_count])
        # With a low price balance is computed without regard to moves, and needless moves are undone afterwards.
        held = kept if price > WEIGHT else array("i", bytes(4 * edge_count))
        chain_kernels.even_out_by_chains(bounds, subscribers, classes, firsts, edges, shares, held, loads, budget)
        budget[0] = LEAST_WORK + WORK_PER_EDGE * edge_count
        chain_kernels.improve(bounds, subscribers, classes, firsts, edges, shares, kept, loads, WEIGHT, price, budget)

    def settle(self, owner: array[int]) -> None:
        """Write the computed shares into `owner`."""
        balance_kernels.settle(
            owner, self.spans, self.bounds, self.subscribers, self.shares, array("i", bytes(4 * len(self.loads)))
        )


# Loads: the fewest moves that even them out, and the loads after such moves.
#
# Laws: loads are changed in place; partitions are taken from the largest loads and given to the smallest. Among members
# of equal load the first ones keep and get more.

#: level -> how many partitions lie above it, or are missing below it, over all loads.
LevelSum = Callable[[int], int]


def fewest_moves(average: int, free: int, imbalance: int, sum_above: LevelSum, sum_below: LevelSum) -> int:
    """Return the fewest partitions that must move until loads differ by at most 1 + `imbalance`.

    `average`: average load once the `free` partitions are assigned, rounded down.
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
    """Return the lowest cap on loads above which at most `count` partitions lie; `largest` is such a cap."""
    low, high = 0, largest
    while low < high:
        middle = (low + high) // 2
        if sum_above(middle) <= count:
            high = middle
        else:
            low = middle + 1
    return low


def highest_bottom(smallest: int, largest: int, count: int, sum_below: LevelSum) -> int:
    """Return the highest level to which `count` partitions can raise all loads."""
    low, high = smallest, largest + count
    while low < high:
        middle = (low + high + 1) // 2
        if sum_below(middle) <= count:
            low = middle
        else:
            high = middle - 1
    return low


def moves_needed(loads: array[int], free: int, imbalance: int) -> int:
    """Return `fewest_moves` for `loads`: member -> partitions, not empty."""
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
