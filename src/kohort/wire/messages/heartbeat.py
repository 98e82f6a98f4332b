"""Heartbeat (key 12): keep a member of a classic group alive, and tell it of rebalances.

Version 1: throttle time (KIP-124). Version 2: throttled after the answer (KIP-219). Version 3: static members
(KIP-345). Version 4: flexible (KIP-482).
"""

from kohort.wire.schema import INT16, INT32, STRING, Message, field, message


@message(key=12, kind="request", versions="0-4", flexible="4+")
class HeartbeatRequest(Message):
    """A sign of life of one member in one generation."""

    group_id: str = field(STRING)
    generation_id: int = field(INT32)
    member_id: str = field(STRING)
    group_instance_id: str | None = field(STRING, since=3, nullable=3, default=None)
    #: Ours (wire.private): milliseconds since the application polled, as in ConsumerGroupHeartbeat; -1: it is not told.
    last_poll_ms: int = field(INT32, since=4, tag=10_000, default=-1)


@message(key=12, kind="response", versions="0-4", flexible="4+")
class HeartbeatResponse(Message):
    """The result of a heartbeat; REBALANCE_IN_PROGRESS tells the member to join again."""

    throttle_time_ms: int = field(INT32, since=1)
    error_code: int = field(INT16)
    #: Ours (wire.private): why the group rebalances, for people.
    rebalance_reason: str | None = field(STRING, since=4, nullable=4, tag=10_000, default=None)
