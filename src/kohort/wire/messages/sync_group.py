"""SyncGroup (key 14): the leader of a classic group hands in the assignment, members get theirs.

Version 1: throttle time (KIP-124). Version 2: throttled after the answer (KIP-219). Version 3: static members
(KIP-345). Version 4: flexible (KIP-482). Version 5: both sides name the kind of protocol and the chosen one, so that a
mix-up is noticed (KIP-559).
"""

from kohort.wire.schema import BYTES, INT16, INT32, STRING, Message, array, field, message


class SyncGroupRequestAssignment(Message):
    """The leader's assignment blob for one member."""

    member_id: str = field(STRING)
    assignment: bytes = field(BYTES)


@message(key=14, kind="request", versions="0-5", flexible="4+")
class SyncGroupRequest(Message):
    """A member that is ready for its assignment; `assignments` is empty but for the leader."""

    group_id: str = field(STRING)
    generation_id: int = field(INT32)
    member_id: str = field(STRING)
    group_instance_id: str | None = field(STRING, since=3, nullable=3, default=None)
    protocol_type: str | None = field(STRING, since=5, nullable=5, default=None)
    protocol_name: str | None = field(STRING, since=5, nullable=5, default=None)
    assignments: list[SyncGroupRequestAssignment] = field(array(SyncGroupRequestAssignment))


@message(key=14, kind="response", versions="0-5", flexible="4+")
class SyncGroupResponse(Message):
    """The member's assignment blob, empty where it gets nothing."""

    throttle_time_ms: int = field(INT32, since=1)
    error_code: int = field(INT16)
    protocol_type: str | None = field(STRING, since=5, nullable=5, default=None)
    protocol_name: str | None = field(STRING, since=5, nullable=5, default=None)
    assignment: bytes = field(BYTES)
