"""A fourth member joins three that share twelve partitions, and leaves again: stock clients, Java's and our own.

Each kind of client has a group of its own; all groups come to rest together, and are changed one after the other, so
that a group was at rest for seconds when its change begins. A member that joins is new: the time counts from when it
subscribes until all four have their shares; that of one that leaves from the call until the three have theirs. Peer:
Apache Kafka 4.3 with the same members, each broker with its own defaults.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from functools import partial
from typing import Any
from uuid import uuid4

from load import RawConnection
from report import APACHE_KAFKA, Row, Table, compare
from requests import settle_alone
from servers import start_both
from stockmembers import ConfluentMember, JavaMember, Make, Member, OurMember, is_shared_out, longest_unowned_s
from topics import create_topic

PARTITIONS, MEMBERS = 12, 3
TOPIC = "stock"
PATIENCE_S = 60.0
#: A group is at rest for as long before it is changed.
REST_S = 2.0
JOINS, LEAVES, UNOWNED = "one joins", "one leaves", "a moved partition is nobody's"
#: (client, what makes one, reach of a join, of a leave, of a moved partition)
KINDS: tuple[tuple[str, Make, str, str, str], ...] = (
    ("confluent-kafka, range", partial(ConfluentMember, strategy="range"), "<= 0.3 s", "<= 0.3 s", "report"),
    (
        "confluent-kafka, cooperative-sticky",
        partial(ConfluentMember, strategy="cooperative-sticky"),
        "<= 1.3 s",
        "<= 0.3 s",
        "<= 1.05 s",
    ),
    ("confluent-kafka, consumer", partial(ConfluentMember, strategy=None), "<= 0.25 s", "<= 0.3 s", "<= 0.15 s"),
    (
        "confluent-kafka, consumer, commits every 0.1 s",
        partial(ConfluentMember, strategy=None, commits=True),
        "<= 1.1 s",
        "report",
        "report",
    ),
    ("Java, consumer", JavaMember, "<= 0.25 s", "<= 0.3 s", "<= 0.15 s"),
    ("kohort, consumer", OurMember, "<= 0.15 s", "<= 0.3 s", "<= 0.15 s"),
)
Figures = dict[tuple[str, str], list[float]]


def wait_until(condition: Callable[[], bool], what: str) -> None:
    """Looked at often: the times are those of the members' own notes."""
    until = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < until, f"{what}: not within {PATIENCE_S:g} s"
        time.sleep(0.005)


def last_change(members: Sequence[Member]) -> float:
    return max(member.changes[-1][0] for member in members)


def measure_run(server: Any, found: Figures) -> None:
    """Every kind once."""
    with ExitStack() as stack:
        groups: dict[str, tuple[Callable[[], Member], list[Member]]] = {}
        for kind, make, *_ in KINDS:
            one = partial(make, server.bootstrap_servers, f"{kind.split(',')[0]}-{uuid4().hex[:8]}", TOPIC)
            groups[kind] = (one, [_closed_with(stack, one()) for _ in range(MEMBERS)])
        for kind, (_, members) in groups.items():
            wait_until(partial(is_shared_out, members, PARTITIONS), f"{kind}: the first {MEMBERS}")
        time.sleep(REST_S)
        for kind, (one, members) in groups.items():
            measure_group(kind, one, members, found)


def measure_group(kind: str, one: Callable[[], Member], members: list[Member], found: Figures) -> None:
    since = time.monotonic()
    fourth = one()
    everybody = [*members, fourth]
    try:
        wait_until(partial(is_shared_out, everybody, PARTITIONS), f"{kind}: {JOINS}")
        assert fourth.began is not None, "it owns something"
        found[kind, JOINS].append(last_change(everybody) - fourth.began)
        found[kind, UNOWNED].append(longest_unowned_s(everybody, PARTITIONS, since=since))
        time.sleep(REST_S)
        since = time.monotonic()
    finally:
        fourth.close()
    wait_until(partial(is_shared_out, members, PARTITIONS), f"{kind}: {LEAVES}")
    found[kind, LEAVES].append(last_change(members) - since)


def _closed_with(stack: ExitStack, member: Member) -> Member:
    stack.callback(member.close)
    return member


def measure(runs: int) -> list[Table]:
    with ExitStack() as stack:
        servers, left_out = start_both(stack)
        places = [(kind, what) for kind, *_ in KINDS for what in (JOINS, LEAVES, UNOWNED)]
        found: list[Figures] = [{place: [] for place in places} for _ in range(2)]
        for server in servers:
            connection = RawConnection(server.port)
            settle_alone(connection)
            create_topic(connection, TOPIC, PARTITIONS)
            connection.close()
        for _ in range(runs):
            for place, server in enumerate(servers):
                measure_run(server, found[place])
    return [Table("stockjoins", "A member joins three, and leaves", list(_rows(found, runs)), left_out)]


def _rows(found: list[Figures], runs: int) -> Sequence[Row]:
    rows = []
    for kind, _, *reaches in KINDS:
        for what, reach in zip((JOINS, LEAVES, UNOWNED), reaches, strict=True):
            rows.append(
                compare(
                    f"{kind}: {what}",
                    found[0][kind, what],
                    found[1][kind, what],
                    unit="s",
                    reach=reach,
                    peer_name=APACHE_KAFKA,
                    how=str(runs),
                    less_is_better=True,
                )
            )
    return rows
