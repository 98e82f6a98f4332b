"""Laws of targets that members compute: one at a time, each installed as a whole or not at all.

Source: KIP-848 as drafted (client-side assignors); requirement G9.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from kohort.coordinator import commands
from kohort.coordinator.classic.state import ClassicGroup, ClassicGroupState
from kohort.coordinator.consumer.assignment.volatile import ComputationNoted
from kohort.coordinator.decision import ComputeTarget, Decision, ReplyBody
from kohort.coordinator.invariants import check_classic_group, check_generation_step
from kohort.coordinator.model import NO_TARGET, GroupsState
from kohort.coordinator.records import types as facts
from kohort.coordinator.records.types import ClassicGroupStored
from kohort.errors import ErrorCode
from kohort.ids import TopicId
from kohort.simulation.trace import LawBroken
from kohort.wire.embedded import decode_assignment


class ComputationLaws:
    """Checks of targets that members compute, over all shards."""

    def __init__(self) -> None:
        #: The target that a step is about to install, and the order that it was computed for.
        self._installed: tuple[commands.InstallAssignment, ComputeTarget] | None = None

    def before_step(self, groups: GroupsState, command: commands.Command | None, decision: Decision) -> None:
        """OneComputation: check the decision, and note the target that is about to be installed."""
        self._installed = None
        computing: dict[str, ComputeTarget | None] = {}
        is_target = False
        for record in decision.records:
            group = groups.consumer.get(record.group_id)
            if isinstance(record, facts.TargetAssignmentEpochSet):
                is_target = True
                computing[record.group_id] = None
            elif isinstance(record, ComputationNoted):
                before = computing.get(record.group_id, None if group is None else group.computing)
                asked_of, asks = ("" if each is None else each.member_id for each in (before, record.computing))
                if asked_of and asks and asked_of != asks:
                    why = f"{asks} is asked to compute while {asked_of} does"
                    raise LawBroken("OneComputation", why, group_id=record.group_id)
                computing[record.group_id] = record.computing
        if isinstance(command, commands.InstallAssignment) and is_target:
            order = groups.consumer[command.group_id].computing
            assert order is not None, "no other member may install"
            self._installed = command, order

    def after_step(self, groups: GroupsState) -> None:
        """TargetIsWhole: check that the target is the installed one, except for members that have left."""
        if self._installed is None:
            return
        command, order = self._installed
        group, assignable = groups.consumer[command.group_id], order.assignable
        wanted: dict[str, set[tuple[TopicId, int]]] = {}
        for flat, number in enumerate(command.owners):
            member_id = assignable.members[number].member_id
            if member_id in group.members:
                wanted.setdefault(member_id, set()).add(assignable.space.name(flat))
        for member_id in group.members:
            target = group.targets.get(member_id, NO_TARGET)
            found = {(topic_id, number) for topic_id, numbers in target.items() for number in numbers}
            if found != wanted.get(member_id, set()):
                why = f"{command.member_id} gave {member_id} {len(wanted.get(member_id, ()))} partitions, its target is"
                raise LawBroken("TargetIsWhole", f"{why} {len(found)} others", group_id=command.group_id)

    def on_decided(self, groups: GroupsState, command: commands.GroupCommand, body: ReplyBody) -> None:
        """OneComputation: check that only the chosen member is asked to compute."""
        if not isinstance(body, commands.ConsumerGroupHeartbeatReply) or not body.should_compute:
            return
        group = groups.consumer.get(command.group_id)
        order = None if group is None else group.computing
        if order is None or order.member_id != body.member_id:
            why = f"{body.member_id} is told to compute, and was not asked"
            raise LawBroken("OneComputation", why, group_id=command.group_id)


# Laws of classic groups about the embedded bytes: each leader's assignments to its members.
#
# Source: LegalTargetAssignment and NoDoubleClientAssignment of the TLA+ model of KIP-848, where the leader assigns;
# KAFKA-12984 (two members with one partition in one generation); KIP-345 (a static member gets what its older self
# got).


class GenerationLaws:
    """Leaders' assignments in one shard."""

    def __init__(self) -> None:
        self._generations: dict[str, int] = {}
        #: group -> (generation, member id -> assignment) of the leader's word that was accepted last.
        self._planned: dict[str, tuple[int, dict[str, bytes]]] = {}

    def before_step(self, groups: GroupsState, command: commands.Command | None, decision: Decision) -> None:
        """Note the leader's assignment, if it is the one that makes the group Stable."""
        if not isinstance(command, commands.SyncGroup):
            return
        group = groups.classic.get(command.group_id)
        is_stored = any(isinstance(record, ClassicGroupStored) and record.members for record in decision.records)
        if group is not None and is_stored and group.leader == command.member_id:
            self._planned[command.group_id] = (group.generation, command.assignments)

    def after_step(self, groups: GroupsState, group_id: str, *, is_stored: bool) -> None:
        """Check the laws about one group's state; `is_stored`: whether its record was written."""
        group = groups.classic.get(group_id)
        if group is None:
            self._generations.pop(group_id, None)
            return
        check_classic_group(group)
        check_generation_step(self._generations.get(group_id, 0), group)
        self._generations[group_id] = group.generation
        if is_stored and group.state is ClassicGroupState.STABLE and group.protocol_type == "consumer":
            _check_one_owner(group)

    def on_decided(self, groups: GroupsState, command: commands.GroupCommand, body: ReplyBody) -> None:
        """LegalAssignment: check that SyncGroup responses have the assignment by the generation's leader."""
        if not isinstance(command, commands.SyncGroup) or not isinstance(body, commands.SyncGroupReply):
            return
        group = groups.classic.get(command.group_id)
        if body.error == ErrorCode.NONE and group is None:
            _check_hosted(groups, command, body)
        if body.error != ErrorCode.NONE or group is None:
            return
        law = "LegalAssignment"
        if command.generation_id != group.generation:
            why = f"{command.member_id} syncs generation {command.generation_id} in generation {group.generation}"
            raise LawBroken(law, why, group_id=command.group_id)
        generation, planned = self._planned.get(command.group_id, (-1, {}))
        if generation != group.generation:
            return
        wanted = planned.get(command.member_id, b"")
        # The leader knew a static member that came back by its older id.
        came_back = command.instance_id is not None and command.member_id not in planned
        # Nor did it know the members that came since, which wait for the next generation with nothing.
        is_new = came_back and not any(decode_assignment(body.assignment).partitions.values())
        if body.assignment != wanted and not is_new and not (came_back and body.assignment in planned.values()):
            why = f"{command.member_id} is told another assignment than the leader gave it"
            raise LawBroken(law, why, group_id=command.group_id)


def _check_hosted(groups: GroupsState, command: commands.SyncGroup, body: commands.SyncGroupReply) -> None:
    """LegalAssignment: check a SyncGroup response to a classic member of a KIP-848 group."""
    consumer = groups.consumer.get(command.group_id)
    member = None if consumer is None else consumer.members.get(command.member_id)
    if member is None:
        raise LawBroken("LegalAssignment", f"{command.member_id} is no member", group_id=command.group_id)
    by_id = groups.image.by_id
    held = {by_id[topic_id].name: sorted(grants) for topic_id, grants in member.assigned.items() if topic_id in by_id}
    told = {topic: sorted(found) for topic, found in decode_assignment(body.assignment).partitions.items() if found}
    if told != held:
        raise LawBroken(
            "LegalAssignment", f"{command.member_id} is told {told} and has {held}", group_id=command.group_id
        )


def _check_one_owner(group: ClassicGroup) -> None:
    """OneOwnerPerGeneration: check that no partition is in two assignments."""
    owners: dict[tuple[str, int], str] = {}
    for member in group.members.values():
        partitions = decode_assignment(member.assignment).partitions if member.assignment else {}
        for topic, numbers in partitions.items():
            for number in numbers:
                other = owners.setdefault((topic, number), member.member_id)
                if other != member.member_id:
                    why = f"{topic}-{number} is {other}'s and {member.member_id}'s in generation {group.generation}"
                    raise LawBroken("OneOwnerPerGeneration", why, group_id=group.group_id)


# The law that a value shared by equal members is replaced as a whole, never changed in place.
#
# At the end of a world, and after a restart, `coordinator.invariants.check_shared` looks at everything that is shared.
# Here are the values that a step is about, so that the step that changes one is the one that is named.
# Source: `coordinator.interning`.

#: A target or grants.
_Value = Mapping[TopicId, tuple[int, ...] | dict[int, int]]


class SharingLaws:
    """Comparison of members' values before and after a step, over all shards."""

    def __init__(self) -> None:
        #: (group, the value itself, what it said before the step)
        self._before: list[tuple[str, _Value, object]] = []

    def before_step(self, groups: GroupsState, decision: Decision) -> None:
        """Note the values of the members that the step concerns."""
        about = dict.fromkeys((record.group_id, getattr(record, "member_id", "")) for record in decision.records)
        self._before = [(who[0], value, _copy(value)) for who in about for value in _values_of(groups, *who)]

    def after_step(self) -> None:
        """SharedValuesStay: check that the noted values are unchanged, even if members have others now."""
        for group_id, value, said in self._before:
            if _copy(value) != said:
                why = f"a value was changed in place, from {said} to {value}"
                raise LawBroken("SharedValuesStay", why, group_id=group_id)


def _values_of(groups: GroupsState, group_id: str, member_id: str) -> Iterator[_Value]:
    group = groups.consumer.get(group_id)
    member = None if group is None else group.members.get(member_id)
    if group is None or member is None:
        return
    yield group.targets.get(member_id, {})
    yield member.assigned
    yield member.pending_revocation


def _copy(value: _Value) -> object:
    return {topic_id: tuple(found.items()) if isinstance(found, dict) else found for topic_id, found in value.items()}
