"""Topics and records for the benches, made over the raw connection so that both brokers get the same."""

from __future__ import annotations

import time
from collections.abc import Callable
from random import Random
from typing import Protocol

from kohort.records.batch import build_batch
from kohort.wire.messages.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from kohort.wire.messages.delete_topics import DeleteTopicsRequest
from kohort.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from kohort.wire.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from kohort.wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from kohort.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from kohort.wire.registry import ApiKey
from load import RawConnection, frame
from readiness import until

PAGE_CACHE = str(2**63 - 1)


class Server(Protocol):
    """What a bench needs to know of a broker."""

    name: str
    port: int

    @property
    def bootstrap_servers(self) -> str: ...


def pause_for(partitions: int) -> float:
    """Between two questions about so many, s: the asking is not to keep the broker from getting ready."""
    return max(0.01, partitions / 5_000)


def create_topic(connection: RawConnection, name: str, partitions: int, configs: dict[str, str] | None = None) -> None:
    """Create it and wait until its leaders are known."""
    topic = CreatableTopic(
        name=name,
        num_partitions=partitions,
        replication_factor=1,
        configs=[CreatableTopicConfig(name=key, value=value) for key, value in (configs or {}).items()],
    )
    answer = connection.ask(ApiKey.CREATE_TOPICS, 5, CreateTopicsRequest(topics=[topic], timeout_ms=30_000))
    assert answer.topics[0].error_code == 0, answer.topics[0]
    request = MetadataRequest(topics=[MetadataRequestTopic(name=name)], allow_auto_topic_creation=False)

    def is_known() -> bool:
        found = connection.ask(ApiKey.METADATA, 9, request).topics[0]
        return len(found.partitions) == partitions and all(row.leader_id >= 0 for row in found.partitions)

    until(is_known, f"topic {name} is ready", seconds=300, pause=pause_for(partitions))


def create_writable_topic(
    connection: RawConnection, name: str, partitions: int, configs: dict[str, str] | None = None
) -> None:
    """Create it and wait until each partition can be written: Apache Kafka names leaders before they know of it."""
    create_topic(connection, name, partitions, configs)
    ends = [ListOffsetsPartition(partition_index=number, timestamp=-1) for number in range(partitions)]
    request = ListOffsetsRequest(replica_id=-1, topics=[ListOffsetsTopic(name=name, partitions=ends)])

    def are_known() -> bool:
        answer = connection.ask(ApiKey.LIST_OFFSETS, 4, request)
        return all(row.error_code == 0 for row in answer.topics[0].partitions)

    until(are_known, "the leaders of a new topic know of it", seconds=300, pause=pause_for(partitions))


def delete_topic(connection: RawConnection, name: str) -> None:
    """Delete it with its data."""
    request = DeleteTopicsRequest(topic_names=[name], timeout_ms=30_000)
    answer = connection.ask(ApiKey.DELETE_TOPICS, 5, request)
    assert answer.responses[0].error_code == 0, answer


def batch_of(records: int, value: bytes, key: bytes | None = None, *, compression: str = "none") -> bytes:
    """A ready-made batch; every record carries the same bytes, or in a compressed one as many hexadecimal digits."""
    now_ms = int(time.time() * 1000)
    if compression == "none":
        return build_batch([(key, value, now_ms, ())] * records)
    digits = Random(7)
    values = [digits.randbytes(len(value)).hex()[: len(value)].encode() for _ in range(records)]
    return build_batch([(key, each, now_ms, ()) for each in values], compression=compression)


def produce_request(topic: str, partition: int, batch: bytes) -> ProduceRequest:
    """acks=all, one partition."""
    data = [TopicProduceData(name=topic, partition_data=[PartitionProduceData(index=partition, records=batch)])]
    return ProduceRequest(acks=-1, timeout_ms=30_000, topic_data=data)


def fetch_request(topic: str, partition: int, offset: int, max_bytes: int) -> FetchRequest:
    """As a plain consumer asks, without a session."""
    where = FetchPartition(partition=partition, fetch_offset=offset, partition_max_bytes=max_bytes)
    return FetchRequest(
        replica_id=-1,
        max_wait_ms=500,
        min_bytes=1,
        max_bytes=max_bytes,
        session_epoch=-1,
        topics=[FetchTopic(topic=topic, partitions=[where])],
    )


def fill(
    server: Server,
    topic: str,
    *,
    partitions: int,
    records: int,
    value: bytes,
    key: bytes | None = None,
    compression: str = "none",
) -> None:
    """Create `topic` and write `records` into it, evenly over its partitions, batches of about 1 MB."""
    fill_batches(
        server,
        topic,
        lambda count: batch_of(count, value, key, compression=compression),
        per_batch=max(1, 900_000 // (len(value) + len(key or b"") + 12)),
        partitions=partitions,
        records=records,
    )


def fill_batches(
    server: Server, topic: str, build: Callable[[int], bytes], *, per_batch: int, partitions: int, records: int
) -> None:
    """Create `topic` and write `records` into it, evenly over its partitions.

    Args:
        build: makes a batch of so many records; it is written again and again.
        per_batch: records.
    """
    connection = RawConnection(server.port)
    create_writable_topic(connection, topic, partitions, {"flush.messages": PAGE_CACHE})
    batches = {count: build(count) for count in (per_batch, records // partitions % per_batch) if count}
    frames = []
    for partition in range(partitions):
        whole, rest = divmod(records // partitions, per_batch)
        frames += [frame(ApiKey.PRODUCE, 8, produce_request(topic, partition, batches[per_batch]))] * whole
        if rest:
            frames.append(frame(ApiKey.PRODUCE, 8, produce_request(topic, partition, batches[rest])))
    connection.run(frames, in_flight=3)
    # A broker refuses a batch that is too large, and a bench would read what is left in no time.
    assert count_records(connection, topic, partitions) == records // partitions * partitions, f"{topic} is not full"
    connection.close()


def count_records(connection: RawConnection, topic: str, partitions: int) -> int:
    """Of a topic into which records were only written."""
    ends = [ListOffsetsPartition(partition_index=number, timestamp=-1) for number in range(partitions)]
    request = ListOffsetsRequest(replica_id=-1, topics=[ListOffsetsTopic(name=topic, partitions=ends)])
    return sum(row.offset for row in connection.ask(ApiKey.LIST_OFFSETS, 4, request).topics[0].partitions)
