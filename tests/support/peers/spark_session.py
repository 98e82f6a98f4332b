"""The needs of a test that runs Spark: where the machine lacks one, the test skips with the reason.

Spark runs on a `java` of the checkout's cache, which adds options for a short life. Programs that run one after the
other may have one Java between them: a session in it takes a quarter of the first one's processor time.
"""

from __future__ import annotations

import os
import shlex
import sys
import tempfile
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Final

import pytest

from support.peers.cli import SOURCE
from support.peers.java_options import FEW_ROWS, SHORT_LIVED

CACHE: Final = Path(__file__).resolve().parents[3] / ".cache"
#: The class by which Spark itself renames the files of a checkpoint. Its other one has Hadoop start a program for each
#: question about a file, where there is no library of Hadoop's: twenty for each batch of a stream, and four with this.
_CHECKPOINT_FILES: Final = "FileSystemBasedCheckpointFileManager"


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


@contextmanager
def started_java(folder: Path) -> Iterator[dict[str, str]]:
    """Start a Java in this folder and yield the variables that have PySpark of a program use it.

    Each program makes a session of its own, and has ended it before the next one begins.
    Source: `pyspark.java_gateway.launch_gateway`, which looks for these variables.
    """
    require_spark()
    import pyspark
    from pyspark.java_gateway import launch_gateway

    with pytest.MonkeyPatch.context() as own:
        # Spark looks for sources in Python before a session names one.
        own.setenv("PYSPARK_PYTHON", sys.executable)
        own.setenv("PYTHONPATH", str(SOURCE))
        own.setenv("SPARK_HOME", str(Path(pyspark.__file__).parent))
        own.setenv("SPARK_LOCAL_IP", "127.0.0.1")
        gateway = launch_gateway(popen_kwargs={"cwd": folder})
    parameters = gateway.gateway_parameters
    try:
        yield {"PYSPARK_GATEWAY_PORT": str(parameters.port), "PYSPARK_GATEWAY_SECRET": parameters.auth_token}
    finally:
        gateway.shutdown()
        with gateway.proc as java:
            java.kill()


@cache
def _quick_home(java_home: Path) -> Path:
    """Return the JAVA_HOME in the cache that stands for this one, written anew by each process of the tests."""
    home = CACHE / "spark-java"
    (home / "bin").mkdir(parents=True, exist_ok=True)
    # No archive of Spark's classes is kept: to write one takes what fourteen starts with it save, and there are fewer.
    # Java says on its error output that it has seen the variable.
    java = shlex.quote(str(java_home / "bin" / "java"))
    settings = shlex.join(f"-D{name}={value}" for name, value in _settings_of_java().items())
    # Other processes run it meanwhile: it is there as a whole at once.
    with tempfile.NamedTemporaryFile("w", dir=home, delete=False) as draft:
        draft.write(f'#!/bin/sh\nunset JDK_JAVA_OPTIONS\nexec {java} {SHORT_LIVED} {settings} -Xlog:disable "$@"\n')
    Path(draft.name).chmod(0o755)
    Path(draft.name).replace(home / "bin" / "java")
    return home


def _settings_of_java() -> dict[str, str]:
    """Return what Spark has from Java where a session does not say it."""
    import pyspark

    # How many partitions a shuffle has is a test's own business.
    settings = {name: value for name, value in FEW_ROWS.items() if "shuffle" not in name}
    for jar in Path(pyspark.__file__).parent.glob("jars/spark-sql_*.jar"):
        for name in zipfile.ZipFile(jar).namelist():
            if name.endswith(f"/{_CHECKPOINT_FILES}.class"):
                found = name.removesuffix(".class").replace("/", ".")
                settings["spark.sql.streaming.checkpointFileManagerClass"] = found
    return settings
