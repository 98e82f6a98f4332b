"""Processes of static groups that lost their names to younger ones: whatever they say is refused, for good.

Most clients do not say their name with each heartbeat, and join again when they are not known: two processes of one
name would take it back and forth, many times a second.

Laws: nobody is refused here who is a member. What is remembered is bounded, and a restart forgets it.
Source: requirement S2; seen with librdkafka (KIP-848) and aiokafka (classic).
"""

from __future__ import annotations

from typing import Final

from kohort.coordinator.commands import (
    CommitOffsets,
    ConsumerGroupHeartbeat,
    GroupCommand,
    Heartbeat,
    JoinGroup,
    SyncGroup,
)
from kohort.coordinator.model import GroupsState
from kohort.coordinator.records import StaticMemberOusted
from kohort.errors import ErrorCode, Refused

_SAID_BY_MEMBERS: Final = (ConsumerGroupHeartbeat, JoinGroup, SyncGroup, Heartbeat, CommitOffsets)
#: So many are remembered: who has been refused once does not come again.
MOST_OUSTED: Final = 1_000


def check_not_ousted(groups: GroupsState, command: GroupCommand) -> None:
    """Refuse whatever is said by a process that lost its name.

    Raises:
        Refused: FENCED_INSTANCE_ID, with which every client ends.
    """
    if isinstance(command, _SAID_BY_MEMBERS) and (command.group_id, command.member_id) in groups.ousted:
        raise Refused(
            ErrorCode.FENCED_INSTANCE_ID,
            f"a younger process has taken the group.instance.id of the member {command.member_id}: give each process "
            "its own",
        )


def apply_ousted(groups: GroupsState, record: StaticMemberOusted) -> None:
    """Volatile."""
    groups.ousted[record.group_id, record.member_id] = None
    while len(groups.ousted) > MOST_OUSTED:
        del groups.ousted[next(iter(groups.ousted))]
