"""Ints, varints, lengths and tagged sections, for compiled codecs to call on values of unusual size.

Laws: reading never allocates more than the bytes that remain allow; every reader raises `Malformed`, every writer
`Unencodable`, and the codec turns both into errors that name the message.
Source: KIP-482 (compact lengths are unsigned varints of the length plus one; tagged sections); the protocol guide.
"""

from __future__ import annotations

import sys
from array import array
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from struct import Struct, calcsize, unpack_from
from typing import Any, Final

from kohort.wire.schema import UUID, Array, Field, Kind, Message, Scalar

#: The buffers from which a decoder reads.
Buffer = bytes | bytearray | memoryview
#: The values of RECORDS fields that can be encoded.
RecordsValue = Buffer | Sequence[Buffer]

#: Elements of no size cannot be bounded by the bytes that remain.
EMPTY_ELEMENTS_AT_MOST: Final = 1024
#: Tagged fields of one section; the protocol declares no more than a few.
TAGS_AT_MOST: Final = 100
STRING_BYTES_AT_MOST: Final = 0x7FFF
_INT32_MAX: Final = 0x7FFFFFFF
#: Arrays of up to this many numbers are packed by a prepared Struct.
PREPARED_COUNT: Final = 32
_SWAP: Final = sys.byteorder == "little"


class Malformed(ValueError):
    """Bytes of a peer that do not follow the protocol; the text is the reason."""


class Unencodable(ValueError):
    """A value that the protocol cannot carry; the text is the reason."""


def encode_uvarint(value: int) -> bytes:
    """Encode an unsigned varint of at most 32 bits."""
    if not 0 <= value <= 0xFFFFFFFF:
        raise Unencodable(f"{value} does not fit an unsigned varint")
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def read_uvarint(buffer: Buffer, position: int) -> tuple[int, int]:
    """Read an unsigned varint; return it and the position after it."""
    value = buffer[position]
    if value > 0x7F:
        value, position = read_long_uvarint(buffer, position)
    return value, position + 1


def read_long_uvarint(buffer: Buffer, position: int) -> tuple[int, int]:
    """Read an unsigned varint of two to five bytes; return it and the position of its last byte."""
    value = buffer[position] & 0x7F
    shift = 7
    while shift < 35:
        position += 1
        byte = buffer[position]
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            if value > 0xFFFFFFFF:
                break
            return value, position
        shift += 7
    raise Malformed("a varint is longer than 32 bits")


def read_long_string_length(buffer: Buffer, position: int) -> tuple[int, int]:
    """Read the stored length (plus one) of a long string; return it and the position of its last byte."""
    stored, position = read_long_uvarint(buffer, position)
    if not 0 < stored <= STRING_BYTES_AT_MOST + 1:
        raise Malformed(f"a string of {stored - 1} bytes is longer than the protocol allows")
    return stored, position


def read_long_length(buffer: Buffer, position: int) -> tuple[int, int]:
    """Read the stored length (plus one) of another long value; return it and its last byte's position."""
    stored, position = read_long_uvarint(buffer, position)
    if not 0 < stored <= _INT32_MAX:
        raise Malformed(f"{stored} is no length")
    return stored, position


def encode_long_string_length(stored: int) -> bytes:
    """Encode the prefix of a compact string, from its length plus one."""
    if stored > STRING_BYTES_AT_MOST + 1:
        raise Unencodable(f"a string of {stored - 1} bytes is longer than {STRING_BYTES_AT_MOST}")
    return encode_uvarint(stored)


def encode_long_length(stored: int) -> bytes:
    """Encode the prefix of compact bytes, records or an array, from their length plus one."""
    if stored > _INT32_MAX:
        raise Unencodable(f"a length of {stored - 1} does not fit 32 bits")
    return encode_uvarint(stored)


def read_tagged_section(buffer: Buffer, position: int) -> tuple[dict[int, bytes] | None, int]:
    """Read a section of unknown tagged fields; return them and the position after it."""
    count, position = read_uvarint(buffer, position)
    if 2 * count > len(buffer) - position:
        raise Malformed(f"{count} tagged fields in {len(buffer) - position} bytes")
    if count > TAGS_AT_MOST:
        raise Malformed(f"{count} tagged fields; {TAGS_AT_MOST} are allowed")
    tags: dict[int, bytes] = {}
    for _ in range(count):
        tag, end, position = read_tag(buffer, position, tags)
        tags[tag] = bytes(buffer[position:end])
        position = end
    return tags or None, position


def read_tag(buffer: Buffer, position: int, seen: Mapping[int, object] | set[int]) -> tuple[int, int, int]:
    """Read the head of a tagged field; return its number, its value's end, and its value's position."""
    tag, position = read_uvarint(buffer, position)
    size, position = read_uvarint(buffer, position)
    if tag in seen:
        raise Malformed(f"tagged field {tag} occurs twice")
    if position + size > len(buffer):
        raise Malformed(f"tagged field {tag} of {size} bytes in {len(buffer) - position}")
    return tag, position + size, position


def encode_tagged_section(unknown: Mapping[int, bytes] | None, known: Mapping[int, Buffer] | None = None) -> bytes:
    """Encode a section of tagged fields in ascending order.

    Args:
        unknown: raw values that came from a peer and go back unchanged.
        known: the encoded fields of the declaration.
    """
    both: dict[int, Buffer] = {**(unknown or {})}
    for tag, value in (known or {}).items():
        if tag in both:
            raise Unencodable(f"tagged field {tag} is among the unknown ones and in the declaration")
        both[tag] = value
    out = bytearray(encode_uvarint(len(both)))
    for tag in sorted(both):
        value = both[tag]
        out += encode_uvarint(tag)
        out += encode_long_length(len(value))
        out += value
    return bytes(out)


def read_numbers(buffer: Buffer, position: int, count: int, code: str) -> list[Any]:
    """Read many numbers of one size, after a check of the remaining bytes."""
    if code == "?":
        return list(unpack_from(f">{count}?", buffer, position))
    numbers = array(code)
    end = position + count * numbers.itemsize
    if end > len(buffer):
        raise Malformed(f"{count} numbers in {len(buffer) - position} bytes")
    numbers.frombytes(buffer[position:end])
    if _SWAP:
        numbers.byteswap()
    return numbers.tolist()


def encode_numbers(values: Sequence[Any], code: str) -> bytes:
    """Encode many numbers of one size."""
    numbers = array("B" if code == "?" else code, values)
    if _SWAP:
        numbers.byteswap()
    return numbers.tobytes()


def pack_code(code: str) -> str:
    """Return the format with which a value is packed."""
    # The format `?` would take any value, even None, for a boolean.
    return "B" if code == "?" else code


def records_size(value: RecordsValue) -> int:
    """Return the bytes of a RECORDS value, which is one buffer or a list of them."""
    if isinstance(value, list | tuple):
        return sum(map(records_size, value))
    return value.nbytes if isinstance(value, memoryview) else len(value)


def records_buffers(value: RecordsValue) -> Sequence[Buffer]:
    """Return the buffers of a RECORDS value, which is one buffer or a list of them."""
    return value if isinstance(value, list | tuple) else (value,)


# The source of compiled codecs: indentation, names, and runs of values of fixed size.
#
# Laws: consecutive values of fixed size, and the length prefix that follows them, are read or written by one call of
# struct; a value that is not of fixed size ends the run.

#: Prepared functions by format character, shared by all compiled codecs.
_UNPACKERS: Final[dict[str, list[Callable[..., tuple[Any, ...]]]]] = {}
_PACKERS: Final[dict[str, list[Callable[..., bytes]]]] = {}


class Emitter:
    """The lines of one function, and the objects that they name."""

    def __init__(self, version: int, flexible: bool) -> None:
        self.version = version
        self.flexible = flexible
        #: The globals of the compiled function.
        self.namespace: dict[str, Any] = {}
        self.lines: list[str] = []
        self.indent = 0
        #: Format character and expression of each value that waits for one common call of struct.
        self.run: list[tuple[str, str]] = []
        self._count = 0

    def line(self, text: str) -> None:
        """Add a line; the run must have been written before."""
        self.lines.append(" " * self.indent + text)

    @contextmanager
    def block(self, head: str) -> Iterator[None]:
        """Add a line that opens a block, and indent the lines of the block."""
        self.line(head)
        before = len(self.lines)
        self.indent += 1
        yield
        if len(self.lines) == before:
            self.line("pass")
        self.indent -= 1

    @contextmanager
    def form_of(self, each: Field) -> Iterator[None]:
        """Set the form for the lines of one field, which may keep its old form in a flexible version."""
        flexible = self.flexible
        # The client id in request headers keeps its old form in flexible versions.
        self.flexible = flexible and each.compact
        yield
        self.flexible = flexible

    def fresh(self, stem: str) -> str:
        """Return a new local name."""
        self._count += 1
        return f"{stem}{self._count}"

    def constant(self, stem: str, value: object) -> str:
        """Return the name of a global of the function with the value `value`."""
        name = f"{stem}_{len(self.namespace)}"
        self.namespace[name] = value
        return name

    def unpacker(self, codes: str) -> str:
        """Return the name of a function (buffer, position) → values."""
        name = "u_" + codes.replace("?", "z")
        self.namespace.setdefault(name, Struct(">" + codes).unpack_from)
        return name

    def packer(self, codes: list[str]) -> str:
        """Return the name of a function (values) → bytes."""
        packed = "".join(map(pack_code, codes))
        self.namespace.setdefault("p_" + packed, Struct(">" + packed).pack)
        return "p_" + packed

    def number_unpackers(self, code: str) -> str:
        """Return the name of a list of functions, by count, that read numbers of one size."""
        if code not in _UNPACKERS:
            _UNPACKERS[code] = [Struct(f">{count}{code}").unpack_from for count in range(PREPARED_COUNT + 1)]
        name = f"us_{code.replace('?', 'z')}"
        self.namespace[name] = _UNPACKERS[code]
        return name

    def number_packers(self, code: str) -> str:
        """Return the name of a list of functions, by count, that write numbers of one size."""
        if code not in _PACKERS:
            _PACKERS[code] = [Struct(f">{count}{pack_code(code)}").pack for count in range(PREPARED_COUNT + 1)]
        name = f"ps_{code.replace('?', 'z')}"
        self.namespace[name] = _PACKERS[code]
        return name

    def compile(self, function: str, title: str) -> Callable[..., Any]:
        """Compile the lines and return a function of them; `title` is its file in tracebacks."""
        assert not self.run, "a run was not written out"
        exec(compile("\n".join(self.lines), f"<kohort {title}>", "exec"), self.namespace)
        return self.namespace[function]  # type: ignore[no-any-return]


def plain_fields(cls: type[Message], version: int) -> list[Field]:
    """Return the untagged fields of `version`, in order."""
    return [each for each in cls._fields if each.is_in(version) and not each.is_tagged(version)]


def tagged_fields(cls: type[Message], version: int, flexible: bool) -> list[Field]:
    """Return the tagged fields of `version`, by ascending tag."""
    if not flexible:
        return []
    # KIP-482: tagged fields are written by ascending tag.
    return sorted((each for each in cls._fields if each.is_tagged(version)), key=lambda each: each.tag or 0)


def smallest_size(kind: Kind, version: int, flexible: bool) -> int:
    """Return the fewest bytes that a value of `kind` takes."""
    # By this, decoders bound the count of an array before they trust it.
    if isinstance(kind, Scalar):
        if kind.size:
            return kind.size
        return 1 if flexible else 2 if kind.name == "string" else 4
    if isinstance(kind, Array):
        return 1 if flexible else 4
    total = 1 if flexible else 0
    for each in plain_fields(kind, version):
        if isinstance(each.kind, type) and each.is_nullable(version):
            total += 1
        else:
            total += smallest_size(each.kind, version, flexible and each.compact)
    return total


def holds_records(cls: type[Message]) -> bool:
    """Whether the message has a RECORDS field, in itself or in a struct."""
    for each in cls._fields:
        kind = each.kind.element if isinstance(each.kind, Array) else each.kind
        if isinstance(kind, type) and holds_records(kind):
            return True
        if isinstance(kind, Scalar) and kind.name == "records":
            return True
    return False


def is_number(kind: Kind) -> bool:
    """Whether a value of `kind` is one number or boolean."""
    return isinstance(kind, Scalar) and bool(kind.code) and kind is not UUID


def run_size(codes: str) -> int:
    """Return the bytes of a run of these format characters."""
    return calcsize(">" + codes)
