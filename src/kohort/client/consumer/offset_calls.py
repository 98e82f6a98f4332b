"""The consumer's calls about offsets: commit, seek, position, committed, first and last, by time; a topic's partitions.

Laws: each is one event, and one ticket where it has an answer; but for `seek` and `position` none needs the thread that
polls, so any thread may call it.
Source: Kafka's consumer API.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Future
from typing import cast

from kohort.client.arguments import to_offset, to_offsets, to_partition, to_partitions, to_timestamps, to_topic
from kohort.client.consumer.core.exchange import (
    CommitAsked,
    CommittedAsked,
    ConsumerEvent,
    OffsetsAsked,
    PartitionsAsked,
    PositionAsked,
    Sought,
)
from kohort.client.consumer.deliveries import Deliveries
from kohort.client.fetch.fetch_handler import FetchHandler
from kohort.client.io.thread import IoThread
from kohort.client.offsets.queries import EARLIEST, LATEST
from kohort.client.options import ConsumerSettings
from kohort.errors import StateError
from kohort.ids import TopicPartition


class OffsetCalls(ABC):
    """The part of `Consumer` that commits, seeks and asks for offsets."""

    _handler: FetchHandler
    _deliveries: Deliveries
    _settings: ConsumerSettings
    _thread: IoThread[ConsumerEvent]

    @abstractmethod
    def _check_open(self) -> None:
        """Raise `StateError` if the consumer is closed."""

    @abstractmethod
    def _ask(self, build: Callable[[Future[object], int], ConsumerEvent], timeout: float | None) -> object:
        """Post the event that `build` makes of a ticket and a deadline, and wait for its end."""

    @abstractmethod
    def _report_released(self) -> None:
        """Tell the background what is not held any more."""

    def commit(self, offsets: Mapping[TopicPartition, int] | None = None, *, timeout: float = 30.0) -> None:
        """Commit offsets for the group and wait until that is durable.

        Args:
            offsets: the next offset to read, per partition; `None` means everything that `poll` has returned. A list of
                what confluent-kafka calls TopicPartition, with offsets, is taken, too.
            timeout: seconds.

        Raises:
            StateError: there is no group to commit for.
            FencedError: the group has removed this member, or given the partitions to others.
        """
        self._check_open()
        if self._settings.group_id is None:
            raise StateError(
                "there is no group to commit for: create the consumer with group_id, or keep the offsets yourself"
            )
        chosen = self._handler.positions() if offsets is None else to_offsets(offsets)
        if chosen:
            self._ask(
                lambda ticket, deadline: CommitAsked(offsets=chosen, ticket=ticket, deadline_ms=deadline), timeout
            )

    def seek(self, partition: TopicPartition, offset: int) -> None:
        """Go on reading at that offset.

        Raises:
            StateError: the partition is not assigned.
        """
        self._check_open()
        partition, offset = to_partition(partition), to_offset(offset)
        self._check_held([partition])
        fence = self._handler.seek(partition, offset)
        self._deliveries.forget_trouble(partition)
        self._thread.post(Sought(partition=partition, fence=fence, offset=offset))
        self._report_released()

    def position(self, partition: TopicPartition, *, timeout: float | None = None) -> int:
        """The offset of the next record that `poll` will return."""
        self._check_open()
        partition = to_partition(partition)
        self._check_held([partition])
        self._deliveries.drain()
        known = self._handler.position(partition)
        if known is not None:
            return known
        found = self._ask(
            lambda ticket, deadline: PositionAsked(partition=partition, ticket=ticket, deadline_ms=deadline), timeout
        )
        # Data may have come meanwhile, and the background is ahead of it.
        self._deliveries.drain()
        known = self._handler.position(partition)
        return cast(int, found) if known is None else known

    def committed(
        self, partitions: Iterable[TopicPartition], timeout: float | None = None
    ) -> dict[TopicPartition, int | None]:
        """The group's committed offsets; `None` for a partition without one."""
        chosen = to_partitions(partitions)
        if not chosen:
            return {}
        found = self._ask(
            lambda ticket, deadline: CommittedAsked(partitions=chosen, ticket=ticket, deadline_ms=deadline), timeout
        )
        return dict(cast("Mapping[TopicPartition, int | None]", found))

    def beginning_offsets(
        self, partitions: Iterable[TopicPartition], timeout: float | None = None
    ) -> dict[TopicPartition, int]:
        """The first offset that each partition still has."""
        return self._ends(partitions, EARLIEST, timeout)

    def end_offsets(
        self, partitions: Iterable[TopicPartition], timeout: float | None = None
    ) -> dict[TopicPartition, int]:
        """The offset that the next record of each partition will get."""
        return self._ends(partitions, LATEST, timeout)

    def offsets_for_times(
        self, timestamps: Mapping[TopicPartition, int], timeout: float | None = None
    ) -> dict[TopicPartition, tuple[int, int] | None]:
        """Offset and timestamp of the first record not older than a timestamp (ms); `None` where there is none."""
        wanted = to_timestamps(timestamps)
        if not wanted:
            return {}
        found = self._ask(
            lambda ticket, deadline: OffsetsAsked(timestamps=wanted, ticket=ticket, deadline_ms=deadline),
            timeout,
        )
        return dict(cast("Mapping[TopicPartition, tuple[int, int] | None]", found))

    def partitions_for(self, topic: str, timeout: float | None = None) -> list[int]:
        """The partitions of a topic, ascending; none if there is no such topic."""
        topic = to_topic(topic, "partitions_for('orders')")
        found = self._ask(
            lambda ticket, deadline: PartitionsAsked(topic=topic, ticket=ticket, deadline_ms=deadline), timeout
        )
        return cast("list[int]", found)

    def _ends(
        self, partitions: Iterable[TopicPartition], which: int, timeout: float | None
    ) -> dict[TopicPartition, int]:
        found = self.offsets_for_times(dict.fromkeys(to_partitions(partitions), which), timeout)
        return {partition: 0 if offset is None else offset[0] for partition, offset in found.items()}

    def _check_held(self, partitions: Iterable[TopicPartition]) -> None:
        missing = [str(each) for each in partitions if each not in self._handler.assignment]
        if missing:
            raise StateError(f"{missing[0]} is not assigned to this consumer")
