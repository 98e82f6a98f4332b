"""kohort's own assignors, by the names that members and `group.consumer.assignors` use.

Source: requirement G5. Other assignors are loaded through entry points, see docs/reference/assignors.md.
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
    """The assignor `range`: a range of each topic per member, equal for co-partitioned topics.

    Laws: computed from scratch each time. Members with equal subscriptions get the same partition numbers of all topics
    with equal partition counts, so that they can join those topics. `imbalance` is ignored. `max_moves` delays moves;
    until they are made, equal partition numbers may belong to different members.
    Source: Apache Kafka 4.3's server-side range assignor. Static members come first, by instance id, and so keep their
    ranges when they restart; then dynamic members, by member id.
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
    """The assignor `roundrobin`: partitions to members in turn.

    Laws: computed from scratch each time, so that one more member can move most partitions; `sticky` and `uniform` move
    fewer. A member that does not subscribe to a topic misses its turn there. `imbalance` is ignored; `max_moves` delays
    moves.
    Source: Apache Kafka's round-robin assignor (client side), over topics in the order of their names.
    """

    name: Final = "roundrobin"

    def assign(self, group: Assignable) -> array[int]:
        """Return the new owners: each partition goes to the next subscriber, in a cycle over the members."""
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
    """The assignor `sticky`: balance, as long as each move improves it.

    It differs from `uniform` where members subscribe to different topics. There the last step to the best balance can
    need a chain: one member gives a partition to a second one, which gives another to a third. Two members are then
    interrupted to even out one partition. `uniform` does that, `sticky` does not. With equal subscriptions both assign
    alike.

    Laws: no member has 2 or more partitions beyond another that it could give one of them to. A chain of n moves is
    made only between loads that differ by more than n. Racks and co-partitioned topics are ignored.
    Source: KIP-54 (sticky assignor), which promises the first of these; it promises nothing about chains.
    """

    name: Final = "sticky"

    def assign(self, group: Assignable) -> array[int]:
        """Return the new owners, without moves that do not improve balance."""
        return assign_evenly(group, each_move_pays=True)


class External:
    """The assignor `external`, which leaves partitions with their owners.

    Laws: an owner that subscribes to its partition's topic keeps the partition, however uneven that is. Unowned ones go
    to subscribers of their topic so that loads are as even as is possible without a move. Equal input gives equal
    output. Racks, `max_moves` and `imbalance` are ignored: there is no move that they could limit.
    Source: requirement H9 (moves that a scheduler asks for); KIP-848 (server-side assignors).
    """

    name: Final = "external"

    def assign(self, group: Assignable) -> array[int]:
        """Return the present owners, and the least loaded subscriber for each unowned partition."""
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
    """Return kohort's own assignor of this name, `None` if there is none.

    >>> BUILT_IN
    ('uniform', 'range', 'roundrobin', 'sticky', 'external')
    >>> built_in("range").name, built_in("mine")
    ('range', None)
    """
    return _ASSIGNORS.get(name)
