"""The options of the clients as sets that check values, and the settings of machines.

Each option is declared in `typed_options.py`, and nowhere else.

Laws: a value is checked once, here. Machines see the frozen settings of this module, never raw options.
Source: Apache Kafka's consumer, producer and admin configurations; KIP-345 and its draft.
"""

from __future__ import annotations

from collections.abc import Container, Mapping
from dataclasses import field, replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, Unpack, cast

from kohort.base.options import Option, OptionSet, Unserved, Verdict, as_keyword, options_of
from kohort.base.values import value
from kohort.client.core.actions import Endpoint
from kohort.client.core.retry import Backoff
from kohort.client.option_kinds import check_protocols, endpoint_of
from kohort.client.securityoptions import SecuritySettings, security_settings
from kohort.errors import ConfigError

if TYPE_CHECKING:
    from kohort.client.local_assignors import LocalAssignor
    from kohort.client.typed_options import ConsumerOptions, SharedOptions

#: Options that a running consumer may change.
_LIMITS: Final = (
    "fetch.buffer.bytes",
    "fetch.max.bytes",
    "fetch.max.wait.ms",
    "fetch.min.bytes",
    "max.partition.fetch.bytes",
    "max.poll.records",
)

#: Default pause between heartbeats of the classic protocol.
_CLASSIC_HEARTBEAT_INTERVAL_MS: Final = 3_000
#: Assignors of classic members.
_ASSIGNORS: Final = ("range", "roundrobin", "cooperative-sticky")
#: With one of these the first member of a group makes it a static group.
_OF_STATIC_GROUPS: Final = ("registration.timeout.ms", "expansion.timeout.ms")


def _options_of(client: str, table: str, foreign: str, *others: str) -> OptionSet:
    """Build the options of a client; its `table` is read on first use, the `foreign` options on an unknown name.

    `others`: the clients with options that this one lacks.
    """

    def read() -> list[Option]:
        from kohort.client import typed_options

        return options_of(getattr(typed_options, table))

    def unserved() -> tuple[Unserved, ...]:
        from kohort.client import kafkaoptions

        rows: tuple[Unserved, ...] = getattr(kafkaoptions, foreign)
        own = _OPTIONS[client]
        names = {other: [option.name for option in _OPTIONS[other] if option.name not in own] for other in others}
        return rows + tuple(
            Unserved(" ".join(names[other]), Verdict.NOT_NEEDED, f"it concerns {other}s") for other in others
        )

    return OptionSet(f"{client} option", read, unserved=unserved)


CONSUMER_OPTIONS: Final = _options_of("consumer", "ConsumerOptions", "FOR_CONSUMERS", "producer")
PRODUCER_OPTIONS: Final = _options_of("producer", "ProducerOptions", "FOR_PRODUCERS", "consumer")
ADMIN_OPTIONS: Final = _options_of("admin", "AdminOptions", "FOR_ADMINS", "producer", "consumer")
_OPTIONS: Final = {"consumer": CONSUMER_OPTIONS, "producer": PRODUCER_OPTIONS, "admin": ADMIN_OPTIONS}


@value
class ClientSettings:
    """The checked values of the options that every client has, and values derived from them."""

    #: By keyword, without the application's functions: no machine may lead back to its door.
    options: SharedOptions = field(repr=False)
    bootstrap: tuple[Endpoint, ...]
    retry: Backoff
    reconnect: Backoff
    security: SecuritySettings = field(default_factory=SecuritySettings)


@value
class ConsumerSettings:
    """The checked values of a consumer's options, and values derived from them."""

    #: As in `ClientSettings`.
    options: ConsumerOptions = field(repr=False)
    #: These make a group static whose first member this one is; -1: not sent.
    registration_timeout_ms: int
    expansion_timeout_ms: int
    local_assignors: tuple[LocalAssignor, ...]
    assignment_strategy: tuple[str, ...]
    #: Whether the application has set auto.offset.reset, so that the start needs no warning.
    is_reset_chosen: bool
    #: Of the classic protocol.
    heartbeat_interval_ms: int
    #: Proposed to a KIP-848 coordinator; -1: the coordinator decides.
    proposed_heartbeat_interval_ms: int
    is_read_committed: bool

    def changed(self, **options: Unpack[ConsumerOptions]) -> ConsumerSettings:
        """Copy these settings with other values of options that no other setting is derived from."""
        return replace(self, options=cast("ConsumerOptions", MappingProxyType({**self.options, **options})))


def machine_options(values: Mapping[str, Any]) -> Any:
    """Return parsed options by keyword, read-only, as the `TypedDict` of their client.

    The application's functions are left out: they may refer to the client, which could never be forgotten then.
    """
    return MappingProxyType({as_keyword(name): value for name, value in values.items() if not callable(value)})


def client_settings(values: Mapping[str, Any], *, seed: int = 0) -> ClientSettings:
    """Build the settings of parsed options; `seed` makes this client's pauses differ from others'.

    Raises:
        ConfigError: options contradict each other, or a file that they name cannot be used.
    """
    check_protocols(values["bootstrap.servers"], values["security.protocol"])
    return ClientSettings(
        options=machine_options(values),
        bootstrap=tuple(endpoint_of(server) for server in values["bootstrap.servers"]),
        retry=Backoff(base_ms=values["retry.backoff.ms"], max_ms=values["retry.backoff.max.ms"], seed=seed),
        reconnect=Backoff(base_ms=values["reconnect.backoff.ms"], max_ms=values["reconnect.backoff.max.ms"], seed=seed),
        security=security_settings(values),
    )


def consumer_settings(values: Mapping[str, Any], given: Container[str] = ()) -> ConsumerSettings:
    """Build settings from options that `CONSUMER_OPTIONS` has parsed; refuse contradicting ones.

    `given`: names of the options that are set.
    """
    _check_membership(values)
    interval_ms, proposed_ms = _heartbeat_intervals(values)
    return ConsumerSettings(
        options=machine_options(values),
        registration_timeout_ms=_or_nothing(values["registration.timeout.ms"]),
        expansion_timeout_ms=_or_nothing(values["expansion.timeout.ms"]),
        local_assignors=values["group.local.assignors"],
        assignment_strategy=tuple(values["partition.assignment.strategy"]),
        is_reset_chosen="auto.offset.reset" in given,
        heartbeat_interval_ms=interval_ms,
        proposed_heartbeat_interval_ms=proposed_ms,
        is_read_committed=values["isolation.level"] == "read_committed",
    )


def changed_limits(config: object, options: Mapping[str, object]) -> ConsumerOptions:
    """Return changed values by keyword; refuse options that a running consumer cannot change."""
    given = CONSUMER_OPTIONS.gather(config, options)
    for name in sorted(given.keys() - set(_LIMITS)):
        raise ConfigError(
            f"{name} cannot be changed while the consumer runs, only {', '.join(_LIMITS)}: create a new consumer"
        )
    checked = {as_keyword(name): CONSUMER_OPTIONS.option(name).check(value) for name, value in given.items()}
    return cast("ConsumerOptions", checked)


def _check_membership(values: Mapping[str, Any]) -> None:
    """Refuse options that contradict each other.

    Raises:
        ConfigError: with what to do.
    """
    if values["group.id"] == "":
        raise ConfigError("group.id cannot be empty: give the group a name, or leave the option out")
    if values["group.instance.id"] == "":
        raise ConfigError("group.instance.id cannot be empty: give the member a name, or leave the option out")
    if values["group.instance.id"] is not None and values["group.id"] is None:
        raise ConfigError("group.instance.id names a member of a group: group.id is needed, too")
    for name in _OF_STATIC_GROUPS:
        # Without a group they have no effect: Spark's executors get the options of the member beside them.
        if values[name] is not None and values["group.id"] is not None and values["group.instance.id"] is None:
            raise ConfigError(f"{name} is about members with a name: group.instance.id (member.name) is needed, too")
    interval_ms, _ = _heartbeat_intervals(values)
    if values["group.protocol"] == "classic" and interval_ms >= values["session.timeout.ms"]:
        raise ConfigError("heartbeat.interval.ms must be below session.timeout.ms, a third of it is usual")
    if values["group.protocol"] == "classic" and values["group.remote.assignor"] is not None:
        raise ConfigError(
            "group.remote.assignor is for the consumer protocol, and group.protocol is classic: choose with "
            "partition.assignment.strategy"
        )
    if values["group.local.assignors"]:
        _check_local_assignors(values)
    unknown = [name for name in values["partition.assignment.strategy"] if name not in _ASSIGNORS]
    if unknown or not values["partition.assignment.strategy"]:
        given = unknown[0] if unknown else ""
        known = ", ".join(_ASSIGNORS)
        raise ConfigError(f"partition.assignment.strategy cannot be {given!r}: some of {known} are expected")


def _check_local_assignors(values: Mapping[str, Any]) -> None:
    if values["group.id"] is None:
        raise ConfigError("group.local.assignors are for members of a group: group.id is needed, too")
    if values["group.protocol"] == "classic":
        raise ConfigError("group.local.assignors are for the consumer protocol, and group.protocol is classic")
    if values["group.remote.assignor"] is not None:
        raise ConfigError("group.local.assignors and group.remote.assignor exclude each other: leave one of them out")


def _heartbeat_intervals(values: Mapping[str, Any]) -> tuple[int, int]:
    """Return the classic heartbeat interval and the one to propose by KIP-848 (-1: none), milliseconds."""
    given = values["heartbeat.interval.ms"]
    return _CLASSIC_HEARTBEAT_INTERVAL_MS if given is None else given, _or_nothing(given)


def _or_nothing(value: int | None) -> int:
    """Return a number as it goes over the wire, where -1 stands for none."""
    return -1 if value is None else value
