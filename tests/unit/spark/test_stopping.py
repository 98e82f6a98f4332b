"""`drain_and_stop` with a query that says what Spark's would, and a reader's mailbox; a real one: tests/spark."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from pyspark.sql.streaming.listener import StreamingQueryProgress

from kohort import TopicPartition
from kohort.errors import ConfigError, KohortTimeoutError, StateError
from kohort.spark import Stopped, drain_and_stop
from kohort.spark.driver_channel import BatchDone, Drain, DriverChannel, Message, fingerprint
from support.builders.spark_progress import ORDERS, ours, progress, sparks


class Query:
    """Spark's StreamingQuery, as far as it is asked; `on_look` is what happens in the background meanwhile."""

    id = "0000-1"
    name = "departures"

    def __init__(self, *said: StreamingQueryProgress, on_look: Callable[[Query], object] = bool) -> None:
        self.said = list(said)
        self.isActive = True
        self._on_look = on_look

    @property
    def lastProgress(self) -> StreamingQueryProgress | None:
        if self.isActive:
            self._on_look(self)
        return self.said[-1] if self.said else None

    def stop(self) -> None:
        self.isActive = False


def stop(query: Query, timeout: Any = 30.0) -> Stopped:
    return drain_and_stop(query, timeout)  # type: ignore[arg-type]


@pytest.fixture
def mailbox(monkeypatch: pytest.MonkeyPatch) -> Iterator[DriverChannel]:
    """Of the reader q-1; mailboxes of other tests are elsewhere."""
    with tempfile.TemporaryDirectory(prefix="kohort-") as made:
        monkeypatch.setattr(tempfile, "tempdir", made)
        opened = DriverChannel.open("q-1")
        yield opened
        opened.close()


def test_query_stops_when_its_reader_has_left(mailbox: DriverChannel) -> None:
    """It is told to drain, then that its batch is finished, and says that it has left by closing its mailbox."""
    heard: list[Message] = []
    last = ours({0: 9, 1: 4}, {0: 9, 1: 4}, name="q-1")

    def read(query: Query) -> None:
        heard.extend(mailbox.take())
        if Drain() in heard and len(query.said) == 1:
            query.said.append(progress(last, batch=7))
        if BatchDone(fingerprint(last["endOffset"])) in heard:
            mailbox.close()
            assert query.isActive, "nothing may be stopped before"

    query = Query(progress(ours({0: 5}, {0: 9}, name="q-1"), batch=6), on_look=read)
    assert stop(query) == Stopped(
        query="departures", batch_id=7, ends={ORDERS: 9, TopicPartition("orders", 1): 4}, drained=("q-1",)
    )
    assert not query.isActive


def test_new_query_is_waited_for_until_it_says_who_it_is(mailbox: DriverChannel) -> None:
    """It says nothing before its first batch is finished."""
    looks = iter(range(10))

    def read(query: Query) -> None:
        if next(looks) == 3:
            query.said.append(progress(ours({0: 5}, {0: 5}, name="q-1")))
        if Drain() in mailbox.take():
            mailbox.close()

    assert stop(Query(on_look=read)).drained == ("q-1",)


@pytest.mark.parametrize("said", [[], [progress(ours({0: 5}, {0: 9}, name="q-1"))]], ids=["first batch", "later"])
def test_long_batch_is_said_in_time_and_the_query_goes_on(
    said: list[StreamingQueryProgress], mailbox: DriverChannel
) -> None:
    query = Query(*said)
    with pytest.raises(KohortTimeoutError, match=r"query departures has not .* within 0\.1 s; it runs on: call"):
        stop(query, 0.1)
    assert query.isActive
    assert (Drain() in mailbox.take()) == bool(said)


def test_reader_that_nobody_can_tell_is_said_at_once(mailbox: DriverChannel) -> None:
    """It is on another machine."""
    query = Query(progress(ours({0: 5}, {0: 9}, name="q-2")))
    with pytest.raises(StateError, match="cannot be drained: its reader q-2 is not on this machine"):
        stop(query)
    assert query.isActive


@pytest.mark.parametrize("source", [ours({0: 5}, {0: 5}), sparks({0: 5})], ids=["ours", "Spark's"])
def test_query_without_a_group_is_just_stopped(source: dict[str, Any]) -> None:
    query = Query(progress(source, batch=None))
    assert stop(query) == Stopped(query="departures", batch_id=-1, ends={ORDERS: 5}, drained=())
    assert not query.isActive


def test_query_that_ends_meanwhile_needs_nothing_more(mailbox: DriverChannel) -> None:
    """By itself, or because its reader was killed."""

    def end(query: Query) -> None:
        if mailbox.take():
            query.isActive = False

    assert stop(Query(progress(ours({0: 5}, {0: 9}, name="q-1")), on_look=end)).drained == ("q-1",)
    ended = Query()
    ended.isActive = False
    assert stop(ended) == Stopped(query="departures", batch_id=-1, ends={}, drained=())


@pytest.mark.parametrize(
    ("timeout", "error"),
    [("5", TypeError), (None, TypeError), (True, TypeError), (-1, ConfigError), (1e9, ConfigError)],
)
def test_wrong_arguments_are_refused(timeout: object, error: type[Exception]) -> None:
    query = Query()
    with pytest.raises(error, match="timeout"):
        stop(query, timeout)
    assert query.isActive
    with pytest.raises(TypeError, match="a streaming query is expected"):
        drain_and_stop("departures")  # type: ignore[arg-type]
