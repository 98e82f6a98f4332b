"""A producer's machine, its clock, and the brokers' side of its requests."""

from __future__ import annotations

from typing import Any

import pytest

from kohort.client.core.actions import Action, Endpoint, Send, Warn
from kohort.client.core.requests import DeadlineReached, Failure, RequestFailed, ResponseReceived
from kohort.client.options import PRODUCER_OPTIONS, client_settings
from kohort.client.producer.context import sender_settings
from kohort.client.producer.core.producer_events import RecordsSubmitted
from kohort.client.producer.core.producer_machine import ProducerMachine
from kohort.client.producer.core.submission_kernels import Submissions
from kohort.client.producer.record_future import RecordFuture
from kohort.errors import ErrorCode, KohortError
from kohort.records.batch import iterate_records
from kohort.records.header import parse_header
from kohort.wire.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from kohort.wire.messages.metadata import (
    MetadataRequest,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from kohort.wire.messages.produce import (
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceResponse,
)

BROKER = Endpoint("127.0.0.1", 9092)
TOPIC_ID = bytes(range(16))


class Dialogue:
    """A machine, its clock, and the requests that it has sent and that were not answered."""

    def __init__(
        self,
        *,
        linger_ms: int = 0,
        batch_bytes: int = 16_384,
        acks: int = -1,
        idempotent: bool = True,
        bootstrap: str = "127.0.0.1:9092",
        **options: object,
    ) -> None:
        given = {"bootstrap.servers": bootstrap, "retry.backoff.ms": 100, "acks": acks, "retries": 1_000}
        values = PRODUCER_OPTIONS.parse(PRODUCER_OPTIONS.gather(given, options))
        self.submissions = Submissions(wake_bytes=batch_bytes)
        self.released = 0
        #: Why a transaction has accepted no more records, each time.
        self.broken: list[KohortError] = []
        self.machine = ProducerMachine(
            client_settings(values),
            sender_settings(values),
            submissions=self.submissions,
            batch_bytes=batch_bytes,
            linger_ms=linger_ms,
            is_idempotent=idempotent,
            on_release=self._release,
            on_broken=self.broken.append,
        )
        self.now_ms = 1_000_000
        #: What metadata says of every partition.
        self.leaderless = False
        #: The finalized level of `transaction.version` at every broker.
        self.transaction_version = 0
        self.sent: list[Send] = []
        self.actions: list[Action] = []

    def _release(self, size: int) -> None:
        self.released += size

    def take(self, event: Any) -> None:
        for action in self.machine.handle(event, self.now_ms):
            self.actions.append(action)
            if isinstance(action, Send):
                self.sent.append(action)

    def advance(self, ms: int) -> None:
        """Time passes; every deadline on the way is reached."""
        until = self.now_ms + ms
        for _ in range(1000):
            deadline = self.machine.next_deadline()
            if deadline is None or deadline > until:
                break
            self.now_ms = max(self.now_ms, deadline)
            self.take(DeadlineReached())
        else:
            pytest.fail("the machine's deadline does not move")
        self.now_ms = until

    def submit(self, value: bytes, *, topic: str = "orders", partition: int | None = 0) -> RecordFuture:
        record = RecordFuture(topic, None, value, 5, len(value) + 24)
        record.partition = partition
        if self.submissions.append(record):
            self.take(RecordsSubmitted())
        return record

    def next(self, kind: type) -> Send:
        """The oldest unanswered request of that kind."""
        found = next(send for send in self.sent if isinstance(send.request, kind))
        self.sent.remove(found)
        return found

    def unanswered(self, kind: type) -> int:
        return sum(isinstance(send.request, kind) for send in self.sent)

    def answer(self, send: Send, message: Any) -> None:
        received = ResponseReceived(
            token=send.token, version=9, message=message, transaction_version=self.transaction_version
        )
        self.take(received)

    def fail(self, send: Send, failure: Failure) -> None:
        self.take(RequestFailed(token=send.token, failure=failure, detail="said the system"))

    def answer_metadata(self, *, partitions: int = 1, topic: str = "orders", error: ErrorCode = ErrorCode.NONE) -> None:
        rows = [
            MetadataResponsePartition(partition_index=number, leader_id=-1 if self.leaderless else 1, leader_epoch=0)
            for number in range(partitions)
        ]
        found = MetadataResponseTopic(error_code=int(error), name=topic, topic_id=TOPIC_ID, partitions=rows)
        if error is not ErrorCode.NONE:
            found = MetadataResponseTopic(error_code=int(error), name=topic)
        broker = MetadataResponseBroker(node_id=1, host=BROKER.host, port=BROKER.port)
        self.answer(self.next(MetadataRequest), MetadataResponse(brokers=[broker], topics=[found], controller_id=1))

    def answer_pending_metadata(self) -> None:
        """The cluster is as it was, whenever it is asked for."""
        while self.unanswered(MetadataRequest):
            self.answer_metadata(partitions=3)

    def answer_identity(self, producer_id: int = 7, epoch: int = 0) -> None:
        send = self.next(InitProducerIdRequest)
        self.answer(send, InitProducerIdResponse(producer_id=producer_id, producer_epoch=epoch))

    def ready(self) -> Dialogue:
        """Past metadata and identity."""
        self.submit(b"first")
        self.answer_metadata(partitions=3)
        self.answer_identity()
        self.answer_produce(self.next(ProduceRequest), offset=0)
        return self

    def answer_produce(self, send: Send, *, offset: int = 0, error: ErrorCode = ErrorCode.NONE) -> None:
        request = send.request
        assert isinstance(request, ProduceRequest)
        rows = [
            PartitionProduceResponse(index=data.index, error_code=int(error), base_offset=offset)
            for data in request.topic_data[0].partition_data
        ]
        self.answer(send, ProduceResponse(responses=[TopicProduceResponse(name="orders", partition_responses=rows)]))

    def warnings(self) -> list[str]:
        return [action.text for action in self.actions if isinstance(action, Warn)]


def sequence_of(send: Send) -> int:
    assert isinstance(send.request, ProduceRequest)
    return parse_header(send.request.topic_data[0].partition_data[0].records).base_sequence  # type: ignore[arg-type]


def values_of(send: Send) -> list[bytes | None]:
    assert isinstance(send.request, ProduceRequest)
    records = send.request.topic_data[0].partition_data[0].records
    return [record.value for record in iterate_records(records)]  # type: ignore[arg-type]
