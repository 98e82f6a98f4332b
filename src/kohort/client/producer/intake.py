"""From what an application sends to a record: serialised, checked, measured.

Laws: what comes out of here can be put into a batch and a request; everything else is refused in the caller's line.
Source: Kafka's record format; C9.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from time import time_ns
from typing import Any

from kohort.client.producer.core.accumulator import BATCH_OVERHEAD_BYTES, RECORD_OVERHEAD_BYTES
from kohort.client.producer.record_arguments import (
    check_partition,
    check_timestamp,
    check_topic,
    to_bytes,
    to_headers,
)
from kohort.client.producer.record_future import DeliveryCall, RecordFuture
from kohort.errors import BrokerError, ErrorCode, SerializationError
from kohort.records.build_kernels import new_plain_record

#: Makes bytes, text or `None` of a key or a value.
Serializer = Callable[[Any], object]


class Intake:
    """Makes records for one producer; may be shared by threads.

    Args:
        max_request_bytes: a record above that cannot be sent.
        key_serializer: `None` takes bytes and text as they are; likewise of values.
    """

    def __init__(
        self, *, max_request_bytes: int, key_serializer: Serializer | None, value_serializer: Serializer | None
    ) -> None:
        self._max_request_bytes = max_request_bytes
        self._limit_bytes = max_request_bytes - BATCH_OVERHEAD_BYTES
        #: Bytes are what is sent.
        self._is_plain = key_serializer is None and value_serializer is None
        self._key_serializer = key_serializer
        self._value_serializer = value_serializer
        #: Names that can be asked for.
        self._checked_topics: set[str] = set()

    def plain(self, topic: str, value: object, key: object) -> RecordFuture | None:
        """A record of bytes for a topic that is known; `None` for all that takes a closer look."""
        if not self._is_plain or topic.__class__ is not str or topic not in self._checked_topics:
            return None
        record: RecordFuture | None = new_plain_record(
            RecordFuture, topic, key, value, time_ns() // 1_000_000, RECORD_OVERHEAD_BYTES, self._limit_bytes
        )
        return record

    def record(
        self,
        topic: str,
        value: object,
        key: object,
        *,
        partition: int | None,
        timestamp_ms: int | None,
        headers: Iterable[tuple[str, Any]] | Mapping[str, Any] | None,
        on_delivery: DeliveryCall | None,
    ) -> RecordFuture:
        """One record; the arguments and errors are those of `Producer.send`."""
        if topic.__class__ is not str or topic not in self._checked_topics:
            check_topic(topic)
            self._checked_topics.add(topic)
        if self._key_serializer is not None:
            key = serialized(self._key_serializer, key, topic, "key")
        if self._value_serializer is not None:
            value = serialized(self._value_serializer, value, topic, "value")
        value_bytes, key_bytes = to_bytes(value, "value"), to_bytes(key, "key")
        size = RECORD_OVERHEAD_BYTES + len(key_bytes or b"") + len(value_bytes or b"")
        pairs = to_headers(headers) if headers else ()
        for name, content in pairs:
            size += len(name.encode()) + len(content or b"") + 10
        if size > self._limit_bytes:
            text = f"a record of {size} bytes is above max.request.size ({self._max_request_bytes})"
            raise BrokerError(ErrorCode.MESSAGE_TOO_LARGE, text, during=f"sending to {topic}")
        now_ms = time_ns() // 1_000_000 if timestamp_ms is None else check_timestamp(timestamp_ms)
        record = RecordFuture.hidden(topic, key_bytes, value_bytes, now_ms, size)
        if partition is not None:
            record.partition = check_partition(partition)
        if pairs:
            record.headers = pairs
        if on_delivery is not None:
            if not callable(on_delivery):
                raise TypeError(f"on_delivery cannot be {on_delivery!r}: a function of error and metadata is expected")
            record.tell(on_delivery)
        return record


def serialized(serializer: Serializer, payload: object, topic: str, what: str) -> object:
    """What a serializer makes of a key or a value."""
    try:
        return serializer(payload)
    except Exception as why:
        raise SerializationError(topic, what, repr(why)) from why
