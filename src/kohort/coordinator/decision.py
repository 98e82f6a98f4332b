"""What a decision consists of: records to append, and effects to carry out after that.

Laws: a decision is a value; making one changes nothing. Timers are set when its records are applied; replies leave
when its records are as durable as asked.
Source: architecture rules 2 to 4.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, NamedTuple

from kohort.assign.interface import Assignable
from kohort.coordinator.commands import ReplyBody
from kohort.coordinator.records import Record
from kohort.ids import RequestToken, TopicId

#: "assignment" belongs to a KIP-848 group whose target is to be computed, "moves" to one whose moves wait, "edition" to
#: one whose members publish, "clock" to a static group, "compute" to a member that computes a target, "hold" to a
#: heartbeat whose answer waits; the others are
#: Kafka's.
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
    """What a deadline is for; `member_id` is empty where it belongs to the group."""

    kind: TimerKind
    group_id: str
    member_id: str = ""


@dataclass(frozen=True, slots=True)
class Reply:
    """Answer the request that `request` names; each request is answered exactly once."""

    request: RequestToken
    body: ReplyBody


@dataclass(frozen=True, slots=True)
class Arm:
    """Set the deadline of `key`, in place of the one that it had; `if_absent` leaves one that it has as it is."""

    key: TimerKey
    deadline_ms: int
    if_absent: bool = False


@dataclass(frozen=True, slots=True)
class Disarm:
    """Forget the deadline of `key`."""

    key: TimerKey


@dataclass(frozen=True, slots=True)
class ComputeTarget:
    """Let an assignor of the user's own work beside the coordinator; `TargetComputed` tells what came of it.

    `is_step`: the group has not changed, see `consumer.steps`. `timeout_ms`: how long it may take. `is_offloaded`:
    whether it runs in a process of its own. `member_id`: the member that runs it, "" the broker does; then it is no
    effect, but asked for in an answer to that member, in which `version`, and `is_prepared` once it knows of what.
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
    """Look how much there is in partitions; `LogsMeasured` tells it."""

    group_id: str
    places: tuple[tuple[TopicId, int], ...]


Effect = Reply | Arm | Disarm | ComputeTarget | MeasureLogs


@dataclass(frozen=True, slots=True)
class Decision:
    """`records` are appended as one batch, applied in order, then `effects` are carried out in order.

    `due`: the deadline that led to it, `None` where a command did.
    """

    records: tuple[Record, ...] = ()
    effects: tuple[Effect, ...] = ()
    due: TimerKey | None = None
