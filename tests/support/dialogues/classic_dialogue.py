"""A scripted dialogue with a member of the classic protocol."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from kohort.client.consumer.application_events import CallbackKind
from kohort.client.consumer.membership.states import MemberState
from kohort.errors import ErrorCode
from kohort.wire.embedded import decode_assignment, encode_assignment, encode_subscription
from kohort.wire.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from kohort.wire.messages.join_group import JoinGroupRequest, JoinGroupResponse, JoinGroupResponseMember
from kohort.wire.messages.sync_group import SyncGroupRequest, SyncGroupResponse
from support.dialogues.consumer_dialogue import ConsumerDialogue

ASSIGNED = CallbackKind.ASSIGNED


class ClassicDialogue(ConsumerDialogue):
    """Adds the words of the classic protocol."""

    def __init__(self, **options: object) -> None:
        super().__init__(group_protocol="classic", **options)

    def require_member_id(self, member_id: str = "c-1") -> None:
        self.settle()
        request = self.expect(JoinGroupRequest)
        self.answer(request, JoinGroupResponse(error_code=ErrorCode.MEMBER_ID_REQUIRED, member_id=member_id), version=9)
        self.settle()

    def joined(
        self,
        generation: int = 1,
        *,
        leader: str = "c-0",
        members: Mapping[str, Sequence[str]] | None = None,
        error: ErrorCode = ErrorCode.NONE,
        protocol: str = "range",
    ) -> JoinGroupRequest:
        """Answer the open JoinGroup; returns the request."""
        self.settle()
        request = self.expect(JoinGroupRequest)
        listed = [
            JoinGroupResponseMember(member_id=name, metadata=encode_subscription(topics))
            for name, topics in (members or {}).items()
        ]
        response = JoinGroupResponse(
            error_code=error,
            generation_id=generation,
            protocol_type="consumer",
            protocol_name=protocol,
            leader=leader,
            member_id="c-1",
            members=listed,
        )
        self.answer(request, response, version=9)
        self.settle()
        return request

    def synced(
        self, partitions: Sequence[int] | None = None, *, error: ErrorCode = ErrorCode.NONE, raw: bytes | None = None
    ) -> SyncGroupRequest:
        """Answer the open SyncGroup; returns the request."""
        self.settle()
        request = self.expect(SyncGroupRequest)
        blob = encode_assignment({"orders": list(partitions)} if partitions else {}) if raw is None else raw
        self.answer(request, SyncGroupResponse(error_code=error, assignment=blob), version=5)
        self.settle()
        return request

    def beaten(self, error: ErrorCode = ErrorCode.NONE, *, reason: str | None = None) -> HeartbeatRequest:
        """Answer the open Heartbeat; returns the request."""
        self.settle()
        request = self.expect(HeartbeatRequest)
        self.answer(request, HeartbeatResponse(error_code=error, rebalance_reason=reason), version=4)
        self.settle()
        return request

    def at_rest(self, *partitions: int) -> None:
        """Join as a follower and come to rest."""
        self.subscribe()
        self.require_member_id()
        self.joined()
        self.synced(partitions)
        if partitions:
            self.acknowledge(ASSIGNED, *partitions)
        self.beaten()
        assert self.state is MemberState.STABLE

    def shares(self, request: SyncGroupRequest) -> dict[str, tuple[int, ...]]:
        """What a leader gives each member of the topic orders."""
        return {
            entry.member_id: decode_assignment(entry.assignment).partitions.get("orders", ())
            for entry in request.assignments
        }
