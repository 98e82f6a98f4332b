"""Offline members of a static group in a rebalance, which take part in their absence.

The rebalance does not wait for them. The leader gets their last subscriptions, as if each had joined again with its
partitions, so that an assignor that moves little leaves the partitions with them. A cooperative leader that takes a
partition from an offline member gives it to another only after the member has rejoined without it. An offline member
cannot rejoin: so the group rebalances once more, at once.

Laws: the metadata of present members is never touched.
Source: KIP-345's draft (an offline member keeps its place); KIP-429 (two rebalances for what moves), KIP-792.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from kohort.coordinator.classic.pending_decision import Draft
from kohort.coordinator.classic.state import ClassicGroup, ClassicMember, FormerMember
from kohort.coordinator.classic.subscriptions import CONSUMER_PROTOCOL_TYPE
from kohort.coordinator.classic.volatile import AbsenteeEntered
from kohort.coordinator.embeddedcodec import read_assignment, read_subscription, with_owned


def enter_absentees(draft: Draft) -> None:
    """Set the owned partitions in the subscriptions of offline members that the leader is about to get."""
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
    """Return an offline member that holds back partitions that the leader took from it; `None`: none.

    `handed_on`: as in `ClassicGroup` before the leader has assigned.
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
    """Whether a consumer has no assigned partition."""
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
    """Whether an existing partition of those taken has no new owner."""
    image = draft.image
    if image is None or not image.version:
        return bool(lost - given)
    facts = image.by_name
    return any(topic in facts and number < facts[topic].partition_count for topic, number in lost - given)
