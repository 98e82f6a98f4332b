"""Laws of classic groups about the embedded bytes: each leader's assignments to its members.

Source: LegalTargetAssignment and NoDoubleClientAssignment of the TLA+ model of KIP-848, where the leader assigns;
KAFKA-12984 (two members with one partition in one generation); KIP-345 (a static member gets what its older self got).
"""

from __future__ import annotations

from kohort.coordinator.classic.invariants import check_classic_group, check_generation_step
from kohort.coordinator.classic.state import ClassicGroup, ClassicGroupState
from kohort.coordinator.commands import groups as asked
from kohort.coordinator.commands.base import Command, GroupCommand
from kohort.coordinator.commands.replies import ReplyBody
from kohort.coordinator.decision import Decision
from kohort.coordinator.model import GroupsState
from kohort.coordinator.records import ClassicGroupStored
from kohort.errors import ErrorCode
from kohort.testing.trace import LawBroken
from kohort.wire.embedded import decode_assignment


class GenerationLaws:
    """Leaders' assignments in one shard."""

    def __init__(self) -> None:
        self._generations: dict[str, int] = {}
        #: group -> (generation, member id -> assignment) of the leader's word that was accepted last.
        self._planned: dict[str, tuple[int, dict[str, bytes]]] = {}

    def before_step(self, groups: GroupsState, command: Command | None, decision: Decision) -> None:
        """Note the leader's assignment, if it is the one that makes the group Stable."""
        if not isinstance(command, asked.SyncGroup):
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

    def on_decided(self, groups: GroupsState, command: GroupCommand, body: ReplyBody) -> None:
        """LegalAssignment: check that SyncGroup answers carry the assignment of that generation's leader."""
        if not isinstance(command, asked.SyncGroup) or not isinstance(body, asked.SyncGroupReply):
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


def _check_hosted(groups: GroupsState, command: asked.SyncGroup, body: asked.SyncGroupReply) -> None:
    """LegalAssignment: check a SyncGroup answer of the coordinator to a classic member of a KIP-848 group."""
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
