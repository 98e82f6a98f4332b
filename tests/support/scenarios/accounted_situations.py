"""Situations of a group, played by real consumers that keep an account; see `accounts`.

`SITUATIONS`: name -> (situation, the protocols of its members, configs of the broker). The topic has four partitions.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Final

from support.scenarios.accounts import SESSION_S, TELL_MS, Play, network, now_ms

Situation = Callable[[Play], Awaitable[None]]
ALL: Final = ("consumer", "eager", "cooperative")
CLASSIC: Final = ALL[1:]
NEW: Final = ALL[:1]
#: Name -> situation, the protocols of its members, configs of the broker.
SITUATIONS: Final[dict[str, tuple[Situation, Sequence[str], dict[str, object]]]] = {}


def situation(protocols: Sequence[str] = ALL, **config: object) -> Callable[[Situation], Situation]:
    """Put a situation into the table."""

    def add(play: Situation) -> Situation:
        SITUATIONS[play.__name__] = (play, protocols, {name.replace("_", "."): each for name, each in config.items()})
        return play

    return add


@situation(NEW)
async def one_joins(play: Play) -> None:
    await play.settled("a")


@situation()
async def second_takes_its_half(play: Play) -> None:
    await play.settled("a", "b")


@situation(("consumer", "eager"))
async def two_start_at_once(play: Play) -> None:
    play.join("a", "b")
    await play.settle()


@situation(("cooperative",))
async def two_join_one_that_reads(play: Play) -> None:
    await play.settled("a")
    play.join("b", "c")
    await play.settle()


@situation()
async def one_leaves(play: Play) -> None:
    await play.settled("a", "b")
    await play.leave("b")
    await play.settle()


@situation(("consumer", "cooperative"))
async def all_but_one_leave(play: Play) -> None:
    await play.settled("a", "b", "c")
    await play.leave("a", "c")
    await play.settle()


@situation(("consumer", "eager"))
async def one_leaves_while_another_joins(play: Play) -> None:
    await play.settled("a", "b")
    play.join("c")
    await play.leave("b")
    await play.settle()


@situation(("consumer", "cooperative"))
async def all_leave_and_one_comes_later(play: Play) -> None:
    await play.settled("a", "b")
    await play.leave("a", "b")
    await asyncio.sleep(2)
    play.join("c")
    await play.settle()


@situation()
async def one_is_cut_off(play: Play) -> None:
    await play.settled("a", "b")
    play.cut_off("b")
    await play.settle()


@situation(("consumer", "cooperative"))
async def two_are_cut_off(play: Play) -> None:
    await play.settled("a", "b", "c")
    play.cut_off("a")
    await asyncio.sleep(0.6)
    play.cut_off("c")
    await play.settle()


@situation()
async def one_is_killed(play: Play) -> None:
    await play.settled("a", "b")
    play.kill("b")
    await play.settle()


@situation(("consumer", "eager"), group_disconnect_grace_ms=500)
async def one_is_killed_and_given_up_for_that(play: Play) -> None:
    await play.settled("a", "b")
    play.kill("b", trigger="connection lost")
    await play.settle()


@situation(NEW)
async def one_stands_still_for_less_than_its_session(play: Play) -> None:
    await play.settled("a", "b")
    play.miss("b", 1.5, "")
    network().stall("b", 1.5)
    await asyncio.sleep(3)
    await play.settle()


@situation(("consumer", "cooperative"))
async def one_stands_still_for_longer_than_its_session(play: Play) -> None:
    await play.settled("a", "b")
    play.miss("b", 5)
    network().stall("b", 5)
    await asyncio.sleep(5)
    play.act("member joined", "b", within_ms=2_000)
    await play.settle()
    await asyncio.sleep(1)


@situation()
async def one_takes_two_seconds_to_give_up(play: Play) -> None:
    # Eager, b has nothing meanwhile.
    await play.settled("a", "b")
    play.gives_up_s["a"] = 2
    play.join("c")
    await play.settle()


@situation(("consumer", "eager"))
async def one_polls_no_more(play: Play) -> None:
    await play.settled("a")
    play.join("b", max_poll_interval_ms=2_000)
    await play.settle()
    play.busy.add("b")
    play.accounts["b"].busy_ms = now_ms()
    await asyncio.sleep(1.5)
    play.gone.append(play.consumers.pop("b"))
    play.miss("b", 1_000_000, "")
    play.act("member left", "b", within_ms=1_500)
    await play.settle()


@situation(("consumer", "eager"))
async def topic_grows(play: Play) -> None:
    await play.settled("a", "b")
    play.change_topics()
    await play.admin.create_partitions("t", 6)
    await play.settle(6)


@situation(("consumer", "cooperative"))
async def one_subscribes_to_another_topic(play: Play) -> None:
    await play.admin.create_topic("u", 2)
    await play.settled("a")
    await play.subscribe_anew("a", "t", "u")
    await play.settle(6)


@situation(("consumer", "eager"))
async def subscribed_topic_is_created(play: Play) -> None:
    await play.settled("a", topics=("t", "u"))
    play.change_topics()
    await play.admin.create_topic("u", 2)
    await play.settle(6)


@situation(NEW)
async def topic_is_deleted(play: Play) -> None:
    await play.admin.create_topic("u", 2)
    play.join("a", topics=("t", "u"))
    await play.settle(6)
    play.change_topics()
    await play.admin.delete_topics(["u"])
    await play.settle(4)


@situation(("consumer", "eager"))
async def administrator_removes_one(play: Play) -> None:
    await play.settled("a", "b")
    play.act("removed by an administrator", "b")
    await play.admin.remove_members(play.group, [play.consumers["b"].member_id])
    play.act("member joined", "b", within_ms=1_500)
    await asyncio.sleep(2)
    await play.settle()


@situation()
async def named_one_restarts_in_time(play: Play) -> None:
    await play.settled("a")
    play.join("b", group_instance_id="b")
    await play.settle()
    await play.leave("b", is_named=True)
    await asyncio.sleep(1)
    play.join("b", group_instance_id="b", trigger="")
    await play.settle()


@situation(("consumer", "eager"))
async def named_one_does_not_come_back(play: Play) -> None:
    await play.settled("a")
    play.join("b", group_instance_id="b")
    await play.settle()
    await play.leave("b", is_named=True)
    play.act("session timeout", "b", within_ms=int(SESSION_S * 1000) + TELL_MS, is_silence=True)
    await play.settle()


@situation()
async def now_one_has_yet_to_give_up(play: Play) -> None:
    await play.settled("a")
    play.gives_up_s["a"] = 60
    play.join("b")
    await asyncio.sleep(2)
    play.waited = {("join again" if play.protocol == "eager" else "give up", "a")}


@situation(CLASSIC)
async def one_enforces_a_rebalance(play: Play) -> None:
    await play.settled("a", "b")
    play.act("member rejoined", "a")
    play.consumers["a"].enforce_rebalance("another share, please")
    await asyncio.sleep(2)
    await play.settle()


@situation(("cooperative",))
async def leader_is_killed(play: Play) -> None:
    await play.settled("a", "b", "c")
    play.kill("a")
    await play.settle()


@situation(NEW, group_moves_per_second=1)
async def moves_have_a_pace(play: Play) -> None:
    await play.settled("a")
    play.join("b")
    await play.settle()


@situation(NEW)
async def now_moves_are_paused(play: Play) -> None:
    await play.settled("a")
    await play.admin.alter_group_configs(play.group, {"group.moves.paused": True})
    play.join("b")
    await asyncio.sleep(2)
    play.waited = {("begin", "the pause of moves")}


@situation(NEW)
async def administrator_moves_a_partition(play: Play) -> None:
    await play.settled("a", "b")
    play.act("administrator moved partitions")
    place, taker = min(play.consumers["b"].assignment()), play.consumers["a"].member_id
    await play.admin.switch_partition(play.group, place, taker)
    await asyncio.sleep(2)


@situation(NEW, group_liveness="fetch")
async def one_that_is_heard_by_its_fetches_is_killed(play: Play) -> None:
    await play.settled("a", "b")
    play.kill("b")
    await play.settle()


@situation(("consumer", "eager"), group_disconnect_grace_ms=2_000)
async def one_loses_its_connections_and_comes_back(play: Play) -> None:
    await play.settled("a", "b")
    for wire in network().of("b"):
        wire.cut()
    await asyncio.sleep(3)
    await play.settle()


@situation(NEW)
async def topic_is_created_that_a_pattern_finds(play: Play) -> None:
    play.join("a", pattern="t.*")
    await play.settle()
    play.change_topics()
    await play.admin.create_topic("tt", 2)
    await play.settle(6)


@situation(NEW)
async def three_come_and_go_one_after_the_other(play: Play) -> None:
    await play.settled("a", "b", "c")
    for name in "abc":
        await play.leave(name)
        await asyncio.sleep(0.3)


@situation(NEW)
async def one_stands_still_while_another_joins(play: Play) -> None:
    await play.settled("a", "b")
    play.miss("b", 2, "")
    network().stall("b", 2)
    play.join("c")
    await asyncio.sleep(2)
    await play.settle()


@situation(NEW)
async def member_of_the_classic_protocol_joins(play: Play) -> None:
    await play.settled("a")
    play.protocol = "eager"
    play.join("b")
    await play.settle()


@situation(("consumer", "eager"))
async def one_leaves_whose_rebalance_another_one_overtakes(play: Play) -> None:
    await play.settled("a", "b", "c")
    await play.leave("c")
    play.join("d")
    await play.leave("b")
    await play.settle()
