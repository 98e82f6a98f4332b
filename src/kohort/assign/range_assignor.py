"""The range assignor: each topic's partitions in order, cut into one range per subscriber.

Laws: computed anew each time; members of equal subscriptions get the same partition numbers of every topic with the
same number of partitions, so that they can join them. `imbalance` has no meaning here; `max_moves` delays moves,
and while it does so equal numbers may be apart.
Source: Apache Kafka 4.3's server-side range assignor: static members come first, by their names, and keep their
ranges wherever they come back; then the others, by their ids.
"""

from __future__ import annotations

from array import array
from typing import Final

from kohort.assign.choice import kernels
from kohort.assign.interface import Assignable
from kohort.assign.moves import limit_moves
from kohort.assign.order import order_members, subscribers_in_order


class Range:
    """The assignor `range`: ranges of each topic, co-partitioned topics alike."""

    name: Final = "range"

    def assign(self, group: Assignable) -> array[int]:
        """Return the new owners: 3 subscribers of 7 partitions have 0 to 2, 3 and 4, 5 and 6."""
        owner = group.owner[:]
        order = order_members(group.members)
        for topic, receivers in enumerate(subscribers_in_order(group, order)):
            start = group.space.starts[topic]
            kernels.deal_ranges(owner, start, start + group.space.counts[topic], receivers)
        return limit_moves(group, owner)
