"""The assignor of groups whose partitions somebody outside moves: it gives out what nobody owns, and moves nothing.

Laws: who owns a partition and subscribes to its topic keeps it, however uneven that is. What nobody owns goes to
subscribers of its topic so that the loads come out as even as they can without a move. Equal input gives equal output.
Racks, `max_moves` and `imbalance` play no part: there is no move that they could hold back.
Source: requirement H9 (moves that a scheduler asks for); KIP-848 (server-side assignors).
"""

from __future__ import annotations

from array import array
from typing import Final

from kohort.assign.heterogeneous import fill_heterogeneous
from kohort.assign.interface import Assignable
from kohort.assign.uniform import assign_homogeneous


class External:
    """Owners keep what they have."""

    name: Final = "external"

    def assign(self, group: Assignable) -> array[int]:
        """The new owners: those of before, and for each free partition the subscriber that has least."""
        owner = group.owner[:]
        if not owner:
            return owner
        if group.is_homogeneous:
            assign_homogeneous(owner, len(group.members), max_moves=0)
        else:
            fill_heterogeneous(group.space, owner, group.subscribers)
        return owner
