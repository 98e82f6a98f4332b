"""Decisions: records to append, and effects to carry out after that.

Laws: a decision is a value; making one changes nothing. Its timers are set when its records are applied; its replies
are sent when its records have the configured durability.
Source: architecture rules 2 to 4.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

from kohort.assign.interface import Assignable
from kohort.base.values import value
from kohort.coordinator import commands
from kohort.coordinator.commands import admin
from kohort.coordinator.records.types import Record
from kohort.ids import RequestToken, TopicId

#: Body of a reply to a command.
ReplyBody = (
    commands.ConsumerGroupHeartbeatReply
    | commands.JoinGroupReply
    | commands.SyncGroupReply
    | commands.LeaveGroupReply
    | commands.CommitOffsetsReply
    | commands.FetchOffsetsReply
    | admin.DeleteOffsetsReply
    | commands.ExpireOffsetsReply
    | admin.ListGroupsReply
    | admin.DescribeClassicGroupReply
    | admin.DescribeConsumerGroupReply
    | admin.DescribeGroupConfigsReply
    | admin.ListGroupConfigsReply
    | admin.SubmitMovesReply
    | admin.DescribeMovesReply
    | commands.PrepareAssignmentReply
    | commands.InstallAssignmentReply
    | commands.Done
    | commands.Refusal
)
#: Kinds of deadlines. Kohort's own: "assignment": a KIP-848 group whose target is to be computed; "moves": a group with
#: waiting moves; "edition": a group whose members publish metadata; "clock": a static group; "compute": a member that
#: computes a target; "hold": a held heartbeat. The others are Kafka's.
TimerKind = Literal[
    "session",
    "rebalance",
    "join",
    "sync",
    "pending",
    "initial_delay",
    "assignment",
    "moves",
    "edition",
    "hold",
    "clock",
    "compute",
]


class TimerKey(NamedTuple):
    """Key of a deadline; `member_id` is empty where the deadline belongs to the group."""

    kind: TimerKind
    group_id: str
    member_id: str = ""


@value(kw_only=False)
class Reply:
    """The response to the request with this token; each request gets exactly one."""

    request: RequestToken
    body: ReplyBody


@value(kw_only=False)
class Arm:
    """Set the deadline of `key` and replace an older one; with `if_absent`, keep the older one."""

    key: TimerKey
    deadline_ms: int
    if_absent: bool = False


@value(kw_only=False)
class Disarm:
    """Remove the deadline of `key`."""

    key: TimerKey


@value(kw_only=False)
class ComputeTarget:
    """Run a custom assignor outside of the coordinator; its result returns as `TargetComputed`.

    `is_step`: the group has not changed, see `group.assignor.max.moves`. `timeout_ms`: time limit of the assignor.
    `is_offloaded`: whether it runs in a process of its own. `member_id`: the member that runs it; "": the broker does.
    With a `member_id` this is not an effect: the reply to that member asks for the computation. `version`: the version
    for it. `is_prepared`: the member has fetched the input.
    """

    group_id: str
    epoch: int
    assignor: str
    assignable: Assignable
    is_step: bool
    timeout_ms: int
    is_offloaded: bool
    member_id: str = ""
    version: int = 0
    is_prepared: bool = False


@value(kw_only=False)
class MeasureLogs:
    """Measure the logs of partitions; the sizes return as `LogsMeasured`."""

    group_id: str
    places: tuple[tuple[TopicId, int], ...]


@value(kw_only=False)
class FencePartitions:
    """Make the leaders of partitions refuse fetches of a group's members, until `OpenPartitions`.

    `member_id`: the former owner; its commits are still accepted. `epoch`: the latest epoch with which it may have
    fetched. `lease_ms`: longest remaining validity of its grants; the coordinator waits that long for a leader that
    does not acknowledge the fence. `stock_lease_ms`: longest time for which a client without grants may not know
    that it lost the partition. `client`: client id and host of the member.
    """

    group_id: str
    member_id: str
    epoch: int
    places: tuple[tuple[TopicId, int], ...]
    lease_ms: int
    stock_lease_ms: int = 0
    client: tuple[str, str] = ("", "")


@value(kw_only=False)
class OpenPartitions:
    """Make the leaders of partitions serve the new owner, and refuse the group's members with older epochs.

    Former owners are still refused, with any epoch, unless the new owner is one of them. `keep`: leaders store this
    although nothing was fenced, because they may not know of former owners.
    """

    group_id: str
    member_id: str
    epoch: int
    places: tuple[tuple[TopicId, int], ...]
    lease_ms: int
    client: tuple[str, str] = ("", "")
    keep: bool = False


Effect = Reply | Arm | Disarm | ComputeTarget | MeasureLogs | FencePartitions | OpenPartitions
#: Records and effects that one rule adds to a decision.
Additions = tuple[list[Record], list[Effect]]


@value(kw_only=False)
class Decision:
    """The result of a decision function.

    `records` are appended as one batch and applied in order, then `effects` are carried out in order. `due`: the
    deadline that caused the decision, `None` if a command did.
    """

    records: tuple[Record, ...] = ()
    effects: tuple[Effect, ...] = ()
    due: TimerKey | None = None
