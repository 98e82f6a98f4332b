"""Helpers to write records, in plain Python: the compiled form has its own in `build_kernels.pxd`.

Laws: both write the same bytes.
Source: Apache Kafka's record format, magic 2 (KIP-98).
"""

from __future__ import annotations

from typing import Any, Final

__all__ = ("murmur", "new_hidden", "put_record", "show")

_M: Final = 0x5BD1E995
_SEED: Final = 0x9747B28C
_MASK: Final = 0xFFFFFFFF
#: Lengths, offsets and times below this are encoded once.
_KEPT_VARINTS: Final = 8192


class _Varints(dict[int, bytes]):
    """Number -> its zigzag varint (seven bits a byte, lowest first); frequent ones are kept."""

    def __missing__(self, value: int) -> bytes:
        rest = (value << 1) ^ (value >> 63)
        out = bytearray()
        while rest > 0x7F:
            out.append(rest & 0x7F | 0x80)
            rest >>= 7
        out.append(rest)
        encoded = bytes(out)
        if 0 <= value < _KEPT_VARINTS:
            self[value] = encoded
        return encoded


VARINTS: Final = _Varints()


def put_record(  # noqa: PLR0917
    out: bytearray, position: int, time: int, index: int, key: bytes | None, value: bytes | None, tail: bytes
) -> int:
    """Write one record at `position`; return the position after it."""
    varints = VARINTS
    size = b"\x00" + varints[time] + varints[index]
    pieces = (
        size,
        b"\x01" if key is None else varints[len(key)],
        key or b"",
        b"\x01" if value is None else varints[len(value)],
        value or b"",
        tail,
    )
    body = b"".join(pieces)
    length = varints[len(body)]
    end = position + len(length) + len(body)
    out[position:end] = length + body
    return end


def murmur(data: bytes) -> int:
    """Compute Kafka's variant of the 32-bit murmur hash, unsigned."""
    length = len(data)
    value = _SEED ^ length
    whole = length & ~3
    for start in range(0, whole, 4):
        word = int.from_bytes(data[start : start + 4], "little") * _M & _MASK
        word = (word ^ (word >> 24)) * _M & _MASK
        value = (value * _M & _MASK) ^ word
    if whole < length:
        value = (value ^ int.from_bytes(data[whole:], "little")) * _M & _MASK
    value = (value ^ (value >> 13)) * _M & _MASK
    return value ^ (value >> 15)


def new_hidden(kind: type) -> Any:
    """Make an object without `__init__`, hidden from the garbage collector if compiled."""
    return object.__new__(kind)


def show(_: object) -> None:
    """Let the garbage collector track an object from now on."""
