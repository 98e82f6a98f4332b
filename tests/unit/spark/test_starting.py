"""`start` with a writer whose queries say what Spark's do; the demo starts real ones."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain, repeat
from typing import Any

import pytest

from kohort.errors import ConfigError
from kohort.spark import ReaderLateError, start

LATE = "Job aborted: org.apache.spark.SparkException: Python worker failed to connect back."


class Query:
    """Spark's StreamingQuery, as far as it is asked; it ends with `why`, unless that is empty."""

    id = "0000-1"
    name = "departures"

    def __init__(self, why: str, *states: str) -> None:
        self._why = why
        self._states: Iterator[str] = chain(states, repeat("Getting offsets"))
        self.isActive = True

    @property
    def status(self) -> dict[str, str]:
        said = next(self._states)
        self.isActive = said == "Initializing sources" or not self._why
        return {"message": said}

    def exception(self) -> str | None:
        return self._why or None


class Writer:
    """Spark's DataStreamWriter: each start takes the next query."""

    def __init__(self, *queries: Query) -> None:
        self.left = list(queries)

    def start(self) -> Query:
        return self.left.pop(0)


def begin(writer: Any, **options: Any) -> Any:
    return start(writer, **options)


def test_query_whose_reader_was_late_is_started_again() -> None:
    well = Query("", "Initializing sources")
    writer = Writer(Query(LATE, "Initializing sources"), Query(LATE), well)
    assert begin(writer, retries=2) is well
    assert well.isActive and not writer.left


def test_query_that_fails_otherwise_is_returned_as_it_is() -> None:
    failed = Query("org.apache.spark.SparkException: topic orders does not exist", "Initializing sources")
    assert begin(Writer(failed)) is failed


@pytest.mark.parametrize(("retries", "times"), [(0, "once"), (1, "2 times in a row")])
def test_machine_that_stays_too_slow_is_told(retries: int, times: str) -> None:
    writer = Writer(*(Query(LATE) for _ in range(retries + 1)))
    with pytest.raises(ReaderLateError, match=f"query departures did not start: .* 10 s .* needed longer {times}"):
        begin(writer, retries=retries)


class StuckQuery(Query):
    """A query whose sources never connect."""

    @property
    def status(self) -> dict[str, str]:
        return {"message": "Initializing sources"}


def test_query_that_starts_for_ever_is_handed_over_in_the_end(caplog: pytest.LogCaptureFixture) -> None:
    stuck = StuckQuery("")
    writer = Writer(stuck, Query(""))
    assert begin(writer, timeout=0) is stuck
    assert stuck.isActive and len(writer.left) == 1
    assert "query departures: its sources are not connected after 0 s; it is left to start" in caplog.text


def test_arguments_are_checked_before_anything_is_started() -> None:
    writer = Writer()
    with pytest.raises(ConfigError, match="retries cannot be -1: 0 to 100 are expected"):
        begin(writer, retries=-1)
    with pytest.raises(TypeError, match="retries must be a whole number, not str"):
        begin(writer, retries="3")
    with pytest.raises(ConfigError, match="timeout cannot be -1: seconds, 0 or more, are expected"):
        begin(writer, timeout=-1)
    with pytest.raises(TypeError, match="a writer of a stream is expected, as write_stream returns it, not list"):
        begin([])
