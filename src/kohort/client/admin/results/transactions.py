"""What the admin client returns of transactions and of those who write to partitions."""

from __future__ import annotations

from dataclasses import dataclass

from kohort.ids import TopicPartition


@dataclass(frozen=True, slots=True, kw_only=True)
class ProducerDescription:
    """What a partition's leader remembers of one producer.

    `last_timestamp` is in milliseconds since 1970. `transaction_start_offset` is where its open transaction begins in
    this partition, `None` where it has none; what is behind it is held back from readers of committed records.
    """

    topic: str
    partition: int
    producer_id: int
    producer_epoch: int
    last_sequence: int
    last_timestamp: int
    coordinator_epoch: int
    transaction_start_offset: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class TransactionListing:
    """One transaction in a list; `state` is "Ongoing", "CompleteCommit", ..."""

    transactional_id: str
    producer_id: int
    state: str


@dataclass(frozen=True, slots=True, kw_only=True)
class TransactionDescription:
    """One transaction; `started_ms` is in milliseconds since 1970, `None` while it has written nothing.

    `partitions`: what it has written to; once it is being ended, those that have not heard of the end yet.
    """

    transactional_id: str
    state: str
    producer_id: int
    producer_epoch: int
    timeout_ms: int
    started_ms: int | None
    partitions: tuple[TopicPartition, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class FencedProducer:
    """The id and epoch that a transactional id has now: whoever had it before can write no more."""

    transactional_id: str
    producer_id: int
    producer_epoch: int
