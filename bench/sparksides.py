"""What the benches of Spark share: a session with both sources, the sides of a comparison, what a run costs.

Peer: Spark's own source and sink `spark-sql-kafka-0-10`, same session, same broker; as it comes, and with settings
under which it reads as fast as it can. Ours are the defaults.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from report import NO_PEER, Row, compare
from servers import KohortServer, apache_server
from support.peers.spark_kafka import JARS, SparkKafkaUnavailableError, fetch_jars

#: Spark's own source is the newest whose jars go together here; it reads by the client that it was built with.
PEER = " with ".join(":".join(JARS[number].split(":")[1:]) for number in (0, 3))
SESSION = "local[2], spark.driver.memory=3g"
_TICKS_PER_S = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True, eq=False)
class Side:
    """A source or sink with its options; `suffix` says in a row's name which peer it is."""

    format: str
    options: Mapping[str, str] = field(default_factory=dict)
    suffix: str = ""


OURS, PLAIN = Side("kohort"), Side("kafka")
TUNED = Side(
    "kafka",
    {
        "kafka.receive.buffer.bytes": "4194304",
        "kafka.max.partition.fetch.bytes": "4194304",
        "kafka.max.poll.records": "10000",
        # Ours goes on checking sums.
        "kafka.check.crcs": "false",
    },
    ", peer tuned",
)


@dataclass(frozen=True)
class Cost:
    """What a job took, seconds: on the wall, of processors in the JVM, of processors in all Python below it."""

    wall_s: float
    jvm_s: float
    python_s: float


@contextmanager
def spark_session() -> Iterator[tuple[Any, list[str]]]:
    """A session with both sources, and why the peer's is left out if it is."""
    from pyspark.sql import SparkSession

    from kohort.spark import register
    from kohort.spark.driver.java import use_java, use_this_python
    from kohort.spark.driver.pythons import use_file_sockets
    from kohort.spark.driver.sessions import use_renames

    use_java()
    use_this_python()
    use_file_sockets()
    jars, left_out = "", []
    try:
        jars = ",".join(map(str, fetch_jars()))
    except SparkKafkaUnavailableError as why:
        left_out = [f"left out: {why}"]
    builder = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
    builder = builder.config("spark.driver.memory", "3g").config("spark.log.level", "FATAL")
    builder = builder.config("spark.ui.showConsoleProgress", "false").config("spark.jars", jars)
    # Every trigger of a run is looked at.
    session = builder.config("spark.sql.streaming.numRecentProgressUpdates", "100000").getOrCreate()
    register(session)
    use_renames(session)
    try:
        yield session, left_out
    finally:
        session.stop()


@contextmanager
def brokers() -> Iterator[list[Any]]:
    """Ours, and Apache Kafka behind it where it can be had."""
    peer: Any = apache_server()
    with ExitStack() as stack:
        yield [stack.enter_context(each) for each in (KohortServer(), *(() if isinstance(peer, str) else (peer,)))]


def cost_of(session: Any, job: Callable[[], object]) -> Cost:
    """Run it."""
    pid = session._jvm.java.lang.ProcessHandle.current().pid()
    before, began = processors_s(pid), time.perf_counter()
    job()
    wall_s, after = time.perf_counter() - began, processors_s(pid)
    return Cost(wall_s, after[0] - before[0], after[1] - before[1])


def processors_s(pid: int) -> tuple[float, float]:
    """User and system time so far, seconds: of a process, and of all that it has started, ended ones included."""
    own: dict[int, int] = {}
    ended: dict[int, int] = {}
    children: dict[int, list[int]] = {}
    for place in Path("/proc").iterdir():
        if not place.name.isdigit():
            continue
        try:
            fields = (place / "stat").read_text().rsplit(")", 1)[1].split()
        except OSError:
            continue
        number = int(place.name)
        children.setdefault(int(fields[1]), []).append(number)
        own[number] = int(fields[11]) + int(fields[12])
        ended[number] = int(fields[13]) + int(fields[14])
    below, waiting = ended[pid], list(children.get(pid, ()))
    while waiting:
        each = waiting.pop()
        below += own[each] + ended[each]
        waiting += children.get(each, ())
    return own[pid] / _TICKS_PER_S, below / _TICKS_PER_S


def rows_of(
    what: str,
    ours: Sequence[float],
    peers: Mapping[Side, Sequence[float]],
    *,
    unit: str,
    reaches: Sequence[str],
    how: str,
    less_is_better: bool = False,
) -> list[Row]:
    """A row for each peer, with what is aimed at; one without a peer where there is none."""
    pairs: Sequence[tuple[Side | None, Sequence[float]]] = list(peers.items()) or [(None, ())]
    return [
        compare(
            what + (peer.suffix if peer else ""),
            ours,
            measured,
            unit=unit,
            reach=reach,
            peer_name=PEER if peer else NO_PEER,
            how=how,
            settings=SESSION + (told(peer) if peer else ""),
            less_is_better=less_is_better,
        )
        for (peer, measured), reach in zip(pairs, reaches, strict=False)
    ]


def told(side: Side) -> str:
    """Its options, as a row says them."""
    names = ", ".join(f"{name.removeprefix('kafka.')}={value}" for name, value in side.options.items())
    return f"; theirs: {names}" if names else ""
