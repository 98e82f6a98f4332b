"""JoinGroup (key 11): enter a rebalance of a classic group.

Version 1: the rebalance gets a timeout of its own, which is -1 for version 0, where the session timeout stands for it
(KIP-62). Version 2: throttle time (KIP-124). Version 3: throttled after the answer (KIP-219). Version 4: a member
without an id is sent back with one and joins again with it (KIP-394). Version 5: static members (KIP-345).
Version 6: flexible (KIP-482). Version 7: the response names the kind of protocol, and the chosen protocol may be null
(KIP-559). Version 8: why the member joins (KIP-800). Version 9: the leader may be told to leave the assignment as it
is (KIP-814).
"""

from kohort.wire.schema import BOOL, BYTES, INT16, INT32, STRING, Message, array, field, message


class JoinGroupRequestProtocol(Message):
    """An assignor that the member can work with, and its subscription blob for it."""

    name: str = field(STRING)
    metadata: bytes = field(BYTES)


@message(key=11, kind="request", versions="0-9", flexible="6+")
class JoinGroupRequest(Message):
    """The join of a member; `member_id` is empty the first time."""

    group_id: str = field(STRING)
    session_timeout_ms: int = field(INT32)
    rebalance_timeout_ms: int = field(INT32, since=1, default=-1)
    member_id: str = field(STRING)
    group_instance_id: str | None = field(STRING, since=5, nullable=5, default=None)
    protocol_type: str = field(STRING)
    protocols: list[JoinGroupRequestProtocol] = field(array(JoinGroupRequestProtocol))
    reason: str | None = field(STRING, since=8, nullable=8, default=None)
    #: Ours (wire.private): timeouts that make a group static when this member is the first to join it.
    registration_timeout_ms: int = field(INT32, since=6, tag=10_000, default=-1)
    expansion_timeout_ms: int = field(INT32, since=6, tag=10_001, default=-1)


class JoinGroupResponseMember(Message):
    """A member as the leader sees it, with its blob for the chosen assignor."""

    member_id: str = field(STRING)
    group_instance_id: str | None = field(STRING, since=5, nullable=5, default=None)
    metadata: bytes = field(BYTES)


@message(key=11, kind="response", versions="0-9", flexible="6+")
class JoinGroupResponse(Message):
    """The generation that was formed; `members` is filled for the leader only."""

    throttle_time_ms: int = field(INT32, since=2)
    error_code: int = field(INT16)
    generation_id: int = field(INT32, default=-1)
    protocol_type: str | None = field(STRING, since=7, nullable=7, default=None)
    protocol_name: str | None = field(STRING, nullable=7)
    leader: str = field(STRING)
    skip_assignment: bool = field(BOOL, since=9)
    member_id: str = field(STRING)
    members: list[JoinGroupResponseMember] = field(array(JoinGroupResponseMember))
