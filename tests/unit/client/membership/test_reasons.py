"""Why there is a rebalance: what the member knows, what it tells the broker, what the application hears."""

from __future__ import annotations

import asyncio

import pytest

from kohort import aio
from kohort.client.consumer.application_events import CallbackKind, RebalanceEnforced, Subscribed
from kohort.client.consumer.membership.states import MemberState
from kohort.errors import ErrorCode
from kohort.wire.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from support.dialogues.classic_dialogue import ClassicDialogue
from support.dialogues.consumer_dialogue import ConsumerDialogue
from support.dialogues.protocol_dialogue import at_rest, build
from support.dialogues.virtual_broker import beside_a_broker

ASSIGNED, REVOKED = CallbackKind.ASSIGNED, CallbackKind.REVOKED


def classic() -> ClassicDialogue:
    member = build("classic")
    assert isinstance(member, ClassicDialogue)
    return member


def test_enforced_rebalance_joins_again_and_says_why() -> None:
    """KIP-568, KIP-800: the reason goes with JoinGroup from version 8 on."""
    member = classic()
    at_rest(member, 0)
    member.take(RebalanceEnforced(reason="a better assignment " + "x" * 300))
    member.settle()
    assert member.state is MemberState.PREPARE_REVOCATION
    assert member.questions[0].reason.startswith("a better assignment")
    member.acknowledge(REVOKED, 0)

    request = member.joined(generation=2)
    assert request.reason is not None
    assert request.reason.startswith("a better assignment")
    assert len(request.reason) == 255


def test_enforced_rebalance_of_a_cooperative_member_keeps_its_partitions() -> None:
    """KIP-429: it joins with what it has."""
    member = build("cooperative")
    assert isinstance(member, ClassicDialogue)
    at_rest(member, 0)
    member.take(RebalanceEnforced(reason="again"))
    member.settle()

    assert member.questions == []
    assert member.joined(generation=2).reason == "again"


def test_enforced_rebalance_before_the_first_join_changes_nothing() -> None:
    """It joins anyway."""
    member = classic()
    member.subscribe()
    member.take(RebalanceEnforced(reason="again"))
    member.require_member_id()

    assert member.joined().reason == "topics were subscribed to"
    member.synced([0])
    member.acknowledge(ASSIGNED, 0)
    assert member.state is MemberState.STABLE


def test_consumer_protocol_says_that_the_coordinator_decides() -> None:
    """As Kafka's own consumer: a warning, no effect."""
    member = build("consumer")
    at_rest(member, 0)
    member.take(RebalanceEnforced(reason="again"))
    member.settle()

    assert member.state is MemberState.STABLE
    assert member.find(ConsumerGroupHeartbeatRequest) == []
    assert [line for line in member.warnings() if "has no effect" in line and "(again)" in line]


def test_callbacks_are_asked_for_with_the_reason() -> None:
    """The subscription, others, the end."""
    member = classic()
    at_rest(member, 0)
    member.take(Subscribed(topics=("orders", "refunds")))
    member.settle()
    assert member.questions[0].reason == "the subscription has changed"
    member.acknowledge(REVOKED, 0)
    member.joined(generation=2)
    member.synced([0])
    assert member.questions[0].reason == "the subscription has changed"

    member = classic()
    at_rest(member, 0)
    member.advance(5_000)
    member.beaten(ErrorCode.REBALANCE_IN_PROGRESS)
    assert member.questions[0].reason.startswith("the group rebalances")


def test_loss_says_what_was_refused() -> None:
    """The code, and the broker's words if there are any."""
    member: ConsumerDialogue = build("consumer")
    at_rest(member, 0)
    member.advance(5_000)
    member.reply(error=ErrorCode.FENCED_MEMBER_EPOCH, message="too late")

    assert member.questions[0].reason == "FENCED_MEMBER_EPOCH: too late"


def test_reason_that_the_broker_tells_is_passed_on() -> None:
    """Ours does (docs/reference/private-protocol.md); Apache Kafka's knows that the group rebalances, and no more."""
    member = classic()
    at_rest(member, 0)
    member.advance(5_000)
    member.beaten(ErrorCode.REBALANCE_IN_PROGRESS, reason="member joined: m-2")
    assert member.questions[0].reason == "the group rebalances: member joined: m-2"

    other: ConsumerDialogue = build("consumer")
    at_rest(other, 0)
    other.advance(5_000)
    other.reply(epoch=2, assigned=[], reason="member joined: m-2")
    assert other.questions[0].reason == "the coordinator's assignment at member epoch 2 (member joined: m-2)"


@pytest.mark.parametrize("protocol", ["consumer", "classic"])
def test_member_of_our_broker_hears_who_came_and_went(protocol: str) -> None:
    """From the group's journal over the wire to the application."""

    def member(address: str) -> aio.Consumer:
        return aio.Consumer(
            "orders", bootstrap_servers=address, group_id="billing", group_protocol=protocol, heartbeat_interval_ms=500
        )

    async def read(address: str) -> tuple[str, list[str]]:
        reasons: list[str] = []

        async def poll_until(first: aio.Consumer, count: int) -> None:
            while len(first.assignment()) != count:
                await first.poll(0.1)
            assert first.last_rebalance is not None
            reasons.append(first.last_rebalance.reason)

        async with member(address) as first:
            await poll_until(first, 2)
            async with member(address) as second:
                both = asyncio.gather(poll_until(first, 1), poll_until(second, 1))
                await both
                newcomer = second.member_id
                leaving = asyncio.create_task(second.close())
                await poll_until(first, 2)
                await leaving
        return newcomer, reasons

    newcomer, reasons = beside_a_broker(read, topics={"orders": 2})
    assert any("member joined" in reason and newcomer in reason for reason in reasons), reasons
    assert "member left" in reasons[-1], reasons
