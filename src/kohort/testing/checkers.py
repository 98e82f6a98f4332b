"""Checks of a world after every step: the laws of `kohort.testing.invariants` together.

They hold whatever fails around the broker.

Laws: a checker looks and never changes what it looks at; it looks at the groups that a step touched.
Source: architecture (Determinism); the invariants of the TLA+ model of KIP-848.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from kohort.coordinator import records as facts
from kohort.coordinator.commands.base import Command, GroupCommand
from kohort.coordinator.commands.groups import AnyHeartbeat, LeaveGroup, MemberDisconnected
from kohort.coordinator.commands.replies import ReplyBody
from kohort.coordinator.decision import Decision
from kohort.coordinator.delayed_heartbeats import HeartbeatHeld, HeartbeatReleased
from kohort.coordinator.events.triggers import Stimulus
from kohort.coordinator.invariants import check_assignment_is_due, check_group_id, check_groups, check_step, epochs_of
from kohort.errors import InvariantViolation
from kohort.ids import TopicId
from kohort.journal.rows import Entry
from kohort.testing.home import Home
from kohort.testing.invariants.causes import CauseLaws
from kohort.testing.invariants.classicstatic import ClassicStaticLaws
from kohort.testing.invariants.computations import ComputationLaws
from kohort.testing.invariants.generations import GenerationLaws
from kohort.testing.invariants.handovers import HandOvers
from kohort.testing.invariants.holds import HoldLaws
from kohort.testing.invariants.moves import MoveLaws
from kohort.testing.invariants.offsets import OffsetLaws
from kohort.testing.invariants.owners import OwnerLaws
from kohort.testing.invariants.pace import PaceLaws
from kohort.testing.invariants.published import check_moves_nothing
from kohort.testing.invariants.sessions import SessionLaws
from kohort.testing.invariants.sharing import SharingLaws
from kohort.testing.invariants.static import StaticLaws
from kohort.testing.invariants.words import WordLaws
from kohort.testing.members.process import MemberProcess


class Checkers:
    """Checks of every step of a broker and of every change of a member's ownership.

    Args:
        label_of: the label of a topic id, as members call it.
        members: every process of the world.
        home_of: number of the shard that coordinates a group.
        now_ms: the time, for laws about how long something may take.
        is_first_of_its_name: whether a topic's name or label never meant another topic.
        is_by_administrator: whether the administrator has sent a request.
        is_clean: nothing goes wrong in this world.
    """

    def __init__(
        self,
        label_of: Callable[[TopicId], str],
        members: Mapping[str, MemberProcess],
        *,
        home_of: Callable[[str], int],
        now_ms: Callable[[], int],
        is_first_of_its_name: Callable[[str], bool],
        is_by_administrator: Callable[[LeaveGroup], bool],
        is_clean: bool = False,
    ) -> None:
        self._now_ms = now_ms
        self.offsets = OffsetLaws(home_of, label_of, members, is_clean=is_clean)
        self._owners = OwnerLaws(label_of, members, is_first_of_its_name)
        self.moves = MoveLaws()
        self._computations = ComputationLaws()
        self._pace = PaceLaws()
        self._causes = CauseLaws(is_by_administrator)
        self._sharing = SharingLaws()
        self._classic_static = ClassicStaticLaws()
        #: By number of the shard; a restart begins anew.
        self._hand_overs: dict[int, HandOvers] = {}
        self._sessions: dict[int, SessionLaws] = {}
        self._generations: dict[int, GenerationLaws] = {}
        self._holds: dict[int, HoldLaws] = {}
        self._words: dict[int, WordLaws] = {}
        #: By number of the shard; a restart does not begin anew.
        self._static: dict[int, StaticLaws] = {}
        #: Numbers of the shards that know their logs and have no deadlines yet; the topics may come before those.
        self._loading: set[int] = set()
        #: Held heartbeats are answered because there is news.
        self._tells_news = False
        #: When the broker's loop went on after it stood still.
        self._went_on_ms = 0
        #: From before a step to after it.
        self._epochs: dict[str, tuple[int, dict[str, int]]] = {}
        self._touched: tuple[str, ...] = ()
        self.steps = 0

    def before_step(self, home: Home, command: Command | None, decision: Decision) -> None:
        """Note the state that the step may not change, and check the decision before it is applied."""
        self.steps += 1
        groups = home.shard.groups
        if isinstance(command, MemberDisconnected):
            self._sessions_of(home).on_disconnected(command, now_ms=self._now_ms())
        if not decision.records:
            return
        check_moves_nothing(home.shard, command, decision, now_ms=self._now_ms() + home.clock_offset_ms)
        self._touched = tuple(dict.fromkeys(record.group_id for record in decision.records))
        self._epochs = epochs_of(groups, self._touched)
        self._owners.before_step(groups, command, decision)
        self.moves.before_step(home.shard, command, decision)
        self._computations.before_step(groups, command, decision)
        self._static_of(home).before_step(home.shard, command, decision, now_ms=self._now_ms())
        self._pace.before_step(home.shard, decision, now_ms=self._now_ms())
        self._sharing.before_step(groups, decision)
        self.offsets.before_step(groups, command, decision)
        self._words_of(home).before_step(decision)
        self._holds_of(home).before_step(
            home.shard, decision, now_ms=self._now_ms(), clock_offset_ms=home.clock_offset_ms
        )
        for record in decision.records:
            if isinstance(record, HeartbeatHeld):
                self._sessions_of(home).on_held(home.shard, record.command, now_ms=self._now_ms())
                self._static_of(home).on_held(record.command, now_ms=self._now_ms())
                self._classic_static.on_held(record.command, now_ms=self._now_ms())
            elif isinstance(record, HeartbeatReleased) and command is None:
                self._sessions_of(home).check_release(home.shard, record, decision, now_ms=self._now_ms())
            elif isinstance(record, facts.GroupConfigsSet | facts.GroupConfigsForgotten):
                self._sessions_of(home).on_configured(record.group_id, now_ms=self._now_ms())
        self._generations_of(home).before_step(groups, command, decision)
        self._classic_static.before_step(home.shard, command, decision, now_ms=self._now_ms())
        if command is None:
            self._sessions_of(home).check_expiry(home.shard, decision, now_ms=self._now_ms())

    def on_told(self, home: Home, entry: Entry, stimulus: Stimulus, decision: Decision) -> None:
        """Check that the journal entry of a decision tells the truth."""
        sessions = self._sessions_of(home)
        self._causes.check(entry, home.shard, stimulus, decision, sessions, now_ms=self._now_ms())

    def on_decided(self, home: Home, command: GroupCommand, body: ReplyBody) -> None:
        """Check a decided answer, once its records are applied; it may have to wait for the disk."""
        holds = self._holds_of(home)
        if holds.is_held(command):
            assert isinstance(command, AnyHeartbeat), "nothing else is held"
            self._sessions_of(home).on_released(command, body, now_ms=self._now_ms())
            holds.on_decided(command, body, now_ms=self._now_ms(), tells_news=self._tells_news)
        else:
            self._sessions_of(home).on_decided(home.shard, command, body, now_ms=self._now_ms())
            self._static_of(home).on_decided(home.shard, command, body, now_ms=self._now_ms())
            self._classic_static.on_decided(command, body, now_ms=self._now_ms())
        self._owners.check_release(home.shard.groups, command, body)
        self._words_of(home).on_decided(home.shard, command, body, now_ms=self._now_ms() + home.clock_offset_ms)
        self._computations.on_decided(home.shard.groups, command, body)
        self._generations_of(home).on_decided(home.shard.groups, command, body)

    def after_step(self, home: Home, decision: Decision) -> None:
        """Check every law about the state that a step changed."""
        groups = home.shard.groups
        if self._now_ms() != self._went_on_ms:
            # A broker that stood still gives the time back, and tells what it promised, behind what has come meanwhile.
            self._hand_overs.setdefault(home.index, HandOvers()).check(groups, now_ms=self._now_ms())
            self._holds_of(home).check_times(home.shard, now_ms=self._now_ms())
        if not decision.records:
            return
        # First, because what equal members have in common changes for all of them.
        self._sharing.after_step()
        self._computations.after_step(groups)
        check_step(self._epochs, groups)
        if home.index not in self._loading:
            check_assignment_is_due(groups, home.shard.timers, self._touched)
        self.moves.after_step(home.shard)
        stored = {record.group_id for record in decision.records if isinstance(record, facts.ClassicGroupStored)}
        for group_id in self._touched:
            check_group_id(groups, group_id)
            self._generations_of(home).after_step(groups, group_id, is_stored=group_id in stored)
            self._classic_static.after_step(groups, group_id)
            self._owners.check_no_change_without_move(groups, group_id)
            self._owners.check_owners(groups, group_id)
        sessions, offset_ms = self._sessions_of(home), home.clock_offset_ms
        sessions.after_step(groups, self._touched, now_ms=self._now_ms())
        sessions.check_ends(home.shard, self._touched, now_ms=self._now_ms(), clock_offset_ms=offset_ms)
        if any(not isinstance(record, facts.VolatileRecord) for record in decision.records):
            self._check_fold(home)

    def on_answer(self, command: GroupCommand, body: ReplyBody) -> None:
        """Check that the content of a reply stays true."""
        self.offsets.on_answer(command, body)
        self._classic_static.on_answer(command)

    def on_restart(self, home: Home) -> None:
        """Check that the state after a crash contains everything that was acknowledged."""
        self._pace.on_restart()
        self._hand_overs.pop(home.index, None)
        self._generations.pop(home.index, None)
        self._holds.pop(home.index, None)
        self._words.pop(home.index, None)
        self._loading.add(home.index)
        self._sessions[home.index] = SessionLaws(home.shard.groups, now_ms=self._now_ms())
        self._classic_static.on_restart(home.shard.groups)
        self.offsets.on_restart(home.shard.groups, home.index)
        check_groups(home.shard.groups)
        self._check_fold(home)

    def on_loaded(self, home: Home) -> None:
        """Begin every member's session anew, and check that pending assignments are due again.

        The time of a rebalance that begins with the load counts from here too.
        """
        self._loading.discard(home.index)
        self._sessions[home.index] = SessionLaws(home.shard.groups, now_ms=self._now_ms())
        check_assignment_is_due(home.shard.groups, home.shard.timers, home.shard.groups.consumer)

    def on_shift(self, home: Home, gap_ms: int) -> None:
        """Shift the laws' deadlines by the time that the broker stood still."""
        self._hand_overs.setdefault(home.index, HandOvers()).on_shift(gap_ms)
        self._sessions_of(home).on_shift(gap_ms)
        self._static_of(home).on_shift(gap_ms, now_ms=self._now_ms())

    def on_go_on(self) -> None:
        """Expect now the answers that were due while the broker stood still."""
        self._went_on_ms = self._now_ms()

    def tells_news(self, is_on: bool) -> bool:
        """Set whether held heartbeats are answered because of updates; return the former value."""
        before, self._tells_news = self._tells_news, is_on
        return before

    def check_owners(self, home: Home, group_id: str) -> None:
        """Compare members' ownership with each other's and with the coordinator's."""
        self._owners.check_owners(home.shard.groups, group_id)

    def _sessions_of(self, home: Home) -> SessionLaws:
        found = self._sessions.get(home.index)
        if found is None:
            found = self._sessions[home.index] = SessionLaws(home.shard.groups, now_ms=self._now_ms())
        return found

    def _words_of(self, home: Home) -> WordLaws:
        return self._words.setdefault(home.index, WordLaws())

    def _holds_of(self, home: Home) -> HoldLaws:
        return self._holds.setdefault(home.index, HoldLaws())

    def _static_of(self, home: Home) -> StaticLaws:
        return self._static.setdefault(home.index, StaticLaws())

    def _generations_of(self, home: Home) -> GenerationLaws:
        found = self._generations.get(home.index)
        if found is None:
            found = self._generations[home.index] = GenerationLaws()
        return found

    def _check_fold(self, home: Home) -> None:
        living, folded = home.shard.state_digest(), home.mirror.state_digest()
        if living == folded:
            return
        differences = [
            f"{kind}: log {folded[kind]}, living {living[kind]}" for kind in living if living[kind] != folded[kind]
        ]
        raise InvariantViolation("FoldIsLivingState: the log does not give the living state", differences)
