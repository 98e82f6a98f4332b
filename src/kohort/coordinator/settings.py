"""Limits of a group coordinator, under Kafka's names with underscores.

Source: Apache Kafka's group coordinator configuration. The lower bounds are ours: Kafka's (45 s and 5 s for KIP-848
groups) would forbid a group to react faster than that.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from kohort.errors import ConfigError

#: The server-side assignors that exist.
ASSIGNORS: Final = ("uniform",)

_INT32_MAX: Final = 2**31 - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupSettings:
    """What groups may ask for and what they get if they do not ask; times in milliseconds, sizes in members or bytes.

    `group_consumer_assignment_interval_ms`: least time between two computations of one group's target; 0 computes
    at once.
    `group_consumer_assignors`: what a KIP-848 member may name; the first is used where none is named.
    """

    group_min_session_timeout_ms: int = 6_000
    group_max_session_timeout_ms: int = 1_800_000
    group_initial_rebalance_delay_ms: int = 0
    group_max_size: int = _INT32_MAX
    group_consumer_session_timeout_ms: int = 45_000
    group_consumer_min_session_timeout_ms: int = 100
    group_consumer_max_session_timeout_ms: int = 1_800_000
    group_consumer_heartbeat_interval_ms: int = 5_000
    group_consumer_min_heartbeat_interval_ms: int = 50
    group_consumer_max_heartbeat_interval_ms: int = 600_000
    group_consumer_max_size: int = _INT32_MAX
    group_consumer_assignors: tuple[str, ...] = ASSIGNORS
    group_consumer_assignment_interval_ms: int = 0
    offset_metadata_max_bytes: int = 4_096

    def __post_init__(self) -> None:
        _within("group.consumer.session.timeout.ms", self.group_consumer_session_timeout_ms, 100)
        _within("group.consumer.heartbeat.interval.ms", self.group_consumer_heartbeat_interval_ms, 50)
        _within("group.consumer.assignment.interval.ms", self.group_consumer_assignment_interval_ms, 0)
        _within("group.min.session.timeout.ms", self.group_min_session_timeout_ms, 100)
        _within("group.max.session.timeout.ms", self.group_max_session_timeout_ms, self.group_min_session_timeout_ms)
        _within("group.initial.rebalance.delay.ms", self.group_initial_rebalance_delay_ms, 0)
        _within("group.max.size", self.group_max_size, 1)
        _within("group.consumer.max.size", self.group_consumer_max_size, 1)
        _within("offset.metadata.max.bytes", self.offset_metadata_max_bytes, 0)
        if self.group_consumer_heartbeat_interval_ms >= self.group_consumer_session_timeout_ms:
            raise ConfigError(
                f"group.consumer.heartbeat.interval.ms ({self.group_consumer_heartbeat_interval_ms}) has to be below "
                f"group.consumer.session.timeout.ms ({self.group_consumer_session_timeout_ms}), or members are fenced "
                "between two heartbeats"
            )
        unknown = [name for name in self.group_consumer_assignors if name not in ASSIGNORS]
        if unknown or not self.group_consumer_assignors:
            raise ConfigError(
                f"group.consumer.assignors cannot be {', '.join(unknown) or 'empty'}: "
                f"one or more of {', '.join(ASSIGNORS)} is expected"
            )


def _within(name: str, value: int, minimum: int) -> None:
    if value < minimum:
        raise ConfigError(f"{name} cannot be {value}: at least {minimum} is expected")
