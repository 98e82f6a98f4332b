"""Groups and their offsets as the admin client asks for them and shows them: both protocols in one shape."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Final, Generic, TypeVar

from kohort.base.values import from_row, or_none
from kohort.client.admin.results.access import authorized_operations
from kohort.client.records import OffsetAndMetadata
from kohort.errors import ConfigError, ErrorCode, ProtocolError
from kohort.ids import TopicPartition
from kohort.wire import embedded
from kohort.wire.messages import consumer_group_describe, delete_groups, describe_groups, offset_fetch
from kohort.wire.messages.group_history import HistoryRow
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
    """A group's history as far as a broker has it, oldest first; `counts`: how often inputs came that change nothing.

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

    @classmethod
    def of(cls, row: ListedGroup) -> GroupListing:
        """Build the line of a group; before version 5 a broker has classic groups only, and tells no types."""
        return from_row(cls, row, group_type=row.group_type.lower() or "classic", state=row.group_state)


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

    `offline_since_ms`: of a static group, the time of the last sign of its offline member, milliseconds since 1970;
    `None` for one that is online. `metadata`: the bytes that it publishes, `None` for none, as of every classic member
    and on brokers that are none of kohort's. `metadata_size`: their number, -1 for none; where a group publishes more
    than 1 MiB in all, some members have a size and `None`.

    Of brokers of kohort, which two descriptions may differ in and be equal, in milliseconds before the answer, `None`
    where it is not known: `last_heard_ms` (a heartbeat, or
    another sign of life), `last_fetch_ms`, `last_commit_ms`. `session_left_ms`: until its session ends. `overdue_ms`:
    for how long others have waited for it to give up partitions or to rejoin; `None` where none does. `is_connected`:
    whether one of its connections is open. `last_poll_ms`: since its application polled at most, which members by
    kohort tell with heartbeats.
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
        """Build the description of a classic member; of protocol types but "consumer" only it can read assignments."""
        return from_row(
            cls,
            row,
            instance_id=row.group_instance_id,
            member_epoch=None,
            assignment=_embedded(row.member_assignment) if protocol_type == "consumer" else (),
            target=(),
            **_signs(row),
        )


#: Fields of a member that are -1 on the wire where they are not known.
_TIMES: Final = (
    "offline_since_ms", "last_heard_ms", "last_fetch_ms", "last_commit_ms", "session_left_ms", "overdue_ms",
    "last_poll_ms",
)  # fmt: skip


def _signs(row: consumer_group_describe.Member | describe_groups.DescribedGroupMember) -> dict[str, int | bool | None]:
    """Return the latest signs of a member, as far as the broker tells them."""
    connected = or_none(row.is_connected)
    times: dict[str, int | bool | None] = {name: or_none(getattr(row, name)) for name in _TIMES}
    return {**times, "is_connected": None if connected is None else bool(connected)}


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupDescription:
    """One group; epochs are `None` for a classic group.

    `authorized_operations`: those that the caller may do with it ("describe", "read", ...), if they were asked for.
    `is_static`: its membership is static (`Admin.enable_static_membership`).
    `assignor_failure`: the latest failure of an assignor of your own, the broker's or a member's; `None` if it has not
    failed since the latest assignment.
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


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupOffset:
    """A group's offset in one partition; `committed` and `lag` are `None` where nothing is committed."""

    topic: str
    partition: int
    committed: int | None
    end_offset: int
    lag: int | None
    member_id: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetReset:
    """The offset at which a group begins anew in one partition; `committed` is `None` where nothing was.

    `wanted`: the offset that was asked for; `offset` is the nearest that the log has.
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Row(Generic[T]):
    """The row of one group in a response; `value` is for those without a code."""

    code: int
    message: str | None = None
    value: T


def read_consumer_groups(
    response: consumer_group_describe.ConsumerGroupDescribeResponse, _: list[str]
) -> dict[str, Row[GroupDescription]]:
    """Read group -> its description as one of the consumer protocol."""
    return {
        row.group_id: Row(code=row.error_code, message=row.error_message, value=GroupDescription.of_consumer(row))
        for row in response.groups
    }


def read_classic_groups(
    response: describe_groups.DescribeGroupsResponse, _: list[str]
) -> dict[str, Row[GroupDescription]]:
    """Read group -> its description as a classic one; before version 6 the state Dead says that there is none."""
    return {
        row.group_id: Row(
            code=ErrorCode.GROUP_ID_NOT_FOUND if row.group_state == "Dead" and not row.error_code else row.error_code,
            # Of a group that is not there some brokers say nothing, and others the same as kohort's.
            message=row.error_message or None,
            value=GroupDescription.of_classic(row),
        )
        for row in response.groups
    }


def read_deletions(response: delete_groups.DeleteGroupsResponse, _: list[str]) -> dict[str, Row[None]]:
    """Read group -> the outcome of its deletion."""
    return {row.group_id: Row(code=row.error_code, value=None) for row in response.results}


def offsets_request(groups: list[str]) -> offset_fetch.OffsetFetchRequest:
    """Ask for all committed offsets of groups; up to version 7 of one group."""
    rows = [offset_fetch.OffsetFetchRequestGroup(group_id=group, topics=None) for group in groups]
    return offset_fetch.OffsetFetchRequest(group_id=groups[0], topics=None, groups=rows, require_stable=False)


def read_offsets(response: offset_fetch.OffsetFetchResponse, groups: list[str]) -> dict[str, Row[Committed]]:
    """Read group -> its committed offsets; up to version 7 the one group stands in the response itself."""
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
    """Refuse a group id that no request can have, before a coordinator is looked for.

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


def static_changes(registration_timeout: object, expansion_timeout: object) -> dict[str, object]:
    """Return the configs that make a group static; `None` leaves a timeout as it is.

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
