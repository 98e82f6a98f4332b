"""Transactions and producers as the admin client asks for them and shows them."""

from __future__ import annotations

from collections.abc import Iterable

from kohort.client.admin.requests.cluster import by_topic
from kohort.client.admin.results.transactions import ProducerDescription, TransactionDescription
from kohort.ids import TopicPartition
from kohort.wire.messages.describe_producers import (
    DescribeProducersRequest,
    PartitionResponse,
    TopicRequest,
)
from kohort.wire.messages.describe_transactions import TransactionState
from kohort.wire.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
)


def producers_request(partitions: Iterable[TopicPartition]) -> DescribeProducersRequest:
    """Asks one leader for those who write to its partitions."""
    topics = [TopicRequest(name=name, partition_indexes=numbers) for name, numbers in by_topic(partitions).items()]
    return DescribeProducersRequest(topics=topics)


def producers(partition: TopicPartition, row: PartitionResponse) -> tuple[ProducerDescription, ...]:
    """Those who write to a partition, by their ids."""
    return tuple(
        ProducerDescription(
            topic=partition.topic,
            partition=partition.partition,
            producer_id=each.producer_id,
            producer_epoch=each.producer_epoch,
            last_sequence=each.last_sequence,
            last_timestamp=each.last_timestamp,
            coordinator_epoch=each.coordinator_epoch,
            transaction_start_offset=None if each.current_txn_start_offset < 0 else each.current_txn_start_offset,
        )
        for each in sorted(row.active_producers, key=lambda each: each.producer_id)
    )


def transaction(row: TransactionState) -> TransactionDescription:
    """One transaction."""
    return TransactionDescription(
        transactional_id=row.transactional_id,
        state=row.transaction_state,
        producer_id=row.producer_id,
        producer_epoch=row.producer_epoch,
        timeout_ms=row.transaction_timeout_ms,
        started_ms=None if row.transaction_start_time_ms < 0 else row.transaction_start_time_ms,
        partitions=tuple(
            sorted(TopicPartition(topic.topic, number) for topic in row.topics for number in topic.partitions)
        ),
    )


def abort_request(producer: ProducerDescription) -> WriteTxnMarkersRequest:
    """The end of the transaction that a producer has open in one partition.

    The epoch of the coordinator is that of its last marker there; who has none yet is taken for the first, as
    kafka-transactions does.
    """
    marker = WritableTxnMarker(
        producer_id=producer.producer_id,
        producer_epoch=producer.producer_epoch,
        transaction_result=False,
        topics=[WritableTxnMarkerTopic(name=producer.topic, partition_indexes=[producer.partition])],
        coordinator_epoch=max(0, producer.coordinator_epoch),
    )
    return WriteTxnMarkersRequest(markers=[marker])
