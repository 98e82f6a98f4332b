"""The calls about positions and lag.

Laws: a call that looks at the application's positions belongs to the thread that polls. A seek takes effect with the
next record that is handed out. The offset of a seek by time, to the beginning or to the end is looked up when it is
needed.
Source: Kafka's consumer API.
"""

from __future__ import annotations

from collections.abc import Iterable
from concurrent.futures import Future
from typing import Any, cast

from kohort.client.application_events import EARLIEST, LATEST, PositionAsked, Sought
from kohort.client.arguments import (
    is_partition,
    to_beginning,
    to_committable,
    to_partition,
    to_partitions,
    to_seconds,
    to_time,
)
from kohort.client.consumer.context import ConsumerContext
from kohort.client.records import Committable, with_metadata
from kohort.client.steps import Pause
from kohort.errors import KohortError
from kohort.ids import TopicPartition


class Positions:
    """Where a consumer reads."""

    def __init__(self, context: ConsumerContext) -> None:
        self._context = context

    def seek(self, partition: TopicPartition, offset: Committable | None = None) -> None:
        """Go on reading at another offset.

        Args:
            partition: one that is assigned; what confluent-kafka calls TopicPartition brings its offset along.
            offset: of the next record to read; or the answer of `committed(..., metadata=True)`, by whose leader epoch
                a
                truncated log is noticed.

        Raises:
            StateError: the partition is not assigned.
        """
        chosen = to_partition(partition)
        if offset is None:
            offset, timestamp = to_beginning(partition)
            if timestamp is not None:
                self._seek([chosen], "seek", timestamp=timestamp)
                return
        found, _, epoch = with_metadata(to_committable(offset))
        self._seek([chosen], "seek", offset=found, leader_epoch=epoch)

    def seek_to_beginning(self, *partitions: TopicPartition) -> None:
        """Go on with the first record that these partitions still have; without any: all assigned ones."""
        self._seek(_several(partitions), "seek_to_beginning", timestamp=EARLIEST)

    def seek_to_end(self, *partitions: TopicPartition) -> None:
        """Go on with the records that are written from now on; without partitions: in all assigned ones.

        The end offsets are looked up at once, but not before this returns; `position` waits for them.
        """
        self._seek(_several(partitions), "seek_to_end", timestamp=LATEST)

    def seek_to_timestamp(self, timestamp_ms: int, *partitions: TopicPartition) -> None:
        """Go on with the first record that is not older, or at the end if there is none.

        Args:
            timestamp_ms: milliseconds since 1970-01-01 UTC.
            partitions: none means all assigned ones.
        """
        self._seek(_several(partitions), "seek_to_timestamp", timestamp=to_time(timestamp_ms, minimum=0))

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
                sought = Sought(
                    partition=each, fence=fence, offset=offset, timestamp=timestamp, leader_epoch=leader_epoch
                )
                self._context.host.post(sought)
            self._context.report_released()
        finally:
            self._context.end(is_taken)

    async def position(self, partition: TopicPartition, *, timeout: float | None = None) -> int:
        """Return the offset of the next record that `poll` will return."""
        partition = to_partition(partition)
        known = self._known_position(partition)
        if known is not None:
            return known
        found = await self._context.ask(
            lambda ticket, deadline: PositionAsked(partition=partition, ticket=ticket, deadline_ms=deadline), timeout
        )
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
        """Return the end of an assigned partition, as the last fetch has said; `None` before the first.

        For readers of committed records the end is where the first open transaction begins.
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
        """Return each partition's lag: the offsets from its position to its end, as the last fetch has said.

        No broker is asked; `None` stands for a partition of which no fetch was answered yet.

        Args:
            partitions: `None` means all that are assigned.
            timeout: seconds to wait for positions that are being found.

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
        """Ask the background for the positions of partitions of which no record was handed out."""
        seconds = self._context.default_timeout_s if timeout is None else to_seconds(timeout)
        deadline_ms = self._context.host.deadline_ms(seconds)
        tickets: dict[TopicPartition, Future[object]] = {each: Future() for each in partitions}
        for each, ticket in tickets.items():
            self._context.host.post(PositionAsked(partition=each, ticket=ticket, deadline_ms=deadline_ms))
        found: dict[TopicPartition, int | None] = {}
        for each, ticket in tickets.items():
            try:
                found[each] = cast(int, await Pause(seconds + 0.5, ticket))
            except KohortError:
                # The lag of a partition without a known position is `None`, not an error.
                found[each] = None
        return found

    def seen_watermarks(self, partition: TopicPartition) -> tuple[int, int] | None:
        """The bounds of a partition as the last fetch has said; `None` before the first."""
        end = self.highwater(partition)
        seen = self._context.handler.watermarks(partition)
        return None if end is None or seen is None or seen.log_start_offset < 0 else (seen.log_start_offset, end)


def _several(partitions: tuple[Any, ...]) -> tuple[TopicPartition, ...]:
    """Return partitions that were given one by one, or as a list."""
    is_list = len(partitions) == 1 and not is_partition(partitions[0])
    return to_partitions(partitions[0] if is_list else partitions)


def _behind(position: int | None, end: int | None) -> int | None:
    return None if position is None or end is None else max(0, end - position)
