"""DescribeGroups (key 15): state and members of classic groups.

Version 1: throttle time (KIP-124). Version 2: throttled after the answer (KIP-219). Version 3: authorised operations
(KIP-430). Version 4: static members (KIP-345). Version 5: flexible (KIP-482). Version 6: an unknown group is
GROUP_ID_NOT_FOUND with a message, where earlier versions show a dead group without error (KIP-1043).
"""

from kohort.wire.messages.metadata import OPERATIONS_NOT_REQUESTED
from kohort.wire.schema import BOOL, BYTES, INT8, INT16, INT32, INT64, STRING, Message, array, field, message


@message(key=15, kind="request", versions="0-6", flexible="5+")
class DescribeGroupsRequest(Message):
    """Groups to describe."""

    groups: list[str] = field(array(STRING))
    include_authorized_operations: bool = field(BOOL, since=3)


class DescribedGroupMember(Message):
    """One member; its blobs are filled while the group is stable."""

    member_id: str = field(STRING)
    group_instance_id: str | None = field(STRING, since=4, nullable=4, default=None)
    client_id: str = field(STRING)
    client_host: str = field(STRING)
    member_metadata: bytes = field(BYTES)
    member_assignment: bytes = field(BYTES)
    #: Ours (wire.private): of a static group, since when the member is offline, milliseconds since 1970.
    offline_since_ms: int = field(INT64, since=5, tag=10_000, default=-1)
    #: Ours (wire.private): milliseconds since the member's last sign, fetch and commit, until its session ends, and for
    #: how long others have waited for it; -1: not known, or it does not apply.
    last_heard_ms: int = field(INT64, since=5, tag=10_003, default=-1)
    last_fetch_ms: int = field(INT64, since=5, tag=10_004, default=-1)
    last_commit_ms: int = field(INT64, since=5, tag=10_005, default=-1)
    session_left_ms: int = field(INT64, since=5, tag=10_006, default=-1)
    overdue_ms: int = field(INT64, since=5, tag=10_007, default=-1)
    #: Ours (wire.private): 1 if a connection of the member is open, 0 if not, -1: not known.
    is_connected: int = field(INT8, since=5, tag=10_008, default=-1)
    #: Ours (wire.private): milliseconds since its application polled, as it told; -1: not known.
    last_poll_ms: int = field(INT64, since=5, tag=10_009, default=-1)


class DescribedGroup(Message):
    """One group; `protocol_data` is the chosen assignor's name, filled while the group is stable."""

    error_code: int = field(INT16)
    error_message: str | None = field(STRING, since=6, nullable=6, default=None)
    group_id: str = field(STRING)
    group_state: str = field(STRING)
    protocol_type: str = field(STRING)
    protocol_data: str = field(STRING)
    members: list[DescribedGroupMember] = field(array(DescribedGroupMember))
    authorized_operations: int = field(INT32, since=3, default=OPERATIONS_NOT_REQUESTED)
    #: Ours (wire.private): `group.membership` is static.
    is_static: bool = field(BOOL, since=5, tag=10_000)


@message(key=15, kind="response", versions="0-6", flexible="5+")
class DescribeGroupsResponse(Message):
    """One description per group of the request."""

    throttle_time_ms: int = field(INT32, since=1)
    groups: list[DescribedGroup] = field(array(DescribedGroup))
