"""Validation of group ids, the first step of every command about a group.

An id goes into the keys of the group log, which have an int16 for its length. Consumers that name no group have the
empty id: it may have offsets, be described and be deleted, and no member can join it.

Laws: no other place checks an id. The longest id is the same for all commands; the response to the empty one depends on
the command.
Source: the layout of `__consumer_offsets` (Apache Kafka fails to write a longer id and answers UNKNOWN_SERVER_ERROR);
Apache Kafka's `GroupCoordinatorService` for the empty one, each API for itself.
"""

from __future__ import annotations

from typing import Final

from kohort.coordinator.commands.admin import AlterGroupConfigs, DeleteGroup, DescribeClassicGroup, DescribeGroupConfigs
from kohort.coordinator.commands.base import GroupCommand
from kohort.coordinator.commands.groups import ConsumerGroupHeartbeat
from kohort.coordinator.commands.offsets import CommitOffsets, FetchOffsets
from kohort.errors import ErrorCode, Refused

#: Longest group id, in bytes of UTF-8.
LONGEST_GROUP_ID: Final = 32_767
#: Most bytes of a character in UTF-8.
_WIDEST: Final = 4
#: Commands that accept the empty group id like any other.
_MAY_BE_EMPTY: Final = frozenset({CommitOffsets, FetchOffsets, DescribeClassicGroup, DeleteGroup})
_NO_CONFIGS: Final = "the group's name is empty: there are no configs for all groups"
#: Command -> error and message for the empty id, where they are not the ordinary ones.
_EMPTY: Final[dict[type[GroupCommand], tuple[ErrorCode, str]]] = {
    ConsumerGroupHeartbeat: (ErrorCode.INVALID_REQUEST, "GroupId can't be empty"),
    AlterGroupConfigs: (ErrorCode.INVALID_REQUEST, _NO_CONFIGS),
    DescribeGroupConfigs: (ErrorCode.INVALID_REQUEST, _NO_CONFIGS),
}


def check_group_id(command: GroupCommand) -> None:
    """Refuse an id that no group can have, or that this command cannot concern.

    Raises:
        Refused: INVALID_GROUP_ID; INVALID_REQUEST for the empty id in a KIP-848 heartbeat and in configs.
    """
    group_id = command.group_id
    if not group_id and type(command) not in _MAY_BE_EMPTY:
        raise Refused(*_EMPTY.get(type(command), (ErrorCode.INVALID_GROUP_ID, "a group needs a name")))
    if len(group_id) * _WIDEST > LONGEST_GROUP_ID and len(group_id.encode("utf-8", "replace")) > LONGEST_GROUP_ID:
        raise Refused(ErrorCode.INVALID_GROUP_ID, f"a group's name has at most {LONGEST_GROUP_ID} bytes")
