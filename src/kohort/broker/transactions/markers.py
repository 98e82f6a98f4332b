"""Markers: the control batches that end a transaction, written to each partition by its leader.

A partition of `__consumer_offsets` gets its marker from the coordinator of its groups, which settles the offsets of
the transaction with it. All brokers of a cluster of this package share their logs, so each marker is written here.

Laws: a marker is reported once it is as durable as its topic asks for. A partition that is gone, or whose producer has
a newer epoch, needs none. Markers of one transaction share syncs, as other appends do.
Source: KIP-98; Apache Kafka's TransactionMarkerChannelManager and WriteTxnMarkers.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, Final, NamedTuple

from kohort.base.clock import Clock
from kohort.broker.durability import Durability
from kohort.broker.groups.runtime import Runtime
from kohort.broker.topics.metadata import Cluster
from kohort.coordinator.commands import CompleteTransaction, Refusal
from kohort.errors import ErrorCode, Refused, StorageError
from kohort.ids import OFFSETS_TOPIC, TopicPartition
from kohort.records.batch import build_marker
from kohort.storage.partitions.partition import PartitionLog

#: Markers that are written in one turn of the loop.
MARKERS_AT_ONCE: Final = 100

#: Told the result for one partition.
OnResult = Callable[[ErrorCode], None]


class Marker(NamedTuple):
    """The end of one producer's transaction."""

    producer_id: int
    producer_epoch: int
    coordinator_epoch: int
    is_commit: bool
    #: Whether the transaction ended with a new epoch (KIP-890), which the marker has.
    is_bumped: bool


class MarkerWriter:
    """Writes markers to the partitions of this process's brokers."""

    def __init__(
        self,
        clock: Clock,
        cluster: Cluster,
        durability: Durability,
        groups: Runtime,
        *,
        is_led: Callable[[PartitionLog], bool],
    ) -> None:
        """Create the writer; `is_led` tells whether a broker that runs leads a partition."""
        self._clock: Final = clock
        self._cluster: Final = cluster
        self._durability: Final = durability
        self._groups: Final = groups
        self._is_led: Final = is_led

    def write(self, marker: Marker, place: TopicPartition, on_result: OnResult) -> None:
        """Write a marker to one partition, and report the result when the marker is durable.

        Results: NONE; UNKNOWN_TOPIC_OR_PARTITION; INVALID_PRODUCER_EPOCH, TRANSACTION_COORDINATOR_FENCED: a newer
        marker is there; NOT_LEADER_OR_FOLLOWER, KAFKA_STORAGE_ERROR: nothing was written, and it may be tried again.
        """
        topic, partition = place
        log = self._cluster.partition(self._cluster.topic(topic), partition)
        if log is None:
            on_result(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        elif log.offline or not self._is_led(log):
            on_result(ErrorCode.KAFKA_STORAGE_ERROR if log.offline else ErrorCode.NOT_LEADER_OR_FOLLOWER)
        elif topic == OFFSETS_TOPIC:
            self._settle_offsets(marker, partition, on_result)
        else:
            self._append(marker, log, on_result)

    def _append(self, marker: Marker, log: PartitionLog, on_result: OnResult) -> None:
        now_ms = self._clock.now_ms()
        try:
            log.producers.check_marker(
                producer_id=marker.producer_id,
                producer_epoch=marker.producer_epoch,
                coordinator_epoch=marker.coordinator_epoch,
                is_v2=marker.is_bumped,
            )
            batch = build_marker(
                producer_id=marker.producer_id,
                producer_epoch=marker.producer_epoch,
                is_commit=marker.is_commit,
                timestamp_ms=now_ms,
                coordinator_epoch=marker.coordinator_epoch,
            )
            self._durability.append(log, bytearray(batch), now_ms=now_ms, validate=False)
        except Refused as refused:
            on_result(refused.code)
        except StorageError as why:
            if why.fatal:
                raise
            on_result(ErrorCode.KAFKA_STORAGE_ERROR)
        else:
            self._durability.when_durable(log, partial(on_result, ErrorCode.NONE))

    def _settle_offsets(self, marker: Marker, index: int, on_result: OnResult) -> None:
        token = self._groups.next_token()
        command = CompleteTransaction(
            cause=token,
            request=token,
            producer_id=marker.producer_id,
            producer_epoch=marker.producer_epoch,
            is_commit=marker.is_commit,
            coordinator_epoch=marker.coordinator_epoch,
        )

        def take(reply: Any) -> None:
            code = reply.code if isinstance(reply, Refusal) else ErrorCode.NONE
            # Its log takes nothing at present, or the groups move to another broker.
            on_result(ErrorCode.KAFKA_STORAGE_ERROR if code is ErrorCode.NOT_COORDINATOR else code)

        self._groups.ask_shard(index, token, command, take)
