"""`kohort.spark.session` and `register` in a session that is there; the examples and the README make new ones."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING

import pytest

import kohort
import kohort.spark

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark


def test_running_session_is_returned_with_what_was_asked_for(spark: SparkSession) -> None:
    """As `getOrCreate`; what somebody has set stays."""
    same = kohort.spark.session({"spark.sql.session.timeZone": "UTC"})
    assert same is spark
    assert spark.conf.get("spark.sql.session.timeZone") == "UTC"
    assert spark.conf.get("spark.sql.shuffle.partitions") == "1"


def test_a_checkpoint_starts_no_programs(spark: SparkSession) -> None:
    """One of Hadoop's two interfaces runs `readlink` for each file; a setting of the user's stays."""
    setting = "spark.sql.streaming.checkpointFileManagerClass"
    kohort.spark.session()
    ours = spark.conf.get(setting)
    assert str(ours).endswith(".FileSystemBasedCheckpointFileManager")
    try:
        spark.conf.set(setting, "theirs")
        kohort.spark.session()
        assert spark.conf.get(setting) == "theirs"
    finally:
        spark.conf.set(setting, str(ours))


def test_registered_source_runs_on_this_python(
    spark: SparkSession, broker: kohort.Broker, fill: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A session that was made where Spark's workers would be the path's python3, which may have no kohort."""
    fill("registered", partitions=1, records=5)
    monkeypatch.delenv("PYSPARK_PYTHON")
    context = spark.sparkContext
    monkeypatch.setattr(context, "pythonExec", "/nonexistent/python3")
    kohort.spark.register(spark)
    servers = {"kafka.bootstrap.servers": broker.bootstrap_servers}
    assert spark.read.format("kohort").options(subscribe="registered", **servers).load().count() == 5


def test_workers_have_the_installed_pyspark_and_speak_by_file_sockets(spark: SparkSession) -> None:
    """Spark's archive of it comes first on their path, and has no byte code: each would compile it."""

    def look() -> tuple[str, ...]:
        import py4j
        import pyspark

        return sys.executable, *(os.path.realpath(each.__file__) for each in (pyspark, py4j))

    task = spark.sparkContext.parallelize([0], 1)
    found = task.map(lambda _: (look(), os.environ["PYTHON_UNIX_DOMAIN_ENABLED"])).collect()
    assert found == [(look(), "True")]


def test_python_that_the_environment_names_stands(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYSPARK_PYTHON", "/opt/python3")
    monkeypatch.setattr(spark.sparkContext, "pythonExec", "/opt/python3")
    with pytest.raises(Exception, match="/opt/python3"):
        kohort.spark.register(spark)
        spark.read.format("kohort").load()
    monkeypatch.undo()
    kohort.spark.register(spark)


def test_replaced_source_is_no_warning(spark: SparkSession) -> None:
    """Spark would warn of it with each query; the class warns of other sources as before."""
    kohort.spark.register(spark)
    log4j = spark.sparkContext._jvm.org.apache.logging.log4j  # type: ignore[union-attr]
    configuration = log4j.LogManager.getContext(False).getConfiguration()
    name = "org.apache.spark.sql.execution.datasources.DataSourceManager"
    logger = configuration.getLoggerConfig(name)
    assert logger.getName() == name
    kept = {}
    for source in ("kohort", "other"):
        message = log4j.message.SimpleMessage(f"The data source {source} replaced a statically registered data source.")
        event = log4j.core.impl.Log4jLogEvent.newBuilder().setMessage(message).build()
        kept[source] = not logger.isFiltered(event)
    assert kept == {"kohort": False, "other": True}
    assert log4j.LogManager.getLogger(name).isWarnEnabled() == log4j.LogManager.getRootLogger().isWarnEnabled()
