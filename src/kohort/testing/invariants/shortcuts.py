"""Comparison of a shard's short cuts for settled heartbeats with the decisions that they replace.

| law | check |
| --- | --- |
| RenewalIsHandling | `check_renewal`: what `Shard.renew` does is what `handle` and `commit` would do |
| EndIsAnswering | `check_end_of_hold`: what `Shard.find_ended` tells is what `decide_answer` would tell |

Source: kohort's own rule.
"""

from __future__ import annotations

from kohort.coordinator.commands.groups import ConsumerGroupHeartbeat, ConsumerGroupHeartbeatReply
from kohort.coordinator.decision import Arm, Decision, Disarm, Reply, TimerKey
from kohort.coordinator.delayed_heartbeats import HeartbeatHeld, HeartbeatReleased, hold_key
from kohort.coordinator.events.triggers import Stimulus
from kohort.coordinator.shard import Shard
from kohort.errors import InvariantViolation


def check_renewal(shard: Shard, command: Stimulus | None, decision: Decision, *, now_ms: int) -> None:
    """RenewalIsHandling: check that a heartbeat is renewed as it is handled, or not at all."""
    # A member that has cut a hold is told a short interval, and never renewed; nor is one with no interval so far.
    if not isinstance(command, ConsumerGroupHeartbeat) or not command.hold_ms or command.since_cut_ms >= 0:
        return
    session = TimerKey("session", command.group_id, command.member_id)
    before_ms = shard.timers.deadline(session)
    interval_ms = shard.renew(command, now_ms=now_ms)
    after_ms = shard.timers.deadline(session)
    if interval_ms is None:
        if after_ms != before_ms:
            raise InvariantViolation(f"RenewalIsHandling: {command} was not renewed, and its session was")
        return
    if after_ms is None:
        raise InvariantViolation(f"RenewalIsHandling: {command} was renewed, and its session has no end")
    if command.hold_ms > 0:
        held = HeartbeatHeld(group_id=command.group_id, command=command)
        until = Arm(hold_key(command.group_id, command.member_id), now_ms + command.hold_ms)
        if decision != Decision((held,), (Arm(session, after_ms), until)):
            raise InvariantViolation(f"RenewalIsHandling: {command} is held, and it leads to {decision}")
        return
    reply = ConsumerGroupHeartbeatReply(
        member_id=command.member_id,
        member_epoch=command.member_epoch,
        heartbeat_interval_ms=interval_ms,
        assignment=None,
    )
    if decision != Decision((), (Reply(command.request, reply), Arm(session, after_ms))):
        raise InvariantViolation(f"RenewalIsHandling: {reply} is not what {command} leads to: {decision}")


def check_end_of_hold(shard: Shard, *, now_ms: int) -> None:
    """EndIsAnswering: check that a hold that ends at once gets the answer of a whole decision."""
    found = shard.find_ended(now_ms)
    if found is None:
        return
    key, reply, session = found
    command = shard.held(key.group_id, key.member_id)
    if command is None or command.request != reply.request:
        raise InvariantViolation(f"EndIsAnswering: {reply} answers nothing that is held: {command}")
    released = HeartbeatReleased(group_id=key.group_id, member_id=key.member_id)
    decision = shard.decide_answer(command, now_ms=now_ms)
    if decision != Decision((released,), (reply, *session, Disarm(key))):
        raise InvariantViolation(f"EndIsAnswering: {reply} is not what {command} leads to: {decision}")
