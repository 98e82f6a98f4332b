"""Reporter of decisions to the journal, in terms of groups and members.

`Reporter.tell` reads a decision's stimulus (the command or deadline), its records, and the state before its commit.
A decision without changes is only counted (`count_of`), unless others have waited a while for that member
(`Reporter.count`).

Laws: nothing is decided or changed here. Every record of membership, epochs and assignments is reported; a target is
one entry for all its members. A group epoch or a rebalance always names its trigger. State that is kept between
decisions serves only the wording of later rows, and is bounded.
Source: requirements G4 and J1.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final, NamedTuple, TypeVar

from kohort.base.timers import TimerTable
from kohort.coordinator import commands, delayed_heartbeats, model, topics
from kohort.coordinator.classic.state import ClassicMember, MemberRemoved, RebalanceBegun
from kohort.coordinator.commands import Command, GroupCommand, InstallAssignment, Refusal
from kohort.coordinator.commands.admin import DescribeConsumerGroup
from kohort.coordinator.configs import effective_settings
from kohort.coordinator.consumer.reconciliation.effective_target import MovesBegun, MovesHeldBack, is_settled, places_of
from kohort.coordinator.decision import Arm, Decision, Reply, TimerKey
from kohort.coordinator.journal_events import decision_view, open_rebalances, triggers
from kohort.coordinator.journal_events.decision_view import shown
from kohort.coordinator.journal_events.entries import (
    CLASSIC_EVENTS,
    CONSUMER_EVENTS,
    STATIC_EVENTS,
    read_owned,
    tell_short,
)
from kohort.coordinator.records import types as facts
from kohort.coordinator.records.types import (
    ConsumerGroupEpochSet,
    ConsumerGroupForgotten,
    ConsumerMemberForgotten,
    ConsumerMemberSubscribed,
    CurrentAssignmentSet,
    MemberTargetSet,
    TargetAssignmentEpochSet,
)
from kohort.coordinator.settings import GroupSettings
from kohort.ids import TopicId
from kohort.journal.ring import ENDS, Journal
from kohort.journal.rows import Entry, RowKind
from kohort.journal.words import PAUSED, Partition, write_partitions

_Key = TypeVar("_Key")
_Value = TypeVar("_Value")

#: Time for which others have to wait for a member until its actions are reported, milliseconds: others are many.
SLOW_MS: Final = 500
#: Most members of a group that are named after a crash; all of them are counted.
FOUND_SHOWN: Final = 1_000
#: Most lost connections, and most groups with lifted limits, that are remembered.
_MEMORY_LIMIT: Final = 10_000
#: Records that name their trigger, or change the name of the next one.
_TRIGGERED: Final = frozenset(
    {
        facts.ConsumerGroupEpochSet,
        facts.ConsumerMemberForgotten,
        facts.GroupConfigsSet,
        facts.GroupConfigsForgotten,
        MemberRemoved,
        RebalanceBegun,
    }
)
#: Events whose rows name the principal of the request, beside the request's own row: members that come, go or change,
#: what is changed by hand, and the rebalances that follow.
SIGNED: Final = frozenset(
    {
        "configs_changed",
        "epoch_bumped",
        "group_forgotten",
        "member_away",
        "member_joined",
        "member_rejoined",
        "member_removed",
        "member_replaced",
        "offsets_forgotten",
        "offsets_reset",
        "rebalance_began",
        "refused",
        "subscription_changed",
    }
)
#: Record type -> function that builds its entries; other types have none.
_EVENTS: Final = {**CONSUMER_EVENTS, **CLASSIC_EVENTS, **STATIC_EVENTS}
_COUNTED_RECORDS: Final = frozenset(
    {facts.OffsetCommitted, facts.TransactionalOffsetCommitted, facts.MemberMetadataSet, facts.MemberMetadataForgotten}
)
_COUNTED: Final[dict[type[Command], str]] = {
    commands.ConsumerGroupHeartbeat: "heartbeats",
    commands.Heartbeat: "heartbeats",
    commands.CommitOffsets: "commits",
    commands.CommitTransactionOffsets: "commits",
    commands.FetchOffsets: "offset_fetches",
}


def count_of(stimulus: triggers.Stimulus, decision: Decision) -> str | None:
    """Return the name of the counter for a decision that is only counted, `None` for any other."""
    # Holds, watches and delivered messages are no events of the group.
    told = next((record for record in decision.records if not isinstance(record, delayed_heartbeats.RECORDS)), None)
    if told is not None and type(told) not in _COUNTED_RECORDS:
        return None
    if _releases(stimulus, decision):
        return None
    return None if _refusal(stimulus, decision) is not None else _COUNTED.get(type(stimulus))  # type: ignore[arg-type]


def _releases(stimulus: triggers.Stimulus, decision: Decision) -> bool:
    """Return whether a commit has released partitions of its member."""
    # Few commits do, and some have very many records.
    if not isinstance(stimulus, commands.CommitOffsets) or stimulus.released is None:
        return False
    return any(isinstance(record, CurrentAssignmentSet) for record in decision.records)


class MemberSigns(NamedTuple):
    """A member's latest signs of life, as milliseconds before now; -1: none is known.

    `overdue_ms`: for how long others have waited for the member; -1: they do not.
    """

    last_heard_ms: int
    last_fetch_ms: int
    last_commit_ms: int
    overdue_ms: int
    session_left_ms: int
    last_poll_ms: int


class Reporter:
    """Reporter of the decisions of all groups, one after the other."""

    def __init__(self, settings: GroupSettings) -> None:
        """Create a reporter; `settings`: those of groups without configs of their own."""
        self._settings: Final = settings
        #: (group, classic member) -> when its connection was lost and its session shortened, coordinator time.
        self._lost: Final[dict[tuple[str, str], int]] = {}
        #: Group that may move more since a change of configs, and has not -> the reason.
        self._step_reasons: Final[dict[str, str]] = {}
        #: Deleted topics -> their former names: members revoke them after that.
        self._former_topics: Final[dict[TopicId, str]] = {}
        #: Open rebalance and moves of each group.
        self._rebalances: Final = open_rebalances.OpenRebalances()
        #: (group, member) -> the latest known end of its connection.
        self._ends: Final[dict[open_rebalances.MemberKey, decision_view.ConnectionEnd]] = {}
        #: Last readers of partitions.
        self.reads: Final = open_rebalances.Reads()

    def report(
        self,
        journal: Journal,
        groups: model.GroupsState,
        stimulus: triggers.Stimulus,
        decision: Decision,
        *,
        timers: TimerTable[TimerKey],
        now_ms: int,
        is_new: bool = True,
        next_cause: Callable[[], int],
    ) -> list[Entry]:
        """Report a decision that is about to be committed, or count it; return the entries.

        `timers`: the deadlines before the decision, which show how long heartbeats are held. `is_new`: the stimulus
        was not counted before. `next_cause`: returns a number for a stimulus without a cause id, such as a deadline.
        """
        if not journal.is_on:
            return []
        counted = count_of(stimulus, decision)
        reset = _reset_of(groups, stimulus, decision) if counted == "commits" else []
        if reset:
            journal.record(reset, cause=stimulus.cause, now_ms=now_ms)  # type: ignore[union-attr]
        # A heartbeat that was counted when it arrived is not counted again with its response.
        if counted is not None and isinstance(stimulus, GroupCommand):
            return self.count(journal, stimulus, counted, decision.records, now_ms=now_ms) if is_new else []
        if _releases(stimulus, decision):
            assert isinstance(stimulus, commands.CommitOffsets), "it is a commit"
            # The commit is noted before the release, whose row says until when the partitions were read.
            self.count(journal, stimulus, "commits", decision.records, now_ms=now_ms)
        entries = self.tell(groups, stimulus, decision, timers=timers, now_ms=now_ms)
        if entries:
            # A passed deadline has no cause id of its own.
            cause = stimulus.cause if isinstance(stimulus, Command) else next_cause()
            if isinstance(stimulus, GroupCommand) and stimulus.principal:
                entries = [_signed(entry, stimulus.principal) for entry in entries]
            journal.record(entries, cause=cause, now_ms=now_ms)
        return entries

    def count(
        self, journal: Journal, command: GroupCommand, what: str, records: Sequence[facts.Record], *, now_ms: int
    ) -> list[Entry]:
        """Count a decision without changes; return entries if others have long waited for its member."""
        journal.count(command.group_id, what)
        if what == "commits" and (committer := _member_of(command)):
            self.reads.note_commit((command.group_id, committer), now_ms)
        # Unless a member waits to read partitions, commits say nothing new about readers.
        if self.reads.awaited and records:
            self._on_commit(journal, command, records, now_ms=now_ms)
        rebalance = self._rebalances.by_group.get(command.group_id)
        member_id = "" if rebalance is None else _member_of(command)
        since_ms = None if rebalance is None else rebalance.awaited.get(member_id)
        if rebalance is None or since_ms is None:
            return []
        commits = [record for record in records if isinstance(record, facts.OffsetCommitted)]
        rebalance.commit(member_id, [(record.topic, record.partition) for record in commits], now_ms=now_ms)
        # Short waits are the rule: they would fill the journal.
        if now_ms - since_ms < SLOW_MS:
            return []
        entries = [Entry(RowKind.STIMULUS, "meanwhile", command.group_id, member_id, (("did", what),))]
        journal.record(entries, cause=command.cause, now_ms=now_ms)
        return entries

    def signs_of(
        self, groups: model.GroupsState, timers: TimerTable[TimerKey], group_id: str, member_id: str, *, now_ms: int
    ) -> MemberSigns | None:
        """Return a member's latest signs of life; `None` if the group has no such member."""
        consumer, classic = groups.find_member(group_id, member_id), groups.classic.get(group_id)
        found = (
            consumer.classic if consumer is not None else None if classic is None else classic.members.get(member_id)
        )
        if consumer is None and found is None:
            return None
        settings = effective_settings(self._settings, groups.configs.get(group_id, {}))
        session_ms = settings.group_consumer_session_timeout_ms if found is None else found.session_timeout_ms
        key = group_id, member_id
        # While its heartbeat or its join is held the member has no deadline: its connection stands.
        deadline_ms = timers.deadline(TimerKey("session", group_id, member_id))
        left_ms = session_ms if deadline_ms is None else max(0, deadline_ms - now_ms)
        heard_ms = 0 if deadline_ms is None else max(0, now_ms - (deadline_ms - session_ms))
        rebalance = self._rebalances.by_group.get(group_id)
        since_ms = None if rebalance is None else rebalance.awaited.get(member_id)
        is_cut = key in self._lost or (consumer is not None and consumer.is_disconnected)
        if is_cut and (end := self._ends.get(key)) is not None:
            # Its session was cut short with its connection: the deadline says nothing of the last sign.
            heard_ms = max(0, now_ms - end.heard_ms)
        fetch_ms, commit_ms, wait_ms = (
            -1 if at is None else max(0, now_ms - at) for at in (*self.reads.latest(key), since_ms)
        )
        # Where fetches count as signs of life the latest one is no heartbeat, which alone tells of polls.
        told_ms = -1 if settings.counts_fetches else self.reads.polled_ms.get(key, -1)
        return MemberSigns(
            heard_ms, fetch_ms, commit_ms, wait_ms, left_ms, told_ms if told_ms < 0 else told_ms + heard_ms
        )

    def on_fetch(
        self,
        journal: Journal,
        keys: Iterable[open_rebalances.MemberKey],
        asked_for: Sequence[Partition],
        *,
        now_ms: int,
        next_cause: Callable[[], int],
    ) -> None:
        """Report partitions that members have begun to read; `keys`: the members that may have fetched."""
        for group_id, member_id in keys:
            entries = self._begin_to_read(group_id, member_id, asked_for, now_ms=now_ms)
            if entries:
                journal.record(entries, cause=next_cause(), now_ms=now_ms)

    def _on_commit(
        self, journal: Journal, command: GroupCommand, records: Sequence[facts.Record], *, now_ms: int
    ) -> None:
        """Report that a member has read the partitions that it commits, if no fetch has shown that yet."""
        named = [(record.topic, record.partition) for record in records if isinstance(record, facts.OffsetCommitted)]
        entries = self._begin_to_read(command.group_id, _member_of(command), named, now_ms=now_ms, is_seen=False)
        if entries:
            journal.record(entries, cause=command.cause, now_ms=now_ms)

    def _begin_to_read(
        self, group_id: str, member_id: str, named: Sequence[Partition], *, now_ms: int, is_seen: bool = True
    ) -> list[Entry]:
        entries: list[Entry] = []
        for last, partitions in self.reads.begin((group_id, member_id), named):
            told = last.details(now_ms) | ({} if is_seen else {"at_most": "true"})
            details = {"from": last.reader, "partitions": write_partitions(partitions), **told}
            entries.append(Entry(RowKind.TRANSITION, "partitions_read", group_id, member_id, shown(details)))
        return entries

    def tell_found(self, groups: model.GroupsState, group_id: str, image: topics.TopicImage) -> list[Entry]:
        """Report members' partitions and the group as found after a crash that may have lost rows."""
        consumer, classic = groups.consumer.get(group_id), groups.classic.get(group_id)
        details: dict[str, str]
        found: list[tuple[str, dict[str, str]]] = []
        if consumer is not None:
            for member in consumer.members.values():
                held = [
                    (image.by_id[topic_id].name, number)
                    # A partition pending revocation is still the member's.
                    for topic_id, number in places_of(member.assigned) | places_of(member.pending_revocation)
                    if topic_id in image.by_id
                ]
                state = {"epoch": str(member.member_epoch), "state": member.state.name}
                found.append((member.member_id, {**_identity_of(member), **state, "held": write_partitions(held)}))
            is_settled = consumer.epoch == consumer.target_epoch and not consumer.behind and not consumer.waiting
            details = {"protocol": "consumer", "epoch": str(consumer.epoch), "rest": "true" if is_settled else ""}
        elif classic is not None:
            for each in classic.members.values():
                own = {**_identity_of(each), "epoch": str(classic.generation), "state": "STABLE"}
                found.append((each.member_id, {**own, "held": write_partitions(read_owned(each.assignment))}))
            details = {"protocol": "classic", "epoch": str(classic.generation), "rest": "true"}
        else:
            # The group is gone: there is nothing to find.
            return []
        details["members"] = str(len(found))
        entries = [
            Entry(RowKind.TRANSITION, "member_found", group_id, member_id, shown(each))
            for member_id, each in found[:FOUND_SHOWN]
        ]
        return [*entries, Entry(RowKind.TRANSITION, "group_found", group_id, "", shown(details))]

    def shift(self, gap_ms: int) -> None:
        """Shift the shortened sessions by a time in which the process was suspended."""
        for place in self._lost:
            self._lost[place] += gap_ms

    def follow_clock(self, by_ms: int) -> None:
        """Shift all times by a step of the clock."""
        self.shift(by_ms)
        self._rebalances.follow_clock(by_ms)
        self.reads.follow_clock(by_ms)
        for key, end in self._ends.items():
            self._ends[key] = decision_view.ConnectionEnd(end.ended_ms + by_ms, end.heard_ms + by_ms)

    def tell(
        self,
        groups: model.GroupsState,
        stimulus: triggers.Stimulus,
        decision: Decision,
        *,
        timers: TimerTable[TimerKey],
        now_ms: int,
    ) -> list[Entry]:
        """Build the entries of a decision that is about to be committed; empty if there are none."""
        refusal = _refusal(stimulus, decision)
        if refusal is not None:
            # A refusal changes nothing, so it has no other entries.
            return _refused(stimulus, refusal)
        entries: list[Entry] = []
        if isinstance(stimulus, commands.TopicsChanged):
            for topic_id in groups.image.by_id.keys() - stimulus.image.by_id.keys():
                # Members revoke the partitions of a deleted topic later, when the image has no name for it.
                _remember(self._former_topics, topic_id, groups.image.by_id[topic_id].name)
        if isinstance(stimulus, commands.MemberDisconnected):
            group_id, member_id = stimulus.group_id, stimulus.member_id
            self._note_end(groups, stimulus, timers, now_ms=now_ms)
            if any(isinstance(effect, Arm) and effect.key.kind == "session" for effect in decision.effects):
                _remember(self._lost, (group_id, member_id), now_ms)
                # Without records the loss of the connection would have no entry.
                if not decision.records:
                    lost = Entry(RowKind.TRANSITION, "connection_lost", group_id, member_id)
                    entries = [_stimulus(groups, stimulus, group_id, held_ms=None), lost]
        by_group: dict[str, list[facts.Record]] = {}
        for record in decision.records:
            # Records of no group (topics, markers) have no entries.
            if record.group_id:
                by_group.setdefault(record.group_id, []).append(record)
        for group_id, records in by_group.items():
            view = self._view(groups, group_id, records, timers, now_ms=now_ms)
            if isinstance(stimulus, InstallAssignment):
                view.computed_by = stimulus.member_id
            if MovesHeldBack in view.kinds:
                view.pace = self._pace(groups, group_id, records)
            # To find a trigger is expensive, and most decisions need none.
            if not view.kinds.isdisjoint(_TRIGGERED):
                view.trigger = self._trigger(groups, stimulus, group_id, decision, now_ms=now_ms)
                view.step = self._step(groups, stimulus, group_id, records)
            told = _tell(view)
            if told:
                held_ms = _held_ms(groups, stimulus, timers, now_ms=now_ms)
                entries.append(_stimulus(groups, stimulus, group_id, held_ms=held_ms))
                entries += told
            # The group is over, and so are its rebalance and moves.
            if told and told[-1].event in ENDS:
                self._rebalances.end(group_id)
            self._rebalances.tidy(group_id)
        return entries

    def _view(
        self,
        groups: model.GroupsState,
        group_id: str,
        records: list[facts.Record],
        timers: TimerTable[TimerKey],
        *,
        now_ms: int,
    ) -> decision_view.DecisionView:
        return decision_view.DecisionView(
            groups,
            group_id,
            records,
            former_topics=self._former_topics,
            rebalance=self._rebalances.of(group_id),
            reads=self.reads,
            ends=self._ends,
            settings=self._settings_of(groups, group_id),
            timers=timers,
            now_ms=now_ms,
        )

    def _settings_of(self, groups: model.GroupsState, group_id: str) -> GroupSettings:
        configs = groups.configs.get(group_id)
        return self._settings if configs is None else effective_settings(self._settings, configs)

    def _note_end(
        self,
        groups: model.GroupsState,
        stimulus: commands.MemberDisconnected,
        timers: TimerTable[TimerKey],
        *,
        now_ms: int,
    ) -> None:
        """Note the end of a member's connection, whether it leads to the member's removal or not."""
        key = TimerKey("session", stimulus.group_id, stimulus.member_id)
        deadline_ms = timers.deadline(key)
        if deadline_ms is not None:
            session_ms = triggers.session_timeout_ms(groups, key)
            if session_ms is None:
                session_ms = self._settings_of(groups, stimulus.group_id).group_consumer_session_timeout_ms
            # The session's deadline tells when the member was last heard of.
            _remember(
                self._ends, (key.group_id, key.member_id), decision_view.ConnectionEnd(now_ms, deadline_ms - session_ms)
            )

    def _trigger(
        self, groups: model.GroupsState, stimulus: triggers.Stimulus, group_id: str, decision: Decision, *, now_ms: int
    ) -> str:
        if isinstance(stimulus, TimerKey) and stimulus.kind == "session":
            lost_ms = self._lost.pop((group_id, stimulus.member_id), None)
            session_ms = triggers.session_timeout_ms(groups, stimulus)
            # A member that was heard of after that has had a whole session since.
            if lost_ms is not None and session_ms is not None and now_ms - lost_ms < session_ms:
                return decision_view.LOST
        return triggers.find_trigger(groups, stimulus, group_id, decision)

    def _pace(self, groups: model.GroupsState, group_id: str, records: list[facts.Record]) -> str:
        """Describe the throttle of a group's moves after the records; empty if moves are not throttled."""
        configs = groups.configs.get(group_id, {})
        for record in records:
            if isinstance(record, facts.GroupConfigsSet | facts.GroupConfigsForgotten):
                configs = record.configs if isinstance(record, facts.GroupConfigsSet) else {}
        settings = effective_settings(self._settings, configs)
        # The pause takes precedence over any rate.
        if settings.group_moves_paused:
            return PAUSED
        return f"{settings.group_moves_per_second:g} per second" if settings.has_paced_moves else ""

    def _step(
        self, groups: model.GroupsState, stimulus: triggers.Stimulus, group_id: str, records: list[facts.Record]
    ) -> str:
        """Return the reason for a new epoch of an unchanged group; empty if the epoch has another reason."""
        told = ""
        for record in records:
            if isinstance(record, facts.GroupConfigsSet | facts.GroupConfigsForgotten):
                reason = triggers.find_step_reason(groups, record, self._settings)
                if reason in triggers.AT_ONCE:
                    told = reason
                elif reason:
                    # The reason is remembered for the next step, which may come much later.
                    _remember(self._step_reasons, group_id, reason)
            elif isinstance(record, facts.ConsumerGroupEpochSet):
                reason = self._step_reasons.pop(group_id, triggers.STEP)
                if told:
                    return told
                # The deadline of an assignment follows from a change that was reported; only a step has its own epoch.
                if isinstance(stimulus, commands.TargetComputed | InstallAssignment) or (
                    isinstance(stimulus, TimerKey) and stimulus.kind == "assignment"
                ):
                    return reason
        return ""


def _tell(view: decision_view.DecisionView) -> list[Entry]:
    """Build the entries of a decision's records for one group; targets and offsets are summarized."""
    told: list[Entry] = []
    for record in view.records:
        tell = _EVENTS.get(type(record))
        if tell is not None:
            told += tell(view, record)
    if view.forgotten_offsets:
        told.append(view.transition("offsets_forgotten", partitions=str(view.forgotten_offsets)))
    # Rest is found last: it depends on all records of the decision.
    at_rest = rest_epoch(view.consumer, view.records)
    if at_rest is not None:
        told.append(view.transition("group_at_rest", epoch=str(at_rest), **view.cost()))
        told += tell_short(view)
    return told


def _signed(entry: Entry, principal: str) -> Entry:
    """Add the request's principal to its own row, and to rows of its effects on members and groups."""
    if entry.kind is not RowKind.STIMULUS and entry.event not in SIGNED:
        return entry
    name, _, label = principal.partition(" ") if principal.startswith("Token:") else (principal, "", "")
    signed = (*entry.details, ("principal", name))
    return entry._replace(details=(*signed, ("label", label)) if label else signed)


def _reset_of(groups: model.GroupsState, stimulus: triggers.Stimulus, decision: Decision) -> list[Entry]:
    """Report a commit that resets offsets of an existing group: its client is not a member.

    Without a login such a commit looks like one of a consumer without group management, and is only counted.
    """
    if not isinstance(stimulus, commands.CommitOffsets) or not stimulus.principal or stimulus.member_id:
        return []
    group_id = stimulus.group_id
    if group_id not in groups.consumer and group_id not in groups.classic:
        return []
    told = [record for record in decision.records if isinstance(record, facts.OffsetCommitted)]
    named = write_partitions((record.topic, record.partition) for record in told)
    rows = [
        Entry(RowKind.STIMULUS, "CommitOffsets", group_id),
        Entry(RowKind.TRANSITION, "offsets_reset", group_id, "", (("partitions", named),)),
    ]
    return [_signed(row, stimulus.principal) for row in rows] if told else []


def _identity_of(member: model.ConsumerMember | ClassicMember) -> dict[str, str]:
    return {"instance": member.instance_id or "", "client": member.client_id, "host": member.client_host}


def _remember(memory: dict[_Key, _Value], key: _Key, value: _Value) -> None:
    memory.pop(key, None)
    memory[key] = value
    # Beyond the limit the oldest entry is forgotten: a later row is less exact.
    if len(memory) > _MEMORY_LIMIT:
        del memory[next(iter(memory))]


def _refusal(stimulus: triggers.Stimulus, decision: Decision) -> Refusal | None:
    """Return the refusal of the stimulus itself, if any; the decision may also refuse waiting requests."""
    request = stimulus.request if isinstance(stimulus, GroupCommand) else None
    for effect in decision.effects:
        if type(effect) is Reply and type(effect.body) is Refusal and effect.request == request:
            return effect.body
    return None


def _refused(stimulus: triggers.Stimulus, refusal: Refusal) -> list[Entry]:
    # A tool that describes a group asks for each type in turn; the refusal of the wrong type is no event of the group.
    # Neither is a watch of a member that has just left.
    quiet = DescribeConsumerGroup | commands.WatchMember
    if not isinstance(stimulus, GroupCommand) or isinstance(stimulus, quiet):
        return []
    details = [("api", type(stimulus).__name__), ("error", refusal.code.name)]
    if refusal.message:
        details.append(("why", refusal.message))
    return [Entry(RowKind.DECISION, "refused", stimulus.group_id, _member_of(stimulus), tuple(details))]


def _held_ms(
    groups: model.GroupsState, stimulus: triggers.Stimulus, timers: TimerTable[TimerKey], *, now_ms: int
) -> int | None:
    """Return how long the heartbeat was held, ms; `None` if the stimulus is no held heartbeat."""
    if not isinstance(stimulus, commands.AnyHeartbeat) or not delayed_heartbeats.is_held(groups, stimulus):
        return None
    return decision_view.held_for_ms(groups, timers, stimulus.group_id, stimulus.member_id, now_ms=now_ms)


def _stimulus(groups: model.GroupsState, stimulus: triggers.Stimulus, group_id: str, *, held_ms: int | None) -> Entry:
    details: tuple[tuple[str, str], ...] = ()
    if isinstance(stimulus, TimerKey):
        details = (("deadline", triggers.TIMERS.get(stimulus.kind, stimulus.kind)),)
        event = "deadline_passed"
    else:
        event = type(stimulus).__name__
        if isinstance(stimulus, commands.ConsumerGroupHeartbeat):
            # The heartbeat was carried out when it arrived: news is reported with its response.
            held = () if held_ms is None else (("answer", "held"), ("held_ms", str(held_ms)))
            details = (("member_epoch", str(stimulus.member_epoch)), *held)
        elif isinstance(stimulus, commands.JoinGroup) and stimulus.reason:
            details = (("reason", stimulus.reason),)
        elif isinstance(stimulus, commands.LeaveGroup):
            # An administrator's removal must not look like a leave.
            by = (("by", "administrator"),) if triggers.is_removal(groups, stimulus) else ()
            reasons = dict.fromkeys(member.reason for member in stimulus.members if member.reason)
            details = (*by, *(("reason", reason) for reason in list(reasons)[:1]))
        elif isinstance(stimulus, commands.TargetComputed):
            details = (("outcome", "failed" if stimulus.error else "answered"),)
    return Entry(RowKind.STIMULUS, event, group_id, _member_of(stimulus), details)


def _member_of(stimulus: triggers.Stimulus) -> str:
    if isinstance(stimulus, commands.LeaveGroup) and len(stimulus.members) == 1:
        return stimulus.members[0].member_id
    member_id = getattr(stimulus, "member_id", "") or ""
    return str(member_id)


# Detection of a group at rest: every member has exactly its target.
#
# Laws: a group is not at rest while a move waits or has just begun.
# Source: requirements G7 and H4.


def rest_epoch(group: model.ConsumerGroup | None, records: Sequence[facts.Record]) -> int | None:
    """Return the epoch at which `records` bring a group to rest; `None`: they do not, or it was at rest.

    `group`: the group before the records, `None` if they create it.
    """
    # A growing group has many members behind, and a record concerns one of them if no move waits.
    if group is not None and len(group.behind) > len(records) and not group.waiting:
        return None
    epoch, target_epoch = (0, 0) if group is None else (group.epoch, group.target_epoch)
    before = epoch, target_epoch
    targets: dict[str, Mapping[TopicId, tuple[int, ...]]] = {}
    assignments: dict[str, CurrentAssignmentSet | None] = {}
    gone: set[str] = set()
    held_back: dict[model.Place, model.WaitingMove] | None = None
    released: set[model.Place] = set()
    begins = False
    for record in records:
        match record:
            case ConsumerGroupEpochSet():
                epoch = record.epoch
            case TargetAssignmentEpochSet():
                target_epoch = record.assignment_epoch
            case MemberTargetSet():
                targets[record.member_id] = record.partitions
            # A new member without an assignment has none of its target yet.
            case ConsumerMemberSubscribed() if group is None or record.member_id not in group.members:
                assignments.setdefault(record.member_id, None)
            case CurrentAssignmentSet():
                assignments[record.member_id] = record
                # A keeper that loses the partition ends the wait of its move.
                released |= _released_by(group, record.member_id, places_of(record.assigned))
            case ConsumerMemberForgotten():
                gone.add(record.member_id)
                released |= _released_by(group, record.member_id, set())
            case MovesHeldBack():
                held_back = record.waiting
            case MovesBegun():
                begins = True
            # A removed group is not at rest.
            case ConsumerGroupForgotten():
                return None
    behind = set() if group is None else group.behind
    waiting = {} if group is None else group.waiting
    # The target is behind, or the group was at rest before: no new rest.
    if epoch != target_epoch or (before == (epoch, target_epoch) and not behind and not waiting):
        return None
    # A move that waits or has just begun is not over.
    if begins or set(waiting if held_back is None else held_back) - released:
        return None
    touched = targets.keys() | assignments.keys() | {waiting[place].taker for place in released}
    # A member behind that no record concerns has another step to take.
    if behind - touched - gone:
        return None
    is_at_rest = all(_is_settled_after(group, assignments, targets, member_id) for member_id in touched - gone)
    return epoch if is_at_rest else None


def _is_settled_after(
    group: model.ConsumerGroup | None,
    assignments: Mapping[str, CurrentAssignmentSet | None],
    targets: Mapping[str, Mapping[TopicId, tuple[int, ...]]],
    member_id: str,
) -> bool:
    # A record of this decision counts, else the member's present state.
    standing = assignments.get(member_id) or (None if group is None else group.members.get(member_id))
    target = targets.get(member_id)
    if target is None:
        target = model.NO_TARGET if group is None else group.targets.get(member_id, model.NO_TARGET)
    return standing is not None and is_settled(standing, target)


def _released_by(group: model.ConsumerGroup | None, member_id: str, kept: set[model.Place]) -> set[model.Place]:
    """Return the deferred moves that end because the old owner has only `kept` left."""
    waiting = {} if group is None else group.waiting
    return {place for place, move in waiting.items() if move.keeper == member_id and place not in kept}
