"""What topics ask of the records in a batch, beyond its header: keys, times, and the codec in which it is stored.

A batch is unfolded only where its topic asks for that (`LogConfig.looks_inside`): one that is compacted takes no
records without key, one with `message.timestamp.before.max.ms` no older ones, and one with a `compression.type` stores
all batches by that codec.

Laws: header, records and their order stay what they were, but for the codec. What is unfolded is bounded, and looked at
in slices. One bad record refuses the whole set, and is named.
Source: Apache Kafka's LogValidator; KIP-467 (which records), KIP-937 (times), KIP-390 (levels).
"""

from __future__ import annotations

from typing import Final

from kohort.errors import CorruptRecordError, ErrorCode, Refused
from kohort.records.compression import codec_number, compress, decompress
from kohort.records.header import (
    COMPRESSION_MASK,
    HEADER_SIZE,
    LENGTH_OVERHEAD,
    BatchHeader,
    pack_header,
    seal,
)
from kohort.records.kernels import count_nulls
from kohort.records.layout import KEY_LENGTH, SPAN_WIDTH
from kohort.records.recordslices import RecordSlice, record_slices
from kohort.storage.files.fs import Buffer
from kohort.storage.partitions.validation import check_place, find_batches
from kohort.storage.topicconfig import LogConfig

#: What one batch may unfold to.
LIMIT_BYTES: Final = 64 << 20
#: Bad records that are named.
MOST_NAMED: Final = 100
#: A record without a time of its own may be as old as it likes.
_NO_TIME: Final = -1
_INT32_MAX: Final = (1 << 31) - 1
#: Later than any time.
_INT64: Final = 1 << 64


class RecordsRefused(Refused):
    """Some records of a set are not what the topic takes; `rows` has their places in the set, and what is wrong."""

    def __init__(self, code: ErrorCode, message: str, rows: list[tuple[int, str]]) -> None:
        super().__init__(code, message)
        self.rows = rows


def prepare(batches: Buffer, config: LogConfig, *, name: str, now_ms: int, limit_bytes: int = LIMIT_BYTES) -> Buffer:
    """The batches as the topic stores them.

    Args:
        name: topic and partition, for messages.
        limit_bytes: the most that one batch may unfold to.

    Returns:
        `batches` itself where nothing had to be changed.

    Raises:
        Refused: they are not to be stored; `CorruptRecordError` tells, too, that a batch unfolds to too much.
    """
    look = _Look(config, name, now_ms)
    view = memoryview(batches)
    parts: list[Buffer] = []
    for place in find_batches(batches):
        check_place(batches, place, max_message_bytes=config.max_message_bytes)
        position, header = place
        raw = view[position : position + header.size_bytes]
        body = memoryview(decompress(header.compression, raw[HEADER_SIZE:], limit_bytes=limit_bytes)).cast("B")
        look.at(body, header)
        parts.append(_recoded(raw, body, header, config))
    look.refuse()
    if sum(map(len, parts)) == len(view) and all(isinstance(part, memoryview) for part in parts):
        return batches
    return bytearray().join(parts)


def prepare_for_good(batches: Buffer, config: LogConfig, *, name: str, now_ms: int) -> Buffer:
    """As `prepare`; but what cannot be unfolded is refused."""
    try:
        return prepare(batches, config, name=name, now_ms=now_ms)
    except CorruptRecordError as why:
        raise Refused(ErrorCode.INVALID_RECORD, str(why)) from why


class _Look:
    """The records of a set, and which of them are refused."""

    def __init__(self, config: LogConfig, name: str, now_ms: int) -> None:
        self._needs_keys = config.is_compacted
        is_dated = not config.is_log_append_time
        self._earliest_ms = now_ms - config.timestamp_before_max_ms if is_dated else -_INT64
        self._latest_ms = now_ms + config.timestamp_after_max_ms if is_dated else _INT64
        self._name = name
        #: Records that were looked at.
        self._count = 0
        #: (place, what is wrong): at most `MOST_NAMED` of each kind.
        self._without_key: list[tuple[int, str]] = []
        self._untimely: list[tuple[int, str]] = []

    def at(self, body: memoryview, header: BatchHeader) -> None:
        end, previous = 0, header.base_offset - 1
        for part in record_slices(body, header):
            if part.offsets[0] <= previous:
                raise CorruptRecordError(f"the offsets of the batch at offset {header.base_offset} do not ascend")
            self._look(part)
            end, previous = part.end, part.offsets[-1]
        if end != len(body):
            raise CorruptRecordError(f"the batch at offset {header.base_offset} has bytes behind its last record")

    def _look(self, part: RecordSlice) -> None:
        count = len(part.offsets)
        if self._needs_keys and count_nulls(part.spans, SPAN_WIDTH, KEY_LENGTH, count):
            text = f"Compacted topic cannot accept message without key in topic partition {self._name}."
            lengths = part.spans[KEY_LENGTH::SPAN_WIDTH].tolist()
            self._note(self._without_key, [(at, text) for at, length in enumerate(lengths) if length < 0])
        if max(part.timestamps) > self._latest_ms or min(part.timestamps) < self._earliest_ms:
            allowed = f"The timestamp should be within [{self._earliest_ms}, {self._latest_ms}]."
            self._note(
                self._untimely,
                [
                    (at, f"Timestamp {time} of message with offset {self._count + at} is out of range. {allowed}")
                    for at, time in enumerate(part.timestamps)
                    if time != _NO_TIME and not self._earliest_ms <= time <= self._latest_ms
                ],
            )
        self._count += count

    def _note(self, rows: list[tuple[int, str]], found: list[tuple[int, str]]) -> None:
        rows += [(self._count + at, text) for at, text in found[: MOST_NAMED - len(rows)]]

    def refuse(self) -> None:
        """Raise what is wrong, if anything is."""
        if self._without_key:
            message = "One or more records have been rejected: a compacted topic takes none without a key"
            raise RecordsRefused(ErrorCode.INVALID_RECORD, message, self._without_key)
        if self._untimely:
            message = "One or more records have been rejected due to invalid timestamp"
            raise RecordsRefused(ErrorCode.INVALID_TIMESTAMP, message, self._untimely)


def _recoded(raw: memoryview, body: memoryview, header: BatchHeader, config: LogConfig) -> Buffer:
    """A batch by the topic's codec; itself if it is so already."""
    if config.compression_type in ("producer", header.compression):
        return raw
    codec = codec_number(config.compression_type)
    payload: Buffer = compress(config.compression_type, body, level=config.compression_level) if codec else body
    size = HEADER_SIZE + len(payload)
    if size > _INT32_MAX:
        raise Refused(ErrorCode.MESSAGE_TOO_LARGE, f"the batch has {size} bytes by the topic's compression.type")
    changed = header._replace(
        batch_length=size - LENGTH_OVERHEAD, attributes=header.attributes & ~COMPRESSION_MASK | codec
    )
    batch = bytearray(pack_header(changed))
    batch += payload
    seal(batch)
    return batch
