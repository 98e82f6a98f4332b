"""Members of a static group that are offline while it rebalances: they take part in their absence.

Nobody waits for them. The leader is told of them by what they said last, as if each had joined again with what it has,
so that an assignor that moves little leaves it to them. What a cooperative leader takes from one of them it gives to
nobody before that one has joined without it, which it cannot: so the group rebalances once more, at once.

Laws: the metadata of who is there is never touched.
Source: KIP-345's draft (an offline member keeps its place); KIP-429 (two rebalances for what moves), KIP-792.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from kohort.coordinator.classic.draft import Draft
from kohort.coordinator.classic.state import ClassicGroup, ClassicMember, FormerMember
from kohort.coordinator.classic.subscriptions import CONSUMER_PROTOCOL_TYPE
from kohort.coordinator.classic.volatile import AbsenteeEntered
from kohort.coordinator.embeddedcodec import read_assignment, read_subscription, with_owned


def enter_absentees(draft: Draft) -> None:
    """Let what the leader is about to be told of those who are offline say what they have."""
    group = draft.group
    if group.protocol_type != CONSUMER_PROTOCOL_TYPE:
        return
    for member in draft.offline:
        held = read_assignment(member.assignment)
        if held is None:
            continue
        protocols = tuple(
            (name, with_owned(metadata, held.partitions, generation=group.generation))
            for name, metadata in member.protocols
        )
        if protocols != member.protocols:
            entered = replace(member, protocols=protocols)
            draft.record(AbsenteeEntered(group_id=draft.group_id, member=entered))


def find_withheld(draft: Draft, handed_on: Mapping[str, FormerMember]) -> str | None:
    """Who cannot give up what the leader took from it and gave to nobody yet; `None`: nobody is in the way.

    `handed_on`: as `ClassicGroup` has it until the leader has spoken.
    """
    group = draft.group
    if group.protocol_type != CONSUMER_PROTOCOL_TYPE:
        return None
    told = [(member, member.metadata(group.protocol_name)) for member in draft.offline]
    told += [
        (group.members[member_id], former.metadata)
        for member_id, former in handed_on.items()
        if member_id in group.members
    ]
    if not told:
        return None
    given = _owned_by(group.members.values())
    for member, metadata in told:
        said = read_subscription(metadata)
        if said is None:
            continue
        owned = {(topic, number) for topic, numbers in said.owned.items() for number in numbers}
        if _is_withheld(owned - _owned_by((member,)), given, draft):
            return member.member_id
    return None


def has_nothing(group: ClassicGroup, member: ClassicMember) -> bool:
    """Whether a consumer has been given no partition."""
    if group.protocol_type != CONSUMER_PROTOCOL_TYPE:
        return False
    found = read_assignment(member.assignment)
    return found is not None and not any(found.partitions.values())


def _owned_by(members: Iterable[ClassicMember]) -> set[tuple[str, int]]:
    owned: set[tuple[str, int]] = set()
    for member in members:
        found = read_assignment(member.assignment)
        if found is not None:
            owned.update((topic, number) for topic, numbers in found.partitions.items() for number in numbers)
    return owned


def _is_withheld(lost: set[tuple[str, int]], given: set[tuple[str, int]], draft: Draft) -> bool:
    """Whether something of what was lost is there and nobody's."""
    image = draft.image
    if image is None or not image.version:
        return bool(lost - given)
    facts = image.by_name
    return any(topic in facts and number < facts[topic].partition_count for topic, number in lost - given)
