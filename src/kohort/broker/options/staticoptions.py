"""Options of static groups of named members; Kafka has none (KIP-345's draft had)."""

from __future__ import annotations

from typing import Final

from kohort.broker.options.optionkinds import count, text
from kohort.coordinator.settings import MEMBERSHIPS, STATIC_FALLBACKS, GroupSettings

_DEFAULTS: Final = GroupSettings()

#: All options of static groups.
STATIC_OPTIONS: Final = [
    text(
        "group.membership",
        _DEFAULTS.group_membership,
        "Whether groups take any member (dynamic) or only those with a group.instance.id, which keep what they have "
        "while they are away (static) (not in Kafka).",
        choices=MEMBERSHIPS,
    ),
    count(
        "group.registration.timeout.ms",
        _DEFAULTS.group_registration_timeout_ms,
        "How long a static group keeps what an offline member has (not in Kafka).",
        low=1,
    ),
    count(
        "group.min.registration.timeout.ms",
        _DEFAULTS.group_min_registration_timeout_ms,
        "Lower bound of a group's registration timeout (not in Kafka).",
        low=1,
    ),
    count(
        "group.max.registration.timeout.ms",
        _DEFAULTS.group_max_registration_timeout_ms,
        "Upper bound of a group's registration timeout (not in Kafka).",
        low=1,
    ),
    count(
        "group.expansion.timeout.ms",
        _DEFAULTS.group_expansion_timeout_ms,
        "How long a static group gathers new members, from the first on, before one rebalance gives them something "
        "(not in Kafka).",
        low=1,
    ),
    count(
        "group.min.expansion.timeout.ms",
        _DEFAULTS.group_min_expansion_timeout_ms,
        "Lower bound of a group's expansion timeout (not in Kafka).",
        low=1,
    ),
    count(
        "group.max.expansion.timeout.ms",
        _DEFAULTS.group_max_expansion_timeout_ms,
        "Upper bound of a group's expansion timeout (not in Kafka).",
        low=1,
    ),
    text(
        "group.static.fallback",
        _DEFAULTS.group_static_fallback,
        "Who makes a static group dynamic again: an administrator alone (admin), or also the first member that joins "
        "it without a name while it is stable (join) (not in Kafka).",
        choices=STATIC_FALLBACKS,
    ),
]
