"""A steady stream of records, and what a streaming query says of its batches: when they began and ended, and how old
their rows were.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from itertools import count
from threading import Event, Thread
from typing import Any

from load import RawConnection
from topics import PAGE_CACHE, Server, create_writable_topic

PARTITIONS = 4
VALUE, KEY = b"x" * 100, b"k" * 8
#: How often records are sent, seconds.
_TICK_S = 0.01
#: Rows of a batch are looked at as so many groups of one age.
_AGES = 100
_NUMBERS = count()


@dataclass(frozen=True)
class Batch:
    """When it was in Spark's commit log, its rows, and the timestamps of its first and last one; seconds since 1970."""

    ended_s: float
    rows: int
    first_s: float
    last_s: float


@contextmanager
def steady_topic(server: Server, *, a_second: int) -> Iterator[str]:
    """A new topic into which so many records a second are sent, evenly over its partitions, until the end."""
    import kohort

    topic = f"steady-{next(_NUMBERS)}"
    connection = RawConnection(server.port)
    create_writable_topic(connection, topic, PARTITIONS, {"flush.messages": PAGE_CACHE})
    connection.close()
    is_over = Event()

    def send() -> None:
        with kohort.Producer(bootstrap_servers=server.bootstrap_servers, linger_ms=0) as producer:
            sent, began = 0, time.monotonic()
            while not is_over.wait(_TICK_S):
                due = int((time.monotonic() - began) * a_second)
                for number in range(sent, due):
                    producer.send(topic, VALUE, KEY, partition=number % PARTITIONS)
                sent = due

    sender = Thread(target=send)
    sender.start()
    try:
        yield topic
    finally:
        is_over.set()
        sender.join()


def wait(is_done: Callable[[], bool], what: str, query: Any, *, seconds: float = 90) -> None:
    """Look again and again, while the query runs.

    Raises:
        RuntimeError: the query has ended.
        TimeoutError: it did not come to that.
    """
    deadline = time.monotonic() + seconds
    while not is_done():
        if not query.isActive:
            raise RuntimeError(f"{what}: the query has ended: {query.exception()}")
        if time.monotonic() > deadline:
            raise TimeoutError(what)
        time.sleep(0.02)


def began_s(progress: Any) -> float:
    """When a trigger began, seconds since 1970."""
    return datetime.fromisoformat(progress.timestamp).timestamp()


def ended_s(progress: Any) -> float:
    """When its batch was in Spark's commit log."""
    taken_ms: int = progress.durationMs["triggerExecution"]
    return began_s(progress) + taken_ms / 1e3


def percentile(batches: Sequence[Batch], share: float) -> float:
    """The age, seconds, below which this share of the rows was at the end of its batch.

    Records come evenly, so that the rows of a batch are spread evenly between its first and its last.
    """
    aged = sorted(
        (batch.ended_s - batch.first_s - (batch.last_s - batch.first_s) * (number + 0.5) / _AGES, batch.rows)
        for batch in batches
        for number in range(_AGES)
    )
    wanted = share * sum(rows for _, rows in aged)
    for age_s, rows in aged:
        wanted -= rows
        if wanted <= 0:
            return age_s
    raise ValueError("there are no batches")
