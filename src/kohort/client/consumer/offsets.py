"""The calls that commit and ask for offsets.

Laws: a call that only asks the background may come from any thread; one that looks at the application's positions may
not.
Source: Kafka's consumer API.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Any, TypeAlias, cast

from kohort.client.application_events import (
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
from kohort.client.consumer.context import ConsumerContext
from kohort.client.consumer.positions import Positions
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


class Offsets:
    """What the group has committed, and where the records of partitions lie."""

    def __init__(self, context: ConsumerContext, positions: Positions) -> None:
        self._context = context
        self._positions = positions
        #: When stored offsets were last reported to the background.
        self._stored_s = 0.0

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
            deadline_ms = self._context.host.deadline_ms(self._context.default_timeout_s)
            self._context.host.post(AsynchronousCommitAsked(offsets=chosen, callback=callback, deadline_ms=deadline_ms))
        # Without offsets nothing is sent; the callback is called all the same.
        elif callback is not None:
            self._context.deliveries.deliver(CommitEnded(callback=callback, offsets={}, error=None))

    async def commit(
        self,
        offsets: Committing = None,
        *,
        message: ConsumerRecord | None = None,
        asynchronous: bool = False,
        timeout: float = 30.0,
    ) -> None:
        """Commit offsets for the group and wait until that is durable.

        Args:
            offsets: the next offset to read, per partition, a number or an `OffsetAndMetadata`; a record, or a list of
                records, stands for the offset behind it; `None` means everything that `poll` has returned. A list of
                what confluent-kafka calls TopicPartition, with offsets, is taken, too.
            message: a record, as confluent-kafka names it.
            asynchronous: do not wait, as `commit_async` without a callback.
            timeout: seconds.

        Raises:
            StateError: there is no group to commit for.
            FencedError: the group has removed this member, or given the partitions to others.
            BrokerError: metadata is longer than the broker takes, or the group may not be written.
            UnknownTopicError: there is no such topic; `was_deleted`: the one that was read is gone.
            PartlyDoneError: not all partitions have ended alike: `done` maps those that are stored to their
                `OffsetAndMetadata`, `failed` the others to one of these errors each.
        """
        if message is not None:
            offsets = _one_of(offsets, message)
        if asynchronous:
            self.commit_async(offsets)
            return
        chosen = self._chosen_offsets(offsets)
        if chosen:
            await self._context.ask(
                lambda ticket, deadline: CommitAsked(offsets=chosen, ticket=ticket, deadline_ms=deadline), timeout
            )
        if self._context.poller == threading.get_ident() and self._context.turn.try_take():
            # Asynchronous commits that were asked for before it have ended, too.
            try:
                self._context.deliveries.drain()
                await self._context.rebalancing.tell_commits()
            finally:
                self._context.end()

    def _chosen_offsets(self, offsets: Committing) -> Mapping[TopicPartition, Committable]:
        self._check_group()
        return self._own_progress() if offsets is None else to_offsets(offsets)

    def _check_group(self) -> None:
        self._context.check_open()
        if self._context.settings.options["group_id"] is None:
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
        if not self._context.progress.is_stored:
            raise StateError("with enable_auto_offset_store=False the consumer waits to be told what is done")
        self._context.progress.store(chosen)
        now_s = time.monotonic()
        # Stored offsets are reported at intervals: a report costs as much as a dozen records.
        if (
            self._context.settings.options["enable_auto_commit"]
            and now_s - self._stored_s >= self._context.progress_every_s
        ):
            self._stored_s = now_s
            self._context.progress.tell(lambda done: self._context.host.post(OffsetsStored(offsets=done)))

    def _own_progress(self) -> Mapping[TopicPartition, Committable]:
        is_taken = self._context.begin("commit")
        try:
            return self._context.progress.done()
        finally:
            self._context.end(is_taken)

    async def committed(
        self,
        partitions: Iterable[TopicPartition] | TopicPartition,
        timeout: float | None = None,
        *,
        metadata: bool = False,
    ) -> Any:
        """Return the group's committed offsets; `None` for a partition without one.

        Args:
            partitions: of several the answer is a dictionary, of one its value.
            timeout: seconds; `None` means default.api.timeout.ms.
            metadata: answer with `OffsetAndMetadata` in place of numbers.
        """
        is_one = is_partition(partitions)
        chosen = to_partitions([partitions] if is_one else partitions)
        if not chosen:
            return {}
        answer = await self._context.ask(
            lambda ticket, deadline: CommittedAsked(partitions=chosen, ticket=ticket, deadline_ms=deadline), timeout
        )
        full = cast("Mapping[TopicPartition, OffsetAndMetadata | None]", answer)
        found = full if metadata else {each: None if entry is None else entry.offset for each, entry in full.items()}
        return found[chosen[0]] if is_one else dict(found)

    async def beginning_offsets(
        self, partitions: Iterable[TopicPartition], timeout: float | None = None
    ) -> dict[TopicPartition, int]:
        """Return the first offset that each partition still has."""
        return await self._bounds(partitions, EARLIEST, timeout)

    async def end_offsets(
        self, partitions: Iterable[TopicPartition], timeout: float | None = None
    ) -> dict[TopicPartition, int]:
        """Return the offset that the next record of each partition will get."""
        return await self._bounds(partitions, LATEST, timeout)

    async def _bounds(
        self, partitions: Iterable[TopicPartition], which: int, timeout: float | None
    ) -> dict[TopicPartition, int]:
        found = await self.offsets_for_times(dict.fromkeys(to_partitions(partitions), which), timeout)
        return {partition: 0 if offset is None else offset[0] for partition, offset in found.items()}

    async def watermarks(
        self, partition: TopicPartition, timeout: float | None = None, *, cached: bool = False
    ) -> tuple[int, int] | None:
        """Return the first offset that a partition still has, and the one that its next record will get.

        Args:
            partition: any; with `cached` one that is assigned.
            timeout: seconds.
            cached: answer as the last fetch has said, without asking; `None` before the first.
        """
        chosen = to_partition(partition)
        if cached:
            return self._positions.seen_watermarks(chosen)
        begins = await self._bounds([chosen], EARLIEST, timeout)
        ends = await self._bounds([chosen], LATEST, timeout)
        return begins[chosen], ends[chosen]

    async def get_watermark_offsets(
        self, partition: TopicPartition, timeout: float | None = None, cached: bool = False
    ) -> tuple[int, int] | None:
        """Return the `watermarks`, by the name that confluent-kafka gives the call."""
        return await self.watermarks(partition, timeout, cached=cached)

    async def offsets_for_times(
        self, timestamps: Mapping[TopicPartition, int], timeout: float | None = None
    ) -> dict[TopicPartition, tuple[int, int] | None]:
        """Return offset and timestamp of the first record not older than a timestamp (ms); `None`: none is."""
        wanted = to_timestamps(timestamps)
        if not wanted:
            return {}
        found = await self._context.ask(
            lambda ticket, deadline: OffsetsAsked(timestamps=wanted, ticket=ticket, deadline_ms=deadline), timeout
        )
        return dict(cast("Mapping[TopicPartition, tuple[int, int] | None]", found))

    async def list_topics(self, timeout: float | None = None) -> dict[str, list[int]]:
        """Return every topic with its partitions, both ascending; without the brokers' internal topics."""
        found = await self.describe_topics(None, timeout)
        return {name: list(topic.partitions) for name, topic in found.items()}

    async def describe_topics(
        self, topics: Sequence[str] | str | None = None, timeout: float | None = None
    ) -> dict[str, ListedTopic]:
        """Return topics with their ids, as a broker knows them at this moment; asking creates none.

        Args:
            topics: names; `None` for every topic but the brokers' internal ones.
            timeout: seconds; default.api.timeout.ms if left out.

        Returns:
            By name; a topic that does not exist is left out.
        """
        names = None if topics is None else tuple(sorted(set(to_topics(topics))))
        if names == ():
            return {}
        found = await self._context.ask(
            lambda ticket, deadline: TopicsAsked(ticket=ticket, deadline_ms=deadline, topics=names), timeout
        )
        return cast("dict[str, ListedTopic]", found)

    async def topics(self, timeout: float | None = None) -> set[str]:
        """Return the names of every topic."""
        return set(await self.list_topics(timeout))

    async def partitions_for(self, topic: str, timeout: float | None = None) -> list[int]:
        """Return the partitions of a topic, ascending; none if there is no such topic."""
        topic = to_topic(topic, "partitions_for('orders')")
        found = await self._context.ask(
            lambda ticket, deadline: PartitionsAsked(topic=topic, ticket=ticket, deadline_ms=deadline), timeout
        )
        return cast("list[int]", found)


def _one_of(offsets: Committing, message: ConsumerRecord | None) -> Committing:
    if offsets is not None and message is not None:
        raise ConfigError("offsets and a message cannot both be given: one of them is expected")
    return message if offsets is None else offsets
