"""The plan that a seed of the clients' world determines: brokers, topics, groups and faults.

Laws: everything is drawn from the seed alone, in a fixed order.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from random import Random
from typing import Final, Literal

from kohort.simulation.network import GOOD, NetworkQuality

Protocol = Literal["consumer", "classic"]

#: The topic that is deleted and made again.
FLEETING: Final = "w"
#: Faults of the surroundings, by weight; the names are methods of `ClientFaults`.
WEIGHTS: Final = {
    "move_leader": 4,
    "move_coordinator": 2,
    "stop_broker": 1,
    "kill_broker": 1,
    "stall_broker": 1,
    "change_network": 2,
    "break_connection": 3,
    "cut_off": 1,
    "lose_coordinator": 1,
    "grow_topic": 1,
    "remake_topic": 1,
    "crash_reader": 1,
    "add_reader": 1,
}
#: Acts of an application besides polling, by weight; the names are methods of `Reader`.
HABITS: Final = {
    "poll": 30,
    "poll_one": 4,
    "be_slow": 3,
    "commit": 3,
    "commit_own": 2,
    "seek_back": 2,
    "pause": 3,
    "resume": 3,
    "ask": 2,
    "wake_up": 1,
    "stop_polling": 1,
    "leave": 1,
    "change_subscription": 1,
}
HOLD_SHARES: Final = (0.5, 0.9, 0.0)
QUALITIES: Final = (
    GOOD,
    GOOD,
    NetworkQuality(usual_delay_ms=40, long_delay_ms=800, long_delay_chance=0.03),
    NetworkQuality(usual_delay_ms=10, long_delay_ms=10, loss=0.005),
    NetworkQuality(usual_delay_ms=60, long_delay_ms=1_500, long_delay_chance=0.03, loss=0.01),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedGroup:
    """A group and its initial number of members.

    `is_cooperative`: classic members keep partitions that do not move.
    """

    group_id: str
    protocol: Protocol
    readers: int
    auto_commit: bool
    is_cooperative: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """The plan of a world.

    `fetch_buffer_bytes`, `max_wait_ms`: options of every consumer. `idempotent`: option of every producer.
    `callback_faults`: chance that a rebalance callback is slow or raises. `hold_share`: part of its interval for which
    brokers hold a heartbeat. `window_ms`: batching window of assignments. `fetches_tell`: fetch responses also have
    news. `fetches_count`: fetches count as heartbeats. `members_compute`: most consumer-protocol members have
    client-side assignors. `messages_fail`: messages about owners to partition leaders may be late, repeated or lost.
    """

    brokers: int = 3
    #: How far the clock of the second broker is behind those of the others, ms.
    behind_ms: int = 0
    topics: Mapping[str, int] = field(default_factory=lambda: {"t": 4, "u": 2})
    groups: tuple[PlannedGroup, ...] = (
        PlannedGroup(group_id="blue", protocol="consumer", readers=2, auto_commit=True),
    )
    writers: int = 1
    idempotent: bool = True
    value_bytes: int = 100
    fetch_buffer_bytes: int = 60_000
    max_wait_ms: int = 3_000
    quality: NetworkQuality = GOOD
    weights: Mapping[str, int] = field(default_factory=lambda: WEIGHTS)
    habits: Mapping[str, int] = field(default_factory=lambda: HABITS)
    callback_faults: float = 0.1
    perturbed_s: float = 12.0
    every_s: float = 1.0
    hold_share: float = 0.8
    window_ms: int = 50
    fetches_tell: bool = True
    fetches_count: bool = False
    members_compute: bool = False
    messages_fail: bool = False

    @property
    def is_calm(self) -> bool:
        """Whether the plan has no faults, and no application stops polling."""
        return not self.weights and "stop_polling" not in self.habits

    @property
    def is_well(self) -> bool:
        """Whether brokers, network and programs have no faults; topics may be created and deleted."""
        return self.weights.keys() <= {"remake_topic"} and "stop_polling" not in self.habits and self.quality == GOOD


def draw_plan(random: Random) -> Plan:
    """Draw a plan from the seed."""
    topics = {"t": random.randint(1, 5), "u": random.randint(1, 3)}
    if random.random() < 0.4:
        topics[FLEETING] = random.randint(1, 2)
    groups = []
    for group_id in ("blue", "red")[: random.choice((1, 1, 2))]:
        protocol: Protocol = random.choice(("consumer", "classic"))
        groups.append(
            PlannedGroup(
                group_id=group_id,
                protocol=protocol,
                readers=random.randint(1, 3 if len(topics) < 3 else 2),
                auto_commit=random.random() < 0.6,
            )
        )
    return Plan(
        brokers=random.choice((1, 2, 3, 3, 3)),
        topics=topics,
        groups=tuple(groups),
        writers=random.randint(1, 2),
        idempotent=random.random() < 0.8,
        value_bytes=random.choice((20, 100, 900)),
        fetch_buffer_bytes=random.choice((6_000, 20_000, 60_000, 1 << 20)),
        max_wait_ms=random.choice((500, 3_000)),
        quality=random.choice(QUALITIES),
        callback_faults=random.choice((0.0, 0.1, 0.3)),
        perturbed_s=random.choice((5.0, 10.0, 15.0)),
        every_s=random.choice((0.5, 1.0, 3.0)),
    )
