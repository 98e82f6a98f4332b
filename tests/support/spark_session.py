"""What a test needs that runs Spark; where the machine lacks it, the test skips with the reason."""

from __future__ import annotations

import pytest


def require_spark() -> None:
    """Skip the calling test without PySpark or a Java."""
    pytest.importorskip("pyspark", reason="PySpark is not installed")
    from kohort.spark.driver.java import JavaNotFoundError, find_java_home

    try:
        find_java_home()
    except JavaNotFoundError as why:
        pytest.skip(str(why))
