"""Builder of a decision about a classic group that takes several steps, and of its responses.

Laws: the live group is not changed. Each step is applied to a copy by the same `apply` that the shard uses, so that the
copy is the future group. The collected records and effects become one `Decision`.
"""

from __future__ import annotations

from collections.abc import Iterable

from kohort.coordinator import commands, model, topics
from kohort.coordinator.classic import apply, state
from kohort.coordinator.decision import Arm, Decision, Disarm, Effect, Reply, ReplyBody, TimerKey, TimerKind
from kohort.coordinator.records import types as facts
from kohort.errors import ErrorCode
from kohort.ids import RequestToken


class PendingDecision:
    """Records and effects of one decision, and the group after them.

    `group`: the live group, `None` if it does not exist yet. `image`: `None` if topics do not matter. `known`: state
    with the clock of a static group, `None` if the group has no clock.
    """

    __slots__ = ("_effects", "_groups", "_offline", "_records", "group_id", "image", "known", "now_ms")

    def __init__(
        self,
        group: state.ClassicGroup | None,
        group_id: str,
        *,
        now_ms: int,
        image: topics.TopicImage | None = None,
        known: model.GroupsState | None = None,
    ) -> None:
        self.group_id = group_id
        self.now_ms = now_ms
        self.image = image
        self.known = known
        clock = None if known is None else known.clocks.get(group_id)
        self._offline = set() if clock is None else set(clock.offline)
        self._groups = {} if group is None else {group_id: group.copy()}
        self._records: list[facts.Record] = []
        self._effects: list[Effect] = []

    @property
    def group(self) -> state.ClassicGroup:
        """Return the group after the steps so far."""
        return self._groups[self.group_id]

    @property
    def offline(self) -> list[state.ClassicMember]:
        """Return the offline members after the steps so far; the group does not wait for them."""
        members = self.group.members
        return [members[member_id] for member_id in sorted(self._offline & members.keys())] if self._offline else []

    def is_offline(self, member_id: str) -> bool:
        """Return whether a member is offline after the steps so far."""
        return member_id in self._offline

    def record(self, record: facts.Record) -> None:
        """Add a record and apply it to the copy."""
        match record:
            case facts.OfflineMemberSet():
                self._offline.add(record.member_id)
            case facts.OfflineMemberForgotten():
                self._offline.discard(record.member_id)
            case facts.StaticClockSet() | facts.StaticClockForgotten() | facts.StaticMemberFenced():
                pass
            case _:
                apply.apply_classic(self._groups, record)
        self._records.append(record)

    def add(self, records: Iterable[facts.Record], effects: Iterable[Effect]) -> None:
        """Add records and effects that another function returned."""
        for record in records:
            self.record(record)
        self._effects.extend(effects)

    def reply(self, request: RequestToken, body: ReplyBody) -> None:
        """Reply to one request."""
        self._effects.append(Reply(request, body))

    def arm(self, kind: TimerKind, after_ms: int, member_id: str = "") -> None:
        """Set a deadline of the group or of one member, `after_ms` from now."""
        self._effects.append(Arm(TimerKey(kind, self.group_id, member_id), self.now_ms + after_ms))

    def disarm(self, kind: TimerKind, member_id: str = "") -> None:
        """Remove a deadline of the group or of one member."""
        self._effects.append(Disarm(TimerKey(kind, self.group_id, member_id)))

    def decision(self) -> Decision:
        """Build the decision from the collected records and effects."""
        return Decision(tuple(self._records), tuple(self._effects))


# Replies to members of a classic group: generation, assignment or error.
#
# Source: Apache Kafka's `GroupMetadataManager` (completeClassicGroupJoin, propagateAssignment).


def build_join_reply(group: state.ClassicGroup, member: state.ClassicMember) -> commands.JoinGroupReply:
    """Build the JoinGroup reply to one member; only the leader gets the member list."""
    is_leader = group.leader == member.member_id
    return commands.JoinGroupReply(
        error=ErrorCode.NONE,
        generation_id=group.generation,
        protocol_type=group.protocol_type,
        protocol_name=group.protocol_name,
        leader=group.leader or "",
        member_id=member.member_id,
        members=tuple(
            commands.JoinedMember(
                member_id=other.member_id, instance_id=other.instance_id, metadata=other.metadata(group.protocol_name)
            )
            for other in group.members.values()
        )
        if is_leader
        else (),
    )


def build_join_error(error: ErrorCode, member_id: str) -> commands.JoinGroupReply:
    """Build the reply to a failed JoinGroup; `member_id` is the id for the client's next attempt."""
    return commands.JoinGroupReply(error=error, member_id=member_id)


def build_sync_reply(group: state.ClassicGroup, member: state.ClassicMember) -> commands.SyncGroupReply:
    """Build the SyncGroup reply with one member's assignment."""
    return commands.SyncGroupReply(
        error=ErrorCode.NONE,
        protocol_type=group.protocol_type,
        protocol_name=group.protocol_name,
        assignment=member.assignment,
    )


def build_sync_error(error: ErrorCode) -> commands.SyncGroupReply:
    """Build the reply to a failed SyncGroup."""
    return commands.SyncGroupReply(error=error, protocol_type=None, protocol_name=None, assignment=b"")
