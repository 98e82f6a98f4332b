"""Record batches that no producer would send: refused in the protocol's words, or stored and readable.

Laws: what is stored has a right checksum and right offsets; each of its records can be read, by every form of the
readers. None takes 50 ms, as its calls tell, or 10 MiB, however its lengths lie.
"""

from __future__ import annotations

from functools import partial
from random import Random

import pytest

from kohort.errors import Refused
from kohort.records.batch import build_batch, iterate_records
from kohort.records.compression import CODEC_NAMES
from kohort.records.header import HEADER_SIZE, parse_header, seal
from kohort.records.scan import scan_batches
from kohort.storage.partitions.partition import PartitionLog
from kohort.testing.disks import MemoryFileSystem
from support.builders.fuzz import INPUTS, Bounds, Mutator
from support.builders.storage_logs import empty_log, sequenced
from support.depth import SEED

NOW_MS = 1_000_000
#: What a reader lets one batch unfold to; the broker looks into larger ones beside its loop.
LIMIT_BYTES = 1 << 20


def samples() -> list[bytes]:
    """Batches of each codec and shape."""
    plain = [(b"key %d" % number, b"value %d" % number, 1_000 + number, ()) for number in range(20)]
    headers = [(None, b"v", 1_000, (("name", b"x"), ("none", None)))] * 3
    holes = [(b"k", None, 1_000, ()), (None, None, 1_001, ()), (b"", b"", 999, ())]
    flat = [(None, bytes(50_000), 1_000, ())] * 4
    found = [build_batch(records, compression=codec) for codec in CODEC_NAMES for records in (plain, headers, holes)]
    found += [build_batch(flat, compression=codec) for codec in CODEC_NAMES if codec != "none"]
    found += [bytes(sequenced(0, 5)), bytes(sequenced(5, 5))]
    return found


def resealed(batch: bytes) -> bytes:
    """The same with lengths and checksum that fit, so that whoever reads goes on to what lies behind them."""
    if len(batch) < HEADER_SIZE:
        return batch
    data = bytearray(batch)
    data[8:12] = (len(data) - 12).to_bytes(4)
    data[16] = 2
    seal(data)
    return bytes(data)


class Intake:
    """Logs that take batches, each by rules of its own."""

    def __init__(self) -> None:
        self.stored = self.refused = 0
        self.renew()

    def renew(self) -> None:
        fs = MemoryFileSystem()
        self._logs: list[PartitionLog] = [
            empty_log(fs, "/plain-0"),
            empty_log(fs, "/keyed-0", is_compacted=True),
            empty_log(fs, "/packed-0", compression_type="lz4"),
        ]

    def take(self, batch: bytes) -> None:
        for log in self._logs:
            try:
                appended = log.append(batch, now_ms=NOW_MS)
            except Refused:
                self.refused += 1
                continue
            self.stored += 1
            if not appended.duplicate:
                self._read_back(log, appended.base_offset)
        if self._logs[0].size_bytes > 1 << 20:
            self.renew()

    @staticmethod
    def _read_back(log: PartitionLog, offset: int) -> None:
        """What was stored can be read, each offset once, and its header says its latest time."""
        stored = b"".join(log.read(offset, 1 << 22))
        header = parse_header(stored)
        assert header.base_offset == offset
        found = list(iterate_records(stored, limit_bytes=LIMIT_BYTES))
        assert [record.offset for record in found] == list(range(offset, log.log_end_offset))
        assert len(scan_batches(stored, start_offset=offset, max_batch_bytes=LIMIT_BYTES)) == len(found)
        assert header.max_timestamp == max([-1, *(record.timestamp for record in found)])


def test_no_batch_does_harm() -> None:
    random = Random(f"batches {SEED}")
    mutator, valid = Mutator(random), samples()
    intake, bounds = Intake(), Bounds()
    for each in valid:
        intake.take(each)
    assert intake.stored > len(valid), "most of what is changed below is taken as it is"
    for number in range(INPUTS):
        batch = mutator.changed(random.choice(valid), valid)
        if random.random() < 0.7:
            batch = resealed(batch)
        try:
            bounds.hold(partial(intake.take, batch))
        except Exception as why:
            pytest.fail(f"input {number}: {type(why).__name__}: {why}\n{batch.hex()}")
    print(f"{INPUTS} batches: {intake.stored} stored, {intake.refused} refused, {bounds}")
    assert intake.stored and intake.refused
