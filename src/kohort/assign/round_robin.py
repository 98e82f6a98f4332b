"""The round-robin assignor: all partitions of all topics in one line, dealt to the members in turns.

Laws: computed anew each time, so that one member more can move most partitions: `sticky` and `uniform` move fewer.
A member that does not subscribe to a topic misses its turn there. `imbalance` has no meaning here; `max_moves` delays
moves.
Source: Apache Kafka's round-robin assignor (client side), over topics in the order of their names.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from typing import Final

from kohort.assign.choice import kernels
from kohort.assign.interface import Assignable
from kohort.assign.moves import limit_moves
from kohort.assign.order import order_members, subscribers_in_order


class RoundRobin:
    """The assignor `roundrobin`: partitions in turns."""

    name: Final = "roundrobin"

    def assign(self, group: Assignable) -> array[int]:
        """Return the new owners: each partition goes to the next subscriber in the circle of members."""
        owner = group.owner[:]
        order = order_members(group.members)
        rank = array("i", bytes(4 * len(order)))
        for place, member in enumerate(order):
            rank[member] = place
        turn = 0
        for topic, receivers in enumerate(subscribers_in_order(group, order)):
            count = group.space.counts[topic]
            if not count:
                continue
            start = group.space.starts[topic]
            # The first subscriber whose turn is not over in this round of the circle.
            first = bisect_left(receivers, turn, key=rank.__getitem__) % len(receivers)
            kernels.deal_in_turns(owner, start, start + count, receivers, first)
            turn = (rank[receivers[(first + count - 1) % len(receivers)]] + 1) % len(order)
        return limit_moves(group, owner)
