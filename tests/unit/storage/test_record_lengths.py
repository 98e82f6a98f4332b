"""Records whose lengths lead out of their batch are refused although the checksum is right."""

from __future__ import annotations

import struct
from types import ModuleType

import pytest

from kohort.errors import ErrorCode, Refused
from kohort.records import kernels
from kohort.records.batch import build_batch
from kohort.records.checksum import crc32c
from kohort.records.choice import plain_kernels
from kohort.records.header import CRC_START, HEADER_SIZE
from kohort.storage.store import Store


def batch_with(position: int, byte: int) -> bytes:
    """Two records, one byte of theirs changed, the checksum made right again."""
    batch = bytearray(build_batch([(None, b"first", 1, ()), (None, b"second", 1, ())]))
    batch[HEADER_SIZE + position] = byte
    struct.pack_into(">I", batch, CRC_START - 4, crc32c(bytes(batch[CRC_START:])))
    return bytes(batch)


@pytest.mark.parametrize(
    "byte",
    [0x00, 0x01, 0x7E, 0xFF],
    ids=["too short: the second record begins in the first", "negative", "beyond the batch", "a number without an end"],
)
def test_impossible_record_length_stores_nothing(byte: int) -> None:
    """Bad input: CORRUPT_MESSAGE, and the log is as it was."""
    store = Store.in_memory()
    log = store.create_topic("orders", 1, topic_id=bytes(range(16)), configs={}).partitions[0]
    with pytest.raises(Refused) as refused:
        log.append(batch_with(0, byte), now_ms=1)
    assert refused.value.code is ErrorCode.CORRUPT_MESSAGE
    assert log.log_end_offset == 0


@pytest.mark.parametrize("module", [kernels, plain_kernels()], ids=["imported", "plain"])
def test_walk_ends_where_the_batch_does(module: ModuleType) -> None:
    """One record more or less than there are is told, and where the fault begins."""
    batch = build_batch([(b"key", b"x" * 200, 1, (("h", b"v"),))] * 50)
    end = len(batch)
    assert module.walk_records(batch, HEADER_SIZE, end, 50) == end
    assert module.walk_records(batch, HEADER_SIZE, end, 51) == -1 - end
    assert module.walk_records(batch, HEADER_SIZE, end, 49) < 0
    assert module.walk_records(batch, HEADER_SIZE, end - 1, 50) < 0
    assert module.walk_records(b"", 0, 0, 1) == -1
