"""What a group's id may be: what every command about a group is asked first.

An id goes into the keys of the group log, which have an int16 for its length. The empty one is that of consumers which
name no group: it may have offsets, be described and be deleted, and nobody can be its member.

Laws: nobody else looks at this. The longest id is the same for all; what the empty one is answered follows the command.
Source: the layout of `__consumer_offsets` (Apache Kafka fails to write a longer id and answers UNKNOWN_SERVER_ERROR);
Apache Kafka's `GroupCoordinatorService` for the empty one, each API for itself.
"""

from __future__ import annotations

from typing import Final

from kohort.coordinator.admincommands import (
    AlterGroupConfigs,
    DeleteGroup,
    DescribeClassicGroup,
    DescribeGroupConfigs,
)
from kohort.coordinator.commands import ConsumerGroupHeartbeat
from kohort.coordinator.offsetcommands import CommitOffsets, FetchOffsets
from kohort.coordinator.stimulus import GroupCommand
from kohort.errors import ErrorCode, Refused

#: Group ids are as long at most, in bytes of UTF-8.
LONGEST_GROUP_ID: Final = 32_767
#: No character takes more bytes.
_WIDEST: Final = 4
#: What may be asked about the group without a name, as about any other.
_MAY_BE_EMPTY: Final = frozenset({CommitOffsets, FetchOffsets, DescribeClassicGroup, DeleteGroup})
_NO_CONFIGS: Final = "the group's name is empty: there are no configs for all groups"
#: Command -> what the empty id is answered, where it is not the ordinary answer.
_EMPTY: Final[dict[type[GroupCommand], tuple[ErrorCode, str]]] = {
    ConsumerGroupHeartbeat: (ErrorCode.INVALID_REQUEST, "GroupId can't be empty"),
    AlterGroupConfigs: (ErrorCode.INVALID_REQUEST, _NO_CONFIGS),
    DescribeGroupConfigs: (ErrorCode.INVALID_REQUEST, _NO_CONFIGS),
}


def check_group_id(command: GroupCommand) -> None:
    """Refuse an id that no group can have, or that this command cannot be about.

    Raises:
        Refused: INVALID_GROUP_ID; INVALID_REQUEST for the empty id in a KIP-848 heartbeat and in configs.
    """
    group_id = command.group_id
    if not group_id and type(command) not in _MAY_BE_EMPTY:
        raise Refused(*_EMPTY.get(type(command), (ErrorCode.INVALID_GROUP_ID, "a group needs a name")))
    if len(group_id) * _WIDEST > LONGEST_GROUP_ID and len(group_id.encode("utf-8", "replace")) > LONGEST_GROUP_ID:
        raise Refused(ErrorCode.INVALID_GROUP_ID, f"a group's name has at most {LONGEST_GROUP_ID} bytes")
