"""The uniform assignor: even loads, and as few moves as that allows.

Laws: every partition with a subscriber is owned on return, by a subscriber. An owner keeps what it has
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
from kohort.assign.levels import lower_top, moves_needed, raise_bottom

__all__ = ["Uniform", "assign_heterogeneous", "assign_homogeneous"]


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
