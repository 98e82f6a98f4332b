"""A second encoder of wire messages: slow, walks the declaration value by value, shares no code with the compiled one.

What it writes follows KIP-482 and the protocol guide directly; the compiled codec is compared with it.
"""

from __future__ import annotations

import struct
from typing import Any

from kohort.wire.schema import Array, Field, Kind, Message, Scalar, fields_of, schema_of


def reference_encode(message: Message, version: int) -> bytes:
    """The bytes of a message whose values are all valid."""
    return _struct(message, version, schema_of(type(message)).is_flexible(version))


def uvarint(value: int) -> bytes:
    """Seven bits a byte, lowest first, the top bit says that more follow."""
    if value < 128:
        return bytes([value])
    return bytes([value % 128 + 128]) + uvarint(value // 128)


def _struct(message: Any, version: int, flexible: bool) -> bytes:
    out, tags = b"", dict(message.unknown_tags or {})
    for each in fields_of(type(message)):
        if not each.is_in(version):
            continue
        value = getattr(message, each.name)
        if not each.is_tagged(version):
            out += _field(each, value, version, flexible and each.compact)
        elif flexible and value != each.make_default():
            tags[each.tag] = _field(each, value, version, flexible)
    if flexible:
        out += uvarint(len(tags))
        for tag, raw in sorted(tags.items()):
            out += uvarint(tag) + uvarint(len(raw)) + raw
    return out


def _field(each: Field, value: Any, version: int, flexible: bool) -> bytes:
    if isinstance(each.kind, type) and each.is_nullable(version):
        return b"\xff" if value is None else b"\x01" + _struct(value, version, flexible)
    return _value(each.kind, value, version, flexible)


def _value(kind: Kind, value: Any, version: int, flexible: bool) -> bytes:
    if isinstance(kind, Array):
        if value is None:
            return _length(-1, 4, flexible)
        return _length(len(value), 4, flexible) + b"".join(
            _value(kind.element, each, version, flexible) for each in value
        )
    if not isinstance(kind, Scalar):
        return _struct(value, version, flexible)
    size = 2 if kind.name == "string" else 4
    match kind.name:
        case "uuid":
            return bytes(value)
        case "string" | "bytes" | "records":
            if value is None:
                return _length(-1, size, flexible)
            raw = value.encode() if isinstance(value, str) else bytes(value)
            return _length(len(raw), size, flexible) + raw
        case "float64":
            return struct.pack(">d", value)
        case "bool":
            return b"\x01" if value else b"\x00"
    return int(value).to_bytes(kind.size, "big", signed=not kind.name.startswith("u"))


def _length(length: int, size: int, flexible: bool) -> bytes:
    return uvarint(length + 1) if flexible else length.to_bytes(size, "big", signed=True)
