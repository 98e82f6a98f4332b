"""Limits of groups, and where a group lives."""

from __future__ import annotations

from typing import Any

import pytest

from kohort.coordinator.settings import GroupSettings
from kohort.errors import ConfigError
from kohort.ids import coordinator_partition


@pytest.mark.parametrize(
    ("limits", "saying"),
    [
        ({"group_consumer_session_timeout_ms": 99}, "group.consumer.session.timeout.ms cannot be 99: at least 100"),
        ({"group_consumer_heartbeat_interval_ms": 49}, "at least 50"),
        ({"group_consumer_heartbeat_interval_ms": 45_000}, "fenced between two heartbeats"),
        ({"group_consumer_assignment_interval_ms": -1}, "group.consumer.assignment.interval.ms"),
        ({"group_min_session_timeout_ms": 99}, "group.min.session.timeout.ms"),
        ({"group_max_session_timeout_ms": 5_999}, "group.max.session.timeout.ms"),
        ({"group_initial_rebalance_delay_ms": -1}, "group.initial.rebalance.delay.ms"),
        ({"group_max_size": 0}, "group.max.size"),
        ({"group_consumer_max_size": 0}, "group.consumer.max.size"),
        ({"offset_metadata_max_bytes": -1}, "offset.metadata.max.bytes"),
        (
            {"group_consumer_assignors": ("mine",)},
            "group.consumer.assignors cannot be mine: one or more of uniform",
        ),
        ({"group_membership": "fixed"}, "group.membership cannot be fixed: one of dynamic, static"),
        ({"group_registration_timeout_ms": 99}, "group.registration.timeout.ms cannot be 99: at least 100"),
        ({"group_max_expansion_timeout_ms": 1_000}, "at most 1000 is expected \\(group.max.expansion.timeout.ms"),
        ({"group_static_fallback": "never"}, "group.static.fallback cannot be never"),
        ({"group_assignor": "mine"}, "group.assignor cannot be mine: one of uniform, range, "),
        ({"group_consumer_assignor_mismatch": "no"}, "mismatch cannot be no: one of vote, refuse is expected"),
        ({"group_consumer_assignors": ()}, "group.consumer.assignors cannot be empty"),
    ],
)
def test_impossible_limits_are_refused_by_their_name(limits: dict[str, Any], saying: str) -> None:
    with pytest.raises(ConfigError, match=saying):
        GroupSettings(**limits)


def test_quick_groups_are_allowed() -> None:
    """Kafka's lower bounds are 45 s and 5 s."""
    settings = GroupSettings(group_consumer_session_timeout_ms=100, group_consumer_heartbeat_interval_ms=50)
    assert settings.group_consumer_assignors == ("uniform", "range", "roundrobin", "sticky", "external")


def test_groups_are_spread_as_kafka_spreads_them() -> None:
    """Java: Math.abs("orders".hashCode()) % 50; the smallest int counts as 0."""
    assert coordinator_partition("orders", 50) == abs(-1_008_770_331) % 50
    assert coordinator_partition("polygenelubricants", 50) == 0
