"""Client-side assignors in heartbeats.

Laws: a member's assignors are stored and forgotten with it. A join sets all fields.
Source: KIP-848 as drafted (`ClientAssignors`, null is unchanged).
"""

from __future__ import annotations

from dataclasses import replace

from kohort.coordinator.commands.groups import ConsumerGroupHeartbeat
from kohort.coordinator.commands.values import ClientAssignor
from kohort.coordinator.consumer.client_assignors.choice import choice_of
from kohort.coordinator.consumer.client_assignors.validation import check_assignors, check_room
from kohort.coordinator.consumer.subscription_metadata import MembershipChange
from kohort.coordinator.consumer.validation import JOIN_EPOCH
from kohort.coordinator.model import ConsumerGroup
from kohort.coordinator.records import ClientAssignorsForgotten, ClientAssignorsSet, Record
from kohort.coordinator.settings import GroupSettings


def take_assignors(
    group: ConsumerGroup,
    command: ConsumerGroupHeartbeat,
    change: MembershipChange,
    settings: GroupSettings,
    *,
    member_id: str,
    former_id: str,
) -> tuple[list[Record], MembershipChange, bool]:
    """Take over the assignors of a heartbeat.

    Args:
        group: its state before the heartbeat.
        command: the heartbeat.
        change: of the group so far.
        settings: of the group.
        member_id: the member of the heartbeat; not always the one that the command names.
        former_id: the static member that it replaces, else itself.

    Returns:
        The records, the change with the assignors, and whether the group needs a new target for them.

    Raises:
        Refused: INVALID_REQUEST, UNSUPPORTED_ASSIGNOR or GROUP_MAX_SIZE_REACHED.
    """
    said, side = command.client_assignors, group.client_side
    if said is None and (side is None or command.member_epoch != JOIN_EPOCH):
        return [], change, choice_of(group, settings) != choice_of(group, settings, change)
    known = {} if side is None else side.assignors
    before, held, after = known.get(former_id, ()), known.get(member_id, ()), said or ()
    check_assignors(after)
    check_room(group, before, after)
    change = replace(change, assignors={member_id: after})
    records: list[Record] = []
    if after and after != held:
        records.append(ClientAssignorsSet(group_id=group.group_id, member_id=member_id, assignors=after))
    elif held and not after:
        records.append(ClientAssignorsForgotten(group_id=group.group_id, member_id=member_id))
    chosen = choice_of(group, settings, change)
    if chosen != choice_of(group, settings):
        return records, change, True
    if chosen.version is None:
        return records, change, False
    now, then = _named(after, chosen.name), _named(before, chosen.name)
    is_other = then is None or now is None or (now.version, now.metadata) != (then.version, then.metadata)
    return records, change, is_other or (now is not None and now.reason != 0)


def _named(assignors: tuple[ClientAssignor, ...], name: str) -> ClientAssignor | None:
    return next((each for each in assignors if each.name == name), None)
