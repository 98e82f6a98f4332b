"""The uniform assignor: even loads, and as few moves as that allows.

Laws: every partition that somebody subscribes to is owned on return, by a subscriber. An owner keeps what it has
unless evenness needs it. Equal input gives equal output. Racks play no part: one broker has no partition elsewhere.
Source: KIP-848 (uniform assignor); Apache Kafka's behaviour, not its algorithm: free partitions are dealt out one
each, so that the partitions of one topic spread over the members.
"""

from __future__ import annotations

from array import array
from typing import Final

from kohort.assign.choice import kernels
from kohort.assign.heterogeneous import assign_heterogeneous
from kohort.assign.interface import UNLIMITED, Assignable

__all__ = ["Uniform", "assign_heterogeneous", "assign_homogeneous"]


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
        assign_heterogeneous(
            group.space, owner, group.subscribers, max_moves=group.max_moves, imbalance=group.imbalance
        )
        return owner


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
    free = kernels.count_loads(owner, loads)
    moves = _moves_needed(loads, free, imbalance)
    if max_moves != UNLIMITED:
        moves = min(moves, max_moves)
    if not free and not moves:
        return
    _lower_top(loads, moves)
    kept = loads[:]
    _raise_bottom(loads, free + moves)
    kernels.subtract(loads, kept)
    kernels.keep_at_most(owner, kept)
    kernels.deal(owner, loads)


def _moves_needed(loads: array[int], free: int, imbalance: int) -> int:
    """The least number of partitions that must leave their owners until loads differ by 1 + `imbalance` at most."""
    average = (sum(loads) + free) // len(loads)

    def moves_with(low: int) -> int:
        return max(kernels.sum_above(loads, low + 1 + imbalance), kernels.sum_below(loads, low) - free)

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
        if kernels.sum_above(loads, middle) <= count:
            high = middle
        else:
            low = middle + 1
    kernels.lower_to(loads, low, count - kernels.sum_above(loads, low))


def _raise_bottom(loads: array[int], count: int) -> None:
    """Add `count` partitions, each to the smallest load."""
    low, high = min(loads), max(loads) + count
    while low < high:
        middle = (low + high + 1) // 2
        if kernels.sum_below(loads, middle) <= count:
            low = middle
        else:
            high = middle - 1
    kernels.raise_to(loads, low, count - kernels.sum_below(loads, low))
