"""The requests of a classic member: JoinGroup, SyncGroup and LeaveGroup.

Source: Kafka's JoinGroup, SyncGroup and LeaveGroup; static members: KIP-345; reasons: KIP-800.
"""

from __future__ import annotations

from collections.abc import Mapping, Set
from typing import Final

from kohort.client.options import ConsumerSettings
from kohort.errors import ErrorCode
from kohort.ids import TopicPartition, by_topic
from kohort.wire.embedded import encode_assignment, encode_subscription
from kohort.wire.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from kohort.wire.messages.leave_group import LeaveGroupRequest, MemberIdentity
from kohort.wire.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment

#: The first versions of JoinGroup and LeaveGroup that know static members.
FIRST_STATIC: Final = 5
FIRST_LEAVE_BY_NAME: Final = 3
_PROTOCOL_TYPE: Final = "consumer"
#: Longest reason that brokers take, characters (KIP-800).
_LONGEST_REASON: Final = 255


def build_join(
    settings: ConsumerSettings,
    member_id: str,
    *,
    topics: tuple[str, ...],
    owned: Set[TopicPartition],
    generation_id: int,
    reason: str,
) -> JoinGroupRequest:
    """Build the request to join the group or to take part in a rebalance.

    Args:
        settings: of the consumer.
        member_id: empty for a new member.
        topics: subscribed topics.
        owned: partitions that the member keeps meanwhile, by the assignment of `generation_id`.
        generation_id: its latest generation.
        reason: why it joins, for people.
    """
    options = settings.options
    assert options["group_id"] is not None
    subscription = encode_subscription(
        list(topics),
        owned_partitions=by_topic(owned),
        generation_id=generation_id if owned else -1,
        rack_id=options["client_rack"] or None,
    )
    return JoinGroupRequest(
        group_id=options["group_id"],
        session_timeout_ms=options["session_timeout_ms"],
        rebalance_timeout_ms=options["max_poll_interval_ms"],
        member_id=member_id,
        group_instance_id=options["group_instance_id"],
        protocol_type=_PROTOCOL_TYPE,
        reason=reason[:_LONGEST_REASON],
        protocols=[JoinGroupRequestProtocol(name=name, metadata=subscription) for name in settings.assignment_strategy],
        registration_timeout_ms=settings.registration_timeout_ms,
        expansion_timeout_ms=settings.expansion_timeout_ms,
    )


def build_sync(
    settings: ConsumerSettings,
    member_id: str,
    *,
    generation_id: int,
    protocol_name: str,
    assignment: Mapping[str, Mapping[str, list[int]]],
) -> SyncGroupRequest:
    """Build the request for the member's assignment; the leader's brings the assignment of all.

    Args:
        settings: of the consumer.
        member_id: its id.
        generation_id: the generation that JoinGroup has returned.
        protocol_name: the assignor that JoinGroup has returned.
        assignment: member id -> topic -> partitions; empty unless the member leads.
    """
    options = settings.options
    assert options["group_id"] is not None
    return SyncGroupRequest(
        group_id=options["group_id"],
        generation_id=generation_id,
        member_id=member_id,
        group_instance_id=options["group_instance_id"],
        protocol_type=_PROTOCOL_TYPE,
        protocol_name=protocol_name,
        assignments=[
            SyncGroupRequestAssignment(member_id=member, assignment=encode_assignment(partitions))
            for member, partitions in assignment.items()
        ],
    )


def build_leave(settings: ConsumerSettings, member_id: str) -> LeaveGroupRequest:
    """Build the request to leave the group."""
    options = settings.options
    assert options["group_id"] is not None
    identity = MemberIdentity(
        member_id=member_id, group_instance_id=options["group_instance_id"], reason="the consumer is leaving"
    )
    return LeaveGroupRequest(group_id=options["group_id"], member_id=member_id, members=[identity])


def explain_refusal(settings: ConsumerSettings, code: ErrorCode) -> str | None:
    """Name the option that made a join fail, where the broker sends no text; `None`: the code says enough."""
    if (
        code is not ErrorCode.INVALID_REQUEST
        or max(settings.registration_timeout_ms, settings.expansion_timeout_ms) < 0
    ):
        return None
    return (
        "registration.timeout.ms and expansion.timeout.ms have to be within the broker's bounds: 100 ms to a day, "
        "unless it is set to others"
    )
