"""State that Spark's Python worker processes keep from task to task.

Source: PySpark's `daemon.py`, which collects garbage after every task; measured in docs/reference/performance.md.
"""

from __future__ import annotations

import gc
from functools import cache

from pyspark import TaskContext


def spare_collections() -> None:
    """Exclude a worker's imported modules from the garbage collection after every PySpark task.

    Outside of a task, in the application's own process, this does nothing.
    """
    # That collection takes as long as reading a hundred thousand records, and finds nothing there.
    if TaskContext.get() is not None:
        _freeze_once()


@cache
def _freeze_once() -> None:
    # This import, with Arrow's, makes most of the process's objects.
    import kohort.columnar  # noqa: F401

    gc.freeze()
