"""Limits of a group coordinator, under Kafka's names with underscores.

Source: Apache Kafka's group coordinator configuration. The lower bounds are kohort's own: Kafka's (45 s and 5 s for
KIP-848 groups) would forbid a group to react faster than that.
"""

from __future__ import annotations

from dataclasses import field
from typing import Final

from kohort.assign.assignors import BUILT_IN
from kohort.assign.interface import UNLIMITED
from kohort.base.values import value
from kohort.errors import ConfigError

#: In which direction a group with members may change its protocol; an empty group may always change it.
MIGRATION_POLICIES: Final = ("bidirectional", "upgrade", "downgrade", "disabled")

_INT32_MAX: Final = 2**31 - 1
#: Upper limits of the pace of moves, and of the moves that begin together.
MOST_MOVES_PER_SECOND: Final = 10_000
MOST_MOVES_AT_ONCE: Final = 10_000
#: Policies for a member that names another assignor than its group uses.
MISMATCH_POLICIES: Final = ("vote", "refuse")
#: Orders in which waiting moves begin.
MOVE_ORDERS: Final = ("name", "lag", "size")
#: Membership of a group: "dynamic" admits any member; "static" has members with instance ids, which keep their
#: partitions while they are away.
DYNAMIC: Final = "dynamic"
STATIC: Final = "static"
MEMBERSHIPS: Final = (DYNAMIC, STATIC)
#: Conditions that make a static group dynamic again: an administrator's change alone, or also the first join without an
#: instance id.
STATIC_FALLBACKS: Final = ("admin", "join")
#: Fetches whose partitions are checked: none; those that say whose they are; also those of a client that is known by
#: its client id and host alone.
ENFORCEMENTS: Final = ("off", "ours", "all")
#: Answers to a stock client that fetches a partition of another member: no records, or NOT_LEADER_OR_FOLLOWER.
OWNERSHIP_REFUSALS: Final = ("quiet", "strict")
#: Signs of life of a member: its heartbeats, or also its fetches, if they say whose they are.
BY_FETCH: Final = "fetch"
LIVENESS: Final = ("heartbeat", BY_FETCH)
#: Settings with a minimum and a maximum setting -> the least value of the minimum.
_BOUNDED: Final = {"session_timeout_ms": 100, "heartbeat_interval_ms": 50, "assignment_interval_ms": 0}

#: Settings without a maximum -> the least value.
_LEAST: Final = {
    "group_consumer_rebalance_heartbeat_interval_ms": 0,
    "group_consumer_assignment_window_ms": 0,
    "group_consumer_assignor_timeout_ms": 1,
    "group_heartbeat_rate_max": 1,
    "group_disconnect_grace_ms": -1,
    "group_ownership_lease_ms": -1,
    "group_assignor_max_moves": UNLIMITED,
    "group_assignor_imbalance": 0,
    "group_min_session_timeout_ms": 100,
    "group_initial_rebalance_delay_ms": 0,
    "group_max_size": 1,
    "group_consumer_max_size": 1,
    "offset_metadata_max_bytes": 0,
    "offsets_retention_minutes": 1,
}


@value
class GroupSettings:
    """Limits and defaults of groups; times in milliseconds, sizes in members or bytes.

    `configs` explains the fields that a group may override. The other fields:

    `group_consumer_assignment_window_ms`: delay from a group's latest change to the computation of its target, but at
    most `group_consumer_assignment_window_max_ms` from the first change; 0: no delay.
    `group_consumer_assignors`: assignors that a KIP-848 member may name; the first is the default.
    `own_assignors`: names of custom assignors that the shell has loaded.
    `group_consumer_assignor_timeout_ms`: time limit of a custom assignor.
    `group_consumer_rebalance_heartbeat_interval_ms`: the heartbeat interval of a KIP-848 member that has not reconciled
    its target; 0 uses the ordinary one, as Apache Kafka does.
    `group_heartbeat_rate_max`: heartbeats per second of one KIP-848 group above which its members get longer intervals.
    `group_consumer_migration_policy`: one of `MIGRATION_POLICIES`.
    `incremental_from_partitions`: number of partitions from which a group's balance is cached, so that a join does not
    examine all of them.
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
    group_consumer_assignors: tuple[str, ...] = BUILT_IN
    group_assignor: str = ""
    group_consumer_assignor_mismatch: str = "vote"
    group_consumer_assignment_window_ms: int = 50
    group_consumer_assignment_window_max_ms: int = 2_000
    group_consumer_assignment_interval_ms: int = 0
    group_consumer_min_assignment_interval_ms: int = 0
    group_consumer_max_assignment_interval_ms: int = 15_000
    group_consumer_assignor_offload_enable: bool = True
    group_consumer_assignor_timeout_ms: int = 5_000
    own_assignors: tuple[str, ...] = ()
    group_consumer_rebalance_heartbeat_interval_ms: int = 100
    group_consumer_migration_policy: str = "bidirectional"
    group_heartbeat_rate_max: int = 2_000
    group_disconnect_grace_ms: int = -1
    group_assignor_max_moves: int = UNLIMITED
    group_assignor_imbalance: int = 0
    group_moves_per_second: float = 0.0
    group_moves_burst: int = 1
    group_moves_paused: bool = False
    group_moves_order: str = "name"
    group_membership: str = DYNAMIC
    group_registration_timeout_ms: int = 1_800_000
    group_min_registration_timeout_ms: int = 100
    group_max_registration_timeout_ms: int = 86_400_000
    group_expansion_timeout_ms: int = 300_000
    group_min_expansion_timeout_ms: int = 100
    group_max_expansion_timeout_ms: int = 86_400_000
    group_ownership_enforce: str = "ours"
    group_ownership_refusal: str = "quiet"
    group_ownership_lease_ms: int = -1
    group_liveness: str = "heartbeat"
    group_rebalance_token: str = ""
    group_static_fallback: str = "admin"
    incremental_from_partitions: int = 500
    offset_metadata_max_bytes: int = 4_096
    offsets_retention_minutes: int = 10_080
    # Made of the others: each fetch and each commit of a member asks for these.
    #: Whether a fetch that says whose it is counts as a heartbeat.
    counts_fetches: bool = field(init=False, repr=False, compare=False)
    #: Whether leaders refuse reads of partitions of other members.
    is_enforcing: bool = field(init=False, repr=False, compare=False)
    #: How long a member may read by a grant that is not renewed, ms.
    lease_ms: int = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "counts_fetches", self.group_liveness == BY_FETCH)
        object.__setattr__(self, "is_enforcing", self.group_ownership_enforce != "off")
        # A member that is cut off lets go before the coordinator gives its partitions to another one.
        lease_ms, session_ms = self.group_ownership_lease_ms, self.group_consumer_session_timeout_ms
        object.__setattr__(self, "lease_ms", session_ms // 2 if lease_ms < 0 else min(lease_ms, session_ms))
        for name, lowest in _BOUNDED.items():
            self._check_bounded(name, lowest)
        for name, lowest in _LEAST.items():
            _within(name.replace("_", "."), getattr(self, name), lowest)
        window_ms = self.group_consumer_assignment_window_ms
        _within("group.consumer.assignment.window.max.ms", self.group_consumer_assignment_window_max_ms, window_ms)
        _within("group.max.session.timeout.ms", self.group_max_session_timeout_ms, self.group_min_session_timeout_ms)
        if not 0 <= self.group_moves_per_second <= MOST_MOVES_PER_SECOND:
            raise ConfigError(
                f"group.moves.per.second cannot be {self.group_moves_per_second}: "
                f"0 to {MOST_MOVES_PER_SECOND} is expected"
            )
        if not 1 <= self.group_moves_burst <= MOST_MOVES_AT_ONCE:
            raise ConfigError(
                f"group.moves.burst cannot be {self.group_moves_burst}: 1 to {MOST_MOVES_AT_ONCE} is expected"
            )
        _one_of("group.moves.order", self.group_moves_order, MOVE_ORDERS)
        _one_of("group.consumer.assignor.mismatch", self.group_consumer_assignor_mismatch, MISMATCH_POLICIES)
        _one_of("group.ownership.enforce", self.group_ownership_enforce, ENFORCEMENTS)
        _one_of("group.ownership.refusal", self.group_ownership_refusal, OWNERSHIP_REFUSALS)
        _one_of("group.liveness", self.group_liveness, LIVENESS)
        for name in ("registration", "expansion"):
            self._check_bounded(f"{name}_timeout_ms", 1, kind="group")
        _one_of("group.membership", self.group_membership, MEMBERSHIPS)
        _one_of("group.static.fallback", self.group_static_fallback, STATIC_FALLBACKS)
        _one_of("group.consumer.migration.policy", self.group_consumer_migration_policy, MIGRATION_POLICIES)
        if self.group_consumer_heartbeat_interval_ms >= self.group_consumer_session_timeout_ms:
            raise ConfigError(
                f"group.consumer.heartbeat.interval.ms ({self.group_consumer_heartbeat_interval_ms}) has to be below "
                f"group.consumer.session.timeout.ms ({self.group_consumer_session_timeout_ms}), or members are fenced "
                "between two heartbeats"
            )
        unknown = [name for name in self.group_consumer_assignors if name not in (*BUILT_IN, *self.own_assignors)]
        if unknown or not self.group_consumer_assignors:
            raise ConfigError(
                f"group.consumer.assignors cannot be {', '.join(unknown) or 'empty'}: "
                f"one or more of {', '.join((*BUILT_IN, *self.own_assignors))} is expected"
            )
        if self.group_assignor not in self.assignor_choices:
            raise ConfigError(
                f"group.assignor cannot be {self.group_assignor}: one of {', '.join(self.group_consumer_assignors)} "
                "(group.consumer.assignors) is expected, or nothing, which leaves the choice to the members"
            )

    @property
    def assignor_choices(self) -> tuple[str, ...]:
        """Return the allowed values of `group_assignor`."""
        return ("", *self.group_consumer_assignors)

    @property
    def is_static(self) -> bool:
        """Whether the group is static: its members have instance ids."""
        return self.group_membership == STATIC

    @property
    def has_paced_moves(self) -> bool:
        """Whether moves are throttled or paused."""
        return self.group_moves_per_second > 0 or self.group_moves_paused

    @property
    def can_upgrade(self) -> bool:
        """Whether a classic group with members may become a KIP-848 group."""
        return self.group_consumer_migration_policy in ("bidirectional", "upgrade")

    @property
    def can_downgrade(self) -> bool:
        """Whether a KIP-848 group with only classic members left may become a classic group."""
        return self.group_consumer_migration_policy in ("bidirectional", "downgrade")

    def _check_bounded(self, name: str, lowest: int, *, kind: str = "group_consumer") -> None:
        """Check a setting that groups may change, and the bounds that only the broker's configuration sets."""
        values = {bound: getattr(self, f"{kind}_{bound}{name}") for bound in ("min_", "max_", "")}
        of, dotted = kind.replace("_", "."), name.replace("_", ".")
        _within(f"{of}.min.{dotted}", values["min_"], lowest)
        _within(f"{of}.max.{dotted}", values["max_"], values["min_"])
        _within(f"{of}.{dotted}", values[""], values["min_"])
        if values[""] > values["max_"]:
            raise ConfigError(
                f"{of}.{dotted} cannot be {values['']}: at most {values['max_']} is expected ({of}.max.{dotted})"
            )


def _within(name: str, value: int, minimum: int) -> None:
    if value < minimum:
        raise ConfigError(f"{name} cannot be {value}: at least {minimum} is expected")


def _one_of(name: str, value: str, choices: tuple[str, ...]) -> None:
    if value not in choices:
        raise ConfigError(f"{name} cannot be {value}: one of {', '.join(choices)} is expected")
