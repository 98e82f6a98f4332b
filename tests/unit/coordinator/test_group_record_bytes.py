"""The bytes of every type of group record, as they were written before: `tests/data/group-records.txt` holds them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Final

import pytest

from kohort.coordinator.commands import ClassicMemberFacts, ClientAssignment, ClientAssignor
from kohort.coordinator.records import codec
from kohort.coordinator.records import types as facts
from kohort.coordinator.records.reader import RecordReader
from kohort.ids import TopicId

#: Each line is a name, the key and the value in hexadecimal digits, `-` for a tombstone.
FILE: Final = Path(__file__).parents[2] / "data" / "group-records.txt"
STORED: Final = {
    name: (bytes.fromhex(key), None if value == "-" else bytes.fromhex(value))
    for name, key, value in map(str.split, FILE.read_text().splitlines())
}
ONE, TWO = TopicId(bytes(range(16))), TopicId(b"\xff" * 16)
OFFSET = facts.OffsetCommitted(
    group_id="payments",
    topic="orders",
    partition=3,
    offset=2**40,
    leader_epoch=7,
    metadata="note",
    commit_timestamp_ms=1_700_000_000_000,
)
STORED_MEMBER = facts.StoredClassicMember(
    member_id="m-1",
    instance_id=None,
    client_id="client",
    client_host="/127.0.0.1",
    rebalance_timeout_ms=300_000,
    session_timeout_ms=45_000,
    subscription=b"\x00\x03wishes",
    assignment=b"",
)
CLASSIC = facts.ClassicGroupStored(
    group_id="payments",
    protocol_type="consumer",
    generation=12,
    protocol_name="range",
    leader="m-1",
    state_timestamp_ms=1_700_000_000_001,
    members=(STORED_MEMBER, replace(STORED_MEMBER, member_id="m-2", instance_id="i-2", assignment=b"\x00\x01given")),
)
SUBSCRIBED = facts.ConsumerMemberSubscribed(
    group_id="payments",
    member_id="m-1",
    instance_id=None,
    rack_id=None,
    client_id="client",
    client_host="/127.0.0.1",
    subscribed_topic_names=("orders", "bücher"),
    subscribed_topic_regex=None,
    rebalance_timeout_ms=300_000,
    server_assignor=None,
)
CURRENT = facts.CurrentAssignmentSet(
    group_id="payments",
    member_id="m-1",
    member_epoch=9,
    previous_member_epoch=8,
    state=facts.MemberState.STABLE,
    assigned={ONE: {0: 4, 5: 9}, TWO: {1: 2}},
    pending_revocation={},
)
MOVE = facts.MoveFacts(9, "m-1", "m-2", 1_700_000_000_000)
GROUP: Final = {"group_id": "payments"}
MEMBER: Final = {"group_id": "payments", "member_id": "m-1"}
PARTITION: Final = {"group_id": "payments", "topic_id": ONE, "partition": 3}
#: Name -> the record that these bytes say.
RECORDS: Final[dict[str, facts.Record]] = {
    "offset": OFFSET,
    "offset-without-metadata": replace(OFFSET, metadata="", leader_epoch=-1),
    "offset-with-topic-id": replace(OFFSET, topic_id=ONE),
    "offset-with-topic-id-and-long-metadata": replace(OFFSET, topic_id=ONE, metadata="é" * 70),
    "offset-that-expires": replace(OFFSET, expire_timestamp_ms=1_800_000_000_000, leader_epoch=-1),
    "offset-forgotten": facts.OffsetForgotten(**GROUP, topic="orders", partition=3),
    "classic-group": CLASSIC,
    "classic-group-empty": replace(CLASSIC, protocol_name=None, leader=None, members=()),
    "classic-group-forgotten": facts.ClassicGroupForgotten(**GROUP),
    "group-epoch": facts.ConsumerGroupEpochSet(**GROUP, epoch=9, metadata_hash=-(2**62)),
    "group-epoch-without-hash": facts.ConsumerGroupEpochSet(**GROUP, epoch=9),
    "group-forgotten": facts.ConsumerGroupForgotten(**GROUP),
    "subscription": SUBSCRIBED,
    "subscription-with-everything": replace(
        SUBSCRIBED,
        instance_id="i-1",
        rack_id="r-1",
        subscribed_topic_names=(),
        subscribed_topic_regex="orders.*",
        server_assignor="uniform",
        classic=ClassicMemberFacts(session_timeout_ms=45_000, protocols=(("range", b"\x00\x01"), ("sticky", b""))),
    ),
    "subscription-forgotten": facts.ConsumerMemberForgotten(**MEMBER),
    "target-epoch": facts.TargetAssignmentEpochSet(
        **GROUP, assignment_epoch=9, assignment_timestamp_ms=1_700_000_000_000
    ),
    "target-epoch-without-time": facts.TargetAssignmentEpochSet(**GROUP, assignment_epoch=9),
    "target-epoch-forgotten": facts.TargetAssignmentEpochForgotten(**GROUP),
    "target": facts.MemberTargetSet(**MEMBER, partitions={ONE: (0, 5), TWO: tuple(range(40))}),
    "target-of-nothing": facts.MemberTargetSet(**MEMBER, partitions={}),
    "target-forgotten": facts.MemberTargetForgotten(**MEMBER),
    "current": CURRENT,
    "current-revoking": replace(
        CURRENT, state=facts.MemberState.UNREVOKED_PARTITIONS, assigned={}, pending_revocation={TWO: {1: 2}}
    ),
    "current-of-unknown-state": replace(CURRENT, state=facts.MemberState.UNKNOWN),
    "current-forgotten": facts.CurrentAssignmentForgotten(**MEMBER),
    "regex": facts.RegularExpressionResolved(
        **GROUP, regex="orders.*", topics=("orders-1", "orders-2"), image_version=5, timestamp_ms=1_700_000_000_000
    ),
    "regex-of-nothing": facts.RegularExpressionResolved(
        **GROUP, regex="orders.*", topics=(), image_version=5, timestamp_ms=1_700_000_000_000
    ),
    "regex-forgotten": facts.RegularExpressionForgotten(**GROUP, regex="orders.*"),
    "configs": facts.GroupConfigsSet(
        **GROUP, configs={"consumer.session.timeout.ms": "45000", "group.moves.paused": "true"}
    ),
    "configs-forgotten": facts.GroupConfigsForgotten(**GROUP),
    "move": facts.SubmittedMoveSet(**PARTITION, move=MOVE),
    "move-over": facts.SubmittedMoveSet(
        **PARTITION, move=MOVE._replace(begun_ms=1, fenced_ms=2, committed_ms=3, granted_ms=4)
    ),
    "move-forgotten": facts.SubmittedMoveForgotten(**PARTITION),
    "offline": facts.OfflineMemberSet(**MEMBER, since_ms=1_700_000_000_000),
    "offline-forgotten": facts.OfflineMemberForgotten(**MEMBER),
    "clock": facts.StaticClockSet(**GROUP, noted_ms=1_700_000_000_000, lost_ms=50),
    "clock-with-window": facts.StaticClockSet(**GROUP, noted_ms=1_700_000_000_000, lost_ms=50, window_opened_ms=60),
    "clock-forgotten": facts.StaticClockForgotten(**GROUP),
    "rebalance": facts.ClassicRebalanceDue(**GROUP, reason="a member joins", removed=("m-1", "m-2")),
    "rebalance-without-removed": facts.ClassicRebalanceDue(**GROUP, reason="", removed=()),
    "rebalance-done": facts.ClassicRebalanceDone(**GROUP),
    "client-assignors": facts.ClientAssignorsSet(
        **MEMBER, assignors=(ClientAssignor("mine", 0, 3, 1, 2, b"\x01\x02"), ClientAssignor("", -1, -1, 0, -1, b""))
    ),
    "client-assignors-forgotten": facts.ClientAssignorsForgotten(**MEMBER),
    "client-assignment": facts.ClientAssignmentSet(**MEMBER, said=ClientAssignment(0, 2, b"\x01\x02")),
    "client-assignment-that-failed": facts.ClientAssignmentSet(
        group_id="payments", member_id="", said=ClientAssignment(3, 0, b"")
    ),
    "client-assignment-forgotten": facts.ClientAssignmentForgotten(**MEMBER),
    "metadata": facts.MemberMetadataSet(**MEMBER, metadata=b"\x00" * 200, published_ms=1_700_000_000_000),
    "metadata-forgotten": facts.MemberMetadataForgotten(**MEMBER),
}


def test_every_durable_record_has_its_bytes_stored() -> None:
    """Only those of transactions have none: they are batches, not bytes of their own."""
    declared = {each for each in vars(facts).values() if isinstance(each, type) and issubclass(each, facts.Record)}
    volatile = {each for each in declared if issubclass(each, facts.VolatileRecord)}
    of_transactions = {facts.Record, facts.TransactionalOffsetCommitted, facts.TransactionCompleted}
    assert {type(record) for record in RECORDS.values()} == declared - volatile - of_transactions
    assert STORED.keys() == RECORDS.keys()


@pytest.mark.parametrize("name", RECORDS)
def test_record_is_written_as_before(name: str) -> None:
    assert codec.encode(RECORDS[name]) == STORED[name]


@pytest.mark.parametrize("name", RECORDS)
def test_stored_bytes_are_read(name: str) -> None:
    """By the reader of whole logs likewise."""
    assert codec.decode(*STORED[name]) == RecordReader().read(*STORED[name]) == RECORDS[name]
