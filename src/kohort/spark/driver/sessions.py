"""A Spark session in which `format("kohort")` works, independent of the shell's Python and Java.

Laws: only the session itself is changed, one warning of its JVM, and in the environment of this process JAVA_HOME when
this process starts Spark, PYSPARK_UDS_MODE, and PYSPARK_PYTHON when a Spark Connect server is started here. Settings of
the caller, the environment or spark-submit are kept.
Source: Spark starts its workers by `PYSPARK_PYTHON`, or as `python3` of the path, which may not be the Python that has
kohort; measured: a registered source runs on the Python of its session (`pythonExec`).
"""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from weakref import WeakKeyDictionary

from kohort import base
from kohort.errors import ConfigError, MissingDependencyError
from kohort.spark.driver.java import use_java, use_this_python
from kohort.spark.driver.pythons import is_python_free, use_file_sockets, worker_python

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


_log = logging.getLogger(__name__)

OLDEST_SPARK: Final = 4
#: The logger of Spark's registers of sources.
_REPLACEMENTS: Final = "org.apache.spark.sql.execution.datasources.DataSourceManager"
#: Method of Spark's session builder -> the setting that it sets.
_WORDS: Final = {"master": "spark.master", "appName": "spark.app.name", "remote": "spark.remote"}
_SHUFFLES: Final = "spark.sql.shuffle.partitions"
_CHECKPOINT_FILES: Final = "spark.sql.streaming.checkpointFileManagerClass"
#: Where Spark has the class: since 4.1, and before.
_ROOMS_OF_CHECKPOINTS: Final = (
    "org.apache.spark.sql.execution.streaming.checkpointing",
    "org.apache.spark.sql.execution.streaming",
)
#: session -> the Python and the path with which the source is registered; `None` if a server has its own.
_registered: WeakKeyDictionary[SparkSession, tuple[str, str | None] | None] = WeakKeyDictionary()


def session(conf: Mapping[str, object] | None = None, /, **more: object) -> SparkSession:
    """Return the running Spark session, or a new one, in which `format("kohort")` reads and writes.

    A new session is as Spark makes it, with five differences. Java is found even if it is not on the path (the `java`
    extra installs one). On one machine (`local`) workers run the Python of this process with its installed PySpark,
    unless `PYSPARK_PYTHON` names another. There Spark and its workers use Unix domain sockets, which saves 40 ms a
    task, unless `PYSPARK_UDS_MODE` is set (with PySpark 4.3 or newer). And there a shuffle has as many partitions as
    there are cores instead of 200, each of which costs a stateful stream a file with every batch. And there Spark
    renames a checkpoint's files without starting programs for it (`use_renames`).

    Args:
        conf: Spark's settings by their names; numbers and booleans as such or as text.
        more: the same, and `master`, `appName` and `remote` (the address of a Spark Connect server).

    Raises:
        MissingDependencyError: PySpark 4.0 or newer, or pyarrow, is not installed.
        JavaNotFoundError: there is no Java 17 or newer.
        ConfigError: a name is not that of a setting of Spark's.

    >>> spark = session(master="local[2]", **{"spark.ui.enabled": False})  # doctest: +SKIP
    >>> spark.read.format("kohort").options(subscribe="orders", **servers).load()  # doctest: +SKIP
    """
    settings = check_settings({**(conf or {}), **more})
    require_packages()
    from pyspark.sql import SparkSession

    if SparkSession.getActiveSession() is None and not is_remote(settings) and "PYSPARK_GATEWAY_PORT" not in os.environ:
        use_java()
        if settings.get("spark.master", "local").startswith("local"):
            use_file_sockets()
        if _address(settings).startswith("local"):
            # A Spark Connect server that is started here reads its Python from the environment only.
            use_this_python()
    builder = SparkSession.builder
    for name, value in settings.items():
        # The builder takes the address of a server by a call of its own.
        builder = builder.remote(value) if name == "spark.remote" else builder.config(name, value)
    spark = builder.getOrCreate()
    _share_cores(spark)
    use_renames(spark)
    register(spark)
    return spark


def register(spark: SparkSession) -> None:
    """Register `format("kohort")` with a session that was not made by `session`.

    On one machine its workers run the Python of this process from now on, unless `PYSPARK_PYTHON` names another.
    With a Spark Connect server, or on a cluster, kohort has to be installed for the Python there.

    >>> register(spark)  # doctest: +SKIP
    """
    from pyspark.errors import AnalysisException

    from kohort.spark.source import KohortDataSource

    context = _context(spark)
    if context is not None and _is_local(context) and is_python_free():
        context.pythonExec = worker_python()
    if context is not None:
        _hand_on_archive(context)
        _silence_replacement(context)
    runs_on = None if context is None else (context.pythonExec, context.environment.get("PYTHONPATH"))
    if spark not in _registered or _registered[spark] != runs_on:
        try:
            spark.dataSource.register(KohortDataSource)
        except AnalysisException as refusal:
            # PySpark 4.0 does not replace a source that it has found by itself.
            if "DATA_SOURCE_ALREADY_EXISTS" not in str(refusal):
                raise
        _registered[spark] = runs_on


def check_settings(settings: Mapping[str, object]) -> dict[str, str]:
    """Check settings and return them by Spark's names, with their values as text."""
    checked: dict[str, str] = {}
    for name, value in settings.items():
        full = _WORDS.get(name, name)
        if not isinstance(full, str) or not full.startswith("spark."):
            words = ", ".join(_WORDS)
            raise ConfigError(f"{name!r} is no setting of Spark: spark.NAME is expected, or one of {words}")
        if not isinstance(value, (str, int, float)):
            raise TypeError(f"{name} cannot be {value!r}: text, a number or a switch is expected")
        checked[full] = str(value).lower() if isinstance(value, bool) else str(value)
    return checked


def is_remote(settings: Mapping[str, str]) -> bool:
    """Return whether the session is on a running Spark Connect server, which needs no Java here."""
    return _address(settings).startswith("sc://")


def require_packages() -> None:
    """Raise `MissingDependencyError` if the `spark` extra is not installed, or is too old."""
    try:
        import pyarrow  # noqa: F401
        import pyspark
    except ImportError as why:
        raise MissingDependencyError(why.name or "PySpark", "spark") from why
    if int(pyspark.__version__.partition(".")[0]) < OLDEST_SPARK:
        raise MissingDependencyError(f"PySpark {OLDEST_SPARK}.0 or newer (this is {pyspark.__version__})", "spark")


def _address(settings: Mapping[str, str]) -> str:
    """Return the address of a Spark Connect server, `local[2]` to start one here, or "" without Connect."""
    return settings.get("spark.remote") or os.environ.get("SPARK_REMOTE", "")


def _share_cores(spark: SparkSession) -> None:
    context = _context(spark)
    if context is not None and _is_local(context) and context.getConf().get(_SHUFFLES) is None:
        spark.conf.set(_SHUFFLES, str(context.defaultParallelism))


def use_renames(spark: SparkSession) -> None:
    """On one machine let Spark rename a checkpoint's files by Hadoop's older interface, which starts no programs.

    By its newer one Spark starts `readlink` 16 times with each micro-batch where Hadoop's native library is missing, as
    in PySpark. On a local file system either interface looks whether the file is there, and then renames.
    """
    context = _context(spark)
    if context is None or not _is_local(context) or spark.conf.get(_CHECKPOINT_FILES, None) is not None:
        return
    for room in _ROOMS_OF_CHECKPOINTS:
        name = f"{room}.FileSystemBasedCheckpointFileManager"
        if context._jvm.org.apache.spark.util.Utils.classIsLoadable(name):
            spark.conf.set(_CHECKPOINT_FILES, name)
            return


def _hand_on_archive(context: Any) -> None:
    """Add the archive that kohort was imported from, if any, to the path of stream readers."""
    # Other than workers, the reader of a stream does not get `--py-files`.
    archive = Path(base.__file__).parents[2]
    paths = context.environment.get("PYTHONPATH", "").split(os.pathsep)
    if archive.is_file() and str(archive) not in paths:
        context.environment["PYTHONPATH"] = os.pathsep.join([str(archive), *filter(None, paths)])


def _silence_replacement(context: Any) -> None:
    """Drop the JVM's warning that `kohort` replaces the source of that name which Spark has found by itself."""
    # The replacement is meant, as it sets the Python of the workers, and each query's session would log it again.
    from py4j.protocol import Py4JError

    try:
        log4j = context._jvm.org.apache.logging.log4j
        loggers = log4j.LogManager.getContext(False)
        logger = loggers.getConfiguration().getLoggerConfig(_REPLACEMENTS)
        if logger.getName() == _REPLACEMENTS:
            return
        # Without a level of its own a logger has that of its parent, whenever that is set.
        logger = log4j.core.config.LoggerConfig(_REPLACEMENTS, None, True)
        results = log4j.core.Filter.Result
        logger.addFilter(
            log4j.core.filter.RegexFilter.createFilter(
                "The data source kohort replaced .*", None, False, results.DENY, results.NEUTRAL
            )
        )
        loggers.getConfiguration().addLogger(_REPLACEMENTS, logger)
        loggers.updateLoggers()
    except (AttributeError, Py4JError, TypeError) as why:
        # This Spark logs by another library.
        _log.debug("Spark's warning about a replaced source stays: %s", why)


def _context(spark: SparkSession) -> Any:
    """Return the session's context; `None` with Spark Connect, where it is on the server."""
    try:
        return spark.sparkContext
    except AttributeError:
        return None


def _is_local(context: Any) -> bool:
    return str(context.master).startswith("local")
