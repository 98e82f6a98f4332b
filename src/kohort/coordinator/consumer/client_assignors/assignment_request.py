"""Targets that a member computes: choice of the member, input, result and failure.

The response to a heartbeat asks a member, which fetches the input (`decide_prepare`) and sends the result
(`decide_install`). The result is accepted even if the group has changed meanwhile. A member that fails, is late or
leaves is not asked again for that target. Once no member is left, or many have failed, a server-side assignor computes.

Laws: one computation of a group runs at a time, and only its member may send a result. A failure changes only the next
member to ask and the message to members: the target stays, and no member is fenced.
Source: KIP-848 as drafted.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable
from dataclasses import replace
from typing import Final

from kohort.assign.moves import find_fault
from kohort.base.values import value
from kohort.coordinator import commands, topics
from kohort.coordinator.consumer import apply, describe, subscription_metadata
from kohort.coordinator.consumer.assignment import assignor_input, async_assignor, batching_window, volatile
from kohort.coordinator.consumer.client_assignors import assignor_metadata, state
from kohort.coordinator.decision import Additions, Arm, ComputeTarget, Decision, Disarm, Reply, TimerKey
from kohort.coordinator.model import ConsumerGroup, ConsumerMember, GroupsState
from kohort.coordinator.records import types as facts
from kohort.coordinator.settings import GroupSettings
from kohort.errors import ErrorCode, Refused

#: Members that may fail before the server computes, whatever the size of the group: an error that all of them have
#: shows at the first, and a hanging assignor takes its rebalance timeout each time.
MOST_FAILED: Final = 16
#: Error codes of the coordinator itself in messages to members; assignors choose their own.
LATE: Final = -1
FAULTY: Final = -2
GONE: Final = -3


def compute_key(group_id: str, member_id: str) -> TimerKey:
    """Return the timer key of the deadline for a member that was asked to compute a target."""
    return TimerKey("compute", group_id, member_id)


def build_deadline(member: ConsumerMember, group_id: str, *, now_ms: int) -> Arm:
    """Build the deadline for a member that is asked to compute, unless it has one already."""
    return Arm(compute_key(group_id, member.member_id), now_ms + max(member.rebalance_timeout_ms, 0), if_absent=True)


def is_beside(group: ConsumerGroup, settings: GroupSettings, change: subscription_metadata.MembershipChange) -> bool:
    """Return whether a member or a custom assignor computes the next target, outside of a decision."""
    choice = assignor_metadata.client_choice(group, settings, change)
    if choice is not None and find_member_to_ask(group, change):
        return True
    return async_assignor.is_own(assignor_input.chosen_assignor(group, settings, change))


def find_member_to_ask(group: ConsumerGroup, change: subscription_metadata.MembershipChange) -> str:
    """Choose the member that computes the next target after the change; "" if none can.

    A member with a held heartbeat takes precedence, since its response can ask it at once.
    """
    side = group.client_assignors
    failed, held = ((), ()) if side is None else (side.failed, side.held)
    if len(failed) >= MOST_FAILED:
        return ""
    staying = group.members.keys() - change.gone
    able = [each for each in staying if each not in failed and is_there(group.members[each])]
    able = [each for each in able if each in held] or able
    # A joining member is asked last: the others wait for their response already.
    joining = [each for each in change.assignors if each not in group.members and each not in failed]
    return min(able or joining, default="")


def decide_asking(
    group: ConsumerGroup,
    image: topics.TopicImage,
    settings: GroupSettings,
    change: subscription_metadata.MembershipChange = subscription_metadata.NO_CHANGE,
    *,
    epoch: int,
    is_step: bool = False,
) -> Additions | None:
    """Ask a member to compute the target of `epoch`; `None` if a server-side assignor has to.

    `is_step`: as for `decide_computation`.
    """
    choice = assignor_metadata.client_choice(group, settings, change)
    if choice is None or choice.version is None:
        return None
    if group.computing is not None:
        # The end of the running computation asks for the next one.
        return [], [Disarm(batching_window.assignment_key(group.group_id))]
    member_id = find_member_to_ask(group, change)
    if not member_id:
        # The server's measure of an even target is no reason to move on from the target of a member's assignor.
        return ([], []) if is_step else None
    order = ComputeTarget(
        group_id=group.group_id,
        epoch=epoch,
        assignor=choice.name,
        assignable=assignor_input.build_assignable(group, image, settings, change, client_assignor=choice.name),
        is_step=is_step,
        timeout_ms=settings.group_consumer_assignor_timeout_ms,
        is_offloaded=True,
        member_id=member_id,
        version=choice.version,
    )
    noted = volatile.ComputationNoted(group_id=group.group_id, computing=order, failure=group.failure)
    return [noted], [Disarm(batching_window.assignment_key(group.group_id))]


def decide_prepare(
    groups: GroupsState, command: commands.PrepareAssignment, settings: GroupSettings, *, now_ms: int
) -> Decision:
    """Reply with the present input of the assignor to the member that computes."""
    group = describe.find_group(groups, command.group_id)
    order = _order_of(group, command)
    limited: GroupSettings | None = settings
    if order.is_step and group.epoch < order.epoch:
        limited = batching_window.settings_of_step(group, settings)
    else:
        order = replace(order, epoch=group.epoch, is_step=False)
    choice = assignor_metadata.client_choice(group, settings)
    if choice is not None and choice.version is not None:
        order = replace(order, assignor=choice.name, version=choice.version)
    # Between two steps as many moves may have begun as the limit allows: then this one may make none.
    limited = limited or replace(settings, group_assignor_max_moves=0)
    assignable = assignor_input.build_assignable(group, groups.image, limited, client_assignor=order.assignor)
    order = replace(order, assignable=assignable, is_prepared=True)
    noted = volatile.ComputationNoted(group_id=group.group_id, computing=order, failure=group.failure)
    reply = commands.PrepareAssignmentReply(
        group_epoch=order.epoch,
        assignor=order.assignor,
        version=order.version,
        assignable=assignable,
        member_epochs=tuple(group.members[each.member_id].member_epoch for each in assignable.members),
    )
    # The member may ask before it is told to compute: by a delayed request about an earlier computation.
    deadline = build_deadline(group.members[command.member_id], group.group_id, now_ms=now_ms)
    return Decision((noted,), (Reply(command.request, reply), deadline))


def decide_install(
    groups: GroupsState, command: commands.InstallAssignment, settings: GroupSettings, *, now_ms: int
) -> Decision:
    """Install a member's result as target, or have another member compute."""
    group = describe.find_group(groups, command.group_id)
    order = _order_of(group, command)
    if not order.is_prepared or command.group_epoch != order.epoch:
        given = f"was given {order.epoch}" if order.is_prepared else "was given none yet"
        raise Refused(
            ErrorCode.INVALID_REQUEST,
            f"GroupEpoch {command.group_epoch} is not the one of what {command.member_id} computes: it {given}; "
            "prepare the assignment anew",
        )
    if command.error:
        why = f"failed with error {command.error}"
        records, effects = build_failure(group, order, error=command.error, why=why, now_ms=now_ms)
        return Decision(tuple(records), (Reply(command.request, commands.InstallAssignmentReply()), *effects))
    owner = array("i", command.owners)
    fault = find_fault(order.assignable, owner) or assignor_metadata.check_said(order.assignable, command.said)
    if fault:
        records, effects = build_failure(group, order, error=FAULTY, why=fault, now_ms=now_ms)
        why = f"the assignment is invalid: the assignor {order.assignor} {fault}"
        answer = commands.InstallAssignmentReply(error=ErrorCode.INVALID_REQUEST, message=why)
        return Decision(tuple(records), (Reply(command.request, answer), *effects))
    if async_assignor.is_overtaken(group, order):
        answer = commands.InstallAssignmentReply(
            error=ErrorCode.REBALANCE_IN_PROGRESS,
            message="members have changed so that the assignment fits none; the asked member computes anew",
        )
        thrown = async_assignor.throw_away(group, settings, now_ms=now_ms)
        return Decision(thrown.records, (Reply(command.request, answer), *thrown.effects))
    taken = async_assignor.take_over(group, groups.image, settings, order, owner, now_ms=now_ms)
    said = [
        facts.ClientAssignmentSet(
            group_id=group.group_id, member_id=member_id, said=commands.ClientAssignment(0, version, metadata)
        )
        for member_id, version, metadata in command.said
        if member_id in group.members and (version or metadata)
    ]
    reply = Reply(command.request, commands.InstallAssignmentReply())
    return Decision((*taken.records, *said), (reply, *taken.effects))


def decide_late(group: ConsumerGroup, member_id: str, *, now_ms: int) -> Decision | None:
    """Fail a member's computation after its deadline; `None` if the member no longer computes."""
    order = group.computing
    if order is None or order.member_id != member_id:
        return None
    why = "did not answer within the rebalance timeout"
    records, effects = build_failure(group, order, error=LATE, why=why, now_ms=now_ms)
    return Decision(tuple(records), tuple(effects))


def build_failure(group: ConsumerGroup, order: ComputeTarget, *, error: int, why: str, now_ms: int) -> Additions:
    """Record that a member failed: all members get the error, and another member is asked at once.

    `why`: the end of a sentence with the assignor as subject.
    """
    group_id = group.group_id
    return [
        volatile.ComputationNoted(group_id=group_id, computing=None, failure=group.failure),
        ComputationFailed(group_id=group_id, member_id=order.member_id, assignor=order.assignor, why=why),
        facts.ClientAssignmentSet(
            group_id=group_id, member_id=state.EVERYBODY, said=commands.ClientAssignment(error, 0, b"")
        ),
    ], [Arm(batching_window.assignment_key(group_id), now_ms, if_absent=True)]


def _order_of(group: ConsumerGroup, command: commands.PrepareAssignment | commands.InstallAssignment) -> ComputeTarget:
    """Return the computation that the sender was asked for.

    Raises:
        Refused: UNKNOWN_MEMBER_ID if there is none, STALE_MEMBER_EPOCH if the sender has another epoch.
    """
    member_id, order = command.member_id, group.computing
    member = group.members.get(member_id)
    if member is None:
        raise Refused(ErrorCode.UNKNOWN_MEMBER_ID, f"the member {member_id} is not in the group {group.group_id}")
    if command.member_epoch != member.member_epoch:
        raise Refused(
            ErrorCode.STALE_MEMBER_EPOCH,
            f"the member's epoch is {member.member_epoch}, not {command.member_epoch}: its next heartbeat tells it",
        )
    if order is None or order.member_id != member_id:
        raise Refused(
            ErrorCode.UNKNOWN_MEMBER_ID,
            f"the member {member_id} is not the one that computes the assignment of {group.group_id} now: it was not "
            "asked, or is not any more",
        )
    return order


def is_there(member: ConsumerMember) -> bool:
    """Return whether a member can receive a message: it is connected, and not a classic member."""
    return member.member_epoch >= 0 and not member.is_disconnected and member.classic is None


# Records that change `ClientAssignorState`: kohort's own in the log, and volatile ones.
#
# Laws: no decision is made here.
# Source: KIP-848 as drafted (its records of members and targets).


@value
class ComputationFailed(facts.VolatileRecord):
    """A member failed to compute a target that it was asked for.

    `why`: the end of a sentence with its assignor as subject.
    """

    member_id: str
    assignor: str
    why: str


def apply_assignors_set(groups: GroupsState, record: facts.ClientAssignorsSet) -> None:
    """Set the assignors of a member (type 20,006)."""
    side = _side_to_be(groups, record.group_id)
    side.put(record.member_id, record.assignors)
    # A member with another assignor may be able to compute now.
    side.failed.discard(record.member_id)


def apply_assignors_forgotten(groups: GroupsState, record: facts.ClientAssignorsForgotten) -> None:
    """Remove the assignors of a member (tombstone of type 20,006)."""
    side = _side(groups, record.group_id)
    if side is not None:
        side.put(record.member_id, ())
        side.failed.discard(record.member_id)


def apply_assignment_set(groups: GroupsState, record: facts.ClientAssignmentSet) -> None:
    """Set the message to a member (type 20,007)."""
    side = _side_to_be(groups, record.group_id)
    side.said[record.member_id] = record.said
    _note_untold(groups, side, record)


def apply_assignment_forgotten(groups: GroupsState, record: facts.ClientAssignmentForgotten) -> None:
    """Remove the message to a member (tombstone of type 20,007)."""
    side = _side(groups, record.group_id)
    if side is not None and side.said.pop(record.member_id, None) is not None:
        _note_untold(groups, side, record)


def apply_computation_failed(groups: GroupsState, record: ComputationFailed) -> None:
    """Note that a member failed to compute."""
    side = _side(groups, record.group_id)
    if side is not None:
        side.failed.add(record.member_id)
        failures = (side.failure, f"{record.assignor} of {record.member_id} {record.why}")
        side.failure = "; ".join(filter(None, failures))[: async_assignor.LONGEST_ERROR]


def _note_untold(
    groups: GroupsState,
    side: state.ClientAssignorState,
    record: facts.ClientAssignmentSet | facts.ClientAssignmentForgotten,
) -> None:
    members = groups.consumer[record.group_id].members
    if record.member_id == state.EVERYBODY:
        side.untold.update(members)
    elif record.member_id in members:
        side.untold.add(record.member_id)
    else:
        side.untold.discard(record.member_id)


def _side(groups: GroupsState, group_id: str) -> state.ClientAssignorState | None:
    group = groups.consumer.get(group_id)
    return None if group is None else group.client_assignors


def _side_to_be(groups: GroupsState, group_id: str) -> state.ClientAssignorState:
    group = apply.group_of(groups, group_id)
    if group.client_assignors is None:
        group.client_assignors = state.ClientAssignorState()
        group.client_assignors.held.update(groups.holds.get(group_id, ()))
    return group.client_assignors


#: Record type -> function that applies it.
CLIENT_ASSIGNOR_RECORDS: Final[dict[type[facts.Record], Callable[..., None]]] = {
    facts.ClientAssignorsSet: apply_assignors_set,
    facts.ClientAssignorsForgotten: apply_assignors_forgotten,
    facts.ClientAssignmentSet: apply_assignment_set,
    facts.ClientAssignmentForgotten: apply_assignment_forgotten,
    ComputationFailed: apply_computation_failed,
}
