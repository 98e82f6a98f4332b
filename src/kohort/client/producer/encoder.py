"""Building of records from the arguments of `send`: serialised, checked, measured.

Laws: a record that is built here fits into a batch and a request. Any other one is refused in the caller's thread,
where the traceback is useful: it would fail later, together with the records of other calls.
Source: Kafka's record format and protocol: text is UTF-8, a timestamp an int64 that is not negative; C9.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from time import time_ns
from typing import Any, Final

from kohort.client.arguments import INT32_MAX, INT64_MAX, encode, to_topic, whole_number
from kohort.client.producer.bulk_send import Bulk, Columns, ListColumns, ManyFuture
from kohort.client.producer.core.accumulator import BATCH_OVERHEAD_BYTES, RECORD_OVERHEAD_BYTES
from kohort.client.producer.record_future import DeliveryCall, Headers, RecordFuture
from kohort.errors import BrokerError, ConfigError, ErrorCode, MissingDependencyError, SerializationError
from kohort.records.batch import encode_headers
from kohort.records.build_kernels import first_unfit

#: Converts a key or a value to bytes, text or `None`.
Serializer = Callable[[Any], object]
_Headers = Iterable[tuple[str, Any]] | Mapping[str, Any] | None
_HEADERS_EXPECTED: Final = "pairs of a name and bytes are expected, like [('trace', b'1')]"


class RecordEncoder:
    """Builds records for one producer; may be shared by threads.

    Args:
        max_request_bytes: a larger record cannot be sent.
        piece_bytes: size of the pieces in which many records are handed over, so that the first are sent while the
            last wait for space in the buffer.
        key_serializer: `None` accepts bytes and text as they are.
        value_serializer: likewise for values.
    """

    def __init__(
        self,
        *,
        max_request_bytes: int,
        piece_bytes: int,
        key_serializer: Serializer | None,
        value_serializer: Serializer | None,
    ) -> None:
        self._max_request_bytes = max_request_bytes
        #: Bytes that a record may take.
        self.limit_bytes: Final = max_request_bytes - BATCH_OVERHEAD_BYTES
        self._piece_bytes = piece_bytes
        self._key_serializer = key_serializer
        self._value_serializer = value_serializer
        #: Names of topics that passed the check.
        self._checked_topics: set[str] = set()
        #: The same; empty if there is a serializer, so that no key or value is sent as it is.
        self.plain_topics = self._checked_topics if key_serializer is value_serializer is None else set()

    def rows(
        self, topic: str, values: object, *, keys: object, partition: int | None, timestamps: object, headers: _Headers
    ) -> list[Bulk]:
        """Build pieces of many records, in order; arguments and errors are those of `Producer.send_many`."""
        check_topic(topic)
        self._checked_topics.add(topic)
        number = None if partition is None else check_partition(partition)
        tail = encode_headers(to_headers(headers)) if headers else b"\x00"
        value_list = self._payloads(values, "values", topic, self._value_serializer)
        key_list = None if keys is None else self._payloads(keys, "keys", topic, self._key_serializer)
        times = to_times(timestamps)
        for what, column in (("keys", key_list), ("timestamps", times if isinstance(times, list) else None)):
            if column is not None and len(column) != len(value_list):
                raise ConfigError(
                    f"there are {len(value_list)} values and {len(column)} {what}: one for each is expected"
                )
        whole = ListColumns(
            len(value_list),
            key_list,
            value_list,
            times=times if isinstance(times, list) else None,
            time_ms=times if isinstance(times, int) else time_ns() // 1_000_000,
            tail=tail,
        )
        return self._pieces(topic, number, whole)

    def arrow_rows(self, data: object, topic: str | None, *, headers: _Headers) -> list[list[Bulk]]:
        """Build pieces of a table's rows, by topic; arguments and errors are those of `Producer.send_arrow`."""
        if topic is not None:
            check_topic(topic)
        try:
            from kohort.client.producer.span_columns import SpanColumns
            from kohort.columnar.payloads import payloads_of
            from kohort.records.span_kernels import first_longer
        except ImportError:
            raise MissingDependencyError("pyarrow", "arrow") from None
        found = []
        limit_bytes = self.limit_bytes - RECORD_OVERHEAD_BYTES
        now_ms = time_ns() // 1_000_000
        pairs = to_headers(headers) if headers else ()
        tail = encode_headers(pairs)
        for rows in payloads_of(data, topic, time_ms=now_ms, headers=pairs):
            check_topic(rows.topic)
            for what, column in (("value", rows.values), ("key", rows.keys)):
                row = -1 if column is None else first_longer(column, rows.row_count, limit_bytes)
                if column is not None and row >= 0:
                    raise self._too_large(what, row, column.length(row), rows.topic)
            whole = SpanColumns(
                rows.row_count,
                rows.keys,
                rows.values,
                times=rows.times,
                time_ms=now_ms,
                tails=rows.tails,
                tail=tail,
                partitions=rows.partitions,
            )
            found.append(self._pieces(rows.topic, None, whole))
        return found

    def _pieces(self, topic: str, partition: int | None, whole: Columns) -> list[Bulk]:
        # All pieces share one future.
        future = ManyFuture(topic, whole.count)
        pieces = []
        start = 0
        while start < whole.count:
            stop, size_bytes = whole.measure(None, start, whole.count, self._piece_bytes)
            pieces.append(Bulk(topic, partition, whole.part(start, stop), size_bytes, future))
            start = stop
        return pieces

    def _payloads(self, payloads: object, what: str, topic: str, serializer: Serializer | None) -> list[bytes | None]:
        column = to_column(payloads, what)
        if serializer is not None:
            column = [serialized(serializer, payload, topic, what[:-1]) for payload in column]
        unfit = first_unfit(column, self.limit_bytes - RECORD_OVERHEAD_BYTES)
        if unfit >= 0:
            # Text and other buffers than `bytes` are converted here; a value of any other type is refused with its
            # place.
            column = [to_bytes(payload, f"{what}[{place}]") for place, payload in enumerate(column)]
            unfit = first_unfit(column, self.limit_bytes - RECORD_OVERHEAD_BYTES)
        if unfit >= 0:
            raise self._too_large(what, unfit, len(column[unfit] or b""), topic)
        return column

    def _too_large(self, what: str, row: int, size: int, topic: str) -> BrokerError:
        text = f"{what}[{row}] of {size} bytes is above max.request.size ({self._max_request_bytes})"
        return BrokerError(ErrorCode.MESSAGE_TOO_LARGE, text, during=f"sending to {topic}")

    def record(
        self,
        topic: str,
        value: object,
        key: object,
        *,
        partition: int | None,
        timestamp_ms: int | None,
        headers: _Headers,
        on_delivery: DeliveryCall | None,
    ) -> RecordFuture:
        """Build one record; arguments and errors are those of `Producer.send`."""
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
            # Each of the two lengths takes five bytes at most.
            size += len(name.encode()) + len(content or b"") + 10
        if size > self.limit_bytes:
            text = f"a record of {size} bytes is above max.request.size ({self._max_request_bytes})"
            raise BrokerError(ErrorCode.MESSAGE_TOO_LARGE, text, during=f"sending to {topic}")
        now_ms = time_ns() // 1_000_000 if timestamp_ms is None else check_timestamp(timestamp_ms)
        record = RecordFuture.hidden(topic, key_bytes, value_bytes, now_ms, size)
        if partition is not None:
            record.partition = check_partition(partition)
        if pairs:
            record.headers = encode_headers(pairs)
        if on_delivery is not None:
            if not callable(on_delivery):
                raise TypeError(f"on_delivery cannot be {on_delivery!r}: a function of error and metadata is expected")
            record.tell(on_delivery)
        return record


def serialized(serializer: Serializer, payload: object, topic: str, what: str) -> object:
    """Call a serializer for a key or a value; its exception becomes a `SerializationError`."""
    try:
        return serializer(payload)
    except Exception as why:
        raise SerializationError(topic, what, repr(why)) from why


def check_topic(topic: object) -> None:
    """Check that a topic's name is text; whether the name is valid is for the broker to decide."""
    to_topic(topic, "send('orders', ...)")


def check_partition(partition: object) -> int:
    """Check a partition's number."""
    return whole_number(partition, "partition", "the number of a partition, 0 or above,", INT32_MAX)


def check_timestamp(timestamp_ms: object) -> int:
    """Check a timestamp, milliseconds since 1970."""
    return whole_number(timestamp_ms, "timestamp_ms", "a whole number of milliseconds since 1970", INT64_MAX)


def to_bytes(payload: object, what: str) -> bytes | None:
    """Encode a key, a value or the value of a header; text as UTF-8."""
    if payload is None or payload.__class__ is bytes:
        return payload
    if isinstance(payload, str):
        return encode(payload, what)
    if isinstance(payload, (bytes, bytearray, memoryview)):
        return bytes(payload)
    raise TypeError(f"{what} is a {type(payload).__name__}: bytes, text or None is expected; serialise it first")


def to_column(payloads: object, what: str) -> list[Any]:
    """Check keys or values of many records, a list."""
    if isinstance(payloads, (str, bytes, bytearray, memoryview, Mapping)) or not isinstance(payloads, Iterable):
        raise TypeError(f"{what} cannot be a {type(payloads).__name__}: a list is expected, like [b'a', b'b']")
    return list(payloads)


def to_times(timestamps: object) -> list[int] | int | None:
    """Check the timestamps of many records, or one for all."""
    if timestamps is None or hasattr(timestamps, "__index__"):
        return None if timestamps is None else check_timestamp(timestamps)
    return [check_timestamp(each) for each in to_column(timestamps, "timestamps")]


def to_headers(headers: object) -> Headers:
    """Check headers, pairs or a mapping, and encode their values."""
    if isinstance(headers, Mapping):
        headers = headers.items()
    if isinstance(headers, (str, bytes)) or not isinstance(headers, Iterable):
        raise TypeError(f"headers cannot be {headers!r}: {_HEADERS_EXPECTED}")
    pairs = []
    for pair in headers:
        if not isinstance(pair, (tuple, list)) or len(pair) != 2 or not isinstance(pair[0], str):
            raise TypeError(f"headers cannot hold {pair!r}: {_HEADERS_EXPECTED}")
        name, content = pair
        encode(name, "the name of a header")
        pairs.append((name, to_bytes(content, f"header {name}")))
    return tuple(pairs)
