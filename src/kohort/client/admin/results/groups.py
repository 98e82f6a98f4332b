"""Descriptions of groups and their offsets, and the requests for them; the same classes for both group protocols."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import field
from datetime import timedelta
from typing import Final, Generic, TypeVar

from kohort.base.values import from_row, or_none, value
from kohort.client.admin.results.access import authorized_operations
from kohort.client.records import OffsetAndMetadata
from kohort.errors import ConfigError, ErrorCode, ProtocolError
from kohort.ids import TopicPartition
from kohort.journal.explain.explanation import HoldingTransaction
from kohort.wire import embedded
from kohort.wire.messages import consumer_group_describe, delete_groups, describe_groups, offset_fetch
from kohort.wire.messages.group_history import HistoryRow
from kohort.wire.messages.group_history import HoldingTransaction as HeldRow
from kohort.wire.messages.list_groups import ListedGroup

T = TypeVar("T")
M = TypeVar("M", consumer_group_describe.Member, describe_groups.DescribedGroupMember)
#: The committed offsets of a group.
Committed = dict[TopicPartition, OffsetAndMetadata]

# Configs of static groups (KIP-345 as drafted); `group.membership` and the configs beside it are kohort's.
MODE: Final = "group.membership"
STATIC: Final = "static"
DYNAMIC: Final = "dynamic"
REGISTRATION: Final = "group.registration.timeout.ms"
EXPANSION: Final = "group.expansion.timeout.ms"
#: A new value forces a rebalance.
TOKEN: Final = "group.rebalance.token"
#: Longest id of a group: the length of a string on the wire is an int16.
_MOST_BYTES: Final = 32_767


@value
class HistoryEvent:
    """One row of a group's history.

    `kind`: "stimulus" (an input, e.g. a request), "decision" of the coordinator, or "transition" (a change of state).
    `cause`: number of the input that led to the row. `origin`: number of the input that began its rebalance. `times`:
    how often the same event occurred, for the last time at `last_time_ms`. Times are milliseconds since 1970.
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


@value
class GroupHistory:
    """A group's history as far as a broker has it, oldest first; `counts`: number of inputs that changed nothing.

    `is_complete`: no row of the group is missing. `has_older`: the broker has older rows on disk, which are only
    read with `whole`. `held_by`: open transactions for which members wait now.
    """

    group_id: str
    events: tuple[HistoryEvent, ...]
    counts: dict[str, int]
    is_complete: bool
    has_older: bool = False
    held_by: tuple[HoldingTransaction, ...] = ()


@value
class GroupListing:
    """One group of a list; `group_type` is "classic" or "consumer", `state` the broker's name, e.g. "Stable"."""

    group_id: str
    group_type: str
    state: str
    protocol_type: str

    @classmethod
    def of(cls, row: ListedGroup) -> GroupListing:
        """Build the entry of a group; before version 5 the response has no types, and all groups are classic."""
        return from_row(cls, row, group_type=row.group_type.lower() or "classic", state=row.group_state)


@value
class GroupSummary:
    """One group; `members`: their number. `lag`: the sum over all committed partitions, `None` without any."""

    group_id: str
    group_type: str
    state: str
    protocol_type: str
    members: int
    lag: int | None


@value
class MemberDescription:
    """One member; `member_epoch` is `None` for a classic member, `target` is empty in classic groups.

    `offline_since_ms`: for an offline member of a static group, when it was last heard, milliseconds since 1970; `None`
    while it is online. `metadata`: the bytes that it publishes (kohort's brokers, consumer protocol), else `None`.
    `metadata_size`: their number, -1 for none. If a group publishes more than 1 MiB, `metadata` is left out for some
    members, which still have a size.

    The other fields come from kohort's brokers only, are `None` if unknown, and do not count in a comparison.
    Milliseconds before the response: `last_heard_ms` (a heartbeat or another request), `last_fetch_ms`,
    `last_commit_ms`, and `last_poll_ms` (the application's last poll, at most; kohort's clients send it with
    heartbeats). `session_left_ms`: until its session times out. `overdue_ms`: for how long other members have waited
    for it to give up partitions or to rejoin, `None` if none waits. `is_connected`: whether it has an open connection.
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
    last_heard_ms: int | None = field(default=None, compare=False)
    last_fetch_ms: int | None = field(default=None, compare=False)
    last_commit_ms: int | None = field(default=None, compare=False)
    session_left_ms: int | None = field(default=None, compare=False)
    overdue_ms: int | None = field(default=None, compare=False)
    is_connected: bool | None = field(default=None, compare=False)
    last_poll_ms: int | None = field(default=None, compare=False)

    @classmethod
    def of_consumer(cls, row: consumer_group_describe.Member) -> MemberDescription:
        """Build the description of a member of a KIP-848 group."""
        return from_row(
            cls,
            row,
            assignment=_partitions(row.assignment),
            target=_partitions(row.target_assignment),
            **_signs(row),
            metadata=None if row.metadata is None else bytes(row.metadata),
        )

    @classmethod
    def of_classic(cls, row: describe_groups.DescribedGroupMember, protocol_type: str) -> MemberDescription:
        """Build the description of a classic member; only the protocol type "consumer" has a known assignment."""
        return from_row(
            cls,
            row,
            instance_id=row.group_instance_id,
            member_epoch=None,
            assignment=_embedded(row.member_assignment) if protocol_type == "consumer" else (),
            target=(),
            **_signs(row),
        )


#: Fields of a member that are -1 in a response if they are unknown.
_TIMES: Final = (
    "offline_since_ms", "last_heard_ms", "last_fetch_ms", "last_commit_ms", "session_left_ms", "overdue_ms",
    "last_poll_ms",
)  # fmt: skip


def _signs(row: consumer_group_describe.Member | describe_groups.DescribedGroupMember) -> dict[str, int | bool | None]:
    """Return the times at which a member was last heard and its connection's state; `None` if not reported."""
    connected = or_none(row.is_connected)
    times: dict[str, int | bool | None] = {name: or_none(getattr(row, name)) for name in _TIMES}
    return {**times, "is_connected": None if connected is None else bool(connected)}


@value
class GroupDescription:
    """One group; epochs are `None` for a classic group.

    `authorized_operations`: the operations that the caller may perform on it ("describe", "read", ...), if asked for.
    `is_static`: the group is static (`Admin.enable_static_membership`). `assignor_failure`: the latest failure of a
    custom assignor, of the broker or of a member; `None` if none has failed since the latest assignment.
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
    def of_consumer(cls, row: consumer_group_describe.DescribedGroup) -> GroupDescription:
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
    def of_classic(cls, row: describe_groups.DescribedGroup) -> GroupDescription:
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


@value
class GroupOffset:
    """A group's offset in one partition; `committed` and `lag` are `None` if nothing is committed."""

    topic: str
    partition: int
    committed: int | None
    end_offset: int
    lag: int | None
    member_id: str | None


@value
class OffsetReset:
    """The new committed offset of a group in one partition; `committed`: the present one, `None` if there is none.

    `wanted`: the requested offset. `offset`: the one to set, the nearest within the log.
    """

    topic: str
    partition: int
    committed: int | None
    offset: int
    wanted: int


@value
class GroupConfig:
    """One config of a group; `is_own`: set for the group, otherwise `value` is the broker's default.

    `doc`: the broker's documentation, `None` if it has none.
    """

    name: str
    value: str | None
    is_own: bool
    doc: str | None


@value
class Row(Generic[T]):
    """The row of one group in a response; `value` only counts if `code` is 0 (NONE)."""

    code: int
    message: str | None = None
    value: T


def read_consumer_groups(
    response: consumer_group_describe.ConsumerGroupDescribeResponse, _: list[str]
) -> dict[str, Row[GroupDescription]]:
    """Read the descriptions of groups of the consumer protocol, by group id."""
    return {
        row.group_id: Row(code=row.error_code, message=row.error_message, value=GroupDescription.of_consumer(row))
        for row in response.groups
    }


def read_classic_groups(
    response: describe_groups.DescribeGroupsResponse, _: list[str]
) -> dict[str, Row[GroupDescription]]:
    """Read the descriptions of classic groups; before version 6, state Dead means that the group does not exist."""
    return {
        row.group_id: Row(
            code=ErrorCode.GROUP_ID_NOT_FOUND if row.group_state == "Dead" and not row.error_code else row.error_code,
            # For a missing group some brokers send no message, and others the same as kohort's.
            message=row.error_message or None,
            value=GroupDescription.of_classic(row),
        )
        for row in response.groups
    }


def read_deletions(response: delete_groups.DeleteGroupsResponse, _: list[str]) -> dict[str, Row[None]]:
    """Read the result of each group's deletion."""
    return {row.group_id: Row(code=row.error_code, value=None) for row in response.results}


def offsets_request(groups: list[str]) -> offset_fetch.OffsetFetchRequest:
    """Build the request for all committed offsets of groups; up to version 7 it can name one group only."""
    rows = [offset_fetch.OffsetFetchRequestGroup(group_id=group, topics=None) for group in groups]
    return offset_fetch.OffsetFetchRequest(group_id=groups[0], topics=None, groups=rows, require_stable=False)


def read_offsets(response: offset_fetch.OffsetFetchResponse, groups: list[str]) -> dict[str, Row[Committed]]:
    """Read the committed offsets of each group; up to version 7 those of one group are the response itself."""
    if not response.groups:
        return {groups[0]: _offsets_row(response.error_code, response.topics)}
    return {row.group_id: _offsets_row(row.error_code, row.topics) for row in response.groups}


def _offsets_row(
    code: int,
    topics: Collection[offset_fetch.OffsetFetchResponseTopic] | Collection[offset_fetch.OffsetFetchResponseTopics],
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
    """List a group's offsets in every partition that it has committed or that a member owns, by topic and partition."""
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
    """Count the members and the lag of one group."""
    lags = [lag for partition in committed if (lag := _lag(partition, committed, ends)) is not None]
    return from_row(GroupSummary, group, members=members, lag=sum(lags) if lags else None)


def _lag(partition: TopicPartition, committed: Committed, ends: Mapping[TopicPartition, int]) -> int | None:
    if partition not in committed or partition not in ends:
        return None
    return max(0, ends[partition] - committed[partition].offset)


def holding_transaction(row: HeldRow) -> HoldingTransaction:
    """Read one transaction that holds a group back."""
    return from_row(HoldingTransaction, row, offset=or_none(row.offset), open_ms=or_none(row.open_ms))


def history_event(row: HistoryRow) -> HistoryEvent:
    """Read one row of a group's history."""
    return from_row(HistoryEvent, row, details={detail.name: detail.value for detail in row.details})


def _by_id(members: list[M]) -> list[M]:
    return sorted(members, key=lambda member: member.member_id)


def _partitions(assignment: consumer_group_describe.Assignment) -> tuple[TopicPartition, ...]:
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


def check_group_id(group_id: object) -> None:
    """Check that a group id fits into a request, before its coordinator is looked up.

    Raises:
        TypeError: the id is not text.
        ConfigError: the id is too long, or cannot be encoded as UTF-8.
    """
    if not isinstance(group_id, str):
        raise TypeError(f"{group_id!r} is no group id; expected a text")
    try:
        size = len(group_id.encode())
    except UnicodeEncodeError as why:
        raise ConfigError(f"{group_id!r} is no group id: {why.reason}") from None
    if size > _MOST_BYTES:
        raise ConfigError(f"the group id {group_id[:20]}... has {size} bytes; at most {_MOST_BYTES} are possible")


def static_changes(registration_timeout: object, expansion_timeout: object) -> dict[str, object]:
    """Return the configs that make a group static; `None` leaves a timeout as it is.

    Raises:
        TypeError: a timeout is neither milliseconds nor a `timedelta`.
        ConfigError: a timeout is negative.
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
