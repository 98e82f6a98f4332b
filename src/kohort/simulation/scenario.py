"""The scenario that a seed determines: its groups, its network and the times of its faults.

Laws: everything is drawn from the seed alone, in a fixed order.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from importlib.util import find_spec
from random import Random
from typing import Any, Literal

from kohort.assign.assignors import built_in
from kohort.assign.interface import UNLIMITED
from kohort.coordinator.settings import MOVE_ORDERS, GroupSettings
from kohort.simulation.assignors import OWN_ASSIGNOR
from kohort.simulation.network import GOOD, NetworkQuality

#: The protocol of a process.
MemberProtocol = Literal["consumer", "eager", "cooperative"]
#: What the processes of a group speak; those of the last two speak KIP-848 or that, and change over time.
Kind = Literal["consumer", "eager", "cooperative", "rolling eager", "rolling cooperative"]

#: What members may subscribe to besides names; all of it means the same to RE2 and to Python.
PATTERNS = ("[tu]", "u|v", ".*", "t")

QUALITIES = (
    GOOD,
    NetworkQuality(usual_delay_ms=40, long_delay_ms=1_500, long_delay_chance=0.05),
    NetworkQuality(usual_delay_ms=20, long_delay_ms=20, loss=0.01),
    NetworkQuality(usual_delay_ms=100, long_delay_ms=4_000, long_delay_chance=0.05, loss=0.02, late=0.5),
    NetworkQuality(usual_delay_ms=300, long_delay_ms=6_000, long_delay_chance=0.15, late=1.0),
)

#: So many of the members of a world have names by draw, and no group rolls: then all have, and the groups are static.
STATIC_FROM = 0.7


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberSettings:
    """The configs and the behaviour of a member; times in milliseconds."""

    session_timeout_ms: int = 6_000
    rebalance_timeout_ms: int = 8_000
    heartbeat_interval_ms: int = 1_000
    request_timeout_ms: int = 3_000
    retry_backoff_ms: int = 100
    commit_interval_ms: int = 1_500
    process_interval_ms: int = 700
    #: A callback takes up to that long.
    callback_ms: int = 200


#: Faults, by weight; the names are methods of `world.Faults`.
WEIGHTS = {
    "join": 4,
    "leave": 2,
    "kill": 2,
    "pause": 2,
    "slow_callback": 2,
    "break_connection": 2,
    "cut_off": 1,
    "crash_broker": 2,
    "stall_broker": 1,
    "slow_disk": 1,
    "grow_topic": 1,
    "create_topic": 1,
    "delete_topic": 1,
    "subscribe": 1,
    "change_network": 1,
    "bounce": 3,
    "roll": 2,
    "administrate": 2,
    "visit": 1,
}


def build_settings(
    *, group_consumer_assignors: tuple[str, ...] = ("uniform", "range", "roundrobin", "sticky"), **fields: Any
) -> GroupSettings:
    """Build settings with which groups react within seconds; `fields`: further fields of `GroupSettings`."""
    return GroupSettings(
        **{
            "group_min_session_timeout_ms": 1_000,
            "group_initial_rebalance_delay_ms": 0,
            "group_consumer_session_timeout_ms": 5_000,
            "group_consumer_heartbeat_interval_ms": 1_000,
            "group_consumer_assignment_interval_ms": 0,
            "group_consumer_assignment_window_ms": 0,
            "group_consumer_rebalance_heartbeat_interval_ms": 0,
            "group_consumer_assignor_timeout_ms": 2_000,
            "group_consumer_assignor_offload_enable": True,
            "group_assignor_max_moves": UNLIMITED,
            "group_disconnect_grace_ms": -1,
            "group_moves_order": "name",
            "incremental_from_partitions": 500,
            **fields,
        },
        group_consumer_assignors=group_consumer_assignors,
        own_assignors=tuple(name for name in group_consumer_assignors if built_in(name) is None),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupPlan:
    """The plan of one group at the beginning."""

    group_id: str
    kind: Kind
    member_count: int

    def draw_protocol(self, random: Random) -> MemberProtocol:
        """Draw the protocol of the group's next process."""
        return random.choice(self.protocols)

    @property
    def protocols(self) -> tuple[MemberProtocol, ...]:
        """Return the protocols that the group's processes may use."""
        match self.kind:
            case "rolling eager":
                return ("consumer", "eager")
            case "rolling cooperative":
                return ("consumer", "cooperative")
            case _:
                return (self.kind,)


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """The initial state of a world and its faults; times in milliseconds."""

    groups: tuple[GroupPlan, ...]
    topics: dict[str, int]
    quality: NetworkQuality = GOOD
    perturbed_ms: int = 40_000
    pause_between_ms: tuple[int, int] = (100, 3_500)
    weights: dict[str, int] = field(default_factory=lambda: dict(WEIGHTS))
    #: The topics of every member; empty: drawn for each.
    same_topics: tuple[str, ...] = ()
    shard_count: int = 2
    settings: GroupSettings = field(default_factory=build_settings)
    members: MemberSettings = field(default_factory=MemberSettings)
    #: How many of the members have an instance id.
    static_share: float = 0.0
    #: How many of the KIP-848 members have a pattern; that needs google-re2.
    pattern_share: float = 0.0
    #: How many of the KIP-848 members run assignors of their own.
    assignor_share: float = 0.0
    #: How many of the KIP-848 members say what they know beside their heartbeats, and hear there; not drawn,
    #: so that a bug in a heartbeat is found by the law that it breaks, and not by that of words.
    update_share: float = 0.0
    #: How many of the KIP-848 members share the connection of another one.
    shared_share: float = 0.0
    #: Whether heartbeats are held.
    is_pushing: bool = True
    #: `queued.max.requests`.
    open_requests: int = 100
    #: By how much the broker's clock may be wrong after a restart.
    clock_jumps_ms: int = 0
    #: Nothing goes wrong that could end a hand-over without a commit.
    is_clean: bool = False


def draw_scenario(random: Random) -> Scenario:
    """Draw one of many worlds."""
    kinds: list[Kind] = ["consumer", "consumer", "eager", "cooperative", "rolling eager", "rolling cooperative"]
    groups = tuple(
        GroupPlan(group_id=group_id, kind=random.choice(kinds), member_count=random.randint(2, 4))
        for group_id in ("blue", "red")[: random.randint(1, 2)]
    )
    topics = {"t": random.randint(1, 6)}
    if random.random() < 0.5:
        topics["u"] = random.randint(1, 4)
    quality, perturbed_ms = random.choice(QUALITIES), random.randint(20_000, 80_000)
    # Not drawn, so that the other worlds stay as they were.
    runs_assignors = perturbed_ms % 8 == 0
    scenario = Scenario(
        groups=groups,
        topics=topics,
        quality=quality,
        perturbed_ms=perturbed_ms,
        weights=_draw_weights(random, runs_assignors=runs_assignors),
        assignor_share=0.95 if runs_assignors else 0.0,
        shard_count=random.randint(1, 3),
        settings=build_settings(
            group_initial_rebalance_delay_ms=random.choice((0, 0, 1_500)),
            group_consumer_assignment_interval_ms=random.choice((0, 0, 700)),
            group_consumer_assignment_window_ms=random.choice((0, 50, 50, 400)),
            group_consumer_rebalance_heartbeat_interval_ms=random.choice((0, 100, 100)),
            group_consumer_assignors=random.choice(
                (
                    ("uniform", "range"),
                    ("range", "uniform"),
                    ("roundrobin",) if topics["t"] % 2 else ("external", "uniform"),
                    ("sticky", "uniform"),
                    (OWN_ASSIGNOR, "uniform"),
                )
            ),
            group_assignor_max_moves=random.choice((UNLIMITED, UNLIMITED, UNLIMITED, 1)),
            # Small groups have their balance kept as large ones have it, or computed anew each time.
            incremental_from_partitions=random.choice((1, 500)),
            group_consumer_assignor_offload_enable=random.random() < 0.8,
            group_disconnect_grace_ms=random.choice((-1, -1, 1_500, 3_000)),
            group_moves_order=MOVE_ORDERS[topics["t"] % len(MOVE_ORDERS)],
        ),
        pattern_share=random.choice((0.0, 0.3)) if find_spec("re2") else 0.0,
        static_share=random.choice((0.0, 0.0, 0.3, 0.7)),
        shared_share=random.choice((0.0, 0.0, 0.5, 0.9)),
        is_pushing=random.random() < 0.8,
        open_requests=random.choice((4, 5, 100)),
        clock_jumps_ms=random.choice((0, 0, 5_000, 3_600_000)),
        members=MemberSettings(
            # Of the two timeouts each is the shorter one now and then: what one does not end the other has to.
            session_timeout_ms=random.choice((4_000, 6_000, 15_000)),
            rebalance_timeout_ms=random.choice((5_000, 8_000)),
            commit_interval_ms=random.choice((400, 1_500, 5_000)),
        ),
    )
    # Drawn with what was drawn, so that all other worlds are what they were.
    is_static = scenario.static_share >= STATIC_FROM and all(len(group.protocols) == 1 for group in groups)
    return as_static(scenario) if is_static else scenario


def _draw_weights(random: Random, *, runs_assignors: bool) -> dict[str, int]:
    drawn = {name: weight * random.choice((0, 1, 1, 3)) for name, weight in WEIGHTS.items()} | {"join": 6}
    return drawn | {"ask_anew": 3} if runs_assignors else drawn


def as_static(scenario: Scenario) -> Scenario:
    """Return the scenario with static groups of named members, and with switches of their mode."""
    return replace(
        scenario,
        weights={**scenario.weights, "visit": 0, "switch_mode": 3},
        settings=replace(
            scenario.settings,
            group_membership="static",
            group_registration_timeout_ms=8_000,
            group_expansion_timeout_ms=3_000,
        ),
        static_share=1.0,
    )
