"""The messages between a consumer's two sides: the application's thread and the I/O thread's machine.

Laws: values only. The application's side numbers its readings of a partition (`Fence`), so that both sides recognise
and drop data of an earlier assignment or seek.
Source: the consumer threading refactor (CTR): application events and background events. By its names: fetch is `Chunk`,
callback invocation `CallbackWanted`, acknowledgement `CallbackDone`; leave group `Unsubscribed`, `CloseAsked`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import Enum
from typing import TYPE_CHECKING, Final, Literal, NamedTuple, NewType

from kohort.base.values import value
from kohort.client.options import ConsumerSettings
from kohort.client.records import Committable
from kohort.errors import KohortError
from kohort.ids import ZERO_TOPIC_ID, TopicId, TopicPartition

if TYPE_CHECKING:
    from array import array

    from kohort.assign.interface import Assignable

#: The end of a membership when its consumer is closed (KIP-1092): by default a static member comes back, and any other
#: leaves.
GroupMembershipOperation = Literal["default", "leave_group", "remain_in_group"]
#: Number of a reading: a new one with each assignment and each seek of a partition.
Fence = NewType("Fence", int)
#: In place of timestamps: the first offset of a log, and its end (Kafka's ListOffsets API).
EARLIEST: Final = -2
LATEST: Final = -1

# -- to the machine -------------------------------------------------------------------------------------------------


@value
class Start:
    """The position at which a partition is to be read.

    Without offset and timestamp: the committed offset, or else the one of auto.offset.reset.
    """

    fence: Fence
    offset: int | None = None
    is_paused: bool = False
    #: Instead of an offset: a time, milliseconds, for the first record from then on; -2 the log's start, -1 its end.
    timestamp: int | None = None
    #: Offset before which reading ends; `None`: it never ends.
    stop: int | None = None


@value
class Subscribed:
    """A subscription to topics as a member of the group, which replaces the one before."""

    topics: tuple[str, ...]
    #: Instead of names: the expression that topic names have to match as a whole.
    pattern: str | None = None
    #: Metadata of each of the consumer's own assignors, for the member that computes.
    metadata: tuple[bytes, ...] = ()


@value
class Unsubscribed:
    """The request to commit, leave the group and stop reading; the ticket ends when that is done."""

    ticket: object
    deadline_ms: int


@value
class RebalanceEnforced:
    """The application's request to rebalance the group; `metadata` as in `Subscribed`, as of now."""

    reason: str
    metadata: tuple[bytes, ...] = ()


@value
class PartitionsAssigned:
    """An assignment by hand, which replaces the one before."""

    starts: Mapping[TopicPartition, Start]


@value
class Sought:
    """A seek to an offset, or if that is `None` to a timestamp.

    Without both, the position is found as in `Start`.
    """

    partition: TopicPartition
    fence: Fence
    offset: int | None
    #: As in `Start`.
    timestamp: int | None = None
    #: Leader epoch of the record before `offset` (KIP-320); -1 means unknown.
    leader_epoch: int = -1


@value
class Paused:
    """A call of `pause`, or of `resume` if `is_paused` is false."""

    partitions: tuple[TopicPartition, ...]
    is_paused: bool


@value
class Polled:
    """A poll of the application, with the offsets below which it has processed all records.

    Only partitions whose offset has changed since the last such event are included.
    """

    consumed: Mapping[TopicPartition, Committable]


@value
class OffsetsStored:
    """The offsets that the application has stored as processed by `store_offsets`, from any thread."""

    offsets: Mapping[TopicPartition, Committable]


@value
class ChunkTaken:
    """The bytes of each partition's fetched data that the application's side has used and freed."""

    sizes: Mapping[TopicPartition, int]


@value
class CallbackStarted:
    """The start of the application's callback with that number."""

    number: int
    #: The newly assigned partitions, so that the callback can ask for their positions.
    starts: Mapping[TopicPartition, Start]


@value
class CallbackDone:
    """The return of the application's callback with that number."""

    number: int
    #: Offsets below which all records are processed, of revoked partitions.
    consumed: Mapping[TopicPartition, Committable]
    #: Where to start reading the newly assigned partitions.
    starts: Mapping[TopicPartition, Start]


@value
class CommitAsked:
    """A commit of offsets for the group."""

    offsets: Mapping[TopicPartition, Committable]
    #: Ends with the commit.
    ticket: object
    deadline_ms: int


@value
class AsynchronousCommitAsked:
    """A commit of offsets for the group for which no call waits."""

    offsets: Mapping[TopicPartition, Committable]
    #: Returned in `CommitEnded`; `None`: the result is not reported.
    callback: object
    deadline_ms: int


@value
class CommittedAsked:
    """A query for the group's committed offsets.

    The ticket's result maps each partition to its offset, or to `None`.
    """

    partitions: tuple[TopicPartition, ...]
    ticket: object
    deadline_ms: int


@value
class OffsetsAsked:
    """A query for the offset of each timestamp (-2: the log's start, -1: its end).

    The ticket's result maps each partition to `(offset, timestamp)`, or to `None` without a record from then on.
    """

    timestamps: Mapping[TopicPartition, int]
    ticket: object
    deadline_ms: int


@value
class PositionAsked:
    """A query for a partition's position, sent while the application's side does not know it."""

    partition: TopicPartition
    ticket: object
    deadline_ms: int


@value
class PartitionsAsked:
    """A query for a topic's partition numbers; the ticket's result is a list, empty if the topic does not exist."""

    topic: str
    ticket: object
    deadline_ms: int


@value
class Configured:
    """New settings, which differ in the limits of fetching only."""

    settings: ConsumerSettings


@value
class TopicsAsked:
    """A query for the cluster's topics; the ticket's result maps each name to its `ListedTopic`."""

    ticket: object
    deadline_ms: int
    #: Only these, even internal ones; `None`: every topic that is not internal.
    topics: tuple[str, ...] | None = None


@value
class CloseAsked:
    """The request to commit, leave the group and stop.

    The ticket ends when that is done. The driver stops at the deadline at the latest.
    """

    ticket: object
    deadline_ms: int
    #: No thread runs callbacks any more: open ones count as done, without effect.
    is_forgotten: bool = False
    #: Whether the member leaves permanently, even a static one; `None`: only a dynamic member does.
    goes_for_good: bool | None = None


@value
class MetadataPublished:
    """The metadata that the member publishes to its group; empty to withdraw it."""

    metadata: bytes


@value
class MetadataWatched:
    """The application's request to watch the metadata of its group's members."""


@value
class ComputationDone:
    """The result of the requested computation with that number.

    `error`: the reason for its failure, a sentence. If empty, `owner` has been checked, and `said` has the metadata for
    each member.
    """

    number: int
    assignor: str
    owner: array[int]
    said: Mapping[str, bytes]
    error: str


#: Events that report the application's progress.
Progress = Polled | OffsetsStored | CallbackStarted | CallbackDone | CommitAsked | AsynchronousCommitAsked | ChunkTaken
#: Events that change the work of the machine.
Change = Subscribed | Unsubscribed | PartitionsAssigned | Sought | Paused | Configured | CloseAsked
#: Queries, which change nothing.
Question = CommittedAsked | OffsetsAsked | PositionAsked | PartitionsAsked | TopicsAsked
#: Events about metadata that members publish.
Publication = MetadataPublished | MetadataWatched
#: Events for the member, if there is one.
Word = RebalanceEnforced | ComputationDone
ConsumerEvent = Progress | Change | Word | Question | Publication

# -- to the application ---------------------------------------------------------------------------------------------


@value
class OwnedUntil:
    """The time until which records of assigned partitions may be handed out.

    A later delivery replaces it.
    """

    #: On the driver's clock, milliseconds; 0: nothing may be handed out now, `None`: no limit.
    until_ms: int | None
    #: Grants that the coordinator has given since the start.
    grants: int = 0


@value
class ReadsRefused:
    """Partitions of which no more records may be handed out: the leader refuses this member, for another owner."""

    partitions: tuple[TopicPartition, ...]


class CallbackKind(Enum):
    """The kind of a rebalance callback."""

    REVOKED = "revoked"
    ASSIGNED = "assigned"
    LOST = "lost"


@value
class CallbackWanted:
    """A rebalance callback that the application's side has to run; the machine waits for its return."""

    number: int
    kind: CallbackKind
    partitions: tuple[TopicPartition, ...]
    #: The reason, as far as the member knows.
    reason: str


@value
class ComputationWanted:
    """The coordinator's request to compute an assignment with the named assignor of this consumer."""

    number: int
    assignor: str
    group: Assignable


@value
class AssignmentSaid:
    """The metadata that the computing member has attached to an assignment.

    An `error` other than 0 means that the computation has failed.
    """

    error: int
    version: int
    metadata: bytes


@value
class Identity:
    """Member id and epoch as of now; epoch -1 means that the consumer is not a member."""

    member_id: str
    epoch: int
    #: Whether the coordinator has given an assignment, even an empty one.
    has_assignment: bool


@value
class Chunk:
    """Record batches of one partition, as fetched; `records` is a view of the response's own buffer."""

    partition: TopicPartition
    fence: Fence
    #: First wanted offset; the first batch may begin before it.
    offset: int
    #: Offset after the last batch.
    next_offset: int
    records: memoryview
    #: Bytes to report in `ChunkTaken`.
    size_bytes: int
    #: (producer id, first offset) of aborted transactions, for readers of committed records only.
    aborted: Sequence[tuple[int, int]]
    #: Epoch of the leader that appended the last batch (KIP-320); -1 means unknown.
    leader_epoch: int = -1
    #: Id of the topic that the response names; zero if the fetch went by name.
    topic_id: TopicId = ZERO_TOPIC_ID


class Watermarks(NamedTuple):
    """Start and end offsets of a partition's log by the last fetch response; -1 if it had none."""

    #: The log's first offset.
    log_start_offset: int
    #: All transactions below have ended: the end for readers of committed records.
    last_stable_offset: int
    #: The offset after the last record that every in-sync replica has: the end for other readers.
    high_watermark: int


@value
class WatermarksSeen:
    """The log start and end offsets that one fetch response has changed.

    They are delivered before the chunks of the response.
    """

    seen: Mapping[TopicPartition, Watermarks]


def empty_chunk(partition: TopicPartition, fence: Fence, offset: int) -> Chunk:
    """Build a chunk without data, which tells the application's side the offset that auto.offset.reset has chosen."""
    nothing = memoryview(b"")
    return Chunk(
        partition=partition, fence=fence, offset=offset, next_offset=offset, records=nothing, size_bytes=0, aborted=()
    )


@value
class Trouble:
    """An error for the next `poll`; a fatal one is raised by every `poll` until the subscription changes."""

    error: KohortError
    is_fatal: bool
    #: The partition that cannot be read, if the error is about one, and the reading that failed.
    partition: TopicPartition | None = None
    fence: Fence | None = None


@value
class GiveWay:
    """The order to drop a paused partition's data, so that others can use its buffer space.

    The data is fetched again when the partition is resumed.
    """

    partition: TopicPartition
    fence: Fence


@value
class Remade:
    """The order to read a partition anew, because its topic was deleted and created again.

    Reading starts at the committed offset, or as auto.offset.reset says.
    """

    partition: TopicPartition
    fence: Fence


@value
class Recovered:
    """The withdrawal of an earlier report that no broker can be reached: one has responded."""


@value
class PublishedSeen:
    """The metadata that the group's members publish, by name; they replace the earlier ones."""

    published: Mapping[str, bytes]


@value
class CommitEnded:
    """The result of an asynchronous commit; `error` `None` means success."""

    callback: object
    offsets: Mapping[TopicPartition, Committable]
    error: KohortError | None
