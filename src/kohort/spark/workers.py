"""State that Spark's Python worker processes keep from task to task.

Source: PySpark's `daemon.py`, which collects garbage after every task, and prints a traceback if Spark does not take
all rows of a task; measured in docs/reference/performance.md.
"""

from __future__ import annotations

import gc
import sys
import traceback
from collections.abc import Mapping
from functools import cache
from types import SimpleNamespace
from typing import TYPE_CHECKING, Final

from pyspark import TaskContext

if TYPE_CHECKING:
    from kohort.client.producer.producer import Producer


def spare_collections() -> None:
    """Exclude a worker's imported modules from the garbage collection after every PySpark task, and end quietly.

    Outside of a task, in the application's own process, this does nothing.
    """
    # That collection takes as long as reading a hundred thousand records, and finds nothing there.
    if TaskContext.get() is not None:
        _prepare_once()


@cache
def _prepare_once() -> None:
    # This import, with Arrow's, makes most of the process's objects.
    import kohort.columnar  # noqa: F401

    daemon = sys.modules["__main__"]
    if getattr(daemon.__spec__, "name", None) == "pyspark.daemon" and hasattr(daemon, "traceback"):
        # Spark closes the socket of a task of which it needs no more rows, as LIMIT and `query.stop()` do.
        vars(daemon)["traceback"] = SimpleNamespace(**{**vars(traceback), "print_exc": _print_unless_closed})
    gc.freeze()


def _print_unless_closed() -> None:
    if not isinstance(sys.exc_info()[1], (BrokenPipeError, ConnectionResetError)):
        traceback.print_exc()


#: Idle producers of this process by their settings: Spark uses its workers again, and connections with them.
_idle: Final[dict[tuple[tuple[str, str], ...], Producer]] = {}
#: A worker that runs several jobs keeps no more idle producers than this.
_IDLE_AT_MOST: Final = 4


def take_producer(client: Mapping[str, str]) -> Producer:
    """Return an idle producer of these settings, or a new one; the caller closes it or gives it back."""
    # Workers that only read do without.
    from kohort.client.producer.producer import Producer

    return _idle.pop(tuple(sorted(client.items())), None) or Producer.from_config(writing_config(client))


def keep_producer(client: Mapping[str, str], producer: Producer) -> None:
    """Keep a producer without records under way for the next task of the same settings."""
    while len(_idle) >= _IDLE_AT_MOST:
        _idle.pop(next(iter(_idle))).close()
    if _idle.setdefault(tuple(sorted(client.items())), producer) is not producer:
        # A producer of another thread is kept already.
        producer.close()


def writing_config(client: Mapping[str, str]) -> dict[str, object]:
    """Return the settings of an executor's producer.

    It waits for buffer space as long as for a delivery, so that the task fails with the error of the delivery.
    """
    from kohort.client.options import PRODUCER_OPTIONS

    timeout_ms = PRODUCER_OPTIONS.parse(client)["delivery.timeout.ms"]
    return {"max.block.ms": timeout_ms, **client}
