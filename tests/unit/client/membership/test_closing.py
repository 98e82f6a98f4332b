"""A close while brokers of a cluster are gone: whoever takes the group over is waited for, nobody else."""

from __future__ import annotations

import pytest

from kohort.client.consumer.application_events import CallbackKind
from kohort.client.core.actions import Complete, Endpoint
from kohort.client.core.requests import Failure
from kohort.wire.messages.fetch import FetchRequest
from kohort.wire.messages.find_coordinator import Coordinator, FindCoordinatorRequest, FindCoordinatorResponse
from kohort.wire.messages.metadata import MetadataRequest
from kohort.wire.messages.offset_commit import OffsetCommitRequest
from support.dialogues.consumer_dialogue import ConsumerDialogue, orders

REVOKED = CallbackKind.REVOKED
OTHER = Endpoint("127.0.0.1", 9093)


@pytest.fixture
def member() -> ConsumerDialogue:
    return ConsumerDialogue(auto_commit_interval_ms=5_000)


def commit_that_meets_a_dead_coordinator(member: ConsumerDialogue) -> None:
    """A member of a cluster of two closes, and the broker that coordinates its group is not there any more."""
    member.brokers[2] = OTHER
    member.stable(0)
    member.by_hand |= {FindCoordinatorRequest, MetadataRequest}
    member.close()
    member.acknowledge(REVOKED, 0, consumed={0: 3})
    member.fail(member.expect(OffsetCommitRequest), Failure.UNREACHABLE)
    member.advance(1_000)


def test_close_commits_to_the_broker_that_takes_the_groups_over(member: ConsumerDialogue) -> None:
    """It gave up before, and what was read last was read again."""
    commit_that_meets_a_dead_coordinator(member)
    assert member.ended("close") is None
    member.fail(member.expect(FindCoordinatorRequest), Failure.UNREACHABLE)
    member.fail(member.expect(MetadataRequest), Failure.UNREACHABLE)
    assert member.ended("close") is None
    member.advance(1_000)

    found = Coordinator(key="billing", node_id=2, host=OTHER.host, port=OTHER.port)
    member.answer(member.expect(FindCoordinatorRequest), FindCoordinatorResponse(coordinators=[found]))
    assert member.commits() == {orders(0)[0]: 3}
    member.accept_commit()
    assert member.heartbeat().member_epoch == -1
    member.reply(epoch=-1)

    assert isinstance(member.ended("close"), Complete)
    assert not member.warnings()


def test_close_ends_where_every_broker_is_gone(member: ConsumerDialogue) -> None:
    """At once, and it says so."""
    commit_that_meets_a_dead_coordinator(member)
    member.fail(member.expect(FindCoordinatorRequest), Failure.UNREACHABLE)
    member.fail(member.expect(MetadataRequest), Failure.UNREACHABLE)
    assert member.ended("close") is None
    member.fail(member.expect(MetadataRequest), Failure.UNREACHABLE)

    assert isinstance(member.ended("close"), Complete)
    assert member.is_stopped
    assert "no broker can be reached: 127.0.0.1:9092 (scripted), 127.0.0.1:9093 (scripted)" in member.warnings()[-1]


def test_broker_that_was_gone_before_the_close_may_be_back(member: ConsumerDialogue) -> None:
    """What was tried earlier does not count."""
    member.brokers[2] = OTHER
    member.stable(0)
    member.by_hand.add(MetadataRequest)
    member.fail(member.expect(FetchRequest), Failure.UNREACHABLE)
    member.fail(member.expect(MetadataRequest), Failure.UNREACHABLE)
    member.fail(member.expect(MetadataRequest), Failure.UNREACHABLE)
    member.by_hand.add(FindCoordinatorRequest)
    member.close()
    member.acknowledge(REVOKED, 0, consumed={0: 3})

    member.fail(member.expect(OffsetCommitRequest), Failure.UNREACHABLE)

    assert member.ended("close") is None
