"""The application's deserializers, applied when a record is handed out.

Laws: a record whose key or value cannot be read is not handed out; those before it are. `None`, a missing key or a
tombstone, stays `None`.
Source: Kafka's key.deserializer and value.deserializer; KIP-334 for the content of the error.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from kohort.client.records import ConsumerRecord
from kohort.errors import DeserializationError
from kohort.ids import TopicPartition

#: Converts the bytes of a key or a value to an object of the application's.
Deserializer = Callable[[bytes], Any]


class Deserializing:
    """The two deserializers of a consumer; `None` leaves bytes as they are."""

    def __init__(self, key: Deserializer | None, value: Deserializer | None) -> None:
        self._key = key
        self._value = value

    def read(self, records: Sequence[ConsumerRecord]) -> tuple[list[ConsumerRecord], DeserializationError | None]:
        """Deserialize records up to the first that fails; return them, and the error."""
        done: list[ConsumerRecord] = []
        for record in records:
            try:
                done.append(self._read(record))
            except DeserializationError as why:
                return done, why
        return done, None

    def _read(self, record: ConsumerRecord) -> ConsumerRecord:
        topic, partition, offset, time, time_kind, key, value, headers, epoch = record
        if self._key is not None and key is not None:
            key = _applied(self._key, key, record, "key")
        if self._value is not None and value is not None:
            value = _applied(self._value, value, record, "value")
        # Not `_replace`, which takes longer than all the rest of this.
        return ConsumerRecord(topic, partition, offset, time, time_kind, key, value, headers, epoch)


def _applied(function: Deserializer, data: bytes, record: ConsumerRecord, what: str) -> Any:
    try:
        return function(data)
    except Exception as why:
        partition = TopicPartition(record.topic, record.partition)
        raise DeserializationError(partition, record.offset, what, repr(why)) from why
