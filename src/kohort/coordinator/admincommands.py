"""What administrators ask of a coordinator, and what it answers; `commands` has these names, too.

Laws: those of `commands`.
Source: Apache Kafka's Admin: groups, their offsets and their configs.
"""

from __future__ import annotations

from dataclasses import dataclass

from kohort.coordinator.stimulus import Command, GroupCommand, Partitions
from kohort.errors import ErrorCode
from kohort.ids import RequestToken, TopicId


@dataclass(frozen=True, slots=True, kw_only=True)
class DeleteOffsets(GroupCommand):
    """Forget committed offsets (OffsetDelete)."""

    partitions: tuple[tuple[str, int], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class DeleteOffsetsReply:
    """One code per partition of the request, in its order."""

    errors: tuple[ErrorCode, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class DeleteGroup(GroupCommand):
    """Remove an empty group and its offsets; answered with `Done` or a `Refusal`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ListGroups(Command):
    """Every group of the shard; filters are applied case-insensitively, empty means all."""

    request: RequestToken
    states: tuple[str, ...] = ()
    types: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ListedGroup:
    """`group_type` is "classic" or "consumer"; `state` as Kafka prints it."""

    group_id: str
    protocol_type: str
    state: str
    group_type: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ListGroupsReply:
    """By group id."""

    groups: tuple[ListedGroup, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class DescribeClassicGroup(GroupCommand):
    """DescribeGroups of one group; a group that is unknown or of another kind is described as Dead."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DescribedClassicMember:
    """`metadata` and `assignment` are the embedded blobs, empty unless the group is Stable.

    `offline_since_ms`: of a static group, milliseconds since 1970; -1: it is online.
    """

    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    metadata: bytes
    assignment: bytes
    offline_since_ms: int = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class DescribeClassicGroupReply:
    """`error` is GROUP_ID_NOT_FOUND where the group is unknown: version 6 shows it, older ones show state Dead."""

    error: ErrorCode
    group_id: str
    state: str
    protocol_type: str
    protocol_name: str
    members: tuple[DescribedClassicMember, ...]
    is_static: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class DescribeConsumerGroup(GroupCommand):
    """ConsumerGroupDescribe of one group; GROUP_ID_NOT_FOUND refuses an unknown or classic one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DescribedConsumerMember:
    """`member_type`: -1 unknown, 0 classic, 1 consumer; assignments name topics by id.

    `offline_since_ms`: of a static group, milliseconds since 1970; -1: it is online.
    """

    member_id: str
    instance_id: str | None
    rack_id: str | None
    member_epoch: int
    client_id: str
    client_host: str
    subscribed_topic_names: tuple[str, ...]
    subscribed_topic_regex: str | None
    assignment: Partitions
    target_assignment: Partitions
    member_type: int
    offline_since_ms: int = -1
    metadata: bytes | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class DescribeConsumerGroupReply:
    """`state`: Empty, Assigning, Reconciling, Stable or Dead. `topic_names` has every id that is mentioned.

    `assignor_failure`: how an assignor of the user's own has failed last; "": it has not since the latest target.
    """

    group_id: str
    state: str
    group_epoch: int
    assignment_epoch: int
    assignor_name: str
    members: tuple[DescribedConsumerMember, ...]
    topic_names: dict[TopicId, str]
    is_static: bool = False
    assignor_failure: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class AlterGroupConfigs(GroupCommand):
    """Set configs of a group, which need not exist, or take them back (`None`); answered with `Done` or a `Refusal`.

    `validate_only`: say what would be answered and change nothing.
    """

    changes: dict[str, str | None]
    validate_only: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class DescribeGroupConfigs(GroupCommand):
    """The configs that were set for a group; a group that nobody set any for has none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DescribeGroupConfigsReply:
    """By name: `configs` what was set for the group itself, of any version; of every config that is known here,
    `effective` what it comes to and `defaults` what it would be if the group had none.
    """

    configs: dict[str, str]
    effective: dict[str, str]
    defaults: dict[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class ListGroupConfigs(Command):
    """The groups of the shard that have configs of their own."""

    request: RequestToken


@dataclass(frozen=True, slots=True, kw_only=True)
class ListGroupConfigsReply:
    """Ascending."""

    group_ids: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class AskedMove:
    """A partition that a member of a KIP-848 group shall have, whoever has it now."""

    topic: str
    partition: int
    to_member_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SubmitMoves(GroupCommand):
    """Give partitions to members, at most 10,000 at once; it stays so until the assignor decides anew.

    Answered with a `SubmitMovesReply`, or a `Refusal` where the group cannot be asked for that. `validate_only`: say
    what would be answered and change nothing.
    """

    moves: tuple[AskedMove, ...]
    validate_only: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class MoveAnswer:
    """What became of one move: NONE, or why it was not taken.

    `move_id`: the name of the move in `DescribeMoves`; empty where it was not taken, and where nobody has the partition
    or the member has it already.
    """

    topic: str
    partition: int
    move_id: str
    code: ErrorCode
    message: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class SubmitMovesReply:
    """One answer per move of the request, in its order; each stands by itself."""

    results: tuple[MoveAnswer, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class DescribeMoves(GroupCommand):
    """The moves of a KIP-848 group that are open, and the last that were asked for and have ended."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MoveStatus:
    """A partition on its way from one member to another.

    `move_id`: names the partition and the epoch at which its old owner was granted it, so that a restart finds the same
    name again. `phase`: one of the names in `consumer.moves.PHASES`. `cause`: why. Times in milliseconds of the
    coordinator, -1 where it is not so far yet or a restart has forgotten it: `begun_ms` when the pace let it begin,
    `fenced_ms` when the old owner was asked for it or lost it, `committed_ms` when that one had committed and given it
    up, `granted_ms` when the new one got it. `submitted_ms`: when the target became so.
    """

    move_id: str
    topic: str
    partition: int
    from_member_id: str
    to_member_id: str
    phase: str
    cause: str
    submitted_ms: int
    begun_ms: int
    fenced_ms: int
    committed_ms: int
    granted_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class DescribeMovesReply:
    """The open ones first, by topic and partition, then what was asked for and has ended, the latest first."""

    moves: tuple[MoveStatus, ...]
