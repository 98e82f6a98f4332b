"""What a worker process of Spark keeps from task to task."""

from __future__ import annotations

import gc
import subprocess
import sys

import pytest

pytestmark = pytest.mark.process

PROGRAM = """
import gc
from pyspark import TaskContext
from kohort.spark.workers import spare_collections
spare_collections()
assert gc.get_freeze_count() == 0, "an application's own process stays as it is"
TaskContext._getOrCreate()
spare_collections()
frozen = gc.get_freeze_count()
assert frozen > 10_000, frozen
garbage = [[] for _ in range(1_000)]
spare_collections()
assert gc.get_freeze_count() == frozen, "once a process: what comes later is collected as ever"
"""
# As PySpark's daemon at the end of a task.
DAEMON = """
import sys
import pyspark.daemon
from pyspark import TaskContext
from kohort.spark.workers import spare_collections
sys.modules["__main__"] = pyspark.daemon
TaskContext._getOrCreate()
spare_collections()
for error in (BrokenPipeError("closed by Spark"), ConnectionResetError("reset by Spark"), ValueError("a fault")):
    try:
        raise error
    except BaseException:
        pyspark.daemon.traceback.print_exc()
"""


def test_a_worker_keeps_its_imports_out_of_collections() -> None:
    """In a process of its own: it cannot be taken back."""
    # The tests themselves keep what was collected; some of that may end meanwhile.
    frozen = gc.get_freeze_count()
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    assert gc.get_freeze_count() <= frozen


def test_a_worker_of_whose_rows_no_more_are_needed_prints_no_traceback() -> None:
    """LIMIT closes its socket, and PySpark's daemon would tell of a BrokenPipeError; of other errors it still does."""
    done = subprocess.run([sys.executable, "-c", DAEMON], capture_output=True, text=True, timeout=60, check=True)
    assert "ValueError: a fault" in done.stderr
    assert "by Spark" not in done.stderr
