"""The calls of a consumer about positions, lag, commits and offsets.

Laws: a call that reads the application's positions belongs to the thread that polls. A call that only asks the
background may come from any thread. The next record that is handed out comes from the offset of the latest seek. A seek
by time, to the beginning or to the end returns before the brokers are asked for the offset.
Source: Kafka's consumer API.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future
from functools import partial
from typing import Any, TypeAlias, cast

from kohort.client import arguments
from kohort.client.arguments import is_partition, to_offsets, to_partition, to_partitions, to_seconds
from kohort.client.consumer import application_events as events
from kohort.client.consumer.application_events import EARLIEST, LATEST, OffsetsStored
from kohort.client.consumer.context import ConsumerContext
from kohort.client.records import Committable, ConsumerRecord, ListedTopic, OffsetAndMetadata, with_metadata
from kohort.client.steps import Pause
from kohort.errors import ConfigError, KohortError, StateError
from kohort.ids import TopicPartition


class Positions:
    """The calls about the position in each assigned partition: seek, position, lag."""

    def __init__(self, context: ConsumerContext) -> None:
        self._context = context

    def seek(self, partition: TopicPartition, offset: Committable | None = None) -> None:
        """Set the position of an assigned partition: `poll` goes on there.

        Args:
            partition: an assigned partition; a TopicPartition of confluent-kafka carries the offset itself.
            offset: of the next record to read; or an `OffsetAndMetadata` of `committed(..., metadata=True)`, whose
                leader epoch lets the consumer detect a truncated log.

        Raises:
            StateError: the partition is not assigned.
        """
        chosen = to_partition(partition)
        if offset is None:
            offset, timestamp = arguments.to_beginning(partition)
            if timestamp is not None:
                self._seek([chosen], "seek", timestamp=timestamp)
                return
        found, _, epoch = with_metadata(arguments.to_committable(offset))
        self._seek([chosen], "seek", offset=found, leader_epoch=epoch)

    def seek_to_beginning(self, *partitions: TopicPartition) -> None:
        """Go back to the first record that the log still has; without arguments in all assigned partitions."""
        self._seek(_several(partitions), "seek_to_beginning", timestamp=EARLIEST)

    def seek_to_end(self, *partitions: TopicPartition) -> None:
        """Skip to the end of the log; without arguments in all assigned partitions.

        The call does not wait for the end offsets: the background asks the brokers at once. `position` waits for them.
        """
        self._seek(_several(partitions), "seek_to_end", timestamp=LATEST)

    def seek_to_timestamp(self, timestamp_ms: int, *partitions: TopicPartition) -> None:
        """Go to the first record with this timestamp or a later one; to the end of the log if there is none.

        Args:
            timestamp_ms: milliseconds since 1970-01-01 UTC.
            partitions: assigned partitions; without any, all of them.
        """
        self._seek(_several(partitions), "seek_to_timestamp", timestamp=arguments.to_time(timestamp_ms, minimum=0))

    def _seek(
        self,
        partitions: tuple[TopicPartition, ...] | list[TopicPartition],
        what: str,
        *,
        offset: int | None = None,
        timestamp: int | None = None,
        leader_epoch: int = -1,
    ) -> None:
        is_taken = self._context.begin(what)
        try:
            chosen = partitions or sorted(self._context.handler.assignment)
            self._context.check_held(chosen)
            for each in chosen:
                fence = self._context.handler.seek(each, offset, timestamp, leader_epoch)
                # An error of the former position is out of date.
                self._context.deliveries.forget_trouble(each)
                sought = events.Sought(
                    partition=each, fence=fence, offset=offset, timestamp=timestamp, leader_epoch=leader_epoch
                )
                self._context.host.post(sought)
            self._context.report_released()
        finally:
            self._context.end(is_taken)

    async def position(self, partition: TopicPartition, *, timeout: float | None = None) -> int:
        """Return the offset of the next record that `poll` will return; `timeout` in seconds."""
        partition = to_partition(partition)
        known = self._known_position(partition)
        if known is not None:
            return known
        found = await self._context.ask(partial(events.PositionAsked, partition=partition), timeout)
        # Data may have arrived meanwhile; then the background is ahead of the application's position.
        known = self._known_position(partition)
        return cast(int, found) if known is None else known

    def _known_position(self, partition: TopicPartition) -> int | None:
        is_taken = self._context.begin("position")
        try:
            self._context.check_held([partition])
            self._context.deliveries.drain()
            return self._context.handler.position(partition)
        finally:
            self._context.end(is_taken)

    # -- how far behind -----------------------------------------------------------------------------------------------

    def highwater(self, partition: TopicPartition) -> int | None:
        """Return the end offset of an assigned partition by its last fetch; `None` before the first fetch response.

        With isolation.level=read_committed this is the last stable offset, otherwise the high watermark.
        """
        chosen = to_partition(partition)
        is_taken = self._context.begin("highwater")
        try:
            self._context.check_held([chosen])
            self._context.deliveries.drain()
            return self._context.handler.end_offset(chosen)
        finally:
            self._context.end(is_taken)

    async def lag(
        self, partitions: Iterable[TopicPartition] | None = None, timeout: float | None = None
    ) -> dict[TopicPartition, int | None]:
        """Return each partition's lag: its end offset by the last fetch (see `highwater`) minus its position.

        No broker is asked for end offsets. A partition without a fetch response so far has the lag `None`.

        Args:
            partitions: `None` means all assigned partitions.
            timeout: seconds to wait for positions that the background is still looking up.

        Raises:
            StateError: a partition is not assigned.
        """
        given = () if partitions is None else to_partitions([partitions] if is_partition(partitions) else partitions)
        is_taken = self._context.begin("lag")
        try:
            chosen = sorted(self._context.handler.assignment) if partitions is None else given
            self._context.check_held(chosen)
            self._context.deliveries.drain()
            ends = {each: self._context.handler.end_offset(each) for each in chosen}
            positions = {each: self._context.handler.position(each) for each in chosen}
        finally:
            self._context.end(is_taken)
        found = await self._find(
            [each for each in chosen if positions[each] is None and ends[each] is not None], timeout
        )
        positions.update(found)
        return {each: _behind(positions[each], ends[each]) for each in chosen}

    async def current_lag(self, partition: TopicPartition) -> int | None:
        """Return the lag of one partition, as `lag` does."""
        return (await self.lag([partition]))[to_partition(partition)]

    async def _find(self, partitions: list[TopicPartition], timeout: float | None) -> dict[TopicPartition, int | None]:
        """Ask the background for the positions of partitions without a record handed out so far."""
        seconds = self._context.default_timeout_s if timeout is None else to_seconds(timeout)
        deadline_ms = self._context.host.deadline_ms(seconds)
        tickets: dict[TopicPartition, Future[object]] = {each: Future() for each in partitions}
        for each, ticket in tickets.items():
            self._context.host.post(events.PositionAsked(partition=each, ticket=ticket, deadline_ms=deadline_ms))
        found: dict[TopicPartition, int | None] = {}
        for each, ticket in tickets.items():
            try:
                found[each] = cast(int, await Pause(seconds + 0.5, ticket))
            except KohortError:
                # The lag of a partition without a known position is `None`, not an error.
                found[each] = None
        return found

    def seen_watermarks(self, partition: TopicPartition) -> tuple[int, int] | None:
        """Return the log start offset and `highwater` by the last fetch; `None` before the first fetch response."""
        end = self.highwater(partition)
        seen = self._context.handler.watermarks(partition)
        return None if end is None or seen is None or seen.log_start_offset < 0 else (seen.log_start_offset, end)


def _several(partitions: tuple[Any, ...]) -> tuple[TopicPartition, ...]:
    """Return partitions that were given one by one, or as a list."""
    is_list = len(partitions) == 1 and not is_partition(partitions[0])
    return to_partitions(partitions[0] if is_list else partitions)


def _behind(position: int | None, end: int | None) -> int | None:
    return None if position is None or end is None else max(0, end - position)


#: Arguments of a commit: offsets by partition; a record or several, each of which stands for its offset + 1; or `None`
#: for all processed offsets.
Committing: TypeAlias = Mapping[TopicPartition, Committable] | ConsumerRecord | Sequence[ConsumerRecord] | None
#: Called with the error (`None` after a success) and the offsets. With `kohort.aio` it may be a coroutine function.
CommitCallback: TypeAlias = Callable[
    [KohortError | None, dict[TopicPartition, OffsetAndMetadata]], Awaitable[None] | None
]


class Offsets:
    """The calls about committed offsets, about the offsets of a log, and about topics."""

    def __init__(self, context: ConsumerContext, positions: Positions) -> None:
        self._context = context
        self._positions = positions
        #: When stored offsets were last reported to the background.
        self._stored_s = 0.0

    def commit_async(self, offsets: Committing = None, callback: CommitCallback | None = None) -> None:
        """Commit without waiting. Commits keep their order; several that are queued go out as one request.

        Args:
            offsets: as for `commit`.
            callback: called with the error (`None` after a success) and the offsets, in the thread that polls: inside
                `poll`, `commit`, `unsubscribe` or `close`. Without a callback a failure is only logged.

        Raises:
            StateError: there is no group to commit for.
        """
        arguments.to_callback(callback, "callback")
        chosen = self._chosen_offsets(offsets)
        if chosen:
            deadline_ms = self._context.host.deadline_ms(self._context.default_timeout_s)
            self._context.host.post(
                events.AsynchronousCommitAsked(offsets=chosen, callback=callback, deadline_ms=deadline_ms)
            )
        # Without offsets nothing is sent; the callback is called all the same.
        elif callback is not None:
            self._context.deliveries.deliver(events.CommitEnded(callback=callback, offsets={}, error=None))

    async def commit(
        self,
        offsets: Committing = None,
        *,
        message: ConsumerRecord | None = None,
        asynchronous: bool = False,
        timeout: float = 30.0,
    ) -> None:
        """Commit offsets for the group and wait until they are stored durably.

        Args:
            offsets: partition to the next offset to read, a number or an `OffsetAndMetadata`. A record, or each of a
                list of records, stands for its offset + 1. `None` means everything that `poll` has returned. A list of
                confluent-kafka's TopicPartition with offsets is accepted, too.
            message: a record; confluent-kafka's name for it.
            asynchronous: do not wait, as `commit_async` without a callback.
            timeout: seconds.

        Raises:
            StateError: the consumer has no group_id.
            FencedError: the group has removed this member, or assigned the partitions to other members.
            BrokerError: metadata is longer than the broker accepts, or this client may not write to the group.
            UnknownTopicError: the topic does not exist; with `was_deleted`, the topic that was read has been deleted.
            PartlyDoneError: some partitions have failed, or for different reasons: `done` maps each committed partition
                to its `OffsetAndMetadata`, `failed` each other one to one of the errors above.
        """
        if message is not None:
            offsets = _one_of(offsets, message)
        if asynchronous:
            self.commit_async(offsets)
            return
        chosen = self._chosen_offsets(offsets)
        if chosen:
            await self._context.ask(partial(events.CommitAsked, offsets=chosen), timeout)
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
        """Mark offsets as processed: with enable.auto.offset.store=false the next commits contain only these.

        May be called from any thread and for each record: the call itself sends no request.

        Args:
            offsets: as for `commit`; a record, or each of a list of records, stands for its offset + 1.
            message: a record; confluent-kafka's name for it.

        Raises:
            StateError: a partition is not assigned to this consumer (any more), the consumer has no group_id, or
                enable.auto.offset.store is on.
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

    def processed_offsets(self) -> dict[TopicPartition, Committable]:
        """Return the offsets that `commit()` would commit: to commit them with a producer's transaction.

        Raises:
            StateError: there is no group to commit for.
            ConfigError: enable_auto_commit is on, so that the consumer commits them by itself.
        """
        self._check_group()
        if self._context.settings.options["enable_auto_commit"]:
            raise ConfigError(
                "offsets that belong to a transaction are committed by it alone: create the consumer with "
                "enable_auto_commit=False"
            )
        return dict(self._own_progress())

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
        """Return the group's committed offsets; the blocking and the asyncio client document the arguments."""
        is_one = is_partition(partitions)
        chosen = to_partitions([partitions] if is_one else partitions)
        if not chosen:
            return {}
        answer = await self._context.ask(partial(events.CommittedAsked, partitions=chosen), timeout)
        full = cast("Mapping[TopicPartition, OffsetAndMetadata | None]", answer)
        found = full if metadata else {each: None if entry is None else entry.offset for each, entry in full.items()}
        return found[chosen[0]] if is_one else dict(found)

    async def beginning_offsets(
        self, partitions: Iterable[TopicPartition], timeout: float | None = None
    ) -> dict[TopicPartition, int]:
        """Return the log start offset of each partition: the first that it still has."""
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
        """Return the log start offset of a partition, and the offset that its next record will get.

        Args:
            partition: any partition; with `cached` an assigned one.
            timeout: seconds.
            cached: ask no broker but return the values of the last fetch; `None` before the first fetch response.
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
        """Return the same as `watermarks`, under confluent-kafka's name."""
        return await self.watermarks(partition, timeout, cached=cached)

    async def offsets_for_times(
        self, timestamps: Mapping[TopicPartition, int], timeout: float | None = None
    ) -> dict[TopicPartition, tuple[int, int] | None]:
        """Return (offset, timestamp) of each partition's first record at or after a time, ms; `None`: none is."""
        wanted = arguments.to_timestamps(timestamps)
        if not wanted:
            return {}
        found = await self._context.ask(partial(events.OffsetsAsked, timestamps=wanted), timeout)
        return dict(cast("Mapping[TopicPartition, tuple[int, int] | None]", found))

    async def list_topics(self, timeout: float | None = None) -> dict[str, list[int]]:
        """Return the name of every topic but internal ones with its partition numbers, both ascending."""
        found = await self.describe_topics(None, timeout)
        return {name: list(topic.partitions) for name, topic in found.items()}

    async def describe_topics(
        self, topics: Sequence[str] | str | None = None, timeout: float | None = None
    ) -> dict[str, ListedTopic]:
        """Return topics with their ids and partitions, asked of a broker now; the call creates no topic.

        Args:
            topics: names; `None` means every topic but internal ones.
            timeout: seconds; default.api.timeout.ms if left out.

        Returns:
            Each topic by its name; a topic that does not exist is left out.
        """
        names = None if topics is None else tuple(sorted(set(arguments.to_topics(topics))))
        if names == ():
            return {}
        found = await self._context.ask(partial(events.TopicsAsked, topics=names), timeout)
        return cast("dict[str, ListedTopic]", found)

    async def topics(self, timeout: float | None = None) -> set[str]:
        """Return the names of every topic but internal ones."""
        return set(await self.list_topics(timeout))

    async def partitions_for(self, topic: str, timeout: float | None = None) -> list[int]:
        """Return the partition numbers of a topic, ascending; an empty list if the topic does not exist."""
        topic = arguments.to_topic(topic, "partitions_for('orders')")
        found = await self._context.ask(partial(events.PartitionsAsked, topic=topic), timeout)
        return cast("list[int]", found)


def _one_of(offsets: Committing, message: ConsumerRecord | None) -> Committing:
    if offsets is not None and message is not None:
        raise ConfigError("offsets and a message cannot both be given: one of them is expected")
    return message if offsets is None else offsets
