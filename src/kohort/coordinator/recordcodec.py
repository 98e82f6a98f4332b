"""Facts about groups as Kafka stores them in `__consumer_offsets`, both ways.

A key is an int16 record type and a struct; a value an int16 version and a struct, or null for a tombstone. Written is
what Apache Kafka 4.3 writes: OffsetCommit 1 with an expiry, 4 with a topic id, else 3; GroupMetadata 3; all others 0.

Laws: `decode(encode(record))` is the record, but for what Kafka's formats have no field for: an offset's leader epoch
and topic id where it has an expiry. A type that is not known is skipped, not an error: newer software may have
written it. What is broken is an error that names the type: a group must not lose facts silently.
Source: Apache Kafka's group coordinator records.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from struct import Struct
from typing import Any, Final, TypeVar

from kohort.coordinator import records as facts
from kohort.coordinator.model import Grants
from kohort.errors import ProtocolError, RemoteProtocolError, StorageError
from kohort.ids import TopicId
from kohort.wire.codec import decode as decode_message
from kohort.wire.codec import encode_into
from kohort.wire.messages import group_records as wire
from kohort.wire.messages.consumer_protocol import ConsumerProtocolSubscription
from kohort.wire.schema import Message

_INT16: Final = Struct(">h")
_M = TypeVar("_M", bound=Message)

#: Newest version of each value that we read, by record type; Kafka's flexible ones skip what they do not know.
_VALUE_VERSIONS: Final = {0: 0, 1: 4, 2: 4, 3: 0, 5: 0, 6: 0, 7: 0, 8: 0}
#: Version of the embedded subscription that we read at most; newer ones only append fields.
_SUBSCRIPTION_VERSION: Final = 3


def encode(record: facts.Record) -> tuple[bytes, bytes | None]:
    """Key and value of one record, the value `None` for a tombstone; volatile records have none."""
    build_key = _KEYS.get(type(record))
    assert build_key is not None, f"{type(record).__name__} is not written to the log"
    build_value = _VALUES.get(type(record))
    return build_key(record), None if build_value is None else build_value(record)


def encode_durable(records: Iterable[facts.Record]) -> list[tuple[bytes, bytes | None]]:
    """Keys and values of the records of a decision that are written, in order."""
    return [encode(record) for record in records if not isinstance(record, facts.VolatileRecord)]


def decode(key: bytes, value: bytes | None) -> facts.Record | None:
    """The record that a key and a value say; `None` if its type is not known here.

    Raises:
        StorageError: the bytes are not what their type says.
    """
    kind = -1
    try:
        if len(key) < 2:
            raise RemoteProtocolError("the key is shorter than its type")
        (kind,) = _INT16.unpack_from(key)
        reader = _DECODERS.get(kind)
        return None if reader is None else reader(key, value)
    except (ProtocolError, ValueError) as why:
        what = f"a record of type {kind}" if kind >= 0 else "a record"
        raise StorageError(
            f"the group log __consumer_offsets has {what} that cannot be read ({why}): the partition is damaged, or a "
            "newer kohort or Kafka wrote it; start that version, or move the data directory away"
        ) from why


def subscribed_topics(metadata: bytes) -> tuple[str, ...] | None:
    """The topics of a classic consumer's embedded subscription; `None` if it is not one."""
    try:
        version = _INT16.unpack_from(metadata)[0] if len(metadata) >= 2 else -1
        if version < 0:
            return None
        found, _ = decode_message(ConsumerProtocolSubscription, min(version, _SUBSCRIPTION_VERSION), metadata, 2)
    except ProtocolError:
        return None
    return tuple(found.topics)


def _pack(prefix: int, message: Message, version: int) -> bytes:
    out = bytearray(_INT16.pack(prefix))
    encode_into(message, version, out)
    return bytes(out)


def _read_key(cls: type[_M], key: bytes) -> _M:
    return decode_message(cls, 0, key, 2)[0]


def _read_value(cls: type[_M], kind: int, value: bytes) -> _M:
    if len(value) < 2:
        raise RemoteProtocolError("the value is shorter than its version")
    (version,) = _INT16.unpack_from(value)
    if not 0 <= version <= _VALUE_VERSIONS[kind]:
        raise RemoteProtocolError(f"its version is {version}, and {_VALUE_VERSIONS[kind]} is the newest known")
    return decode_message(cls, version, value, 2)[0]


def _group_key(kind: int, cls: Callable[..., Message], record: facts.Record) -> bytes:
    return _pack(kind, cls(group_id=record.group_id), 0)


def _member_key(kind: int, cls: Callable[..., Message], record: Any) -> bytes:
    return _pack(kind, cls(group_id=record.group_id, member_id=record.member_id), 0)


def _encode_offset(record: facts.OffsetCommitted) -> bytes:
    if record.expire_timestamp_ms != -1:
        version = 1
    else:
        version = 4 if any(record.topic_id) else 3
    value = wire.OffsetCommitValue(
        offset=record.offset,
        leader_epoch=record.leader_epoch,
        metadata=record.metadata,
        commit_timestamp=record.commit_timestamp_ms,
        expire_timestamp=record.expire_timestamp_ms,
        topic_id=record.topic_id,
    )
    return _pack(version, value, version)


def _offset_key(record: facts.OffsetCommitted | facts.OffsetForgotten) -> bytes:
    key = wire.OffsetCommitKey(group=record.group_id, topic=record.topic, partition=record.partition)
    return _pack(1, key, 0)


def _decode_offset(key: bytes, value: bytes | None) -> facts.Record:
    found = _read_key(wire.OffsetCommitKey, key)
    if value is None:
        return facts.OffsetForgotten(group_id=found.group, topic=found.topic, partition=found.partition)
    # Types 0 and 1 share a key's layout, and version 0 of a value's: what the oldest brokers wrote reads alike.
    offset = _read_value(wire.OffsetCommitValue, 1, value)
    return facts.OffsetCommitted(
        group_id=found.group,
        topic=found.topic,
        partition=found.partition,
        offset=offset.offset,
        leader_epoch=offset.leader_epoch,
        metadata=offset.metadata,
        commit_timestamp_ms=offset.commit_timestamp,
        expire_timestamp_ms=offset.expire_timestamp,
        topic_id=TopicId(offset.topic_id),
    )


def _encode_classic(record: facts.ClassicGroupStored) -> bytes:
    value = wire.GroupMetadataValue(
        protocol_type=record.protocol_type,
        generation=record.generation,
        protocol=record.protocol_name,
        leader=record.leader,
        current_state_timestamp=record.state_timestamp_ms,
        members=[
            wire.MemberMetadata(
                member_id=member.member_id,
                group_instance_id=member.instance_id,
                client_id=member.client_id,
                client_host=member.client_host,
                rebalance_timeout=member.rebalance_timeout_ms,
                session_timeout=member.session_timeout_ms,
                subscription=member.subscription,
                assignment=member.assignment,
            )
            for member in record.members
        ],
    )
    return _pack(3, value, 3)


def _classic_key(record: facts.Record) -> bytes:
    return _pack(2, wire.GroupMetadataKey(group=record.group_id), 0)


def _decode_classic(key: bytes, value: bytes | None) -> facts.Record:
    group_id = _read_key(wire.GroupMetadataKey, key).group
    if value is None:
        return facts.ClassicGroupForgotten(group_id=group_id)
    group = _read_value(wire.GroupMetadataValue, 2, value)
    members = tuple(
        facts.StoredClassicMember(
            member_id=member.member_id,
            instance_id=member.group_instance_id,
            client_id=member.client_id,
            client_host=member.client_host,
            # Version 0 had one timeout for both.
            rebalance_timeout_ms=member.session_timeout if member.rebalance_timeout == -1 else member.rebalance_timeout,
            session_timeout_ms=member.session_timeout,
            subscription=bytes(member.subscription),
            assignment=bytes(member.assignment),
        )
        for member in group.members
    )
    return facts.ClassicGroupStored(
        group_id=group_id,
        protocol_type=group.protocol_type,
        generation=group.generation,
        protocol_name=group.protocol,
        leader=group.leader,
        state_timestamp_ms=group.current_state_timestamp,
        members=members,
    )


def _encode_epoch(record: facts.ConsumerGroupEpochSet) -> bytes:
    value = wire.ConsumerGroupMetadataValue(epoch=record.epoch, metadata_hash=record.metadata_hash)
    return _pack(0, value, 0)


def _decode_epoch(key: bytes, value: bytes | None) -> facts.Record:
    group_id = _read_key(wire.ConsumerGroupMetadataKey, key).group_id
    if value is None:
        return facts.ConsumerGroupForgotten(group_id=group_id)
    found = _read_value(wire.ConsumerGroupMetadataValue, 3, value)
    return facts.ConsumerGroupEpochSet(group_id=group_id, epoch=found.epoch, metadata_hash=found.metadata_hash)


def _encode_subscribed(record: facts.ConsumerMemberSubscribed) -> bytes:
    value = wire.ConsumerGroupMemberMetadataValue(
        instance_id=record.instance_id,
        rack_id=record.rack_id,
        client_id=record.client_id,
        client_host=record.client_host,
        subscribed_topic_names=list(record.subscribed_topic_names),
        subscribed_topic_regex=record.subscribed_topic_regex,
        rebalance_timeout_ms=record.rebalance_timeout_ms,
        server_assignor=record.server_assignor,
        # Kafka takes a record without this null for a classic member.
        classic_member_metadata=None,
    )
    return _pack(0, value, 0)


def _decode_subscribed(key: bytes, value: bytes | None) -> facts.Record:
    found = _read_key(wire.ConsumerGroupMemberMetadataKey, key)
    if value is None:
        return facts.ConsumerMemberForgotten(group_id=found.group_id, member_id=found.member_id)
    member = _read_value(wire.ConsumerGroupMemberMetadataValue, 5, value)
    return facts.ConsumerMemberSubscribed(
        group_id=found.group_id,
        member_id=found.member_id,
        instance_id=member.instance_id,
        rack_id=member.rack_id,
        client_id=member.client_id,
        client_host=member.client_host,
        subscribed_topic_names=tuple(member.subscribed_topic_names),
        # Kafka writes "" for none.
        subscribed_topic_regex=member.subscribed_topic_regex or None,
        rebalance_timeout_ms=member.rebalance_timeout_ms,
        server_assignor=member.server_assignor,
    )


def _encode_target_epoch(record: facts.TargetAssignmentEpochSet) -> bytes:
    value = wire.ConsumerGroupTargetAssignmentMetadataValue(
        assignment_epoch=record.assignment_epoch, assignment_timestamp=record.assignment_timestamp_ms
    )
    return _pack(0, value, 0)


def _decode_target_epoch(key: bytes, value: bytes | None) -> facts.Record:
    group_id = _read_key(wire.ConsumerGroupTargetAssignmentMetadataKey, key).group_id
    if value is None:
        return facts.TargetAssignmentEpochForgotten(group_id=group_id)
    found = _read_value(wire.ConsumerGroupTargetAssignmentMetadataValue, 6, value)
    return facts.TargetAssignmentEpochSet(
        group_id=group_id,
        assignment_epoch=found.assignment_epoch,
        assignment_timestamp_ms=found.assignment_timestamp,
    )


def _encode_target(record: facts.MemberTargetSet) -> bytes:
    value = wire.ConsumerGroupTargetAssignmentMemberValue(
        topic_partitions=[
            wire.TopicPartition(topic_id=topic_id, partitions=list(partitions))
            for topic_id, partitions in record.partitions.items()
        ]
    )
    return _pack(0, value, 0)


def _decode_target(key: bytes, value: bytes | None) -> facts.Record:
    found = _read_key(wire.ConsumerGroupTargetAssignmentMemberKey, key)
    if value is None:
        return facts.MemberTargetForgotten(group_id=found.group_id, member_id=found.member_id)
    target = _read_value(wire.ConsumerGroupTargetAssignmentMemberValue, 7, value)
    return facts.MemberTargetSet(
        group_id=found.group_id,
        member_id=found.member_id,
        partitions={TopicId(topic.topic_id): tuple(sorted(topic.partitions)) for topic in target.topic_partitions},
    )


def _encode_current(record: facts.CurrentAssignmentSet) -> bytes:
    value = wire.ConsumerGroupCurrentMemberAssignmentValue(
        member_epoch=record.member_epoch,
        previous_member_epoch=record.previous_member_epoch,
        state=int(record.state),
        assigned_partitions=_wire_grants(record.assigned),
        partitions_pending_revocation=_wire_grants(record.pending_revocation),
    )
    return _pack(0, value, 0)


def _decode_current(key: bytes, value: bytes | None) -> facts.Record:
    found = _read_key(wire.ConsumerGroupCurrentMemberAssignmentKey, key)
    if value is None:
        return facts.CurrentAssignmentForgotten(group_id=found.group_id, member_id=found.member_id)
    current = _read_value(wire.ConsumerGroupCurrentMemberAssignmentValue, 8, value)
    try:
        state = facts.MemberState(current.state)
    except ValueError:
        # KIP-848: a state that newer software stored forces the member to rejoin.
        state = facts.MemberState.UNKNOWN
    return facts.CurrentAssignmentSet(
        group_id=found.group_id,
        member_id=found.member_id,
        member_epoch=current.member_epoch,
        previous_member_epoch=current.previous_member_epoch,
        state=state,
        assigned=_grants(current.assigned_partitions, current.member_epoch),
        pending_revocation=_grants(current.partitions_pending_revocation, current.member_epoch),
    )


def _wire_grants(grants: Grants) -> list[wire.TopicPartitions]:
    return [
        wire.TopicPartitions(
            topic_id=topic_id, partitions=list(partitions), assignment_epochs=list(partitions.values())
        )
        for topic_id, partitions in grants.items()
    ]


def _grants(topics: list[wire.TopicPartitions], member_epoch: int) -> Grants:
    grants: Grants = {}
    for topic in topics:
        epochs = topic.assignment_epochs
        if not epochs:
            # Kafka before 4.3 did not keep them; the member's epoch lets no older commit pass.
            epochs = [member_epoch] * len(topic.partitions)
        grants[TopicId(topic.topic_id)] = dict(zip(topic.partitions, epochs, strict=True))
    return grants


_KEYS: Final[dict[type[facts.Record], Callable[[Any], bytes]]] = {
    facts.OffsetCommitted: _offset_key,
    facts.OffsetForgotten: _offset_key,
    facts.ClassicGroupStored: _classic_key,
    facts.ClassicGroupForgotten: _classic_key,
    facts.ConsumerGroupEpochSet: partial(_group_key, 3, wire.ConsumerGroupMetadataKey),
    facts.ConsumerGroupForgotten: partial(_group_key, 3, wire.ConsumerGroupMetadataKey),
    facts.ConsumerMemberSubscribed: partial(_member_key, 5, wire.ConsumerGroupMemberMetadataKey),
    facts.ConsumerMemberForgotten: partial(_member_key, 5, wire.ConsumerGroupMemberMetadataKey),
    facts.TargetAssignmentEpochSet: partial(_group_key, 6, wire.ConsumerGroupTargetAssignmentMetadataKey),
    facts.TargetAssignmentEpochForgotten: partial(_group_key, 6, wire.ConsumerGroupTargetAssignmentMetadataKey),
    facts.MemberTargetSet: partial(_member_key, 7, wire.ConsumerGroupTargetAssignmentMemberKey),
    facts.MemberTargetForgotten: partial(_member_key, 7, wire.ConsumerGroupTargetAssignmentMemberKey),
    facts.CurrentAssignmentSet: partial(_member_key, 8, wire.ConsumerGroupCurrentMemberAssignmentKey),
    facts.CurrentAssignmentForgotten: partial(_member_key, 8, wire.ConsumerGroupCurrentMemberAssignmentKey),
}

#: A record that is not here is a tombstone.
_VALUES: Final[dict[type[facts.Record], Callable[[Any], bytes]]] = {
    facts.OffsetCommitted: _encode_offset,
    facts.ClassicGroupStored: _encode_classic,
    facts.ConsumerGroupEpochSet: _encode_epoch,
    facts.ConsumerMemberSubscribed: _encode_subscribed,
    facts.TargetAssignmentEpochSet: _encode_target_epoch,
    facts.MemberTargetSet: _encode_target,
    facts.CurrentAssignmentSet: _encode_current,
}

#: By record type. Type 4 (topics of a group, until Kafka 4.0) and 16 (regular expressions) say nothing to us yet.
_DECODERS: Final[dict[int, Callable[[bytes, bytes | None], facts.Record]]] = {
    0: _decode_offset,
    1: _decode_offset,
    2: _decode_classic,
    3: _decode_epoch,
    5: _decode_subscribed,
    6: _decode_target_epoch,
    7: _decode_target,
    8: _decode_current,
}
