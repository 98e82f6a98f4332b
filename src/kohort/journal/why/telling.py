"""Followed rebalances, waits and owners as values with sentences.

Laws: nothing is followed here; what goes on has lasted until the time that is given.
Source: requirement J2.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Final

from kohort.journal.why.explanation import Delay, GroupRebalance, Move, Ownership
from kohort.journal.why.followed import FollowedMember, FollowedRebalance, HeldBack
from kohort.journal.why.holdings import Holding, Holdings
from kohort.journal.why.whywords import say_delay, say_ownership, say_rebalance
from kohort.journal.words import PAUSED, MemberNames, Partition

#: Whoever is waited for that long and does nothing is silent, milliseconds: two of the usual heartbeats are due.
SILENT_MS: Final = 10_000


def name_of(rebalance: FollowedRebalance) -> str:
    """What a rebalance is called."""
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
    """A wait for a member, for an assignor or for a pace."""
    named, seen = tuple(sorted(partitions)), tuple(dict.fromkeys(meanwhile))
    lasted_ms = (now_ms if ended_ms is None else ended_ms) - began_ms
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
    """A wait for the turn of moves."""
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
    """Who is waited for; `rebalance`: the one that goes on, `None` if none does."""
    found: list[Delay] = []
    for member in members:
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
    if rebalance.protocol == "classic" and rebalance.computed_ms is not None:
        found.append(build_delay(names.of(rebalance.leader), "share out", rebalance.computed_ms, now_ms=now_ms))
    elif rebalance.protocol == "classic":
        missing = [member for member in members if member.member_id not in rebalance.joined]
        found += [build_delay(member.name, "join again", rebalance.began_ms, now_ms=now_ms) for member in missing]
    return found


def build_ownership(holding: Holding, *, now_ms: int) -> Ownership:
    """Who had a partition."""
    member, end, is_over = holding.member, holding.end, holding.ended_ms is not None
    lasted_ms = (now_ms if holding.ended_ms is None else holding.ended_ms) - holding.began_ms
    sentence = say_ownership(member, holding.partition, lasted_ms=lasted_ms, is_over=is_over, end=end)
    return Ownership(
        topic=holding.partition[0],
        partition=holding.partition[1],
        member=member,
        began_ms=holding.began_ms,
        ended_ms=holding.ended_ms,
        end=end,
        sentence=sentence,
    )


def build_rebalance(found: FollowedRebalance, after: FollowedRebalance | None, *, now_ms: int) -> GroupRebalance:
    """A rebalance; `after`: the one that came next, `None` if none did."""
    moves = tuple(
        Move(
            topic=topic, partition=number, giver=move.giver, taker=move.taker, asked_ms=move.asked_ms,
            committed_ms=move.committed_ms, released_ms=move.released_ms, granted_ms=move.granted_ms,
        )
        for (topic, number), move in sorted(found.moves.items())
    )  # fmt: skip
    ended_ms = now_ms if found.ended_ms is None else found.ended_ms
    is_over = found.ended_ms is not None
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
    )
    return GroupRebalance(
        number=found.number,
        first_number=found.first_number,
        protocol=found.protocol,
        began_ms=found.began_ms,
        computed_ms=found.computed_ms,
        ended_ms=None if found.is_overtaken else found.ended_ms,
        overtaken_by=after.number if after is not None and found.is_overtaken else None,
        triggers=tuple(found.triggers),
        moves=moves,
        unnamed=found.unnamed,
        delays=tuple(found.delays),
        sentence=sentence,
    )
