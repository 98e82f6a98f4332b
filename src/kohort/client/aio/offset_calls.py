"""The asyncio door's calls about offsets.

Source: Kafka's consumer API; the work is in `OffsetSide`.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal, TypeVar, overload

from kohort.client.arguments import to_partition
from kohort.client.consumer.offset_side import Committing, OffsetSide
from kohort.client.records import ConsumerRecord, ListedTopic, OffsetAndMetadata
from kohort.client.steps import Steps
from kohort.ids import TopicPartition

T = TypeVar("T")


class OffsetCalls(OffsetSide):
    """The part of `Consumer` that commits and asks for offsets; see the methods of `kohort.Consumer`."""

    @abstractmethod
    async def _run(self, steps: Steps[T]) -> T:
        """Carry out the steps of a call, and await where they wait."""

    async def commit(
        self,
        offsets: Committing = None,
        *,
        message: ConsumerRecord | None = None,
        asynchronous: bool = False,
        timeout: float = 30.0,
    ) -> None:
        """Commit offsets, or those of all processed records, durably; do not wait if `asynchronous`."""
        return await self._run(self._commit_steps(offsets, message, asynchronous, timeout))

    async def position(self, partition: TopicPartition, *, timeout: float | None = None) -> int:
        """Return the offset of the next record that `poll` will return."""
        return await self._run(self._position_steps(partition, timeout))

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
        return await self._run(self._lag_steps(partitions, timeout))

    async def current_lag(self, partition: TopicPartition) -> int | None:
        """Return the lag of one partition, as `lag` does."""
        return (await self._run(self._lag_steps([partition], None)))[to_partition(partition)]

    async def watermarks(
        self, partition: TopicPartition, timeout: float | None = None, *, cached: bool = False
    ) -> tuple[int, int] | None:
        """Return the first offset that a partition still has, and the one that its next record will get.

        Args:
            partition: any; with `cached` one that is assigned.
            timeout: seconds.
            cached: answer as the last fetch has said, without asking; `None` before the first.
        """
        return await self._run(self._watermark_steps(partition, timeout, cached))

    async def get_watermark_offsets(
        self, partition: TopicPartition, timeout: float | None = None, cached: bool = False
    ) -> tuple[int, int] | None:
        """Return the `watermarks`, by the name that confluent-kafka gives the call."""
        return await self.watermarks(partition, timeout, cached=cached)

    @overload
    async def committed(
        self, partitions: TopicPartition, timeout: float | None = None, *, metadata: Literal[False] = False
    ) -> int | None: ...

    @overload
    async def committed(
        self, partitions: TopicPartition, timeout: float | None = None, *, metadata: Literal[True]
    ) -> OffsetAndMetadata | None: ...

    @overload
    async def committed(
        self, partitions: Iterable[TopicPartition], timeout: float | None = None, *, metadata: Literal[False] = False
    ) -> dict[TopicPartition, int | None]: ...

    @overload
    async def committed(
        self, partitions: Iterable[TopicPartition], timeout: float | None = None, *, metadata: Literal[True]
    ) -> dict[TopicPartition, OffsetAndMetadata | None]: ...

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
        return await self._run(self._committed_steps(partitions, timeout, metadata))

    async def beginning_offsets(
        self, partitions: Iterable[TopicPartition], timeout: float | None = None
    ) -> dict[TopicPartition, int]:
        """Return the first offset that each partition still has."""
        return await self._run(self._beginning_steps(partitions, timeout))

    async def end_offsets(
        self, partitions: Iterable[TopicPartition], timeout: float | None = None
    ) -> dict[TopicPartition, int]:
        """Return the offset that the next record of each partition will get."""
        return await self._run(self._end_steps(partitions, timeout))

    async def offsets_for_times(
        self, timestamps: Mapping[TopicPartition, int], timeout: float | None = None
    ) -> dict[TopicPartition, tuple[int, int] | None]:
        """Return offset and timestamp of the first record not older than a timestamp (ms); `None`: none is."""
        return await self._run(self._times_steps(timestamps, timeout))

    async def partitions_for(self, topic: str, timeout: float | None = None) -> list[int]:
        """Return the partitions of a topic, ascending; none if there is no such topic."""
        return await self._run(self._partitions_steps(topic, timeout))

    async def list_topics(self, timeout: float | None = None) -> dict[str, list[int]]:
        """Return every topic with its partitions, both ascending; without the brokers' internal topics."""
        return await self._run(self._topics_steps(timeout))

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
        return await self._run(self._listed_steps(topics, timeout))

    async def topics(self, timeout: float | None = None) -> set[str]:
        """Return the names of every topic."""
        return set(await self._run(self._topics_steps(timeout)))
