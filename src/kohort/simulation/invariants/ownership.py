"""Laws about the partitions that members believe they own, and about the partitions that they must keep.

Source: NoDoubleClientAssignment of the TLA+ model of KIP-848; architecture (Determinism).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Final

from kohort.assign.assignors import External
from kohort.coordinator import commands
from kohort.coordinator.classic.state import ClassicGroup, ClassicGroupState
from kohort.coordinator.classic.subscriptions import CONSUMER_PROTOCOL_TYPE, read_assignment
from kohort.coordinator.commands.admin import SubmitMoves
from kohort.coordinator.consumer.assignment.assignor_input import chosen_assignor
from kohort.coordinator.consumer.reconciliation.effective_target import MovesBegun
from kohort.coordinator.consumer.subscription_metadata import topics_of
from kohort.coordinator.decision import Decision, FencePartitions, OpenPartitions, ReplyBody
from kohort.coordinator.model import ConsumerGroup, ConsumerMember, GroupsState
from kohort.coordinator.ownership.fences import FOLLOWED
from kohort.coordinator.records import types as facts
from kohort.coordinator.shard import Shard
from kohort.ids import TopicId
from kohort.simulation.members.process import MemberProcess, Owned
from kohort.simulation.trace import LawBroken


class OwnerLaws:
    """Comparison of members' ownership with the coordinator's.

    `label_of`: returns a topic id's label, the name that members use. `members`: every process of the world.
    `is_first_of_its_name`: returns whether a name never meant another topic. Only such topics can be compared between a
    member that knows topics by name and one that knows them by id.
    """

    def __init__(
        self,
        label_of: Callable[[TopicId], str],
        members: Mapping[str, MemberProcess],
        is_first_of_its_name: Callable[[str], bool],
    ) -> None:
        self._is_first_of_its_name = is_first_of_its_name
        self._label_of = label_of
        self._members = members
        #: (group, member) -> what it had before the step.
        self._kept: dict[tuple[str, str], set[tuple[TopicId, int]]] = {}

    def before_step(self, groups: GroupsState, command: commands.Command | None, decision: Decision) -> None:
        """Note the partitions that the step must not take from a member."""
        self._kept = {}
        for group_id in dict.fromkeys(record.group_id for record in decision.records):
            group = groups.consumer.get(group_id)
            for member in group.members.values() if group is not None else ():
                if not _starts_anew(command, member):
                    self._kept[group_id, member.member_id] = held_by(member, is_pending_included=False)

    def check_no_change_without_move(self, groups: GroupsState, group_id: str) -> None:
        """Check that a member keeps each partition of its target that it has and subscribes to."""
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
                for topic_id, number in sorted(before - held_by(member, is_pending_included=False))
                if topic_id in wanted and number in target.get(topic_id, ())
            ]
            if lost:
                why = f"{member.member_id} loses {lost}, which its target gives it"
                raise LawBroken("NoChangeWithoutMove", why, group_id=group_id)

    def check_release(self, groups: GroupsState, command: commands.GroupCommand, body: ReplyBody) -> None:
        """ReleaseIsHeard: check that a list of owned partitions acknowledges the absence of the others."""
        if not isinstance(command, commands.ConsumerGroupHeartbeat) or isinstance(body, commands.Refusal):
            return
        group, owned = groups.consumer.get(command.group_id), command.topic_partitions
        member = None if group is None else group.members.get(command.member_id)
        if member is None or owned is None:
            return
        for topic_id, grants in member.pending_revocation.items():
            if not grants.keys() <= set(owned.get(topic_id, ())):
                why = f"{member.member_id} owns {sorted(owned.get(topic_id, ()))}, and is to give up {sorted(grants)}"
                raise LawBroken("ReleaseIsHeard", why, group_id=command.group_id)

    def check_owners(self, groups: GroupsState, group_id: str) -> None:
        """Check that no two valid members own one partition, and none owns a partition not assigned to it."""
        consumer, classic = groups.consumer.get(group_id), groups.classic.get(group_id)
        owners: dict[Owned, str] = {}
        for process in self._members.values():
            if process.group_id != group_id or not process.owned or not process.is_valid:
                continue
            owned = process.owned
            if consumer is not None and process.member_id in consumer.members:
                if consumer.members[process.member_id].member_epoch < 0:
                    # In a static group a member that was silent for its session is offline, though it may not know.
                    continue
                if _was_left_behind(consumer.members[process.member_id], process):
                    continue
                if not process.knows_topic_ids:
                    known = {name for name in groups.image.by_name if self._is_first_of_its_name(name)}
                    owned = {partition for partition in owned if partition[0] in known}
                self._check_believes(group_id, process.name, owned, consumer.members[process.member_id])
            elif classic is None or not _is_in_generation(classic, process):
                continue
            for partition in owned:
                other = owners.setdefault(partition, process.name)
                if other != process.name:
                    why = f"{other} and {process.name} both own {partition[0]}-{partition[1]}"
                    raise LawBroken("NoDoubleClientAssignment", why, group_id=group_id)

    def _check_believes(self, group_id: str, name: str, owned: set[Owned], member: ConsumerMember) -> None:
        held = held_by(member, is_pending_included=True)
        beyond = owned - {(self._label_of(topic_id), number) for topic_id, number in held}
        if beyond:
            why = f"{name} believes to own {sorted(beyond)}, and the coordinator does not"
            raise LawBroken("NoDoubleClientAssignment", why, group_id=group_id)


def held_by(member: ConsumerMember, *, is_pending_included: bool) -> set[tuple[TopicId, int]]:
    """Return (topic id, partition) of a member's partitions, with or without pending revocations."""
    sources = (member.assigned, member.pending_revocation) if is_pending_included else (member.assigned,)
    return {(topic_id, number) for found in sources for topic_id, grants in found.items() for number in grants}


def _is_in_generation(group: ClassicGroup, process: MemberProcess) -> bool:
    """Return whether a classic member is in the group's generation, so that its ownership counts."""
    member = group.members.get(process.member_id)
    if member is None:
        return False
    # A static member stays one, though others went on without it.
    behind = 0 if member.instance_id is None else group.generation - process.synced_generation
    return behind <= (1 if group.state is ClassicGroupState.COMPLETING_REBALANCE else 0)


def _was_left_behind(member: ConsumerMember, process: MemberProcess) -> bool:
    """Return whether a static classic member missed a generation before its group became KIP-848."""
    return (
        member.classic is not None
        and member.instance_id is not None
        and (0 <= process.synced_generation < member.previous_member_epoch)
    )


def _starts_anew(command: commands.Command | None, member: ConsumerMember) -> bool:
    """Return whether a command is a (re)join of the member, which may own less than before."""
    if isinstance(command, commands.JoinGroup):
        return member.classic is not None or member.instance_id == command.instance_id
    return (
        isinstance(command, commands.ConsumerGroupHeartbeat)
        and command.member_id == member.member_id
        and command.member_epoch == 0
    )


# The law that a new target takes from staying members only the partitions that balance needs.
#
# Laws: where all members of before and after want the same topics, a target of a built-in sticky assignor takes from
# the members that stay as few partitions as there are beyond their even shares, whatever came or went; with a limit of
# moves, no more than that limit. So many short-lived members cost a few stable ones no more than their share each time.
# A target of `external` takes no partition from a member that stays and still subscribes to the topic.
# Source: requirement G7 (ephemeral members); KIP-848 (minimal moves); H2 (`group.assignor.max.moves`); H9 (`external`).

#: Assignors that promise it.
_STICKY: Final = ("uniform", "sticky")
_Owned = set[tuple[TopicId, int]]


class MoveLaws:
    """Comparison of each target with the previous one, over all shards."""

    def __init__(self) -> None:
        #: group -> member -> what its target was before the step.
        self._before: dict[str, dict[str, _Owned]] = {}
        #: Partitions that staying members lost by new targets, and the share that balance needed.
        self.lost = 0
        self.needed = 0

    def before_step(self, shard: Shard, command: commands.Command | None, decision: Decision) -> None:
        """Note the targets that the step replaces."""
        self._before = {}
        if isinstance(command, commands.TargetComputed | commands.InstallAssignment | SubmitMoves):
            # Targets of the user's own assignors and of an administrator are not judged.
            return
        for record in decision.records:
            group = shard.groups.consumer.get(record.group_id)
            if isinstance(record, facts.TargetAssignmentEpochSet) and group is not None and group.targets:
                self._before[record.group_id] = {
                    member_id: {(topic_id, number) for topic_id, numbers in target.items() for number in numbers}
                    for member_id, target in group.targets.items()
                }

    def after_step(self, shard: Shard) -> None:
        """MovesOnlyForBalance, ExternalMovesNothing: check each target that was replaced."""
        for group_id, before in self._before.items():
            group = shard.groups.consumer.get(group_id)
            settings = shard.settings_for(group_id)
            if group is None or group.target_epoch < group.epoch:
                continue
            assignor = chosen_assignor(group, settings)
            if assignor == External.name:
                _check_external(group, before, shard)
            elif assignor in _STICKY and _wants_one_thing(group):
                self._check(group, before, shard, limit=settings.group_assignor_max_moves)

    def _check(self, group: ConsumerGroup, before: dict[str, _Owned], shard: Shard, *, limit: int) -> None:
        by_id = shard.groups.image.by_id
        everything: _Owned = {
            (topic_id, number)
            for topic_id in {by_name.topic_id for by_name in by_id.values() if by_name.name in group.topic_subscribers}
            for number in range(by_id[topic_id].partition_count)
        }
        had = {member_id: owned & everything for member_id, owned in before.items() if member_id in group.members}
        lost = 0
        for member_id, owned in had.items():
            target = group.targets.get(member_id, {})
            lost += sum(1 for topic_id, number in owned if number not in target.get(topic_id, ()))
        needed = moves_needed([len(owned) for owned in had.values()], len(everything), len(group.members))
        self.lost += lost
        self.needed += needed
        allowed = needed if limit < 0 else min(needed, limit)
        if lost > allowed:
            why = f"members that stay lose {lost} partitions by the target of epoch {group.target_epoch}; {allowed} do"
            raise LawBroken("MovesOnlyForBalance", why, group_id=group.group_id)


def moves_needed(had: list[int], partitions: int, members: int) -> int:
    """Count the partitions that members have to revoke for an even distribution.

    `had`: number of partitions that each member owns now.

    >>> moves_needed([4, 4], 8, 4), moves_needed([3, 3, 2], 8, 2), moves_needed([5, 0], 5, 2)
    (4, 0, 2)
    """
    share, larger_shares = divmod(partitions, members)
    most_first = sorted(had, reverse=True)
    return sum(max(0, count - share - (place < larger_shares)) for place, count in enumerate(most_first))


def _check_external(group: ConsumerGroup, before: dict[str, _Owned], shard: Shard) -> None:
    by_id = shard.groups.image.by_id
    for member_id, owned in before.items():
        member = group.members.get(member_id)
        wanted = () if member is None else topics_of(group, member)
        target = group.targets.get(member_id, {})
        for topic_id, number in sorted(owned):
            name = by_id[topic_id].name if topic_id in by_id else None
            if name in wanted and number not in target.get(topic_id, ()):
                why = f"{member_id} loses {name}-{number} by the target of epoch {group.target_epoch}, and wants it"
                raise LawBroken("ExternalMovesNothing", why, group_id=group.group_id)


def _wants_one_thing(group: ConsumerGroup) -> bool:
    wanted = {topics_of(group, member) for member in group.members.values()}
    return len(wanted) == 1


# The law that moves begin no faster than their group's pace, also across coordinators.
#
# Laws: between any two times no more moves of a group begin than its burst and what its rate allows in between, for as
# long as its pace is the same; while moves are paused none begins.
# Source: requirement H4.

#: Rate, burst, whether none may begin.
_Pace = tuple[float, int, bool]


class PaceLaws:
    """The moves that have begun, of all shards."""

    def __init__(self) -> None:
        #: group -> its pace, and (time, moves) of each begin since it has that.
        self._begun: dict[str, tuple[_Pace, list[tuple[int, int]]]] = {}

    def before_step(self, shard: Shard, decision: Decision, *, now_ms: int) -> None:
        """MovesKeepThePace: check the moves that are about to begin."""
        for record in decision.records:
            if not isinstance(record, MovesBegun):
                continue
            settings = shard.settings_for(record.group_id)
            pace = settings.group_moves_per_second, settings.group_moves_burst, settings.group_moves_paused
            before, begun = self._begun.get(record.group_id, (pace, []))
            if before != pace:
                begun = []
            begun.append((now_ms, len(record.places)))
            self._begun[record.group_id] = pace, begun
            self._check(record.group_id, pace, begun, now_ms=now_ms)

    def on_restart(self) -> None:
        """Forget the moves that have begun."""
        # A new process remembers nothing of its pace.
        self._begun.clear()

    def _check(self, group_id: str, pace: _Pace, begun: list[tuple[int, int]], *, now_ms: int) -> None:
        rate, burst, is_paused = pace
        if is_paused:
            raise LawBroken("MovesKeepThePace", "a move begins while they are paused", group_id=group_id)
        count = 0
        for at_ms, moves in reversed(begun) if rate > 0 else ():
            count += moves
            # A clock counts whole milliseconds.
            allowed = burst + rate * (now_ms - at_ms + 1) / 1_000
            if count > allowed:
                why = f"{count} moves begin within {now_ms - at_ms} ms, where {allowed:.1f} may"
                raise LawBroken("MovesKeepThePace", why, group_id=group_id)


# What leaders are told of owners (H5).
#
# `LeadersKnow`: each partition that a member may read was opened for it, and each that a member is to give up is
# fenced; a partition is fenced once between two owners, before it is opened, and nothing is told of one that stays with
# its member.

#: Topic id and partition.
_Place = tuple[TopicId, int]
#: What a group's leaders know: partition -> member that may read it, `None`: it is fenced.
_Known = dict[_Place, str | None]


class ToldOwners:
    """The owners that partition leaders know from one coordinator's fences and openings."""

    def __init__(self) -> None:
        self._known: dict[str, _Known] = {}
        #: Partitions of the present decision that were opened though another member has them.
        self._unfenced: dict[str, dict[_Place, str]] = {}

    def load(self, groups: GroupsState) -> None:
        """Begin with the state of a coordinator that has just read its log."""
        self._known = {group_id: dict(_owners_in(groups, group_id)) for group_id in (*groups.consumer, *groups.classic)}

    def after_step(self, groups: GroupsState, decision: Decision, *, is_on: bool = True) -> None:
        """Apply a committed decision's fences and openings, and compare the owners in its groups.

        `is_on`: `group.ownership.enforce` is on.
        """
        self._unfenced = {}
        for effect in decision.effects:
            if isinstance(effect, FencePartitions):
                # What a classic member gives up between two rounds was fenced by the first of them.
                is_again = any(isinstance(record, facts.ClassicGroupForgotten) for record in decision.records)
                self._fence(effect, is_again=is_again)
            elif isinstance(effect, OpenPartitions):
                self._open(effect)
        told = [each for each in decision.effects if isinstance(each, FencePartitions | OpenPartitions)]
        if len(told) > 1:
            _check_moves(told)
        if is_on and not FOLLOWED.isdisjoint(map(type, decision.records)):
            for group_id in dict.fromkeys(record.group_id for record in decision.records if type(record) in FOLLOWED):
                self._check(groups, group_id)

    def _fence(self, effect: FencePartitions, *, is_again: bool) -> None:
        known = self._known.setdefault(effect.group_id, {})
        for place in effect.places:
            if is_again and place in known and known[place] is None:
                continue
            if known.get(place, effect.member_id) != effect.member_id:
                owner = known[place] or "no member"
                why = f"{_name(place)} is fenced for {effect.member_id}, and {owner} has it"
                raise LawBroken("LeadersKnow", why, group_id=effect.group_id)
            known[place] = None

    def _open(self, effect: OpenPartitions) -> None:
        known = self._known.setdefault(effect.group_id, {})
        for place in effect.places:
            if known.get(place) is not None and not effect.keep and effect.member_id:
                why = f"{_name(place)} is opened for {effect.member_id}, and {known[place]} has it unfenced"
                self._unfenced.setdefault(effect.group_id, {})[place] = why
            known[place] = effect.member_id

    def _check(self, groups: GroupsState, group_id: str) -> None:
        known, owners = self._known.get(group_id, {}), dict[_Place, str | None]()
        shared: set[_Place] = set()
        for place, owner in _owners_in(groups, group_id):
            # A classic leader's mistake: one partition for two members.
            if place in owners:
                shared.add(place)
            owners[place] = owner
        for place, why in self._unfenced.get(group_id, {}).items():
            if place not in shared:
                raise LawBroken("LeadersKnow", why, group_id=group_id)
        if group_id not in groups.consumer and group_id not in groups.classic:
            self._known.pop(group_id, None)
        for place, owner in owners.items():
            if place not in known and group_id in groups.classic:
                # Its leader has named a topic that was made since, under the same name.
                continue
            if known.get(place) != owner and place not in shared:
                why = f"{_name(place)} is {owner or 'fenced'}, and the leaders know {known.get(place)}"
                raise LawBroken("LeadersKnow", why, group_id=group_id)
        for place, owner in list(known.items()):
            if owner is not None and place not in owners and place[0] in groups.image.by_id:
                raise LawBroken("LeadersKnow", f"{_name(place)} is open for {owner} still", group_id=group_id)


def _owners_in(groups: GroupsState, group_id: str) -> Iterable[tuple[_Place, str | None]]:
    """Yield the partitions of existing topics with the members that may read them; `None`: fenced."""
    by_id, consumer, classic = groups.image.by_id, groups.consumer.get(group_id), groups.classic.get(group_id)
    for member in () if consumer is None else consumer.members.values():
        reader = None if member.member_epoch < 0 else member.member_id
        for owner, grants in ((reader, member.assigned), (None, member.pending_revocation)):
            for topic_id, granted in grants.items():
                if topic_id in by_id or not groups.image.version:
                    yield from (((topic_id, each), owner) for each in granted)
    if classic is None or classic.protocol_type != CONSUMER_PROTOCOL_TYPE:
        return
    for other in classic.members.values():
        found = read_assignment(other.assignment)
        partitions: Mapping[str, Iterable[int]] = {} if found is None else found.partitions
        for name, numbers in partitions.items():
            topic = groups.image.by_name.get(name)
            for number in numbers if topic is not None else ():
                assert topic is not None
                yield (topic.topic_id, number), other.member_id


def _check_moves(told: Iterable[FencePartitions | OpenPartitions]) -> None:
    """Check that no decision fences a partition and opens it for the same member again."""
    taken: set[tuple[str, str, _Place]] = set()
    for each in told:
        places = {(each.group_id, each.member_id, place) for place in each.places}
        if isinstance(each, FencePartitions):
            taken |= places
        elif taken & places:
            _, member_id, place = min(taken & places)
            why = f"{_name(place)} is fenced and opened for {member_id}, which keeps it"
            raise LawBroken("LeadersKnow", why, group_id=each.group_id)


def _name(place: _Place) -> str:
    return f"{place[0].hex()}-{place[1]}"
