"""Fast reader of a whole group log: hand-written parsers for common records, `codec` for the others.

Laws: results and errors are those of `codec.decode`, which decodes any record whose layout is not the usual one.
Equal names, topic ids, targets and grants of one log share one object each: no code changes
these values, and a broker of 50,000 members would otherwise keep several copies of each.
Source: a profile of recovery (docs/reference/performance.md): the general decoder and its messages were three quarters.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import fields
from struct import Struct
from typing import Any, Final, TypeVar

from kohort.coordinator.records import types as facts
from kohort.coordinator.records.codec import decode
from kohort.coordinator.records.types import (
    ConsumerGroupEpochSet,
    ConsumerMemberSubscribed,
    CurrentAssignmentSet,
    MemberState,
    MemberTargetSet,
    OffsetCommitted,
    TargetAssignmentEpochSet,
)
from kohort.ids import ZERO_TOPIC_ID, TopicId

#: Number of distinct values in each cache. A log whose values all differ gains nothing from more, and cached values are
#: spread over the heap among lasting ones: with ten times as many, 50,000 members took 5 MB more.
SHARED_VALUES: Final = 2_000

#: Value version, offset, leader epoch, length of the metadata; then metadata and time.
_OFFSET_3: Final = Struct(">hqih")
_TIME: Final = Struct(">q")
_INT32: Final = Struct(">i")
#: Version, offset, leader epoch, no metadata, time, one tagged field: number 0 of 16 bytes, the topic's id.
_OFFSET_4: Final = Struct(">hqiBqBBB16s")
_OFFSET_4_CONSTANTS: Final = (1, 1, 0, 16)
#: Version, member epoch, the one before, state, number of topics + 1.
_CURRENT: Final = Struct(">hiibB")
#: Version, epoch, one tagged field: number 0 of 8 bytes, a hash or a time.
_EPOCH: Final = Struct(">hiBBBq")
_EPOCH_CONSTANTS: Final = (1, 0, 8)
#: Fields of a type 5 record without its key.
_SUBSCRIPTION_FIELDS: Final = tuple(
    field.name for field in fields(ConsumerMemberSubscribed) if field.name not in ("group_id", "member_id")
)
_STATES: Final = {int(state): state for state in MemberState}
#: Varints below this take one byte.
_ONE_BYTE: Final = 0x80
#: Exceptions of a record in an unexpected layout.
_UNEXPECTED: Final = (struct.error, IndexError, UnicodeDecodeError, ValueError)

_Value = TypeVar("_Value")


class RecordReader:
    """Reader of one record after another; one instance serves a whole broker start."""

    def __init__(self) -> None:
        #: Bytes of a name -> the name.
        self._strings: Final[dict[bytes, str]] = {}
        #: A key of type 1 without its partition -> (group, topic); a key of types 5, 7 and 8 without its type -> names.
        self._topics: Final[dict[bytes, tuple[str, str]]] = {}
        self._members: Final[dict[bytes, tuple[str, str]]] = {}
        #: Bytes of a topic id -> the id.
        self._ids: Final[dict[bytes, TopicId]] = {}
        #: Bytes of a value -> its decoded fields.
        self._subscriptions: Final[dict[bytes, dict[str, Any]]] = {}
        self._targets: Final[dict[bytes, facts.Target]] = {}
        self._currents: Final[dict[bytes, tuple[int, int, MemberState, facts.Grants, facts.Grants]]] = {}
        #: Time of the latest commit.
        self._time = -1
        self._readers: Final[dict[int, Callable[[bytes, bytes], facts.Record | None]]] = {
            1: self._read_offset,
            3: self._read_epoch,
            5: self._read_subscribed,
            6: self._read_target_epoch,
            7: self._read_target,
            8: self._read_current,
        }

    def read(self, key: bytes, value: bytes | None) -> facts.Record | None:
        """Read one record, with the result of `codec.decode`."""
        if value is not None and len(key) > 2:
            reader = self._readers.get(key[0] << 8 | key[1])
            if reader is not None:
                try:
                    return reader(key, value)
                except _UNEXPECTED:
                    pass
        return decode(key, value)

    def _read_offset(self, key: bytes, value: bytes) -> facts.Record | None:
        prefix = key[:-4]
        names = self._topics.get(prefix)
        if names is None:
            names = _remember(self._topics, prefix, self._two_names(prefix))
        (partition,) = _INT32.unpack_from(key, len(prefix))
        topic_id, metadata = ZERO_TOPIC_ID, ""
        if value[1] == 3:
            version, offset, leader_epoch, length = _OFFSET_3.unpack_from(value)
            end = 16 + length
            if length:
                metadata = _text(value, 16, length)
            (time,) = _TIME.unpack_from(value, end)
        else:
            version, offset, leader_epoch, empty, time, *tag, raw = _OFFSET_4.unpack_from(value)
            if (empty, *tag) != _OFFSET_4_CONSTANTS or version != 4:
                return decode(key, value)
            topic_id = self._id(raw)
        if version not in (3, 4):
            return decode(key, value)
        # The offsets of one commit have one time.
        self._time = time = self._time if time == self._time else time
        return OffsetCommitted(
            group_id=names[0],
            topic=names[1],
            partition=partition,
            offset=offset,
            leader_epoch=leader_epoch,
            metadata=metadata,
            commit_timestamp_ms=time,
            topic_id=topic_id,
        )

    def _read_epoch(self, key: bytes, value: bytes) -> facts.Record | None:
        epoch, metadata_hash = _epoch(value)
        return ConsumerGroupEpochSet(group_id=self._group_name(key), epoch=epoch, metadata_hash=metadata_hash)

    def _read_target_epoch(self, key: bytes, value: bytes) -> facts.Record | None:
        epoch, time = _epoch(value)
        return TargetAssignmentEpochSet(
            group_id=self._group_name(key), assignment_epoch=epoch, assignment_timestamp_ms=time
        )

    def _read_subscribed(self, key: bytes, value: bytes) -> facts.Record | None:
        found = self._subscriptions.get(value)
        if found is None:
            read = decode(key, value)
            assert isinstance(read, ConsumerMemberSubscribed), "type 5 says what a member subscribes to"
            _remember(self._subscriptions, value, {name: getattr(read, name) for name in _SUBSCRIPTION_FIELDS})
            return read
        group_id, member_id = self._member_names(key)
        return ConsumerMemberSubscribed(group_id=group_id, member_id=member_id, **found)

    def _read_target(self, key: bytes, value: bytes) -> facts.Record | None:
        target = self._targets.get(value)
        if target is None:
            target = _remember(self._targets, value, self._parse_target(value))
        group_id, member_id = self._member_names(key)
        return MemberTargetSet(group_id=group_id, member_id=member_id, partitions=target)

    def _parse_target(self, value: bytes) -> facts.Target:
        count, at = _count(value, 2)
        if value[0] or value[1]:
            raise ValueError("a version of its own")
        target: facts.Target = {}
        for _ in range(count):
            topic_id, (partitions, at) = self._id(value[at : at + 16]), _numbers(value, at + 16)
            at = _skip_no_tags(value, at)
            target[topic_id] = tuple(sorted(partitions))
        _skip_no_tags(value, at)
        return target

    def _read_current(self, key: bytes, value: bytes) -> facts.Record | None:
        current = self._currents.get(value)
        if current is None:
            current = _remember(self._currents, value, self._parse_current(value))
        group_id, member_id = self._member_names(key)
        member_epoch, previous_member_epoch, state, assigned, pending_revocation = current
        return CurrentAssignmentSet(
            group_id=group_id,
            member_id=member_id,
            member_epoch=member_epoch,
            previous_member_epoch=previous_member_epoch,
            state=state,
            assigned=assigned,
            pending_revocation=pending_revocation,
        )

    def _parse_current(self, value: bytes) -> tuple[int, int, MemberState, facts.Grants, facts.Grants]:
        version, member_epoch, previous, state, _ = _CURRENT.unpack_from(value)
        if version:
            raise ValueError("a version of its own")
        assigned, at = self._grants(value, _CURRENT.size - 1)
        pending, at = self._grants(value, at)
        _skip_no_tags(value, at)
        return member_epoch, previous, _STATES.get(state, MemberState.UNKNOWN), assigned, pending

    def _grants(self, value: bytes, at: int) -> tuple[facts.Grants, int]:
        count, at = _count(value, at)
        grants: facts.Grants = {}
        for _ in range(count):
            topic_id, (partitions, at) = self._id(value[at : at + 16]), _numbers(value, at + 16)
            # One tagged field: number 0, its size, the epochs.
            if value[at] != 1 or value[at + 1] != 0:
                raise ValueError("other tags")
            size, start = _varint(value, at + 2)
            epochs, at = _numbers(value, start)
            if len(epochs) != len(partitions) or at != start + size or not epochs:
                raise ValueError("epochs of another shape")
            grants[topic_id] = dict(zip(partitions, epochs, strict=True))
        return grants, at

    def _group_name(self, key: bytes) -> str:
        if 4 + (key[2] << 8 | key[3]) != len(key):
            raise ValueError("a key of another shape")
        return self._string(key[4:])

    def _member_names(self, key: bytes) -> tuple[str, str]:
        rest = key[2:]
        names = self._members.get(rest)
        return names or _remember(self._members, rest, self._two_names(key))

    def _two_names(self, key: bytes) -> tuple[str, str]:
        """Read the two strings of a key that has no further fields."""
        first_end = 4 + (key[2] << 8 | key[3])
        second_end = first_end + 2 + (key[first_end] << 8 | key[first_end + 1])
        if second_end != len(key):
            raise ValueError("a key of another shape")
        return self._string(key[4:first_end]), self._string(key[first_end + 2 :])

    def _string(self, raw: bytes) -> str:
        return self._strings.get(raw) or _remember(self._strings, raw, raw.decode())

    def _id(self, raw: bytes) -> TopicId:
        return self._ids.get(raw) or _remember(self._ids, raw, TopicId(raw))


def _remember(known: dict[bytes, _Value], key: bytes, value: _Value) -> _Value:
    if len(known) >= SHARED_VALUES:
        known.clear()
    known[key] = value
    return value


def _epoch(value: bytes) -> tuple[int, int]:
    """Read the epoch in a value of type 3 or 6, and its tagged field."""
    version, epoch, *tag, number = _EPOCH.unpack_from(value)
    if version or tuple(tag) != _EPOCH_CONSTANTS:
        raise ValueError("other tags")
    return epoch, number


def _text(value: bytes, at: int, length: int) -> str:
    if length < 0 or at + length > len(value):
        raise ValueError("no text")
    return value[at : at + length].decode()


def _varint(value: bytes, at: int) -> tuple[int, int]:
    """Read an unsigned varint of one or two bytes; return the number and the index after it."""
    first = value[at]
    if first < _ONE_BYTE:
        return first, at + 1
    second = value[at + 1]
    if second >= _ONE_BYTE:
        raise ValueError("a longer number")
    return first - _ONE_BYTE | second << 7, at + 2


def _count(value: bytes, at: int) -> tuple[int, int]:
    """Read the length of a non-null array; return the length and the index after it."""
    length, at = _varint(value, at)
    if not length:
        raise ValueError("null")
    return length - 1, at


def _numbers(value: bytes, at: int) -> tuple[tuple[int, ...], int]:
    """Read an array of int32; return the numbers and the index after the array."""
    count, at = _count(value, at)
    return struct.unpack_from(f">{count}i", value, at), at + 4 * count


def _skip_no_tags(value: bytes, at: int) -> int:
    if value[at]:
        raise ValueError("tags")
    return at + 1
