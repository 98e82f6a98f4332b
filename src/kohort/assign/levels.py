"""Loads as levels: how many moves it takes to even them out, and what remains when the top gives and the bottom takes.

Laws: loads are changed in place; what is taken comes from the largest, what is given goes to the smallest. Members of
equal load: the first ones keep and get more.
"""

from __future__ import annotations

from array import array

from kohort.assign.choice import kernels


def moves_needed(loads: array[int], free: int, imbalance: int) -> int:
    """The least number of partitions that must leave their owners until loads differ by 1 + `imbalance` at most.

    Args:
        loads: member -> partitions, not empty.
        free: how many partitions without an owner come to the loads.
        imbalance: the difference beyond 1 that is worth no move.
    """
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


def lower_top(loads: array[int], count: int) -> None:
    """Take `count` partitions away, each from the largest load."""
    if not count:
        return
    low, high = 0, kernels.largest(loads)
    while low < high:
        middle = (low + high) // 2
        if kernels.sum_above(loads, middle) <= count:
            high = middle
        else:
            low = middle + 1
    kernels.lower_to(loads, low, count - kernels.sum_above(loads, low))


def raise_bottom(loads: array[int], count: int) -> None:
    """Add `count` partitions, each to the smallest load."""
    low, high = min(loads), kernels.largest(loads) + count
    while low < high:
        middle = (low + high + 1) // 2
        if kernels.sum_below(loads, middle) <= count:
            low = middle
        else:
            high = middle - 1
    kernels.raise_to(loads, low, count - kernels.sum_below(loads, low))
