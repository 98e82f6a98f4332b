"""The blocking door's calls about offsets.

Source: Kafka's consumer API.
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
    """The part of `Consumer` that commits and asks for offsets."""

    @abstractmethod
    def _run(self, steps: Steps[T]) -> T:
        """Carry out the steps of a call, waiting where they wait."""

    def commit(
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
        return self._run(self._commit_steps(offsets, message, asynchronous, timeout))

    def position(self, partition: TopicPartition, *, timeout: float | None = None) -> int:
        """Return the offset of the next record that `poll` will return."""
        return self._run(self._position_steps(partition, timeout))

    def lag(
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
        return self._run(self._lag_steps(partitions, timeout))

    def current_lag(self, partition: TopicPartition) -> int | None:
        """Return the lag of one partition, as `lag` does."""
        return self._run(self._lag_steps([partition], None))[to_partition(partition)]

    def watermarks(
        self, partition: TopicPartition, timeout: float | None = None, *, cached: bool = False
    ) -> tuple[int, int] | None:
        """Return the first offset that a partition still has, and the one that its next record will get.

        Args:
            partition: any; with `cached` one that is assigned.
            timeout: seconds.
            cached: answer as the last fetch has said, without asking; `None` before the first.
        """
        return self._run(self._watermark_steps(partition, timeout, cached))

    def get_watermark_offsets(
        self, partition: TopicPartition, timeout: float | None = None, cached: bool = False
    ) -> tuple[int, int] | None:
        """Return the `watermarks`, by the name that confluent-kafka gives the call."""
        return self.watermarks(partition, timeout, cached=cached)

    @overload
    def committed(
        self, partitions: TopicPartition, timeout: float | None = None, *, metadata: Literal[False] = False
    ) -> int | None: ...

    @overload
    def committed(
        self, partitions: TopicPartition, timeout: float | None = None, *, metadata: Literal[True]
    ) -> OffsetAndMetadata | None: ...

    @overload
    def committed(
        self, partitions: Iterable[TopicPartition], timeout: float | None = None, *, metadata: Literal[False] = False
    ) -> dict[TopicPartition, int | None]: ...

    @overload
    def committed(
        self, partitions: Iterable[TopicPartition], timeout: float | None = None, *, metadata: Literal[True]
    ) -> dict[TopicPartition, OffsetAndMetadata | None]: ...

    def committed(
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
        return self._run(self._committed_steps(partitions, timeout, metadata))

    def beginning_offsets(
        self, partitions: Iterable[TopicPartition], timeout: float | None = None
    ) -> dict[TopicPartition, int]:
        """Return the first offset that each partition still has."""
        return self._run(self._beginning_steps(partitions, timeout))

    def end_offsets(
        self, partitions: Iterable[TopicPartition], timeout: float | None = None
    ) -> dict[TopicPartition, int]:
        """Return the offset that the next record of each partition will get."""
        return self._run(self._end_steps(partitions, timeout))

    def offsets_for_times(
        self, timestamps: Mapping[TopicPartition, int], timeout: float | None = None
    ) -> dict[TopicPartition, tuple[int, int] | None]:
        """Return offset and timestamp of the first record not older than a timestamp (ms); `None`: none is."""
        return self._run(self._times_steps(timestamps, timeout))

    def partitions_for(self, topic: str, timeout: float | None = None) -> list[int]:
        """Return the partitions of a topic, ascending; none if there is no such topic."""
        return self._run(self._partitions_steps(topic, timeout))

    def list_topics(self, timeout: float | None = None) -> dict[str, list[int]]:
        """Return every topic with its partitions, both ascending; without the brokers' internal topics."""
        return self._run(self._topics_steps(timeout))

    def describe_topics(
        self, topics: Sequence[str] | str | None = None, timeout: float | None = None
    ) -> dict[str, ListedTopic]:
        """Return topics with their ids, as a broker knows them at this moment; asking creates none.

        Args:
            topics: names; `None` for every topic but the brokers' internal ones.
            timeout: seconds; default.api.timeout.ms if left out.

        Returns:
            By name; a topic that does not exist is left out.
        """
        return self._run(self._listed_steps(topics, timeout))

    def topics(self, timeout: float | None = None) -> set[str]:
        """Return the names of every topic."""
        return set(self._run(self._topics_steps(timeout)))
