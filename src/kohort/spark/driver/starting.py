"""The start of a query on a machine that is busy: again, if Spark's patience with the reader's Python has ended.

Spark starts a Python process for each streaming source, and gives it ten seconds to connect. No setting changes that.

Laws: a query is started again only if that was the error it has ended with, so nothing of its source has been read. Any
other end is the query's own, and `start` returns it as it is.
Source: `PythonWorkerFactory.createSimpleWorker` and `StreamExecution.runStream` of Spark 4.3.
"""

from __future__ import annotations

import logging
import time
from typing import TYPE_CHECKING, Final

from kohort.client.arguments import to_seconds
from kohort.errors import ConfigError, KohortError

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery
    from pyspark.sql.streaming.readwriter import DataStreamWriter

_log = logging.getLogger(__name__)

#: The words of the error of Spark.
_TOO_SLOW: Final = "Python worker failed to connect back"
#: How the status messages of a query begin until its sources are connected.
_INITIALIZING: Final = "Initializing"
_LOOK_UP_S: Final = 0.05
_MOST_RETRIES: Final = 100


class ReaderLateError(KohortError):
    """The Python process of a streaming source needs longer to start than Spark waits."""

    retriable = True

    def __init__(self, query: str, attempts: int) -> None:
        super().__init__(query, attempts)
        self.query = query
        self.attempts = attempts

    def __str__(self) -> str:
        times = "once" if self.attempts == 1 else f"{self.attempts} times in a row"
        return (
            f"query {self.query} did not start: Spark gives the Python process of a streaming source 10 s to connect, "
            f"which no setting changes, and this machine needed longer {times}; nothing was read; start it when fewer "
            "programs run here, or with more retries"
        )


def start(writer: DataStreamWriter, *, retries: int = 3, timeout: float = 300.0) -> StreamingQuery:
    """Start a streaming query, again if the Python process of its source was too slow for Spark.

    Returns when the processes of all sources are connected, or when the query has ended for any other reason, which
    `exception()` of the query names. A query that does neither is returned after `timeout`, with a warning in the log.

    Args:
        writer: a writer that is ready to start, such as that of `write_stream`.
        retries: how often the query is started again.
        timeout: seconds to wait for the sources of each start.

    Raises:
        ReaderLateError: the process was too slow each time.

    >>> query = start(write_stream(orders, "copies", bootstrap_servers="h:9092"), retries=5)  # doctest: +SKIP
    """
    if not callable(getattr(writer, "start", None)):
        raise TypeError(f"a writer of a stream is expected, as write_stream returns it, not {type(writer).__name__}")
    if isinstance(retries, bool) or not isinstance(retries, int):
        raise TypeError(f"retries must be a whole number, not {type(retries).__name__}")
    if not 0 <= retries <= _MOST_RETRIES:
        raise ConfigError(f"retries cannot be {retries}: 0 to {_MOST_RETRIES} are expected")
    patience_s = to_seconds(timeout)
    for attempt in range(1, retries + 2):
        query = writer.start()
        name, deadline_s = str(query.name or query.id), time.monotonic() + patience_s
        while is_starting := _is_starting(query):
            if time.monotonic() >= deadline_s:
                break
            time.sleep(_LOOK_UP_S)
        if is_starting:
            # It runs, so that its owner has to get it.
            _log.warning("query %s: its sources are not connected after %g s; it is left to start", name, patience_s)
            return query
        if not _was_late(query):
            return query
        _log.warning("query %s: the Python process of its source was too slow for Spark, attempt %d", name, attempt)
    raise ReaderLateError(name, retries + 1)


def _was_late(query: StreamingQuery) -> bool:
    return not query.isActive and _TOO_SLOW in str(query.exception() or "")


def _is_starting(query: StreamingQuery) -> bool:
    # Spark starts the processes of all sources before it leaves this state.
    return query.isActive and str(query.status["message"]).startswith(_INITIALIZING)
