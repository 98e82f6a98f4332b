"""The admin client's calls that change the offsets and the members of a group.

Source: Kafka's Admin (alterConsumerGroupOffsets, deleteConsumerGroupOffsets, removeMembersFromConsumerGroup) and
kafka-consumer-groups (`--reset-offsets`).
"""

from __future__ import annotations

import time
from collections.abc import Collection, Iterable, Mapping

from kohort.client.admin.admin_machine import Coordinator, Question
from kohort.client.admin.calls.groups import GroupCalls
from kohort.client.admin.questions import Calls, Questions, answered, check
from kohort.client.admin.results import offsets as results
from kohort.client.admin.results import topics as topic_results
from kohort.client.admin.results.groups import MemberDescription, OffsetReset
from kohort.client.admin.results.offsets import ResetTo
from kohort.client.arguments import to_offsets, to_partition, to_partitions
from kohort.client.records import Committable
from kohort.errors import BrokerError, ConfigError, ErrorCode, GroupNotEmptyError, UnknownTopicError
from kohort.ids import TopicPartition
from kohort.wire.messages import leave_group, offset_commit, offset_delete

#: Error codes of a commit by a non-member into a group that has members.
_HAS_MEMBERS = frozenset(
    {ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.NON_EMPTY_GROUP, ErrorCode.ILLEGAL_GENERATION, ErrorCode.STALE_MEMBER_EPOCH}
)
_REASON = "removed by an administrator"


class OffsetCalls(Calls):
    """The calls that change offsets and members of groups."""

    def __init__(self, questions: Questions) -> None:
        super().__init__(questions)
        self._groups = GroupCalls(questions)

    async def alter_group_offsets(self, group: str, offsets: Mapping[TopicPartition, Committable]) -> None:
        """Set committed offsets of a group; a group that does not exist is created.

        Args:
            offsets: by partition, the next offset to read; a number or an `OffsetAndMetadata`.

        Raises:
            GroupNotEmptyError: the group has members, whose next commit would overwrite them; nothing is changed.
            UnknownTopicError: a partition does not exist; the others are changed.
            BrokerError: OFFSET_METADATA_TOO_LARGE, ...
        """
        chosen = to_offsets(offsets)
        if not chosen:
            return
        during = f"setting the offsets of group {group}"
        response = await self._ask(
            Question(
                results.commit_request(group, chosen),
                offset_commit.OffsetCommitResponse,
                target=Coordinator(group_id=group),
                during=during,
                codes=lambda response: [row.error_code for topic in response.topics for row in topic.partitions],
                # Later versions know topics by id only.
                max_version=9,
            )
        )
        for topic in response.topics:
            for row in topic.partitions:
                if ErrorCode.of(row.error_code) in _HAS_MEMBERS:
                    raise await self._not_empty(group, during)
                check(row, during, text=f"{topic.name}-{row.partition_index}", topic=topic.name)

    async def delete_group_offsets(self, group: str, partitions: Iterable[TopicPartition]) -> None:
        """Delete a group's committed offsets of some partitions; a partition without an offset is no error.

        Raises:
            BrokerError: GROUP_ID_NOT_FOUND; GROUP_SUBSCRIBED_TO_TOPIC: members read it; other offsets are deleted.
            UnknownTopicError: a partition does not exist; the offsets of the others are deleted.
        """
        chosen = to_partitions(partitions)
        if not chosen:
            return
        during = f"deleting offsets of group {group}"
        request, target = results.delete_request(group, chosen), Coordinator(group_id=group)
        response = await self._ask(Question(request, offset_delete.OffsetDeleteResponse, target=target, during=during))
        if ErrorCode.of(response.error_code) is ErrorCode.NON_EMPTY_GROUP:
            raise await self._not_empty(group, during)
        is_missing = response.error_code == ErrorCode.GROUP_ID_NOT_FOUND
        check(response, during, text=f"there is no group {group}" if is_missing else None)
        for topic in response.topics:
            for row in topic.partitions:
                text = f"{topic.name}-{row.partition_index}; stop the members that read it first"
                check(row, during, text=text, topic=topic.name)

    async def remove_members(
        self, group: str, members: Collection[str] | None = None, *, reason: str | None = None
    ) -> list[str]:
        """Remove members from a group, as if they had left; a client that is running joins again.

        Args:
            members: member ids or static names (`group.instance.id`); `None` means all members.
            reason: a text for the broker's log and the group's history.

        Returns:
            The ids of the removed members.

        Raises:
            BrokerError: GROUP_ID_NOT_FOUND; UNKNOWN_MEMBER_ID: a member does not exist, so none is removed.
        """
        if isinstance(members, str):
            raise TypeError(f"members cannot be {members!r}: a list of ids or names is expected, like [{members!r}]")
        during = f"removing members of group {group}"
        there = (await self._groups.describe_group(group)).members
        chosen = list(there) if members is None else [_find(there, each, group, during) for each in members]
        if not chosen:
            return []
        request = results.leave_request(
            group, [(each.member_id, each.instance_id) for each in chosen], reason or _REASON
        )
        target = Coordinator(group_id=group)
        response = await self._ask(Question(request, leave_group.LeaveGroupResponse, target=target, during=during))
        check(response, during)
        for row in response.members:
            # A member that has left by itself meanwhile is out as well.
            if ErrorCode.of(row.error_code) is not ErrorCode.UNKNOWN_MEMBER_ID:
                check(row, during, text=row.group_instance_id or row.member_id)
        return [each.member_id for each in chosen]

    async def reset_offsets(
        self,
        group: str,
        to: ResetTo | None = None,
        *,
        shift_by: int | None = None,
        of: Iterable[str | TopicPartition] | None = None,
        execute: bool = False,
    ) -> list[OffsetReset]:
        """Plan new committed offsets for a group, as kafka-consumer-groups --reset-offsets; `execute` sets them.

        Args:
            to: "earliest", "latest" or "current"; an offset; a mapping of partitions to offsets; or a time, as a
                `datetime` with a time zone or a `timedelta` before now: the first record from then on, else the end.
            shift_by: number of offsets to add to the committed ones; negative to go back.
            of: topics and partitions; `None` means those that the group has committed, or that `to` names.
            execute: set the offsets; otherwise nothing is changed.

        Returns:
            The plan, sorted by topic and partition. Each offset lies within the log: from its start to its end.

        Raises:
            GroupNotEmptyError: with `execute`, the group has members; nothing is changed.
            UnknownTopicError: a topic or partition does not exist.
            ConfigError: there is nothing to reset, or the arguments contradict each other.
        """
        results.check_reset(to, shift_by)
        if isinstance(to, Mapping):
            to = {to_partition(each): _whole(offset) for each, offset in to.items()}
        committed = await self._committed(group)
        partitions = await self._reset_partitions(group, to, of, committed)
        metadata = await self._questions.metadata({each.topic for each in partitions})
        stamp = results.timestamp_of(to, now_ms=int(time.time() * 1000))
        begins = await self._questions.offsets(partitions, topic_results.EARLIEST, metadata)
        ends = await self._questions.offsets(partitions, topic_results.LATEST, metadata)
        for each in sorted(partitions - (begins.keys() & ends.keys())):
            raise BrokerError(ErrorCode.LEADER_NOT_AVAILABLE, f"{each} has no leader now", during=f"resetting {group}")
        rows = results.plan(
            partitions,
            to,
            shift_by,
            committed=committed,
            begins=begins,
            ends=ends,
            by_time={} if stamp is None else await self._questions.offsets(partitions, stamp, metadata),
        )
        if execute:
            await self._check_is_empty(group, f"resetting the offsets of group {group}")
            await self.alter_group_offsets(
                group, {TopicPartition(row.topic, row.partition): row.offset for row in rows}
            )
        return rows

    async def _committed(self, group: str) -> dict[TopicPartition, int]:
        committed = answered((await self._groups.list_group_offsets([group]))[group])
        return {partition: kept.offset for partition, kept in committed.items()}

    async def _reset_partitions(
        self,
        group: str,
        to: ResetTo | None,
        of: Iterable[str | TopicPartition] | None,
        committed: Mapping[TopicPartition, int],
    ) -> set[TopicPartition]:
        if isinstance(of, str):
            raise TypeError(f"of cannot be {of!r}: a list of topics or partitions is expected, like [{of!r}]")
        if of is None:
            wanted = set(to) if isinstance(to, Mapping) else set(committed)
            if not wanted:
                raise ConfigError(f"group {group} has committed nothing: name the topics or partitions")
            topics: set[str] = set()
        else:
            given = list(of)
            topics = {each for each in given if isinstance(each, str)}
            wanted = {to_partition(each) for each in given if not isinstance(each, str)}
        named = sorted(topics | {each.topic for each in wanted})
        for topic in (await self._questions.metadata(named)).topics:
            topic_results.check_topic(topic)
            numbers = {row.partition_index for row in topic.partitions}
            asked = {each.partition for each in wanted if each.topic == topic.name}
            if asked - numbers:
                raise UnknownTopicError(topic.name or "", min(asked - numbers), len(numbers))
            if topic.name in topics:
                wanted |= {TopicPartition(topic.name or "", number) for number in numbers}
        if isinstance(to, Mapping) and wanted - to.keys():
            raise ConfigError("there is no offset for some of the partitions that are named: do not name them")
        return wanted

    async def _check_is_empty(self, group: str, during: str) -> None:
        try:
            members = (await self._groups.describe_group(group)).members
        except BrokerError as why:
            if why.code is not ErrorCode.GROUP_ID_NOT_FOUND:
                raise
        else:
            if members:
                raise GroupNotEmptyError(group, [each.client_id or each.member_id for each in members], during=during)

    async def _not_empty(self, group: str, during: str) -> GroupNotEmptyError:
        try:
            await self._check_is_empty(group, during)
        except GroupNotEmptyError as why:
            return why
        return GroupNotEmptyError(group, [], during=during)


def _find(there: Iterable[MemberDescription], wanted: str, group: str, during: str) -> MemberDescription:
    for each in there:
        if wanted in (each.member_id, each.instance_id):
            return each
    raise BrokerError(ErrorCode.UNKNOWN_MEMBER_ID, f"group {group} has no member {wanted}", during=during)


def _whole(offset: object) -> int:
    if isinstance(offset, bool) or not isinstance(offset, int) or offset < 0:
        raise ConfigError(f"an offset cannot be {offset!r}: a whole number, 0 or above, is expected")
    return offset
