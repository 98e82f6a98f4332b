"""Dialogues with a member that has nothing to read: one line says why, and only if that is to stay."""

from __future__ import annotations

from typing import Any

import pytest

from kohort.client.consumer.application_events import CallbackKind
from kohort.client.core.requests import Failure
from kohort.errors import ErrorCode
from kohort.wire.embedded import encode_assignment
from kohort.wire.messages import consumer_group_describe, describe_groups
from kohort.wire.messages.consumer_group_describe import ConsumerGroupDescribeRequest, ConsumerGroupDescribeResponse
from kohort.wire.messages.describe_groups import DescribeGroupsRequest, DescribeGroupsResponse
from kohort.wire.messages.join_group import JoinGroupRequest, JoinGroupResponse
from kohort.wire.messages.sync_group import SyncGroupRequest, SyncGroupResponse
from support.dialogues.consumer_dialogue import ConsumerDialogue

OTHERS = "no partition for this member of group billing: others have the 4 partitions"


@pytest.fixture
def member() -> ConsumerDialogue:
    """At rest, without a partition."""
    member = ConsumerDialogue()
    member.stable()
    return member


def describe(member: ConsumerDialogue, count: int, error: ErrorCode = ErrorCode.NONE) -> None:
    """The coordinator says how many members there are."""
    group = consumer_group_describe.DescribedGroup(
        error_code=int(error), group_id="billing", members=[consumer_group_describe.Member() for _ in range(count)]
    )
    member.answer(member.expect(ConsumerGroupDescribeRequest), ConsumerGroupDescribeResponse(groups=[group]))


def idle_for(member: ConsumerDialogue, ms: int) -> None:
    """The application polls, the member heartbeats."""
    for _ in range(ms // 500):
        member.advance(500)
        member.poll()


def test_member_beyond_the_partitions_is_told_once(member: ConsumerDialogue) -> None:
    idle_for(member, 3_000)
    describe(member, 5)
    assert member.warnings() == ["no partition for this member of group billing: 5 members share 4 partitions"]

    idle_for(member, 20_000)
    assert member.find(ConsumerGroupDescribeRequest) == []


def test_group_that_is_still_sharing_out_is_not_worth_a_line(member: ConsumerDialogue) -> None:
    """Somebody has to give up a partition first."""
    idle_for(member, 3_000)
    describe(member, 4)
    idle_for(member, 20_000)
    assert member.find(ConsumerGroupDescribeRequest) == []
    assert member.warnings() == []


def test_partition_that_comes_soon_ends_it_unsaid(member: ConsumerDialogue) -> None:
    idle_for(member, 2_000)
    member.advance(4_000)
    member.reply(epoch=2, assigned=[1])
    member.acknowledge(CallbackKind.ASSIGNED, 1)
    idle_for(member, 10_000)
    for _ in member.find(ConsumerGroupDescribeRequest):
        describe(member, 9)
    assert member.warnings() == []


@pytest.mark.parametrize("error", [ErrorCode.GROUP_AUTHORIZATION_FAILED, ErrorCode.UNSUPPORTED_VERSION])
def test_what_cannot_be_counted_is_said_without_numbers(member: ConsumerDialogue, error: ErrorCode) -> None:
    idle_for(member, 3_000)
    describe(member, 0, error)
    assert member.warnings() == [OTHERS]


def test_broker_that_cannot_be_asked_is_no_reason_to_be_silent(member: ConsumerDialogue) -> None:
    idle_for(member, 3_000)
    member.fail(member.expect(ConsumerGroupDescribeRequest), Failure.UNSUPPORTED)
    assert member.warnings() == [OTHERS]


def test_topic_without_partitions_has_a_line_of_its_own() -> None:
    member = ConsumerDialogue()
    member.topics = {}
    member.stable()
    idle_for(member, 10_000)
    assert member.find(ConsumerGroupDescribeRequest) == []
    assert member.warnings() == ["topic orders does not exist (yet); it is read as soon as it does"]


def test_classic_member_is_told_too() -> None:
    member = ConsumerDialogue(group_protocol="classic")
    member.topics["orders"] = (member.topics["orders"][0], 1)
    member.subscribe()
    joined: Any = JoinGroupResponse(generation_id=1, protocol_name="range", leader="c-0", member_id="c-1")
    member.answer(member.expect(JoinGroupRequest), joined)
    member.answer(member.expect(SyncGroupRequest), SyncGroupResponse(assignment=encode_assignment({})))
    idle_for(member, 3_500)
    members = [describe_groups.DescribedGroupMember() for _ in range(2)]
    response = DescribeGroupsResponse(groups=[describe_groups.DescribedGroup(members=members)])
    member.answer(member.expect(DescribeGroupsRequest), response)
    assert member.warnings() == ["no partition for this member of group billing: 2 members share 1 partition"]
