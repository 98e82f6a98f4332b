"""Records whose topic is not known, or whose partition its topic is not known to have.

Laws: each is placed or ends, in the order in which those of its partition came. Only a topic that was seen to be
missing is created. A partition is refused only by an answer that was asked for after the record had come: the topic may
have grown since it was looked at.
Source: Kafka's producer, which waits for metadata for max.block.ms; KIP-195 (topics grow).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from typing import Final

from kohort.client.cluster import Cluster
from kohort.client.producer.core.complaints import Complaints
from kohort.client.producer.core.partition_lookups import lateness
from kohort.client.producer.core.submissions import Outgoing
from kohort.client.refusals import refused
from kohort.client.requests import Requests
from kohort.errors import BrokerError, ErrorCode, KohortError, UnknownTopicError

#: How long a topic that is asked for may take to appear: the broker may be creating it.
_TOPIC_PATIENCE_MS: Final = 3_000
#: What is said of a topic that is not there, or was made a moment ago.
_MISSING: Final = (ErrorCode.NONE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.LEADER_NOT_AVAILABLE)


def name_of(record: Outgoing) -> str:
    """The topic that it is meant for."""
    return record.name if record.is_bulk else record.topic


class Homeless:
    """Those of one producer.

    Args:
        complaints: told what looking up a topic is refused with; knows how long a record may wait for answers.
        place: takes records whose time has come, and whether a partition that is not there now is refused.
        end: ends a record in an error.
    """

    def __init__(
        self,
        requests: Requests,
        cluster: Cluster,
        complaints: Complaints,
        *,
        place: Callable[[list[Outgoing], int, bool], None],
        end: Callable[[Outgoing, KohortError], None],
    ) -> None:
        self._requests = requests
        self._cluster = cluster
        self._complaints = complaints
        self._delivery_timeout_ms = complaints.delivery_timeout_ms
        self._place = place
        self._end = end
        #: topic -> (since when, records) while its partitions are not known.
        self._lost: dict[str, tuple[int, list[Outgoing]]] = {}
        #: Topics among these that the cluster has said it lacks: the next look at it creates them, if it does that.
        self._missing: set[str] = set()
        #: (generation of the cluster's picture that decides, since when, record), of partitions that are not known.
        self._beyond: deque[tuple[int, int, Outgoing]] = deque()

    def __bool__(self) -> bool:
        return bool(self._lost or self._beyond)

    def __iter__(self) -> Iterator[Outgoing]:
        for _, records in self._lost.values():
            yield from records
        for _, _, record in self._beyond:
            yield record

    @property
    def _is_cut_off(self) -> bool:
        """Whether a topic that is not known says nothing: nobody answers."""
        return self._cluster.generation == 0 or self._cluster.trouble is not None

    def next_deadline(self) -> int | None:
        """When somebody has waited for long enough."""
        patience_ms = self._delivery_timeout_ms if self._is_cut_off else _TOPIC_PATIENCE_MS
        deadlines = [since_ms + patience_ms for since_ms, _ in self._lost.values()]
        deadlines += [since_ms + self._delivery_timeout_ms for _, since_ms, _ in self._beyond]
        return min(deadlines, default=None)

    def add(self, record: Outgoing, now_ms: int) -> None:
        """Its topic has no partitions, as far as is known."""
        name = name_of(record)
        if name not in self._lost:
            self._lost[name] = (now_ms, [])
            # One that was given up is followed still, and would not be asked for before long.
            self._cluster.refresh(now_ms)
        self._lost[name][1].append(record)
        self._cluster.also_want([name], now_ms)

    def add_beyond(self, record: Outgoing, now_ms: int) -> None:
        """It names a partition that its topic does not have, as far as is known."""
        self._beyond.append((self._cluster.next_generation, now_ms, record))
        self._cluster.refresh_soon(now_ms)

    # -- what the cluster says --------------------------------------------------------------------------------------

    def on_metadata(self, now_ms: int) -> set[str]:
        """There is a new picture of the cluster; returns the topics of records that were placed."""
        placed = set()
        for name in list(self._lost):
            topic = self._cluster.topics.get(name)
            if topic is None:
                continue
            if topic.partitions:
                self._note_existence(name, len(topic.partitions))
                self._place(self._lost.pop(name)[1], now_ms, False)
                placed.add(name)
            elif topic.error is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                self._note_absence(name, now_ms)
            elif topic.error is not ErrorCode.NONE:
                self._note_error(name, topic.error)
        for _ in range(len(self._beyond)):
            generation, _, record = self._beyond.popleft()
            self._place([record], now_ms, self._cluster.generation >= generation)
            placed.add(name_of(record))
        return placed

    def _note_absence(self, name: str, now_ms: int) -> None:
        """Only a topic that was seen to be missing is created, so that it can be said that it was."""
        if name not in self._missing:
            self._missing.add(name)
            self._cluster.may_create = True
            self._cluster.refresh_now(now_ms)

    def _note_existence(self, name: str, partition_count: int) -> None:
        if name in self._missing:
            self._forget_missing(name)
            plural = "" if partition_count == 1 else "s"
            self._requests.warn(f"created topic {name} ({partition_count} partition{plural})")
        self._complaints.on_done(f"looking up topic {name}")

    def _note_error(self, name: str, code: ErrorCode) -> None:
        doing = f"looking up topic {name}"
        self._complaints.on_refused(doing, code, None)
        if not code.retriable:
            self._drop_topic(name, refused(code, during=doing, operation="write", name=name))

    def _forget_missing(self, name: str) -> None:
        self._missing.discard(name)
        self._cluster.may_create = bool(self._missing)

    # -- what waits in vain -----------------------------------------------------------------------------------------

    def on_tick(self, now_ms: int) -> None:
        """End what has waited for long enough."""
        for name, (since_ms, _) in list(self._lost.items()):
            if self._is_cut_off:
                if now_ms - since_ms >= self._delivery_timeout_ms:
                    text = f"topic {name} could not be looked up within {now_ms - since_ms} ms"
                    self._drop_topic(name, lateness(text, self._cluster))
            elif now_ms - since_ms >= _TOPIC_PATIENCE_MS:
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

    def drop_all(self, error: KohortError) -> None:
        """None of them will be placed."""
        for name in list(self._lost):
            self._drop_topic(name, error)
        while self._beyond:
            self._end(self._beyond.popleft()[2], error)

    def _drop_topic(self, name: str, error: KohortError) -> None:
        for record in self._lost.pop(name)[1]:
            self._end(record, error)
        self._forget_missing(name)
        self._cluster.topics.pop(name, None)
