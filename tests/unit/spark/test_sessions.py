"""What `kohort.spark.session` takes, needs and says; Spark itself: tests/spark/test_session.py."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import kohort
import kohort.spark
from kohort.errors import ConfigError, MissingDependencyError
from kohort.spark.driver import java
from kohort.spark.driver.java import JavaNotFoundError, find_java_home, use_java, use_this_python
from kohort.spark.driver.pythons import worker_python
from kohort.spark.driver.sessions import check_settings, is_remote, require_packages

Home = Callable[[str], str]


@pytest.fixture
def home(tmp_path: Path) -> Home:
    """`home("11.0.2")` is a JAVA_HOME whose java says that version; `home("")` one whose java fails."""

    def build(version: str) -> str:
        folder = tmp_path / f"java-{version}"
        (folder / "bin").mkdir(parents=True)
        program = folder / "bin" / "java"
        says = f"echo 'openjdk version \"{version}\"' >&2" if version else "exit 1"
        program.write_text(f"#!/bin/sh\n{says}\n")
        program.chmod(0o755)
        return str(folder)

    return build


@pytest.fixture
def bare(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine without any Java."""
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", "/nonexistent")
    monkeypatch.setattr(java, "_packaged_home", lambda: None)


def test_settings_are_sparks_by_name_or_by_the_builders_words() -> None:
    assert check_settings({"master": "local[2]", "appName": "a", "spark.ui.enabled": False, "spark.x": 2}) == {
        "spark.master": "local[2]",
        "spark.app.name": "a",
        "spark.ui.enabled": "false",
        "spark.x": "2",
    }


@pytest.mark.parametrize("name", ["app_name", "shuffle.partitions", "", 7])
def test_other_names_are_refused_before_anything_is_started(name: object) -> None:
    with pytest.raises(
        ConfigError, match=r"is no setting of Spark: spark\.NAME is expected, or one of master, appName"
    ):
        kohort.spark.session({name: 1})  # type: ignore[dict-item]


@pytest.mark.parametrize("value", [None, ["a"], b"x"])
def test_other_values_are_refused(value: object) -> None:
    with pytest.raises(TypeError, match=r"spark\.jars cannot be .*: text, a number or a switch is expected"):
        kohort.spark.session({"spark.jars": value})


def test_server_needs_no_java(monkeypatch: pytest.MonkeyPatch) -> None:
    """Spark Connect: the JVM is the server's; a local one is started here."""
    monkeypatch.delenv("SPARK_REMOTE", raising=False)
    assert is_remote(check_settings({"remote": "sc://host:15002"}))
    assert not is_remote(check_settings({"remote": "local[2]"}))
    assert not is_remote({})
    monkeypatch.setenv("SPARK_REMOTE", "sc://host")
    assert is_remote({})


@pytest.mark.usefixtures("bare")
def test_no_java_is_one_sentence() -> None:
    with pytest.raises(JavaNotFoundError) as caught:
        use_java()
    assert str(caught.value) == (
        "Spark needs Java 17 or newer; none was found: install one and set JAVA_HOME, or: pip install 'kohort[java]'"
    )


@pytest.mark.process
@pytest.mark.usefixtures("bare")
def test_old_java_is_named(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever has one, and is told that there is none, looks in the wrong place."""
    old, broken = home("11.0.2"), home("")
    monkeypatch.setenv("JAVA_HOME", broken)
    monkeypatch.setenv("PATH", f"{old}/bin:/bin")
    with pytest.raises(JavaNotFoundError) as caught:
        find_java_home()
    assert str(caught.value) == (
        f"Spark needs Java 17 or newer; JAVA_HOME ({broken}) does not run, and the java of the path ({old}) is Java 11"
        ": install one and set JAVA_HOME, or: pip install 'kohort[java]'"
    )


@pytest.mark.process
@pytest.mark.usefixtures("bare")
@pytest.mark.parametrize("version", ["17.0.15", "21", "25-ea"])
def test_java_of_the_path_is_taken_where_java_home_is_old(
    version: str, home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    new = home(version)
    monkeypatch.setenv("JAVA_HOME", home("1.8.0_392"))
    monkeypatch.setenv("PATH", f"{new}/bin:/bin")
    assert find_java_home() == new


class Context:
    """Spark's context, and its session, as far as `register` asks them."""

    master = "spark://h:7077"
    pythonExec = "python3"

    def __init__(self) -> None:
        self.environment: dict[str, str] = {}
        self.registered = 0
        self.sparkContext = self.dataSource = self

    def register(self, source: type) -> None:
        self.registered += 1


def test_reader_of_a_stream_is_told_of_the_archive_that_kohort_came_in(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`--py-files kohort.zip`: PySpark hands it to every worker but that one."""
    session: Any = Context()
    kohort.spark.register(session)
    assert session.environment == {}
    archive = tmp_path / "kohort.zip"
    archive.touch()
    monkeypatch.setattr(kohort, "__file__", str(archive / "kohort" / "__init__.py"))
    session.environment["PYTHONPATH"] = "/mine"
    for _ in range(2):
        kohort.spark.register(session)
    assert session.environment["PYTHONPATH"] == f"{archive}:/mine"
    assert session.registered == 2, "what is there already is not registered again, of which Spark would warn"
    assert session.pythonExec == "python3", "on a cluster the Python is the cluster's"


@pytest.mark.parametrize("named", [None, sys.executable, Path(sys.executable).name, "/opt/python3"])
def test_workers_of_this_python_start_by_its_launcher_however_it_is_named(
    named: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`PYSPARK_PYTHON` that names this Python leaves out nothing; another one stands."""
    monkeypatch.delenv("SPARK_HOME", raising=False)
    monkeypatch.setenv("PATH", str(Path(sys.executable).parent))
    monkeypatch.setenv("PYSPARK_PYTHON", named or "")
    if named is None:
        monkeypatch.delenv("PYSPARK_PYTHON")
    session: Any = Context()
    session.master, session.pythonExec = "local[2]", named or "python3"
    kohort.spark.register(session)
    expected = "/opt/python3" if named == "/opt/python3" else worker_python()
    assert session.pythonExec == expected
    use_this_python()
    assert os.environ["PYSPARK_PYTHON"] == expected
    assert worker_python() != sys.executable


def test_old_pyspark_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    import pyspark

    monkeypatch.setattr(pyspark, "__version__", "3.5.1")
    with pytest.raises(MissingDependencyError, match=r"PySpark 4\.0 or newer \(this is 3\.5\.1\).*kohort\[spark\]"):
        require_packages()


@pytest.mark.process
def test_missing_pyspark_is_one_sentence() -> None:
    """In a process whose import system has none."""
    code = (
        "import sys\n"
        "sys.modules['pyspark'] = None\n"
        "import kohort.spark\n"
        "try:\n    kohort.spark.session()\n"
        "except kohort.errors.MissingDependencyError as why:\n    print(why)\n"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout == "this needs pyspark; install it with: pip install 'kohort[spark]'\n"


@pytest.mark.process
def test_importing_the_room_loads_no_spark_and_changes_nothing() -> None:
    """Its public names are there all the same."""
    code = (
        "import os, sys\nbefore = dict(os.environ)\nimport kohort.spark\n"
        "print(sorted({'pyspark', 'pyarrow', 'pandas'} & set(sys.modules)), dict(os.environ) == before)\n"
        "print(all(callable(getattr(kohort.spark, name)) for name in kohort.spark.__all__))\n"
        "kohort.spark.sesion"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, env={**os.environ})
    assert run.stdout == "[] True\nTrue\n"
    assert "module 'kohort.spark' has no attribute 'sesion'" in run.stderr


@pytest.mark.parametrize("word", ["DATA_SOURCE_ALREADY_EXISTS", "DATA_SOURCE_NOT_FOUND"])
def test_source_that_spark_has_found_by_itself_is_kept(word: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """PySpark 4.0 refuses to replace it; any other refusal is the caller's to see."""
    from pyspark.errors import AnalysisException

    def refuse(source: type) -> None:
        raise AnalysisException(f"[{word}] Data source 'kohort'.")

    session: Any = Context()
    monkeypatch.setattr(session, "register", refuse)
    if word == "DATA_SOURCE_ALREADY_EXISTS":
        kohort.spark.register(session)
    else:
        with pytest.raises(AnalysisException, match=word):
            kohort.spark.register(session)
