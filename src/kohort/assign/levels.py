"""Loads as levels: the moves needed to even them out, and the loads after such moves.

Laws: loads are changed in place; partitions are taken from the largest loads and given to the smallest. Among members
of equal load the first ones keep and get more.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable
from functools import partial

from kohort.assign.choice import kernels

#: level -> how many partitions lie above it, or are missing below it, over all loads.
LevelSum = Callable[[int], int]


def fewest_moves(average: int, free: int, imbalance: int, sum_above: LevelSum, sum_below: LevelSum) -> int:
    """Return the fewest partitions that must move until loads differ by at most 1 + `imbalance`.

    Args:
        average: of the loads once the free partitions are given out, rounded down.
        free: how many partitions without an owner come to the loads.
        imbalance: the difference beyond 1 that is worth no move.
        sum_above: of the loads.
        sum_below: of the loads.
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
