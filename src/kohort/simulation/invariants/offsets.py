"""Laws about committed offsets and processed records.

Laws: partitions are distinguished by topic id, so a re-created topic has other partitions. Commits by name, as in the
classic protocol, may be stored for a re-created topic, so processed records are not checked there. A static classic
member that missed a rebalance gets a generation again before it learns which partitions it has lost. Its commits in
that time are a gap of the classic protocol, which does not check commits per partition, not the coordinator's fault.
Source: architecture (Determinism); Jepsen's checks of commits; KIP-848 (commits are fenced by the epoch of the grant).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from kohort.coordinator import commands
from kohort.coordinator.decision import Decision, ReplyBody
from kohort.coordinator.model import GroupsState
from kohort.coordinator.records import types as facts
from kohort.errors import ErrorCode
from kohort.ids import TopicId
from kohort.simulation.members.process import MemberProcess
from kohort.simulation.trace import LawBroken

#: (group, topic, partition)
Place = tuple[str, str, int]
#: topic id, offset
Commit = tuple[TopicId, int]


class OffsetLaws:
    """Every commit from its decision to its response, and the positions that members derive from it.

    Args:
        home_of: returns the number of the shard that coordinates a group.
        label_of: returns a topic id's label, the name that members use.
        members: every process of the world.
        is_clean: this world has no faults, so that each record is processed once.
    """

    def __init__(
        self,
        home_of: Callable[[str], int],
        label_of: Callable[[TopicId], str],
        members: Mapping[str, MemberProcess],
        *,
        is_clean: bool,
    ) -> None:
        self._members = members
        self._label_of = label_of
        self._home_of = home_of
        self._is_clean = is_clean
        #: The latest commit of each partition in the living state.
        self._committed: dict[Place, Commit] = {}
        #: The highest commit that a member was told is stored.
        self._acknowledged: dict[Place, Commit] = {}
        #: The number of the request by which an administrator set a place last.
        self._set_by: dict[Place, int] = {}
        #: (group, label of the topic, partition) -> the offset below which the group has processed everything.
        self._processed: dict[Place, int] = {}

    def before_step(self, groups: GroupsState, command: commands.Command | None, decision: Decision) -> None:
        """Check the commits that a decision is about to store or delete."""
        for record in decision.records:
            if isinstance(record, facts.OffsetCommitted):
                self._on_committed(groups, record, command)
            elif isinstance(record, facts.OffsetForgotten):
                place = (record.group_id, record.topic, record.partition)
                self._committed.pop(place, None)
                self._acknowledged.pop(place, None)

    def on_answer(self, command: commands.GroupCommand, body: ReplyBody) -> None:
        """Check that the committed offsets in a reply stay true."""
        if isinstance(command, commands.CommitOffsets) and isinstance(body, commands.CommitOffsetsReply):
            self._on_commit_answered(command, body)
        elif isinstance(command, commands.FetchOffsets) and isinstance(body, commands.FetchOffsetsReply):
            for found in body.offsets:
                self._check_fetched(command.group_id, found)

    def on_restart(self, groups: GroupsState, index: int) -> None:
        """Check that the offsets after a crash contain everything that was acknowledged."""
        kept = {place: commit for place, commit in self._committed.items() if self._home_of(place[0]) != index}
        self._committed = kept
        for group_id, topics in groups.offsets.items():
            for topic, partitions in topics.items():
                for partition, found in partitions.items():
                    kept[group_id, topic, partition] = (found.topic_id, found.offset)
        for place, (topic_id, offset) in self._acknowledged.items():
            now = kept.get(place)
            is_here = self._home_of(place[0]) == index
            if is_here and (now is None or (now[0] == topic_id and now[1] < offset)):
                why = f"the commit {offset} of {place} was acknowledged, and a crash took it"
                raise LawBroken("AcknowledgedCommitSurvives", why, group_id=place[0])

    def on_begun(self, group_id: str, label: str, partition: int, offset: int) -> None:
        """Check the offset at which a member begins to read a partition of the topic with this label."""
        place = (group_id, label, partition)
        known = self._processed.get(place, 0)
        if offset > known:
            why = f"{label}-{partition} goes on at {offset}, and only what is below {known} was processed"
            raise LawBroken("NothingIsSkipped", why, group_id=group_id)
        if self._is_clean and offset < known:
            why = f"{label}-{partition} goes on at {offset}, and everything below {known} was processed"
            raise LawBroken("ProcessedOnce", why, group_id=group_id)

    def on_processed(self, group_id: str, label: str, partition: int, offset: int) -> None:
        """Note that a member has processed a partition from its begin up to an offset."""
        place = (group_id, label, partition)
        if offset > self._processed.get(place, 0):
            self._processed[place] = offset

    def _on_committed(
        self, groups: GroupsState, record: facts.OffsetCommitted, command: commands.Command | None
    ) -> None:
        place = (record.group_id, record.topic, record.partition)
        before = self._committed.get(place)
        self._committed[place] = (record.topic_id, record.offset)
        if not isinstance(command, commands.CommitOffsets):
            return
        if command.generation_or_member_epoch < 0:
            # An administrator may do that; no member is then told less than the acknowledged offset.
            self._acknowledged.pop(place, None)
            self._set_by[place] = command.request
            self._processed[record.group_id, self._label_of(record.topic_id), record.partition] = record.offset
            return
        if record.group_id not in groups.consumer and self._was_left_behind(command):
            # Nothing is known of this place until its owner has committed.
            self._committed.pop(place, None)
            self._acknowledged.pop(place, None)
            return
        # First the committer, then the offset: another committer is the reason for which the offset goes back.
        group = groups.consumer.get(record.group_id)
        holders = group.holders.get(record.topic_id, {}) if group is not None else {}
        holder = holders.get(record.partition, command.member_id)
        if holder != command.member_id:
            why = f"{command.member_id} commits {place}, which {holder} holds"
            raise LawBroken("CommitByHolderOnly", why, group_id=record.group_id)
        if before is not None and before[0] == record.topic_id and record.offset < before[1]:
            why = f"the commit of {place} goes back from {before[1]} to {record.offset}"
            raise LawBroken("CommitNeverGoesBack", why, group_id=record.group_id)

    def _was_left_behind(self, command: commands.CommitOffsets) -> bool:
        process = next((p for p in self._members.values() if p.member_id == command.member_id), None)
        if process is None or process.instance_id is None or process.synced_generation < 0:
            return False
        return command.generation_or_member_epoch > process.synced_generation + 1

    def _on_commit_answered(self, command: commands.CommitOffsets, body: commands.CommitOffsetsReply) -> None:
        for offset, error in zip(command.offsets, body.errors, strict=True):
            place = (command.group_id, offset.topic, offset.partition)
            if error != ErrorCode.NONE or place not in self._committed:
                continue
            # The answer to what an administrator has overruled meanwhile promises nothing any more.
            if command.request < self._set_by.get(place, 0):
                continue
            topic_id, _ = self._committed[place]
            known = self._acknowledged.get(place)
            is_newest = known is None or known[0] != topic_id or known[1] < offset.offset
            if is_newest and command.generation_or_member_epoch >= 0:
                self._acknowledged[place] = (topic_id, offset.offset)

    def _check_fetched(self, group_id: str, found: commands.CommittedOffset) -> None:
        known = self._acknowledged.get((group_id, found.topic, found.partition))
        if known is not None and known[0] == found.topic_id and found.offset < known[1]:
            why = f"{found.topic}-{found.partition} is said to be at {found.offset}, and {known[1]} was acknowledged"
            raise LawBroken("AcknowledgedCommitSurvives", why, group_id=group_id)
