"""The records of unknown topics, or of partitions that their topic lacks as far as is known.

Laws: each record is placed or ends, in the order in which those of its partition came. While no broker answers, each
waits for its own `delivery.timeout.ms`, which goes on when it is placed. Only a topic that was seen to be missing is
created. A partition is refused only by metadata that were asked for after the record had come: the topic may have grown
since.
Source: Kafka's producer, which waits for metadata for max.block.ms; KIP-195 (topics grow).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import field
from itertools import groupby
from operator import itemgetter
from typing import Final

from kohort.base.values import value
from kohort.client.core.cluster import Cluster
from kohort.client.core.refusals import refused
from kohort.client.core.requests import Requests
from kohort.client.producer.core.delivery_errors import RefusalLog
from kohort.client.producer.core.lookups import lateness
from kohort.client.producer.core.producer_events import Outgoing
from kohort.errors import BrokerError, ErrorCode, KohortError, UnknownTopicError

#: How long a topic may be missing before its records fail: the broker may be creating it.
_TOPIC_PATIENCE_MS: Final = 3_000
#: Errors of a topic that is missing, or was created a moment ago.
_MISSING: Final = (ErrorCode.NONE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.LEADER_NOT_AVAILABLE)


def name_of(record: Outgoing) -> str:
    """Return the topic of a record or of rows."""
    return record.name if record.is_bulk else record.topic


@value(kw_only=False, frozen=False, eq=False)
class _UnknownTopic:
    """The records of one topic without known partitions."""

    #: (since when, record), in the order in which they came.
    records: deque[tuple[int, Outgoing]] = field(default_factory=deque)
    #: Since when brokers answer without partitions of this topic; `None` while they do not answer.
    missing_ms: int | None = None


class UnroutedRecords:
    """The records of one producer that cannot be placed yet.

    Args:
        place: takes records whose topic is known, the time, whether to refuse a missing partition, and since when they
            wait.
        end: ends a record with an error.
    """

    def __init__(
        self,
        requests: Requests,
        cluster: Cluster,
        refusals: RefusalLog,
        *,
        place: Callable[[list[Outgoing], int, bool, int], None],
        end: Callable[[Outgoing, KohortError], None],
    ) -> None:
        self._requests = requests
        self._cluster = cluster
        self._refusals = refusals
        self._delivery_timeout_ms = refusals.delivery_timeout_ms
        self._place = place
        self._end = end
        #: Waiting records by topic; no empty entries.
        self._unknown: dict[str, _UnknownTopic] = {}
        #: Topics among these that the metadata have shown missing: the next request may create them.
        self._missing: set[str] = set()
        #: (generation of metadata that decides, since when, record), of records for unknown partitions.
        self._beyond: deque[tuple[int, int, Outgoing]] = deque()

    def __bool__(self) -> bool:
        return bool(self._unknown or self._beyond)

    def __iter__(self) -> Iterator[Outgoing]:
        for waiting in self._unknown.values():
            yield from map(itemgetter(1), waiting.records)
        yield from map(itemgetter(2), self._beyond)

    @property
    def is_cut_off(self) -> bool:
        """Whether brokers do not answer at present, so that an unknown topic means nothing."""
        return self._cluster.generation == 0 or self._cluster.trouble is not None

    def first_ms(self) -> int | None:
        """Return since when the oldest record waits."""
        since = [waiting.records[0][0] for waiting in self._unknown.values()]
        since += [since_ms for _, since_ms, _ in self._beyond]
        return min(since, default=None)

    def next_deadline(self) -> int | None:
        """Return when the next record has waited for long enough."""
        deadlines = [self._deadline_of(waiting) for waiting in self._unknown.values()]
        deadlines += [since_ms + self._delivery_timeout_ms for _, since_ms, _ in self._beyond]
        return min(deadlines, default=None)

    def _deadline_of(self, waiting: _UnknownTopic) -> int:
        if waiting.missing_ms is not None:
            return waiting.missing_ms + _TOPIC_PATIENCE_MS
        return waiting.records[0][0] + self._delivery_timeout_ms

    def add(self, record: Outgoing, now_ms: int, since_ms: int) -> None:
        """Keep a record of a topic without known partitions."""
        name = name_of(record)
        if name not in self._unknown:
            self._unknown[name] = _UnknownTopic()
            # A topic whose records were given up is followed still. It would not be asked for again before long.
            self._cluster.refresh(now_ms)
        self._unknown[name].records.append((since_ms, record))
        self._cluster.also_want([name], now_ms)

    def add_beyond(self, record: Outgoing, now_ms: int, since_ms: int) -> None:
        """Keep a record for a partition that its topic lacks, as far as is known."""
        self._beyond.append((self._cluster.next_generation, since_ms, record))
        self._cluster.refresh_soon(now_ms)

    # -- new metadata -----------------------------------------------------------------------------------------------

    def on_metadata(self, now_ms: int) -> set[str]:
        """Place records by new metadata; return their topics."""
        placed = set()
        for name, waiting in list(self._unknown.items()):
            topic = self._cluster.topics.get(name)
            if topic is None:
                continue
            if topic.partitions:
                self._note_existence(name, len(topic.partitions))
                del self._unknown[name]
                for since_ms, group in groupby(waiting.records, itemgetter(0)):
                    self._place([record for _, record in group], now_ms, False, since_ms)
                placed.add(name)
                continue
            if waiting.missing_ms is None:
                waiting.missing_ms = now_ms
            if topic.error is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                self._note_absence(name, now_ms)
            elif topic.error is not ErrorCode.NONE:
                self._note_error(name, topic.error)
        for _ in range(len(self._beyond)):
            generation, since_ms, record = self._beyond.popleft()
            self._place([record], now_ms, self._cluster.generation >= generation, since_ms)
            placed.add(name_of(record))
        return placed

    def _note_absence(self, name: str, now_ms: int) -> None:
        """Let the next request create a topic that is missing now, so that the log can say that it was."""
        if name not in self._missing:
            self._missing.add(name)
            self._cluster.may_create = True
            self._cluster.refresh_now(now_ms)

    def _note_existence(self, name: str, partition_count: int) -> None:
        if name in self._missing:
            self._forget_missing(name)
            plural = "" if partition_count == 1 else "s"
            self._requests.warn(f"created topic {name} ({partition_count} partition{plural})")
        self._refusals.on_done(f"looking up topic {name}")

    def _note_error(self, name: str, code: ErrorCode) -> None:
        doing = f"looking up topic {name}"
        self._refusals.on_refused(doing, code, None)
        if not code.retriable:
            self._drop_topic(name, refused(code, during=doing, operation="write", name=name))

    def _forget_missing(self, name: str) -> None:
        self._missing.discard(name)
        self._cluster.may_create = bool(self._missing)

    # -- time limits ------------------------------------------------------------------------------------------------

    def on_tick(self, now_ms: int) -> None:
        """End the records that have waited for long enough."""
        for name, waiting in list(self._unknown.items()):
            if self.is_cut_off:
                waiting.missing_ms = None
            if now_ms < self._deadline_of(waiting):
                continue
            if waiting.missing_ms is None:
                self._drop_late(name, waiting, now_ms)
            else:
                topic = self._cluster.topics.get(name)
                code = ErrorCode.NONE if topic is None else topic.error
                during = f"looking up topic {name}"
                self._drop_topic(
                    name, UnknownTopicError(name) if code in _MISSING else BrokerError(code, during=during)
                )
        while self._beyond and now_ms - self._beyond[0][1] >= self._delivery_timeout_ms:
            _, since_ms, record = self._beyond.popleft()
            text = f"the partitions of {name_of(record)} could not be looked up within {now_ms - since_ms} ms"
            self._end(record, lateness(text, self._cluster))

    def _drop_late(self, name: str, waiting: _UnknownTopic, now_ms: int) -> None:
        error = lateness(f"topic {name} could not be looked up within {self._delivery_timeout_ms} ms", self._cluster)
        while waiting.records and now_ms - waiting.records[0][0] >= self._delivery_timeout_ms:
            self._end(waiting.records.popleft()[1], error)
        if not waiting.records:
            self._drop_topic(name, error)

    def drop_all(self, error: KohortError) -> None:
        """End every record with that error."""
        for name in list(self._unknown):
            self._drop_topic(name, error)
        while self._beyond:
            self._end(self._beyond.popleft()[2], error)

    def _drop_topic(self, name: str, error: KohortError) -> None:
        for _, record in self._unknown.pop(name).records:
            self._end(record, error)
        self._forget_missing(name)
        self._cluster.topics.pop(name, None)
