"""The law that a group's history gives the true reason of each change.

The world's knowledge is compared with the history: the sender of a request, the length of a silence, the member of
a closed connection, the former subscription of a member.

Laws: the reason for which a member is removed, and the trigger of each epoch and rebalance, is one that the world knows
of. Where two are true (a silent member whose connection is gone, too) either may be told.
Source: requirements J1 and J2.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from kohort.coordinator import records as facts
from kohort.coordinator.commands import groups as asked
from kohort.coordinator.commands.admin import AlterGroupConfigs, SubmitMoves
from kohort.coordinator.commands.assignors import InstallAssignment
from kohort.coordinator.decision import Decision, TimerKey
from kohort.coordinator.events.triggers import Stimulus
from kohort.coordinator.model import GroupsState
from kohort.coordinator.shard import Shard
from kohort.journal.rows import Entry
from kohort.testing.invariants.sessions import SessionLaws
from kohort.testing.trace import LawBroken

#: Event of a row -> which of its details is a cause.
_CAUSES: Final = {"member_removed": "reason", "epoch_bumped": "trigger", "rebalance_began": "trigger"}
#: Of an epoch that nothing but an administrator, or the way to an even target, has raised.
_STEPS: Final = frozenset({"next step to an even target", "limit on moves lifted", "group's assignor changed"})
#: Other deadlines, by kind.
_DEADLINES: Final = {
    "assignment": _STEPS,
    "rebalance": frozenset({"rebalance timeout"}),
    "join": frozenset({"join timeout"}),
    "sync": frozenset({"sync timeout"}),
    "pending": frozenset({"member id was not used"}),
    "initial_delay": frozenset({"initial delay over"}),
    "clock": frozenset({"registration timeout", "expansion timeout"}),
}
#: Config -> what a change of it may raise an epoch for.
_BY_CONFIG: Final = {
    "group.rebalance.token": "forced by an administrator",
    "group.membership": "group became dynamic",
}
_NEW: Final = frozenset({"member joined", "static member returned"})
_OTHER_WISHES: Final = frozenset({"subscription changed", "assignor changed"})


class CauseLaws:
    """Checks of the reasons in journal entries.

    Args:
        is_by_administrator: whether a request came from the administrator.
    """

    def __init__(self, is_by_administrator: Callable[[asked.LeaveGroup], bool]) -> None:
        self._is_by_administrator: Final = is_by_administrator

    def check(
        self,
        entry: Entry,
        shard: Shard,
        stimulus: Stimulus,
        decision: Decision,
        sessions: SessionLaws,
        *,
        now_ms: int,
    ) -> None:
        """ToldCauseIsTrue: check a row that is about to be written; the decision is not applied yet."""
        name = _CAUSES.get(entry.event)
        if name is None:
            return
        told = dict(entry.details)[name]
        if isinstance(stimulus, TimerKey) and stimulus.kind == "session":
            true = sessions.causes(shard, stimulus.group_id, stimulus.member_id, now_ms=now_ms)
        else:
            true = self._true(shard.groups, stimulus, entry.group_id, decision)
        if told not in true:
            why = f"{entry.event} of {entry.member_id or 'the group'}: told {told!r}, true is {sorted(true)}"
            raise LawBroken("ToldCauseIsTrue", why, group_id=entry.group_id)

    def _true(self, groups: GroupsState, stimulus: Stimulus, group_id: str, decision: Decision) -> frozenset[str]:
        match stimulus:
            case TimerKey():
                return _DEADLINES.get(stimulus.kind, frozenset())
            case asked.TopicsChanged():
                return frozenset({"topics changed"})
            case asked.TargetComputed() | InstallAssignment():
                return _STEPS
            case SubmitMoves():
                return frozenset({"administrator moved partitions"})
            case AlterGroupConfigs():
                return frozenset({_BY_CONFIG[name] for name in stimulus.changes if name in _BY_CONFIG})
            case asked.LeaveGroup():
                is_removal = self._is_by_administrator(stimulus)
                return frozenset({"removed by an administrator" if is_removal else "member left"})
            case asked.ConsumerGroupHeartbeat(member_epoch=-1):
                return frozenset({"member left"})
            case asked.ConsumerGroupHeartbeat(member_epoch=-2):
                return frozenset({"static member left for a while"})
            case asked.ConsumerGroupHeartbeat() | asked.JoinGroup():
                true = _of_wishes(groups, group_id, stimulus.member_id, decision)
                says = getattr(stimulus, "client_assignors", None) is not None
                return true | {"member asked for an assignment"} if says else true
            case _:
                return frozenset({type(stimulus).__name__})


def _of_wishes(groups: GroupsState, group_id: str, member_id: str, decision: Decision) -> frozenset[str]:
    """Return the reasons that fit a member that subscribes: it is new, or its subscription differs."""
    consumer, classic = groups.consumer.get(group_id), groups.classic.get(group_id)
    before = None if consumer is None else consumer.members.get(member_id)
    if before is None and (classic is None or member_id not in classic.members):
        return _NEW | {"group is full", "group became dynamic"}
    for record in decision.records:
        if isinstance(record, facts.ConsumerMemberSubscribed) and record.member_id == member_id and before is not None:
            was = before.subscribed_topic_names, before.subscribed_topic_regex or ""
            wants = record.subscribed_topic_names, record.subscribed_topic_regex or ""
            # A classic member names its assignors with what it wants; of two true things either may be told.
            is_same = before.classic is None and record.server_assignor == before.server_assignor
            if wants != was:
                return frozenset({"subscription changed"}) if is_same else _OTHER_WISHES
            return frozenset({"assignor changed", "member rejoined"})
    return _OTHER_WISHES | {"member rejoined"}
