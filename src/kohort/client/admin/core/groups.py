"""Groups as the admin client shows them: both protocols in one shape."""

from __future__ import annotations

from kohort.client.admin.results import GroupDescription, GroupListing, HistoryEvent, MemberDescription
from kohort.errors import ErrorCode, ProtocolError
from kohort.ids import TopicPartition
from kohort.wire import embedded
from kohort.wire.messages.consumer_group_describe import Assignment
from kohort.wire.messages.consumer_group_describe import DescribedGroup as ConsumerGroup
from kohort.wire.messages.describe_groups import DescribedGroup as ClassicGroup
from kohort.wire.messages.group_history import HistoryRow
from kohort.wire.messages.list_groups import ListedGroup
from kohort.wire.messages.offset_fetch import OffsetFetchResponse


def listing(group: ListedGroup) -> GroupListing:
    """One line of a list; before version 5 a broker knows classic groups only, and says nothing of types."""
    return GroupListing(
        group_id=group.group_id,
        group_type=group.group_type.lower() or "classic",
        state=group.group_state,
        protocol_type=group.protocol_type,
    )


def from_consumer_group(group: ConsumerGroup) -> GroupDescription:
    """A KIP-848 group."""
    members = tuple(
        MemberDescription(
            member_id=member.member_id,
            instance_id=member.instance_id,
            client_id=member.client_id,
            client_host=member.client_host,
            member_epoch=member.member_epoch,
            assignment=_partitions(member.assignment),
            target=_partitions(member.target_assignment),
        )
        for member in sorted(group.members, key=lambda member: member.member_id)
    )
    return GroupDescription(
        group_id=group.group_id,
        group_type="consumer",
        state=group.group_state,
        assignor=group.assignor_name,
        group_epoch=group.group_epoch,
        assignment_epoch=group.assignment_epoch,
        members=members,
    )


def from_classic_group(group: ClassicGroup) -> GroupDescription:
    """A classic group; members of protocol types other than "consumer" have assignments that only they can read."""
    members = tuple(
        MemberDescription(
            member_id=member.member_id,
            instance_id=member.group_instance_id,
            client_id=member.client_id,
            client_host=member.client_host,
            member_epoch=None,
            assignment=_embedded(member.member_assignment) if group.protocol_type == "consumer" else (),
            target=(),
        )
        for member in sorted(group.members, key=lambda member: member.member_id)
    )
    return GroupDescription(
        group_id=group.group_id,
        group_type="classic",
        state=group.group_state,
        assignor=group.protocol_data,
        group_epoch=None,
        assignment_epoch=None,
        members=members,
    )


def is_missing(group: ClassicGroup) -> bool:
    """Whether DescribeGroups says that there is no such group: version 6 by code, older ones by the state Dead."""
    return ErrorCode.of(group.error_code) is ErrorCode.GROUP_ID_NOT_FOUND or group.group_state == "Dead"


def committed_offsets(response: OffsetFetchResponse) -> dict[TopicPartition, int]:
    """What a group has committed; up to version 7 the topics stand in the response itself, later below the group."""
    rows = [
        (topic.name, row.partition_index, row.committed_offset)
        for group in response.groups
        for topic in group.topics
        for row in topic.partitions
    ]
    rows += [
        (topic.name, row.partition_index, row.committed_offset) for topic in response.topics for row in topic.partitions
    ]
    return {TopicPartition(name, number): offset for name, number, offset in rows if offset >= 0}


def history_event(row: HistoryRow) -> HistoryEvent:
    """One row of a group's history."""
    return HistoryEvent(
        sequence=row.sequence,
        time_ms=row.time_ms,
        last_time_ms=row.last_time_ms,
        times=row.times,
        cause=row.cause,
        origin=row.origin,
        kind=row.kind,
        event=row.event,
        member_id=row.member_id,
        details={detail.name: detail.value for detail in row.details},
    )


def _partitions(assignment: Assignment) -> tuple[TopicPartition, ...]:
    return tuple(
        sorted(
            TopicPartition(topic.topic_name, partition)
            for topic in assignment.topic_partitions
            for partition in topic.partitions
        )
    )


def _embedded(blob: bytes) -> tuple[TopicPartition, ...]:
    if not blob:
        return ()
    try:
        partitions = embedded.decode_assignment(blob).partitions
    except ProtocolError:
        return ()
    return tuple(sorted(TopicPartition(topic, number) for topic, numbers in partitions.items() for number in numbers))
