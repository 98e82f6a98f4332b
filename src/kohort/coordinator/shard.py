"""One coordinator: everything that is decided about the groups of one partition of `__consumer_offsets`.

Laws: `handle` and `expire` look and decide; `commit` and `apply` change. A request is answered exactly once, by the
decision that it leads to or by a later one. Every refusal becomes a reply here and nowhere else.
Source: architecture rules 1 to 4, 8.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Final, assert_never

from kohort.coordinator import commands as asked
from kohort.coordinator import parking
from kohort.coordinator import records as facts
from kohort.coordinator.classic import requests as classic
from kohort.coordinator.classic.apply import apply_classic
from kohort.coordinator.consumer import classicmembers
from kohort.coordinator.consumer.apply import CONSUMER_RECORDS
from kohort.coordinator.consumer.describe import decide_describe
from kohort.coordinator.consumer.handover import build_loaded_times, shift_times
from kohort.coordinator.consumer.heartbeat import decide_heartbeat, find_settled
from kohort.coordinator.consumer.leave import decide_expiry, decide_removal
from kohort.coordinator.consumer.moves import MoveTimes, decide_describe_moves
from kohort.coordinator.consumer.offload import decide_computed
from kohort.coordinator.consumer.pace import hold_open
from kohort.coordinator.consumer.switch import decide_submit
from kohort.coordinator.consumer.tombstones import build_group_tombstones
from kohort.coordinator.consumer.volatile import VOLATILE_RECORDS
from kohort.coordinator.consumer.window import assignment_key, loaded_due_ms
from kohort.coordinator.decision import Arm, ComputeTarget, Decision, Disarm, Reply, TimerKey
from kohort.coordinator.digest import digest_state
from kohort.coordinator.disconnect import decide_disconnected
from kohort.coordinator.groupconfigs import (
    apply_configs_forgotten,
    apply_configs_set,
    decide_alter,
    decide_describe_configs,
    decide_list_configs,
    effective_settings,
)
from kohort.coordinator.groupid import check_group_id_length
from kohort.coordinator.listing import decide_describe_classic, decide_list
from kohort.coordinator.liveness import settled_interval_ms
from kohort.coordinator.model import ConsumerGroup, GroupsState
from kohort.coordinator.news import News, find_freed
from kohort.coordinator.offsets import apply as offsets_apply
from kohort.coordinator.offsets.commit import decide_commit
from kohort.coordinator.offsets.delete import decide_delete_group, decide_delete_offsets
from kohort.coordinator.offsets.expiry import decide_expire
from kohort.coordinator.offsets.fetch import decide_fetch
from kohort.coordinator.offsets.transactions import decide_commit_in_transaction, decide_complete
from kohort.coordinator.settings import GroupSettings
from kohort.coordinator.topicchange import decide_topics_changed
from kohort.errors import Refused
from kohort.timers import TimerTable

#: A message quotes what was sent: a group's name alone may be as long as a string on the wire can be.
_MESSAGE_LIMIT: Final = 1_000


class Shard:
    """The groups of one coordinator.

    The shell calls `apply` for each record of the log, then `on_loaded`, and handles `TopicsChanged` with the topics as
    they are (in either order); after that, commands and `expire`, each decision committed before the next is made.
    """

    def __init__(self, settings: GroupSettings) -> None:
        #: Of every group that has no configs of its own.
        self.settings: Final = settings
        #: group id -> its settings, for the groups that have configs; kept by `apply`.
        self._settings_of: Final[dict[str, GroupSettings]] = {}
        #: What is known; read it, do not change it.
        self.groups: Final = GroupsState()
        #: Every deadline; the shell may `shift` them all after it stood still.
        self.timers: Final[TimerTable[TimerKey]] = TimerTable()
        #: How far partitions are that move.
        self._move_times: Final = MoveTimes()
        #: What was decided to be computed beside this shard and nobody took yet.
        self._computations: Final[list[ComputeTarget]] = []
        #: For whom of those whose heartbeat is held there may be news.
        self._news: Final = News()

    def settings_for(self, group_id: str) -> GroupSettings:
        """The settings of one group: the broker's, but for the group's own configs."""
        return self._settings_of.get(group_id, self.settings)

    def handle(self, command: asked.Command, *, now_ms: int) -> Decision:
        """Decide what one command leads to; nothing is changed before `commit`."""
        if type(command) is asked.ConsumerGroupHeartbeat:
            try:
                settings = self._settings_of.get(command.group_id, self.settings)
                decision = decide_heartbeat(self.groups, command, settings, now_ms=now_ms)
            except Refused as refused:
                return _refuse(command, refused)
            if command.hold_ms < 0:
                return decision
            return parking.hold_heartbeat(self.groups, command, decision, now_ms=now_ms)
        if isinstance(command, asked.TopicsChanged):
            return decide_topics_changed(self.groups, command, self.settings_for, now_ms=now_ms)
        if isinstance(command, asked.TargetComputed):
            return decide_computed(self.groups, command, self.settings_for(command.group_id), now_ms=now_ms)
        if isinstance(command, asked.ListGroups):
            return decide_list(self.groups, command)
        if isinstance(command, asked.CompleteTransaction):
            return decide_complete(self.groups, command)
        if isinstance(command, asked.ExpireOffsets):
            return decide_expire(self.groups, command, self.settings, now_ms=now_ms)
        if isinstance(command, asked.ListGroupConfigs):
            return decide_list_configs(self.groups, command)
        if isinstance(command, asked.MemberDisconnected):
            settings = self.settings_for(command.group_id)
            return decide_disconnected(self.groups, command, settings, self.timers, now_ms=now_ms)
        assert isinstance(command, asked.GroupCommand), f"not a command: {command!r}"
        try:
            return self._decide(command, now_ms=now_ms)
        except Refused as refused:
            return _refuse(command, refused)

    def renew(self, command: asked.ConsumerGroupHeartbeat, *, now_ms: int) -> int | None:
        """Handle and commit a heartbeat that was handled before, word for word, if nothing is new by now.

        Returns:
            The interval that the member is told, ms; its epoch is the command's, and it learns of no assignment. `None`
            if anything is new: then nothing was done, and `handle` decides.
        """
        found = find_settled(self.groups, command)
        if found is None:
            return None
        group, member = found
        settings = self._settings_of.get(command.group_id, self.settings)
        self.timers.arm(member.session_key, now_ms + settings.group_consumer_session_timeout_ms)
        return settled_interval_ms(settings, len(group.members), command.proposed_heartbeat_interval_ms)

    def held(self, group_id: str, member_id: str) -> asked.AnyHeartbeat | None:
        """The heartbeat of that member that is held."""
        return self.groups.holds.get(group_id, {}).get(member_id)

    def find_former(self, command: asked.GroupCommand) -> list[asked.AnyHeartbeat]:
        """Heartbeats that are held of those who speak in a command: it comes behind them."""
        held = self.groups.holds.get(command.group_id)
        if held is None:
            return []
        if isinstance(command, asked.LeaveGroup):
            return [held[each.member_id] for each in command.members if each.member_id in held]
        former = held.get(getattr(command, "member_id", ""))
        return [] if former is None else [former]

    def all_held(self) -> list[asked.AnyHeartbeat]:
        """Every heartbeat that is held."""
        return [command for held in self.groups.holds.values() for command in held.values()]

    def decide_answer(self, command: asked.AnyHeartbeat, *, now_ms: int, is_cut: bool = False) -> Decision:
        """Answer a heartbeat that is held, with what its member would be told now.

        `is_cut`: something else of the same client is the reason.
        """
        again = parking.ask_again(self.groups, command)
        if is_cut and isinstance(again, asked.ConsumerGroupHeartbeat):
            again = replace(again, since_cut_ms=0)
        return parking.answer(command, self.handle(again, now_ms=now_ms))

    @property
    def has_concerned(self) -> bool:
        """Whether `decide_news` has something to look at."""
        return bool(self._news)

    def decide_news(self, now_ms: int) -> tuple[asked.AnyHeartbeat, Decision] | None:
        """Answer one held heartbeat for whose member there is news; call it until there is none."""
        while self._news:
            place, is_sure = self._news.take()
            command = self.held(*place)
            if command is None:
                continue
            decision = self.handle(parking.ask_again(self.groups, command), now_ms=now_ms)
            if is_sure or not parking.is_quiet(command, decision):
                return command, parking.answer(command, decision)
            kept = parking.keep(command, decision)
            if kept.records:
                return command, kept
        return None

    def commit(self, decision: Decision, *, now_ms: int) -> list[Reply]:
        """Carry a decision out, once its records are appended; returns the answers to release when they are durable."""
        freed = find_freed(self.groups, decision.records) if self.groups.holds else ()
        if decision.records:
            self._move_times.note(self.groups, decision, now_ms=now_ms)
        for record in decision.records:
            self.apply(record)
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
                case ComputeTarget():
                    self._computations.append(effect)
                case _:
                    assert_never(effect)
        return replies

    def take_computations(self) -> list[ComputeTarget]:
        """What assignors beside this shard have to do now; the shell brings each result back as `TargetComputed`."""
        if not self._computations:
            return []
        taken = self._computations[:]
        self._computations.clear()
        return taken

    def apply(self, record: facts.Record) -> None:
        """Change the state as one record says; the same for a record that was just decided and one from the log."""
        handler = _APPLY.get(type(record))
        if handler is not None:
            handler(self.groups, record)
            return
        if isinstance(record, facts.GroupConfigsSet | facts.GroupConfigsForgotten):
            self._apply_configs(record)
            return
        if isinstance(record, facts.ClassicGroupStored):
            # An id is of one kind only; the tombstones of the other kind may be what compaction took away.
            self.groups.consumer.pop(record.group_id, None)
        apply_classic(self.groups.classic, record)

    def shift(self, gap_ms: int) -> None:
        """Nobody looked at deadlines for so long: all are that much later but for those that clients were promised."""
        self.timers.shift(gap_ms, but_for=parking.is_hold)
        for group in self.groups.consumer.values():
            for member_id in group.behind:
                shift_times(group.members[member_id], gap_ms)

    def next_deadline(self) -> int | None:
        """The time at which `expire` has something to do, `None` if there is no such time."""
        return self.timers.next_deadline()

    def expire(self, now_ms: int) -> Decision | None:
        """Decide what one deadline that has passed leads to; call it until there is none."""
        while (key := self.timers.pop_due(now_ms)) is not None:
            decision = self._decide_expiry(key, now_ms=now_ms)
            if decision is not None:
                return replace(decision, due=key)
        return None

    def on_loaded(self, now_ms: int) -> None:
        """Set the deadlines that a restart lost: nobody is fenced for having been silent while nobody listened."""
        for consumer in self.groups.consumer.values():
            self._arm_loaded(consumer, now_ms)
        for group in list(self.groups.classic.values()):
            decision = classic.decide_loaded(group, self.settings_for(group.group_id), now_ms=now_ms)
            assert all(isinstance(record, facts.VolatileRecord) for record in decision.records), (
                "loading writes nothing"
            )
            replies = self.commit(decision, now_ms=now_ms)
            assert not replies, "nobody asked yet"

    def state_digest(self) -> dict[str, object]:
        """The durable state as one comparable value: what a fold over the log must give as well."""
        return digest_state(self.groups)

    def _decide(self, command: asked.GroupCommand, *, now_ms: int) -> Decision:
        check_group_id_length(command.group_id)
        groups, settings = self.groups, self.settings_for(command.group_id)
        match command:
            case asked.CommitTransactionOffsets():
                return decide_commit_in_transaction(groups, command, settings, now_ms=now_ms)
            case asked.CommitOffsets():
                return decide_commit(groups, command, settings, now_ms=now_ms)
            case asked.FetchOffsets():
                return decide_fetch(groups, command)
            case asked.JoinGroup() | asked.SyncGroup() | asked.Heartbeat() | asked.LeaveGroup():
                return self._decide_classic(command, now_ms=now_ms)
            case asked.DescribeConsumerGroup():
                return decide_describe(groups, command, settings)
            case asked.SubmitMoves():
                return decide_submit(groups, command, settings, now_ms=now_ms)
            case asked.DescribeMoves():
                return decide_describe_moves(groups, command, self._move_times)
            case asked.DescribeClassicGroup():
                return decide_describe_classic(groups, command)
            case asked.DeleteOffsets():
                return decide_delete_offsets(groups, command)
            case asked.DeleteGroup():
                return decide_delete_group(groups, command)
            case asked.AlterGroupConfigs():
                return decide_alter(groups, command, self.settings, self.timers, now_ms=now_ms)
            case asked.DescribeGroupConfigs():
                return decide_describe_configs(groups, command, self.settings)
            case _:
                raise AssertionError(f"not a command: {command!r}")

    def _decide_classic(
        self, command: asked.JoinGroup | asked.SyncGroup | asked.Heartbeat | asked.LeaveGroup, *, now_ms: int
    ) -> Decision:
        consumer = self.groups.consumer.get(command.group_id)
        group = self.groups.classic.get(command.group_id)
        settings = self.settings_for(command.group_id)
        if isinstance(command, asked.JoinGroup):
            if consumer is not None and consumer.members:
                return classicmembers.decide_join(self.groups, command, settings, now_ms=now_ms)
            decision = classic.decide_join(group, command, settings, now_ms=now_ms, image=self.groups.image)
            if consumer is None or not decision.records:
                return decision
            timer = Disarm(assignment_key(command.group_id))
            return Decision((*build_group_tombstones(consumer), *decision.records), (timer, *decision.effects))
        if isinstance(command, asked.LeaveGroup):
            if consumer is not None:
                return decide_removal(self.groups, command, settings, now_ms=now_ms)
            return classic.decide_leave(group, command, settings, now_ms=now_ms)
        image = self.groups.image
        if isinstance(command, asked.SyncGroup):
            if consumer is not None:
                return classicmembers.decide_sync(consumer, command, image, now_ms=now_ms)
            return classic.decide_sync(group, command, settings, now_ms=now_ms, image=image)
        if consumer is not None:
            decision = classicmembers.decide_heartbeat(consumer, command, image, now_ms=now_ms)
        else:
            decision = classic.decide_heartbeat(group, command, now_ms=now_ms)
        return parking.hold_classic(self.groups, command, decision, now_ms=now_ms)

    def _decide_expiry(self, key: TimerKey, *, now_ms: int) -> Decision | None:
        if key.kind == "hold":
            held = self.held(key.group_id, key.member_id)
            return None if held is None else self.decide_answer(held, now_ms=now_ms)
        settings = self.settings_for(key.group_id)
        if key.group_id in self.groups.consumer:
            return decide_expiry(self.groups, key, settings, now_ms=now_ms)
        group = self.groups.classic.get(key.group_id)
        if group is None:
            return None
        decision = classic.decide_expiry(group, key, settings, now_ms=now_ms)
        return decision if decision.records or decision.effects else None

    def _arm_loaded(self, group: ConsumerGroup, now_ms: int) -> None:
        settings = self.settings_for(group.group_id)
        for member in group.members.values():
            session_ms = classicmembers.session_timeout_ms(member, settings)
            self.timers.arm(member.session_key, now_ms + session_ms)
            if member.state == facts.MemberState.UNREVOKED_PARTITIONS:
                key = TimerKey("rebalance", group.group_id, member.member_id)
                due_ms = now_ms + max(member.rebalance_timeout_ms, 0)
                self.timers.arm(key, due_ms)
                self.apply(build_loaded_times(member, group.group_id, due_ms))
        assign_ms = loaded_due_ms(group, settings, now_ms=now_ms)
        if assign_ms is not None:
            self.timers.arm(assignment_key(group.group_id), assign_ms)
        if settings.has_paced_moves:
            records, effects = hold_open(group, self.groups.image, now_ms=now_ms)
            self.commit(Decision(tuple(records), tuple(effects)), now_ms=now_ms)

    def _apply_configs(self, record: facts.GroupConfigsSet | facts.GroupConfigsForgotten) -> None:
        if isinstance(record, facts.GroupConfigsSet):
            apply_configs_set(self.groups, record)
            self._settings_of[record.group_id] = effective_settings(self.settings, record.configs)
        else:
            apply_configs_forgotten(self.groups, record)
            self._settings_of.pop(record.group_id, None)


def _refuse(command: asked.GroupCommand, refused: Refused) -> Decision:
    message = refused.message
    if message is not None and len(message) > _MESSAGE_LIMIT:
        message = f"{message[:_MESSAGE_LIMIT]}..."
    return Decision(effects=(Reply(command.request, asked.Refusal(code=refused.code, message=message)),))


def _apply_image(groups: GroupsState, record: facts.TopicImageReplaced) -> None:
    groups.image = record.image


#: Record type -> what it does; records of classic groups are not here.
_APPLY: Final[dict[type[facts.Record], Callable[..., None]]] = {
    facts.TopicImageReplaced: _apply_image,
    facts.OffsetCommitted: offsets_apply.apply_offset_committed,
    facts.TransactionalOffsetCommitted: offsets_apply.apply_transactional_offset_committed,
    facts.TransactionCompleted: offsets_apply.apply_transaction_completed,
    facts.OffsetForgotten: offsets_apply.apply_offset_forgotten,
    **CONSUMER_RECORDS,
    **VOLATILE_RECORDS,
    parking.HeartbeatHeld: parking.apply_held,
    parking.HeartbeatReleased: parking.apply_released,
    parking.ListAwaited: parking.apply_list_awaited,
}
