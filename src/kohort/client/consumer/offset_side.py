"""Committing, seeking and asking for offsets, as steps.

Laws: what only asks the background may be called from any thread; what looks at the application's positions may not.
Source: Kafka's consumer API.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import cast

from kohort.client.arguments import to_offset, to_offsets, to_partition, to_partitions, to_timestamps, to_topic
from kohort.client.consumer.core.exchange import (
    CommitAsked,
    CommittedAsked,
    OffsetsAsked,
    PartitionsAsked,
    PositionAsked,
    Sought,
)
from kohort.client.consumer.reading import ReadingSide
from kohort.client.consumer.steps import Steps
from kohort.client.offsets.queries import EARLIEST, LATEST
from kohort.client.records import OffsetAndMetadata
from kohort.errors import StateError
from kohort.ids import TopicPartition


class OffsetSide(ReadingSide):
    """The part of a consumer that deals with offsets."""

    def seek(self, partition: TopicPartition, offset: int) -> None:
        """Go on reading at that offset.

        Raises:
            StateError: the partition is not assigned.
        """
        partition, offset = to_partition(partition), to_offset(offset)
        is_taken = self._begin("seek")
        try:
            self._check_held([partition])
            fence = self._handler.seek(partition, offset)
            self._deliveries.forget_trouble(partition)
            self._host.post(Sought(partition=partition, fence=fence, offset=offset))
            self._report_released()
        finally:
            self._end(is_taken)

    def _commit_steps(self, offsets: Mapping[TopicPartition, int] | None, timeout: float) -> Steps[None]:
        self._check_open()
        if self._settings.group_id is None:
            raise StateError(
                "there is no group to commit for: create the consumer with group_id, or keep the offsets yourself"
            )
        chosen = self._own_positions() if offsets is None else to_offsets(offsets)
        if chosen:
            yield from self._ask_steps(
                lambda ticket, deadline: CommitAsked(offsets=chosen, ticket=ticket, deadline_ms=deadline), timeout
            )

    def _own_positions(self) -> dict[TopicPartition, int]:
        is_taken = self._begin("commit")
        try:
            return self._handler.positions()
        finally:
            self._end(is_taken)

    def _position_steps(self, partition: TopicPartition, timeout: float | None) -> Steps[int]:
        partition = to_partition(partition)
        known = self._known_position(partition)
        if known is not None:
            return known
        found = yield from self._ask_steps(
            lambda ticket, deadline: PositionAsked(partition=partition, ticket=ticket, deadline_ms=deadline), timeout
        )
        # Data may have come meanwhile, and the background is ahead of it.
        known = self._known_position(partition)
        return cast(int, found) if known is None else known

    def _known_position(self, partition: TopicPartition) -> int | None:
        is_taken = self._begin("position")
        try:
            self._check_held([partition])
            self._deliveries.drain()
            return self._handler.position(partition)
        finally:
            self._end(is_taken)

    def _committed_steps(
        self, partitions: Iterable[TopicPartition], timeout: float | None
    ) -> Steps[dict[TopicPartition, int | None]]:
        chosen = to_partitions(partitions)
        if not chosen:
            return {}
        found = yield from self._ask_steps(
            lambda ticket, deadline: CommittedAsked(partitions=chosen, ticket=ticket, deadline_ms=deadline), timeout
        )
        offsets = cast("Mapping[TopicPartition, OffsetAndMetadata | None]", found)
        return {each: None if entry is None else entry.offset for each, entry in offsets.items()}

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

    def _partitions_steps(self, topic: str, timeout: float | None) -> Steps[list[int]]:
        topic = to_topic(topic, "partitions_for('orders')")
        found = yield from self._ask_steps(
            lambda ticket, deadline: PartitionsAsked(topic=topic, ticket=ticket, deadline_ms=deadline), timeout
        )
        return cast("list[int]", found)
