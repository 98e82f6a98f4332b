"""What a decision means in words of groups and members: the entries of the journal.

`tell` looks at the state before a decision is carried out, at what led to it and at its records. What changes nothing
is told by `count_of` alone.

Laws: nothing is decided or changed here. Every record of membership, epochs and assignments is told; a target is one
entry, however many members it concerns. A group epoch or a rebalance always names its trigger.
Source: requirements G4 and J1.
"""

from __future__ import annotations

from typing import Final

from kohort.coordinator import commands as asked
from kohort.coordinator import records as facts
from kohort.coordinator.decision import Decision, Reply, TimerKey
from kohort.coordinator.model import GroupsState
from kohort.coordinator.teller import TIMERS, Stimulus, Teller
from kohort.journal.rows import Entry, RowKind

_COUNTED_RECORDS: Final = frozenset({facts.OffsetCommitted, facts.TransactionalOffsetCommitted})
_COUNTED: Final[dict[type[asked.Command], str]] = {
    asked.ConsumerGroupHeartbeat: "heartbeats",
    asked.Heartbeat: "heartbeats",
    asked.CommitOffsets: "commits",
    asked.CommitTransactionOffsets: "commits",
    asked.FetchOffsets: "offset_fetches",
}


def count_of(stimulus: Stimulus, decision: Decision) -> str | None:
    """The name under which a decision is only counted, `None` if it has to be told or means nothing."""
    if decision.records and type(decision.records[0]) not in _COUNTED_RECORDS:
        return None
    return None if _refusal(decision) is not None else _COUNTED.get(type(stimulus))  # type: ignore[arg-type]


def tell(groups: GroupsState, stimulus: Stimulus, decision: Decision) -> list[Entry]:
    """The entries of one decision that is about to be carried out; empty if there is nothing to tell.

    Args:
        groups: the state before the decision.
        stimulus: what led to it.
        decision: records and effects.
    """
    refusal = _refusal(decision)
    if refusal is not None:
        return _refused(stimulus, refusal)
    by_group: dict[str, list[facts.Record]] = {}
    for record in decision.records:
        if record.group_id:
            by_group.setdefault(record.group_id, []).append(record)
    entries: list[Entry] = []
    for group_id, records in by_group.items():
        told = list(Teller(groups, stimulus, group_id, records).entries())
        if told:
            entries.append(_stimulus(stimulus, group_id))
            entries += told
    return entries


def _refusal(decision: Decision) -> asked.Refusal | None:
    for effect in decision.effects:
        if type(effect) is Reply and type(effect.body) is asked.Refusal:
            return effect.body
    return None


def _refused(stimulus: Stimulus, refusal: asked.Refusal) -> list[Entry]:
    # Whoever describes a group asks for each kind in turn; that it is of the other kind is no event of the group.
    if not isinstance(stimulus, asked.GroupCommand) or isinstance(stimulus, asked.DescribeConsumerGroup):
        return []
    details = [("api", type(stimulus).__name__), ("error", refusal.code.name)]
    if refusal.message:
        details.append(("why", refusal.message))
    return [
        Entry(
            kind=RowKind.DECISION,
            event="refused",
            group_id=stimulus.group_id,
            member_id=_member_of(stimulus),
            details=tuple(details),
        )
    ]


def _stimulus(stimulus: Stimulus, group_id: str) -> Entry:
    details: tuple[tuple[str, str], ...] = ()
    if isinstance(stimulus, TimerKey):
        details = (("deadline", TIMERS.get(stimulus.kind, stimulus.kind)),)
        event = "deadline_passed"
    else:
        event = type(stimulus).__name__
        if isinstance(stimulus, asked.ConsumerGroupHeartbeat):
            details = (("member_epoch", str(stimulus.member_epoch)),)
        elif isinstance(stimulus, asked.JoinGroup) and stimulus.reason:
            details = (("reason", stimulus.reason),)
        elif isinstance(stimulus, asked.LeaveGroup):
            reasons = dict.fromkeys(member.reason for member in stimulus.members if member.reason)
            details = tuple(("reason", reason) for reason in list(reasons)[:1])
        elif isinstance(stimulus, asked.TargetComputed):
            details = (("outcome", "failed" if stimulus.error else "answered"),)
    return Entry(kind=RowKind.STIMULUS, event=event, group_id=group_id, member_id=_member_of(stimulus), details=details)


def _member_of(stimulus: Stimulus) -> str:
    member_id = getattr(stimulus, "member_id", "") or ""
    return str(member_id)
