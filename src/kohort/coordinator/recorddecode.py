"""Decoder of group records from Kafka's format of `__consumer_offsets`; `recordcodec` writes them.

Laws: an unknown type is skipped, not an error: newer software may have written it. A broken record, or one of a newer
version than the known ones, is an error that names the type: a group must not lose facts silently. (Kafka's flexible
versions grow by tagged fields, which are skipped; a new version means that the old one has no place for the content.)
Source: Apache Kafka's group coordinator records; its loader skips unknown types and stops at newer versions alike.
"""

from __future__ import annotations

from collections.abc import Callable
from struct import Struct
from typing import Final, TypeVar

from kohort.coordinator import records as facts
from kohort.coordinator.assigncommands import ClientAssignment, ClientAssignor
from kohort.coordinator.model import Grants
from kohort.errors import ProtocolError, RemoteProtocolError, StorageError
from kohort.ids import TopicId
from kohort.wire.codec import decode as decode_message
from kohort.wire.messages import group_records as wire
from kohort.wire.messages import own_group_records as own
from kohort.wire.private import RECORD_TYPES
from kohort.wire.schema import Message

_INT16: Final = Struct(">h")
_M = TypeVar("_M", bound=Message)

#: Newest known version of each value, by record type; Kafka's flexible ones skip unknown tagged fields. Those of
#: kohort's own types are all 0.
_VALUE_VERSIONS: Final = {0: 0, 1: 4, 2: 4, 3: 0, 5: 0, 6: 0, 7: 0, 8: 0, 16: 0} | dict.fromkeys(RECORD_TYPES, 0)


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
        reader = _DECODERS.get(kind)
        return None if reader is None else reader(key, value)
    except (ProtocolError, ValueError) as why:
        what = f"a record of type {kind}" if kind >= 0 else "a record"
        raise StorageError(
            f"the group log __consumer_offsets has {what} that cannot be read ({why}): the partition is damaged, or a "
            "newer kohort or Kafka wrote it; start that version, or move the data directory away"
        ) from why


def _read_key(cls: type[_M], key: bytes) -> _M:
    return decode_message(cls, 0, key, 2)[0]


def _read_value(cls: type[_M], kind: int, value: bytes) -> _M:
    if len(value) < 2:
        raise RemoteProtocolError("the value is shorter than its version")
    (version,) = _INT16.unpack_from(value)
    if not 0 <= version <= _VALUE_VERSIONS[kind]:
        raise RemoteProtocolError(f"its version is {version}, and {_VALUE_VERSIONS[kind]} is the newest known")
    return decode_message(cls, version, value, 2)[0]


def _decode_offset(key: bytes, value: bytes | None) -> facts.Record:
    found = _read_key(wire.OffsetCommitKey, key)
    if value is None:
        return facts.OffsetForgotten(group_id=found.group, topic=found.topic, partition=found.partition)
    # Types 0 and 1 share the layout of the key and of value version 0: records of the oldest brokers read alike.
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


def _decode_epoch(key: bytes, value: bytes | None) -> facts.Record:
    group_id = _read_key(wire.ConsumerGroupMetadataKey, key).group_id
    if value is None:
        return facts.ConsumerGroupForgotten(group_id=group_id)
    found = _read_value(wire.ConsumerGroupMetadataValue, 3, value)
    return facts.ConsumerGroupEpochSet(group_id=group_id, epoch=found.epoch, metadata_hash=found.metadata_hash)


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
        classic=_classic_facts(member.classic_member_metadata),
    )


def _classic_facts(found: wire.ClassicMemberMetadata | None) -> facts.ClassicMemberFacts | None:
    if found is None or not found.supported_protocols:
        # Older software left the field out, which reads as a classic member without protocols: there is no such member.
        return None
    return facts.ClassicMemberFacts(
        session_timeout_ms=found.session_timeout_ms,
        protocols=tuple((protocol.name, bytes(protocol.metadata)) for protocol in found.supported_protocols),
    )


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


def _grants(topics: list[wire.TopicPartitions], member_epoch: int) -> Grants:
    grants: Grants = {}
    for topic in topics:
        epochs = topic.assignment_epochs
        if not epochs:
            # Kafka before 4.3 did not store them; the member's epoch lets no older commit pass.
            epochs = [member_epoch] * len(topic.partitions)
        grants[TopicId(topic.topic_id)] = dict(zip(topic.partitions, epochs, strict=True))
    return grants


def _decode_configs(key: bytes, value: bytes | None) -> facts.Record:
    group_id = _read_key(own.GroupConfigsKey, key).group_id
    if value is None:
        return facts.GroupConfigsForgotten(group_id=group_id)
    rows = _read_value(own.GroupConfigsValue, 20_001, value).configs
    return facts.GroupConfigsSet(group_id=group_id, configs={row.name: row.value for row in rows})


def _decode_move(key: bytes, value: bytes | None) -> facts.Record:
    found = _read_key(own.SubmittedMoveKey, key)
    group_id, topic_id, partition = found.group_id, TopicId(found.topic_id), found.partition
    if value is None:
        return facts.SubmittedMoveForgotten(group_id=group_id, topic_id=topic_id, partition=partition)
    told = _read_value(own.SubmittedMoveValue, 20_002, value)
    move = facts.MoveFacts(*(getattr(told, name) for name in facts.MoveFacts._fields))
    return facts.SubmittedMoveSet(group_id=group_id, topic_id=topic_id, partition=partition, move=move)


def _decode_offline(key: bytes, value: bytes | None) -> facts.Record:
    found = _read_key(own.OfflineMemberKey, key)
    group_id, member_id = found.group_id, found.member_id
    if value is None:
        return facts.OfflineMemberForgotten(group_id=group_id, member_id=member_id)
    told = _read_value(own.OfflineMemberValue, 20_003, value)
    return facts.OfflineMemberSet(group_id=group_id, member_id=member_id, since_ms=told.since_ms)


def _decode_clock(key: bytes, value: bytes | None) -> facts.Record:
    group_id = _read_key(own.StaticClockKey, key).group_id
    if value is None:
        return facts.StaticClockForgotten(group_id=group_id)
    told = _read_value(own.StaticClockValue, 20_004, value)
    return facts.StaticClockSet(
        group_id=group_id, noted_ms=told.noted_ms, lost_ms=told.lost_ms, window_opened_ms=told.window_opened_ms
    )


def _decode_rebalance(key: bytes, value: bytes | None) -> facts.Record:
    group_id = _read_key(own.ClassicRebalanceKey, key).group_id
    if value is None:
        return facts.ClassicRebalanceDone(group_id=group_id)
    told = _read_value(own.ClassicRebalanceValue, 20_005, value)
    return facts.ClassicRebalanceDue(group_id=group_id, reason=told.reason, removed=tuple(told.removed))


def _decode_client_assignors(key: bytes, value: bytes | None) -> facts.Record:
    found = _read_key(own.ClientAssignorsKey, key)
    if value is None:
        return facts.ClientAssignorsForgotten(group_id=found.group_id, member_id=found.member_id)
    rows = _read_value(own.ClientAssignorsValue, 20_006, value).assignors
    assignors = tuple(
        ClientAssignor(
            row.name,
            row.minimum_version,
            row.maximum_version,
            row.reason,
            row.metadata_version,
            bytes(row.metadata_bytes),
        )
        for row in rows
    )
    return facts.ClientAssignorsSet(group_id=found.group_id, member_id=found.member_id, assignors=assignors)


def _decode_client_assignment(key: bytes, value: bytes | None) -> facts.Record:
    found = _read_key(own.ClientAssignmentKey, key)
    if value is None:
        return facts.ClientAssignmentForgotten(group_id=found.group_id, member_id=found.member_id)
    told = _read_value(own.ClientAssignmentValue, 20_007, value)
    said = ClientAssignment(told.error, told.metadata_version, bytes(told.metadata_bytes))
    return facts.ClientAssignmentSet(group_id=found.group_id, member_id=found.member_id, said=said)


def _decode_metadata(key: bytes, value: bytes | None) -> facts.Record:
    found = _read_key(own.MemberMetadataKey, key)
    if value is None:
        return facts.MemberMetadataForgotten(group_id=found.group_id, member_id=found.member_id)
    told = _read_value(own.MemberMetadataValue, 20_008, value)
    return facts.MemberMetadataSet(
        group_id=found.group_id,
        member_id=found.member_id,
        metadata=bytes(told.metadata),
        published_ms=told.published_ms,
    )


def _decode_regex(key: bytes, value: bytes | None) -> facts.Record:
    found = _read_key(wire.ConsumerGroupRegularExpressionKey, key)
    if value is None:
        return facts.RegularExpressionForgotten(group_id=found.group_id, regex=found.regular_expression)
    resolved = _read_value(wire.ConsumerGroupRegularExpressionValue, 16, value)
    return facts.RegularExpressionResolved(
        group_id=found.group_id,
        regex=found.regular_expression,
        # Kafka writes a set, in no order.
        topics=tuple(sorted(set(resolved.topics))),
        image_version=resolved.version,
        timestamp_ms=resolved.timestamp,
    )


#: By record type. Type 4 (topics of a group, until Kafka 4.0) is not used.
_DECODERS: Final[dict[int, Callable[[bytes, bytes | None], facts.Record]]] = {
    0: _decode_offset,
    1: _decode_offset,
    2: _decode_classic,
    3: _decode_epoch,
    5: _decode_subscribed,
    6: _decode_target_epoch,
    7: _decode_target,
    8: _decode_current,
    16: _decode_regex,
    20_001: _decode_configs,
    20_002: _decode_move,
    20_003: _decode_offline,
    20_004: _decode_clock,
    20_005: _decode_rebalance,
    20_006: _decode_client_assignors,
    20_007: _decode_client_assignment,
    20_008: _decode_metadata,
}
