"""The codecs of record batches, with an upper bound on their uncompressed size.

Laws: no more than `limit_bytes` of output is ever allocated, whatever the input claims; every failure of a codec is
a `CorruptRecordError`. Kafka's Java client can read all that is written here.
Source: KIP-110 (zstd), KIP-57 (LZ4 framing); snappy-java's stream framing; RFC 8878 for zstd's frame header.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable
from functools import partial
from struct import Struct
from typing import Final

import cramjam

from kohort.errors import ConfigError, CorruptRecordError
from kohort.records.arrays import Allocate, blank
from kohort.records.header import CODEC_NAMES, Buffer

#: Bytes that one batch may decompress to by default.
DEFAULT_LIMIT_BYTES: Final = 128 * 1024 * 1024

_BIG_INT32: Final = Struct(">i")
_LITTLE_UINT32: Final = Struct("<I")

#: snappy-java's stream header: magic, version 1, compatible with version 1.
_XERIAL_MAGIC: Final = b"\x82SNAPPY\x00"
_XERIAL_HEADER: Final = _XERIAL_MAGIC + bytes((0, 0, 0, 1, 0, 0, 0, 1))
_XERIAL_BLOCK_BYTES: Final = 32 * 1024
#: The longest copy of snappy makes 64 bytes out of 3.
_SNAPPY_MAX_RATIO: Final = 22

_LZ4_MAGIC: Final = 0x184D2204
#: Version 1, independent blocks of at most 64 KiB, no checksums; the last byte is the header's own checksum.
#: Kafka's Java client refuses frames whose blocks depend on each other, which is what other encoders write.
_LZ4_HEADER: Final = bytes((0x04, 0x22, 0x4D, 0x18, 0x60, 0x40, 0x82))
_LZ4_BLOCK_BYTES: Final = 64 * 1024
_LZ4_STORED: Final = 0x8000_0000
LZ4_USUAL_LEVEL: Final = 9

_ZSTD_MAGIC: Final = 0xFD2FB528
_ZSTD_BLOCK_BYTES: Final = 128 * 1024
_ZSTD_LEVEL: Final = 3
#: The most blocks of a frame that are counted, since counting in Python is slow; with more its bound is the limit.
_MOST_BLOCKS: Final = 65_536
#: The same for a caller on an event loop.
_FEW_BLOCKS: Final = 64
_UNKNOWN_BOUND: Final = 1 << 62
#: A decoder must be ready for windows of 8 MiB (RFC 8878); a larger one must fit the caller's limit.
_ZSTD_FREE_WINDOW_BYTES: Final = 8 * 1024 * 1024


def codec_number(codec: str) -> int:
    """Return the number of a codec in a batch's attributes; `ConfigError` for a name that no codec has."""
    try:
        return CODEC_NAMES.index(codec)
    except ValueError:
        raise ConfigError(f"unknown compression {codec!r}; choose one of {', '.join(CODEC_NAMES)}") from None


def compress(codec: str, data: Buffer, *, level: int | None = None) -> bytes:
    """Compress data in the codec's form as Kafka's clients write it.

    `level`: of gzip 1 to 9, of lz4 1 to 17, of zstd up to 22; `None` means the usual one.
    """
    return _COMPRESSORS[codec_number(codec)](data, level)


def decompress(
    codec: str | int, data: Buffer, *, limit_bytes: int = DEFAULT_LIMIT_BYTES, allocate: Allocate = blank
) -> bytes | memoryview:
    """Undo `compress`; `none` gives back a view of the input.

    Args:
        codec: name, or number as in a batch's attributes.
        limit_bytes: the most that the output may be.
        allocate: makes the array that the output is written to.

    Raises:
        CorruptRecordError: the data is damaged or cut, or unfolds to more than `limit_bytes`.
    """
    number = codec_number(codec) if isinstance(codec, str) else codec
    if not 0 <= number < len(CODEC_NAMES):
        raise CorruptRecordError(f"a batch names compression {number}, which does not exist")
    view = memoryview(data).cast("B")
    try:
        return _DECOMPRESSORS[number](view, limit_bytes, allocate)
    except (cramjam.DecompressionError, zlib.error, ValueError, IndexError, OverflowError) as error:
        raise CorruptRecordError(f"a {CODEC_NAMES[number]} batch does not decompress: {error}") from error


def unfolds_to(codec: int, data: Buffer) -> int:
    """Return the most bytes that a batch can decompress to, by its frame alone; 0 if it is damaged.

    A frame of more than `_FEW_BLOCKS` blocks counts as unlimited, because counting them takes long as well.
    """
    view = memoryview(data).cast("B")
    try:
        return _BOUNDS[codec](view)
    except (CorruptRecordError, cramjam.DecompressionError, IndexError, ValueError, OverflowError):
        return 0


def _too_large(codec: str, limit_bytes: int) -> CorruptRecordError:
    return CorruptRecordError(f"a {codec} batch unfolds to more than the {limit_bytes} bytes that are allowed")


def _store(data: Buffer, _: int | None) -> bytes:
    return bytes(data)


def _load(data: memoryview, limit_bytes: int, _: Allocate) -> memoryview:
    if len(data) > limit_bytes:
        raise _too_large("none", limit_bytes)
    return data


def _gzip_compress(data: Buffer, level: int | None) -> bytes:
    compressor = zlib.compressobj(-1 if level is None else level, wbits=31)
    return compressor.compress(data) + compressor.flush()


def _gzip_decompress(data: memoryview, limit_bytes: int, _: Allocate) -> bytes:
    decompressor = zlib.decompressobj(wbits=31)
    # One byte more than allowed tells "exactly full" from "too much".
    out = decompressor.decompress(data, min(limit_bytes, _gzip_bound(data)) + 1)
    if len(out) > limit_bytes:
        raise _too_large("gzip", limit_bytes)
    if not decompressor.eof or decompressor.unused_data:
        raise CorruptRecordError("a gzip batch is cut, or has bytes behind its end")
    return out


def _gzip_bound(data: memoryview) -> int:
    """Return the uncompressed size, modulo 2^32, that a gzip member's last field claims."""
    # zlib checks the field against its output.
    return int.from_bytes(data[-4:], "little")


def _snappy_compress(data: Buffer, _: int | None) -> bytes:
    view = memoryview(data).cast("B")
    parts = [_XERIAL_HEADER]
    for start in range(0, len(view), _XERIAL_BLOCK_BYTES):
        block = bytes(cramjam.snappy.compress_raw(view[start : start + _XERIAL_BLOCK_BYTES]))
        parts.append(_BIG_INT32.pack(len(block)))
        parts.append(block)
    return b"".join(parts)


def _snappy_decompress(data: memoryview, limit_bytes: int, allocate: Allocate) -> memoryview:
    blocks = _snappy_blocks(data)
    sizes = []
    total = 0
    for block in blocks:
        size = int(cramjam.snappy.decompress_raw_len(block))
        if size > _SNAPPY_MAX_RATIO * len(block):
            raise CorruptRecordError(f"a snappy block of {len(block)} bytes claims to unfold to {size}")
        total += size
        if total > limit_bytes:
            raise _too_large("snappy", limit_bytes)
        sizes.append(size)
    out = allocate("B", total)
    position = 0
    for block, size in zip(blocks, sizes, strict=True):
        if size and cramjam.snappy.decompress_raw_into(block, out[position : position + size]) != size:
            raise CorruptRecordError("a snappy block is shorter than it claims")
        position += size
    return out


def _snappy_bound(data: memoryview) -> int:
    blocks = _snappy_blocks(data, most=_FEW_BLOCKS)
    if len(blocks) > _FEW_BLOCKS:
        return _UNKNOWN_BOUND
    return sum(int(cramjam.snappy.decompress_raw_len(block)) for block in blocks)


def _snappy_blocks(data: memoryview, *, most: int = _UNKNOWN_BOUND) -> list[memoryview]:
    """Return snappy-java's blocks, each with its length in front; at most one more than `most`."""
    if bytes(data[: len(_XERIAL_MAGIC)]) != _XERIAL_MAGIC:
        return [data]
    blocks: list[memoryview] = []
    position = len(_XERIAL_HEADER)
    if len(data) < position:
        raise CorruptRecordError("a snappy batch ends within its header")
    while position < len(data) and len(blocks) <= most:
        if len(data) - position < 4:
            raise CorruptRecordError("a snappy batch ends within the length of a block")
        (size,) = _BIG_INT32.unpack_from(data, position)
        position += 4
        if not 0 < size <= len(data) - position:
            raise CorruptRecordError(f"a snappy batch claims a block of {size} bytes")
        blocks.append(data[position : position + size])
        position += size
    return blocks


def _lz4_compress(data: Buffer, level: int | None) -> bytes:
    view = memoryview(data).cast("B")
    parts = [_LZ4_HEADER]
    for start in range(0, len(view), _LZ4_BLOCK_BYTES):
        plain = view[start : start + _LZ4_BLOCK_BYTES]
        block = _lz4_block(plain, level)
        if len(block) < len(plain):
            parts += (_LITTLE_UINT32.pack(len(block)), block)
        else:
            parts += (_LITTLE_UINT32.pack(len(plain) | _LZ4_STORED), bytes(plain))
    parts.append(bytes(4))
    return b"".join(parts)


def _lz4_block(plain: memoryview, level: int | None) -> bytes:
    # As in Kafka's Java client: the usual level is the fast way, every other one the thorough way.
    if level is None or level == LZ4_USUAL_LEVEL:
        return bytes(cramjam.lz4.compress_block(plain, store_size=False))
    # Only whole frames are given levels; so little is one block in its frame, right behind the header.
    frame = memoryview(cramjam.lz4.compress(plain, level=level))
    (size,) = _LITTLE_UINT32.unpack_from(frame, len(_LZ4_HEADER))
    start = len(_LZ4_HEADER) + 4
    return bytes(frame[start : start + (size & ~_LZ4_STORED)])


def _lz4_decompress(data: memoryview, limit_bytes: int, allocate: Allocate) -> memoryview:
    return _into_bounded("lz4", cramjam.lz4.decompress_into, data, (_lz4_bound(data), limit_bytes), allocate)


def _lz4_bound(data: memoryview, *, most: int = _MOST_BLOCKS) -> int:
    """Return the most bytes that an lz4 frame can give, from the sizes of its blocks."""
    if len(data) < len(_LZ4_HEADER) or _LITTLE_UINT32.unpack_from(data, 0)[0] != _LZ4_MAGIC:
        raise CorruptRecordError("an lz4 batch does not begin with a frame")
    flags, block_code = data[4], data[5] >> 4 & 0x07
    if block_code < 4:
        raise CorruptRecordError(f"an lz4 batch names block size {block_code}, which does not exist")
    block_limit = 1 << (8 + 2 * block_code)
    block_checksum = 4 if flags & 0x10 else 0
    position = 7 + (8 if flags & 0x08 else 0) + (4 if flags & 0x01 else 0)
    bound = 0
    for _ in range(most):
        if len(data) - position < 4:
            raise CorruptRecordError("an lz4 batch is cut")
        size = _LITTLE_UINT32.unpack_from(data, position)[0] & ~_LZ4_STORED
        position += 4
        if size == 0:
            break
        # No sequence of LZ4 makes more than 255 bytes out of one.
        bound += min(block_limit, 255 * size)
        position += size + block_checksum
    else:
        return _UNKNOWN_BOUND
    if len(data) - position != (4 if flags & 0x04 else 0):
        raise CorruptRecordError("an lz4 batch is cut, or has bytes behind its end")
    return bound


def _zstd_compress(data: Buffer, level: int | None) -> bytes:
    return bytes(cramjam.zstd.compress(data, level=_ZSTD_LEVEL if level is None else level))


def _zstd_decompress(data: memoryview, limit_bytes: int, allocate: Allocate) -> memoryview:
    return _into_bounded(
        "zstd", cramjam.zstd.decompress_into, data, (_zstd_bound(data, limit_bytes), limit_bytes), allocate
    )


def _zstd_bound(data: memoryview, limit_bytes: int, *, most: int = _MOST_BLOCKS) -> int:
    """Return the most bytes that a zstd frame can give: its declared size, or its blocks' limit."""
    if len(data) < 6 or _LITTLE_UINT32.unpack_from(data, 0)[0] != _ZSTD_MAGIC:
        raise CorruptRecordError("a zstd batch does not begin with a frame")
    descriptor = data[4]
    single_segment = bool(descriptor & 0x20)
    size_bytes = (1 if single_segment else 0, 2, 4, 8)[descriptor >> 6]
    position = 5
    if not single_segment:
        exponent, mantissa = data[position] >> 3, data[position] & 0x07
        window = (1 << (10 + exponent)) * (8 + mantissa) // 8
        if window > max(limit_bytes, _ZSTD_FREE_WINDOW_BYTES):
            raise CorruptRecordError(f"a zstd batch asks for a window of {window} bytes")
        position += 1
    position += (0, 1, 2, 4)[descriptor & 0x03]
    declared = None
    if size_bytes:
        if len(data) - position < size_bytes:
            raise CorruptRecordError("a zstd batch ends within its header")
        declared = int.from_bytes(data[position : position + size_bytes], "little") + (256 if size_bytes == 2 else 0)
        position += size_bytes
    bound = _zstd_blocks_bound(data, position, checksum=bool(descriptor & 0x04), most=most)
    return bound if declared is None else min(bound, declared)


def _zstd_blocks_bound(data: memoryview, position: int, *, checksum: bool, most: int) -> int:
    bound = 0
    for _ in range(most):
        if len(data) - position < 3:
            raise CorruptRecordError("a zstd batch is cut")
        block = data[position] | data[position + 1] << 8 | data[position + 2] << 16
        kind, size = block >> 1 & 0x03, block >> 3
        # Raw and run-length blocks name their output; a compressed one is bounded by the format.
        bound += min(size, _ZSTD_BLOCK_BYTES) if kind < 2 else _ZSTD_BLOCK_BYTES
        position += 3 + (1 if kind == 1 else size)
        if block & 1:
            break
    else:
        return _UNKNOWN_BOUND
    if len(data) - position != (4 if checksum else 0):
        raise CorruptRecordError("a zstd batch is cut, or has bytes behind its end")
    return bound


def _into_bounded(
    codec: str,
    decompress_into: Callable[[memoryview, memoryview], int],
    data: memoryview,
    bounds: tuple[int, int],
    allocate: Allocate,
) -> memoryview:
    """Decompress into an array of the smaller of two sizes, the frame's bound and the caller's limit."""
    bound_bytes, limit_bytes = bounds
    out = allocate("B", min(bounds))
    try:
        written = int(decompress_into(data, out))
    except cramjam.DecompressionError:
        if bound_bytes > limit_bytes:
            raise CorruptRecordError(
                f"a {codec} batch is damaged, or unfolds to more than the {limit_bytes} bytes that are allowed"
            ) from None
        raise
    return out[:written]


_COMPRESSORS: Final[tuple[Callable[[Buffer, int | None], bytes], ...]] = (
    _store,
    _gzip_compress,
    _snappy_compress,
    _lz4_compress,
    _zstd_compress,
)
_DECOMPRESSORS: Final[tuple[Callable[[memoryview, int, Allocate], bytes | memoryview], ...]] = (
    _load,
    _gzip_decompress,
    _snappy_decompress,
    _lz4_decompress,
    _zstd_decompress,
)
_BOUNDS: Final[tuple[Callable[[memoryview], int], ...]] = (
    len,
    _gzip_bound,
    _snappy_bound,
    partial(_lz4_bound, most=_FEW_BLOCKS),
    partial(_zstd_bound, limit_bytes=DEFAULT_LIMIT_BYTES, most=_FEW_BLOCKS),
)
