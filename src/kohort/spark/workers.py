"""State that Spark's Python worker processes keep from task to task.

Source: PySpark's `daemon.py`, which collects garbage after every task, and prints a traceback if Spark does not take
all rows of a task; measured in docs/reference/performance.md.
"""

from __future__ import annotations

import gc
import sys
import traceback
from functools import cache
from types import SimpleNamespace

from pyspark import TaskContext


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
