"""What must hold after every step of a world, whatever goes wrong around it.

The laws: at most one valid owner per (group, partition), as the coordinator and as the members themselves see it;
committed offsets never go back, and never by who does not hold the partition; an acknowledged commit is not lost; the
fold of the log is the living state; a member without a move sees no change; epochs and generations only rise; each
request is answered once; no hand-over takes longer than it may.

Laws: a checker looks and never changes what it looks at.
Source: architecture (Determinism); the invariants of the TLA+ model of KIP-848; Jepsen's commit checks.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from kohort.coordinator import commands as asked
from kohort.coordinator import records as facts
from kohort.coordinator.classic.invariants import check_classic_group
from kohort.coordinator.commands import Command, GroupCommand, ReplyBody
from kohort.coordinator.consumer.subscription import topics_of
from kohort.coordinator.decision import Decision
from kohort.coordinator.invariants import check_groups, check_step, epochs_of
from kohort.coordinator.model import ConsumerMember, GroupsState
from kohort.errors import ErrorCode, InvariantViolation
from kohort.ids import TopicId
from kohort.testing.broker import Home
from kohort.testing.handovers import HandOvers
from kohort.testing.members.classic import ClassicMember
from kohort.testing.members.consumer import ConsumerMember as ConsumerProcess
from kohort.testing.members.process import MemberProcess, Owned
from kohort.testing.story import LawBroken

#: (group, topic, partition)
Place = tuple[str, str, int]
#: topic id, offset
Commit = tuple[TopicId, int]


class Checkers:
    """Looks at every step of a broker, and at every change of what members believe to own.

    Args:
        label_of: the label of a topic id, as members call it.
        members: every process of the world.
        home_of: number of the shard that coordinates a group.
        now_ms: the time, for laws about how long something may take.
    """

    def __init__(
        self,
        label_of: Callable[[TopicId], str],
        members: Mapping[str, MemberProcess],
        *,
        home_of: Callable[[str], int],
        now_ms: Callable[[], int],
    ) -> None:
        self._label_of = label_of
        self._home_of = home_of
        self._now_ms = now_ms
        #: Shard -> what is under way in its groups.
        self._hand_overs: dict[int, HandOvers] = {}
        self._members = members
        #: The latest commit of each partition in the living state.
        self._committed: dict[Place, Commit] = {}
        #: The highest commit that a member was told is stored.
        self._acknowledged: dict[Place, Commit] = {}
        self._generations: dict[str, int] = {}
        #: From before a step to after it.
        self._epochs: dict[str, tuple[int, dict[str, int]]] = {}
        self._kept: dict[tuple[str, str], set[tuple[TopicId, int]]] = {}
        self.steps = 0

    # Steps of the broker.

    def before_step(self, home: Home, command: Command | None, decision: Decision) -> None:
        """Remember what the step may not change, and look at what it is about to do."""
        self.steps += 1
        if not decision.records:
            return
        groups = home.shard.groups
        self._epochs = epochs_of(groups)
        self._kept = {}
        for group_id in dict.fromkeys(record.group_id for record in decision.records):
            group = groups.consumer.get(group_id)
            for member in group.members.values() if group is not None else ():
                if not _starts_anew(command, member):
                    self._kept[group_id, member.member_id] = _assigned(member)
        for record in decision.records:
            if isinstance(record, facts.OffsetCommitted):
                self._check_commit(groups, record, command)
            elif isinstance(record, facts.OffsetForgotten):
                self._committed.pop((record.group_id, record.topic, record.partition), None)
                self._acknowledged.pop((record.group_id, record.topic, record.partition), None)

    def after_step(self, home: Home, decision: Decision) -> None:
        """Every law about the state, where a step changed it."""
        groups = home.shard.groups
        self._hand_overs.setdefault(home.index, HandOvers()).check(groups, now_ms=self._now_ms())
        if not decision.records:
            return
        check_groups(groups)
        check_step(self._epochs, groups)
        if any(not isinstance(record, facts.VolatileRecord) for record in decision.records):
            self._check_fold(home)
        for group_id in dict.fromkeys(record.group_id for record in decision.records):
            self._check_classic(groups, group_id)
            self._check_no_change_without_a_move(groups, group_id)
            self.check_owners(home, group_id)

    def on_answer(self, command: GroupCommand, body: ReplyBody) -> None:
        """What a member is told about its commits has to stay true."""
        if not isinstance(command, asked.CommitOffsets) or not isinstance(body, asked.CommitOffsetsReply):
            return
        for offset, error in zip(command.offsets, body.errors, strict=True):
            place = (command.group_id, offset.topic, offset.partition)
            if error == ErrorCode.NONE and place in self._committed:
                topic_id, _ = self._committed[place]
                known = self._acknowledged.get(place)
                if known is None or known[0] != topic_id or known[1] < offset.offset:
                    self._acknowledged[place] = (topic_id, offset.offset)

    def on_restart(self, home: Home) -> None:
        """What a crash left has to contain everything that was acknowledged."""
        offsets = home.shard.groups.offsets
        index = home.index
        self._hand_overs.pop(index, None)
        self._committed = {
            place: commit for place, commit in self._committed.items() if self._home_of(place[0]) != index
        }
        self._generations = {
            group_id: generation
            for group_id, generation in self._generations.items()
            if self._home_of(group_id) != index
        }
        for group_id, topics in offsets.items():
            for topic, partitions in topics.items():
                for partition, found in partitions.items():
                    self._committed[group_id, topic, partition] = (found.topic_id, found.offset)
        for place, (topic_id, offset) in self._acknowledged.items():
            if self._home_of(place[0]) != index:
                continue
            now = self._committed.get(place)
            if now is None or (now[0] == topic_id and now[1] < offset):
                raise LawBroken(
                    f"the commit {offset} of {place} was acknowledged, and a crash took it", group_id=place[0]
                )
        check_groups(home.shard.groups)
        self._check_fold(home)

    def on_shift(self, home: Home, gap_ms: int) -> None:
        """A broker that stood still gives the time back."""
        self._hand_overs.setdefault(home.index, HandOvers()).on_shift(gap_ms)

    def _check_fold(self, home: Home) -> None:
        living, folded = home.shard.state_digest(), home.mirror.state_digest()
        if living == folded:
            return
        differences = [
            f"{kind}: log {folded[kind]}, living {living[kind]}" for kind in living if living[kind] != folded[kind]
        ]
        raise InvariantViolation("the log does not give the living state", differences)

    # Commits.

    def _check_commit(self, groups: GroupsState, record: facts.OffsetCommitted, command: Command | None) -> None:
        place = (record.group_id, record.topic, record.partition)
        before = self._committed.get(place)
        if before is not None and before[0] == record.topic_id and record.offset < before[1]:
            raise LawBroken(
                f"the commit of {place} goes back from {before[1]} to {record.offset}", group_id=record.group_id
            )
        self._committed[place] = (record.topic_id, record.offset)
        group = groups.consumer.get(record.group_id)
        assert isinstance(command, asked.CommitOffsets)
        if group is None:
            return
        holder = group.holders.get(record.topic_id, {}).get(record.partition, command.member_id)
        if holder != command.member_id:
            raise LawBroken(f"{command.member_id} commits {place}, which {holder} holds", group_id=record.group_id)

    # Groups.

    def _check_classic(self, groups: GroupsState, group_id: str) -> None:
        group = groups.classic.get(group_id)
        if group is None:
            return
        check_classic_group(group)
        if group.generation < self._generations.get(group_id, 0):
            raise LawBroken(f"the generation fell to {group.generation}", group_id=group_id)
        self._generations[group_id] = group.generation

    def _check_no_change_without_a_move(self, groups: GroupsState, group_id: str) -> None:
        """What a member has, and shall have, stays with it all the time, unless it does not subscribe any more."""
        group = groups.consumer.get(group_id)
        for member in group.members.values() if group is not None else ():
            before = self._kept.get((group_id, member.member_id))
            if group is None or not before:
                continue
            names = topics_of(group, member)
            wanted = {facts.topic_id for name in names if (facts := groups.image.by_name.get(name)) is not None}
            target = group.targets.get(member.member_id, {})
            lost = [
                f"{self._label_of(topic_id)}-{number}"
                for topic_id, number in sorted(before - _assigned(member))
                if topic_id in wanted and number in target.get(topic_id, ())
            ]
            if lost:
                raise LawBroken(f"{member.member_id} loses {lost}, which its target gives it", group_id=group_id)

    # Owners.

    def check_owners(self, home: Home, group_id: str) -> None:
        """No two valid members believe to own one partition, and none believes in more than the coordinator does."""
        consumer = home.shard.groups.consumer.get(group_id)
        classic = home.shard.groups.classic.get(group_id)
        owners: dict[Owned, str] = {}
        for process in self._members.values():
            if process.group_id != group_id or not process.owned:
                continue
            if isinstance(process, ConsumerProcess):
                member = None if consumer is None else consumer.members.get(process.member_id)
                if member is None or process.member_epoch == 0:
                    continue
                self._check_believes(group_id, process, member)
            elif isinstance(process, ClassicMember) and (
                classic is None or process.member_id not in classic.members or process.generation < 0
            ):
                continue
            for partition in process.owned:
                other = owners.setdefault(partition, process.name)
                if other != process.name:
                    raise LawBroken(
                        f"{other} and {process.name} both own {partition[0]}-{partition[1]}", group_id=group_id
                    )

    def _check_believes(self, group_id: str, process: ConsumerProcess, member: ConsumerMember) -> None:
        held = {(self._label_of(topic_id), number) for topic_id, number in _assigned(member) | _pending(member)}
        beyond = process.owned - held
        if beyond:
            raise LawBroken(
                f"{process.name} believes to own {sorted(beyond)}, and the coordinator does not", group_id=group_id
            )


def _assigned(member: ConsumerMember) -> set[tuple[TopicId, int]]:
    return {(topic_id, number) for topic_id, grants in member.assigned.items() for number in grants}


def _pending(member: ConsumerMember) -> set[tuple[TopicId, int]]:
    return {(topic_id, number) for topic_id, grants in member.pending_revocation.items() for number in grants}


def _starts_anew(command: Command | None, member: ConsumerMember) -> bool:
    """A member that joins with epoch 0 says that it owns nothing."""
    return (
        isinstance(command, asked.ConsumerGroupHeartbeat)
        and command.member_id == member.member_id
        and command.member_epoch == 0
    )
