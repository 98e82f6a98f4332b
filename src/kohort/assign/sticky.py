"""The sticky assignor: even loads, but no move that does not pay.

It differs from `uniform` where members subscribe to different topics. There the last step to the best balance can take
a chain: one member gives a partition to a second one, which gives another to a third, and two members are interrupted
to even out one partition. `uniform` does that, `sticky` does not. Where all members want the same, the two are equal.

Laws: of two members, one never has 2 partitions or more beyond the other if it could give one of them to it. A chain
of n moves evens out loads that differ by more than n. Racks and co-partitioned topics play no part.
Source: KIP-54 (sticky assignor), whose promises these are; it calls none for chains.
"""

from __future__ import annotations

from array import array
from typing import Final

from kohort.assign.interface import Assignable
from kohort.assign.uniform import assign_evenly


class Sticky:
    """The assignor `sticky`: balance as far as each move pays."""

    name: Final = "sticky"

    def assign(self, group: Assignable) -> array[int]:
        """Return the new owners."""
        return assign_evenly(group, each_move_pays=True)
