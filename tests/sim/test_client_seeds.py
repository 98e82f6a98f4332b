"""A seed of the clients' world that broke a law once."""

from __future__ import annotations

from kohort.simulation.clients.client_world import ClientWorld


def test_a_partition_that_a_group_gives_before_a_broker_knows_it() -> None:
    """The topic has grown while the member had only old answers: it was never read."""
    assert ClientWorld(926).run().handed_out > 0
