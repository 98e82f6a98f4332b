"""Replaced processes of static groups, which lost their instance ids: all their requests are refused.

Most clients do not send their instance id with each heartbeat, and join again when they are unknown: two processes with
one instance id would take it from each other many times a second.

Laws: no present member is refused here. The memory is bounded, and a restart forgets it.
Source: requirement S2; seen with librdkafka (KIP-848) and aiokafka (classic).
"""

from __future__ import annotations

from typing import Final

from kohort.coordinator.commands.base import GroupCommand
from kohort.coordinator.commands.groups import ConsumerGroupHeartbeat, Heartbeat, JoinGroup, SyncGroup
from kohort.coordinator.commands.offsets import CommitOffsets
from kohort.coordinator.model import GroupsState
from kohort.coordinator.records import StaticMemberOusted
from kohort.errors import ErrorCode, Refused

_SAID_BY_MEMBERS: Final = (ConsumerGroupHeartbeat, JoinGroup, SyncGroup, Heartbeat, CommitOffsets)
#: Most remembered processes: a refused client does not come again.
MOST_OUSTED: Final = 1_000


def check_not_ousted(groups: GroupsState, command: GroupCommand) -> None:
    """Refuse every request of a process that lost its instance id.

    Raises:
        Refused: FENCED_INSTANCE_ID, at which every client stops.
    """
    if isinstance(command, _SAID_BY_MEMBERS) and (command.group_id, command.member_id) in groups.ousted:
        raise Refused(
            ErrorCode.FENCED_INSTANCE_ID,
            f"a younger process has taken the group.instance.id of the member {command.member_id}: give each process "
            "its own",
        )


def apply_ousted(groups: GroupsState, record: StaticMemberOusted) -> None:
    """Remember a replaced process, within the limit."""
    groups.ousted[record.group_id, record.member_id] = None
    while len(groups.ousted) > MOST_OUSTED:
        del groups.ousted[next(iter(groups.ousted))]
