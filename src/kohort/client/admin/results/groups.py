"""What the admin client returns of groups and their offsets."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Final, Generic, TypeVar

from kohort.base.values import from_row
from kohort.client.admin.results.access import authorized_operations
from kohort.client.records import OffsetAndMetadata
from kohort.errors import ConfigError, ErrorCode, ProtocolError
from kohort.ids import TopicPartition
from kohort.wire import embedded
from kohort.wire.messages.consumer_group_describe import Assignment, ConsumerGroupDescribeResponse
from kohort.wire.messages.consumer_group_describe import DescribedGroup as ConsumerGroup
from kohort.wire.messages.consumer_group_describe import Member as ConsumerMember
from kohort.wire.messages.delete_groups import DeleteGroupsResponse
from kohort.wire.messages.describe_groups import DescribedGroup as ClassicGroup
from kohort.wire.messages.describe_groups import DescribedGroupMember as ClassicMember
from kohort.wire.messages.describe_groups import DescribeGroupsResponse
from kohort.wire.messages.group_history import HistoryRow
from kohort.wire.messages.list_groups import ListedGroup
from kohort.wire.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchResponse,
    OffsetFetchResponseTopic,
    OffsetFetchResponseTopics,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class HistoryEvent:
    """One row of a group's history.

    `kind`: "stimulus" came in, "decision" was taken, "transition" has changed. `cause`: number of the input that made
    the row; `origin`: number of the input that began the rebalance it belongs to. `times` above 1: it was repeated
    until `last_time_ms`. Times in milliseconds since 1970.
    """

    sequence: int
    time_ms: int
    last_time_ms: int
    times: int
    cause: int
    origin: int
    kind: str
    event: str
    member_id: str
    details: dict[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupHistory:
    """What a broker still has of a group's history, oldest first, and how often what changed nothing happened.

    `is_complete`: no row of the group is missing. `has_older`: the broker has older rows on disk, which were not asked
    for (`whole`).
    """

    group_id: str
    events: tuple[HistoryEvent, ...]
    counts: dict[str, int]
    is_complete: bool
    has_older: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupListing:
    """One group; `group_type` "classic" or "consumer", `state` as the broker names it."""

    group_id: str
    group_type: str
    state: str
    protocol_type: str


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupSummary:
    """One group with its members counted; `lag`: over the partitions it has committed, `None` if there are none."""

    group_id: str
    group_type: str
    state: str
    protocol_type: str
    members: int
    lag: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberDescription:
    """One member; `member_epoch` is `None` for a classic member, `target` is empty where the protocol has none.

    `offline_since_ms`: of a static group, when its offline member was last heard of, milliseconds since 1970; `None`
    for one that is online. `metadata`: what it publishes, `None` for nothing, as of every classic member and on
    brokers that are none of kohort's. `metadata_size`: how many bytes that is, -1 for nothing; where all that a group
    publishes is more than 1 MiB, some members have a size and `None`.
    """

    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    member_epoch: int | None
    assignment: tuple[TopicPartition, ...]
    target: tuple[TopicPartition, ...]
    offline_since_ms: int | None = None
    metadata: bytes | None = None
    metadata_size: int = -1

    @classmethod
    def of_consumer(cls, row: ConsumerMember) -> MemberDescription:
        """Build the description of a member of a KIP-848 group."""
        return from_row(
            cls,
            row,
            assignment=_partitions(row.assignment),
            target=_partitions(row.target_assignment),
            offline_since_ms=_or_none(row.offline_since_ms),
            metadata=None if row.metadata is None else bytes(row.metadata),
        )

    @classmethod
    def of_classic(cls, row: ClassicMember, protocol_type: str) -> MemberDescription:
        """Build the description of a classic member; of protocol types but "consumer" only it can read assignments."""
        return from_row(
            cls,
            row,
            instance_id=row.group_instance_id,
            member_epoch=None,
            assignment=_embedded(row.member_assignment) if protocol_type == "consumer" else (),
            target=(),
            offline_since_ms=_or_none(row.offline_since_ms),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupDescription:
    """One group; epochs are `None` for a classic group.

    `authorized_operations`: what the caller may do with it ("describe", "read", ...), where that was asked for.
    `is_static`: its membership is static (`Admin.enable_static_membership`).
    `assignor_failure`: how an assignor of your own, the broker's or a member's, has failed last; `None` if it has not
    since the latest assignment.
    """

    group_id: str
    group_type: str
    state: str
    assignor: str
    group_epoch: int | None
    assignment_epoch: int | None
    members: tuple[MemberDescription, ...]
    authorized_operations: tuple[str, ...] | None = None
    is_static: bool = False
    assignor_failure: str | None = None

    @classmethod
    def of_consumer(cls, row: ConsumerGroup) -> GroupDescription:
        """Build the description of a KIP-848 group."""
        return from_row(
            cls,
            row,
            group_type="consumer",
            state=row.group_state,
            assignor=row.assignor_name,
            members=tuple(MemberDescription.of_consumer(member) for member in _by_id(row.members)),
            authorized_operations=authorized_operations(row.authorized_operations),
            assignor_failure=row.assignor_failure or None,
        )

    @classmethod
    def of_classic(cls, row: ClassicGroup) -> GroupDescription:
        """Build the description of a classic group."""
        return from_row(
            cls,
            row,
            group_type="classic",
            state=row.group_state,
            assignor=row.protocol_data,
            group_epoch=None,
            assignment_epoch=None,
            members=tuple(MemberDescription.of_classic(member, row.protocol_type) for member in _by_id(row.members)),
            authorized_operations=authorized_operations(row.authorized_operations),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupOffset:
    """Where a group stands in one partition; `committed` and `lag` are `None` where nothing is committed."""

    topic: str
    partition: int
    committed: int | None
    end_offset: int
    lag: int | None
    member_id: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetReset:
    """Where a group begins anew in one partition; `committed` is `None` where nothing was.

    `wanted`: what was asked for; `offset` is the nearest that the log has.
    """

    topic: str
    partition: int
    committed: int | None
    offset: int
    wanted: int


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupConfig:
    """One config of a group; with `is_own` it was set for the group, otherwise `value` is the broker's.

    `doc` is `None` where the broker says nothing about it.
    """

    name: str
    value: str | None
    is_own: bool
    doc: str | None


# Groups as the admin client shows them: both protocols in one shape.

T = TypeVar("T")
M = TypeVar("M", ConsumerMember, ClassicMember)
#: What a group has committed.
Committed = dict[TopicPartition, OffsetAndMetadata]


@dataclass(frozen=True, slots=True, kw_only=True)
class Row(Generic[T]):
    """What a response says of one group; `value` is for those without a code."""

    code: int
    message: str | None = None
    value: T


def listing(group: ListedGroup) -> GroupListing:
    """One line of a list; before version 5 a broker knows classic groups only, and says nothing of types."""
    return from_row(GroupListing, group, group_type=group.group_type.lower() or "classic", state=group.group_state)


def read_consumer_groups(response: ConsumerGroupDescribeResponse, _: list[str]) -> dict[str, Row[GroupDescription]]:
    """group -> what is said of it as one of the new protocol."""
    return {
        row.group_id: Row(code=row.error_code, message=row.error_message, value=GroupDescription.of_consumer(row))
        for row in response.groups
    }


def read_classic_groups(response: DescribeGroupsResponse, _: list[str]) -> dict[str, Row[GroupDescription]]:
    """group -> what is said of it as a classic one; there is none by code, before version 6 by the state Dead."""
    return {
        row.group_id: Row(
            code=ErrorCode.GROUP_ID_NOT_FOUND if row.group_state == "Dead" and not row.error_code else row.error_code,
            # Of a group that is not there some say nothing, and others what ours say.
            message=row.error_message or None,
            value=GroupDescription.of_classic(row),
        )
        for row in response.groups
    }


def read_deletions(response: DeleteGroupsResponse, _: list[str]) -> dict[str, Row[None]]:
    """group -> whether it is deleted."""
    return {row.group_id: Row(code=row.error_code, value=None) for row in response.results}


def offsets_request(groups: list[str]) -> OffsetFetchRequest:
    """All that groups have committed; up to version 7 of one group."""
    rows = [OffsetFetchRequestGroup(group_id=group, topics=None) for group in groups]
    return OffsetFetchRequest(group_id=groups[0], topics=None, groups=rows, require_stable=False)


def read_offsets(response: OffsetFetchResponse, groups: list[str]) -> dict[str, Row[Committed]]:
    """group -> what it has committed; up to version 7 the one group stands in the response itself."""
    if not response.groups:
        return {groups[0]: _offsets_row(response.error_code, response.topics)}
    return {row.group_id: _offsets_row(row.error_code, row.topics) for row in response.groups}


def _offsets_row(
    code: int, topics: Collection[OffsetFetchResponseTopic] | Collection[OffsetFetchResponseTopics]
) -> Row[Committed]:
    committed = {
        TopicPartition(topic.name, row.partition_index): OffsetAndMetadata(
            row.committed_offset, row.metadata or "", row.committed_leader_epoch
        )
        for topic in topics
        for row in topic.partitions
        if row.committed_offset >= 0
    }
    # A group that is not there has committed nothing.
    return Row(code=0 if ErrorCode.of(code) is ErrorCode.GROUP_ID_NOT_FOUND else code, value=committed)


def group_offsets(
    members: Collection[MemberDescription], committed: Committed, ends: Mapping[TopicPartition, int]
) -> list[GroupOffset]:
    """Where a group stands: every partition that it has committed or that a member owns, by topic and partition."""
    owners = {partition: member.member_id for member in members for partition in member.assignment}
    return [
        GroupOffset(
            topic=partition.topic,
            partition=partition.partition,
            committed=committed[partition].offset if partition in committed else None,
            end_offset=ends.get(partition, -1),
            lag=_lag(partition, committed, ends),
            member_id=owners.get(partition),
        )
        for partition in sorted({*owners, *committed})
    ]


def summary(
    group: GroupListing, members: int, committed: Committed, ends: Mapping[TopicPartition, int]
) -> GroupSummary:
    """One group, counted."""
    lags = [lag for partition in committed if (lag := _lag(partition, committed, ends)) is not None]
    return from_row(GroupSummary, group, members=members, lag=sum(lags) if lags else None)


def _lag(partition: TopicPartition, committed: Committed, ends: Mapping[TopicPartition, int]) -> int | None:
    if partition not in committed or partition not in ends:
        return None
    return max(0, ends[partition] - committed[partition].offset)


def history_event(row: HistoryRow) -> HistoryEvent:
    """One row of a group's history."""
    return from_row(HistoryEvent, row, details={detail.name: detail.value for detail in row.details})


def _or_none(time_ms: int) -> int | None:
    """A time as it goes over the wire, where -1 is none."""
    return None if time_ms < 0 else time_ms


def _by_id(members: list[M]) -> list[M]:
    return sorted(members, key=lambda member: member.member_id)


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


# What a group's id may be, before anybody is asked about the group: its coordinator is looked for by it.

#: The length of a string on the wire is an int16.
_MOST_BYTES: Final = 32_767


def check_group_id(group_id: object) -> None:
    """Refuse what no request can have as a group id.

    Raises:
        TypeError: it is no text.
        ConfigError: it is too long, or no text that has bytes.
    """
    if not isinstance(group_id, str):
        raise TypeError(f"{group_id!r} is no group id; expected a text")
    try:
        size = len(group_id.encode())
    except UnicodeEncodeError as why:
        raise ConfigError(f"{group_id!r} is no group id: {why.reason}") from None
    if size > _MOST_BYTES:
        raise ConfigError(f"the group id {group_id[:20]}... has {size} bytes; at most {_MOST_BYTES} are possible")


# What is asked of groups whose members have names, and of those that go by sessions.
#
# Source: KIP-345 as drafted; `group.membership` and the configs beside it are kohort's.

MODE: Final = "group.membership"
STATIC: Final = "static"
DYNAMIC: Final = "dynamic"
REGISTRATION: Final = "group.registration.timeout.ms"
EXPANSION: Final = "group.expansion.timeout.ms"
#: A new value forces a rebalance.
TOKEN: Final = "group.rebalance.token"


def static_changes(registration_timeout: object, expansion_timeout: object) -> dict[str, object]:
    """The configs that make a group static; `None` leaves a timeout as it is.

    Raises:
        TypeError: a timeout is neither milliseconds nor a `timedelta`.
        ConfigError: it is negative.
    """
    given = {REGISTRATION: registration_timeout, EXPANSION: expansion_timeout}
    timeouts = {name: _milliseconds(value, name) for name, value in given.items() if value is not None}
    return {MODE: STATIC, **timeouts}


def _milliseconds(given: object, name: str) -> int:
    if isinstance(given, timedelta):
        given = given // timedelta(milliseconds=1)
    if isinstance(given, bool) or not isinstance(given, int):
        raise TypeError(f"{name} cannot be {given!r}: milliseconds or a timedelta are expected")
    if given < 0:
        raise ConfigError(f"{name} cannot be {given}: no time is negative")
    return given
