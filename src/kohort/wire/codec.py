"""Encoding and decoding of messages, by functions that are compiled on first use and kept.

Laws: malformed bytes raise `RemoteProtocolError`, values that the protocol cannot carry `LocalProtocolError`; after
either the output is as it was. Nothing is compiled before it is used.
Source: architecture rule 13.
"""

from __future__ import annotations

from typing import Final, TypeVar

from kohort.errors import LocalProtocolError
from kohort.wire.decoder import Decoder, compile_decoder
from kohort.wire.encoder import Encoder, Explain, PartsEncoder, compile_encoder, compile_parts_encoder
from kohort.wire.primitives import STRING_BYTES_AT_MOST, Buffer, plain_fields, records_buffers, tagged_fields
from kohort.wire.schema import Array, Kind, Message, Scalar, kind_name, schema_of

T = TypeVar("T", bound=Message)

#: Compiled functions by class and version, bounded decoders by their rows too.
_DECODERS: Final[dict[tuple[type[Message], int], Decoder]] = {}
_BOUNDED_DECODERS: Final[dict[tuple[type[Message], int, int], Decoder]] = {}
_ENCODERS: Final[dict[tuple[type[Message], int], Encoder]] = {}
_PARTS_ENCODERS: Final[dict[tuple[type[Message], int], PartsEncoder]] = {}


def decode(cls: type[T], version: int, buffer: Buffer, position: int = 0) -> tuple[T, int]:
    """Decode one message.

    Args:
        cls: the class of the message.
        version: the message's version; the declaration must cover it.
        buffer: RECORDS fields of the result are views of it; all other values are copied.
        position: the start of the message in the buffer.

    Returns:
        The message and the position after it; bytes that follow are not checked.
    """
    found = _DECODERS.get((cls, version))
    if found is None:
        found = decoder(cls, version)
    return found(buffer, position)


def encode(message: Message, version: int) -> bytes:
    """Encode a message to bytes; RECORDS are copied into them."""
    out = bytearray()
    encode_into(message, version, out)
    return bytes(out)


def encode_into(message: Message, version: int, out: bytearray) -> None:
    """Append a message to `out`, which stays as it was if the message cannot be encoded."""
    found = _ENCODERS.get((type(message), version))
    if found is None:
        found = encoder(type(message), version)
    found(message, out)


def encode_parts(message: Message, version: int) -> list[Buffer]:
    """Encode a message to a list of buffers; large RECORDS stay uncopied parts of their own."""
    found = _PARTS_ENCODERS.get((type(message), version))
    if found is None:
        found = parts_encoder(type(message), version)
    return found(message)


def bounded_decoder(cls: type[Message], version: int, most_rows: int) -> Decoder:
    """Return a decoder with limits, for messages of untrusted peers.

    `most_rows`: the most structs that all arrays of one message may have in total; of other values there may be eight
    times as many. A count beyond that raises `RemoteProtocolError` before an element of its array is made.
    """
    key = cls, version, most_rows
    found = _BOUNDED_DECODERS.get(key)
    if found is None:
        _check_version(cls, version)
        found = _BOUNDED_DECODERS[key] = compile_decoder(*key)
    return found


def decoder(cls: type[Message], version: int) -> Decoder:
    """Return the compiled function (buffer, position) → (message, end)."""
    found = _DECODERS.get((cls, version))
    if found is None:
        _check_version(cls, version)
        found = _DECODERS[cls, version] = compile_decoder(cls, version)
    return found


def encoder(cls: type[Message], version: int) -> Encoder:
    """Return the compiled function (message, output) → None."""
    found = _ENCODERS.get((cls, version))
    if found is None:
        _check_version(cls, version)
        found = _ENCODERS[cls, version] = compile_encoder(cls, version, _explain(version))
    return found


def parts_encoder(cls: type[Message], version: int) -> PartsEncoder:
    """Return the compiled function message → buffers."""
    found = _PARTS_ENCODERS.get((cls, version))
    if found is None:
        _check_version(cls, version)
        found = _PARTS_ENCODERS[cls, version] = compile_parts_encoder(cls, version, _explain(version))
    return found


def _check_version(cls: type[Message], version: int) -> None:
    schema = schema_of(cls)
    if not schema.first_version <= version <= schema.last_version:
        raise LocalProtocolError(
            f"{cls.__name__} has the versions {schema.first_version}-{schema.last_version}, not {version}"
        )


def _explain(version: int) -> Explain:
    """Return a function that finds the field of a message that could not be encoded."""

    def explain(message: Message, error: Exception) -> LocalProtocolError:
        title = f"{type(message).__name__} version {version}"
        flexible = schema_of(type(message)).is_flexible(version)
        found = _fault(message, type(message), version, flexible, "")
        return LocalProtocolError(f"{title} cannot be encoded: {found or error}")

    return explain


def _fault(message: object, cls: type[Message], version: int, flexible: bool, path: str) -> str | None:
    """Describe the first field that cannot be encoded; `None` if there is none."""
    if not isinstance(message, cls):
        return f"{path.rstrip('.') or cls.__name__} is not a {cls.__name__} but {_shown(message)}"
    for each in [*plain_fields(cls, version), *tagged_fields(cls, version, flexible)]:
        value, name = getattr(message, each.name), path + each.name
        if value is None:
            # A tagged field with a null default is left out, so null is allowed.
            if each.is_nullable(version) or (each.is_tagged(version) and each.default is None):
                continue
            return f"{name} is null, which this version does not allow"
        found = _value_fault(value, each.kind, version, flexible, name)
        if found:
            return found
    return None


def _value_fault(value: object, kind: Kind, version: int, flexible: bool, name: str) -> str | None:
    """Describe the error of a value that is not null; `None` if there is none."""
    if isinstance(kind, Array):
        if not isinstance(value, list | tuple):
            return f"{name} is not a list but {_shown(value)}"
        for index, element in enumerate(value):
            found = _value_fault(element, kind.element, version, flexible, f"{name}[{index}]")
            if found:
                return found
        return None
    if isinstance(kind, type):
        return _fault(value, kind, version, flexible, f"{name}.")
    return None if _fits(value, kind) else f"{name} must be {kind_name(kind)}, not {_shown(value)}"


def _fits(value: object, kind: Scalar) -> bool:
    """Return whether a scalar value can be encoded."""
    match kind.name:
        case "string":
            return isinstance(value, str) and len(value.encode(errors="surrogatepass")) <= STRING_BYTES_AT_MOST
        case "uuid":
            return isinstance(value, Buffer) and len(value) == 16
        case "bytes":
            return isinstance(value, Buffer)
        case "records":
            return isinstance(value, Buffer | list | tuple) and all(
                isinstance(each, Buffer) for each in records_buffers(value)
            )
        case "float64":
            return isinstance(value, float | int)
        case "bool":
            return isinstance(value, bool)
    signed = kind.code.islower()
    bits = kind.size * 8
    lowest, highest = (-(1 << bits - 1), (1 << bits - 1) - 1) if signed else (0, (1 << bits) - 1)
    return isinstance(value, int) and lowest <= value <= highest


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."
