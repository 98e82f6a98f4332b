# cython: boundscheck=False, wraparound=False, initializedcheck=False, annotation_typing=False, cdivision=True
# ruff: noqa: PLR0917 - kernels take their arrays by position, as a compiled call does
"""Loops of the assignors over flat arrays: plain Python, compiled where Cython builds the package.

Laws: every array is of C ints (typecode "i"); -1 in `owner` is "no owner". A kernel changes only its own arguments.
Source: architecture rule 16.
"""

from __future__ import annotations

from array import array
from collections.abc import Mapping, Sequence

from kohort.ids import TopicId

NOBODY = -1


def count_loads(owner: array[int], loads: array[int]) -> int:
    """Add each member's number of partitions to `loads`; return the number of unowned partitions."""
    count = len(loads)
    free = 0
    for partition in range(len(owner)):
        member = owner[partition]
        if member >= count:
            raise IndexError(f"partition {partition} is owned by member {member} of {count}")
        if member >= 0:
            loads[member] += 1
        else:
            free += 1
    return free


def largest(owner: array[int]) -> int:
    """Return the largest number in an array, -1 if none is larger."""
    found = NOBODY
    for partition in range(len(owner)):
        found = max(found, owner[partition])
    return found


def sum_above(loads: array[int], level: int) -> int:
    """Count the partitions that members own beyond `level` each."""
    total = 0
    for member in range(len(loads)):
        load = loads[member]
        if load > level:
            total += load - level
    return total


def sum_below(loads: array[int], level: int) -> int:
    """Count the partitions that it takes to give every member at least `level`."""
    total = 0
    for member in range(len(loads)):
        load = loads[member]
        if load < level:
            total += level - load
    return total


def lower_to(loads: array[int], level: int, extra: int) -> None:
    """Cap every load at `level`, and take one more from the last `extra` members with such a load."""
    for member in range(len(loads) - 1, -1, -1):
        if loads[member] >= level:
            loads[member] = level
            if extra > 0:
                loads[member] = level - 1
                extra -= 1


def raise_to(loads: array[int], level: int, extra: int) -> None:
    """Raise every load to at least `level`, and add one more to the first `extra` members at it."""
    for member in range(len(loads)):
        if loads[member] <= level:
            loads[member] = level
            if extra > 0:
                loads[member] = level + 1
                extra -= 1


def subtract(loads: array[int], others: array[int]) -> None:
    """Subtract from each member's load the member's number in `others`."""
    for member in range(len(loads)):
        loads[member] -= others[member]


def keep_at_most(owner: array[int], limits: array[int]) -> int:
    """Free the last partitions of members above their limit; return the number of unowned partitions.

    Args:
        owner: partition -> member; changed in place.
        limits: member -> most partitions that it may keep; on return the unused part of that limit.
    """
    free = 0
    for partition in range(len(owner)):
        member = owner[partition]
        if member < 0:
            free += 1
        elif limits[member] > 0:
            limits[member] -= 1
        else:
            owner[partition] = NOBODY
            free += 1
    return free


def deal(owner: array[int], wants: array[int]) -> None:
    """Assign the unowned partitions, in order, to members below their share, one each per round.

    Args:
        owner: partition -> member; changed in place.
        wants: member -> partitions to assign to it; they sum up to the unowned partitions. All are 0 on return.
    """
    waiting = array("i", bytes(4 * len(wants)))
    count = 0
    for member in range(len(wants)):
        if wants[member] > 0:
            waiting[count] = member
            count += 1
    at = 0
    left = 0
    for partition in range(len(owner)):
        if owner[partition] >= 0:
            continue
        if at == count:
            # The next round is among the members that still want some.
            at = 0
            count = left
            left = 0
        member = waiting[at]
        at += 1
        owner[partition] = member
        wants[member] -= 1
        if wants[member] > 0:
            waiting[left] = member
            left += 1


def deal_in_turns(owner: array[int], start: int, stop: int, receivers: array[int], first: int) -> None:
    """Assign the partitions from `start` to `stop` to `receivers` round robin, from index `first` on."""
    at = first
    count = len(receivers)
    for partition in range(start, stop):
        owner[partition] = receivers[at]
        at += 1
        if at == count:
            at = 0


def deal_ranges(owner: array[int], start: int, stop: int, receivers: array[int]) -> None:
    """Assign each receiver one range of the partitions from `start` to `stop`, longer ranges first."""
    count = len(receivers)
    quota = (stop - start) // count
    extra = (stop - start) % count
    partition = start
    for at in range(count):
        end = partition + quota
        if at < extra:
            end += 1
        while partition < end:
            owner[partition] = receivers[at]
            partition += 1
        if partition == stop:
            break


def drop_strangers(owner: array[int], start: int, stop: int, is_subscriber: bytearray) -> None:
    """Free the partitions from `start` to `stop` whose owner is not marked as subscriber with 1."""
    count = len(is_subscriber)
    for partition in range(start, stop):
        member = owner[partition]
        if member >= count or (member >= 0 and not is_subscriber[member]):
            owner[partition] = NOBODY


def find_stranger(owner: array[int], start: int, stop: int, is_subscriber: bytearray) -> int:
    """Return the first partition from `start` to `stop` without an owner marked with 1; -1: none."""
    count = len(is_subscriber)
    for partition in range(start, stop):
        member = owner[partition]
        if member < 0 or member >= count or not is_subscriber[member]:
            return partition
    return NOBODY


def count_moves(before: array[int], after: array[int]) -> int:
    """Count the partitions that have an owner in `before`, and another one or none in `after`."""
    moves = 0
    for partition in range(len(after)):
        old = before[partition]
        if old >= 0 and old != after[partition]:
            moves += 1
    return moves


def find_changed(before: array[int], after: array[int], changed: bytearray) -> None:
    """Mark with 1 the members that lose or gain a partition between two arrays of owners of equal length."""
    count = len(changed)
    for partition in range(len(after)):
        old = before[partition]
        new = after[partition]
        if old != new:
            if 0 <= old < count:
                changed[old] = 1
            if 0 <= new < count:
                changed[new] = 1


def gather(
    targets: Sequence[Mapping[TopicId, tuple[int, ...]]],
    topics: Mapping[TopicId, int],
    starts: Sequence[int],
    counts: Sequence[int],
    owner: array[int],
) -> None:
    """Write the owners that `targets` (member -> topic id -> partitions) describes into `owner`.

    `topics`: topic id -> its index in `starts` (first partition) and `counts` (number of partitions). Topics of a
    target that are not in it are ignored.
    """
    for member in range(len(targets)):
        for topic_id, partitions in targets[member].items():
            topic = topics.get(topic_id, -1)
            if topic < 0:
                continue
            start = starts[topic]
            count = counts[topic]
            for partition in partitions:
                if 0 <= partition < count:
                    owner[start + partition] = member


def sort_by_owner(
    owner: array[int], starts: Sequence[int], counts: Sequence[int], firsts: array[int], topics: array[int]
) -> array[int]:
    """Sort the partitions of some members by member, topic and partition.

    Args:
        owner: partition -> member.
        starts: topic -> its first partition.
        counts: topic -> number of its partitions.
        firsts: member -> 0 to include its partitions, else -1; on return the index of its first one in the result.
            One element longer than the number of members: the last becomes the length of the result.
        topics: filled here: index in the result -> topic. As long as `owner`.

    Returns:
        Partition numbers within their topics.
    """
    member_count = len(firsts) - 1
    wanted = bytearray(member_count + 1)
    sizes = array("i", bytes(4 * (member_count + 1)))
    for member in range(member_count):
        wanted[member] = firsts[member] == 0
    for flat in range(len(owner)):
        if owner[flat] >= 0:
            sizes[owner[flat]] += 1
    total = 0
    for member in range(member_count):
        firsts[member] = total
        if wanted[member]:
            total += sizes[member]
    firsts[member_count] = total
    places = array("i", firsts)
    found = array("i", bytes(4 * total))
    slots = found
    for topic in range(len(starts)):
        start = starts[topic]
        count = counts[topic]
        for partition in range(count):
            member = owner[start + partition]
            if member >= 0 and wanted[member]:
                slots[places[member]] = partition
                topics[places[member]] = topic
                places[member] += 1
    return found


def group_by_topic(
    found: array[int],
    topics: array[int],
    topic_ids: Sequence[TopicId],
    first: int,
    stop: int,
    singles: dict[int, tuple[int, ...]],
) -> dict[TopicId, tuple[int, ...]]:
    """Group the result of `sort_by_owner` from index `first` to `stop`: topic id -> partitions.

    `singles`: cache of the tuples of one partition, shared by all topics and members of one result.
    """
    groups = {}
    while first < stop:
        topic = topics[first]
        end = first + 1
        while end < stop and topics[end] == topic:
            end += 1
        if end == first + 1:
            single = singles.get(found[first])
            if single is None:
                single = (found[first],)
                singles[found[first]] = single
            groups[topic_ids[topic]] = single
        else:
            partitions = []
            for at in range(first, end):
                partitions.append(found[at])  # noqa: PERF401 - a comprehension would not be compiled as well
            groups[topic_ids[topic]] = tuple(partitions)
        first = end
    return groups
