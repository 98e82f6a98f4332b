"""The calls that commit and ask for offsets, as steps.

Laws: a call that only asks the background may come from any thread; one that looks at the application's positions may
not.
Source: Kafka's consumer API.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Any, TypeAlias, cast

from kohort.client.arguments import (
    is_partition,
    to_callback,
    to_offsets,
    to_partition,
    to_partitions,
    to_timestamps,
    to_topic,
    to_topics,
)
from kohort.client.consumer.position_side import PositionSide
from kohort.client.consumer.steps import Steps
from kohort.client.exchange import (
    EARLIEST,
    LATEST,
    AsynchronousCommitAsked,
    CommitAsked,
    CommitEnded,
    CommittedAsked,
    OffsetsAsked,
    OffsetsStored,
    PartitionsAsked,
    TopicsAsked,
)
from kohort.client.records import Committable, ConsumerRecord, ListedTopic, OffsetAndMetadata
from kohort.errors import ConfigError, KohortError, StateError
from kohort.ids import TopicPartition

#: Arguments of a commit: offsets by partition; a record or several, which stand for the offsets behind them; or `None`
#: for all processed offsets.
Committing: TypeAlias = Mapping[TopicPartition, Committable] | ConsumerRecord | Sequence[ConsumerRecord] | None
#: Called with the error, `None` for a good end, and the offsets. With `kohort.aio` it may be a coroutine function.
CommitCallback: TypeAlias = Callable[
    [KohortError | None, dict[TopicPartition, OffsetAndMetadata]], Awaitable[None] | None
]


class OffsetSide(PositionSide):
    """The part of a consumer that deals with offsets."""

    #: When stored offsets were last reported to the background.
    _stored_s = 0.0

    def commit_async(self, offsets: Committing = None, callback: CommitCallback | None = None) -> None:
        """Commit without waiting, in order with every other commit; waiting ones go out as one request.

        Args:
            offsets: as for `commit`.
            callback: called with the error, `None` for a good end, and the offsets, in the thread that polls: in
                `poll`, `commit`, `unsubscribe` or `close`. Without one a failure is a line in the log.

        Raises:
            StateError: there is no group to commit for.
        """
        to_callback(callback, "callback")
        chosen = self._chosen_offsets(offsets)
        if chosen:
            deadline_ms = self._host.deadline_ms(self._default_timeout_s)
            self._host.post(AsynchronousCommitAsked(offsets=chosen, callback=callback, deadline_ms=deadline_ms))
        # Without offsets nothing is sent; the callback is called all the same.
        elif callback is not None:
            self._deliveries.deliver(CommitEnded(callback=callback, offsets={}, error=None))

    def _commit_steps(
        self, offsets: Committing, message: ConsumerRecord | None, asynchronous: bool, timeout: float
    ) -> Steps[None]:
        if message is not None:
            offsets = _one_of(offsets, message)
        if asynchronous:
            self.commit_async(offsets)
            return
        chosen = self._chosen_offsets(offsets)
        if chosen:
            yield from self._ask_steps(
                lambda ticket, deadline: CommitAsked(offsets=chosen, ticket=ticket, deadline_ms=deadline), timeout
            )
        if self._poller == threading.get_ident() and self._turn.try_take():
            # Asynchronous commits that were asked for before it have ended, too.
            try:
                self._deliveries.drain()
                yield from self._rebalancing.tell_commits()
            finally:
                self._end()

    def _chosen_offsets(self, offsets: Committing) -> Mapping[TopicPartition, Committable]:
        self._check_group()
        return self._own_progress() if offsets is None else to_offsets(offsets)

    def _check_group(self) -> None:
        self._check_open()
        if self._settings.options["group_id"] is None:
            raise StateError(
                "there is no group to commit for: create the consumer with group_id, or keep the offsets yourself"
            )

    def store_offsets(self, offsets: Committing = None, *, message: ConsumerRecord | None = None) -> None:
        """Store processed offsets: with enable.auto.offset.store off, commits contain only these.

        May be called from any thread, as often as a record is done: nothing is sent by it.

        Args:
            offsets: as for `commit`; a record, or a list of records, stands for the offset behind it.
            message: a record, as confluent-kafka names it.

        Raises:
            StateError: a partition is not assigned to this consumer (any more), there is no group to commit for, or
                everything that `poll` returns counts as done.
        """
        chosen = to_offsets(_one_of(offsets, message))
        self._check_group()
        if not self._progress.is_stored:
            raise StateError("with enable_auto_offset_store=False the consumer waits to be told what is done")
        self._progress.store(chosen)
        now_s = time.monotonic()
        # Stored offsets are reported at intervals: a report costs as much as a dozen records.
        if self._settings.options["enable_auto_commit"] and now_s - self._stored_s >= self._progress_every_s:
            self._stored_s = now_s
            self._progress.tell(lambda done: self._host.post(OffsetsStored(offsets=done)))

    def _own_progress(self) -> Mapping[TopicPartition, Committable]:
        is_taken = self._begin("commit")
        try:
            return self._progress.done()
        finally:
            self._end(is_taken)

    def _committed_steps(
        self, partitions: Iterable[TopicPartition] | TopicPartition, timeout: float | None, metadata: bool
    ) -> Steps[Any]:
        is_one = is_partition(partitions)
        chosen = to_partitions([partitions] if is_one else partitions)
        if not chosen:
            return {}
        answer = yield from self._ask_steps(
            lambda ticket, deadline: CommittedAsked(partitions=chosen, ticket=ticket, deadline_ms=deadline), timeout
        )
        full = cast("Mapping[TopicPartition, OffsetAndMetadata | None]", answer)
        found = full if metadata else {each: None if entry is None else entry.offset for each, entry in full.items()}
        return found[chosen[0]] if is_one else dict(found)

    def _beginning_steps(
        self, partitions: Iterable[TopicPartition], timeout: float | None
    ) -> Steps[dict[TopicPartition, int]]:
        return self._bound_steps(partitions, EARLIEST, timeout)

    def _end_steps(
        self, partitions: Iterable[TopicPartition], timeout: float | None
    ) -> Steps[dict[TopicPartition, int]]:
        return self._bound_steps(partitions, LATEST, timeout)

    def _bound_steps(
        self, partitions: Iterable[TopicPartition], which: int, timeout: float | None
    ) -> Steps[dict[TopicPartition, int]]:
        found = yield from self._times_steps(dict.fromkeys(to_partitions(partitions), which), timeout)
        return {partition: 0 if offset is None else offset[0] for partition, offset in found.items()}

    def _watermark_steps(
        self, partition: TopicPartition, timeout: float | None, cached: bool
    ) -> Steps[tuple[int, int] | None]:
        chosen = to_partition(partition)
        if cached:
            return self._seen_watermarks(chosen)
        begins = yield from self._bound_steps([chosen], EARLIEST, timeout)
        ends = yield from self._bound_steps([chosen], LATEST, timeout)
        return begins[chosen], ends[chosen]

    def _times_steps(
        self, timestamps: Mapping[TopicPartition, int], timeout: float | None
    ) -> Steps[dict[TopicPartition, tuple[int, int] | None]]:
        wanted = to_timestamps(timestamps)
        if not wanted:
            return {}
        found = yield from self._ask_steps(
            lambda ticket, deadline: OffsetsAsked(timestamps=wanted, ticket=ticket, deadline_ms=deadline), timeout
        )
        return dict(cast("Mapping[TopicPartition, tuple[int, int] | None]", found))

    def _topics_steps(self, timeout: float | None) -> Steps[dict[str, list[int]]]:
        found = yield from self._listed_steps(None, timeout)
        return {name: list(topic.partitions) for name, topic in found.items()}

    def _listed_steps(self, topics: Sequence[str] | str | None, timeout: float | None) -> Steps[dict[str, ListedTopic]]:
        names = None if topics is None else tuple(sorted(set(to_topics(topics))))
        if names == ():
            return {}
        found = yield from self._ask_steps(
            lambda ticket, deadline: TopicsAsked(ticket=ticket, deadline_ms=deadline, topics=names), timeout
        )
        return cast("dict[str, ListedTopic]", found)

    def _partitions_steps(self, topic: str, timeout: float | None) -> Steps[list[int]]:
        topic = to_topic(topic, "partitions_for('orders')")
        found = yield from self._ask_steps(
            lambda ticket, deadline: PartitionsAsked(topic=topic, ticket=ticket, deadline_ms=deadline), timeout
        )
        return cast("list[int]", found)


def _one_of(offsets: Committing, message: ConsumerRecord | None) -> Committing:
    if offsets is not None and message is not None:
        raise ConfigError("offsets and a message cannot both be given: one of them is expected")
    return message if offsets is None else offsets
