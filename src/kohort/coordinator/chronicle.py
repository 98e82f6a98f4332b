"""What a decision means in words of groups and members: the entries of the journal.

`Chronicle.tell` looks at the state before a decision is carried out, at what led to it and at its records. What changes
nothing is told by `count_of` alone, unless others have waited for that member for a while: `Chronicle.count`.

Laws: nothing is decided or changed here. Every record of membership, epochs and assignments is told; a target is one
entry, however many members it concerns. A group epoch or a rebalance always names its trigger. What is remembered from
one decision to the next only words later rows, and is bounded.
Source: requirements G4 and J1.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, TypeVar

from kohort.coordinator import commands as asked
from kohort.coordinator import parking
from kohort.coordinator import records as facts
from kohort.coordinator.causes import (
    LOST,
    STEP,
    TIMERS,
    Stimulus,
    find_step_reason,
    find_trigger,
    is_removal,
    session_timeout_ms,
)
from kohort.coordinator.courses import Courses
from kohort.coordinator.decision import Arm, Decision, Reply, TimerKey
from kohort.coordinator.model import GroupsState
from kohort.coordinator.settings import GroupSettings
from kohort.coordinator.teller import Teller
from kohort.ids import TopicId
from kohort.journal.ring import END, Journal
from kohort.journal.rows import Entry, RowKind

_Key = TypeVar("_Key")
_Value = TypeVar("_Value")

#: For so long a member has to be waited for until what it does meanwhile is told, milliseconds: others are many.
SLOW_MS: Final = 500
#: Connections that were lost, and groups whose limits were lifted, are remembered up to so many.
_MEMORY_LIMIT: Final = 10_000
_COUNTED_RECORDS: Final = frozenset({facts.OffsetCommitted, facts.TransactionalOffsetCommitted})
_COUNTED: Final[dict[type[asked.Command], str]] = {
    asked.ConsumerGroupHeartbeat: "heartbeats",
    asked.Heartbeat: "heartbeats",
    asked.CommitOffsets: "commits",
    asked.CommitTransactionOffsets: "commits",
    asked.FetchOffsets: "offset_fetches",
}


def count_of(stimulus: Stimulus, decision: Decision) -> str | None:
    """The name under which a decision is only counted, `None` if it has to be told or means nothing."""
    told = next((record for record in decision.records if not isinstance(record, parking.RECORDS)), None)
    if told is not None and type(told) not in _COUNTED_RECORDS:
        return None
    return None if _refusal(decision) is not None else _COUNTED.get(type(stimulus))  # type: ignore[arg-type]


class Chronicle:
    """Tells the decisions of all groups, one after the other."""

    def __init__(self, settings: GroupSettings) -> None:
        """`settings`: of groups that have no configs of their own."""
        self._settings: Final = settings
        #: (group, classic member) -> when its connection was lost and its session cut for it, coordinator time.
        self._lost: Final[dict[tuple[str, str], int]] = {}
        #: Group that may move more since an administrator said so, and has not -> why.
        self._step_reasons: Final[dict[str, str]] = {}
        #: Topics that are gone, by the names that they had: members give them up after that.
        self._former_topics: Final[dict[TopicId, str]] = {}
        #: What goes on in each group.
        self._courses: Final = Courses()

    def write(
        self,
        journal: Journal,
        groups: GroupsState,
        stimulus: Stimulus,
        decision: Decision,
        *,
        now_ms: int,
        is_new: bool = True,
        next_cause: Callable[[], int],
    ) -> list[Entry]:
        """Write a decision that is about to be carried out into a journal, or count it; what was written.

        Args:
            journal: it takes the entries.
            groups: the state before the decision.
            stimulus: what led to it; `is_new`: it was not counted before.
            decision: records and effects.
            now_ms: time of day, milliseconds.
            next_cause: a number for what has none, such as a deadline.
        """
        counted = count_of(stimulus, decision)
        if counted is not None and isinstance(stimulus, asked.GroupCommand):
            return self.count(journal, stimulus, counted, decision.records, now_ms=now_ms) if is_new else []
        entries = self.tell(groups, stimulus, decision, now_ms=now_ms)
        if entries:
            cause = stimulus.cause if isinstance(stimulus, asked.Command) else next_cause()
            journal.record(entries, cause=cause, now_ms=now_ms)
        return entries

    def count(
        self, journal: Journal, command: asked.GroupCommand, what: str, records: Sequence[facts.Record], *, now_ms: int
    ) -> list[Entry]:
        """Count what changes nothing but a number; what it means to those who wait for that member, mostly nothing."""
        journal.count(command.group_id, what)
        course = self._courses.find(command.group_id)
        member_id = "" if course is None else _member_of(command)
        since_ms = None if course is None else course.awaited.get(member_id)
        if course is None or since_ms is None:
            return []
        commits = [record for record in records if isinstance(record, facts.OffsetCommitted)]
        course.commit(member_id, [(record.topic, record.partition) for record in commits], now_ms=now_ms)
        if now_ms - since_ms < SLOW_MS:
            return []
        kind, group_id, did = RowKind.STIMULUS, command.group_id, (("did", what),)
        entries = [Entry(kind=kind, event="meanwhile", group_id=group_id, member_id=member_id, details=did)]
        journal.record(entries, cause=command.cause, now_ms=now_ms)
        return entries

    def tell(self, groups: GroupsState, stimulus: Stimulus, decision: Decision, *, now_ms: int) -> list[Entry]:
        """The entries of one decision that is about to be carried out; empty if there is nothing to tell.

        Args:
            groups: the state before the decision.
            stimulus: what led to it.
            decision: records and effects.
            now_ms: coordinator time.
        """
        refusal = _refusal(decision)
        if refusal is not None:
            return _refused(stimulus, refusal)
        entries: list[Entry] = []
        if isinstance(stimulus, asked.TopicsChanged):
            for topic_id in groups.image.by_id.keys() - stimulus.image.by_id.keys():
                _remember(self._former_topics, topic_id, groups.image.by_id[topic_id].name)
        if isinstance(stimulus, asked.MemberDisconnected) and _cuts_session(decision):
            _remember(self._lost, (stimulus.group_id, stimulus.member_id), now_ms)
            if not decision.records:
                entries = [_stimulus(groups, stimulus, stimulus.group_id), _connection_lost(stimulus)]
        by_group: dict[str, list[facts.Record]] = {}
        for record in decision.records:
            if record.group_id:
                by_group.setdefault(record.group_id, []).append(record)
        for group_id, records in by_group.items():
            trigger = self._trigger(groups, stimulus, group_id, decision, now_ms=now_ms)
            step = self._step(groups, stimulus, group_id, records)
            course = self._courses.of(group_id)
            teller = Teller(
                groups, trigger, group_id, records, step=step, former_topics=self._former_topics, course=course,
                now_ms=now_ms,
            )  # fmt: skip
            told = list(teller.entries())
            if told:
                entries.append(_stimulus(groups, stimulus, group_id))
                entries += told
            if told and told[-1].event == END:
                self._courses.end(group_id)
            self._courses.tidy(group_id)
        return entries

    def _trigger(
        self, groups: GroupsState, stimulus: Stimulus, group_id: str, decision: Decision, *, now_ms: int
    ) -> str:
        if isinstance(stimulus, TimerKey) and stimulus.kind == "session":
            lost_ms = self._lost.pop((group_id, stimulus.member_id), None)
            session_ms = session_timeout_ms(groups, stimulus)
            # Who was heard of after that has had a whole session since.
            if lost_ms is not None and session_ms is not None and now_ms - lost_ms < session_ms:
                return LOST
        return find_trigger(groups, stimulus, group_id, decision)

    def _step(self, groups: GroupsState, stimulus: Stimulus, group_id: str, records: list[facts.Record]) -> str:
        """Why there is an epoch that no change of the group has raised; empty where one has, or where there is none."""
        for record in records:
            if isinstance(record, facts.GroupConfigsSet | facts.GroupConfigsForgotten):
                reason = find_step_reason(groups, record, self._settings)
                if reason:
                    _remember(self._step_reasons, group_id, reason)
            elif isinstance(record, facts.ConsumerGroupEpochSet):
                reason = self._step_reasons.pop(group_id, STEP)
                # The deadline of an assignment follows from a change that was told; only a step has its own epoch.
                if isinstance(stimulus, asked.TargetComputed) or (
                    isinstance(stimulus, TimerKey) and stimulus.kind == "assignment"
                ):
                    return reason
        return ""


def _remember(memory: dict[_Key, _Value], key: _Key, value: _Value) -> None:
    memory.pop(key, None)
    memory[key] = value
    if len(memory) > _MEMORY_LIMIT:
        del memory[next(iter(memory))]


def _cuts_session(decision: Decision) -> bool:
    return any(isinstance(effect, Arm) and effect.key.kind == "session" for effect in decision.effects)


def _connection_lost(stimulus: asked.MemberDisconnected) -> Entry:
    return Entry(
        kind=RowKind.TRANSITION,
        event="connection_lost",
        group_id=stimulus.group_id,
        member_id=stimulus.member_id,
    )


def _refusal(decision: Decision) -> asked.Refusal | None:
    for effect in decision.effects:
        if type(effect) is Reply and type(effect.body) is asked.Refusal:
            return effect.body
    return None


def _refused(stimulus: Stimulus, refusal: asked.Refusal) -> list[Entry]:
    # Whoever describes a group asks for each kind in turn; that it is of the other kind is no event of the group.
    if not isinstance(stimulus, asked.GroupCommand) or isinstance(stimulus, asked.DescribeConsumerGroup):
        return []
    details = [("api", type(stimulus).__name__), ("error", refusal.code.name)]
    if refusal.message:
        details.append(("why", refusal.message))
    return [
        Entry(
            kind=RowKind.DECISION,
            event="refused",
            group_id=stimulus.group_id,
            member_id=_member_of(stimulus),
            details=tuple(details),
        )
    ]


def _stimulus(groups: GroupsState, stimulus: Stimulus, group_id: str) -> Entry:
    details: tuple[tuple[str, str], ...] = ()
    if isinstance(stimulus, TimerKey):
        details = (("deadline", TIMERS.get(stimulus.kind, stimulus.kind)),)
        event = "deadline_passed"
    else:
        event = type(stimulus).__name__
        if isinstance(stimulus, asked.ConsumerGroupHeartbeat):
            # What it said was carried out when it came: what is new is told in its answer.
            held = (("answer", "held"),) if parking.is_held(groups, stimulus) else ()
            details = (("member_epoch", str(stimulus.member_epoch)), *held)
        elif isinstance(stimulus, asked.JoinGroup) and stimulus.reason:
            details = (("reason", stimulus.reason),)
        elif isinstance(stimulus, asked.LeaveGroup):
            by = (("by", "administrator"),) if is_removal(groups, stimulus) else ()
            reasons = dict.fromkeys(member.reason for member in stimulus.members if member.reason)
            details = (*by, *(("reason", reason) for reason in list(reasons)[:1]))
        elif isinstance(stimulus, asked.TargetComputed):
            details = (("outcome", "failed" if stimulus.error else "answered"),)
    return Entry(kind=RowKind.STIMULUS, event=event, group_id=group_id, member_id=_member_of(stimulus), details=details)


def _member_of(stimulus: Stimulus) -> str:
    if isinstance(stimulus, asked.LeaveGroup) and len(stimulus.members) == 1:
        return stimulus.members[0].member_id
    member_id = getattr(stimulus, "member_id", "") or ""
    return str(member_id)
