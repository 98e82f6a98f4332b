"""Laws of targets that members compute: one at a time, each installed as a whole or not at all.

Source: KIP-848 as drafted (client-side assignors); requirement G9.
"""

from __future__ import annotations

from kohort.coordinator import records as facts
from kohort.coordinator.commands.assignors import InstallAssignment
from kohort.coordinator.commands.base import Command, GroupCommand
from kohort.coordinator.commands.groups import ConsumerGroupHeartbeatReply
from kohort.coordinator.commands.replies import ReplyBody
from kohort.coordinator.consumer.targets.volatile import ComputationNoted
from kohort.coordinator.decision import ComputeTarget, Decision
from kohort.coordinator.model import NO_TARGET, GroupsState
from kohort.ids import TopicId
from kohort.testing.trace import LawBroken


class ComputationLaws:
    """Checks of each step; of all shards."""

    def __init__(self) -> None:
        #: The target that a step is about to install, and the order that it was computed for.
        self._installed: tuple[InstallAssignment, ComputeTarget] | None = None

    def before_step(self, groups: GroupsState, command: Command | None, decision: Decision) -> None:
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
        if isinstance(command, InstallAssignment) and is_target:
            order = groups.consumer[command.group_id].computing
            assert order is not None, "nobody else may install"
            self._installed = command, order

    def after_step(self, groups: GroupsState) -> None:
        """TargetIsWhole: check that the installed target is the target, except for members that are gone."""
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

    def on_decided(self, groups: GroupsState, command: GroupCommand, body: ReplyBody) -> None:
        """OneComputation: check that only the chosen member is told to compute."""
        if not isinstance(body, ConsumerGroupHeartbeatReply) or not body.should_compute:
            return
        group = groups.consumer.get(command.group_id)
        order = None if group is None else group.computing
        if order is None or order.member_id != body.member_id:
            why = f"{body.member_id} is told to compute, and was not asked"
            raise LawBroken("OneComputation", why, group_id=command.group_id)
