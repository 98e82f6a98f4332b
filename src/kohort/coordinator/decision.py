"""Decisions: records to append, and effects to carry out after that.

Laws: a decision is a value; making one changes nothing. Timers are set when its records are applied; replies leave when
its records are as durable as asked.
Source: architecture rules 2 to 4.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, NamedTuple

from kohort.assign.interface import Assignable
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


@dataclass(frozen=True, slots=True)
class Reply:
    """Reply to the request that `request` names; each request is answered exactly once."""

    request: RequestToken
    body: ReplyBody


@dataclass(frozen=True, slots=True)
class Arm:
    """Set the deadline of `key`, in place of an older one; `if_absent` keeps an older one."""

    key: TimerKey
    deadline_ms: int
    if_absent: bool = False


@dataclass(frozen=True, slots=True)
class Disarm:
    """Remove the deadline of `key`."""

    key: TimerKey


@dataclass(frozen=True, slots=True)
class ComputeTarget:
    """Run an assignor of the user's own beside the coordinator; `TargetComputed` brings its result.

    `is_step`: the group has not changed, see `group.assignor.max.moves`. `timeout_ms`: how long the assignor may take.
    `is_offloaded`: whether it runs in a process of its own. `member_id`: the member that runs it; "": the broker does.
    With a `member_id` this is no effect: the reply to that member asks for the computation, in `version`;
    `is_prepared`: the member has fetched the input.
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


@dataclass(frozen=True, slots=True)
class MeasureLogs:
    """Measure the logs of partitions; `LogsMeasured` brings the sizes."""

    group_id: str
    places: tuple[tuple[TopicId, int], ...]


@dataclass(frozen=True, slots=True)
class FencePartitions:
    """Have the leaders of partitions refuse reads of a group's members, until `OpenPartitions`.

    `member_id`: the owner so far; its commits are still accepted. `epoch`: the latest at which it may have read.
    `lease_ms`: how long from now on one of its grants may be alive; a leader that does not acknowledge the fence is
    waited for so long. `stock_lease_ms`: how long a client without grants may not know that it is owner no more.
    `client`: client id and host of the member.
    """

    group_id: str
    member_id: str
    epoch: int
    places: tuple[tuple[TopicId, int], ...]
    lease_ms: int
    stock_lease_ms: int = 0
    client: tuple[str, str] = ("", "")


@dataclass(frozen=True, slots=True)
class OpenPartitions:
    """Have the leaders of partitions serve their new owner, and no member of the group with an older epoch.

    Earlier owners are refused still, whatever epoch they name, but for one that is the new owner as well. `keep`:
    leaders keep it though nothing was fenced, since they may not know of former owners.
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


@dataclass(frozen=True, slots=True)
class Decision:
    """The result of a decision function.

    `records` are appended as one batch and applied in order, then `effects` are carried out in order. `due`: the
    deadline that led to the decision, `None` where a command did.
    """

    records: tuple[Record, ...] = ()
    effects: tuple[Effect, ...] = ()
    due: TimerKey | None = None
