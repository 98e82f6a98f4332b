"""kohort's own assignors, by their names for members and `group.consumer.assignors`.

Source: requirement G5. Assignors of others come through entry points, see docs/reference/assignors.md.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from typing import Final

from kohort.assign.choice import kernels
from kohort.assign.interface import Assignable, Assignor
from kohort.assign.moves import limit_moves
from kohort.assign.subscribers import order_members, ranks_of, subscribers_in_order
from kohort.assign.uniform import Uniform, assign_evenly, assign_homogeneous, fill_heterogeneous


class Range:
    """The assignor `range`: ranges of each topic, co-partitioned topics alike.

    Laws: computed anew each time; members of equal subscriptions get the same partition numbers of every topic with the
    same number of partitions, so that they can join them. `imbalance` has no meaning here; `max_moves` delays moves,
    and while it does so equal numbers may be apart.
    Source: Apache Kafka 4.3's server-side range assignor: static members come first, by their names, and keep their
    ranges wherever they come back; then the others, by their ids.
    """

    name: Final = "range"

    def assign(self, group: Assignable) -> array[int]:
        """Return the new owners: 3 subscribers of 7 partitions have 0 to 2, 3 and 4, 5 and 6."""
        owner = group.owner[:]
        order = order_members(group.members)
        for topic, receivers in enumerate(subscribers_in_order(group, order)):
            start = group.space.starts[topic]
            kernels.deal_ranges(owner, start, start + group.space.counts[topic], receivers)
        return limit_moves(group, owner)


class RoundRobin:
    """The assignor `roundrobin`: partitions in turns.

    Laws: computed anew each time, so that one member more can move most partitions: `sticky` and `uniform` move fewer.
    A member that does not subscribe to a topic misses its turn there. `imbalance` has no meaning here; `max_moves`
    delays moves.
    Source: Apache Kafka's round-robin assignor (client side), over topics in the order of their names.
    """

    name: Final = "roundrobin"

    def assign(self, group: Assignable) -> array[int]:
        """Return the new owners: each partition goes to the next subscriber in the circle of members."""
        owner = group.owner[:]
        order = order_members(group.members)
        rank = ranks_of(order)
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


class Sticky:
    """The assignor `sticky`: balance as far as each move pays.

    It differs from `uniform` where members subscribe to different topics. There the last step to the best balance can
    take a chain: one member gives a partition to a second one, which gives another to a third, and two members are
    interrupted to even out one partition. `uniform` does that, `sticky` does not. Where all members want the same, the
    two are equal.

    Laws: of two members, one never has 2 partitions or more beyond the other if it could give one of them to it. A
    chain of n moves evens out loads that differ by more than n. Racks and co-partitioned topics play no part.
    Source: KIP-54 (sticky assignor), whose promises these are; it calls none for chains.
    """

    name: Final = "sticky"

    def assign(self, group: Assignable) -> array[int]:
        """Return the new owners."""
        return assign_evenly(group, each_move_pays=True)


class External:
    """The assignor `external`, which leaves partitions with their owners.

    Laws: an owner that subscribes to its partition's topic keeps it, however uneven that is. Unowned partitions go to
    subscribers of their topic so that the loads come out as even as they can without a move. Equal input gives equal
    output. Racks, `max_moves` and `imbalance` play no part: there is no move that they could hold back.
    Source: requirement H9 (moves that a scheduler asks for); KIP-848 (server-side assignors).
    """

    name: Final = "external"

    def assign(self, group: Assignable) -> array[int]:
        """Return the new owners: the present ones, and for each free partition the least loaded subscriber."""
        owner = group.owner[:]
        if not owner:
            return owner
        if group.is_homogeneous:
            assign_homogeneous(owner, len(group.members), max_moves=0)
        else:
            fill_heterogeneous(group.space, owner, group.subscribers)
        return owner


_ASSIGNORS: Final[dict[str, Assignor]] = {
    assignor.name: assignor for assignor in (Uniform(), Range(), RoundRobin(), Sticky(), External())
}

#: Their names, the default first.
BUILT_IN: Final[tuple[str, ...]] = tuple(_ASSIGNORS)
#: Those that even out loads by themselves: where assignors are compared, one that never moves anything says nothing.
BALANCING: Final[tuple[str, ...]] = tuple(name for name in BUILT_IN if name != External.name)


def built_in(name: str) -> Assignor | None:
    """Return the assignor of this name, `None` if kohort has none.

    >>> BUILT_IN
    ('uniform', 'range', 'roundrobin', 'sticky', 'external')
    >>> built_in("range").name, built_in("mine")
    ('range', None)
    """
    return _ASSIGNORS.get(name)
