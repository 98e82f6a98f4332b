"""Many members that live for seconds beside a few that stay: who stays pays what balance needs, and nothing else."""

from __future__ import annotations

from kohort.simulation.scenario import build_settings
from kohort.testing import GroupPlan, Scenario, World

STABLE = 4
#: So many partitions that four members or twelve have equal shares.
VISITED = Scenario(
    groups=(GroupPlan(group_id="blue", kind="consumer", member_count=STABLE),),
    topics={"t": 24},
    perturbed_ms=120_000,
    pause_between_ms=(100, 600),
    weights={"visit": 1},
    same_topics=("t",),
    settings=build_settings(group_consumer_assignment_window_ms=50, group_consumer_rebalance_heartbeat_interval_ms=100),
)


def test_stable_members_lose_to_visitors_only_what_balance_needs() -> None:
    """G7. The law is MovesOnlyForBalance, at every target; here it is also the sum that counts."""
    for seed in range(1):
        world = World(seed, scenario=VISITED)
        world.run()
        visitors = len(world.members) - STABLE
        moves = world.checkers.moves
        given_up = sum(world.members[f"blue-{number + 1}"].given_up for number in range(STABLE))

        assert visitors > 250
        assert 0 < moves.lost == moves.needed
        assert given_up <= moves.needed
        # A rebalance that stops the world takes everything from everybody, each time that somebody comes or goes.
        assert given_up < visitors
