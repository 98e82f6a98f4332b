"""Spark reads a topic as a batch, `local[2]`: 10 M records of 100 B into `noop` and of one column; records of 1 KB,
compressed ones, headers; JSON that is parsed and grouped.

Peer: Spark's own source, as it comes and tuned.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from kohort.records.batch import build_batch
from report import Row, Table, take_turns, warmed
from sparksides import OURS, PLAIN, TUNED, Cost, Side, brokers, cost_of, rows_of, spark_session
from topics import Server, fill, fill_batches

RECORDS = 10_000_000
#: Of the rows that tell what other records cost.
SOME = 2_000_000
PARTITIONS = 4
#: Records of a batch that stays below 1 MB, which is what brokers take.
PER_BATCH = 4_000
_CARRIERS = ("AA", "AS", "B6", "DL", "EV", "UA", "US", "WN")


def into_noop(frame: Any) -> None:
    frame.write.format("noop").mode("overwrite").save()


def sum_of_lengths(frame: Any) -> None:
    assert frame.selectExpr("sum(length(value))").collect()[0][0] == 100 * RECORDS


def parse_and_group(frame: Any) -> None:
    parsed = frame.selectExpr("from_json(string(value), 'carrier string, delay int, tail string') flight")
    delays = parsed.groupBy("flight.carrier").agg({"flight.delay": "avg", "*": "count"}).collect()
    assert sum(row["count(1)"] for row in delays) == SOME


@dataclass(frozen=True)
class Read:
    """One row: what is read and how; `reaches` are those beside the peer as it comes, and tuned."""

    topic: str
    records: int
    run: Callable[[Any], None]
    reaches: Sequence[str]
    options: tuple[tuple[str, str], ...] = ()
    #: For ours alone: Spark's own source makes every column, and has no option for it.
    own_options: tuple[tuple[str, str], ...] = ()


ON_BOTH_BROKERS = {
    "batch": Read("plain", RECORDS, into_noop, (">= 1.75x", ">= 1.25x")),
    "batch, sum(length(value))": Read(
        "plain", RECORDS, sum_of_lengths, (">= 2.5x", ">= 1.75x"), own_options=(("columns", "value"),)
    ),
}
OTHER_RECORDS = {
    "batch, values of 1 KB": Read("large", SOME // 2, into_noop, (">= 1.3x", ">= 1x")),
    "batch, zstd": Read("zstd", SOME, into_noop, (">= 1.3x", ">= 1x")),
    "batch, two headers": Read("headers", SOME, into_noop, (">= 1.3x", ">= 1x"), (("includeHeaders", "true"),)),
    "batch, JSON parsed and grouped": Read("json", SOME, parse_and_group, (">= 1.3x", ">= 1x")),
}


def fill_others(server: Server) -> None:
    """The topics of `OTHER_RECORDS`."""
    fill(server, "large", partitions=PARTITIONS, records=SOME // 2, value=b"x" * 1000, key=b"k" * 8)
    fill(server, "zstd", partitions=PARTITIONS, records=SOME, value=b"x" * 100, key=b"k" * 8, compression="zstd")
    for topic, build in (("headers", batch_with_headers), ("json", batch_of_json)):
        fill_batches(server, topic, build, per_batch=PER_BATCH, partitions=PARTITIONS, records=SOME)


def batch_with_headers(count: int) -> bytes:
    """Two on each record of 100 B."""
    now_ms = int(time.time() * 1000)
    headers = (("trace", b"0123456789abcdef"), ("source", b"bench"))
    return build_batch([(b"k" * 8, b"x" * 100, now_ms, headers)] * count)


def batch_of_json(count: int) -> bytes:
    """Flights, 56 to 61 B each."""
    now_ms = int(time.time() * 1000)
    flights = [
        {"carrier": _CARRIERS[n % len(_CARRIERS)], "delay": n % 240 - 30, "tail": f"N{n:05d}"} for n in range(count)
    ]
    return build_batch([(b"k" * 8, json.dumps(flight).encode(), now_ms, ()) for flight in flights])


def frame_of(session: Any, server: Server, read: Read, side: Side) -> Any:
    """What a query reads."""
    options = {"kafka.bootstrap.servers": server.bootstrap_servers, "subscribe": read.topic}
    own = read.own_options if side is OURS else ()
    options |= {"startingOffsets": "earliest", **dict(read.options), **dict(own), **side.options}
    return session.read.format(side.format).options(**options).load()


def cost(session: Any, server: Server, read: Read, side: Side) -> Cost:
    """One query."""
    frame = frame_of(session, server, read, side)
    return cost_of(session, lambda: read.run(frame))


def rows_from(session: Any, server: Server, reads: dict[str, Read], runs: int, peers: Sequence[Side]) -> list[Row]:
    """Rates of all, and what a row of `batch` takes of the processors."""
    rows = []
    for name, read in reads.items():
        for side in (OURS, *peers):
            # `noop` does not tell.
            assert frame_of(session, server, read, side).count() == read.records, f"{name}, {side.format}"
        ours, *theirs = take_turns(runs, *(partial(cost, session, server, read, side) for side in (OURS, *peers)))
        by_peer = dict(zip(peers, theirs, strict=True))
        rates = {side: [read.records / each.wall_s for each in found] for side, found in by_peer.items()}
        what = f"{name}, from {server.name}"
        mine = [read.records / each.wall_s for each in ours]
        rows += rows_of(what, mine, rates, unit="rows/s", reaches=read.reaches, how=warmed(runs))
        if name == "batch":
            rows += rows_of_processors(what, read.records, ours, by_peer, runs=runs, reach="<= 0.5 us")
    return rows


def rows_of_processors(
    what: str, records: int, ours: Sequence[Cost], peers: dict[Side, list[Cost]], *, runs: int, reach: str
) -> list[Row]:
    """Microseconds of processors a row: JVM and Python beside the peer as it comes, and Python alone."""

    def each(costs: Sequence[Cost]) -> list[float]:
        return [(cost.jvm_s + cost.python_s) / records * 1e6 for cost in costs]

    plain = {side: each(costs) for side, costs in peers.items() if side is PLAIN}
    python = [cost.python_s / records * 1e6 for cost in ours]
    return [
        *rows_of(
            f"CPU of JVM and Python, {what}",
            each(ours),
            plain,
            unit="us a row",
            reaches=[reach],
            how=warmed(runs),
            less_is_better=True,
        ),
        *rows_of(f"Python's part, {what}", python, {}, unit="us a row", reaches=["report"], how=warmed(runs)),
    ]


def measure(runs: int) -> list[Table]:
    with spark_session() as (session, left_out), brokers() as servers:
        peers = () if left_out else (PLAIN, TUNED)
        rows: list[Row] = []
        for server in servers:
            fill(server, "plain", partitions=PARTITIONS, records=RECORDS, value=b"x" * 100, key=b"k" * 8)
            rows += rows_from(session, server, ON_BOTH_BROKERS, runs, peers)
        fill_others(servers[-1])
        rows += rows_from(session, servers[-1], OTHER_RECORDS, runs, peers)
    return [Table("sparkbatch", "Spark batch", rows, left_out)]
