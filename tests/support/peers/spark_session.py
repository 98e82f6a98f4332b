"""The needs of a test that runs Spark: where the machine lacks one, the test skips with the reason.

Spark runs on a `java` of the checkout's cache, which adds options for a short life.
"""

from __future__ import annotations

import os
import shlex
import tempfile
from functools import cache
from pathlib import Path
from typing import Final

import pytest

from support.peers.java_options import FEW_ROWS, SHORT_LIVED

CACHE: Final = Path(__file__).resolve().parents[3] / ".cache"
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
    """Return the JAVA_HOME in the cache that stands for this one, written anew by each process of the tests."""
    home = CACHE / "spark-java"
    home.joinpath("bin").mkdir(parents=True, exist_ok=True)
    # No archive of Spark's classes is kept: to write one takes what fourteen starts with it save, and there are fewer.
    # Java says on its error output that it has seen the variable.
    java = shlex.quote(str(java_home / "bin" / "java"))
    with tempfile.NamedTemporaryFile("w", dir=home, delete=False) as shim:
        shim.write(f'#!/bin/sh\nunset JDK_JAVA_OPTIONS\nexec {java} {SHORT_LIVED} {_SETTINGS} -Xlog:disable "$@"\n')
    Path(shim.name).chmod(0o755)
    Path(shim.name).replace(home / "bin" / "java")
    return home
