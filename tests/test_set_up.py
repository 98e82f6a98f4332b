"""tools/setup.sh tells what it is at, and what pip said when it fails; setup.py makes what each machine can run."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from kohort.records.kernel_form import MODULES

ROOT = Path(__file__).resolve().parents[1]
SCRIPT = ROOT / "tools" / "setup.sh"

#: What pip says without a terminal, cut short; the middle of it takes minutes on a slow line.
PIP_SAYS = """\
Collecting crc32c>=2.7 (from -r .venv/all.txt (line 1))
  Downloading crc32c-2.8-cp311-cp311-manylinux.whl.metadata (7.9 kB)
Collecting pyspark>=4.0 (from kohort==0.1.0)
  Downloading pyspark-4.3.0.tar.gz (450.1 MB)
Requirement already satisfied: rich>=13.7 in ./.venv/lib/python3.11/site-packages (from kohort==0.1.0) (14.0.0)
Building wheels for collected packages: pyspark
  Building wheel for pyspark (setup.py): started
Installing collected packages: crc32c, pyspark
Successfully installed crc32c-2.8 pyspark-4.3.0
"""


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """As much of a checkout as the script looks at."""
    (tmp_path / "tools").mkdir()
    shutil.copy(SCRIPT, tmp_path / "tools")
    (tmp_path / "src" / "kohort" / "records").mkdir(parents=True)
    (tmp_path / "src" / "kohort" / "records" / "kernels.py").touch()
    (tmp_path / "pyproject.toml").write_text(
        '[project]\nname = "kohort"\nversion = "0"\n[project.optional-dependencies]\nall = []\n'
        "[dependency-groups]\ndev = []\n"
        '[build-system]\nrequires = ["there-is-no-such-package"]\n'
    )
    (tmp_path / "setup.py").touch()
    return tmp_path


def set_up(checkout: Path, *group: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [checkout / "tools" / "setup.sh", *group],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        env={**os.environ, "PYTHON": sys.executable, "PIP_NO_INDEX": "1"},
    )


def test_each_step_that_takes_time_has_a_short_line(checkout: Path) -> None:
    """Whatever the environment's Python does, only its words matter here: they are pip's."""
    (checkout / "said").write_text(PIP_SAYS)
    python = checkout / ".venv" / "bin" / "python"
    python.parent.mkdir(parents=True)
    python.write_text(f'#!/bin/bash\n[ "$2" = pip ] && [[ "$*" = *dev.txt ]] && cat {checkout}/said || true\n')
    python.chmod(0o755)

    done = set_up(checkout)
    assert (done.returncode, done.stderr) == (0, "")
    lines = done.stdout.splitlines()
    assert lines[1:7] == [
        "set-up: 1 of 3: kohort, Spark and what the tests need",
        "set-up:   preparing the build",
        "set-up:   compiling kohort",
        "set-up:   pyspark (450.1 MB)",
        "set-up:   building pyspark",
        "set-up:   installing 2 packages",
    ]
    assert lines[-1].endswith("the command is .venv/bin/kohort, or kohort after: source .venv/bin/activate")
    assert all(line.startswith("set-up: ") for line in lines)

    again = set_up(checkout)
    assert (again.returncode, again.stdout, again.stderr) == (0, "", "")

    more = set_up(checkout, "docs")
    assert (more.returncode, more.stdout.splitlines()[0]) == (0, "set-up: and the group docs")
    assert set_up(checkout, "docs").stdout == set_up(checkout).stdout == ""


def test_a_failure_shows_pips_reason(checkout: Path) -> None:
    """A package that cannot be had: pip's own sentence, then where the rest is."""
    # An environment that is there: to make one takes Python five seconds.
    python = checkout / ".venv" / "bin" / "python"
    python.parent.mkdir(parents=True)
    python.write_text(f'#!/bin/sh\nexec "{sys.executable}" "$@"\n')
    python.chmod(0o755)
    failed = set_up(checkout)
    assert failed.returncode == 1
    assert "No matching distribution found for there-is-no-such-package" in failed.stderr
    assert failed.stderr.splitlines()[-1].startswith("set-up: pip could not install the packages, see above")
    assert "there-is-no-such-package" in (checkout / ".venv" / "set-up.log").read_text()
    assert not (checkout / ".venv" / ".kohort-ready").exists()


#: In Cython's place: C that stands for what it would write.
CYTHON = """
from pathlib import Path

def cythonize(modules, **_):
    for module in modules:
        source = Path(module.sources[0]).with_suffix(".c")
        source.write_text("#include <Python.h>\\nPyObject *PyInit_small_kernels(void) { return NULL; }\\n")
        module.sources = [str(source)]
    return modules
"""


@pytest.mark.parametrize("has_compiler", [False, True])
def test_build_without_a_compiler_is_for_every_machine(tmp_path: Path, *, has_compiler: bool) -> None:
    """It goes where setuptools puts what is no platform's, and its wheel has the tag py3-none-any."""
    package = tmp_path / "src" / "kohort" / "records"
    package.mkdir(parents=True)
    shutil.copy(ROOT / "setup.py", tmp_path)
    (tmp_path / "README.md").touch()
    (tmp_path / "pyproject.toml").write_text(
        '[project]\nname = "small"\nversion = "0"\ndynamic = ["readme"]\nurls.Source = "https://small.example"\n'
        '[tool.setuptools]\npackage-dir = {"" = "src"}\npackages.find.where = ["src"]\n'
    )
    for folder in (package, package.parent, package.parent / "base"):
        folder.mkdir(exist_ok=True)
        (folder / "__init__.py").write_text('VERSION: Final = "0"\n')
    (package / "small_kernels.py").touch()
    (tmp_path / "Cython").mkdir()
    (tmp_path / "Cython" / "__init__.py").touch()
    (tmp_path / "Cython" / "Build.py").write_text(CYTHON)
    environment = {**os.environ, "PYTHONPATH": str(tmp_path), **({} if has_compiler else {"CC": "false"})}
    command = [sys.executable, "setup.py", "-q", "build"]
    done = subprocess.run(
        command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False, timeout=100
    )
    assert done.returncode == 0, done.stderr
    (folder,) = (tmp_path / "build").glob("lib*")
    assert (folder.name == "lib") is not has_compiler
    assert any(folder.rglob("*small_kernels*.so")) is has_compiler
    assert ("kohort: no C compiler" in done.stdout) is not has_compiler


def test_what_is_compiled_is_what_the_product_looks_for() -> None:
    package = ROOT / "src" / "kohort"
    assert {str(path.relative_to(package).with_suffix("")) for path in package.rglob("*kernels.py")} == set(MODULES)
