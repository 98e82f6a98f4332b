"""The Python by which Spark starts its processes; Spark itself: tests/spark/test_session.py."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pyspark
import pytest

from kohort.spark.driver.pythons import build_python, is_this_python, use_file_sockets, worker_python

Package = Callable[[str], Path]


@pytest.fixture
def package(tmp_path: Path) -> Package:
    """`package("installed")` is a folder of that name with a package `sparkling` that knows where it is."""

    def build(where: str) -> Path:
        folder = tmp_path / where / "sparkling"
        folder.mkdir(parents=True)
        (folder / "__init__.py").write_text(f"where = {where!r}\n")
        return folder

    return build


def run(python: Path | str, code: str, path: Path | None = None) -> str:
    """What it prints; `path` stands for the archive that Spark puts on the path."""
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    environment |= {} if path is None else {"PYTHONPATH": str(path)}
    command = [str(python), "-c", code]
    return subprocess.run(command, capture_output=True, text=True, check=True, env=environment).stdout.strip()


@pytest.mark.process
def test_installed_package_goes_before_sparks_archive(package: Package, tmp_path: Path) -> None:
    """In this Python, whatever is in the names of folders; what else is on the path stays there."""
    installed, archive = package("it's installed"), package("archive").parent
    (archive / "job.py").write_text("where = 'job'\n")
    python = build_python(tmp_path / "a $place", [installed])
    assert run(python, "import sparkling, job; print(sparkling.where, job.where)", archive) == "it's installed job"
    assert run(python, "import sys; print(sys.executable)") == sys.executable


@pytest.mark.process
def test_without_a_path_the_working_directory_is_not_on_it(package: Package, tmp_path: Path) -> None:
    """An empty entry would be that."""
    python = build_python(tmp_path / "place", [package("installed")])
    assert run(python, "import os; print(os.environ['PYTHONPATH'])") == str(python.parent)


@pytest.mark.process
def test_upgraded_package_is_the_one_that_is_imported(package: Package, tmp_path: Path) -> None:
    installed = package("installed")
    python = build_python(tmp_path / "place", [installed])
    (installed / "__init__.py").write_text("where = 'upgraded, and longer'\n")
    assert build_python(tmp_path / "place", [installed]) == python
    assert run(python, "import sparkling; print(sparkling.where)") == "upgraded, and longer"


@pytest.mark.process
def test_each_list_of_packages_has_its_own(package: Package, tmp_path: Path) -> None:
    """Of one environment, where a path names another PySpark: a session that runs keeps what it has."""
    old, new = (build_python(tmp_path / "place", [package(each)]) for each in ("old", "new"))
    assert [run(each, "import sparkling; print(sparkling.where)") for each in (old, new)] == ["old", "new"]


def test_several_at_once_make_one(package: Package, tmp_path: Path) -> None:
    packages = [package("installed")]
    with ThreadPoolExecutor(8) as pool:
        made = set(pool.map(lambda _: build_python(tmp_path / "place", packages), range(32)))
    assert len(made) == 1
    assert list((tmp_path / "place").iterdir()) == [made.pop().parent], "no draft is left"


def test_place_that_cannot_be_made_or_run_is_an_error(package: Package, tmp_path: Path) -> None:
    installed, file = package("installed"), tmp_path / "file"
    file.touch()
    python = build_python(tmp_path / "place", [installed])
    python.unlink()
    for place in (file, tmp_path / "place", tmp_path / "two:places"):
        with pytest.raises(OSError, match=r"cannot be|File exists|Not a directory"):
            build_python(place, [installed])


def test_this_python_is_taken_as_it_is_where_none_can_be_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An environment that must not be written to."""
    monkeypatch.delenv("SPARK_HOME", raising=False)
    (tmp_path / "kohort-python").touch()
    monkeypatch.setattr(sys, "prefix", str(tmp_path))
    assert worker_python() == sys.executable


def test_spark_that_the_environment_names_keeps_its_own_pyspark(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its archive may be of another version than what is installed here."""
    monkeypatch.setattr(sys, "prefix", str(tmp_path))
    monkeypatch.delenv("SPARK_HOME", raising=False)
    assert worker_python() != sys.executable
    monkeypatch.setenv("SPARK_HOME", str(tmp_path / "spark"))
    assert worker_python() == sys.executable


@pytest.mark.parametrize(
    ("version", "before", "after"),
    [("4.3.0", None, "true"), ("5.0.0", None, "true"), ("4.3.0", "false", "false"), ("4.2.0", None, None)],
)
def test_sockets_are_files_where_that_was_tried_and_nobody_says_otherwise(
    version: str, before: str | None, after: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pyspark, "__version__", version)
    monkeypatch.setenv("PYSPARK_UDS_MODE", before or "")
    if before is None:
        monkeypatch.delenv("PYSPARK_UDS_MODE")
    use_file_sockets()
    assert os.environ.get("PYSPARK_UDS_MODE") == after


def test_this_python_is_known_by_every_name_that_it_has(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Environments share one program: another environment's link to it is another Python."""
    here = Path(sys.executable)
    monkeypatch.setenv("PATH", f"{here.parent}{os.pathsep}{tmp_path}")
    other = tmp_path / "python-elsewhere"
    other.symlink_to(here.resolve())
    assert is_this_python(sys.executable)
    assert is_this_python(here.name)
    assert not is_this_python("python-elsewhere")
    assert not is_this_python("python-that-is-not-there")
