"""The rows of a fetch, in compact arrays instead of its message while the fetch waits.

Laws: a partition that is named twice counts once, as it was named last. Topics are looked up again before each reading:
one that was deleted meanwhile is answered as one that there is not.
Source: Apache Kafka's fetch purgatory, which keeps offsets and sizes.
"""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from operator import attrgetter
from typing import Final

from kohort.broker.topics.metadata import Cluster
from kohort.errors import ErrorCode
from kohort.storage.partitions.partition import PartitionLog
from kohort.storage.topics.topicchanges import Topic
from kohort.wire.messages.fetch import FetchRequest, FetchTopic

#: A topic by name and id, one of which is empty.
TopicKey = tuple[str, bytes]

_FIRST: Final = attrgetter("first")
#: So many rows of one topic are kept as they come, which is faster than compacting them.
_FEW: Final = 16


#: A requested partition: fetch offset, most bytes, the client's leader epoch and that of its last record.
#: -1 stands for an epoch that the client did not send. The garbage collector soon stops tracking plain tuples.
Asked = tuple[int, int, int, int]
#: By row, in the order in which they are read: partition, and the numbers of `Asked`.
Columns = tuple[Sequence[int], Sequence[int], Sequence[int], Sequence[int], Sequence[int]]
#: A topic and its requested partitions.
AskedOf = tuple[TopicKey, Columns]
#: The columns of a topic that was named without partitions.
_NO_ROWS: Final[Columns] = ((), (), (), (), ())


def asked_of(topic: FetchTopic) -> dict[int, Asked]:
    """Return the requested partitions of a topic."""
    return {
        row.partition: (row.fetch_offset, row.partition_max_bytes, row.current_leader_epoch, row.last_fetched_epoch)
        for row in topic.partitions
    }


def columns_of(rows: Mapping[int, Asked]) -> Columns:
    """Convert requested partitions to columns."""
    return ((*rows,), *zip(*rows.values(), strict=True)) if rows else _NO_ROWS  # type: ignore[return-value]


def empty_columns() -> list[array[int]]:
    """Return empty columns that can grow, with numbers in as few bytes as they need."""
    return [array("i"), array("q"), array("i"), array("i"), array("i")]


def all_asked(message: FetchRequest) -> list[AskedOf]:
    """Return the rows of a fetch without a session, by topic."""
    found: dict[TopicKey, dict[int, Asked]] = {}
    for topic in message.topics:
        found.setdefault((topic.topic, topic.topic_id), {}).update(asked_of(topic))
    return [(key, columns_of(rows)) for key, rows in found.items()]


class TopicRows:
    """The rows of one topic: those from `first` up to `stop`."""

    __slots__ = ("first", "key", "missing", "stop", "topic")

    def __init__(self, key: TopicKey, first: int, stop: int) -> None:
        self.key = key
        self.first = first
        self.stop = stop
        #: The topic as it was looked up last, and the error if there was none.
        self.topic: Topic | None = None
        self.missing = ErrorCode.NONE


class FetchPlan:
    """The rows of one fetch, each a partition."""

    __slots__ = (
        "_cluster",
        "_latest",
        "last_epochs",
        "leader_epochs",
        "limits",
        "logs",
        "numbers",
        "offsets",
        "topics",
    )

    def __init__(self, cluster: Cluster, asked: Sequence[AskedOf]) -> None:
        self._cluster = cluster
        #: The topic that was looked for last.
        self._latest: TopicRows | None = None
        self.topics: list[TopicRows] = []
        #: By row: partition, and the numbers of `Asked`.
        self.numbers: Sequence[int]
        self.offsets: Sequence[int]
        self.limits: Sequence[int]
        self.leader_epochs: Sequence[int]
        self.last_epochs: Sequence[int]
        key, columns = asked[0] if len(asked) == 1 else (None, _NO_ROWS)
        if key is not None and 0 < len(columns[0]) <= _FEW:
            self.numbers, self.offsets, self.limits, self.leader_epochs, self.last_epochs = columns
            self.topics.append(TopicRows(key, 0, len(columns[0])))
        else:
            self._take_many(asked)
        #: By row: its log, `None` if there is no such partition.
        self.logs: list[PartitionLog | None] = [None] * len(self.numbers)
        self.resolve()

    def __len__(self) -> int:
        return len(self.numbers)

    def _take_many(self, asked: Sequence[AskedOf]) -> None:
        """Take the rows of several topics, or many rows, into compact columns."""
        kept = numbers, offsets, limits, leader_epochs, last_epochs = empty_columns()
        # Topics that were named without partitions are answered so, before the rows of the other topics.
        self.topics += [TopicRows(key, 0, 0) for key, columns in asked if not columns[0]]
        for key, columns in asked:
            if not columns[0]:
                continue
            first = len(numbers)
            for column, values in zip(kept, columns, strict=True):
                column.extend(values)
            self.topics.append(TopicRows(key, first, len(numbers)))
        self.numbers, self.offsets, self.limits = numbers, offsets, limits
        self.leader_epochs, self.last_epochs = leader_epochs, last_epochs

    def resolve(self) -> bool:
        """Look the topics up again; return whether they are the same as before."""
        is_same = True
        for rows in self.topics:
            topic, missing = self._cluster.find(*rows.key)
            if topic is rows.topic and topic is not None:
                continue
            is_same = is_same and rows.topic is None and rows.missing is missing
            rows.topic, rows.missing = topic, missing
            partitions = topic.partitions if topic is not None else []
            for at in range(rows.first, rows.stop):
                number = self.numbers[at]
                self.logs[at] = partitions[number] if 0 <= number < len(partitions) else None
        return is_same

    def topic_of(self, at: int) -> TopicRows:
        """Return the topic of a row."""
        latest = self._latest
        if latest is None or not latest.first <= at < latest.stop:
            # Rows are read one after the other.
            latest = self._latest = self.topics[bisect_right(self.topics, at, key=_FIRST) - 1]
        return latest

    def missing_code(self, at: int) -> ErrorCode:
        """Return the error code of a row without a log."""
        rows = self.topic_of(at)
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if rows.topic is not None else rows.missing
