"""Laws about the partitions that members believe they own, and about those they must keep.

Source: NoDoubleClientAssignment of the TLA+ model of KIP-848; architecture (Determinism).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from kohort.coordinator.classic.state import ClassicGroup, ClassicGroupState
from kohort.coordinator.commands import groups as asked
from kohort.coordinator.commands.base import Command, GroupCommand, Refusal
from kohort.coordinator.commands.replies import ReplyBody
from kohort.coordinator.consumer.subscription_metadata import topics_of
from kohort.coordinator.decision import Decision
from kohort.coordinator.model import ConsumerMember, GroupsState
from kohort.ids import TopicId
from kohort.testing.members.process import MemberProcess, Owned
from kohort.testing.trace import LawBroken


class OwnerLaws:
    """Comparison of members' ownership with the coordinator's.

    Args:
        label_of: the label of a topic id, as members call it.
        members: every process of the world.
        is_first_of_its_name: whether a topic's name never meant another topic. Only such topics can be compared between
            a member that knows topics by name and one that knows them by id.
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

    def before_step(self, groups: GroupsState, command: Command | None, decision: Decision) -> None:
        """Note the partitions that the step may not take from a member."""
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

    def check_release(self, groups: GroupsState, command: GroupCommand, body: ReplyBody) -> None:
        """ReleaseIsHeard: check that a list of owned partitions acknowledges the absence of the others."""
        if not isinstance(command, asked.ConsumerGroupHeartbeat) or isinstance(body, Refusal):
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
        """Check that no two valid members own a partition, and none more than the coordinator grants."""
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
    """Return (topic id, partition) of all that a member has, or may use."""
    sources = (member.assigned, member.pending_revocation) if is_pending_included else (member.assigned,)
    return {(topic_id, number) for found in sources for topic_id, grants in found.items() for number in grants}


def _is_in_generation(group: ClassicGroup, process: MemberProcess) -> bool:
    """Whether a classic member is in the group's generation, so that its ownership counts."""
    member = group.members.get(process.member_id)
    if member is None:
        return False
    # A static member stays one, though others went on without it.
    behind = 0 if member.instance_id is None else group.generation - process.synced_generation
    return behind <= (1 if group.state is ClassicGroupState.COMPLETING_REBALANCE else 0)


def _was_left_behind(member: ConsumerMember, process: MemberProcess) -> bool:
    """Whether a static classic member missed a generation before the group was moved to KIP-848."""
    return (
        member.classic is not None
        and member.instance_id is not None
        and (0 <= process.synced_generation < member.previous_member_epoch)
    )


def _starts_anew(command: Command | None, member: ConsumerMember) -> bool:
    """Whether a command tells that its member owns nothing, or only a part."""
    if isinstance(command, asked.JoinGroup):
        return member.classic is not None or member.instance_id == command.instance_id
    return (
        isinstance(command, asked.ConsumerGroupHeartbeat)
        and command.member_id == member.member_id
        and command.member_epoch == 0
    )
