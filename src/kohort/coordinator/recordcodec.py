"""Encoder of group records to Kafka's format of `__consumer_offsets`; `recorddecode` reads them.

A key is an int16 record type and a struct; a value an int16 version and a struct, or null for a tombstone. The versions
are those that Apache Kafka 4.3 writes: OffsetCommit 1 with an expiry, 4 with a topic id, else 3; GroupMetadata 3; all
others 0.

Laws: `decode(encode(record))` is the record, except for attributes without a field in Kafka's formats: an offset's
leader epoch and topic id where it has an expiry.
Source: Apache Kafka's group coordinator records.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import lru_cache, partial
from struct import Struct
from typing import Any, Final

from kohort.coordinator import records as facts
from kohort.coordinator.model import Grants
from kohort.coordinator.recorddecode import decode
from kohort.ids import ZERO_TOPIC_ID
from kohort.wire.codec import encode_into
from kohort.wire.messages import group_records as wire
from kohort.wire.messages import own_group_records as own
from kohort.wire.schema import Message

__all__ = ["decode", "encode", "encode_durable"]

_INT16: Final = Struct(">h")
_INT32: Final = Struct(">i")
#: Number of cached keys of (group, topic) without the partition.
_KNOWN_KEYS: Final = 10_000
#: An offset of value version 4: version, offset, leader epoch, length of the metadata + 1; then the metadata; then
#: time, one tagged field, its number 0, its size, the topic's id.
_OFFSET_HEAD: Final = Struct(">hqiB")
_OFFSET_TAIL: Final = Struct(">qBBB16s")
#: Compact lengths below it are one byte.
_ONE_BYTE: Final = 0x7F


def encode(record: facts.Record) -> tuple[bytes, bytes | None]:
    """Encode the key and value of one record, the value `None` for a tombstone; never of a volatile one."""
    build_key = _KEYS.get(type(record))
    assert build_key is not None, f"{type(record).__name__} is not written to the log"
    build_value = _VALUES.get(type(record))
    return build_key(record), None if build_value is None else build_value(record)


def encode_durable(records: Iterable[facts.Record]) -> list[tuple[bytes, bytes | None]]:
    """Encode the keys and values of a decision's durable records, in order."""
    return [encode(record) for record in records if not isinstance(record, facts.VolatileRecord)]


def _pack(prefix: int, message: Message, version: int) -> bytes:
    out = bytearray(_INT16.pack(prefix))
    encode_into(message, version, out)
    return bytes(out)


def _group_key(kind: int, cls: Callable[..., Message], record: facts.Record) -> bytes:
    return _pack(kind, cls(group_id=record.group_id), 0)


def _member_key(kind: int, cls: Callable[..., Message], record: Any) -> bytes:
    return _pack(kind, cls(group_id=record.group_id, member_id=record.member_id), 0)


def _encode_offset(record: facts.OffsetCommitted) -> bytes:
    if record.expire_timestamp_ms != -1:
        version = 1
    else:
        version = 4 if record.topic_id != ZERO_TOPIC_ID else 3
    metadata = record.metadata
    if version == 4 and len(metadata) < _ONE_BYTE and metadata.isascii():
        # Most records of most logs have this form; the general encoder took a third of the time of a commit.
        head = _OFFSET_HEAD.pack(4, record.offset, record.leader_epoch, len(metadata) + 1)
        tail = _OFFSET_TAIL.pack(record.commit_timestamp_ms, 1, 0, 16, record.topic_id)
        return head + metadata.encode() + tail
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
    return _topic_key(record.group_id, record.topic) + _INT32.pack(record.partition)


@lru_cache(maxsize=_KNOWN_KEYS)
def _topic_key(group_id: str, topic: str) -> bytes:
    """Build a key of type 1 without the partition, which comes last."""
    return _pack(1, wire.OffsetCommitKey(group=group_id, topic=topic, partition=0), 0)[: -_INT32.size]


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


def _encode_epoch(record: facts.ConsumerGroupEpochSet) -> bytes:
    value = wire.ConsumerGroupMetadataValue(epoch=record.epoch, metadata_hash=record.metadata_hash)
    return _pack(0, value, 0)


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
        classic_member_metadata=None if record.classic is None else _wire_classic_facts(record.classic),
    )
    return _pack(0, value, 0)


def _wire_classic_facts(classic: facts.ClassicMemberFacts) -> wire.ClassicMemberMetadata:
    return wire.ClassicMemberMetadata(
        session_timeout_ms=classic.session_timeout_ms,
        supported_protocols=[wire.ClassicProtocol(name=name, metadata=blob) for name, blob in classic.protocols],
    )


def _encode_target_epoch(record: facts.TargetAssignmentEpochSet) -> bytes:
    value = wire.ConsumerGroupTargetAssignmentMetadataValue(
        assignment_epoch=record.assignment_epoch, assignment_timestamp=record.assignment_timestamp_ms
    )
    return _pack(0, value, 0)


def _encode_target(record: facts.MemberTargetSet) -> bytes:
    value = wire.ConsumerGroupTargetAssignmentMemberValue(
        topic_partitions=[
            wire.TopicPartition(topic_id=topic_id, partitions=list(partitions))
            for topic_id, partitions in record.partitions.items()
        ]
    )
    return _pack(0, value, 0)


def _encode_current(record: facts.CurrentAssignmentSet) -> bytes:
    value = wire.ConsumerGroupCurrentMemberAssignmentValue(
        member_epoch=record.member_epoch,
        previous_member_epoch=record.previous_member_epoch,
        state=int(record.state),
        assigned_partitions=_wire_grants(record.assigned),
        partitions_pending_revocation=_wire_grants(record.pending_revocation),
    )
    return _pack(0, value, 0)


def _encode_configs(record: facts.GroupConfigsSet) -> bytes:
    rows = [own.GroupConfig(name=name, value=value) for name, value in sorted(record.configs.items())]
    return _pack(0, own.GroupConfigsValue(configs=rows), 0)


def _move_key(record: facts.SubmittedMoveSet | facts.SubmittedMoveForgotten) -> bytes:
    key = own.SubmittedMoveKey(group_id=record.group_id, topic_id=record.topic_id, partition=record.partition)
    return _pack(20_002, key, 0)


def _encode_move(record: facts.SubmittedMoveSet) -> bytes:
    return _pack(0, own.SubmittedMoveValue(**record.move._asdict()), 0)


def _encode_offline(record: facts.OfflineMemberSet) -> bytes:
    return _pack(0, own.OfflineMemberValue(since_ms=record.since_ms), 0)


def _encode_clock(record: facts.StaticClockSet) -> bytes:
    value = own.StaticClockValue(
        noted_ms=record.noted_ms, lost_ms=record.lost_ms, window_opened_ms=record.window_opened_ms
    )
    return _pack(0, value, 0)


def _encode_rebalance(record: facts.ClassicRebalanceDue) -> bytes:
    return _pack(0, own.ClassicRebalanceValue(reason=record.reason, removed=list(record.removed)), 0)


def _encode_client_assignors(record: facts.ClientAssignorsSet) -> bytes:
    rows = [
        own.StoredClientAssignor(
            name=each.name,
            minimum_version=each.minimum_version,
            maximum_version=each.maximum_version,
            reason=each.reason,
            metadata_version=each.version,
            metadata_bytes=each.metadata,
        )
        for each in record.assignors
    ]
    return _pack(0, own.ClientAssignorsValue(assignors=rows), 0)


def _encode_client_assignment(record: facts.ClientAssignmentSet) -> bytes:
    error, version, metadata = record.said
    return _pack(0, own.ClientAssignmentValue(error=error, metadata_version=version, metadata_bytes=metadata), 0)


def _encode_metadata(record: facts.MemberMetadataSet) -> bytes:
    return _pack(0, own.MemberMetadataValue(metadata=record.metadata, published_ms=record.published_ms), 0)


def _wire_grants(grants: Grants) -> list[wire.TopicPartitions]:
    return [
        wire.TopicPartitions(
            topic_id=topic_id, partitions=list(partitions), assignment_epochs=list(partitions.values())
        )
        for topic_id, partitions in grants.items()
    ]


def _regex_key(record: facts.RegularExpressionResolved | facts.RegularExpressionForgotten) -> bytes:
    key = wire.ConsumerGroupRegularExpressionKey(group_id=record.group_id, regular_expression=record.regex)
    return _pack(16, key, 0)


def _encode_regex(record: facts.RegularExpressionResolved) -> bytes:
    value = wire.ConsumerGroupRegularExpressionValue(
        topics=list(record.topics), version=record.image_version, timestamp=record.timestamp_ms
    )
    return _pack(0, value, 0)


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
    facts.GroupConfigsSet: partial(_group_key, 20_001, own.GroupConfigsKey),
    facts.GroupConfigsForgotten: partial(_group_key, 20_001, own.GroupConfigsKey),
    facts.SubmittedMoveSet: _move_key,
    facts.SubmittedMoveForgotten: _move_key,
    facts.OfflineMemberSet: partial(_member_key, 20_003, own.OfflineMemberKey),
    facts.OfflineMemberForgotten: partial(_member_key, 20_003, own.OfflineMemberKey),
    facts.StaticClockSet: partial(_group_key, 20_004, own.StaticClockKey),
    facts.StaticClockForgotten: partial(_group_key, 20_004, own.StaticClockKey),
    facts.ClassicRebalanceDue: partial(_group_key, 20_005, own.ClassicRebalanceKey),
    facts.ClassicRebalanceDone: partial(_group_key, 20_005, own.ClassicRebalanceKey),
    facts.ClientAssignorsSet: partial(_member_key, 20_006, own.ClientAssignorsKey),
    facts.ClientAssignorsForgotten: partial(_member_key, 20_006, own.ClientAssignorsKey),
    facts.ClientAssignmentSet: partial(_member_key, 20_007, own.ClientAssignmentKey),
    facts.ClientAssignmentForgotten: partial(_member_key, 20_007, own.ClientAssignmentKey),
    facts.MemberMetadataSet: partial(_member_key, 20_008, own.MemberMetadataKey),
    facts.MemberMetadataForgotten: partial(_member_key, 20_008, own.MemberMetadataKey),
    facts.RegularExpressionResolved: _regex_key,
    facts.RegularExpressionForgotten: _regex_key,
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
    facts.GroupConfigsSet: _encode_configs,
    facts.SubmittedMoveSet: _encode_move,
    facts.OfflineMemberSet: _encode_offline,
    facts.StaticClockSet: _encode_clock,
    facts.ClassicRebalanceDue: _encode_rebalance,
    facts.ClientAssignorsSet: _encode_client_assignors,
    facts.ClientAssignmentSet: _encode_client_assignment,
    facts.MemberMetadataSet: _encode_metadata,
    facts.RegularExpressionResolved: _encode_regex,
}
