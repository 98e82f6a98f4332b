"""Dialogues with static members of both protocols: a name instead of a membership that ends with the process."""

from __future__ import annotations

import pytest

from kohort.client.consumer.application_events import CallbackKind
from kohort.client.consumer.membership.states import MemberState
from kohort.errors import ConfigError, ErrorCode, FencedError
from kohort.wire.embedded import encode_subscription
from kohort.wire.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from kohort.wire.messages.heartbeat import HeartbeatRequest
from kohort.wire.messages.join_group import JoinGroupRequest, JoinGroupResponse, JoinGroupResponseMember
from kohort.wire.messages.leave_group import LeaveGroupRequest
from kohort.wire.messages.offset_commit import OffsetCommitRequest
from kohort.wire.messages.sync_group import SyncGroupRequest
from support.dialogues.classic_dialogue import ClassicDialogue
from support.dialogues.consumer_dialogue import ConsumerDialogue

REVOKED = CallbackKind.REVOKED


@pytest.fixture
def member() -> ConsumerDialogue:
    return ConsumerDialogue(group_instance_id="till-7")


@pytest.fixture
def classic() -> ClassicDialogue:
    return ClassicDialogue(group_instance_id="till-7")


# -- KIP-848 ----------------------------------------------------------------------------------------------------------


def test_every_heartbeat_carries_the_name(member: ConsumerDialogue) -> None:
    """KIP-848: a heartbeat without it would be that of a dynamic member."""
    member.stable(0)
    member.advance(5_000)

    assert member.heartbeat().instance_id == "till-7"


def test_close_leaves_for_a_while(member: ConsumerDialogue) -> None:
    """Epoch -2: the partitions wait for the member's return."""
    member.stable(0)
    member.close()
    member.acknowledge(REVOKED, 0)

    request = member.expect(ConsumerGroupHeartbeatRequest)

    assert (request.member_epoch, request.instance_id) == (-2, "till-7")


def test_close_leaves_for_good_where_that_is_asked_for(member: ConsumerDialogue) -> None:
    """KIP-1092, LEAVE_GROUP: nobody waits for it."""
    member.stable(0)
    member.close(goes_for_good=True)
    member.acknowledge(REVOKED, 0)

    request = member.expect(ConsumerGroupHeartbeatRequest)

    assert (request.member_epoch, request.instance_id) == (-1, "till-7")


def test_a_dynamic_member_remains_where_that_is_asked_for() -> None:
    """KIP-1092, REMAIN_IN_GROUP: it does not say that it goes."""
    member = ConsumerDialogue()
    member.stable(0)
    member.close(goes_for_good=False)
    member.acknowledge(REVOKED, 0)

    assert member.find(ConsumerGroupHeartbeatRequest) == []
    assert member.is_stopped


def test_name_that_a_killed_process_still_holds_is_waited_for(member: ConsumerDialogue) -> None:
    """The coordinator releases it when the session of the process before ends; Java's consumer gives up at once."""
    member.subscribe()
    for _ in range(20):
        member.reply(epoch=0, error=ErrorCode.UNRELEASED_INSTANCE_ID)
        member.advance(2_000)
    assert member.state is MemberState.JOINING
    assert len(member.warnings()) == 1
    assert "till-7 of group billing is held by another member" in member.warnings()[0]

    member.reply(epoch=3, assigned=[0])

    assert member.state is MemberState.ASSIGNING_PARTITIONS


def test_name_that_another_process_keeps_is_a_refusal(member: ConsumerDialogue) -> None:
    """Two processes with one name are a mistake that somebody has to hear of."""
    member.subscribe()
    for _ in range(26):
        member.reply(epoch=0, error=ErrorCode.UNRELEASED_INSTANCE_ID)
        member.advance(2_000)

    trouble = member.troubles()[-1]
    assert trouble.is_fatal
    assert isinstance(trouble.error, FencedError)
    assert trouble.error.code is ErrorCode.UNRELEASED_INSTANCE_ID


def test_member_whose_name_was_taken_is_fenced_for_good(member: ConsumerDialogue) -> None:
    """FENCED_INSTANCE_ID: joining again would only take the name back and forth."""
    member.stable(0)
    member.advance(5_000)

    member.reply(epoch=1, error=ErrorCode.FENCED_INSTANCE_ID)

    assert member.state is MemberState.FATAL
    assert member.troubles()[-1].is_fatal


@pytest.mark.parametrize("protocol", ["consumer", "classic"])
def test_commit_carries_the_name(protocol: str) -> None:
    """S2: commits of a process whose name was taken are refused."""
    dialogue: ConsumerDialogue = (
        ClassicDialogue(group_instance_id="till-7")
        if protocol == "classic"
        else ConsumerDialogue(group_instance_id="till-7")
    )
    if isinstance(dialogue, ClassicDialogue):
        dialogue.at_rest(0)
    else:
        dialogue.stable(0)
    dialogue.poll(p0=5)
    dialogue.advance(5_000)

    assert dialogue.expect(OffsetCommitRequest).group_instance_id == "till-7"


def test_a_member_that_joins_says_by_what_its_group_may_become_static() -> None:
    """S1, K345: with what it joins by, and with no other heartbeat."""
    member = ConsumerDialogue(group_instance_id="till-7", registration_timeout_ms=900_000, expansion_timeout_ms=1_000)
    member.subscribe()
    joining = member.heartbeat()
    member.reply(epoch=1, assigned=[])
    member.advance(5_000)
    later = member.heartbeat()

    assert (joining.registration_timeout_ms, joining.expansion_timeout_ms) == (900_000, 1_000)
    assert (later.registration_timeout_ms, later.expansion_timeout_ms) == (-1, -1)


# -- classic ----------------------------------------------------------------------------------------------------------


def test_every_classic_request_carries_the_name(classic: ClassicDialogue) -> None:
    """KIP-345: so the coordinator can fence a process whose name was taken."""
    classic.subscribe()
    assert classic.expect(JoinGroupRequest).group_instance_id == "till-7"
    assert classic.find(JoinGroupRequest)[0].min_version == 5
    classic.joined()
    assert classic.expect(SyncGroupRequest).group_instance_id == "till-7"
    classic.synced([])
    classic.advance(3_000)

    assert classic.expect(HeartbeatRequest).group_instance_id == "till-7"


def test_static_classic_member_closes_without_leaving(classic: ClassicDialogue) -> None:
    """KIP-345: its partitions wait until its session ends."""
    classic.at_rest(0)
    classic.close()
    classic.acknowledge(REVOKED, 0)

    assert classic.find(LeaveGroupRequest) == []
    assert classic.is_stopped


def test_static_classic_member_leaves_by_its_name_where_that_is_asked_for(classic: ClassicDialogue) -> None:
    """KIP-1092 and KIP-345: with a version of LeaveGroup that knows names."""
    classic.at_rest(0)
    classic.close(goes_for_good=True)
    classic.acknowledge(REVOKED, 0)

    (send,) = classic.find(LeaveGroupRequest)

    assert isinstance(send.request, LeaveGroupRequest)
    assert [identity.group_instance_id for identity in send.request.members] == ["till-7"]
    assert send.min_version == 3


def test_dynamic_classic_member_remains_where_that_is_asked_for() -> None:
    """KIP-1092: its partitions wait until its session ends."""
    classic = ClassicDialogue()
    classic.at_rest(0)
    classic.close(goes_for_good=False)
    classic.acknowledge(REVOKED, 0)

    assert classic.find(LeaveGroupRequest) == []
    assert classic.is_stopped


def test_leader_takes_static_members_by_their_names_and_first(classic: ClassicDialogue) -> None:
    """As Kafka's assignors: who returns under the same name gets the same share, whatever its new member id."""
    classic.topics["orders"] = (classic.topics["orders"][0], 3)
    classic.subscribe()
    request = classic.expect(JoinGroupRequest)
    blob = encode_subscription(["orders"])
    named = {"z-9": "a-first", "c-1": "till-7", "a-0": None}
    members = [
        JoinGroupResponseMember(member_id=member, group_instance_id=name, metadata=blob)
        for member, name in named.items()
    ]
    response = JoinGroupResponse(
        generation_id=1, protocol_type="consumer", protocol_name="range", leader="c-1", member_id="c-1", members=members
    )
    classic.answer(request, response, version=9)

    shares = classic.shares(classic.expect(SyncGroupRequest))

    assert shares == {"z-9": (0,), "c-1": (1,), "a-0": (2,)}


def test_leader_that_returns_to_an_unchanged_group_watches_its_topics(classic: ClassicDialogue) -> None:
    """KIP-814: it computes nothing, and yet a topic that grows has it begin a rebalance."""
    classic.topics["orders"] = (classic.topics["orders"][0], 1)
    classic.subscribe()
    request = classic.expect(JoinGroupRequest)
    me = JoinGroupResponseMember(member_id="c-1", group_instance_id="till-7", metadata=encode_subscription(["orders"]))
    response = JoinGroupResponse(
        generation_id=4,
        protocol_type="consumer",
        protocol_name="range",
        leader="c-1",
        skip_assignment=True,
        member_id="c-1",
        members=[me],
    )
    classic.answer(request, response, version=9)
    assert classic.expect(SyncGroupRequest).assignments == []
    classic.synced([])

    classic.topics["orders"] = (classic.topics["orders"][0], 2)
    for _ in range(101):
        classic.advance(3_000)
        if classic.find(HeartbeatRequest):
            classic.beaten()
        classic.poll()

    assert classic.find(JoinGroupRequest), "the leader joins again"


# -- options ----------------------------------------------------------------------------------------------------------


def test_a_name_needs_a_group_and_letters() -> None:
    """What cannot work is refused where it is written."""
    with pytest.raises(ConfigError, match=r"group\.id is needed"):
        ConsumerDialogue(group_id=None, group_instance_id="till-7")
    with pytest.raises(ConfigError, match="cannot be empty"):
        ConsumerDialogue(group_instance_id="")


def test_a_join_says_by_what_its_group_may_become_static() -> None:
    """S1, K345: tagged fields, which Apache Kafka skips."""
    classic = ClassicDialogue(group_instance_id="till-7", registration_timeout_ms=900_000)
    classic.subscribe()

    join = classic.expect(JoinGroupRequest)

    assert (join.registration_timeout_ms, join.expansion_timeout_ms) == (900_000, -1)


def test_a_member_without_a_name_is_told_that_its_group_wants_one() -> None:
    """S2: a JoinGroup's answer has a code and no words; nobody else can have the name that it has not."""
    classic = ClassicDialogue()
    classic.subscribe()
    classic.joined(error=ErrorCode.FENCED_INSTANCE_ID)

    trouble = classic.troubles()[-1]
    assert trouble.is_fatal
    assert "group billing is a static one: give every member a name with group.instance.id" in str(trouble.error)


def test_timeouts_that_a_classic_group_cannot_have_are_named() -> None:
    """The same: no words come with it."""
    classic = ClassicDialogue(group_instance_id="till-7", expansion_timeout_ms=1)
    classic.subscribe()
    classic.joined(error=ErrorCode.INVALID_REQUEST)

    trouble = classic.troubles()[-1]
    assert trouble.is_fatal
    assert "expansion.timeout.ms have to be within the broker's bounds" in str(trouble.error)
