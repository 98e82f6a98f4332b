"""A transactional producer whose requests a test sends one by one, in the older flow or in that of KIP-890."""

from __future__ import annotations

from typing import Any

from kohort.errors import ErrorCode
from kohort.records.batch import build_batch, iterate_records
from kohort.records.header import split_batches
from kohort.wire.registry import ApiKey
from support.dialogues.broker_wire import RawClient, fetch_request, make


class WireProducer:
    """Sends the requests of one transactional producer; each method returns the error and keeps the new epoch."""

    def __init__(self, client: RawClient, transactional_id: str = "x", *, flow: int = 2) -> None:
        self._client = client
        self.transactional_id = transactional_id
        self.flow = flow
        self.producer_id = self.epoch = -1
        #: The next sequence of each partition.
        self._sequences: dict[tuple[str, int], int] = {}

    @property
    def _named(self) -> dict[str, Any]:
        return {
            "transactional_id": self.transactional_id,
            "producer_id": self.producer_id,
            "producer_epoch": self.epoch,
        }

    def init(self, *, timeout_ms: int = 60_000, version: int = 5, **proof: int) -> int:
        request = make(
            ApiKey.INIT_PRODUCER_ID, transactional_id=self.transactional_id, transaction_timeout_ms=timeout_ms, **proof
        )
        answer = self._client.ask(ApiKey.INIT_PRODUCER_ID, version, request)
        if answer.error_code == ErrorCode.NONE:
            self._begin(answer.producer_id, answer.producer_epoch)
        return int(answer.error_code)

    def _begin(self, producer_id: int, epoch: int) -> None:
        if (producer_id, epoch) != (self.producer_id, self.epoch):
            self._sequences.clear()
        self.producer_id, self.epoch = producer_id, epoch

    def add(self, topic: str, *partitions: int, version: int = 3) -> int:
        former = {f"v3_and_below_{name}": value for name, value in self._named.items()}
        topics = [{"name": topic, "partitions": list(partitions)}]
        request = make(ApiKey.ADD_PARTITIONS_TO_TXN, v3_and_below_topics=topics, **former)
        answer = self._client.ask(ApiKey.ADD_PARTITIONS_TO_TXN, version, request)
        (rows,) = answer.results_by_topic_v3_and_below
        return max(int(row.partition_error_code) for row in rows.results_by_partition)

    def batch(self, topic: str, *values: bytes, partition: int = 0) -> bytes:
        """The next batch of a partition; it counts as sent."""
        sequence = self._sequences.get((topic, partition), 0)
        self._sequences[topic, partition] = sequence + len(values)
        return build_batch(
            [(None, value, 1_000, ()) for value in values],
            producer_id=self.producer_id,
            producer_epoch=self.epoch,
            base_sequence=sequence,
            is_transactional=True,
        )

    def send(self, topic: str, *values: bytes, partition: int = 0, version: int | None = None) -> int:
        """Send one batch; in the older flow its partition was added before."""
        return self.send_batch(topic, self.batch(topic, *values, partition=partition), partition, version)

    def send_batch(self, topic: str, batch: bytes, partition: int = 0, version: int | None = None) -> int:
        data = [{"index": partition, "records": batch}]
        request = make(
            ApiKey.PRODUCE, transactional_id=self.transactional_id, acks=-1, timeout_ms=10_000,
            topic_data=[{"name": topic, "partition_data": data}],
        )  # fmt: skip
        answer = self._client.ask(ApiKey.PRODUCE, version or (12 if self.flow == 2 else 10), request)
        return int(answer.responses[0].partition_responses[0].error_code)

    def add_offsets(self, group_id: str) -> int:
        request = make(ApiKey.ADD_OFFSETS_TO_TXN, group_id=group_id, **self._named)
        return int(self._client.ask(ApiKey.ADD_OFFSETS_TO_TXN, 3, request).error_code)

    def commit_offset(self, group_id: str, topic: str, offset: int, **consumer: Any) -> int:
        row = {"partition_index": 0, "committed_offset": offset, "committed_metadata": ""}
        request = make(
            ApiKey.TXN_OFFSET_COMMIT, group_id=group_id, topics=[{"name": topic, "partitions": [row]}],
            **self._named, **consumer,
        )  # fmt: skip
        answer = self._client.ask(ApiKey.TXN_OFFSET_COMMIT, 5 if self.flow == 2 else 3, request)
        return int(answer.topics[0].partitions[0].error_code)

    def end(self, *, commit: bool = True) -> int:
        version = 5 if self.flow == 2 else 3
        request = make(ApiKey.END_TXN, committed=commit, **self._named)
        answer = self._client.ask(ApiKey.END_TXN, version, request)
        if answer.error_code == ErrorCode.NONE and version == 5:
            self._begin(answer.producer_id, answer.producer_epoch)
        return int(answer.error_code)


def committed(
    client: RawClient, topic: str, offset: int = 0, *, max_wait_ms: int = 0, partition: int = 0
) -> list[bytes]:
    """The values that a reader of committed records sees from an offset on."""
    request = fetch_request(topic, offset, max_wait_ms=max_wait_ms, partition=partition)
    request.isolation_level = 1
    (row,) = client.ask(ApiKey.FETCH, 12, request).responses[0].partitions
    coming = sorted((each.first_offset, each.producer_id) for each in row.aborted_transactions or ())
    aborting: set[int] = set()
    found: list[bytes] = []
    view = memoryview(bytes(row.records or b""))
    for at, header in split_batches(view):
        while coming and coming[0][0] <= header.last_offset:
            aborting.add(coming.pop(0)[1])
        if header.is_control:
            aborting.discard(header.producer_id)
        elif not header.is_transactional or header.producer_id not in aborting:
            found += [record.value or b"" for record in iterate_records(view[at : at + header.size_bytes])]
    return found
