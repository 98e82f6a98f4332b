"""A quiet Spark session on this machine, for the report and for the demo."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Final

from kohort.errors import KohortError
from kohort.spark.driver.java import JavaNotFoundError, find_java_home, use_java, use_this_python

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

#: Errors are shown, nothing else; how a query has ended is asked of the query. Where the shell's own logger has the
#: root's level, Spark does not say what that is.
_QUIET_LOG: Final = """status = error
rootLogger.level = error
logger.shell.name = org.apache.spark.api.python.PythonGatewayServer
logger.shell.level = error
logger.streaming.name = org.apache.spark.sql.execution.streaming
logger.streaming.level = off
rootLogger.appenderRef.stderr.ref = console
appender.console.type = Console
appender.console.name = console
appender.console.target = SYSTEM_ERR
appender.console.layout.type = PatternLayout
appender.console.layout.pattern = %p %c{1}: %m%n%ex
"""


class SparkFailedError(KohortError):
    """Spark has failed; the text is the first line of the reason, without Java's stack trace."""

    def __str__(self) -> str:
        lines = [line.lstrip(": ").rstrip() for line in str(self.args[0]).splitlines()]
        reasons = [line for line in lines if line and not line.startswith(("at ", "An error occurred while calling"))]
        return f"Spark failed: {' '.join(reasons[:1]) or 'it gave no reason'}"


def why_no_spark() -> str | None:
    """Explain which packages or Java are missing for Spark and the picture; `None` if none are."""
    missing = [name for name in ("pyspark", "pyarrow", "matplotlib") if find_spec(name) is None]
    if missing:
        return f"Spark is left out, for want of {' and '.join(missing)}: pip install 'kohort[spark,demo]'"
    try:
        find_java_home()
    except JavaNotFoundError as why:
        return f"Spark is left out: {why}"
    return None


@contextmanager
def open_session(folder: Path, *, name: str) -> Iterator[SparkSession]:
    """Open a quiet local session with two threads and no web page; `folder` takes its files."""
    use_java(quiet_in=folder)
    # The shell may be set up for another Spark: the demo runs the installed PySpark, on its own Python.
    for variable in ("SPARK_HOME", "SPARK_CONF_DIR", "PYSPARK_SUBMIT_ARGS", "PYSPARK_DRIVER_PYTHON", "PYSPARK_PYTHON"):
        os.environ.pop(variable, None)
    use_this_python()
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    from py4j.protocol import Py4JError
    from pyspark.errors import PySparkException
    from pyspark.sql import SparkSession

    settings = folder / "log4j2.properties"
    settings.write_text(_QUIET_LOG)
    logging.getLogger("py4j").setLevel(logging.ERROR)
    # The scene that kills a reader reports it.
    logging.getLogger("kohort.spark.driver.listening").setLevel(logging.CRITICAL)
    builder = (
        SparkSession.builder.master("local[2]")
        .appName(name)
        .config("spark.ui.enabled", "false")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.driver.extraJavaOptions", f"-Dlog4j2.configurationFile={settings.resolve().as_uri()}")
    )
    try:
        session = builder.getOrCreate()
        try:
            yield session
        finally:
            session.stop()
    except (PySparkException, Py4JError) as why:
        raise SparkFailedError(str(why)) from why
