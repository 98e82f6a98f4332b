"""A classic group and its clients as a dialogue: say something, look at the answers and at what was written."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from kohort.base.timers import TimerTable
from kohort.coordinator.classic.apply import apply_classic
from kohort.coordinator.classic.join import decide_join
from kohort.coordinator.classic.sessions import decide_expiry, decide_heartbeat, decide_leave, decide_loaded
from kohort.coordinator.classic.state import ClassicGroup, ClassicGroupState, durable_view
from kohort.coordinator.classic.sync import decide_sync
from kohort.coordinator.classic.validation import check_commit, decide_sign
from kohort.coordinator.commands import (
    CommitOffsets,
    Done,
    GroupCommand,
    Heartbeat,
    JoinGroup,
    JoinGroupReply,
    LeaveGroup,
    LeaveGroupReply,
    LeavingMember,
    OffsetToCommit,
    Refusal,
    SyncGroup,
    SyncGroupReply,
)
from kohort.coordinator.commandtable import check_group_id
from kohort.coordinator.decision import Arm, Decision, Disarm, Reply, ReplyBody, TimerKey
from kohort.coordinator.records.types import Record, VolatileRecord
from kohort.coordinator.settings import GroupSettings
from kohort.errors import ErrorCode, Refused
from kohort.ids import ZERO_TOPIC_ID, CauseId, RequestToken

GROUP = "orders"
SESSION_MS = 10_000
REBALANCE_MS = 60_000
RANGE = (("range", b"range: t"),)


def snapshot(group: ClassicGroup | None) -> dict[str, object] | None:
    """Everything that a group is, as values of its own."""
    if group is None:
        return None
    values = {name: getattr(group, name) for name in group.__slots__}
    return {name: list(value.items()) if isinstance(value, dict) else value for name, value in values.items()}


class ClassicDialogue:
    """One group, one clock, one log. Every step checks the laws that hold always."""

    session_timeout_ms = SESSION_MS
    rebalance_timeout_ms = REBALANCE_MS

    def __init__(self, settings: GroupSettings) -> None:
        self.settings = settings
        self.now_ms = 1_000_000
        self.groups: dict[str, ClassicGroup] = {}
        self.timers: TimerTable[TimerKey] = TimerTable()
        self.log: list[Record] = []
        self.answers: dict[RequestToken, ReplyBody] = {}
        self.asked = 0

    # What clients say.

    def join(
        self,
        member_id: str = "",
        *,
        fresh: str = "fresh",
        protocols: tuple[tuple[str, bytes], ...] = RANGE,
        protocol_type: str = "consumer",
        session_timeout_ms: int = SESSION_MS,
        rebalance_timeout_ms: int = REBALANCE_MS,
        instance_id: str | None = None,
        requires_known_member_id: bool = False,
        supports_skip_assignment: bool = False,
        group_id: str = GROUP,
    ) -> RequestToken:
        """Send JoinGroup; the token finds its answer."""
        command = JoinGroup(
            cause=CauseId(0),
            request=self._token(),
            group_id=group_id,
            member_id=member_id,
            fresh_member_id=fresh,
            client_id=f"client of {fresh}",
            client_host="/127.0.0.1",
            session_timeout_ms=session_timeout_ms,
            rebalance_timeout_ms=rebalance_timeout_ms,
            protocol_type=protocol_type,
            protocols=protocols,
            instance_id=instance_id,
            requires_known_member_id=requires_known_member_id,
            supports_skip_assignment=supports_skip_assignment,
        )
        self._decide(command, lambda: decide_join(self.group, command, self.settings, now_ms=self.now_ms))
        return command.request

    def sync(
        self,
        member_id: str,
        generation: int,
        assignments: dict[str, bytes] | None = None,
        *,
        instance_id: str | None = None,
        protocol_type: str | None = None,
        protocol_name: str | None = None,
        group_id: str = GROUP,
    ) -> RequestToken:
        """Send SyncGroup."""
        command = SyncGroup(
            cause=CauseId(0),
            request=self._token(),
            group_id=group_id,
            generation_id=generation,
            member_id=member_id,
            instance_id=instance_id,
            protocol_type=protocol_type,
            protocol_name=protocol_name,
            assignments=assignments or {},
        )
        self._decide(command, lambda: decide_sync(self.group, command, self.settings, now_ms=self.now_ms, image=None))
        return command.request

    def heartbeat(
        self, member_id: str, generation: int, *, instance_id: str | None = None, group_id: str = GROUP
    ) -> ErrorCode:
        """Send Heartbeat, which is always answered at once."""
        command = Heartbeat(
            cause=CauseId(0),
            request=self._token(),
            group_id=group_id,
            generation_id=generation,
            member_id=member_id,
            instance_id=instance_id,
        )
        self._decide(command, lambda: decide_heartbeat(self.group, command, now_ms=self.now_ms))
        return self.error(command.request)

    def leave(self, *members: str | LeavingMember, group_id: str = GROUP) -> list[ErrorCode]:
        """Send LeaveGroup; one outcome for each."""
        leaving = tuple(m if isinstance(m, LeavingMember) else LeavingMember(member_id=m) for m in members)
        command = LeaveGroup(cause=CauseId(0), request=self._token(), group_id=group_id, members=leaving)
        self._decide(command, lambda: decide_leave(self.group, command, self.settings, now_ms=self.now_ms))
        body = self.answers[command.request]
        if isinstance(body, Refusal):
            return [body.code]
        assert isinstance(body, LeaveGroupReply)
        assert tuple(member for member, _ in body.members) == leaving
        return [code for _, code in body.members]

    def commit(self, member_id: str, generation: int, *, instance_id: str | None = None) -> ErrorCode:
        """Ask whether OffsetCommit may pass, and let it have its effects."""
        command = CommitOffsets(
            cause=CauseId(0),
            request=self._token(),
            group_id=GROUP,
            member_id=member_id,
            generation_or_member_epoch=generation,
            offsets=(OffsetToCommit(topic="t", topic_id=ZERO_TOPIC_ID, partition=0, offset=1),),
            instance_id=instance_id,
        )

        def decide() -> Decision:
            check_commit(self.group, command)
            sign = decide_sign(self.group, command, now_ms=self.now_ms)
            return Decision(sign.records, (*sign.effects, Reply(command.request, Done())))

        self._decide(command, decide)
        return self.error(command.request)

    # What time does.

    def advance(self, ms: int) -> None:
        """Let time pass; deadlines fire in their order, each at its own time."""
        until_ms = self.now_ms + ms
        while (deadline := self.timers.next_deadline()) is not None and deadline <= until_ms:
            self.now_ms = max(self.now_ms, deadline)
            key = self.timers.pop_due(self.now_ms)
            assert key is not None
            before = snapshot(self.group)
            decision = decide_expiry(self.group, key, self.settings, now_ms=self.now_ms)
            assert snapshot(self.group) == before, "deciding changed the group"
            self._carry_out(decision)
        self.now_ms = until_ms

    def restart(self) -> None:
        """Lose everything but the log; parked requests break with their connections."""
        for request in self.parked:
            self.answers[request] = Refusal(code=ErrorCode.NETWORK_EXCEPTION)
        self.groups, self.timers = self.fold(), TimerTable()
        for group in self.groups.values():
            self._carry_out(decide_loaded(group, self.settings, now_ms=self.now_ms))

    # What there is to see.

    @property
    def group(self) -> ClassicGroup | None:
        return self.groups.get(GROUP)

    @property
    def state(self) -> str:
        return self.group.state.value if self.group is not None else "Dead"

    @property
    def members(self) -> list[str]:
        return list(self.group.members) if self.group is not None else []

    @property
    def parked(self) -> list[RequestToken]:
        return [RequestToken(i) for i in range(1, self.asked + 1) if RequestToken(i) not in self.answers]

    def is_parked(self, request: RequestToken) -> bool:
        return request not in self.answers

    def error(self, request: RequestToken) -> ErrorCode:
        """The error code of an answer, however it says it."""
        body = self.answers[request]
        match body:
            case Refusal(code=code):
                return code
            case JoinGroupReply(error=code) | SyncGroupReply(error=code):
                return code
            case _:
                return ErrorCode.NONE

    def joined(self, request: RequestToken) -> JoinGroupReply:
        """The answer of a JoinGroup that came through."""
        body = self.answers[request]
        assert isinstance(body, JoinGroupReply)
        assert body.error == ErrorCode.NONE, body
        return body

    def assignment(self, request: RequestToken) -> bytes:
        """The assignment in the answer of a SyncGroup that came through."""
        body = self.answers[request]
        assert isinstance(body, SyncGroupReply)
        assert body.error == ErrorCode.NONE, body
        return body.assignment

    def deadline(self, kind: str, member_id: str = "") -> int | None:
        """In how many milliseconds a timer fires; `None` if it is not armed."""
        at_ms = self.timers.deadline(TimerKey(kind, GROUP, member_id))  # type: ignore[arg-type]
        return None if at_ms is None else at_ms - self.now_ms

    def fold(self) -> dict[str, ClassicGroup]:
        """The groups as a restart would find them."""
        groups: dict[str, ClassicGroup] = {}
        for record in self.log:
            apply_classic(groups, record)
        return groups

    # Short cuts.

    def stable(self, *member_ids: str, protocols: tuple[tuple[str, bytes], ...] = RANGE) -> int:
        """A Stable group of these members (the first leads), each assigned its own name; the generation."""
        for member_id in member_ids:
            self.join(fresh=member_id, protocols=protocols)
            for other in [name for name in self.members if name != member_id]:
                self.join(other, protocols=protocols)
            assert not self.parked
        assert self.group is not None
        generation = self.group.generation
        for member_id in reversed(member_ids):
            self.sync(member_id, generation, {name: name.encode() for name in member_ids})
        assert self.state == "Stable"
        return generation

    def _token(self) -> RequestToken:
        self.asked += 1
        return RequestToken(self.asked)

    def _decide(self, command: GroupCommand, decide: Callable[[], Decision]) -> None:
        before = snapshot(self.group)
        try:
            check_group_id(command)
            decision = decide()
        except Refused as refused:
            decision = Decision(effects=(Reply(command.request, Refusal(code=refused.code)),))
        assert snapshot(self.group) == before, "deciding changed the group"
        self._carry_out(decision)

    def _carry_out(self, decision: Decision) -> None:
        generation = self.group.generation if self.group is not None else 0
        for record in decision.records:
            if not isinstance(record, VolatileRecord):
                self.log.append(record)
            apply_classic(self.groups, record)
        for effect in decision.effects:
            match effect:
                case Arm(key, deadline_ms):
                    self.timers.arm(key, deadline_ms)
                case Disarm(key):
                    self.timers.disarm(key)
                case Reply(request, body):
                    assert request not in self.answers, f"request {request} was answered twice"
                    assert 0 < request <= self.asked
                    self.answers[request] = body
        self._check_laws(generation)

    def _check_laws(self, generation: int) -> None:
        living = {name: view for name, group in self.groups.items() if (view := durable_view(group)) is not None}
        assert {name: durable_view(group) for name, group in self.fold().items()} == living
        group = self.group
        if group is None:
            assert not self.parked
            return
        assert group.generation >= generation, "the generation went back"
        assert (group.leader is None) == (not group.members)
        assert group.leader is None or group.leader in group.members
        assert not group.pending.keys() & group.members.keys()
        assert sorted([*group.awaiting_join.values(), *group.awaiting_sync.values()]) == self.parked
        assert not group.awaiting_join or group.state is ClassicGroupState.PREPARING_REBALANCE
        assert not group.awaiting_sync or group.state is ClassicGroupState.COMPLETING_REBALANCE
        assert group.unsynced.keys() <= group.members.keys()
        self._check_derived(group)
        self._check_deadlines(group)

    def _check_derived(self, group: ClassicGroup) -> None:
        counts: dict[str, int] = {}
        for name in (name for member in group.members.values() for name in member.protocol_names):
            counts[name] = counts.get(name, 0) + 1
        assert group.protocol_counts == counts
        assert not group.members or len(group.members) in counts.values(), "no protocol is common to all"
        assert group.metadata_bytes == sum(member.metadata_bytes for member in group.members.values())
        held = {m.instance_id: m.member_id for m in group.members.values() if m.instance_id is not None}
        assert group.instance_ids == held

    def _check_deadlines(self, group: ClassicGroup) -> None:
        """Everybody who may be waited for has a deadline."""
        for member_id in group.members:
            waits = member_id in group.awaiting_join or member_id in group.awaiting_sync
            assert waits or self.deadline("session", member_id) is not None, f"{member_id} would never be given up"
        for member_id in group.pending:
            assert self.deadline("pending", member_id) is not None
        if group.state is ClassicGroupState.PREPARING_REBALANCE:
            kind = "join" if group.initial_remaining_ms is None else "initial_delay"
            assert self.deadline(kind) is not None
        else:
            assert self.deadline("join") is None
            assert self.deadline("initial_delay") is None
        assert bool(group.unsynced) == (self.deadline("sync") is not None)


@pytest.fixture
def dialogue() -> ClassicDialogue:
    """A group that does not exist yet; no initial delay."""
    return ClassicDialogue(GroupSettings())


@pytest.fixture
def make_dialogue() -> Callable[..., ClassicDialogue]:
    """The same with settings of one's own."""

    def make(**settings: int) -> ClassicDialogue:
        return ClassicDialogue(GroupSettings(**settings))  # type: ignore[arg-type]

    return make
