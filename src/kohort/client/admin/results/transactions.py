"""Descriptions of transactions and producers, and the requests for them."""

from __future__ import annotations

from collections.abc import Iterable

from kohort.base.values import from_row, or_none, value
from kohort.client.admin.results.cluster import by_topic
from kohort.ids import TopicPartition
from kohort.wire.messages.describe_producers import DescribeProducersRequest, PartitionResponse, TopicRequest
from kohort.wire.messages.describe_transactions import TransactionState
from kohort.wire.messages.write_txn_markers import WritableTxnMarker, WritableTxnMarkerTopic, WriteTxnMarkersRequest


@value
class ProducerDescription:
    """The state of one producer at the leader of a partition.

    `last_timestamp` is in milliseconds since 1970. `transaction_start_offset` is the first offset of its open
    transaction in this partition, `None` without one; consumers with read_committed get no record from there on.
    """

    topic: str
    partition: int
    producer_id: int
    producer_epoch: int
    last_sequence: int
    last_timestamp: int
    coordinator_epoch: int
    transaction_start_offset: int | None


@value
class TransactionListing:
    """One transaction of a list; `state` is "Ongoing", "CompleteCommit", ..."""

    transactional_id: str
    producer_id: int
    state: str


@value
class TransactionDescription:
    """One transaction; `started_ms` is in milliseconds since 1970, `None` before its first record.

    `partitions`: those that belong to it; while it is being committed or aborted, those whose marker is still missing.
    """

    transactional_id: str
    state: str
    producer_id: int
    producer_epoch: int
    timeout_ms: int
    started_ms: int | None
    partitions: tuple[TopicPartition, ...]

    @classmethod
    def of(cls, row: TransactionState) -> TransactionDescription:
        """Build the description of a transaction."""
        return from_row(
            cls,
            row,
            state=row.transaction_state,
            timeout_ms=row.transaction_timeout_ms,
            started_ms=or_none(row.transaction_start_time_ms),
            partitions=tuple(
                sorted(TopicPartition(topic.topic, number) for topic in row.topics for number in topic.partitions)
            ),
        )


@value
class FencedProducer:
    """The new producer id and epoch of a transactional id; its former producers can write no more."""

    transactional_id: str
    producer_id: int
    producer_epoch: int


def producers_request(partitions: Iterable[TopicPartition]) -> DescribeProducersRequest:
    """Ask one leader for the producers of its partitions."""
    topics = [TopicRequest(name=name, partition_indexes=numbers) for name, numbers in by_topic(partitions).items()]
    return DescribeProducersRequest(topics=topics)


def producers(partition: TopicPartition, row: PartitionResponse) -> tuple[ProducerDescription, ...]:
    """Describe the producers of a partition, by their ids."""
    return tuple(
        from_row(
            ProducerDescription,
            each,
            topic=partition.topic,
            partition=partition.partition,
            transaction_start_offset=or_none(each.current_txn_start_offset),
        )
        for each in sorted(row.active_producers, key=lambda each: each.producer_id)
    )


def abort_request(producer: ProducerDescription) -> WriteTxnMarkersRequest:
    """Build the request that ends the transaction that a producer has open in one partition.

    The epoch of the coordinator is that of its last marker there; without one it is 0, as in kafka-transactions.
    """
    marker = WritableTxnMarker(
        producer_id=producer.producer_id,
        producer_epoch=producer.producer_epoch,
        transaction_result=False,
        topics=[WritableTxnMarkerTopic(name=producer.topic, partition_indexes=[producer.partition])],
        coordinator_epoch=max(0, producer.coordinator_epoch),
    )
    return WriteTxnMarkersRequest(markers=[marker])
