"""Partitions on the way from one owner to the next: paused while the application is asked about them."""

from __future__ import annotations

import pytest

from kohort.client.consumer.application_events import CallbackKind, Paused, Sought, Start
from kohort.client.consumer.membership.states import MemberState
from kohort.client.core.requests import Failure
from kohort.errors import ErrorCode
from kohort.wire.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from support.dialogues.classic_dialogue import ClassicDialogue
from support.dialogues.consumer_dialogue import ConsumerDialogue, batch, orders
from support.dialogues.protocol_dialogue import MODES, at_rest, build, offer, position, want_back

ASSIGNED, REVOKED = CallbackKind.ASSIGNED, CallbackKind.REVOKED


@pytest.fixture(params=MODES)
def member(request: pytest.FixtureRequest) -> ConsumerDialogue:
    """A member that may read orders, in every protocol."""
    return build(request.param)


def test_position_of_gained_partitions_is_known_in_the_callback(member: ConsumerDialogue) -> None:
    """`position()` inside `on_assigned` said that the partition is not assigned."""
    member.committed = {orders(0)[0]: 7}
    offer(member, 0, 1)
    member.start_callback()

    assert (position(member, 0), position(member, 1)) == (7, 0)
    assert member.fetching() == {}, "nothing is read before the callback returns"

    member.acknowledge(ASSIGNED, 0, 1)
    assert member.fetching() == {orders(0)[0]: 7, orders(1)[0]: 0}


def test_seek_in_the_callback_moves_what_is_asked_afterwards(member: ConsumerDialogue) -> None:
    """And what is read."""
    offer(member, 0)
    member.start_callback()
    fence = member.new_fence()
    member.take(Sought(partition=orders(0)[0], fence=fence, offset=42))

    assert position(member, 0) == 42
    member.start_with(orders(0)[0], Start(fence=fence, offset=42))
    member.acknowledge(ASSIGNED, 0)
    assert member.fetching() == {orders(0)[0]: 42}


def test_resume_in_a_callback_starts_nothing_before_it_returns(member: ConsumerDialogue) -> None:
    """What is paused because it moves is not the application's to resume."""
    offer(member, 0)
    member.start_callback()
    position(member, 0)
    member.take(Paused(partitions=tuple(orders(0)), is_paused=False))
    assert member.fetching() == {}

    member.acknowledge(ASSIGNED, 0)
    assert member.fetching() == {orders(0)[0]: 0}


def test_partitions_to_be_revoked_are_paused_until_the_callback_returns(member: ConsumerDialogue) -> None:
    """CTR: PREPARE_REVOCATION, pause partitions that will be revoked; where they stand stays known."""
    at_rest(member, 0, 1)
    member.serve({1: batch(0, 5)})
    member.poll()
    going = want_back(member, 0)
    assert member.state is MemberState.PREPARE_REVOCATION

    member.serve()
    assert orders(1)[0] not in member.fetching()
    member.start_callback()
    assert member.state is MemberState.REVOKING_PARTITION
    member.take(Paused(partitions=tuple(orders(1)), is_paused=False))
    assert orders(1)[0] not in member.fetching()
    assert position(member, 1) == 5

    member.acknowledge(REVOKED, *going)
    assert member.machine._readings.get(orders(1)[0]) is None


def test_numbers_of_callbacks_go_on_with_the_classic_protocol() -> None:
    """An answer to the member before counts for nothing."""
    member = ConsumerDialogue()
    member.stable(0)
    member.advance(5_000)
    member.reply(error=ErrorCode.INVALID_REQUEST)
    member.subscribe()
    member.fail(member.expect(ConsumerGroupHeartbeatRequest), Failure.UNSUPPORTED)
    member.settle()
    member.fail(member.expect(ConsumerGroupHeartbeatRequest), Failure.UNSUPPORTED)
    asked = [each.number for each in member.questions]

    ClassicDialogue.require_member_id(member)  # type: ignore[arg-type]
    ClassicDialogue.joined(member)  # type: ignore[arg-type]
    ClassicDialogue.synced(member, [0])  # type: ignore[arg-type]

    assert [each.number for each in member.questions] == [*asked, asked[-1] + 1]
