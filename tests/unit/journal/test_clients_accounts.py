"""`why` agrees with the clients' own account: real consumers beside a real broker, in virtual time."""

from __future__ import annotations

import asyncio

import pytest

import kohort
from support.dialogues.virtual_broker import beside_a_broker
from support.scenarios.accounted_situations import SITUATIONS
from support.scenarios.accounts import CONFIG, Play, disagreements, now_ms

CASES = [(name, each) for name, (_, protocols, _) in SITUATIONS.items() for each in protocols]
#: On a machine with other work to do an account is late.
PATIENCE = 5


async def differences(name: str, play: Play) -> list[str]:
    situation, _, _ = SITUATIONS[name]
    try:
        await situation(play)
        ended_ms = now_ms()
        return disagreements(play, await play.explain(), ended_ms)
    finally:
        await play.end()


@pytest.mark.parametrize(("name", "protocol"), CASES)
def test_why_agrees_with_the_account_of_each_client(name: str, protocol: str) -> None:
    found = beside_a_broker(
        lambda address: differences(name, Play(address, protocol)),
        topics={"t": 4},
        config={**CONFIG, **SITUATIONS[name][2]},
    )
    assert found == []


def test_more_than_fifty_situations_are_compared() -> None:
    assert len(CASES) > 50


def test_account_of_another_group_does_not_agree() -> None:
    """The comparison can fail: a member that never was, and a deed that nobody did."""

    async def lie(play: Play) -> None:
        await play.settled("a", "b")
        play.act("member left", "b")
        play.accounts["a"].spans[0].ended_ms = play.accounts["a"].spans[0].began_ms + 1
        play.accounts["b"].spans.clear()

    async def played(address: str) -> list[str]:
        play = Play(address, "consumer")
        try:
            await lie(play)
            return disagreements(play, await play.explain(), now_ms())
        finally:
            await play.end()

    found = beside_a_broker(played, topics={"t": 4}, config=CONFIG)
    assert len([each for each in found if "no rebalance says so" in each]) == 1
    assert len([each for each in found if "has not it" in each]) == 3
    assert len([each for each in found if "does not know it" in each]) == 2
    assert len([each for each in found if each.startswith("members have")]) == 1


def test_why_agrees_with_the_clients_of_a_broker_in_real_time() -> None:
    names = {
        "second_takes_its_half": "eager",
        "one_leaves": "consumer",
        "one_takes_two_seconds_to_give_up": "cooperative",
    }

    async def play_all(address: str) -> list[str]:
        plays = [
            Play(address, protocol, topic=f"t{at}", group=f"g{at}", patience=PATIENCE)
            for at, protocol in enumerate(names.values())
        ]
        return [each for found in await asyncio.gather(*map(differences, names, plays)) for each in found]

    with kohort.Broker(config=CONFIG) as broker:
        with kohort.Admin(bootstrap_servers=broker.bootstrap_servers) as admin:
            for at in range(len(names)):
                admin.create_topic(f"t{at}", 4)
        assert asyncio.run(play_all(broker.bootstrap_servers)) == []
