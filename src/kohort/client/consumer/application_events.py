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
from kohort.ids import TopicPartition

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
    """The way to read a partition.

    Without offset and timestamp: from the committed offset, or as the reset option says.
    """

    fence: Fence
    offset: int | None = None
    is_paused: bool = False
    #: Instead of an offset: the first record not older, milliseconds; -2 the log's first record, -1 its end.
    timestamp: int | None = None


@value
class Subscribed:
    """A subscription to topics as a member of the group, in place of the one before."""

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
    """An assignment by hand, in place of the one before."""

    starts: Mapping[TopicPartition, Start]


@value
class Sought:
    """A seek to an offset, or (`None`) to where a timestamp leads.

    Without both, as in `Start`.
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
    """The pause of partitions, or (`is_paused` false) its end."""

    partitions: tuple[TopicPartition, ...]
    is_paused: bool


@value
class Polled:
    """A poll of the application, which has processed all records below these offsets.

    Only partitions whose offset has changed since the last such event are named.
    """

    consumed: Mapping[TopicPartition, Committable]


@value
class OffsetsStored:
    """The offsets that the application has stored as processed, whichever call it is in."""

    offsets: Mapping[TopicPartition, Committable]


@value
class ChunkTaken:
    """The bytes of each partition's fetched data that the application's side has given back."""

    sizes: Mapping[TopicPartition, int]


@value
class CallbackStarted:
    """The start of the application's callback of that number."""

    number: int
    #: The partitions that are gained, so that their positions can be asked for in the callback.
    starts: Mapping[TopicPartition, Start]


@value
class CallbackDone:
    """The end of the application's callback of that number."""

    number: int
    #: Offsets below which all records are processed, of partitions that were given up.
    consumed: Mapping[TopicPartition, Committable]
    #: How to read the partitions that were gained.
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
    """A commit of offsets for the group that no call waits for."""

    offsets: Mapping[TopicPartition, Committable]
    #: Comes back in `CommitEnded`; `None`: the end is not reported.
    callback: object
    deadline_ms: int


@value
class CommittedAsked:
    """The question for the group's committed offsets.

    The answer maps each partition to its offset, or to `None`.
    """

    partitions: tuple[TopicPartition, ...]
    ticket: object
    deadline_ms: int


@value
class OffsetsAsked:
    """The question for the offset of each timestamp (-2: the first, -1: the next to be written).

    The answer maps each partition to `(offset, timestamp)`, or to `None`: no record is that young.
    """

    timestamps: Mapping[TopicPartition, int]
    ticket: object
    deadline_ms: int


@value
class PositionAsked:
    """The question for a partition's position, asked while the application's side does not know it."""

    partition: TopicPartition
    ticket: object
    deadline_ms: int


@value
class PartitionsAsked:
    """The question for a topic's partitions; the answer is a list of numbers, empty without such a topic."""

    topic: str
    ticket: object
    deadline_ms: int


@value
class Configured:
    """Settings with other limits for fetching; everything else is as before."""

    settings: ConsumerSettings


@value
class TopicsAsked:
    """The question for the cluster's topics; the answer maps each name to its `ListedTopic`."""

    ticket: object
    deadline_ms: int
    #: Only these, internal ones among them; `None`: every topic that is not internal.
    topics: tuple[str, ...] | None = None


@value
class CloseAsked:
    """The request to commit, leave and end.

    The ticket ends when that is done. The driver stops at the deadline at the latest.
    """

    ticket: object
    deadline_ms: int
    #: No thread runs callbacks any more: open ones count as answered, without effect.
    is_forgotten: bool = False
    #: Whether a member leaves for good; `None`: only a dynamic member does.
    goes_for_good: bool | None = None


@value
class MetadataPublished:
    """The metadata that the member publishes to its group; empty: none any more."""

    metadata: bytes


@value
class MetadataWatched:
    """The application's wish to watch the metadata of its group's members."""


@value
class ComputationDone:
    """The end of the computation of that number.

    `error`: why it has failed, a sentence. Empty: `owner` is checked, and `said` are the metadata for each member.
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
#: Questions that change nothing.
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
    """Partitions of which no record may be handed out any more: their leader refuses the member, for another owner."""

    partitions: tuple[TopicPartition, ...]


class CallbackKind(Enum):
    """The kind of a rebalance callback."""

    REVOKED = "revoked"
    ASSIGNED = "assigned"
    LOST = "lost"


@value
class CallbackWanted:
    """A callback that the machine waits for: the application has to deal with a change of its partitions."""

    number: int
    kind: CallbackKind
    partitions: tuple[TopicPartition, ...]
    #: The reason, as far as the member knows.
    reason: str


@value
class ComputationWanted:
    """The coordinator's request to compute an assignment, by the assignor of that name."""

    number: int
    assignor: str
    group: Assignable


@value
class AssignmentSaid:
    """The metadata that came with an assignment, from the member that computed it.

    An `error` other than 0: the computation has failed.
    """

    error: int
    version: int
    metadata: bytes


@value
class Identity:
    """Member id and epoch as of now; epoch -1 means that it is not a member."""

    member_id: str
    epoch: int
    #: Whether the coordinator has given an assignment, even an empty one.
    has_assignment: bool


@value
class Chunk:
    """Record batches of one partition, as they came; `records` refers to the response's own buffer."""

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


class Watermarks(NamedTuple):
    """First and end offsets of a partition's log, as the last fetch has said; -1: it has not."""

    #: The log's first offset.
    log_start_offset: int
    #: All transactions below have ended: the end for readers of committed records.
    last_stable_offset: int
    #: The offset after the last record that every in-sync replica has: the end for other readers.
    high_watermark: int


@value
class WatermarksSeen:
    """The log ends that have changed by one answer.

    They come before the answer's chunks.
    """

    seen: Mapping[TopicPartition, Watermarks]


def empty_chunk(partition: TopicPartition, fence: Fence, offset: int) -> Chunk:
    """Build a chunk without data, for a reading that auto.offset.reset has moved to that offset."""
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
    """The order to drop a paused partition's data, to make room.

    The data is fetched again when the partition is resumed.
    """

    partition: TopicPartition
    fence: Fence


@value
class Remade:
    """The order to read a partition anew, because its topic was deleted and made again.

    The group, or the reset option, says from where.
    """

    partition: TopicPartition
    fence: Fence


@value
class Recovered:
    """The end of an earlier report that no broker can be reached: one has answered."""


@value
class PublishedSeen:
    """The metadata that the group's members publish, by name, in place of the earlier ones."""

    published: Mapping[str, bytes]


@value
class CommitEnded:
    """The end of an asynchronous commit; `error` `None` means success."""

    callback: object
    offsets: Mapping[TopicPartition, Committable]
    error: KohortError | None
