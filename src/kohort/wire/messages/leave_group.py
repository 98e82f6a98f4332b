"""LeaveGroup (key 13): members leave a classic group, or are removed from it.

Version 1: throttle time (KIP-124). Version 2: throttled after the answer (KIP-219). Version 3: many members at once,
known by member id or instance id; the single member is gone from here on (KIP-345). Version 4: flexible (KIP-482).
Version 5: why they leave (KIP-800).
"""

from kohort.wire.schema import INT16, INT32, STRING, Message, array, field, message


class MemberIdentity(Message):
    """A member that leaves; with an instance id the member id may be empty."""

    member_id: str = field(STRING)
    group_instance_id: str | None = field(STRING, nullable=0, default=None)
    reason: str | None = field(STRING, since=5, nullable=5, default=None)


@message(key=13, kind="request", versions="0-5", flexible="4+")
class LeaveGroupRequest(Message):
    """Up to version 2 one member in `member_id`, after it `members`."""

    group_id: str = field(STRING)
    member_id: str = field(STRING, until=2)
    members: list[MemberIdentity] = field(array(MemberIdentity), since=3)


class MemberResponse(Message):
    """The result for one member."""

    member_id: str = field(STRING)
    group_instance_id: str | None = field(STRING, nullable=0)
    error_code: int = field(INT16)


@message(key=13, kind="response", versions="0-5", flexible="4+")
class LeaveGroupResponse(Message):
    """Up to version 2 only `error_code`, after it one answer per member too."""

    throttle_time_ms: int = field(INT32, since=1)
    error_code: int = field(INT16)
    members: list[MemberResponse] = field(array(MemberResponse), since=3)
