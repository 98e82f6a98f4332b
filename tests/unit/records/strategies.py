"""What the tests of this room draw from: records, batches of them, and ways to damage a batch."""

from __future__ import annotations

from struct import pack_into

from crc32c import crc32c
from hypothesis import strategies as st

from kohort.records.header import CRC_START

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")

_TEXT = st.text(max_size=6)
_BYTES = st.one_of(st.none(), st.binary(max_size=20), st.integers(0, 400).map(lambda size: b"x" * size))
_HEADERS = st.one_of(st.just([]), st.lists(st.tuples(_TEXT, _BYTES), max_size=4))
#: Small steps as producers make them, and times that need many bytes.
_TIMES = st.one_of(st.integers(1_700_000_000_000, 1_700_000_000_300), st.integers(-1, 1 << 60))

RECORDS = st.lists(st.tuples(_BYTES, _BYTES, _TIMES, _HEADERS), min_size=1, max_size=12)
#: The same record many times over: what the numpy kernel takes in runs, and enough of them that it does.
RUNS = st.tuples(RECORDS, st.integers(8, 40)).map(lambda drawn: drawn[0] * 2 + drawn[0][:1] * drawn[1] + drawn[0])


def with_right_crc(batch: bytes | bytearray) -> bytes:
    """The batch as if its damage had been there before it was signed, so that it reaches the decoder."""
    fixed = bytearray(batch)
    pack_into(">I", fixed, 17, crc32c(bytes(fixed[CRC_START:])))
    return bytes(fixed)


def with_body(batch: bytes, body: bytes, *, count: int | None = None) -> bytes:
    """The header of a batch in front of other record bytes, with length, count and CRC to match."""
    made = bytearray(batch[:61] + body)
    pack_into(">i", made, 8, len(made) - 12)
    if count is not None:
        pack_into(">i", made, 23, max(count - 1, 0))
        pack_into(">i", made, 57, count)
    return with_right_crc(made)
