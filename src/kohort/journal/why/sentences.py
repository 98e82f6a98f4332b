"""Builders of an explanation's values and sentences from followed rebalances, waits and owners.

Laws: no rows are read here; an open event has lasted until the given time.
Source: requirement J2.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Final

from kohort.journal.why.explanation import Delay, GroupRebalance, Move, Ownership, Phase, Standing
from kohort.journal.why.followed import FollowedMember, FollowedRebalance, HeldBack
from kohort.journal.why.ownership_timeline import Holding, Holdings
from kohort.journal.why.phrases import say_delay, say_ownership, say_phases, say_rebalance, say_short, say_standing
from kohort.journal.words import PAUSED, MemberNames, Partition

#: Time after which an inactive awaited member counts as silent, ms: two of the usual heartbeats are due.
SILENT_MS: Final = 10_000


def name_of(rebalance: FollowedRebalance) -> str:
    """Return the name of a rebalance for a sentence."""
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
    """Build a wait for a member, for an assignor or for a pace."""
    named, seen = tuple(sorted(partitions)), tuple(dict.fromkeys(meanwhile))
    lasted_ms = (now_ms if ended_ms is None else ended_ms) - began_ms
    # Two heartbeats are missing: the wait is explained by the member's silence.
    if not seen and not end and what in ("hear", "give up", "join again") and lasted_ms >= SILENT_MS:
        seen = ("silent",)
    sentence = say_delay(
        member=name, what=what, partitions=named, lasted_ms=lasted_ms, is_over=ended_ms is not None, end=end,
        meanwhile=seen, is_held=is_held,
    )  # fmt: skip
    return Delay(
        member=name, what=what, partitions=named, began_ms=began_ms, ended_ms=ended_ms, end=end, meanwhile=seen,
        sentence=sentence, is_held=is_held,
    )  # fmt: skip


def build_pace(
    held_back: HeldBack, partitions: Iterable[Partition], ended_ms: int | None = None, *, now_ms: int = 0
) -> Delay:
    """Build a wait for the turn of moves."""
    pace = held_back.pace
    name = "the pause of moves" if pace == PAUSED else f"the pace{' of moves' if not pace else f' of {pace}'}"
    return build_delay(name, "begin", held_back.since_ms, ended_ms, partitions=partitions, now_ms=now_ms)


def build_waits(
    members: Collection[FollowedMember],
    rebalance: FollowedRebalance | None,
    holdings: Holdings,
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
    members: Iterable[FollowedMember], holdings: Holdings, window_ms: int | None, *, now_ms: int
) -> list[Standing]:
    """Build each member's partitions with the reason for fewer than others."""
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


def build_ownership(holding: Holding, *, now_ms: int) -> Ownership:
    """Build a member's time as owner of a partition."""
    member, end, is_over = holding.member, holding.end, holding.ended_ms is not None
    lasted_ms = (now_ms if holding.ended_ms is None else holding.ended_ms) - holding.began_ms
    move = holding.unread
    unread_ms = None if move is None else (move.read_again_ms or 0) - (move.read_ms or 0)
    is_at_most = move is not None and move.is_at_most
    sentence = say_ownership(
        member, holding.partition, lasted_ms=lasted_ms, is_over=is_over, end=end, unread_ms=unread_ms,
        is_at_most=is_at_most,
    )  # fmt: skip
    return Ownership(
        topic=holding.partition[0],
        partition=holding.partition[1],
        member=member,
        began_ms=holding.began_ms,
        ended_ms=holding.ended_ms,
        end=end,
        sentence=sentence,
        unread_ms=unread_ms,
        is_at_most=is_at_most,
    )


def build_rebalance(found: FollowedRebalance, after: FollowedRebalance | None, *, now_ms: int) -> GroupRebalance:
    """Build a rebalance; `after`: the next one, `None` if there is none."""
    moves = tuple(
        Move(
            topic=topic, partition=number, giver=move.giver, taker=move.taker, asked_ms=move.asked_ms,
            committed_ms=move.committed_ms, released_ms=move.released_ms, granted_ms=move.granted_ms,
            # Without another reader, the giver was the last to read.
            reader=move.reader or (None if move.read_ms is None else move.giver), read_ms=move.read_ms,
            read_again_ms=move.read_again_ms, is_at_most=move.is_at_most, is_found=move.is_found,
        )
        for (topic, number), move in sorted(found.moves.items())
    )  # fmt: skip
    ended_ms = now_ms if found.ended_ms is None else found.ended_ms
    is_over = found.ended_ms is not None
    # Partitions with a new owner that has not read yet: no member reads them meanwhile.
    unread = {
        place: now_ms - move.read_ms
        for place, move in found.moves.items()
        if move.read_ms is not None and move.granted_ms is not None and move.read_again_ms is None and not move.is_over
    }
    sentence = say_rebalance(
        name=name_of(found),
        triggers=found.triggers,
        moves=moves,
        unnamed=found.unnamed,
        delays=found.delays,
        is_computed=found.computed_ms is not None,
        lasted_ms=ended_ms - found.began_ms,
        is_over=is_over,
        overtaken_by=name_of(after) if after is not None and found.is_overtaken else "",
        unread=unread,
        silences=found.silences,
        short=[
            say_short(f"{name} has {'nothing' if each.get('has') == '0' else each.get('has', '')}", each)
            for name, each in found.short.items()
        ],
        is_cut=found.is_cut,
        is_found=found.is_found,
    )
    phases = _build_phases(found)
    return GroupRebalance(
        number=found.number,
        first_number=found.first_number,
        protocol=found.protocol,
        began_ms=found.began_ms,
        computed_ms=found.computed_ms,
        # An overtaken or cut rebalance has no end of its own.
        ended_ms=None if found.is_overtaken or found.is_cut else found.ended_ms,
        overtaken_by=after.number if after is not None and found.is_overtaken else None,
        triggers=tuple(found.triggers),
        moves=moves,
        unnamed=found.unnamed,
        delays=tuple(found.delays),
        sentence=sentence,
        phases=phases,
        timing=say_phases(phases),
    )


def _build_phases(found: FollowedRebalance) -> tuple[Phase, ...]:
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
    """Return the latest of some times; `None` if one is not reached yet."""
    found = list(times)
    known = [each for each in found if each is not None]
    return max(known) if len(known) == len(found) else None
