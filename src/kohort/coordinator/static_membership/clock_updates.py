"""Effects of a decision on a static group's clock, derived from its records in one module for all cases.

A removed or replaced member no longer counts as offline, nor does a member of a KIP-848 group that heartbeats. Any
rebalance admits the waiting new members.

Laws: the clock names only members. An idle clock is removed, with its deadline; any other has a deadline.
Source: KIP-345's draft; requirement S1.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import replace
from typing import Final

from kohort.base.values import value
from kohort.coordinator import commands, model
from kohort.coordinator.classic.state import MemberRemoved, RebalanceBegun, StaticMemberReplaced
from kohort.coordinator.decision import Additions, Arm, Decision, Disarm, Effect
from kohort.coordinator.records import types as facts
from kohort.coordinator.records.types import StaticClockForgotten
from kohort.coordinator.settings import GroupSettings
from kohort.coordinator.static_membership.clock import StaticClock
from kohort.coordinator.static_membership.mode import clock_key, without_window
from kohort.errors import ErrorCode, Refused

# Replaced processes of static groups, which lost their instance ids: all their requests are refused.
#
# Most clients do not send their instance id with each heartbeat, and join again when they are unknown: two processes
# with one instance id would take it from each other many times a second.
#
# Laws: no present member is refused here. The memory is bounded, and a restart forgets it.
# Source: requirement S2; seen with librdkafka (KIP-848) and aiokafka (classic).

_SAID_BY_MEMBERS: Final = (
    commands.ConsumerGroupHeartbeat,
    commands.JoinGroup,
    commands.SyncGroup,
    commands.Heartbeat,
    commands.CommitOffsets,
)
#: Most remembered processes: a refused client does not come again.
MOST_FENCED: Final = 1_000


def check_not_fenced(groups: model.GroupsState, command: commands.GroupCommand) -> None:
    """Refuse every request of a process that lost its instance id.

    Raises:
        Refused: FENCED_INSTANCE_ID, at which every client stops.
    """
    if isinstance(command, _SAID_BY_MEMBERS) and (command.group_id, command.member_id) in groups.fenced_instances:
        raise Refused(
            ErrorCode.FENCED_INSTANCE_ID,
            f"a younger process has taken the group.instance.id of the member {command.member_id}: give each process "
            "its own",
        )


def apply_fenced(groups: model.GroupsState, record: facts.StaticMemberFenced) -> None:
    """Remember a replaced process as fenced; beyond the limit the oldest is forgotten."""
    groups.fenced_instances[record.group_id, record.member_id] = None
    while len(groups.fenced_instances) > MOST_FENCED:
        del groups.fenced_instances[next(iter(groups.fenced_instances))]


@value
class ClockResumed(facts.VolatileRecord):
    """The group's clock stood still for `by_ms`, because the broker was down or suspended."""

    by_ms: int


def follow_clocks(
    groups: model.GroupsState,
    decision: Decision,
    settings_for: Callable[[str], GroupSettings],
    *,
    is_by_hand: bool,
    now_ms: int,
) -> Decision:
    """Add the effects of a decision on the clocks of its groups to it.

    `is_by_hand`: the decision is about submitted moves, which admit no new members.
    """
    records: list[facts.Record] = []
    effects: list[Effect] = []
    for group_id in dict.fromkeys(record.group_id for record in decision.records):
        clock = groups.clocks.get(group_id)
        own = [] if clock is None else [record for record in decision.records if record.group_id == group_id]
        # The decision stops the clock itself.
        if clock is None or any(isinstance(record, StaticClockForgotten) for record in own):
            continue
        more, armed = _follow(groups, clock, own, settings_for(group_id), is_by_hand=is_by_hand, now_ms=now_ms)
        records += more
        effects += armed
    if not records and not effects:
        return decision
    return replace(decision, records=(*decision.records, *records), effects=(*decision.effects, *effects))


def _follow(
    groups: model.GroupsState,
    clock: StaticClock,
    own: list[facts.Record],
    settings: GroupSettings,
    *,
    is_by_hand: bool,
    now_ms: int,
) -> Additions:
    group_id, after = own[0].group_id, clock.copy()
    # The clock after the decision's own records is the one to complete.
    for record in own:
        apply_to(after, record)
    added: list[facts.Record] = [
        facts.OfflineMemberForgotten(group_id=group_id, member_id=member_id)
        for member_id in sorted((_gone(own) | _back(own) | _left_behind(own, after)) & after.offline.keys())
    ]
    group = groups.consumer.get(group_id)
    epoch = 0 if group is None else group.epoch
    # A rebalance assigns partitions to the waiting members too, so the window is over.
    if after.has_window and not is_by_hand and any(_is_rebalance(record, epoch) for record in own):
        added.append(without_window(group_id, after))
    for record in added:
        apply_to(after, record)
    if after.is_idle:
        return [*added, StaticClockForgotten(group_id=group_id)], [Disarm(clock_key(group_id))]
    # The clock has not changed, and its deadline stands.
    if not added and not any(isinstance(record, _OF_CLOCKS) for record in own):
        return [], []
    return added, [Arm(clock_key(group_id), max(now_ms, after.due_ms(settings)))]


def _gone(records: Iterable[facts.Record]) -> set[str]:
    """Return the ids of the members that the records remove."""
    gone: set[str] = set()
    for record in records:
        if isinstance(record, facts.ConsumerMemberForgotten | MemberRemoved):
            gone.add(record.member_id)
        elif isinstance(record, StaticMemberReplaced):
            gone.add(record.replaced_id)
        elif isinstance(record, facts.ClassicGroupStored):
            # A group that becomes classic keeps its members.
            gone.difference_update(member.member_id for member in record.members)
    return gone


def _left_behind(records: Sequence[facts.Record], clock: StaticClock) -> set[str]:
    """Return the offline members that are dropped when a classic group becomes a KIP-848 group."""
    # They were removed while the group was loaded, when no records are written.
    if not any(isinstance(record, facts.ClassicGroupForgotten) for record in records):
        return set()
    coming = {record.member_id for record in records if isinstance(record, facts.ConsumerMemberSubscribed)}
    return clock.offline.keys() - coming


def _back(records: Collection[facts.Record]) -> set[str]:
    """Return the ids of a KIP-848 group's members that are online by these records."""
    if any(isinstance(record, facts.ClassicGroupForgotten) for record in records):
        # The group changes its protocol: its members' assignments are written, which is no sign of life.
        return set()
    back = {
        record.member_id
        for record in records
        if isinstance(record, facts.CurrentAssignmentSet) and record.member_epoch > 0
    }
    back.update(
        record.member_id for record in records if isinstance(record, facts.MemberConnectionSeen) and not record.is_gone
    )
    return back


def _is_rebalance(record: facts.Record, epoch: int) -> bool:
    """Return whether a record begins a rebalance of all members; an unchanged epoch does not."""
    return isinstance(record, RebalanceBegun) or (
        isinstance(record, facts.ConsumerGroupEpochSet) and record.epoch > epoch
    )


#: Records that change only a clock.
_OF_CLOCKS: Final = (facts.OfflineMemberSet, facts.OfflineMemberForgotten, facts.StaticClockSet)


def apply_to(clock: StaticClock, record: facts.Record) -> None:
    """Apply one record to a clock; records of other types change nothing."""
    match record:
        case facts.OfflineMemberSet(member_id=member_id, since_ms=since_ms):
            clock.offline[member_id] = since_ms
        case facts.OfflineMemberForgotten(member_id=member_id):
            clock.offline.pop(member_id, None)
        case facts.StaticClockSet():
            clock.noted_ms, clock.lost_ms = record.noted_ms, record.lost_ms
            clock.window_opened_ms = record.window_opened_ms
        case ClockResumed(by_ms=by_ms):
            resume(clock, by_ms)
        case _:
            pass


def build_loaded_clock(groups: model.GroupsState, group_id: str, settings: GroupSettings, *, now_ms: int) -> Decision:
    """Resume a group's clock from the time at which the broker was last known to run; nothing is written.

    Offline members count as disconnected, like all others after a restart: their next request marks them as online.
    """
    clock, group = groups.clocks[group_id], groups.consumer.get(group_id)
    resumed = ClockResumed(group_id=group_id, by_ms=now_ms - clock.noted_ms)
    after = clock.copy()
    apply_to(after, resumed)
    gone: list[facts.Record] = [
        facts.MemberConnectionSeen(group_id=group_id, member_id=member_id, is_gone=True)
        for member_id in ([] if group is None else sorted(clock.offline.keys() & group.members.keys()))
    ]
    # A group that has become dynamic meanwhile stops its clock at once.
    due_ms = max(now_ms, after.due_ms(settings)) if settings.is_static else now_ms
    return Decision((resumed, *gone), (Arm(clock_key(group_id), due_ms),))


def resume(clock: StaticClock, by_ms: int) -> None:
    """Adjust the clock after a time in which it stood still."""
    clock.noted_ms += by_ms
    clock.lost_ms += by_ms


def apply_to_clock(groups: model.GroupsState, record: facts.Record) -> None:
    """Apply types 20,003 and 20,004; a record whose clock compaction removed creates another clock."""
    clock = groups.clocks.get(record.group_id)
    if clock is None:
        # There is no offline time to end, and none that stood still.
        if isinstance(record, facts.OfflineMemberForgotten | ClockResumed):
            return
        clock = groups.clocks[record.group_id] = StaticClock()
    apply_to(clock, record)


def apply_clock_forgotten(groups: model.GroupsState, record: StaticClockForgotten) -> None:
    """Remove the clock of a group (tombstone of type 20,004)."""
    groups.clocks.pop(record.group_id, None)


#: Record type -> function that applies it.
CLOCK_RECORDS: Final[dict[type[facts.Record], Callable[..., None]]] = {
    facts.OfflineMemberSet: apply_to_clock,
    facts.OfflineMemberForgotten: apply_to_clock,
    facts.StaticClockSet: apply_to_clock,
    ClockResumed: apply_to_clock,
    StaticClockForgotten: apply_clock_forgotten,
    facts.StaticMemberFenced: apply_fenced,
}
