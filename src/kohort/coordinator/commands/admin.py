"""Commands of administrators to a coordinator and its replies.

Laws: those of `commands`.
Source: Apache Kafka's Admin: groups, their offsets and their configs.
"""

from __future__ import annotations

from kohort.base.values import value
from kohort.coordinator.commands import Command, GroupCommand, Partitions
from kohort.errors import ErrorCode
from kohort.ids import RequestToken, TopicId


@value
class DeleteOffsets(GroupCommand):
    """Forget committed offsets (OffsetDelete)."""

    partitions: tuple[tuple[str, int], ...]


@value
class DeleteOffsetsReply:
    """Reply to `DeleteOffsets`: one code per partition of the request, in its order."""

    errors: tuple[ErrorCode, ...]


@value
class DeleteGroup(GroupCommand):
    """Remove an empty group and its offsets; the reply is `Done` or a `Refusal`."""


@value
class ListGroups(Command):
    """List every group of the shard; filters are case-insensitive, empty means all."""

    request: RequestToken
    states: tuple[str, ...] = ()
    types: tuple[str, ...] = ()


@value
class ListedGroup:
    """One row of ListGroups; `group_type` is "classic" or "consumer", `state` is in Kafka's spelling."""

    group_id: str
    protocol_type: str
    state: str
    group_type: str


@value
class ListGroupsReply:
    """Reply to `ListGroups`, by group id."""

    groups: tuple[ListedGroup, ...]


@value
class DescribeClassicGroup(GroupCommand):
    """DescribeGroups of one group; an unknown group, or one of another type, is described as Dead."""


@value
class DescribedClassicMember:
    """One member of a described classic group.

    `metadata`, `assignment`: the embedded blobs, empty unless the group is Stable. `offline_since_ms`: of a static
    group, milliseconds since 1970; -1: it is online.
    """

    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    metadata: bytes
    assignment: bytes
    offline_since_ms: int = -1


@value
class DescribeClassicGroupReply:
    """Reply to `DescribeClassicGroup`; `error` is GROUP_ID_NOT_FOUND where the group is unknown.

    Version 6 of the API sends the error, older ones the state Dead.
    """

    error: ErrorCode
    group_id: str
    state: str
    protocol_type: str = ""
    protocol_name: str = ""
    members: tuple[DescribedClassicMember, ...] = ()
    is_static: bool = False


@value
class DescribeConsumerGroup(GroupCommand):
    """ConsumerGroupDescribe of one group; GROUP_ID_NOT_FOUND refuses an unknown or classic one."""


@value
class DescribedConsumerMember:
    """One member of a described KIP-848 group.

    `member_type`: -1 unknown, 0 classic, 1 consumer. Assignments name topics by id. `offline_since_ms`: of a static
    group, milliseconds since 1970; -1: it is online.
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


@value
class DescribeConsumerGroupReply:
    """Reply to `DescribeConsumerGroup`.

    `state`: Empty, Assigning, Reconciling, Stable or Dead. `topic_names`: the name of every topic id in the reply.
    `assignor_failure`: the latest error of a custom assignor; "": none since the latest target.
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


@value
class AlterGroupConfigs(GroupCommand):
    """Set configs of a group, which need not exist, or remove them (`None`).

    Answered with `Done` or a `Refusal`. `validate_only`: check the configs and change nothing.
    """

    changes: dict[str, str | None]
    validate_only: bool = False


@value
class DescribeGroupConfigs(GroupCommand):
    """Describe the configs that are set for a group; most groups have none."""


@value
class DescribeGroupConfigsReply:
    """Reply to `DescribeGroupConfigs`, by config name.

    `configs`: the values set for the group itself, also of configs that this version does not know. `effective`: the
    value of every known config. `defaults`: the values for a group without configs.
    """

    configs: dict[str, str]
    effective: dict[str, str]
    defaults: dict[str, str]


@value
class ListGroupConfigs(Command):
    """List the groups of the shard that have configs of their own."""

    request: RequestToken


@value
class ListGroupConfigsReply:
    """Reply to `ListGroupConfigs`, ascending."""

    group_ids: tuple[str, ...]


@value
class AskedMove:
    """A submitted move: a partition and the member of a KIP-848 group that is to own it."""

    topic: str
    partition: int
    to_member_id: str


@value
class SubmitMoves(GroupCommand):
    """Submit moves of partitions to members, at most 10,000; they last until the next assignment.

    Answered with a `SubmitMovesReply`, or a `Refusal` where the group cannot take moves. `validate_only`: check the
    moves and change nothing.
    """

    moves: tuple[AskedMove, ...]
    validate_only: bool = False


@value
class MoveAnswer:
    """Result of one submitted move: NONE, or the error with which the move was refused.

    `move_id`: the id of the move in `DescribeMoves`; empty if the move was refused, the partition has no owner, or the
    member owns it already.
    """

    topic: str
    partition: int
    move_id: str
    code: ErrorCode
    message: str | None


@value
class SubmitMovesReply:
    """Reply to `SubmitMoves`: one result per move, in the order of the request; each is independent."""

    results: tuple[MoveAnswer, ...]


@value
class DescribeMoves(GroupCommand):
    """Describe the open moves of a KIP-848 group, and the latest submitted ones that have ended."""


@value
class MoveStatus:
    """A move of a partition from one member to another.

    `move_id`: the partition and the epoch at which its old owner was assigned it, so that a restart derives the same
    id. `phase`: one of the names in `consumer.moves.PHASES`. `cause`: the reason for the move. Times are milliseconds
    of the coordinator's clock, -1 if that is still to come, or was forgotten at a restart. `submitted_ms`: the target
    changed. `begun_ms`: the throttle let the move begin. `fenced_ms`: the old owner was told to revoke the partition,
    or lost it. `committed_ms`: the old owner had committed and revoked it. `granted_ms`: the new owner was assigned it.
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


@value
class DescribeMovesReply:
    """Reply to `DescribeMoves`: the open ones by topic and partition, then the ended ones, latest first."""

    moves: tuple[MoveStatus, ...]
