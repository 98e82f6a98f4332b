"""Encoder and decoder of group records in Kafka's format of `__consumer_offsets`, from one table.

A key is an int16 record type and a struct; a value is an int16 version and a struct, or null for a tombstone. Versions
are those that Apache Kafka 4.3 writes. The attributes of a record are in the order of the fields of its key and value,
so names are not repeated here. The functions of a record type are compiled from both classes on first use.

Laws: `decode(encode(record))` equals the record, except for attributes without a field in Kafka's formats: an offset's
leader epoch and topic id if it has an expiry. An unknown type is skipped: newer software may have written it. A broken
record, or one of a newer version, is an error that names the type, since a group must not lose
state silently. (Flexible versions grow by tagged fields, so a new version means an incompatible change.)
Source: Apache Kafka's group coordinator records; its loader skips unknown types and stops at newer versions alike.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import cache, lru_cache
from struct import Struct
from typing import Any, Final

from kohort.coordinator.commands import ClassicMemberFacts, ClientAssignment, ClientAssignor
from kohort.coordinator.records import types as facts
from kohort.coordinator.records.types import (
    OffsetCommitted,
    TransactionalOffsetCommitted,
    TransactionCompleted,
    VolatileRecord,
)
from kohort.errors import ProtocolError, RemoteProtocolError, StorageError
from kohort.ids import ZERO_TOPIC_ID
from kohort.records.batch import build_batch, build_marker, coordinator_epoch_of, is_commit_marker, iterate_records
from kohort.records.header import BatchHeader, parse_header
from kohort.wire import codec
from kohort.wire.messages import group_records as wire
from kohort.wire.messages import own_group_records as own
from kohort.wire.schema import Message, fields_of, schema_of

#: From the messages of key and value to the record.
_Read = Callable[..., facts.Record]
_INT16: Final = Struct(">h")
_INT32: Final = Struct(">i")
#: An offset of value version 4: version, offset, leader epoch, length of the metadata + 1, as one byte if below 128;
#: then the metadata; then time, one tagged field, its number 0, its size, the topic's id.
_OFFSET_HEAD: Final = Struct(">hqiB")
_OFFSET_TAIL: Final = Struct(">qBBB16s")
_STATES: Final = {int(state): state for state in facts.MemberState}

#: Record type -> its record and tombstone; the wire classes of its key and value declare that number.
RECORD_TYPES: Final[dict[int, tuple[type[facts.Record], type[facts.Record]]]] = {
    1: (facts.OffsetCommitted, facts.OffsetForgotten),
    2: (facts.ClassicGroupStored, facts.ClassicGroupForgotten),
    3: (facts.ConsumerGroupEpochSet, facts.ConsumerGroupForgotten),
    5: (facts.ConsumerMemberSubscribed, facts.ConsumerMemberForgotten),
    6: (facts.TargetAssignmentEpochSet, facts.TargetAssignmentEpochForgotten),
    7: (facts.MemberTargetSet, facts.MemberTargetForgotten),
    8: (facts.CurrentAssignmentSet, facts.CurrentAssignmentForgotten),
    16: (facts.RegularExpressionResolved, facts.RegularExpressionForgotten),
    20_001: (facts.GroupConfigsSet, facts.GroupConfigsForgotten),
    20_002: (facts.SubmittedMoveSet, facts.SubmittedMoveForgotten),
    20_003: (facts.OfflineMemberSet, facts.OfflineMemberForgotten),
    20_004: (facts.StaticClockSet, facts.StaticClockForgotten),
    20_005: (facts.ClassicRebalanceDue, facts.ClassicRebalanceDone),
    20_006: (facts.ClientAssignorsSet, facts.ClientAssignorsForgotten),
    20_007: (facts.ClientAssignmentSet, facts.ClientAssignmentForgotten),
    20_008: (facts.MemberMetadataSet, facts.MemberMetadataForgotten),
}
#: Record type -> the attribute of the record that holds all fields of the value, and its class.
_INSIDE: Final = {20_002: ("move", facts.MoveFacts), 20_007: ("said", ClientAssignment)}
#: Array of structs in a wire class -> class of the elements of the record's tuple.
_ELEMENTS: Final = {"members": facts.StoredClassicMember, "assignors": ClientAssignor}


def _read_classic(found: wire.ClassicMemberMetadata | None, _: Any) -> ClassicMemberFacts | None:
    if found is None or not found.supported_protocols:
        # Older software left the field out, which reads as a classic member without protocols: there is no such member.
        return None
    protocols = tuple((protocol.name, protocol.metadata) for protocol in found.supported_protocols)
    return ClassicMemberFacts(session_timeout_ms=found.session_timeout_ms, protocols=protocols)


def _write_classic(member: ClassicMemberFacts | None) -> wire.ClassicMemberMetadata | None:
    if member is None:
        return None  # Kafka takes a record without this null for a classic member.
    protocols = [wire.ClassicProtocol(name=name, metadata=blob) for name, blob in member.protocols]
    return wire.ClassicMemberMetadata(session_timeout_ms=member.session_timeout_ms, supported_protocols=protocols)


def _read_grants(topics: list[wire.TopicPartitions], current: Any) -> dict[bytes, dict[int, int]]:
    grants = {}
    for topic in topics:
        # Kafka before 4.3 did not store the epochs; the member's epoch lets no older commit pass.
        epochs = topic.assignment_epochs or [current.member_epoch] * len(topic.partitions)
        grants[topic.topic_id] = dict(zip(topic.partitions, epochs, strict=True))
    return grants


def _write_grants(grants: dict[bytes, dict[int, int]]) -> list[wire.TopicPartitions]:
    pairs = grants.items()
    return [wire.TopicPartitions(topic_id=i, partitions=[*row], assignment_epochs=[*row.values()]) for i, row in pairs]


#: Field of a wire class -> from its value, and the message that has it, to that of the record; back. `None`: it stays.
_CONVERSIONS: Final[dict[str, tuple[Callable[[Any, Any], Any] | None, Callable[[Any], Any] | None]]] = {
    # Version 0 had one timeout for both.
    "rebalance_timeout": (lambda timeout, member: member.session_timeout if timeout == -1 else timeout, None),
    "subscribed_topic_names": (lambda names, _: tuple(names), None),
    # Kafka writes "" for none.
    "subscribed_topic_regex": (lambda regex, _: regex or None, None),
    "classic_member_metadata": (_read_classic, _write_classic),
    "topic_partitions": (
        lambda topics, _: {topic.topic_id: tuple(sorted(topic.partitions)) for topic in topics},
        lambda target: [wire.TopicPartition(topic_id=each, partitions=[*target[each]]) for each in target],
    ),
    # KIP-848: a state that newer software stored forces the member to rejoin.
    "state": (lambda state, _: _STATES.get(state, facts.MemberState.UNKNOWN), None),
    "assigned_partitions": (_read_grants, _write_grants),
    "partitions_pending_revocation": (_read_grants, _write_grants),
    # Kafka writes a set, in no order.
    "topics": (lambda topics, _: tuple(sorted(set(topics))), None),
    "configs": (
        lambda rows, _: {row.name: row.value for row in rows},
        lambda configs: [own.GroupConfig(name=name, value=configs[name]) for name in sorted(configs)],
    ),
    "removed": (lambda members, _: tuple(members), None),
}
#: What the compiled functions refer to.
_NAMES: Final[dict[str, Any]] = {**vars(wire), **vars(own), **vars(facts)}
_NAMES.update({f"read_{name}": read for name, (read, _) in _CONVERSIONS.items()})
_NAMES.update({f"write_{name}": write for name, (_, write) in _CONVERSIONS.items()})
#: ("key" or "value", record type) -> the wire class.
_WIRE: Final[dict[tuple[str, int], Any]] = {
    (each._schema.kind.removeprefix("coordinator-"), each._schema.key): each
    for each in _NAMES.values()
    if hasattr(each, "_schema")
}


def encode(record: facts.Record) -> tuple[bytes, bytes | None]:
    """Encode key and value of one record that is not volatile; the value of a tombstone is `None`."""
    return _WRITERS[type(record)](record)


def encode_durable(records: Iterable[facts.Record]) -> list[tuple[bytes, bytes | None]]:
    """Encode the keys and values of a decision's durable records, in order."""
    return [encode(record) for record in records if not isinstance(record, facts.VolatileRecord)]


def decode(key: bytes, value: bytes | None) -> facts.Record | None:
    """Decode a key and a value; `None` if their type is unknown.

    Raises:
        StorageError: the bytes do not match their type.
    """
    kind = -1
    try:
        if len(key) < 2:
            raise RemoteProtocolError("the key is shorter than its type")
        (kind,) = _INT16.unpack_from(key)
        read = _reader(kind)
        return None if read is None else read(key, value)
    except (ProtocolError, ValueError) as why:
        what = f"a record of type {kind}" if kind >= 0 else "a record"
        raise StorageError(
            f"the group log __consumer_offsets has {what} that cannot be read ({why}): the partition is damaged, or a "
            "newer kohort or Kafka wrote it; start that version, or move the data directory away"
        ) from why


def _encode_offset(record: facts.OffsetCommitted) -> tuple[bytes, bytes]:
    key = _offset_key(record)
    version = 1 if record.expire_timestamp_ms != -1 else 4 if record.topic_id != ZERO_TOPIC_ID else 3
    if version == 4 and len(metadata := record.metadata) < 127 and metadata.isascii():
        # Most records of most logs have this form; the general encoder took a third of the time of a commit.
        head = _OFFSET_HEAD.pack(4, record.offset, record.leader_epoch, len(metadata) + 1)
        tail = _OFFSET_TAIL.pack(record.commit_timestamp_ms, 1, 0, 16, record.topic_id)
        return key, head + metadata.encode() + tail
    return key, _packer(1, "value", version)(record)


def _offset_key(record: facts.OffsetCommitted | facts.OffsetForgotten) -> bytes:
    return _topic_key(record.group_id, record.topic) + _INT32.pack(record.partition)


@lru_cache(maxsize=10_000)
def _topic_key(group_id: str, topic: str) -> bytes:
    """Build the beginning of a key of type 1: all but the partition, its last field."""
    return b"\0\1" + codec.encode(wire.OffsetCommitKey(group=group_id, topic=topic), 0)[: -_INT32.size]


class _Writers(dict[type[facts.Record], Callable[[Any], tuple[bytes, bytes | None]]]):
    """Mapping from a record's class to the function that encodes it, compiled on first use."""

    def __missing__(self, cls: type[facts.Record]) -> Callable[[Any], tuple[bytes, bytes | None]]:
        kind = next((kind for kind, classes in RECORD_TYPES.items() if cls in classes), None)
        assert kind is not None, f"{cls.__name__} is not written to the log"
        pack_key = _offset_key if kind == 1 else _packer(kind, "key", 0)
        if cls is RECORD_TYPES[kind][1]:
            return self.setdefault(cls, lambda record: (pack_key(record), None))
        pack_value = _packer(kind, "value", 3 if kind == 2 else 0)
        return self.setdefault(cls, lambda record: (pack_key(record), pack_value(record)))


_WRITERS: Final = _Writers({facts.OffsetCommitted: _encode_offset})


@cache
def _packer(kind: int, part: str, version: int) -> Callable[[Any], bytes]:
    """Compile the function that encodes the key or value of a record."""
    cls, head = _WIRE[part, kind], _INT16.pack(kind if part == "key" else version)
    build = eval(f"lambda r: {cls.__name__}({_arguments(kind, part, 'r', 'write')})", _NAMES)
    append = codec.encoder(cls, version)

    def pack(record: facts.Record) -> bytes:
        out = bytearray(head)
        append(build(record), out)
        return bytes(out)

    return pack


@cache
def _reader(kind: int) -> Callable[[bytes, bytes | None], facts.Record] | None:
    # Types 0 and 1 share the layout of the key and of value version 0: records of the oldest brokers read alike.
    kind = kind or 1
    if kind not in RECORD_TYPES:
        return None
    fact, tombstone = RECORD_TYPES[kind]
    names, told = _arguments(kind, "key", "k", "read"), _arguments(kind, "value", "v", "read")
    build: _Read = eval(f"lambda k, v: {fact.__name__}({names}, {told})", _NAMES)
    forget: _Read = eval(f"lambda k: {tombstone.__name__}({names})", _NAMES)
    read_key, cls = codec.decoder(_WIRE["key", kind], 0), _WIRE["value", kind]
    newest = schema_of(cls).last_version

    def read(key: bytes, value: bytes | None) -> facts.Record:
        found, _ = read_key(key, 2)
        if value is None:
            return forget(found)
        if len(value) < 2:
            raise RemoteProtocolError("the value is shorter than its version")
        (version,) = _INT16.unpack_from(value)
        if not 0 <= version <= newest:
            raise RemoteProtocolError(f"its version is {version}, and {newest} is the newest known")
        return build(found, codec.decode(cls, version, value, 2)[0])

    return read


def _arguments(kind: int, part: str, source: str, way: str) -> str:
    """Generate source text of the arguments that convert a record to a key or value, or the reverse."""
    names, keys = ["group_id", *RECORD_TYPES[kind][0].__annotations__], len(fields_of(_WIRE["key", kind]))
    if part == "key" or kind not in _INSIDE:
        return _pairs(_WIRE[part, kind], names[:keys] if part == "key" else names[keys:], source, way)
    name, inner = _INSIDE[kind]
    pairs = _pairs(_WIRE[part, kind], inner.__annotations__, f"{source}.{name}" if way == "write" else source, way)
    return pairs if way == "write" else f"{name}={inner.__name__}({pairs})"


def _pairs(cls: type[Message], attributes: Iterable[str], source: str, way: str) -> str:
    """Generate "field=source.attribute" per field of `cls`; with way "read", "attribute=source.field"."""
    pairs = []
    for each, attribute in zip(fields_of(cls), attributes, strict=True):
        target, value = (each.name, attribute) if way == "write" else (attribute, each.name)
        value = f"{source}.{value}"
        if element := _ELEMENTS.get(each.name):
            struct: Any = each.kind.element  # type: ignore[union-attr]
            made, made_of = (struct.__name__, "[{}]") if way == "write" else (element.__name__, "tuple([{}])")
            value = made_of.format(f"{made}({_pairs(struct, element.__annotations__, 'e', way)}) for e in {value}")
        elif _NAMES.get(f"{way}_{each.name}"):
            value = f"{way}_{each.name}({value})" if way == "write" else f"{way}_{each.name}({value}, {source})"
        pairs.append(f"{target}={value}")
    return ", ".join(pairs)


# Record batches of the group log: one batch for the records of one decision.
#
# Laws: `read_log_batch(build_log_batch(records))` gives the durable ones of `records`. Records of a transaction are a
# batch of its producer; a marker is a batch of its own.
# Source: Apache Kafka's coordinator: a decision is never split; KIP-98 (transactional batches and markers).


def build_log_batch(records: Iterable[facts.Record], *, now_ms: int) -> bytes | None:
    """Build the batch of the durable records, `None` if there are none."""
    durable = [record for record in records if not isinstance(record, VolatileRecord)]
    if not durable:
        return None
    first = durable[0]
    if type(first) is TransactionCompleted:
        assert len(durable) == 1, "a marker is a batch of its own"
        return build_marker(
            producer_id=first.producer_id,
            producer_epoch=first.producer_epoch,
            is_commit=first.is_commit,
            timestamp_ms=now_ms,
            coordinator_epoch=first.coordinator_epoch,
        )
    if type(first) is TransactionalOffsetCommitted:
        return _build_transactional(durable, first, now_ms=now_ms)
    return build_batch([(*encode(record), now_ms, ()) for record in durable])


def read_log_batch(batch: bytes | memoryview) -> list[facts.Record]:
    """Read the records of one batch, and skip records of unknown types."""
    header = parse_header(batch)
    if header.is_control:
        marker = read_marker(header, batch)
        return [] if marker is None else [marker]
    decoded = (decode(stored.key or b"", stored.value) for stored in iterate_records(batch))
    return [read_in_batch(header, record) for record in decoded if record is not None]


def read_in_batch(header: BatchHeader, record: facts.Record) -> facts.Record:
    """Return the record; a commit in a transactional batch as one that takes effect with the marker."""
    if not header.is_transactional or not isinstance(record, OffsetCommitted):
        return record
    return TransactionalOffsetCommitted(
        group_id=record.group_id, producer_id=header.producer_id, producer_epoch=header.producer_epoch, commit=record
    )


def read_marker(header: BatchHeader, batch: bytes | memoryview) -> TransactionCompleted | None:
    """Read a control batch; `None` if it does not end a transaction."""
    control = next(iterate_records(batch, include_control=True), None)
    is_commit = None if control is None else is_commit_marker(control.key)
    if control is None or is_commit is None:
        return None
    return TransactionCompleted(
        group_id="",
        producer_id=header.producer_id,
        producer_epoch=header.producer_epoch,
        is_commit=is_commit,
        coordinator_epoch=coordinator_epoch_of(control.value),
    )


def _build_transactional(records: list[facts.Record], first: TransactionalOffsetCommitted, *, now_ms: int) -> bytes:
    rows = []
    for record in records:
        assert isinstance(record, TransactionalOffsetCommitted), "a batch is all of one transaction"
        assert (record.producer_id, record.producer_epoch) == (first.producer_id, first.producer_epoch)
        rows.append((*encode(record.commit), now_ms, ()))
    return build_batch(rows, producer_id=first.producer_id, producer_epoch=first.producer_epoch, is_transactional=True)
