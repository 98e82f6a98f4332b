"""What a consumer's two sides say to each other: the application's thread and the machine behind the I/O thread.

Laws: values only; the application's side numbers its readings of a partition (`Fence`), so that data that was fetched
for an earlier assignment or an earlier seek is recognised and dropped on both sides.
Source: the consumer threading refactor (CTR): application events and background events. By its names: fetch is
`Chunk`, callback invocation `CallbackWanted`, acknowledgement `CallbackDone`; leave group `Unsubscribed`, `CloseAsked`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import Enum
from typing import Final, Literal, NamedTuple, NewType

from kohort.client.computations import AssignmentSaid, ComputationDone, ComputationWanted
from kohort.client.options import ConsumerSettings
from kohort.client.records import Committable
from kohort.errors import KohortError
from kohort.ids import TopicPartition
from kohort.values import value

#: What becomes of a membership when its consumer is closed (KIP-1092): by default a static member comes back, and any
#: other leaves.
GroupMembershipOperation = Literal["default", "leave_group", "remain_in_group"]
#: Number of a reading: a new one with each assignment and each seek of a partition.
Fence = NewType("Fence", int)
#: In place of timestamps: the first offset of a log, and its end (Kafka's ListOffsets API).
EARLIEST: Final = -2
LATEST: Final = -1

# -- to the machine -------------------------------------------------------------------------------------------------


@value
class Start:
    """How to read a partition; without offset and timestamp from the committed offset, or as the reset option says."""

    fence: Fence
    offset: int | None = None
    is_paused: bool = False
    #: In place of an offset: the first record not older, milliseconds; -2 the first of the log, -1 its end.
    timestamp: int | None = None


@value
class Subscribed:
    """The application wants these topics as a member of its group, in place of those before."""

    topics: tuple[str, ...]
    #: In place of names: what the names of topics have to match, as a whole.
    pattern: str | None = None
    #: What each of the consumer's own assignors tells whoever computes.
    metadata: tuple[bytes, ...] = ()


@value
class Unsubscribed:
    """Commit, leave the group, read nothing; the ticket ends when that is done."""

    ticket: object
    deadline_ms: int


@value
class RebalanceEnforced:
    """The application wants its group to rebalance; `metadata` as in `Subscribed`, as it is now."""

    reason: str
    metadata: tuple[bytes, ...] = ()


@value
class PartitionsAssigned:
    """The application has chosen its partitions by hand, in place of those before."""

    starts: Mapping[TopicPartition, Start]


@value
class Sought:
    """Read on from another offset, or (`None`) from where a timestamp leads; without both, as in `Start`."""

    partition: TopicPartition
    fence: Fence
    offset: int | None
    #: As in `Start`.
    timestamp: int | None = None
    #: Leader epoch of the record before `offset` (KIP-320); -1 means unknown.
    leader_epoch: int = -1


@value
class Paused:
    """Fetch these partitions no more, or (`is_paused` false) again."""

    partitions: tuple[TopicPartition, ...]
    is_paused: bool


@value
class Polled:
    """The application is in `poll`: it has returned from everything below these offsets.

    Only partitions whose offset has changed since the last such event are named.
    """

    consumed: Mapping[TopicPartition, Committable]


@value
class OffsetsStored:
    """The application has done what is below these offsets, wherever it is now."""

    offsets: Mapping[TopicPartition, Committable]


@value
class ChunkTaken:
    """So many bytes of these partitions' fetched data are not held any more."""

    sizes: Mapping[TopicPartition, int]


@value
class CallbackStarted:
    """The application's callback of that number runs."""

    number: int
    #: The partitions that are gained, so that it can ask where they begin.
    starts: Mapping[TopicPartition, Start]


@value
class CallbackDone:
    """The application's side has dealt with the wanted callback of that number."""

    number: int
    #: Offsets below which the application has returned, of partitions that were given up.
    consumed: Mapping[TopicPartition, Committable]
    #: How to read the partitions that were gained.
    starts: Mapping[TopicPartition, Start]


@value
class CommitAsked:
    """Commit these offsets for the group."""

    offsets: Mapping[TopicPartition, Committable]
    #: Ends with the commit.
    ticket: object
    deadline_ms: int


@value
class AsynchronousCommitAsked:
    """Commit these offsets for the group; nobody waits for it."""

    offsets: Mapping[TopicPartition, Committable]
    #: What wants to know of the end: it comes back in `CommitEnded`; `None`: nothing does.
    callback: object
    deadline_ms: int


@value
class CommittedAsked:
    """Which offsets has the group committed? The answer maps each partition to what was committed, or `None`."""

    partitions: tuple[TopicPartition, ...]
    ticket: object
    deadline_ms: int


@value
class OffsetsAsked:
    """Which offset does each timestamp stand for (-2 the first, -1 the next to be written)?

    The answer maps each partition to `(offset, timestamp)`, or to `None` where no record is that young.
    """

    timestamps: Mapping[TopicPartition, int]
    ticket: object
    deadline_ms: int


@value
class PositionAsked:
    """From where will that partition be read? Asked while the application's side does not know."""

    partition: TopicPartition
    ticket: object
    deadline_ms: int


@value
class PartitionsAsked:
    """Which partitions does a topic have? The answer is a list of numbers, empty if there is no such topic."""

    topic: str
    ticket: object
    deadline_ms: int


@value
class Configured:
    """The application has other limits for fetching from now on; everything else in the settings is as before."""

    settings: ConsumerSettings


@value
class TopicsAsked:
    """Which topics are there now? The answer maps each name to its `ListedTopic`."""

    ticket: object
    deadline_ms: int
    #: Only these, the brokers' own among them; `None` for every topic but those.
    topics: tuple[str, ...] | None = None


@value
class CloseAsked:
    """Commit, leave, end; the ticket ends when that is done, the driver stops at the deadline at the latest."""

    ticket: object
    deadline_ms: int
    #: Nobody runs callbacks any more: those that are wanted are answered as if there were none.
    is_forgotten: bool = False
    #: Whether a member goes for good; `None`: unless it has a name, under which it comes back.
    goes_for_good: bool | None = None


@value
class MetadataPublished:
    """The application tells its group something; empty: nothing any more."""

    metadata: bytes


@value
class MetadataWatched:
    """The application wants to know what the members of its group publish."""


#: How far the application is.
Progress = Polled | OffsetsStored | CallbackStarted | CallbackDone | CommitAsked | AsynchronousCommitAsked | ChunkTaken
#: What it wants otherwise from now on.
Change = Subscribed | Unsubscribed | PartitionsAssigned | Sought | Paused | Configured | CloseAsked
#: What it asks and nobody else decides by.
Question = CommittedAsked | OffsetsAsked | PositionAsked | PartitionsAsked | TopicsAsked
#: What it publishes, and that it wants to know what others do.
Publication = MetadataPublished | MetadataWatched
#: What is for its member, if it is one.
Word = RebalanceEnforced | ComputationDone
ConsumerEvent = Progress | Change | Word | Question | Publication

# -- to the application ---------------------------------------------------------------------------------------------


@value
class OwnedUntil:
    """What the group has given may be handed out until then, unless the application is told otherwise before."""

    #: On the driver's clock, milliseconds; 0: nothing is handed out now, `None`: there is no such time.
    until_ms: int | None


class CallbackKind(Enum):
    """Which of the application's callbacks is wanted."""

    REVOKED = "revoked"
    ASSIGNED = "assigned"
    LOST = "lost"


@value
class CallbackWanted:
    """The machine waits for the application to deal with a change of its partitions."""

    number: int
    kind: CallbackKind
    partitions: tuple[TopicPartition, ...]
    #: Why, as far as the member knows.
    reason: str


@value
class Identity:
    """Who the member is now; epoch -1 means that it is no member."""

    member_id: str
    epoch: int
    #: The coordinator has said what this member reads, be it nothing.
    has_assignment: bool


@value
class Chunk:
    """Record batches of one partition, as they came; `records` refers to the response's own buffer."""

    partition: TopicPartition
    fence: Fence
    #: First offset that is wanted: the first batch may begin before it.
    offset: int
    #: Offset after the last batch.
    next_offset: int
    records: memoryview
    #: Bytes to report in `ChunkTaken`.
    size_bytes: int
    #: (producer id, first offset) of transactions that were aborted, for readers of committed records only.
    aborted: Sequence[tuple[int, int]]
    #: Epoch of the leader that appended the last batch (KIP-320); -1 means unknown.
    leader_epoch: int = -1


class Watermarks(NamedTuple):
    """Where a partition's log begins and ends, as the last fetch has said; -1 where it has not."""

    #: The first offset that there still is.
    log_start_offset: int
    #: Up to here every transaction has ended: where readers of committed records stop.
    last_stable_offset: int
    #: The offset after the last record that every replica in sync has: where other readers stop.
    high_watermark: int


@value
class WatermarksSeen:
    """One answer's news about ends of logs; comes before the answer's chunks, without partitions that stood still."""

    seen: Mapping[TopicPartition, Watermarks]


def empty_chunk(partition: TopicPartition, fence: Fence, offset: int) -> Chunk:
    """No data, but where it goes on: auto.offset.reset has sent this reading there."""
    nothing = memoryview(b"")
    return Chunk(
        partition=partition, fence=fence, offset=offset, next_offset=offset, records=nothing, size_bytes=0, aborted=()
    )


@value
class Trouble:
    """An error for the next `poll`; a fatal one is raised by every `poll` until the subscription changes."""

    error: KohortError
    is_fatal: bool
    #: The partition that cannot be read, if it is about one, and the reading that failed.
    partition: TopicPartition | None = None
    fence: Fence | None = None


@value
class GiveWay:
    """Data of a paused partition is in the way of others: drop it, it is read again when the partition goes on."""

    partition: TopicPartition
    fence: Fence


@value
class Remade:
    """The topic of a partition was deleted and made again: read it anew, from where the group or the option says."""

    partition: TopicPartition
    fence: Fence


@value
class Recovered:
    """A broker has answered: an earlier report that none can be reached is out of date."""


@value
class PublishedSeen:
    """What the members of the group publish now, by name, in place of what was told before."""

    published: Mapping[str, bytes]


@value
class CommitEnded:
    """An asynchronous commit has ended; `error` `None` means well."""

    callback: object
    offsets: Mapping[TopicPartition, Committable]
    error: KohortError | None


Delivery = (
    CallbackWanted
    | ComputationWanted
    | AssignmentSaid
    | Identity
    | Chunk
    | WatermarksSeen
    | Trouble
    | GiveWay
    | Remade
    | Recovered
    | CommitEnded
    | PublishedSeen
)
