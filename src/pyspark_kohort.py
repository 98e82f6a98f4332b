"""What Spark finds by itself: `format("kohort")` works without a register call.

Source: PySpark imports every top-level module whose name starts with `pyspark_` and takes its `DefaultSource`.
"""

from kohort.spark.source import KohortDataSource as DefaultSource

__all__ = ["DefaultSource"]
