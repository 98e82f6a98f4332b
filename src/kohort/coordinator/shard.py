"""One coordinator: all decisions about the groups of one partition of `__consumer_offsets`.

Laws: `handle` and `expire` read the state and decide; `commit` and `apply` change it. Each request gets exactly one
response, by its own decision or by a later one. Only here does a refusal become a response.
Source: architecture rules 1 to 4, 8.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Final, NamedTuple, assert_never

from kohort.base.timers import TimerTable
from kohort.coordinator import commands, configs, delayed_heartbeats, model
from kohort.coordinator.classic.apply import apply_classic
from kohort.coordinator.classic.sessions import decide_expiry as decide_classic_expiry
from kohort.coordinator.classic.sessions import decide_loaded
from kohort.coordinator.commands import CommitOffsets, GroupCommand
from kohort.coordinator.commands.admin import SubmitMoves
from kohort.coordinator.commandtable import DECIDE, Known, check_group_id
from kohort.coordinator.consumer import classicmembers, leave, member_metadata
from kohort.coordinator.consumer.apply import CONSUMER_RECORDS
from kohort.coordinator.consumer.assignment import batching_window, volatile
from kohort.coordinator.consumer.client_assignors.assignment_request import CLIENT_ASSIGNOR_RECORDS
from kohort.coordinator.consumer.client_assignors.heartbeat_fields import follow_assignors
from kohort.coordinator.consumer.heartbeat import build_settled_reply, find_settled
from kohort.coordinator.consumer.member_metadata import follow_published
from kohort.coordinator.consumer.reconciliation import move_throttle, revocation_timeout
from kohort.coordinator.consumer.reconciliation.track_moves import follow_moves
from kohort.coordinator.decision import (
    Arm,
    ComputeTarget,
    Decision,
    Disarm,
    FencePartitions,
    MeasureLogs,
    OpenPartitions,
    Reply,
    TimerKey,
    TimerKind,
)
from kohort.coordinator.disconnection import Renewal, find_renewal
from kohort.coordinator.liveness import told_interval_ms
from kohort.coordinator.membership_updates import UpdatedMembers, drop_watch, find_freed
from kohort.coordinator.offsets import commit as offsets_apply
from kohort.coordinator.ownership import fences
from kohort.coordinator.records import types as facts
from kohort.coordinator.settings import GroupSettings
from kohort.coordinator.static_membership import clock_updates
from kohort.coordinator.static_membership.clock_updates import check_not_fenced, follow_clocks
from kohort.errors import Refused

#: A message quotes the request: a group's id alone may be as long as a string on the wire can be.
_MESSAGE_LIMIT: Final = 1_000
#: Time for which a member is not fenced after its request failed: its client repeats the request sooner.
SPARED_MS: Final = 10_000
#: Kinds of deadlines, of a member or of its group, that fence a member whose request does not arrive in time.
_FENCING: Final[tuple[TimerKind, ...]] = ("session", "rebalance", "pending", "join", "sync")


class EndedHold(NamedTuple):
    """The end of a held heartbeat's hold: its timer, its response, and the session deadline to arm, if any."""

    key: TimerKey
    reply: Reply
    session: tuple[Arm, ...]


class Shard:
    """The groups of one coordinator.

    The shell calls `apply` for each record of the log, then `on_loaded`. It handles `TopicsChanged` with the current
    topics before or after that. Commands and `expire` come next, each decision committed before the next is made.
    """

    def __init__(self, settings: GroupSettings) -> None:
        #: Settings of every group that has no configs of its own.
        self.settings: Final = settings
        #: group id -> its settings, for the groups that have configs; kept by `apply`.
        self._settings_of: Final[dict[str, GroupSettings]] = {}
        #: The state of the groups; other modules read it and do not change it.
        self.groups: Final = model.GroupsState()
        #: All deadlines; the shell calls `shift` on them after the process stood still.
        self.timers: Final[TimerTable[TimerKey]] = TimerTable()
        #: State, settings, timers and topics together, for the functions that decide.
        self._known: Final = Known(
            settings=settings, settings_of=self._settings_of, groups=self.groups, timers=self.timers
        )
        #: Work for the shell, outside of this shard, that `take_errands` has not returned yet.
        self._errands: Final[list[ComputeTarget | MeasureLogs]] = []
        #: Fences and openings for partition leaders that `take_ownership` has not returned yet, in order.
        self._ownership: Final[list[FencePartitions | OpenPartitions]] = []
        #: Members with a held heartbeat for which there may be news.
        self._news: Final = UpdatedMembers()

    def settings_for(self, group_id: str) -> GroupSettings:
        """Return the settings of one group: the broker's, overridden by the group's own configs."""
        return self._settings_of.get(group_id, self.settings)

    def handle(self, command: commands.Command, *, now_ms: int) -> Decision:
        """Decide one command; nothing changes before `commit`."""
        decide = DECIDE.get(type(command))
        assert decide is not None, f"not a command: {command!r}"
        settings = self._settings_of.get(getattr(command, "group_id", ""), self.settings)
        try:
            if isinstance(command, GroupCommand):
                # Every other check of a command may rely on a valid group id.
                check_group_id(command)
                if self.groups.fenced_instances:
                    # A replaced static process would otherwise join anew, and take the instance id back.
                    check_not_fenced(self.groups, command)
            decision = decide(self._known, command, settings, now_ms)
        except Refused as refused:
            assert isinstance(command, GroupCommand), "no request waits for an answer"
            return _refuse(command, refused)
        return self._completed(decision, command, now_ms=now_ms)

    def renew(self, command: commands.ConsumerGroupHeartbeat, *, now_ms: int) -> int | None:
        """Renew the session of a member if its heartbeat changes nothing and the coordinator has no news for it.

        This handles and commits the heartbeat in one step, and holds it if its response may wait.

        Returns:
            The heartbeat interval for the response, ms; the epoch is the command's, and there is no assignment. `None`
            if there is any news: then nothing was done, and `handle` has to decide.
        """
        found = find_settled(self.groups, command)
        if found is None:
            return None
        group, member = found
        if command.hold_ms > 0:
            # A hold is only for a response without news: while members with news wait, this member may be one of them.
            if self._news or not delayed_heartbeats.may_be_held_again(self.groups, command, member):
                return None
            self.apply(delayed_heartbeats.HeartbeatHeld(group_id=command.group_id, command=command))
            self.timers.arm(delayed_heartbeats.hold_key(command.group_id, command.member_id), now_ms + command.hold_ms)
        settings = self._settings_of.get(command.group_id, self.settings)
        self.timers.arm(member.session_key, now_ms + settings.group_consumer_session_timeout_ms)
        return told_interval_ms(settings, group, command, now_ms=now_ms)

    def renew_by_fetch(self, group_id: str, member_id: str, *, epoch: int, now_ms: int) -> Renewal:
        """Renew the session of a member that has sent a fetch, if the group's settings count fetches."""
        settings = self._settings_of.get(group_id, self.settings)
        if not settings.counts_fetches:
            return Renewal(None, False, 0)
        member = group_id, member_id
        found = find_renewal(self.groups, self.timers, settings, member, epoch=epoch, now_ms=now_ms)
        if found.session is not None:
            self.timers.arm(found.session.key, found.session.deadline_ms)
        return found

    def find_ended(self, now_ms: int) -> EndedHold | None:
        """Return the next held heartbeat whose hold ends, with its response, if its member has no news.

        `None` otherwise: then `expire` has to decide.
        """
        key = self.timers.due(now_ms + delayed_heartbeats.SOON_MS)
        command = None if key is None or key.kind != "hold" else self.held(key.group_id, key.member_id)
        if key is None or not isinstance(command, commands.ConsumerGroupHeartbeat):
            return None
        # A hold that is due soon ends now: many holds end together, as each one by itself would wake the broker.
        soon_ms = min(delayed_heartbeats.SOON_MS, command.hold_ms // delayed_heartbeats.SOON_PARTS)
        found = None if self.timers.due(now_ms + soon_ms) is None else find_settled(self.groups, command)
        if found is None:
            return None
        settings = self._settings_of.get(command.group_id, self.settings)
        ends_ms = now_ms + settings.group_consumer_session_timeout_ms
        # A stock client counts its session from this response, and so must the coordinator.
        session = () if command.counts_requests else (Arm(found[1].session_key, ends_ms),)
        return EndedHold(
            key, Reply(command.request, build_settled_reply(command, settings, *found, now_ms=now_ms)), session
        )

    def end_hold(self, ended: EndedHold) -> None:
        """Commit the end of a hold that `find_ended` returned."""
        key = ended.key
        for session in ended.session:
            self.timers.arm(session.key, session.deadline_ms)
        self.timers.disarm(key)
        released = delayed_heartbeats.HeartbeatReleased(group_id=key.group_id, member_id=key.member_id)
        self.apply(released)
        # With no other holds in the group, `note` drops the group's wanted partitions.
        if key.group_id not in self.groups.holds and not self.groups.watches:
            self._news.note(self.groups, (released,), ())

    def held(self, group_id: str, member_id: str) -> commands.AnyHeartbeat | None:
        """Return the held heartbeat of a member, `None` if there is none."""
        return self.groups.holds.get(group_id, {}).get(member_id)

    def find_former(self, command: GroupCommand) -> list[commands.AnyHeartbeat]:
        """Return the held heartbeats of the members that a command names; they get their responses first."""
        held = self.groups.holds.get(command.group_id)
        if held is None:
            return []
        # A classic LeaveGroup may name several members.
        if isinstance(command, commands.LeaveGroup):
            return [held[each.member_id] for each in command.members if each.member_id in held]
        if not isinstance(command, commands.JoinGroup | commands.SyncGroup | commands.AnyHeartbeat):
            return []
        former = held.get(command.member_id)
        return [] if former is None else [former]

    def all_held(self) -> list[commands.AnyHeartbeat]:
        """Return every held heartbeat."""
        return [command for held in self.groups.holds.values() for command in held.values()]

    def decide_answer(self, command: commands.AnyHeartbeat, *, now_ms: int, is_cut: bool = False) -> Decision:
        """Decide the response to a held heartbeat from the present state of its member.

        `is_cut`: another request of the same client ends the hold.
        """
        again = delayed_heartbeats.ask_again(self.groups, command)
        # The client's own request ended the hold: until its next heartbeat, the member cannot be told of news.
        if is_cut and isinstance(again, commands.ConsumerGroupHeartbeat):
            again = replace(again, since_cut_ms=0)
        return delayed_heartbeats.answer(command, self.handle(again, now_ms=now_ms))

    @property
    def has_concerned(self) -> bool:
        """Return whether `decide_news` has members to look at."""
        return bool(self._news)

    def abandon(self, command: commands.AnyHeartbeat | commands.WatchMember, *, now_ms: int) -> None:
        """Drop a held heartbeat or a watch of a client that has disconnected."""
        if isinstance(command, commands.WatchMember):
            if delayed_heartbeats.is_watched(self.groups, command):
                self.commit(drop_watch(command), now_ms=now_ms)
        elif delayed_heartbeats.is_held(self.groups, command):
            self.commit(delayed_heartbeats.drop(command), now_ms=now_ms)

    def decide_news(self, now_ms: int) -> tuple[commands.AnyHeartbeat | commands.WatchMember, Decision] | None:
        """Decide the response to one held heartbeat or watch whose member has news; `None` if none is left."""
        while self._news:
            place, is_sure = self._news.take()
            watch = self.groups.watches.get(place[0], {}).get(place[1])
            if watch is not None:
                decision = self.handle(watch, now_ms=now_ms)
                if any(isinstance(effect, Reply) for effect in decision.effects):
                    # The member's heartbeat may be held as well.
                    self._news.put_back(place, is_sure=is_sure)
                    return watch, decision
            # A watch without news stays; the heartbeat of the same member may still have some.
            command = self.held(*place)
            if command is None:
                continue
            decision = self.handle(delayed_heartbeats.ask_again(self.groups, command), now_ms=now_ms)
            if is_sure or not delayed_heartbeats.is_quiet(command, decision):
                return command, delayed_heartbeats.answer(command, decision)
            # The heartbeat stays held, but the records of its member's state have to be committed.
            kept = delayed_heartbeats.keep(command, decision)
            if kept.records:
                return command, kept
        return None

    def commit(self, decision: Decision, *, now_ms: int) -> list[Reply]:
        """Carry out a decision whose records are appended; return its responses, to send once durable."""
        # Partitions are freed by the records below, so the holders before them are needed.
        freed = find_freed(self.groups, decision.records) if self.groups.holds or self.groups.watches else ()
        for record in decision.records:
            self.apply(record)
        # News is looked for only after all records: an intermediate state is no state to tell.
        if decision.records:
            self._news.note(self.groups, decision.records, freed)
        replies: list[Reply] = []
        for effect in decision.effects:
            match effect:
                case Reply():
                    replies.append(effect)
                case Arm(key, deadline_ms, if_absent):
                    if not if_absent or self.timers.deadline(key) is None:
                        self.timers.arm(key, deadline_ms)
                case Disarm(key):
                    self.timers.disarm(key)
                case FencePartitions() | OpenPartitions():
                    self._ownership.append(effect)
                case ComputeTarget() | MeasureLogs():
                    # The shell takes this work after the commit, and brings the results as commands.
                    self._errands.append(effect)
                case _:
                    assert_never(effect)
        return replies

    def take_errands(self) -> list[ComputeTarget | MeasureLogs]:
        """Take the pending work for the shell, which returns each result as a command."""
        if not self._errands:
            return []
        taken = self._errands[:]
        self._errands.clear()
        return taken

    @property
    def has_ownership(self) -> bool:
        """Return whether there are fences or openings to send to partition leaders."""
        return bool(self._ownership)

    def take_ownership(self) -> list[FencePartitions | OpenPartitions]:
        """Take the fences and openings to send to partition leaders, in order."""
        if not self._ownership:
            return []
        taken = self._ownership[:]
        self._ownership.clear()
        return taken

    def apply(self, record: facts.Record) -> None:
        """Apply one record to the state, alike for a record just decided and for one read from the log."""
        handler = _APPLY.get(type(record))
        if handler is not None:
            handler(self.groups, record)
        elif isinstance(record, facts.GroupConfigsSet | facts.GroupConfigsForgotten):
            self._apply_configs(record)
        else:
            if isinstance(record, facts.ClassicGroupStored):
                # An id is of one type only; compaction may have removed the tombstones of the other type.
                self.groups.consumer.pop(record.group_id, None)
            apply_classic(self.groups.classic, record)

    def shift(self, gap_ms: int) -> None:
        """Postpone all deadlines except those of holds by `gap_ms`, in which the process was suspended."""
        # A hold keeps its deadline: its client was promised a response by then.
        self.timers.shift(gap_ms, but_for=delayed_heartbeats.is_hold)
        # Only members that are behind have deadlines for partitions.
        for group in self.groups.consumer.values():
            for member_id in group.behind:
                revocation_timeout.shift_times(group.members[member_id], gap_ms)
        for clock in self.groups.clocks.values():
            clock_updates.resume(clock, gap_ms)

    def follow_clock(self, by_ms: int) -> None:
        """Shift all deadlines and times in the state by a step of the coordinator's clock."""
        self.timers.shift(by_ms)
        for group in self.groups.consumer.values():
            revocation_timeout.move_times(group, by_ms)
        for clock in self.groups.clocks.values():
            clock_updates.resume(clock, by_ms)

    def next_deadline(self) -> int | None:
        """Return the time at which `expire` has work to do, `None` if there is no such time."""
        return self.timers.next_deadline()

    def expire(self, now_ms: int) -> Decision | None:
        """Decide one deadline that has passed; `None` if there is none left."""
        while (key := self.timers.pop_due(now_ms)) is not None:
            decision = self._decide_expiry(key, now_ms=now_ms)
            if decision is not None:
                return replace(self._completed(decision, None, now_ms=now_ms), due=key)
        return None

    def on_loaded(self, now_ms: int) -> None:
        """Set the deadlines that a restart lost; each of them starts anew with its full time."""
        # No member is fenced for silence while the coordinator was not running.
        for consumer in self.groups.consumer.values():
            self._arm_loaded(consumer, now_ms)
        for group in list(self.groups.classic.values()):
            settings = self.settings_for(group.group_id)
            decision = decide_loaded(group, settings, now_ms=now_ms, groups=self.groups)
            assert all(isinstance(record, facts.VolatileRecord) for record in decision.records), (
                "loading writes nothing"
            )
            replies = self.commit(decision, now_ms=now_ms)
            assert not replies, "no request waits yet"
        for group_id in self.groups.clocks:
            loaded = clock_updates.build_loaded_clock(self.groups, group_id, self.settings_for(group_id), now_ms=now_ms)
            self.commit(loaded, now_ms=now_ms)

    def spare(self, command: GroupCommand, *, now_ms: int) -> None:
        """Postpone the deadlines that would fence the sender of a command, as its records were not written."""
        member_id = getattr(command, "member_id", "")
        # The member has shown that it lives, and gets time to repeat the request.
        for kind in _FENCING:
            for key in {TimerKey(kind, command.group_id, member_id), TimerKey(kind, command.group_id)}:
                deadline_ms = self.timers.deadline(key)
                if deadline_ms is not None and deadline_ms < now_ms + SPARED_MS:
                    self.timers.arm(key, now_ms + SPARED_MS)

    def state_digest(self) -> dict[str, object]:
        """Return the durable state as one comparable value; a fold over the log gives the same."""
        return model.digest_state(self.groups)

    def _completed(self, decision: Decision, command: commands.Command | None, *, now_ms: int) -> Decision:
        """Add the consequences of a decision's records to it; `command`: `None` for a deadline."""
        if not decision.records:
            return decision
        is_by_hand = type(command) is SubmitMoves
        # A commit changes no member, no target and no move, unless its member releases partitions by it.
        if type(command) is not CommitOffsets or command.released is not None:
            # The order matters: each of these reads the records that the earlier ones have added.
            decision = follow_moves(self.groups, decision, is_asked=is_by_hand, now_ms=now_ms)
            decision = follow_published(self.groups, decision, now_ms=now_ms)
            decision = follow_assignors(self.groups, decision, now_ms=now_ms)
        # Only static groups have clocks.
        if self.groups.clocks:
            decision = follow_clocks(self.groups, decision, self.settings_for, is_by_hand=is_by_hand, now_ms=now_ms)
        # Commits of offsets move nothing, and are most of what comes.
        if fences.FOLLOWED.isdisjoint(map(type, decision.records)):
            return decision
        return fences.follow_ownership(self.groups, decision, self.settings_for, base=self.settings, now_ms=now_ms)

    def _decide_expiry(self, key: TimerKey, *, now_ms: int) -> Decision | None:
        if key.kind == "hold":
            held = self.held(key.group_id, key.member_id)
            return None if held is None else self.decide_answer(held, now_ms=now_ms)
        settings = self.settings_for(key.group_id)
        # A classic group handles its clock in its own `decide_expiry`.
        if key.kind == "clock" and key.group_id not in self.groups.classic:
            return leave.decide_clock(self.groups, key.group_id, settings, now_ms=now_ms)
        if key.group_id in self.groups.consumer:
            return leave.decide_expiry(self.groups, key, settings, now_ms=now_ms)
        group = self.groups.classic.get(key.group_id)
        if group is None:
            return None
        decision = decide_classic_expiry(group, key, settings, now_ms=now_ms, groups=self.groups)
        # An obsolete deadline leads to nothing: `expire` goes on to the next one.
        return decision if decision.records or decision.effects else None

    def _arm_loaded(self, group: model.ConsumerGroup, now_ms: int) -> None:
        settings = self.settings_for(group.group_id)
        for member in group.members.values():
            session_ms = classicmembers.session_timeout_ms(member, settings)
            self.timers.arm(member.session_key, now_ms + session_ms)
            if member.state == facts.MemberState.UNREVOKED_PARTITIONS:
                key = TimerKey("rebalance", group.group_id, member.member_id)
                due_ms = now_ms + max(member.rebalance_timeout_ms, 0)
                self.timers.arm(key, due_ms)
                self.apply(revocation_timeout.build_loaded_times(member, group.group_id, due_ms))
        assign_ms = batching_window.loaded_due_ms(group, settings, now_ms=now_ms)
        if assign_ms is not None:
            self.timers.arm(batching_window.assignment_key(group.group_id), assign_ms)
        if group.published is not None:
            base = group.published.loaded_base(now_ms)
            self.apply(member_metadata.BoardLoaded(group_id=group.group_id, base=base))
        # A restart has forgotten which moves had begun: all wait again that the old owner was not told of.
        if settings.has_paced_moves:
            records, effects = move_throttle.hold_open(group, self.groups.image, now_ms=now_ms)
            self.commit(Decision(tuple(records), tuple(effects)), now_ms=now_ms)

    def _apply_configs(self, record: facts.GroupConfigsSet | facts.GroupConfigsForgotten) -> None:
        told_ms = self.settings_for(record.group_id).group_consumer_heartbeat_interval_ms
        if isinstance(record, facts.GroupConfigsSet):
            self.groups.configs[record.group_id] = record.configs
            self._settings_of[record.group_id] = configs.effective_settings(self.settings, record.configs)
        else:
            self.groups.configs.pop(record.group_id, None)
            self._settings_of.pop(record.group_id, None)
        # Members learn of a changed interval at once, also those with a held heartbeat.
        if self.settings_for(record.group_id).group_consumer_heartbeat_interval_ms != told_ms:
            self._news.note_interval(record.group_id)


def _refuse(command: GroupCommand, refused: Refused) -> Decision:
    message = refused.message
    if message is not None and len(message) > _MESSAGE_LIMIT:
        message = f"{message[:_MESSAGE_LIMIT]}..."
    return Decision(effects=(Reply(command.request, commands.Refusal(code=refused.code, message=message)),))


def _apply_image(groups: model.GroupsState, record: facts.TopicImageReplaced) -> None:
    groups.image = record.image


#: Record type -> function that applies it; records of classic groups are not here.
_APPLY: Final[dict[type[facts.Record], Callable[..., None]]] = {
    facts.TopicImageReplaced: _apply_image,
    facts.OffsetCommitted: offsets_apply.apply_offset_committed,
    facts.TransactionalOffsetCommitted: offsets_apply.apply_transactional_offset_committed,
    facts.TransactionCompleted: offsets_apply.apply_transaction_completed,
    facts.OffsetForgotten: offsets_apply.apply_offset_forgotten,
    **CONSUMER_RECORDS,
    **CLIENT_ASSIGNOR_RECORDS,
    **volatile.VOLATILE_RECORDS,
    **clock_updates.CLOCK_RECORDS,
    member_metadata.EditionIssued: member_metadata.apply_edition_issued,
    member_metadata.BoardLoaded: member_metadata.apply_board_loaded,
    fences.LeaseShortened: fences.apply_lease_shortened,
    delayed_heartbeats.HeartbeatHeld: delayed_heartbeats.apply_held,
    delayed_heartbeats.HeartbeatReleased: delayed_heartbeats.apply_released,
    delayed_heartbeats.ListAwaited: delayed_heartbeats.apply_list_awaited,
    delayed_heartbeats.AssignmentTold: delayed_heartbeats.apply_told,
    delayed_heartbeats.MemberWatched: delayed_heartbeats.apply_watched,
    delayed_heartbeats.WatchEnded: delayed_heartbeats.apply_watch_ended,
    delayed_heartbeats.MemberHeard: delayed_heartbeats.apply_heard,
}
