"""Balance of a group's target, cached so that a join examines only members that give or get partitions.

It serves groups whose members all subscribe to the same topics: there only numbers of partitions matter. The moves are
those of the uniform assignor: as few as an even distribution needs, from the largest loads to the smallest.

Laws: a plan depends on targets, members and topics alone, not on whether the balance was cached or built for it.
Nothing here depends on the order in which members joined.
Source: requirements G7 and H2; KIP-848 (uniform assignor). The figure of issue 4: the cost of one join into a group at
rest depends on what moves, not on the size of the group.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Final

from kohort.assign.uniform import fewest_moves, highest_bottom, lowest_top
from kohort.ids import TopicId

#: topic id -> ascending partitions.
Target = Mapping[TopicId, tuple[int, ...]]

#: Where more than this fraction (one in `_FEW`) of all partitions moves, a pass over all of them is cheaper.
_FEW: Final = 8
_NONE: Final[Target] = {}


class TargetBalance:
    """Loads of the members by a target, and the partitions that it leaves unassigned."""

    __slots__ = ("by_load", "free", "metadata_hash", "rank", "topic_ids", "total")

    def __init__(self, topics: Sequence[tuple[TopicId, int]], metadata_hash: int) -> None:
        """Create the balance of empty loads for `topics`: (topic id, partitions) in the order of names."""
        #: Hash of the topics of this balance; it is not valid for other topics.
        self.metadata_hash = metadata_hash
        #: Ids of the topics, in order.
        self.topic_ids = tuple(topic_id for topic_id, _ in topics)
        #: topic id -> its place among the topics.
        self.rank = {topic_id: place for place, topic_id in enumerate(self.topic_ids)}
        #: Number of partitions of all topics.
        self.total = sum(count for _, count in topics)
        #: Number of partitions -> ids of the members with so many in their target, ascending; no empty list.
        self.by_load: dict[int, list[str]] = {}
        #: (place of the topic, partition) of each unassigned partition.
        self.free: set[tuple[int, int]] = set()

    def copy(self) -> TargetBalance:
        """Return an independent copy."""
        twin = TargetBalance.__new__(TargetBalance)
        twin.metadata_hash = self.metadata_hash
        twin.topic_ids, twin.rank, twin.total = self.topic_ids, self.rank, self.total
        twin.by_load = {load: list(members) for load, members in self.by_load.items()}
        twin.free = set(self.free)
        return twin

    def as_value(self) -> dict[str, object]:
        """Return all attributes as one value, to compare two balances."""
        return {
            "metadata_hash": self.metadata_hash,
            "topics": self.topic_ids,
            "total": self.total,
            "by_load": self.by_load,
            "free": self.free,
        }

    def add_member(self, member_id: str) -> None:
        """Add a member without a target."""
        insort(self.by_load.setdefault(0, []), member_id)

    def remove_member(self, member_id: str, target: Target | None) -> bool:
        """Remove a member and its target; return whether the balance had both."""
        return self.change_target(member_id, target, None) and self._take_out(member_id, 0)

    def change_target(self, member_id: str, before: Target | None, after: Target | None) -> bool:
        """Change the target of a member; return whether that was possible.

        Otherwise, as with an unknown topic or load, the balance must be discarded.
        """
        before, after = before or _NONE, after or _NONE
        rank = self.rank
        if not all(topic_id in rank for topic_id in after) or not all(topic_id in rank for topic_id in before):
            return False
        old_load, new_load = load_of(before), load_of(after)
        if old_load != new_load:
            if not self._take_out(member_id, old_load):
                return False
            insort(self.by_load.setdefault(new_load, []), member_id)
        for topic_id in before.keys() | after.keys():
            old, new = before.get(topic_id, ()), after.get(topic_id, ())
            if old == new:
                continue
            place, kept = rank[topic_id], set(new)
            self.free.update((place, partition) for partition in old if partition not in kept)
            self.free.difference_update((place, partition) for partition in new)
        return True

    def _take_out(self, member_id: str, load: int) -> bool:
        members = self.by_load.get(load, [])
        place = bisect_left(members, member_id)
        if place == len(members) or members[place] != member_id:
            return False
        del members[place]
        if not members:
            del self.by_load[load]
        return True


def load_of(target: Target) -> int:
    """Return the number of partitions of a target."""
    return sum(map(len, target.values()))


def build_balance(
    members: Iterable[str], targets: Mapping[str, Target], topics: Sequence[tuple[TopicId, int]], metadata_hash: int
) -> TargetBalance | None:
    """Build the balance of `targets`; `None` if they name partitions that do not exist."""
    balance = TargetBalance(topics, metadata_hash)
    counts = [count for _, count in topics]
    left = list(counts)
    by_load, rank = balance.by_load, balance.rank
    for member_id in sorted(members):
        load = 0
        for topic_id, partitions in targets.get(member_id, _NONE).items():
            place = rank.get(topic_id)
            if place is None or (partitions and partitions[-1] >= counts[place]):
                return None
            left[place] -= len(partitions)
            load += len(partitions)
        by_load.setdefault(load, []).append(member_id)
    balance.free.update(_unowned(balance, targets, {place: counts[place] for place, free in enumerate(left) if free}))
    return balance


def has_few_free(members: Iterable[str], targets: Mapping[str, Target], topics: Sequence[tuple[TopicId, int]]) -> bool:
    """Return whether few partitions are unowned, so that an incremental plan may be worthwhile."""
    total = sum(count for _, count in topics)
    owned = sum(load_of(targets[member_id]) for member_id in members if member_id in targets)
    return (total - owned) * _FEW <= total


def _unowned(
    balance: TargetBalance, targets: Mapping[str, Target], counts: Mapping[int, int]
) -> Iterator[tuple[int, int]]:
    """Yield the unassigned partitions of the topics whose indexes are in `counts`."""
    if not counts:
        return
    unowned = {place: set(range(count)) for place, count in counts.items()}
    for target in targets.values():
        for topic_id, partitions in target.items():
            found = unowned.get(balance.rank[topic_id])
            if found is not None:
                found.difference_update(partitions)
    for place, partitions_left in unowned.items():
        for partition in partitions_left:
            yield place, partition


def plan_targets(
    balance: TargetBalance, targets: Mapping[str, Target], *, max_moves: int, imbalance: int
) -> dict[str, dict[TopicId, tuple[int, ...]]] | None:
    """Plan the changed targets; `None` if a pass over all partitions is cheaper.

    `max_moves`: most partitions that may leave their members; below 0: as many as balance needs. `imbalance`: tolerated
    difference of loads, beyond 1.
    """
    counts = {load: len(members) for load, members in balance.by_load.items()}
    free = len(balance.free)
    average = (sum(load * count for load, count in counts.items()) + free) // sum(counts.values())
    moves = fewest_moves(average, free, imbalance, partial(_sum_above, counts), partial(_sum_below, counts))
    if max_moves >= 0:
        moves = min(moves, max_moves)
    if (free + moves) * _FEW > balance.total:
        return None
    if not free + moves:
        return {}
    loads = _lowered(balance.by_load, counts, moves)
    _raise(balance.by_load, loads, free + moves)
    return _hand_over(balance, targets, loads)


def _sum_above(counts: Mapping[int, int], level: int) -> int:
    return sum((load - level) * count for load, count in counts.items() if load > level)


def _sum_below(counts: Mapping[int, int], level: int) -> int:
    return sum((level - load) * count for load, count in counts.items() if load < level)


def _lowered(by_load: Mapping[int, list[str]], counts: Mapping[int, int], moves: int) -> dict[str, tuple[int, int]]:
    """Take `moves` partitions away, each from a largest load; return giver -> (load before, load after)."""
    loads: dict[str, tuple[int, int]] = {}
    if not moves:
        return loads
    low = lowest_top(max(counts), moves, partial(_sum_above, counts))
    givers = sorted(member for load, members in by_load.items() if load > low for member in members)
    for load, members in by_load.items():
        if load > low:
            loads.update((member, (load, low)) for member in members)
    rest = moves - _sum_above(counts, low)
    # A member that gives anyway gives one more, so that fewer members are concerned; then those with the last ids.
    givers += by_load.get(low, [])[: -rest - 1 : -1]
    for member in givers[:rest]:
        before = loads[member][0] if member in loads else low
        loads[member] = (before, low - 1)
    return loads


def _raise(by_load: Mapping[int, list[str]], loads: dict[str, tuple[int, int]], count: int) -> None:
    """Add `count` partitions, each to a smallest load, and add the takers to `loads`."""
    counts = {load: len(members) for load, members in by_load.items()}
    for before, after in loads.values():
        counts[before] -= 1
        counts[after] = counts.get(after, 0) + 1
    counts = {load: members for load, members in counts.items() if members}
    low = highest_bottom(min(counts), max(counts), count, partial(_sum_below, counts))
    rest = count - _sum_below(counts, low)
    givers = sorted(member for member, (before, after) in loads.items() if after <= min(low, before - 1))
    for member in givers:
        loads[member] = (loads[member][0], low)
    takers: list[str] = []
    for load, members in by_load.items():
        if load < low:
            takers += members
            loads.update((member, (load, low)) for member in members)
    takers.sort()
    # A member that takes anyway takes one more, then those with the first ids; givers come last.
    takers += [member for member in by_load.get(low, [])[: rest + len(loads)] if member not in loads]
    for member in (takers + givers)[:rest]:
        before = loads[member][0] if member in loads else low
        loads[member] = (before, low + 1)


def _hand_over(
    balance: TargetBalance, targets: Mapping[str, Target], loads: Mapping[str, tuple[int, int]]
) -> dict[str, dict[TopicId, tuple[int, ...]]]:
    """Return the new targets: givers lose their last partitions, takers get one each per round."""
    free = list(balance.free)
    planned: dict[str, dict[TopicId, tuple[int, ...]]] = {}
    wants: list[tuple[str, int]] = []
    for member in sorted(loads):
        before, after = loads[member]
        if after < before:
            planned[member] = _without_last(balance, targets[member], before - after, free)
        elif after > before:
            wants.append((member, after - before))
    free.sort()
    dealt: dict[str, list[tuple[int, int]]] = {member: [] for member, _ in wants}
    first = 0
    while wants:
        for (member, _), partition in zip(wants, free[first : first + len(wants)], strict=True):
            dealt[member].append(partition)
        first += len(wants)
        wants = [(member, want - 1) for member, want in wants if want > 1]
    for member, partitions in dealt.items():
        planned[member] = _with(balance, targets.get(member, _NONE), partitions)
    return planned


def _without_last(
    balance: TargetBalance, target: Target, count: int, free: list[tuple[int, int]]
) -> dict[TopicId, tuple[int, ...]]:
    """Return `target` without its last `count` partitions, which are added to `free`."""
    left = dict(target)
    for topic_id in sorted(target, key=balance.rank.__getitem__, reverse=True):
        partitions = target[topic_id]
        stay = max(len(partitions) - count, 0)
        free.extend((balance.rank[topic_id], partition) for partition in partitions[stay:])
        count -= len(partitions) - stay
        if stay:
            left[topic_id] = partitions[:stay]
        else:
            del left[topic_id]
        if not count:
            break
    return left


def _with(
    balance: TargetBalance, target: Target, partitions: Sequence[tuple[int, int]]
) -> dict[TopicId, tuple[int, ...]]:
    """Return `target` with `partitions` added, topics in the order of their names."""
    added: dict[int, list[int]] = {}
    for place, partition in partitions:
        added.setdefault(place, []).append(partition)
    united: dict[TopicId, tuple[int, ...]] = dict(target)
    for place, more in added.items():
        topic_id = balance.topic_ids[place]
        united[topic_id] = tuple(sorted((*target.get(topic_id, ()), *more)))
    return {topic_id: united[topic_id] for topic_id in sorted(united, key=balance.rank.__getitem__)}
