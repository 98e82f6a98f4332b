"""A client of bytes: a blocking socket that asks a broker anything, well-formed or not."""

from __future__ import annotations

import socket
from struct import Struct
from types import TracebackType
from typing import Any

from kohort.records.batch import build_batch
from kohort.wire.codec import decode, encode
from kohort.wire.messages.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from kohort.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from kohort.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from kohort.wire.registry import (
    AnyApiKey,
    ApiKey,
    RequestHeader,
    ResponseHeader,
    request_class,
    request_header_version,
    response_class,
    response_header_version,
)
from kohort.wire.schema import fields_of
from support.waiting import PATIENCE_SECONDS

_SIZE = Struct(">i")


def encode_request(
    key: AnyApiKey, version: int, message: Any, *, correlation_id: int = 1, client_id: str = "raw"
) -> bytes:
    """A whole frame."""
    header = RequestHeader(
        request_api_key=key, request_api_version=version, correlation_id=correlation_id, client_id=client_id
    )
    body = encode(header, request_header_version(key, version)) + encode(message, version)
    return _SIZE.pack(len(body)) + body


class RawClient:
    """One connection."""

    def __init__(self, port: int, own_address: str = "127.0.0.1") -> None:
        self.socket = socket.create_connection(("127.0.0.1", port), PATIENCE_SECONDS, (own_address, 0))
        self._last = 0

    def __enter__(self) -> RawClient:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.socket.close()

    def send(self, key: ApiKey, version: int, message: Any) -> int:
        """Ask without waiting; the correlation id of the answer."""
        self._last += 1
        self.socket.sendall(encode_request(key, version, message, correlation_id=self._last))
        return self._last

    def receive_frame(self) -> bytes:
        """The next answer without its length; empty if the broker has closed the connection."""
        head = self._read(4)
        return self._read(_SIZE.unpack(head)[0]) if head else b""

    def receive(self, key: ApiKey, version: int) -> tuple[int, Any]:
        """(correlation id, answer) of the next answer."""
        frame = self.receive_frame()
        assert frame, "the broker closed the connection"
        return self.decoded(frame, key, version)

    @staticmethod
    def decoded(frame: bytes, key: ApiKey, version: int) -> tuple[int, Any]:
        """(correlation id, answer) of a frame."""
        header, position = decode(ResponseHeader, response_header_version(key, version), frame)
        message, end = decode(response_class(key), version, frame, position)
        assert end == len(frame), "the answer has bytes behind it"
        return header.correlation_id, message

    def ask(self, key: ApiKey, version: int, message: Any) -> Any:
        """Ask and wait for the answer."""
        correlation_id = self.send(key, version, message)
        answered, response = self.receive(key, version)
        assert answered == correlation_id
        return response

    def is_closed_by_broker(self) -> bool:
        """Whether the broker closes the connection without a further answer."""
        try:
            return self.socket.recv(1) == b""
        except ConnectionResetError:
            return True

    def _read(self, size: int) -> bytes:
        data = bytearray(size)
        have = 0
        while have < size:
            try:
                more = self.socket.recv_into(memoryview(data)[have:])
            except ConnectionResetError:
                more = 0
            if not more:
                assert not have, "the broker closed the connection in the middle of an answer"
                return b""
            have += more
        return bytes(data)

    # ---- what most tests need

    def create_topic(self, name: str, partitions: int = 1, **configs: str) -> bytes:
        """Create a topic; its id. `flush_messages="1"` stands for flush.messages."""
        rows = [CreatableTopicConfig(name=key.replace("_", "."), value=value) for key, value in configs.items()]
        topic = CreatableTopic(name=name, num_partitions=partitions, replication_factor=1, configs=rows)
        answer = self.ask(ApiKey.CREATE_TOPICS, 7, CreateTopicsRequest(topics=[topic]))
        assert answer.topics[0].error_code == 0, answer
        topic_id: bytes = answer.topics[0].topic_id
        return topic_id

    def produce(self, topic: str, *values: bytes, partition: int = 0, acks: int = -1) -> Any:
        """Append one batch of these values; the partition's answer."""
        answer = self.ask(ApiKey.PRODUCE, 9, produce_request(topic, batch_of(*values), partition=partition, acks=acks))
        return answer.responses[0].partition_responses[0]


def batch_of(*values: bytes) -> bytes:
    """One batch."""
    return build_batch([(None, value, 1_000, ()) for value in values])


def produce_request(topic: str, records: bytes | None, *, partition: int = 0, acks: int = -1) -> ProduceRequest:
    """One batch for one partition."""
    data = PartitionProduceData(index=partition, records=records)
    return ProduceRequest(
        acks=acks, timeout_ms=10_000, topic_data=[TopicProduceData(name=topic, partition_data=[data])]
    )


def fetch_request(
    topic: str,
    offset: int = 0,
    *,
    max_wait_ms: int = 0,
    min_bytes: int = 1,
    max_bytes: int = 1 << 20,
    session_epoch: int = -1,
    topic_id: bytes = bytes(16),
    partition: int = 0,
) -> FetchRequest:
    """One partition."""
    row = FetchPartition(partition=partition, fetch_offset=offset, partition_max_bytes=max_bytes)
    return FetchRequest(
        max_wait_ms=max_wait_ms,
        min_bytes=min_bytes,
        max_bytes=max_bytes,
        session_epoch=session_epoch,
        topics=[FetchTopic(topic=topic, topic_id=topic_id, partitions=[row])],
    )


def make(key: AnyApiKey, /, **values: Any) -> Any:
    """A request, of dictionaries and lists."""
    return _made(request_class(key), values)


def _made(cls: type[Any], values: dict[str, Any]) -> Any:
    known = {field.name: field for field in fields_of(cls)}
    filled = {}
    for name, value in values.items():
        element: Any = getattr(known[name].kind, "element", None)
        is_rows = isinstance(value, list) and value and isinstance(value[0], dict)
        filled[name] = [_made(element, each) for each in value] if is_rows else value
    return cls(**filled)
