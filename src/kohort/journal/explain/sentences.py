"""Builders of an explanation's values and sentences from the state in `group_state`.

Laws: no rows are read here. An open event lasts until the given `now_ms`.
Source: requirement J2.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Final

from kohort.base.values import from_row
from kohort.journal.explain import group_state
from kohort.journal.explain.explanation import Delay, Gap, GroupRebalance, Move, Ownership, Phase, Standing
from kohort.journal.words import (
    PAUSED,
    MemberNames,
    Partition,
    name_principal,
    show_clock,
    show_duration,
    show_partitions,
)

#: Time after which an inactive awaited member counts as silent, ms: two of the usual heartbeats are due.
SILENT_MS: Final = 10_000


def name_of(rebalance: group_state.FollowedRebalance) -> str:
    """Return the name of a rebalance for a sentence: its epoch or generation."""
    what = "epoch" if rebalance.protocol == "consumer" else "generation"
    return f"the rebalance to {what} {rebalance.number}" if rebalance.number is not None else "a rebalance"


def build_delay(
    name: str,
    what: str,
    began_ms: int,
    ended_ms: int | None = None,
    *,
    end: str = "",
    partitions: Iterable[Partition] = (),
    meanwhile: Iterable[str] = (),
    is_held: bool | None = None,
    now_ms: int = 0,
) -> Delay:
    """Build a wait for a member, for an assignor or for the move throttle."""
    named, seen = tuple(sorted(partitions)), tuple(dict.fromkeys(meanwhile))
    lasted_ms = (now_ms if ended_ms is None else ended_ms) - began_ms
    # Two heartbeats are missing: the wait is explained by the member's silence.
    if not seen and not end and what in ("hear", "give up", "join again") and lasted_ms >= SILENT_MS:
        seen = ("silent",)
    delay = Delay(
        member=name, what=what, partitions=named, began_ms=began_ms, ended_ms=ended_ms, end=end, meanwhile=seen,
        sentence="", is_held=is_held,
    )  # fmt: skip
    return replace(delay, sentence=_say_delay(delay, lasted_ms))


def build_pace(
    held_back: group_state.HeldBack, partitions: Iterable[Partition], ended_ms: int | None = None, *, now_ms: int = 0
) -> Delay:
    """Build a wait of deferred moves for the move throttle."""
    pace = held_back.pace
    name = "the pause of moves" if pace == PAUSED else f"the pace{' of moves' if not pace else f' of {pace}'}"
    return build_delay(name, "begin", held_back.since_ms, ended_ms, partitions=partitions, now_ms=now_ms)


def build_waits(
    members: Collection[group_state.FollowedMember],
    rebalance: group_state.FollowedRebalance | None,
    holdings: group_state.OwnershipTimeline,
    names: MemberNames,
    *,
    now_ms: int,
) -> list[Delay]:
    """Build the present waits; `rebalance`: the open one, `None` if there is none."""
    found: list[Delay] = []
    for member in members:
        # A member that was told has to revoke; until then it has to hear of it.
        if member.planned_since_ms is not None and member.asked_since_ms is None:
            found.append(
                build_delay(
                    member.name, "hear", member.planned_since_ms, partitions=member.planned,
                    meanwhile=member.meanwhile, is_held=member.is_held, now_ms=now_ms,
                )
            )  # fmt: skip
        if member.asked_since_ms is not None:
            seen, asked = member.meanwhile, member.asked
            found.append(
                build_delay(
                    member.name, "give up", member.asked_since_ms, partitions=asked, meanwhile=seen, now_ms=now_ms
                )
            )
        if member.away_since_ms is not None:
            held = holdings.of(member.name)
            found.append(build_delay(member.name, "come back", member.away_since_ms, partitions=held, now_ms=now_ms))
    if rebalance is None:
        return found
    if rebalance.held_back is not None:
        found.append(build_pace(rebalance.held_back, rebalance.held_back.left, now_ms=now_ms))
    if rebalance.assignor_asked_ms is not None:
        found.append(
            build_delay(f"assignor {rebalance.assignor}", "assign", rebalance.assignor_asked_ms, now_ms=now_ms)
        )
    # The other members wait for the leader's assignment.
    if rebalance.protocol == "classic" and rebalance.computed_ms is not None:
        found.append(build_delay(names.of(rebalance.leader), "share out", rebalance.computed_ms, now_ms=now_ms))
    elif rebalance.protocol == "classic":
        # The join phase is open: others wait for the members that have not rejoined.
        missing = [member for member in members if member.member_id not in rebalance.joined]
        found += [build_delay(member.name, "join again", rebalance.began_ms, now_ms=now_ms) for member in missing]
    return found


def build_standings(
    members: Iterable[group_state.FollowedMember],
    holdings: group_state.OwnershipTimeline,
    window_ms: int | None,
    *,
    now_ms: int,
) -> list[Standing]:
    """Build each member's partitions, with the reason if it has fewer than others."""
    # `window_ms` is the end of the wait of a static group's new members.
    found: list[Standing] = []
    for member in members:
        held = tuple(sorted(holdings.of(member.name)))
        because = member.short.get("because", "")
        # The first of these that applies takes precedence over a config.
        if member.is_new and window_ms is not None and not held:
            because = "window"
        elif member.away_since_ms is not None:
            because = "away"
        elif member.waits_since_ms is not None:
            because = "others"
        left_ms = None if window_ms is None else window_ms - now_ms
        sentence = say_standing(member.name, held, because, member.short, left_ms=left_ms)
        found.append(
            Standing(
                member=member.name, member_id=member.member_id, partitions=held, joined_ms=member.joined_ms,
                because=because, sentence=sentence,
            )
        )  # fmt: skip
    return found


def build_ownership(holding: group_state.Holding, *, now_ms: int) -> Ownership:
    """Build a member's time as owner of a partition."""
    (topic, number), move = holding.partition, holding.unread
    unread_ms = None if move is None else (move.read_again_ms or 0) - (move.read_ms or 0)
    is_at_most = move is not None and move.is_at_most
    lasted_ms = (now_ms if holding.ended_ms is None else holding.ended_ms) - holding.began_ms
    name = show_partitions([holding.partition])
    most = "at most " if is_at_most else ""
    gap = f" (it was unread for {most}{show_duration(unread_ms)})" if unread_ms else ""
    if holding.ended_ms is None:
        sentence = f"{holding.member} has {name}, for {show_duration(lasted_ms)} by now{gap}"
    else:
        end = f", until {holding.end}" if holding.end else ""
        sentence = f"{holding.member} had {name} for {show_duration(lasted_ms)}{gap}{end}"
    return from_row(
        Ownership, holding, topic=topic, partition=number, sentence=sentence, unread_ms=unread_ms, is_at_most=is_at_most
    )


def build_rebalance(
    found: group_state.FollowedRebalance, after: group_state.FollowedRebalance | None, *, now_ms: int
) -> GroupRebalance:
    """Build a rebalance; `after`: the next rebalance, `None` if there is none."""
    moves = tuple(
        # Without another reader, the giver was the last to read.
        from_row(
            Move, move, topic=topic, partition=number,
            reader=move.reader or (None if move.read_ms is None else move.giver),
        )
        for (topic, number), move in sorted(found.moves.items())
    )  # fmt: skip
    phases = _build_phases(found)
    overtaken_by = after if found.is_overtaken else None
    return from_row(
        GroupRebalance,
        found,
        # An overtaken or cut rebalance has no end of its own.
        ended_ms=None if found.is_overtaken or found.is_cut else found.ended_ms,
        overtaken_by=None if overtaken_by is None else overtaken_by.number,
        triggers=tuple(found.triggers),
        moves=moves,
        delays=tuple(found.delays),
        sentence=_say_rebalance(
            found, moves, overtaken_by="" if overtaken_by is None else name_of(overtaken_by), now_ms=now_ms
        ),
        phases=phases,
        timing=say_phases(phases),
    )


def _say_rebalance(
    found: group_state.FollowedRebalance, moves: Sequence[Move], *, overtaken_by: str, now_ms: int
) -> str:
    """Describe a rebalance; `overtaken_by`: name of the one that began before its end, empty if none."""
    is_over = found.ended_ms is not None
    lasted = show_duration((now_ms if found.ended_ms is None else found.ended_ms) - found.began_ms)
    unknown = (
        "of what came when the broker crashed, which is not known"
        if found.is_found
        else "of what is not in the history"
    )
    because = ", ".join(dict.fromkeys(trigger.sentence for trigger in found.triggers)) or unknown
    moved = _say_moves(moves, found.unnamed, is_computed=found.computed_ms is not None, is_over=is_over)
    # Why members have fewer partitions than others, though it is over.
    short = [
        say_short(f"{name} has {'nothing' if each.get('has') == '0' else each.get('has', '')}", each)
        for name, each in found.short.items()
    ]
    if short:
        moved = (
            f"{'nothing moves' if moved == _NO_MOVES else moved}, but {'; '.join(short[:_SHOWN])}{_more_like(short)}"
        )
    parts = [f"{name_of(found)}, because {because}: {moved}"]
    if found.is_cut:
        parts.append(f"what became of it after {lasted} is not known: the broker crashed")
    elif found.is_found and is_over:
        # Nothing is known of the time in which it began.
        pass
    elif overtaken_by:
        parts.append(f"after {lasted} {overtaken_by} came before its end")
    else:
        behind = f", {_say_silence(found.silences)}" if found.silences else ""
        parts.append(f"it {'took' if is_over else 'has been going on for'} {lasted}{behind}")
    slowest = max(found.delays, key=lambda delay: (delay.ended_ms is None, _length(delay)), default=None)
    if slowest is not None and (_length(slowest) or slowest.ended_ms is None):
        parts.append(slowest.sentence)
    # Partitions with a new owner that has not read yet: no member reads them meanwhile.
    unread = {
        place: now_ms - move.read_ms
        for place, move in found.moves.items()
        if move.read_ms is not None and move.granted_ms is not None and move.read_again_ms is None and not move.is_over
    }
    parts += _say_cost(moves, unread)
    parts += dict.fromkeys(hint for each in found.silences if (hint := _say_hint(each)))
    return "; ".join(parts)


def _build_phases(found: group_state.FollowedRebalance) -> tuple[Phase, ...]:
    """Build the phases of a rebalance, as far as the rows have them."""
    phases = [
        Phase(name="unnoticed", member=each.member, began_ms=each.began_ms, ended_ms=each.noticed_ms)
        for each in found.silences
    ]
    known_ms = found.computed_ms
    gathered_ms = found.computing_ms or known_ms
    phases.append(Phase(name="gathered", member=None, began_ms=found.began_ms, ended_ms=gathered_ms))
    if found.protocol == "classic":
        # In a classic group the target is known when the leader has sent it.
        known_ms = found.ended_ms if found.computed_ms is not None else None
    if gathered_ms is not None:
        phases.append(Phase(name="computed", member=None, began_ms=gathered_ms, ended_ms=known_ms))
    moves = list(found.moves.values())
    for giver in dict.fromkeys(move.giver for move in moves if move.giver is not None and move.asked_ms is not None):
        own = [move for move in moves if move.giver == giver]
        asked = [move.asked_ms for move in own if move.asked_ms is not None]
        phases.append(
            Phase(
                name="given up", member=giver, began_ms=min(asked), ended_ms=_last([each.released_ms for each in own])
            )
        )
    if known_ms is not None and moves:
        ended_ms = _last([move.read_again_ms or move.granted_ms for move in moves])
        freed = [each.released_ms for each in moves if each.released_ms is not None]
        began_ms = max([known_ms, *(each for each in freed if ended_ms is None or each <= ended_ms)])
        # Partitions without an owner were assigned with the target itself.
        began_ms = began_ms if ended_ms is None else min(began_ms, ended_ms)
        phases.append(Phase(name="taken", member=None, began_ms=began_ms, ended_ms=ended_ms))
    return tuple(phases)


def _last(times: Iterable[int | None]) -> int | None:
    """Return the latest of some times; `None` if one of them is not reached yet."""
    found = list(times)
    known = [each for each in found if each is not None]
    return max(known) if len(known) == len(found) else None


# Sentences of an explanation.
#
# Laws: a sentence has no facts that the explanation's values lack. Members without a name in the rows are counted.
# Source: requirement J2; `coordinator/journal_events/triggers.py`, which names the triggers.

#: Trigger of the coordinator -> sentence about the members.
_OF_MEMBERS: Final = {
    "member joined": "{} joined",
    "member left": "{} left",
    "removed by an administrator": "{} {was} removed by an administrator",
    "session timeout": "{} {was} silent for the whole session timeout",
    "rebalance timeout": "{} did not give its partitions up in time",
    "join timeout": "{} did not join again in time",
    "sync timeout": "{} did not ask for its part in time",
    "connection lost": "{} lost the connection and did not come back",
    "static member returned": "{} came back under the same name",
    "static member left for a while": "{} left for a while",
    "subscription changed": "{} changed its subscription",
    "assignor changed": "{} asked for another assignor",
    "member asked for an assignment": "{} asked for an assignment",
    "member rejoined": "{} joined again",
    "registration timeout": "{} {was} offline for the whole registration timeout",
    "group is full": "{} {was} turned away because the group is full",
}
#: Trigger -> sentence about the group.
_OF_GROUP: Final = {
    "topics changed": "the topics changed",
    "next step to an even target": "the next of limited moves were due",
    "limit on moves lifted": "a limit on moves was lifted",
    "administrator moved partitions": "an administrator moved partitions",
    "expansion timeout": "the new members had been gathered",
    "forced by an administrator": "an administrator forced it",
    "group became dynamic": "the group became dynamic",
    "group's assignor changed": "the group got another assignor",
}
#: Most names of members and flows in a sentence; the rest is a number.
_SHOWN: Final = 4
#: Sentence for a rebalance that changed no owner.
_NO_MOVES: Final = "no partition had to move"
#: Awaited action of a member -> its verb.
_VERBS: Final = {
    "hear": "to hear that it has to give up",
    "give up": "to give up",
    "join again": "to join again",
    "share out": "to share the partitions out",
    "come back": "to come back",
    "assign": "to assign",
    "begin": "to let",
}

#: Reason of a removal -> how a wait for that member ended.
ENDS: Final = {
    "session timeout": "was silent until its session ended",
    "registration timeout": "was offline until its registration timeout ended",
    "connection lost": "lost its connection",
    "rebalance timeout": "did not do it in time, though it sent heartbeats",
    "member left": "left",
    "removed by an administrator": "was removed by an administrator",
}


def say_trigger(trigger: str, members: Sequence[str], why: str, by: str = "") -> str:
    """Describe the trigger of a rebalance; `by`: the principal of the request, if it is known.

    >>> say_trigger("removed by an administrator", ["ann"], "removed by an administrator")
    'ann was removed by an administrator'
    """
    said = _OF_GROUP.get(trigger)
    if said is None:
        words = _OF_MEMBERS.get(trigger)
        if words is None:
            said = trigger or "nothing that the rows name"
        else:
            said = words.format(_people(members) or "a member", was="were" if len(members) > 1 else "was")
    said = name_principal(said, by)
    # An administrator's reason often equals the trigger.
    return f"{said} ({why})" if why and why != trigger else said


def say_phases(phases: Iterable[Phase]) -> str:
    """Describe the phases of a rebalance.

    >>> from kohort.journal.explain.explanation import Phase
    >>> say_phases([Phase(name="gathered", member=None, began_ms=10, ended_ms=60)])
    'gathered in 50 ms'
    """
    said = []
    for phase in phases:
        by = f" by {phase.member}" if phase.member else ""
        if phase.ended_ms is None:
            said.append(f"not {phase.name}{by} yet")
        elif phase.name == "unnoticed":
            said.append(f"{phase.member} unnoticed for {show_duration(phase.ended_ms - phase.began_ms)}")
        else:
            said.append(f"{phase.name}{by} in {show_duration(phase.ended_ms - phase.began_ms)}")
    return ", ".join(said)


def _say_delay(delay: Delay, lasted_ms: int) -> str:
    """Describe the wait of other members for one member, for an assignor or for the move throttle."""
    what, named = delay.what, show_partitions(delay.partitions)
    verb = _VERBS[what] + (f" {named}" if delay.partitions and what in ("give up", "hear") else "")
    verb += f" {named} begin to move" if what == "begin" else ""
    if delay.is_held is not None:
        verb += ", though its heartbeat was held" if delay.is_held else ", out of reach until its next heartbeat"
    verb += f" with {named}" if delay.partitions and what == "come back" else ""
    if delay.ended_ms is None:
        said = f"{delay.member} has had {show_duration(lasted_ms)} {verb}"
    else:
        said = f"{delay.member} took {show_duration(lasted_ms)} {verb}" + (f" and {delay.end}" if delay.end else "")
    return f"{said} (meanwhile: {', '.join(delay.meanwhile)})" if delay.meanwhile else said


def say_standing(
    member: str, held: Sequence[Partition], because: str, short: Mapping[str, str], *, left_ms: int | None
) -> str:
    """Describe a member's partitions, with the reason if it has fewer than others."""
    # `left_ms` is the remaining wait of a static group's new members.
    has = f"{member} has {show_partitions(held) if held else 'nothing'}"
    match because:
        case "":
            return f"{has}: {'its share' if held else 'the assignor has nothing for it'}"
        case "window":
            left = f" for {show_duration(left_ms)} more" if left_ms is not None and left_ms > 0 else ""
            return f"{has}: it waits with other new members of the static group{left} (group.expansion.timeout.ms)"
        case "others":
            return f"{has}: others still have what it shall get"
        case "away":
            return f"{has}: it is away"
        case _:
            return say_short(has, short)


def say_short(has: str, short: Mapping[str, str]) -> str:
    """Append to `has`, a member's partitions, why they are fewer than others have.

    >>> say_short("ann has nothing", {"because": "group.assignor.max.moves", "even": "2"})
    'ann has nothing of the 2 of an even share: group.assignor.max.moves withholds the rest'
    """
    because = short.get("because", "")
    if because == "no topic":
        wants = f" ({short['topics']})" if short.get("topics") else ""
        return f"{has}: there is no topic that it subscribes to{wants}"
    even = f" of the {short['even']} of an even share" if "even" in short else ""
    return f"{has}{even}: {because} withholds the rest"


def say_now(
    delays: Sequence[Delay],
    rebalance: group_state.FollowedRebalance | None,
    *,
    waiting: Sequence[str],
    members: int,
    gap: Gap | None,
    short: Sequence[str],
) -> str:
    """Describe the present waits of a group, after the latest crash if there was one.

    `rebalance`: the open one. `waiting`: members that wait for partitions of others. `short`: sentences about members
    with fewer partitions than others.
    """
    now = _say_waits(delays, rebalance, waiting, members)
    if short and rebalance is None and not delays:
        now = f"{now.removesuffix(': nothing is waited for')}, but {'; '.join(short[:_SHOWN])}{_more_like(short)}"
    if gap is None:
        return now
    times = f"{show_clock(gap.began_ms)} and {show_clock(gap.ended_ms)}"
    gone = (
        f", when {_people(gap.gone)} ceased to be {'members' if len(gap.gone) > 1 else 'a member'}" if gap.gone else ""
    )
    return f"the broker crashed between {times}{gone}, and what came then is not known; {now}"


def _say_waits(
    delays: Sequence[Delay], rebalance: group_state.FollowedRebalance | None, waiting: Sequence[str], members: int
) -> str:
    if delays:
        return "; ".join(delay.sentence for delay in delays)
    latest = "it" if rebalance is None else name_of(rebalance)
    if waiting:
        verb = "wait" if len(waiting) > 1 else "waits"
        return f"{latest} goes on: {_people(waiting)} {verb} for partitions that others still have"
    if rebalance is not None and rebalance.computed_ms is None:
        return f"{latest} goes on: the target assignment is not known yet"
    if rebalance is not None:
        return f"{latest} goes on: members learn of it with their next heartbeats"
    count = "1 member" if members == 1 else f"{members} members"
    return f"the group is at rest with {count}: nothing is waited for" if members else "the group has no members"


def _say_moves(moves: Sequence[Move], unnamed: int, *, is_computed: bool, is_over: bool) -> str:
    if not moves and not unnamed:
        if not is_computed:
            return "the target assignment is not known yet"
        return _NO_MOVES if is_over else "nothing has moved yet"
    flows: dict[tuple[str | None, str | None, bool, bool], list[Partition]] = {}
    for move in moves:
        flow = (move.giver, move.taker, move.released_ms is not None, move.is_found)
        flows.setdefault(flow, []).append((move.topic, move.partition))
    said = [_say_flow(*flow, partitions, is_over=is_over) for flow, partitions in list(flows.items())[:_SHOWN]]
    more = sum(len(partitions) for partitions in list(flows.values())[_SHOWN:]) + unnamed
    return ", ".join(said) + (f"{' and ' if said else ''}{more} more partitions moved" if more else "")


def _say_flow(
    giver: str | None,
    taker: str | None,
    is_free: bool,
    is_found: bool,
    partitions: Sequence[Partition],
    *,
    is_over: bool,
) -> str:
    names = show_partitions(partitions)
    if is_found and taker is not None:
        return f"{taker} took {names}, which {giver} had before the crash"
    if taker is None and not is_free:
        return f"{giver} has yet to give up {names}"
    if taker is None and is_over:
        return f"{names} of {giver} {'has' if len(partitions) == 1 else 'have'} no owner any more"
    if taker is None:
        return f"{names} of {giver} {'has' if len(partitions) == 1 else 'have'} no owner yet"
    if giver is None:
        return f"{taker} took {names}, which had no owner"
    return f"{taker} got {names} back" if giver == taker else f"{taker} took {names} from {giver}"


def _say_silence(silences: Sequence[group_state.Silence]) -> str:
    longest = max(silences, key=lambda each: each.noticed_ms - each.began_ms)
    silent = show_duration(longest.noticed_ms - longest.began_ms)
    heard = ", which was last heard of by a fetch" if longest.by_fetch else ""
    return f"{silent} after the last sign of {longest.member}{heard}"


def _say_hint(silence: group_state.Silence) -> str:
    """Name the setting by which the coordinator would have noticed the silence sooner."""
    if silence.is_lost or not silence.session_ms:
        return ""
    if silence.disconnected_ms is not None:
        before = show_duration(silence.disconnected_ms)
        return (
            f"the connection of {silence.member} had ended {before} before it was missed: group.disconnect.grace.ms "
            "gives a member up for that"
        )
    return f"a member may be silent for {show_duration(silence.session_ms)}, its session timeout, before it is missed"


def _say_cost(moves: Sequence[Move], unread: Mapping[Partition, int]) -> list[str]:
    said = []
    gaps = [(move.unread_ms, move.is_at_most) for move in moves if move.unread_ms is not None]
    if any(gap for gap, _ in gaps):
        longest_ms, is_at_most = max(gaps)
        most = "at most " if is_at_most else "up to " if len(gaps) > 1 else ""
        said.append(f"{_count(len(gaps))} unread for {most}{show_duration(longest_ms)}")
    if unread:
        has = "has" if len(unread) == 1 else "have"
        said.append(
            f"{show_partitions(unread)} {has} not been read yet, for {show_duration(max(unread.values()))} by now"
        )
    # Rows of an earlier version have only the owners.
    ownerless = [
        move.granted_ms - move.released_ms
        for move in moves
        if move.granted_ms is not None and move.released_ms is not None and move.read_ms is None and not move.is_found
    ]
    if any(ownerless):
        most = "up to " if len(ownerless) > 1 else ""
        said.append(f"{_count(len(ownerless))} without an owner for {most}{show_duration(max(ownerless))}")
    return said


def _count(partitions: int) -> str:
    return "1 partition was" if partitions == 1 else f"{partitions} partitions were"


def _people(members: Sequence[str]) -> str:
    shown = list(dict.fromkeys(members))
    more = len(shown) - _SHOWN
    named = ", ".join(shown[:_SHOWN])
    return f"{named} and {more} more" if more > 0 else named


def _more_like(short: Sequence[str]) -> str:
    return f", and {len(short) - _SHOWN} more members like that" if len(short) > _SHOWN else ""


def _length(delay: Delay) -> int:
    return 0 if delay.ended_ms is None else delay.ended_ms - delay.began_ms
