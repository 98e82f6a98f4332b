"""Where Kafka's messages surprise: bytes written out by hand; the interop tests ask Kafka's own classes."""

from __future__ import annotations

import pytest

from kohort.errors import LocalProtocolError
from kohort.wire.codec import decode, encode
from kohort.wire.messages.consumer_group_heartbeat import (
    Assignment,
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    TopicPartitions,
)
from kohort.wire.messages.describe_topic_partitions import Cursor, DescribeTopicPartitionsRequest
from kohort.wire.messages.fetch import FetchableTopicResponse, FetchRequest, FetchResponse, FetchTopic, PartitionData
from kohort.wire.messages.find_coordinator import FindCoordinatorRequest
from kohort.wire.messages.group_records import (
    ClassicMemberMetadata,
    ConsumerGroupCurrentMemberAssignmentValue,
    ConsumerGroupMemberMetadataValue,
    OffsetCommitKey,
    OffsetCommitValue,
)
from kohort.wire.messages.group_records import TopicPartitions as OwnedPartitions
from kohort.wire.messages.join_group import JoinGroupRequest, JoinGroupResponse
from kohort.wire.messages.metadata import MetadataRequest
from kohort.wire.messages.offset_delete import OffsetDeleteResponse
from kohort.wire.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup
from kohort.wire.messages.produce import PartitionProduceData, ProduceRequest, ProduceResponse, TopicProduceData

TOPIC_ID = bytes(range(16))


def test_metadata_asks_for_all_topics_by_an_empty_list_before_version_1() -> None:
    """Version 0 has no null: all topics are an empty list there, which later means none."""
    assert encode(MetadataRequest(topics=[]), 0) == b"\0\0\0\0"
    assert encode(MetadataRequest(topics=None), 1) == b"\xff\xff\xff\xff"
    with pytest.raises(LocalProtocolError):
        encode(MetadataRequest(topics=None), 0)


def test_produce_names_topics_by_id_alone_from_version_13_on() -> None:
    """KIP-516: what of name and id the version lacks is left out without a word."""
    topic = TopicProduceData(name="t", topic_id=TOPIC_ID, partition_data=[PartitionProduceData(index=3, records=b"r")])
    request = ProduceRequest(acks=-1, timeout_ms=5, topic_data=[topic])

    head, tail = b"\0\xff\xff\0\0\0\x05\x02", b"\x02\0\0\0\x03\x02r\0\0\0"
    assert encode(request, 12) == head + b"\x02t" + tail
    assert encode(request, 13) == head + TOPIC_ID + tail

    by_id, _ = decode(ProduceRequest, 13, encode(request, 13))
    assert (by_id.topic_data[0].name, by_id.topic_data[0].topic_id) == ("", TOPIC_ID)


def test_the_throttle_time_of_produce_stands_at_the_end() -> None:
    """It was added to the first response ever made, behind what was there."""
    assert encode(ProduceResponse(throttle_time_ms=7), 3) == b"\0\0\0\0" + b"\0\0\0\x07"


def test_offset_delete_answers_with_the_error_before_the_throttle_time() -> None:
    assert encode(OffsetDeleteResponse(error_code=1, throttle_time_ms=2), 0) == b"\0\x01" + b"\0\0\0\x02" + b"\0\0\0\0"


def test_fetch_keeps_the_replica_id_in_the_body_up_to_version_14() -> None:
    """KIP-903: from version 15 on a consumer, which is no replica, sends nothing of the kind."""
    request = FetchRequest(max_wait_ms=1, min_bytes=2, topics=[FetchTopic(topic="t", topic_id=TOPIC_ID)])

    assert encode(request, 14).startswith(b"\xff\xff\xff\xff" + b"\0\0\0\x01" + b"\0\0\0\x02")
    assert encode(request, 15).startswith(b"\0\0\0\x01" + b"\0\0\0\x02")


def test_fetched_records_are_a_view_and_null_is_not_empty() -> None:
    """Kafka answers no records with an empty field; null is allowed all the same, and stays apart."""
    partitions = [PartitionData(partition_index=0, records=b"batch"), PartitionData(records=b""), PartitionData()]
    response = FetchResponse(responses=[FetchableTopicResponse(topic_id=TOPIC_ID, partitions=partitions)])

    found, _ = decode(FetchResponse, 18, encode(response, 18))

    records = [each.records for each in found.responses[0].partitions]
    assert isinstance(records[0], memoryview)
    assert records == [b"batch", b"", None]


def test_find_coordinator_forgets_the_single_key_with_version_4() -> None:
    """KIP-699: an old field that was set does not travel in a new version."""
    request = FindCoordinatorRequest(key="g", key_type=0, coordinator_keys=["g"])

    assert encode(request, 3) == b"\x02g" + b"\0" + b"\0"
    assert encode(request, 4) == b"\0" + b"\x02\x02g" + b"\0"


def test_offset_fetch_moves_into_groups_with_version_8() -> None:
    """KIP-709: the flag that stood last still stands last."""
    request = OffsetFetchRequest(
        group_id="g", topics=None, groups=[OffsetFetchRequestGroup(group_id="g", topics=None)], require_stable=True
    )

    assert encode(request, 7) == b"\x02g" + b"\0" + b"\x01" + b"\0"
    assert encode(request, 8) == b"\x02" + b"\x02g\0\0" + b"\x01" + b"\0"
    assert encode(request, 9) == b"\x02" + b"\x02g\0\xff\xff\xff\xff\0\0" + b"\x01" + b"\0"


def test_join_group_has_no_null_protocol_before_version_7() -> None:
    """KIP-559: an error is answered with a null protocol from version 7 on, and with an empty one before."""
    response = JoinGroupResponse(error_code=25, protocol_type=None, protocol_name=None)

    assert decode(JoinGroupResponse, 7, encode(response, 7))[0].protocol_name is None
    with pytest.raises(LocalProtocolError):
        encode(response, 6)


def test_join_group_without_a_rebalance_timeout_reads_as_minus_1() -> None:
    """KIP-62: the session timeout takes its place, which is the reader's business."""
    old = encode(JoinGroupRequest(group_id="g", session_timeout_ms=9, rebalance_timeout_ms=8), 0)

    assert decode(JoinGroupRequest, 0, old)[0].rebalance_timeout_ms == -1


def test_a_null_structure_is_one_byte_and_another_one_has_a_byte_before_it() -> None:
    """KIP-893: int8 -1 or 1."""
    response = ConsumerGroupHeartbeatResponse(member_id="m", member_epoch=1, heartbeat_interval_ms=2)
    head = b"\0\0\0\0" + b"\0\0" + b"\0" + b"\x02m" + b"\0\0\0\x01" + b"\0\0\0\x02"
    assert encode(response, 0) == head + b"\xff" + b"\0"

    response.assignment = Assignment(topic_partitions=[TopicPartitions(topic_id=TOPIC_ID, partitions=[4])])
    assert encode(response, 0) == head + b"\x01" + b"\x02" + TOPIC_ID + b"\x02\0\0\0\x04" + b"\0\0" + b"\0"

    paged = DescribeTopicPartitionsRequest(cursor=Cursor(topic_name="t", partition_index=1))
    assert encode(paged, 0) == b"\x01" + b"\0\0\x07\xd0" + b"\x01\x02t\0\0\0\x01\0" + b"\0"


def test_heartbeat_keeps_null_apart_from_empty() -> None:
    """KIP-848: null is "as before", empty is "nothing"; a leaving or joining member depends on the difference."""
    as_before = ConsumerGroupHeartbeatRequest(topic_partitions=None, subscribed_topic_names=None)
    nothing = ConsumerGroupHeartbeatRequest(topic_partitions=[], subscribed_topic_names=[])

    assert decode(ConsumerGroupHeartbeatRequest, 1, encode(as_before, 1))[0] == as_before
    assert decode(ConsumerGroupHeartbeatRequest, 1, encode(nothing, 1))[0] == nothing
    assert as_before != nothing


def test_offset_commit_record_is_as_kafka_writes_it() -> None:
    """Version 3 has no expiry and no topic id; version 1 had the expiry alone."""
    assert encode(OffsetCommitKey(group="g", topic="t", partition=2), 0) == b"\0\x01g\0\x01t\0\0\0\x02"

    value = OffsetCommitValue(offset=5, leader_epoch=6, metadata="", commit_timestamp=7, expire_timestamp=8)
    value.topic_id = TOPIC_ID
    offset, commit, expire = (number.to_bytes(8, "big") for number in (5, 7, 8))
    assert encode(value, 1) == offset + b"\0\0" + commit + expire
    assert encode(value, 3) == offset + b"\0\0\0\x06" + b"\0\0" + commit
    assert encode(value, 4) == offset + b"\0\0\0\x06" + b"\x01" + commit + b"\x01\0\x10" + TOPIC_ID


def test_a_member_of_the_new_protocol_says_so_by_a_null_in_a_tagged_field() -> None:
    """Kafka reads a record without the field as a classic member, and marks this null by the varint 0, not by -1."""
    value = ConsumerGroupMemberMetadataValue(classic_member_metadata=None)
    head = b"\x01\x01\x01\x01\x01\x01\xff\xff\xff\xff\x01"

    assert encode(value, 0) == head + b"\x01" + b"\0\x01" + b"\0"
    assert decode(ConsumerGroupMemberMetadataValue, 0, encode(value, 0))[0].classic_member_metadata is None

    absent, _ = decode(ConsumerGroupMemberMetadataValue, 0, head + b"\0")
    assert absent.classic_member_metadata == ClassicMemberMetadata(session_timeout_ms=0, supported_protocols=[])

    value.classic_member_metadata = ClassicMemberMetadata(session_timeout_ms=3)
    assert encode(value, 0) == head + b"\x01" + b"\0\x07" + b"\x01\0\0\0\x03\x01\0"


def test_epochs_of_partitions_that_kafka_before_4_3_wrote_are_empty() -> None:
    """KIP-1251: a record of an older coordinator has no such field."""
    older = b"\0\0\0\x01" + b"\0\0\0\x01" + b"\0" + b"\x02" + TOPIC_ID + b"\x02\0\0\0\x04" + b"\0" + b"\x01" + b"\0"

    found, end = decode(ConsumerGroupCurrentMemberAssignmentValue, 0, older)

    assert end == len(older)
    assert found.assigned_partitions == [OwnedPartitions(topic_id=TOPIC_ID, partitions=[4], assignment_epochs=[])]
