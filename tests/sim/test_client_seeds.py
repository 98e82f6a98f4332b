"""Seeds of the clients' world that broke a law once, and all of what its first seeds see."""

from __future__ import annotations

import pytest

from kohort.simulation.clients.client_world import ClientWorld


def test_a_partition_that_a_group_gives_before_a_broker_knows_it() -> None:
    """The topic has grown while the member had only old answers: it was never read."""
    assert ClientWorld(926).run().handed_out > 0


@pytest.mark.logs_bugs
def test_worlds_are_worth_their_time() -> None:
    """The seeds see everything go wrong that can, in both protocols, and much is read all the same."""
    told: list[str] = []
    protocols: set[str] = set()
    handed_out = 0
    for seed in range(20):
        world = ClientWorld(seed)
        handed_out += world.run().handed_out
        protocols |= {party.protocol for party in world.plan.parties}
        told += world.story.of(last=len(world.story))
    assert protocols == {"consumer", "classic"}
    assert handed_out > 20 * 200
    words = ("assigned", "revoked", "lost", "closes", "crashes", "stops polling", "raised", "leads", "coordinates")
    for word in (
        *words,
        "stops, and",
        "dies",
        "is back",
        "stands still",
        "breaks",
        "reaches nobody",
        "grows",
        "deleted",
    ):
        assert any(word in row for row in told), f"no story has {word!r}"
