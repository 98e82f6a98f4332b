"""What a heartbeat says of the assignors that its member runs itself.

Laws: what members say is stored with them and forgotten with them. A join says everything.
Source: KIP-848 as drafted (`ClientAssignors`, null is unchanged).
"""

from __future__ import annotations

from dataclasses import replace

from kohort.coordinator.assigncommands import ClientAssignor
from kohort.coordinator.commands import ConsumerGroupHeartbeat
from kohort.coordinator.consumer.bounds import JOIN_EPOCH
from kohort.coordinator.consumer.change import MembershipChange
from kohort.coordinator.consumer.clientside.bounds import check_assignors, check_room
from kohort.coordinator.consumer.clientside.choice import choice_of
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
    """Take over what a heartbeat says.

    Args:
        group: as it is before the heartbeat.
        command: the heartbeat.
        change: what it means for the group so far.
        settings: of the group.
        member_id: who heartbeats; not always who the command names.
        former_id: the static member whose place it takes, else itself.

    Returns:
        The records, the change with it, and whether the group's target is to be computed for it.

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
