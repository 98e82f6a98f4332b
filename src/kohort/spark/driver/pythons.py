"""The Python with which Spark starts its worker processes on this machine, and the sockets to them.

Workers run this Python, with the installed PySpark. Spark puts an archive of PySpark first on the path of every Python
that it starts. The archive has no byte code, so each worker compiles PySpark again. A `python` launcher in a private
folder of the Python environment puts the folder of the same PySpark before the archive.

The sockets are Unix domain sockets. Over TCP Spark sends a task in pieces, and the second piece waits until the first
is acknowledged, which Linux delays by 40 ms: most of the time of a task of a small micro-batch.

Laws: workers run this Python and this PySpark. If the launcher cannot be made, or Spark is not the one that is
installed here, Spark starts this Python without it. A launcher's folder appears complete, never changes, and is the
same from every process. A setting of the environment for the sockets is kept.
Source: `PythonUtils.sparkPythonPath`, `PythonWorkerFactory` and `spark.python.unix.domain.socket.enabled` of Spark 4.3;
measured in docs/reference/performance.md.
"""

from __future__ import annotations

import hashlib
import os
import shlex
import shutil
import sys
import tempfile
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Final

SOCKETS_TRIED_WITH: Final = (4, 3)
_LAUNCHER: Final = """#!/bin/sh
# This Python, with these packages before the archives of them that Spark puts on its path.
PYTHONPATH={folder}${{PYTHONPATH:+:$PYTHONPATH}}
export PYTHONPATH
exec {python} "$@"
"""


def worker_python() -> str:
    """Return an executable of this Python with which Spark's workers do not compile PySpark again."""
    if os.name != "posix":
        return sys.executable
    try:
        packages = [_folder_of("pyspark"), _folder_of("py4j")]
        if _is_spark_home(packages[0]):
            return str(build_python(Path(sys.prefix, "kohort-python"), packages))
    except OSError:
        pass
    return sys.executable


def is_this_python(command: str) -> bool:
    """Return whether a command, as in `PYSPARK_PYTHON`, starts this Python, in this environment.

    >>> is_this_python(sys.executable), is_this_python("/nonexistent/python3")
    (True, False)
    """
    found = shutil.which(command)
    if found is None:
        return False
    # Several environments link to the same program, so its folder must be the same, too.
    is_beside = Path(found).parent.resolve() == Path(sys.executable).parent.resolve()
    return is_beside and os.path.samefile(found, sys.executable)


def is_python_free() -> bool:
    """Return whether `PYSPARK_PYTHON` is not set, or names this Python."""
    named = os.environ.get("PYSPARK_PYTHON")
    return named is None or is_this_python(named)


def use_file_sockets() -> None:
    """Let Spark and its Python workers use Unix domain sockets, unless the environment says otherwise.

    Spark reads the variable if its own setting is not given.
    """
    import pyspark

    # Spark has the variable since 4.1; it was tried with 4.3.
    if os.name == "posix" and tuple(map(int, pyspark.__version__.split(".")[:2])) >= SOCKETS_TRIED_WITH:
        os.environ.setdefault("PYSPARK_UDS_MODE", "true")


def build_python(place: Path, packages: Sequence[Path]) -> Path:
    """Build the launcher of this Python with these packages, if it does not exist; return its path.

    Args:
        place: a folder, created if missing; each Python and list of packages has a folder of its own in it.
        packages: folders of packages that come first on the path.

    Raises:
        OSError: the launcher cannot be made there, or cannot be run.
    """
    name = hashlib.sha256("\n".join([sys.executable, *map(str, packages)]).encode()).hexdigest()[:16]
    folder = place / name
    launcher = folder / "python"
    if os.pathsep in str(folder):
        raise OSError(f"{folder} cannot be on a path")
    if not launcher.exists():
        _make(folder, packages)
    if not os.access(launcher, os.X_OK):
        raise OSError(f"{launcher} cannot be run")
    return launcher


def _make(folder: Path, packages: Sequence[Path]) -> None:
    """Make the folder under another name, then rename it, so that it appears complete."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    # Other processes may be making the same folder at this moment.
    with tempfile.TemporaryDirectory(dir=folder.parent) as drafts:
        draft = Path(drafts, "draft")
        draft.mkdir()
        for package in packages:
            (draft / package.name).symlink_to(package)
        launcher = draft / "python"
        launcher.write_text(_LAUNCHER.format(folder=shlex.quote(str(folder)), python=shlex.quote(sys.executable)))
        launcher.chmod(0o755)
        try:
            draft.rename(folder)
        except OSError:
            # Another process has made the same folder first.
            if not folder.exists():
                raise


def _folder_of(package: str) -> Path:
    """Return the folder of an installed package; for a package in an archive the path is no folder.

    `OSError`: the package is not installed.
    """
    spec = find_spec(package)
    if spec is None or spec.origin is None:
        raise OSError(f"{package} is not installed")
    return Path(spec.origin).parent


def _is_spark_home(pyspark: Path) -> bool:
    """Return whether this process starts the Spark of the installed package, with the same PySpark."""
    if not Path(pyspark, "bin", "spark-submit").is_file():
        return False
    # `_find_spark_home` ends the process if it finds none, so the package is checked first.
    from pyspark.find_spark_home import _find_spark_home

    return Path(_find_spark_home()).resolve() == pyspark.resolve()
