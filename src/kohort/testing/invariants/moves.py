"""The law that a new target takes from staying members only the partitions that balance needs.

Laws: where all members of before and after want the same topics, a target of a built-in sticky assignor takes from the
members that stay as few partitions as there are beyond their even shares, whatever came or went; with a limit of moves,
no more than that limit. So many short-lived members cost a few stable ones no more than their share each time.
A target of `external` takes no partition from a member that stays and still subscribes to the topic.
Source: requirement G7 (ephemeral members); KIP-848 (minimal moves); H2 (`group.assignor.max.moves`); H9 (`external`).
"""

from __future__ import annotations

from typing import Final

from kohort.assign.external import External
from kohort.coordinator import records as facts
from kohort.coordinator.commands.admin import SubmitMoves
from kohort.coordinator.commands.assignors import InstallAssignment
from kohort.coordinator.commands.base import Command
from kohort.coordinator.commands.groups import TargetComputed
from kohort.coordinator.consumer.subscription_metadata import topics_of
from kohort.coordinator.consumer.targets.assignor_input import chosen_assignor
from kohort.coordinator.decision import Decision
from kohort.coordinator.model import ConsumerGroup
from kohort.coordinator.shard import Shard
from kohort.ids import TopicId
from kohort.testing.trace import LawBroken

#: Assignors that promise it.
_STICKY: Final = ("uniform", "sticky")
_Owned = set[tuple[TopicId, int]]


class MoveLaws:
    """Comparison of each target with the one before; of all shards."""

    def __init__(self) -> None:
        #: group -> member -> what its target was before the step.
        self._before: dict[str, dict[str, _Owned]] = {}
        #: Partitions that staying members lost by new targets, and the share that balance needed.
        self.lost = 0
        self.needed = 0

    def before_step(self, shard: Shard, command: Command | None, decision: Decision) -> None:
        """Note the targets that the step replaces."""
        self._before = {}
        if isinstance(command, TargetComputed | InstallAssignment | SubmitMoves):
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
    """Count the partitions that members have to give up for an even share.

    `had`: partitions that each member owns now.

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
