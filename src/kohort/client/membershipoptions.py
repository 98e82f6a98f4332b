"""The options of a group's member: its name, its protocol, and when it is given up.

Source: Apache Kafka's consumer configuration; KIP-345 and its draft (registration.timeout.ms, expansion.timeout.ms,
member.name).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from kohort.client.localassignors import parse_assignors
from kohort.client.option_kinds import choice, number, switch, text
from kohort.config import Option, parse_int, parse_list
from kohort.errors import ConfigError

_INT32_MAX: Final = 2**31 - 1
#: Default pause between heartbeats of the classic protocol.
_CLASSIC_HEARTBEAT_INTERVAL_MS: Final = 3_000
#: Assignors of classic members.
_ASSIGNORS: Final = ("range", "roundrobin", "cooperative-sticky")
#: With one of these the first member of a group makes it a static group.
_OF_STATIC_GROUPS: Final = ("registration.timeout.ms", "expansion.timeout.ms")


def _joining(name: str, doc: str) -> Option:
    """Declare an option of a joining member in milliseconds; not sent by default."""
    return Option(name=name, parse=parse_int, default=None, doc=doc, minimum=0, maximum=_INT32_MAX)


MEMBERSHIP: Final = (
    text("group.id", None, "Group to join or to commit for; none means neither."),
    text(
        "group.instance.id",
        None,
        "Name of a static member: it keeps its partitions while it restarts within its session, and does not leave the "
        "group when it closes.",
        also=("member.name",),
    ),
    _joining(
        "registration.timeout.ms",
        "How long the group keeps what a member with a name has that is offline. With this option or the next one, the "
        "first member that joins a group without members makes it a static one; later ones change nothing (in Kafka no "
        "option: its brokers skip both).",
    ),
    _joining(
        "expansion.timeout.ms",
        "How long members that are new to a static group are gathered before they get something, all at once (in Kafka "
        "no option).",
    ),
    choice(
        "group.protocol",
        "consumer",
        "Protocol of membership; consumer (KIP-848) falls back to classic where the broker lacks it (Kafka: classic).",
        "consumer",
        "classic",
    ),
    text("group.remote.assignor", None, "Assignor of the coordinator (consumer protocol)."),
    Option(
        name="group.local.assignors",
        parse=parse_assignors,
        default=(),
        doc="Assignors that this member runs for its group, objects in order of preference (consumer protocol, a "
        "kohort broker; Kafka has it in KIP-848's draft only); used is the one that all members have.",
    ),
    Option(
        name="partition.assignment.strategy",
        parse=parse_list,
        default=["range", "cooperative-sticky"],
        doc="Assignors in order of preference (classic protocol; in Kafka classes): range, roundrobin, "
        "cooperative-sticky; with the last one alone, members keep what does not move while the group rebalances.",
    ),
    number(
        "session.timeout.ms",
        45_000,
        "A coordinator silent for so long, or for the group's session if that is shorter, is given up; "
        "classic: so is a member.",
        minimum=1,
    ),
    Option(
        name="heartbeat.interval.ms",
        parse=parse_int,
        default=None,
        doc="Pause between heartbeats; classic: 3000 by default (as in Kafka); consumer: by default what the broker "
        "says, otherwise proposed to a kohort broker, whose answer counts.",
        minimum=1,
        maximum=_INT32_MAX,
    ),
    number(
        "max.poll.interval.ms",
        300_000,
        "Longest time between two polls, and for a revocation, before the member leaves.",
        minimum=1,
    ),
    choice(
        "revocation.timeout.policy",
        "retry_then_leave",
        "What to do when a revocation callback takes longer than max.poll.interval.ms (in Kafka no option).",
        "retry_then_leave",
        "leave",
        "retry",
    ),
    switch("fetch.carries.membership", True, "Hear of moves by fetches as well, from kohort brokers (not in Kafka)."),
)


def check_membership(values: Mapping[str, Any]) -> None:
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
    interval_ms, _ = heartbeat_intervals(values)
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


def heartbeat_intervals(values: Mapping[str, Any]) -> tuple[int, int]:
    """Return the classic heartbeat interval and the one to propose by KIP-848 (-1: none), milliseconds."""
    given = values["heartbeat.interval.ms"]
    return _CLASSIC_HEARTBEAT_INTERVAL_MS if given is None else given, or_nothing(given)


def or_nothing(value: int | None) -> int:
    """Return a number as it goes over the wire, where -1 stands for none."""
    return -1 if value is None else value
