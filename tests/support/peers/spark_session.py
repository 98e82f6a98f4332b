"""The needs of a test that runs Spark: where the machine lacks one, the test skips with the reason.

Spark runs on a `java` of the checkout's cache, which adds options for a short life and an archive of Spark's classes:
to read and check these anew is half of what a session takes to start. Run this file to write the archive that it is
given.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Final

import pytest

from support.peers.java_options import FEW_ROWS, SHORT_LIVED

CACHE: Final = Path(__file__).resolve().parents[3] / ".cache"
#: Of the archive; a start of Spark takes ten seconds on a machine of its own.
_PATIENCE_S: Final = 150
#: What Spark has from Java where a session does not say it. How many partitions a shuffle has is a test's own business.
_SETTINGS: Final = shlex.join(f"-D{name}={value}" for name, value in FEW_ROWS.items() if "shuffle" not in name)


def require_spark() -> None:
    """Skip the calling test without PySpark or a Java; let Spark run on the Java of the cache."""
    pytest.importorskip("pyspark", reason="PySpark is not installed")
    from kohort.spark.driver.java import JavaNotFoundError, find_java_home

    try:
        found = find_java_home()
    except JavaNotFoundError as why:
        pytest.skip(str(why))
    if CACHE not in Path(found).parents:
        os.environ["JAVA_HOME"] = str(_quick_home(Path(found)))


@cache
def _quick_home(java_home: Path) -> Path:
    """Return the JAVA_HOME in the cache that stands for this one, made now if it is not there."""
    import pyspark

    java = (java_home / "bin" / "java").resolve()
    facts = [pyspark.__version__, pyspark.__file__, str(java), java.stat().st_mtime_ns, SHORT_LIVED, _SETTINGS]
    home = CACHE / f"spark-java-{hashlib.sha256(repr(facts).encode()).hexdigest()[:16]}"
    CACHE.mkdir(exist_ok=True)
    with open(CACHE / "spark-java.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not home.exists():
            with tempfile.TemporaryDirectory(dir=CACHE, prefix="draft-") as directory:
                try:
                    _build_home(Path(directory), home, java_home)
                except subprocess.TimeoutExpired:
                    # The machine is too busy now.
                    return java_home
    return home


def _build_home(draft: Path, home: Path, java_home: Path) -> None:
    archive = draft / "classes.jsa"
    command = [sys.executable, __file__, str(archive)]
    environment = {
        **os.environ,
        "JAVA_HOME": str(java_home),
        "JDK_JAVA_OPTIONS": SHORT_LIVED,
        "PYTHONPATH": os.pathsep.join(sys.path),
    }
    with subprocess.Popen(
        command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=environment, start_new_session=True
    ) as writer:
        try:
            writer.wait(_PATIENCE_S)
        finally:
            with suppress(ProcessLookupError):
                os.killpg(writer.pid, signal.SIGKILL)
    # A Java that writes no archive goes without.
    shared = f"-XX:SharedArchiveFile={home / archive.name}" if archive.exists() else ""
    (draft / "bin").mkdir()
    shim = draft / "bin" / "java"
    # Java says on its error output that it has seen the variable.
    shim.write_text(
        "#!/bin/sh\nunset JDK_JAVA_OPTIONS\n"
        f'exec {shlex.quote(str(java_home / "bin" / "java"))} {SHORT_LIVED} {_SETTINGS} {shared} -Xlog:disable "$@"\n'
    )
    shim.chmod(0o755)
    shutil.copytree(draft, home)


def _write_archive(path: str) -> None:
    """Run a query of each kind, and have Java keep the classes that this takes."""
    from pyspark.sql import SparkSession

    settings = {
        **FEW_ROWS,
        "spark.driver.extraJavaOptions": f"-XX:ArchiveClassesAtExit={path} -Xlog:disable",
    }
    spark = SparkSession.builder.master("local[2]").config(map=settings).getOrCreate()
    spark.range(100).selectExpr("id", "id % 3 AS rest").groupBy("rest").count().collect()
    with tempfile.TemporaryDirectory() as checkpoint:
        stream = spark.readStream.format("rate").load().writeStream.foreachBatch(lambda batch, _: batch.collect())
        query = stream.option("checkpointLocation", checkpoint).trigger(availableNow=True).start()
        query.awaitTermination(_PATIENCE_S)
    gateway = spark.sparkContext._gateway
    spark.stop()
    # Java ends when its input does, and writes then.
    gateway.proc.stdin.close()
    gateway.proc.wait(_PATIENCE_S)


if __name__ == "__main__":
    _write_archive(sys.argv[1])
