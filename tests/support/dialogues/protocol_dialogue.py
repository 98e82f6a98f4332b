"""The same dialogue in every protocol: a member is offered partitions, and asked for some of them back."""

from __future__ import annotations

from typing import Final

from kohort.client.consumer.application_events import CallbackKind, PositionAsked
from kohort.client.core.actions import Complete
from kohort.errors import ErrorCode
from kohort.wire.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from kohort.wire.messages.leave_group import LeaveGroupRequest
from kohort.wire.schema import Message
from support.dialogues.classic_dialogue import ClassicDialogue
from support.dialogues.consumer_dialogue import ConsumerDialogue, orders

MODES: Final = ("consumer", "classic", "cooperative")


def build(mode: str, **options: object) -> ConsumerDialogue:
    """A consumer that may join a group in that way."""
    if mode == "consumer":
        return ConsumerDialogue(**options)
    if mode == "cooperative":
        options["partition_assignment_strategy"] = "cooperative-sticky"
    return ClassicDialogue(**options)


def offer(member: ConsumerDialogue, *partitions: int) -> None:
    """Let it join and be given these; its callback is not answered yet."""
    member.subscribe()
    if isinstance(member, ClassicDialogue):
        member.require_member_id()
        member.joined()
        member.synced(partitions)
    else:
        member.reply(assigned=partitions)


def at_rest(member: ConsumerDialogue, *partitions: int) -> None:
    """Let it join and take these."""
    offer(member, *partitions)
    member.acknowledge(CallbackKind.ASSIGNED, *partitions)
    if not isinstance(member, ClassicDialogue):
        member.reply()


def want_back(member: ConsumerDialogue, *keep: int) -> tuple[int, ...]:
    """The group wants all but these of a member at rest; returns what it is to give up (eager members: everything)."""
    member.advance(5_000)
    if isinstance(member, ClassicDialogue):
        member.beaten(ErrorCode.REBALANCE_IN_PROGRESS)
        if not member.questions:
            member.joined(generation=2)
            member.synced(keep)
    else:
        member.reply(assigned=keep)
    return tuple(each.partition for each in member.questions[0].partitions)


def position(member: ConsumerDialogue, index: int) -> object:
    """What the machine answers when the application's side asks for a position."""
    ticket = f"position {len(member.actions)}"
    asked = PositionAsked(partition=orders(index)[0], ticket=ticket, deadline_ms=member.now_ms + 1_000)
    member.take(asked)
    member.settle()
    ended = member.ended(ticket)
    assert isinstance(ended, Complete), ended
    return ended.value


def leave_request(member: ConsumerDialogue) -> Message:
    """The open request that leaves the group."""
    member.settle()
    if isinstance(member, ClassicDialogue):
        return member.expect(LeaveGroupRequest)
    request = member.expect(ConsumerGroupHeartbeatRequest)
    assert request.member_epoch == -1
    return request
