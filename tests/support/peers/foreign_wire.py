"""Two other implementations of Kafka's messages, behind one interface: kio and kafka-python.

Laws: a foreign object is built from ours field by field under Kafka's names, and holds exactly the fields of the
version; what a library cannot do is listed here as data, with the reason, so that no gap goes unseen.
"""

from __future__ import annotations

import dataclasses
import io
import typing
import uuid
import warnings
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from functools import cache
from typing import Any, Protocol

from kio import serial
from kio.index import UnknownEntity, load_entity_schema
from kio.schema.errors import ErrorCode
from kio.static.constants import EntityType

from kohort.wire.schema import UUID, Array, Field, Message, schema_of
from support.builders.wire_messages import kafka_fields_of
from support.peers.kafka_schemas import snake_case

with warnings.catch_warnings():
    # kafka-python reads its resources through functions that Python 3.11 and 3.12 call deprecated.
    warnings.simplefilter("ignore", DeprecationWarning)
    import kafka.protocol.admin
    import kafka.protocol.consumer
    import kafka.protocol.metadata
    import kafka.protocol.producer
    import kafka.protocol.sasl
    from kafka.protocol.schemas.fields.codecs.types import BitField

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

#: (library, message) → why that library takes no part in the comparison of that message, whatever the version.
GAPS: Mapping[tuple[str, str], str] = {
    ("kafka-python", "ConsumerGroupDescribeRequest"): "3.0 knows classic groups only",
    ("kafka-python", "ConsumerGroupDescribeResponse"): "3.0 knows classic groups only",
    ("kafka-python", "ConsumerGroupHeartbeatRequest"): "3.0 knows classic groups only",
    ("kafka-python", "ConsumerGroupHeartbeatResponse"): "3.0 knows classic groups only",
}


class Foreign(Protocol):
    """One other implementation."""

    name: str
    #: "field" or "Message.field" → what brings its value into the range that the library can hold.
    narrow: Mapping[str, Callable[[int], int]]

    def has(self, cls: type[Message], version: int) -> bool:
        """Whether the library knows the message in that version."""

    def encode(self, message: Message, version: int) -> bytes:
        """The bytes that the library makes of the same values."""

    def reencode(self, cls: type[Message], version: int, data: bytes) -> bytes:
        """The bytes that the library makes of what it understood."""


class Kio:
    """kio: frozen dataclasses, one module per message and version, generated from Kafka's definitions."""

    name = "kio"
    #: Error codes are known by name, and times are `timedelta` and `datetime`, whose ranges are smaller.
    narrow: Mapping[str, Callable[[int], int]] = {
        "error_code": lambda code: code % 100,
        "partition_error_code": lambda code: code % 100,
        "topic_config_error_code": lambda code: code % 100,
        "log_append_time_ms": lambda ms: ms % (1 << 45) if ms >= 0 else -1,
        "transaction_start_time_ms": lambda ms: abs(ms) % (1 << 45),
        "session_lifetime_ms": lambda ms: ms % (1 << 40),
        "retention_time_ms": lambda ms: ms % (1 << 40) if ms >= 0 else -1,
    }

    def has(self, cls: type[Message], version: int) -> bool:
        return _kio_entity(cls, version) is not None

    def encode(self, message: Message, version: int) -> bytes:
        entity = _kio_entity(type(message), version)
        with io.BytesIO() as out:
            serial.entity_writer(entity)(out, self._build(entity, message, version))
            return out.getvalue()

    def reencode(self, cls: type[Message], version: int, data: bytes) -> bytes:
        entity = _kio_entity(cls, version)
        understood, size = serial.entity_reader(entity)(data, 0)
        assert size == len(data), f"kio read {size} of {len(data)} bytes"
        with io.BytesIO() as out:
            serial.entity_writer(entity)(out, understood)
            return out.getvalue()

    def _build(self, entity: Any, message: Message, version: int) -> Any:
        ours = {each.name: each for each in kafka_fields_of(type(message)) if each.is_in(version)}
        theirs = {_kio_name(each, ours): each for each in dataclasses.fields(entity)}
        assert set(theirs) == set(ours), f"{entity.__name__} v{version}: {set(theirs) ^ set(ours)}"
        return entity(**{
            each.name: self._value(ours[name].kind, getattr(message, name), each, version)
            for name, each in theirs.items()
        })  # fmt: skip

    def _value(self, kind: Any, value: Any, field: dataclasses.Field[Any], version: int) -> Any:
        if isinstance(kind, Array):
            return None if value is None else tuple(self._value(kind.element, each, field, version) for each in value)
        if isinstance(kind, type):
            return None if value is None else self._build(_entity_in(field.type), value, version)
        return _kio_scalar(field.metadata["kafka_type"], value)


class KafkaPython:
    """kafka-python: classes made at run time from Kafka's definitions, with code of their own for each version."""

    name = "kafka-python"
    #: A response with an error is decoded as version 0 whatever it was, as the broker would send it.
    narrow: Mapping[str, Callable[[int], int]] = {"ApiVersionsResponse.error_code": lambda _code: 0}

    def has(self, cls: type[Message], version: int) -> bool:
        found = _kafka_python_class(cls)
        return found is not None and version <= found.max_version

    def encode(self, message: Message, version: int) -> bytes:
        built = self._build(_kafka_python_class(type(message)), message, version)
        return bytes(built.encode(header=False))

    def reencode(self, cls: type[Message], version: int, data: bytes) -> bytes:
        found = _kafka_python_class(cls)
        understood = found.decode(data, version=version, header=False)
        if schema_of(cls).key is not None:
            # Its decoder leaves the slot of the header unset, at which some of its encoders stumble.
            understood._header = None
        return bytes(understood.encode(header=False))

    def _build(self, theirs: Any, message: Message, version: int) -> Any:
        given = {}
        for each in kafka_fields_of(type(message)):
            if not each.is_in(version):
                continue
            value = getattr(message, each.name)
            # A struct of defaults is no default to kafka-python, nor is a UUID of zeros: it would put both on the wire.
            is_unknown = isinstance(each.kind, type) or each.kind == UUID
            if each.is_tagged(version) and is_unknown and value == each.make_default():
                continue
            name = _PATCHED_NAMES.get(each.name, each.name)
            field = theirs.fields.get(each.name) or theirs.fields[name]
            given[field.name] = self._value(each, each.kind, value, field, version)
        return theirs(version=version, **given)

    def _value(self, ours: Field, kind: Any, value: Any, field: Any, version: int) -> Any:
        if value is None:
            return None
        if isinstance(kind, Array):
            return [self._value(ours, kind.element, each, field, version) for each in value]
        if isinstance(kind, type):
            return self._build(field.data_class, value, version)
        if field._type_str == "bitfield":
            return BitField.from_32_bit_field(value & 0xFFFFFFFF)
        return uuid.UUID(bytes=value) if kind.name == "uuid" else value


FOREIGN: tuple[Foreign, ...] = (Kio(), KafkaPython())

#: Fields that kafka-python renames.
_PATCHED_NAMES = {
    "cluster_authorized_operations": "authorized_operations",
    "topic_authorized_operations": "authorized_operations",
}


@cache
def _kio_entity(cls: type[Message], version: int) -> Any:
    kind = schema_of(cls).kind
    name = snake_case(cls.__name__.removesuffix("Request").removesuffix("Response"))
    try:
        return load_entity_schema(name, version, EntityType[kind])  # type: ignore[arg-type]
    except (KeyError, UnknownEntity):
        return None


def _kio_name(field: dataclasses.Field[Any], ours: Mapping[str, Field]) -> str:
    """kio drops the unit from what it turns into a span or point of time."""
    return field.name if field.name in ours else f"{field.name}_ms"


def _entity_in(annotation: Any) -> Any:
    """The dataclass inside `tuple[X, ...]`, `X | None` or `X`."""
    if dataclasses.is_dataclass(annotation):
        return annotation
    return next(found for each in typing.get_args(annotation) if (found := _entity_in(each)) is not None) \
        if typing.get_args(annotation) else None  # fmt: skip


def _kio_scalar(kafka_type: str, value: Any) -> Any:
    if kafka_type == "error_code":
        return ErrorCode(value)
    if kafka_type in ("timedelta_i32", "timedelta_i64"):
        return timedelta(milliseconds=value)
    if kafka_type == "datetime_i64":
        return None if value == -1 else EPOCH + timedelta(milliseconds=value)
    if kafka_type == "uuid":
        return uuid.UUID(bytes=value) if any(value) else None
    return value


@cache
def _kafka_python_class(cls: type[Message]) -> Any:
    rooms = (
        kafka.protocol.consumer,
        kafka.protocol.producer,
        kafka.protocol.metadata,
        kafka.protocol.admin,
        kafka.protocol.sasl,
    )
    return next((getattr(room, cls.__name__) for room in rooms if hasattr(room, cls.__name__)), None)


def fit(foreign: Foreign, message: Any, version: int) -> Any:
    """Bring the values of a version into the range that the library can hold; ours would carry them all."""
    for each in kafka_fields_of(type(message)):
        if not each.is_in(version):
            continue
        value = getattr(message, each.name)
        narrow = foreign.narrow.get(f"{type(message).__name__}.{each.name}") or foreign.narrow.get(each.name)
        if narrow is not None:
            setattr(message, each.name, narrow(value))
        for part in value if isinstance(value, list) else [value]:
            if isinstance(part, Message):
                fit(foreign, part, version)
    return message
