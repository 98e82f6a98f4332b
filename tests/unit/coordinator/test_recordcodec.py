"""Facts in Kafka's own bytes, both ways."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kohort.coordinator.commands import ClassicMemberFacts, ClientAssignment, ClientAssignor
from kohort.coordinator.records import codec
from kohort.coordinator.records.reader import RecordReader
from kohort.coordinator.records.types import (
    ClassicGroupForgotten,
    ClassicGroupStored,
    ClassicRebalanceDone,
    ClassicRebalanceDue,
    ClientAssignmentSet,
    ClientAssignorsSet,
    ConsumerGroupEpochSet,
    ConsumerGroupForgotten,
    ConsumerMemberForgotten,
    ConsumerMemberSubscribed,
    CurrentAssignmentForgotten,
    CurrentAssignmentSet,
    GroupConfigsSet,
    MemberMetadataForgotten,
    MemberMetadataSet,
    MemberState,
    MemberTargetForgotten,
    MemberTargetSet,
    MoveFacts,
    OfflineMemberSet,
    OffsetCommitted,
    OffsetForgotten,
    Record,
    RegularExpressionForgotten,
    RegularExpressionResolved,
    StaticClockSet,
    StoredClassicMember,
    SubmittedMoveForgotten,
    SubmittedMoveSet,
    TargetAssignmentEpochForgotten,
    TargetAssignmentEpochSet,
    TopicImageReplaced,
)
from kohort.coordinator.topics import TopicImage
from kohort.errors import StorageError
from kohort.ids import ZERO_TOPIC_ID, TopicId
from kohort.wire.codec import encode as encode_message
from kohort.wire.messages import group_records

TEXT = st.text(st.characters(codec="utf-8"), max_size=12)
MAYBE = st.none() | TEXT.filter(bool)
INT8 = st.integers(-(2**7), 2**7 - 1)
INT16 = st.integers(-(2**15), 2**15 - 1)
INT32 = st.integers(-(2**31), 2**31 - 1)
COUNT = st.integers(0, 2**31 - 1)
INT64 = st.integers(-(2**63), 2**63 - 1)
ID = st.binary(min_size=16, max_size=16).map(TopicId)
PARTITIONS = st.sets(COUNT, min_size=1, max_size=4)
TARGET = st.dictionaries(ID, PARTITIONS.map(lambda found: tuple(sorted(found))), max_size=3)
GRANTS = st.dictionaries(ID, st.dictionaries(COUNT, COUNT, min_size=1, max_size=4), max_size=3)
STORED_MEMBER = st.builds(
    StoredClassicMember,
    member_id=TEXT,
    instance_id=MAYBE,
    client_id=TEXT,
    client_host=TEXT,
    rebalance_timeout_ms=COUNT,
    session_timeout_ms=COUNT,
    subscription=st.binary(max_size=20),
    assignment=st.binary(max_size=20),
)
CLASSIC_FACTS = st.builds(
    ClassicMemberFacts,
    session_timeout_ms=COUNT,
    protocols=st.lists(st.tuples(TEXT, st.binary(max_size=20)), min_size=1, max_size=3).map(tuple),
)
CLIENT_ASSIGNOR = st.builds(ClientAssignor, TEXT, INT16, INT16, INT8, INT16, st.binary(max_size=20))
GROUP = {"group_id": TEXT}
MEMBER = {"group_id": TEXT, "member_id": TEXT}
RECORDS = st.one_of(
    st.builds(
        OffsetCommitted,
        **GROUP,
        topic=TEXT,
        partition=COUNT,
        offset=INT64,
        leader_epoch=INT32,
        metadata=TEXT,
        commit_timestamp_ms=INT64,
        expire_timestamp_ms=st.just(-1),
        topic_id=st.just(ZERO_TOPIC_ID) | ID,
    ),
    st.builds(OffsetForgotten, **GROUP, topic=TEXT, partition=COUNT),
    st.builds(
        ClassicGroupStored,
        **GROUP,
        protocol_type=TEXT,
        generation=COUNT,
        protocol_name=MAYBE,
        leader=MAYBE,
        state_timestamp_ms=INT64,
        members=st.lists(STORED_MEMBER, max_size=3).map(tuple),
    ),
    st.builds(ClassicGroupForgotten, **GROUP),
    st.builds(ConsumerGroupEpochSet, **GROUP, epoch=INT32, metadata_hash=INT64),
    st.builds(ConsumerGroupForgotten, **GROUP),
    st.builds(
        ConsumerMemberSubscribed,
        **MEMBER,
        instance_id=MAYBE,
        rack_id=MAYBE,
        client_id=TEXT,
        client_host=TEXT,
        subscribed_topic_names=st.lists(TEXT, max_size=3).map(tuple),
        subscribed_topic_regex=MAYBE,
        rebalance_timeout_ms=INT32,
        server_assignor=MAYBE,
        classic=st.none() | CLASSIC_FACTS,
    ),
    st.builds(ConsumerMemberForgotten, **MEMBER),
    st.builds(TargetAssignmentEpochSet, **GROUP, assignment_epoch=INT32, assignment_timestamp_ms=INT64),
    st.builds(TargetAssignmentEpochForgotten, **GROUP),
    st.builds(MemberTargetSet, **MEMBER, partitions=TARGET),
    st.builds(MemberTargetForgotten, **MEMBER),
    st.builds(
        CurrentAssignmentSet,
        **MEMBER,
        member_epoch=INT32,
        previous_member_epoch=INT32,
        state=st.sampled_from(MemberState),
        assigned=GRANTS,
        pending_revocation=GRANTS,
    ),
    st.builds(CurrentAssignmentForgotten, **MEMBER),
    st.builds(
        RegularExpressionResolved,
        **GROUP,
        regex=TEXT,
        topics=st.sets(TEXT, max_size=3).map(lambda names: tuple(sorted(names))),
        image_version=INT64,
        timestamp_ms=INT64,
    ),
    st.builds(RegularExpressionForgotten, **GROUP, regex=TEXT),
    st.builds(
        SubmittedMoveSet,
        **GROUP,
        topic_id=ID,
        partition=COUNT,
        move=st.builds(MoveFacts, INT32, TEXT, TEXT, *[INT64] * 5),
    ),
    st.builds(SubmittedMoveForgotten, **GROUP, topic_id=ID, partition=COUNT),
    st.builds(ClassicRebalanceDue, **GROUP, reason=TEXT, removed=st.lists(TEXT, max_size=3).map(tuple)),
    st.builds(ClassicRebalanceDone, **GROUP),
    st.builds(MemberMetadataSet, **MEMBER, metadata=st.binary(max_size=30), published_ms=INT64),
    st.builds(MemberMetadataForgotten, **MEMBER),
    st.builds(GroupConfigsSet, **GROUP, configs=st.dictionaries(TEXT, TEXT, max_size=3)),
    st.builds(OfflineMemberSet, **MEMBER, since_ms=INT64),
    st.builds(StaticClockSet, **GROUP, noted_ms=INT64, lost_ms=INT64, window_opened_ms=INT64),
    st.builds(ClientAssignorsSet, **MEMBER, assignors=st.lists(CLIENT_ASSIGNOR, max_size=3).map(tuple)),
    st.builds(ClientAssignmentSet, **MEMBER, said=st.builds(ClientAssignment, INT8, INT16, st.binary(max_size=20))),
)


@given(record=RECORDS)
def test_every_record_comes_back_as_it_was(record: Record) -> None:
    assert codec.decode(*codec.encode(record)) == record


@given(records=st.lists(RECORDS, max_size=8))
def test_bulk_reading_says_the_same(records: list[Record]) -> None:
    """Twice each: the second time it is what was remembered of the first."""
    reader = RecordReader()
    for record in records * 2:
        assert reader.read(*codec.encode(record)) == codec.decode(*codec.encode(record))


@given(record=RECORDS, data=st.data())
def test_bulk_reading_says_the_same_of_broken_bytes(record: Record, data: st.DataObject) -> None:
    """Errors are the same, too; what is broken leaves nothing behind that a later record gets to see."""
    reader = RecordReader()
    for _ in range(3):
        key, value = (bytearray(part or b"") for part in codec.encode(record))
        for part in (key, value):
            if part and data.draw(st.booleans()):
                part[data.draw(st.integers(0, len(part) - 1))] = data.draw(st.integers(0, 255))
            del part[data.draw(st.integers(max(len(part) - 3, 0), len(part))) :]
        assert outcome(reader.read, bytes(key), bytes(value)) == outcome(codec.decode, bytes(key), bytes(value))


def outcome(read: Callable[[bytes, bytes], Record | None], key: bytes, value: bytes) -> Record | str | None:
    try:
        return read(key, value)
    except StorageError as error:
        return str(error)


def test_bulk_reading_keeps_equal_things_once() -> None:
    """Of 50,000 members with the same two shapes of assignment, two are kept."""
    reader = RecordReader()
    topic_id = TopicId(b"i" * 16)
    read = [
        reader.read(
            *codec.encode(
                CurrentAssignmentSet(
                    group_id=group_id,
                    member_id=member_id,
                    member_epoch=2,
                    previous_member_epoch=1,
                    state=MemberState.STABLE,
                    assigned={topic_id: {0: 2}},
                    pending_revocation={},
                )
            )
        )
        for group_id in ("g1", "g2")
        for member_id in ("a", "b")
    ]
    for first, second in pairwise(read):
        assert isinstance(first, CurrentAssignmentSet) and isinstance(second, CurrentAssignmentSet)
        assert first.assigned is second.assigned
    assert read[0].group_id is read[1].group_id and read[0].member_id is read[2].member_id  # type: ignore[union-attr]


@given(record=RECORDS, data=st.data())
def test_broken_bytes_are_an_error_with_a_sentence_or_another_record(record: Record, data: st.DataObject) -> None:
    """Never an exception of another kind."""
    key, value = codec.encode(record)
    cut = data.draw(st.integers(0, len(key)))
    damaged = (
        None if value is None else value[: data.draw(st.integers(0, len(value)))] + data.draw(st.binary(max_size=8))
    )
    try:
        codec.decode(key[:cut], damaged)
        codec.decode(key, damaged)
    except StorageError as error:
        assert "__consumer_offsets" in str(error)


def offset(**changed: object) -> OffsetCommitted:
    said: dict[str, object] = {
        "group_id": "g",
        "topic": "t",
        "partition": 1,
        "offset": 5,
        "leader_epoch": 3,
        "metadata": "m",
        "commit_timestamp_ms": 7,
    }
    return OffsetCommitted(**{**said, **changed})  # type: ignore[arg-type]


def test_offset_in_bytes_as_apache_kafka_writes_them() -> None:
    """Key: type 1, group, topic, partition. Value 3: offset, leader epoch, metadata, time."""
    key, value = codec.encode(offset())
    assert key == bytes.fromhex("00010001") + b"g" + bytes.fromhex("0001") + b"t" + bytes.fromhex("00000001")
    expected = bytes.fromhex("00030000000000000005000000030001") + b"m" + bytes.fromhex("0000000000000007")
    assert value == expected


@pytest.mark.parametrize(
    ("record", "version"),
    [
        (offset(), 3),
        (offset(topic_id=TopicId(b"i" * 16)), 4),
        (offset(expire_timestamp_ms=9), 1),
        (
            ClassicGroupStored(
                group_id="g",
                protocol_type="",
                generation=0,
                protocol_name=None,
                leader=None,
                state_timestamp_ms=0,
                members=(),
            ),
            3,
        ),
        (ConsumerGroupEpochSet(group_id="g", epoch=1), 0),
    ],
)
def test_values_are_written_in_the_version_that_kafka_writes(record: Record, version: int) -> None:
    value = codec.encode(record)[1]
    assert value is not None and int.from_bytes(value[:2], "big") == version


def test_expiry_is_kept_at_the_cost_of_leader_epoch_and_topic_id() -> None:
    """Version 1 has no field for them."""
    record = offset(expire_timestamp_ms=9, topic_id=TopicId(b"i" * 16))
    assert codec.decode(*codec.encode(record)) == offset(expire_timestamp_ms=9, leader_epoch=-1)


@pytest.mark.parametrize("metadata", ["", "note", "x" * 126, "x" * 127, "x" * 4_000, "é"])
def test_offset_written_by_hand_is_what_the_declaration_says(metadata: str) -> None:
    record = offset(topic_id=TopicId(b"i" * 16), metadata=metadata, leader_epoch=-1)
    value = group_records.OffsetCommitValue(
        offset=record.offset,
        leader_epoch=-1,
        metadata=metadata,
        commit_timestamp=record.commit_timestamp_ms,
        topic_id=record.topic_id,
    )
    assert codec.encode(record)[1] == b"\0\4" + encode_message(value, 4)


def test_oldest_offsets_are_read() -> None:
    """Type 0, value version 0: offset, metadata, time."""
    key, _ = codec.encode(offset())
    value = bytes.fromhex("000000000000000000050001") + b"m" + bytes.fromhex("0000000000000007")
    assert codec.decode(b"\0\0" + key[2:], value) == offset(leader_epoch=-1)


def test_unknown_types_are_skipped() -> None:
    """Share and streams groups, transactions: somebody else's facts survive beside ours."""
    assert codec.decode(b"\0\x0a whatever", b"\0\0") is None
    assert codec.decode(b"\0\x04\0\1g", None) is None
    assert codec.decode(b"\x4e\x20", b"") is None


def test_newer_version_of_a_known_value_is_refused() -> None:
    key, _ = codec.encode(ConsumerGroupEpochSet(group_id="g", epoch=1))
    with pytest.raises(StorageError, match=r"type 3 .*version is 1"):
        codec.decode(key, b"\0\1\0\0\0\1\0")


def test_unknown_member_state_is_read_as_such() -> None:
    record = CurrentAssignmentSet(
        group_id="g",
        member_id="a",
        member_epoch=1,
        previous_member_epoch=0,
        state=MemberState.STABLE,
        assigned={},
        pending_revocation={},
    )
    key, value = codec.encode(record)
    assert value is not None
    changed = value[:10] + b"\x07" + value[11:]
    decoded = codec.decode(key, changed)
    assert isinstance(decoded, CurrentAssignmentSet) and decoded.state == MemberState.UNKNOWN


def test_grants_without_epochs_count_from_the_members_epoch() -> None:
    """Kafka before 4.3 did not store them: no older commit may pass."""
    key, _ = codec.encode(CurrentAssignmentForgotten(group_id="g", member_id="a"))
    value = bytes.fromhex("000000000005000000040002") + b"i" * 16 + bytes.fromhex("0200000003000100")
    decoded = codec.decode(key, value)
    assert isinstance(decoded, CurrentAssignmentSet)
    assert decoded.assigned == {b"i" * 16: {3: 5}}


def test_volatile_records_are_not_written() -> None:
    volatile = TopicImageReplaced(group_id="", image=TopicImage())
    assert codec.encode_durable([volatile, offset()]) == [codec.encode(offset())]
    with pytest.raises(AssertionError, match="TopicImageReplaced"):
        codec.encode(volatile)
