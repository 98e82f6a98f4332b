"""A release is made, and installed by each Python here, without network and compiler: `make soak ONLY=packages`.

The network is used once, to fetch for each Python what kohort needs, pytest, and what builds an sdist.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from importlib.util import find_spec
from pathlib import Path

import pytest

import kohort
from support.peers.cli import started

pytestmark = [pytest.mark.interop, pytest.mark.process, pytest.mark.timeout(1_800)]

ROOT = Path(__file__).resolve().parents[2]
DIST = ROOT / "build" / "release" / "dist"
ADDRESS = "127.0.0.1:9092"
NEEDED = ("crc32c>=2.7", "cramjam>=2.9", "rich>=13.7", "pytest>=8.4", "setuptools>=77", "cython>=3.1")


def version_of(python: Path) -> str:
    said = subprocess.run(
        [python, "-c", "import sys; print('%d.%d' % sys.version_info[:2])"], capture_output=True, text=True, check=False
    )
    return said.stdout.strip()


def pythons() -> dict[str, Path]:
    """Version -> an interpreter of it; of this one, of the path, and of pyenv."""
    pyenv = Path(os.environ.get("PYENV_ROOT") or Path.home() / ".pyenv") / "versions"
    places = [Path(found) for minor in range(9, 15) if (found := shutil.which(f"python3.{minor}"))]
    places += sorted(pyenv.glob("3.*/bin/python"))
    return {version: place for place in [*places, Path(sys.executable)] if (version := version_of(place))}


PYTHONS = pythons()
NEW_ENOUGH = [version for version in sorted(PYTHONS) if int(version.partition(".")[2]) >= 11]
TOO_OLD = [version for version in sorted(PYTHONS) if int(version.partition(".")[2]) < 11]


def run(*command: str | Path, env: dict[str, str] | None = None, cwd: Path = ROOT) -> str:
    """Run a command, which has to end with 0; return its output. `env`: its whole environment."""
    done = subprocess.run(command, cwd=cwd, env=env, capture_output=True, text=True, check=False, timeout=900)
    assert done.returncode == 0, f"{command}\n{done.stdout[-2000:]}\n{done.stderr[-3000:]}"
    return done.stdout


@pytest.fixture(scope="module")
def dist() -> Sequence[Path]:
    """The files of a release of the last commit, which `twine check` and `check-wheel-contents` have passed."""
    for module in ("build", "twine", "auditwheel", "check_wheel_contents"):
        if find_spec(module) is None:
            pytest.skip(f"{module} is not installed: tools/setup.sh packages")
    run(sys.executable, "tools/release.py", kohort.__version__, "--dry-run", "--no-site")
    return sorted(DIST.iterdir())


@pytest.fixture(scope="module")
def house(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A folder with all that pip may need."""
    folder = tmp_path_factory.mktemp("house")
    for version in NEW_ENOUGH:
        command = [PYTHONS[version], "-m", "pip", "download", "-q", "--only-binary", ":all:", "-d", folder, *NEEDED]
        if subprocess.run(command, capture_output=True, check=False, timeout=600).returncode:
            pytest.skip(f"the packages for Python {version} cannot be had")
    yield folder


class Machine:
    """An empty environment, without network and compiler."""

    def __init__(self, folder: Path, python: Path, house: Path) -> None:
        self.folder = folder
        run(python, "-m", "venv", folder / "empty")
        self.programs = folder / "empty" / "bin"
        self.environment = {
            name: value for name, value in os.environ.items() if not name.startswith(("PIP_", "PYTHON", "KOHORT"))
        }
        self.environment |= {
            "PATH": f"{self.programs}:/usr/bin:/bin",
            "PIP_NO_INDEX": "1",
            "PIP_FIND_LINKS": str(house),
            "PIP_DISABLE_PIP_VERSION_CHECK": "1",
            "PIP_NO_CACHE_DIR": "1",
            "CC": "false",
        }

    def run(self, *command: str | Path) -> str:
        return run(*command, env=self.environment, cwd=self.folder)

    def live_the_first_minute(self) -> None:
        """The README's first blocks: broker, record, group, why, fixture."""
        section = (ROOT / "README.md").read_text().partition("\n## In 60 seconds\n")[2].partition("\n## ")[0]
        (_, up, send, read, ask, in_tests) = [text for _, text in re.findall(r"```(\w+)\n(.*?)```", section, re.DOTALL)]
        command = ["bash", "-c", f"exec {up.strip()} --port 0"]
        with started(command, env=self.environment, cwd=self.folder) as broker:
            (ready,) = broker.wait_for_lines(1, start="ready ")
            address = ready.removeprefix("ready ").strip()
            self.environment["KOHORT_BOOTSTRAP"] = address
            assert self.run("bash", "-ec", send) == "sent 1 record to orders\n"
            (self.folder / "read.py").write_text(read.replace(ADDRESS, address))
            assert self.run(self.programs / "python", "read.py") == "orders 0 0 b'{\"amount\": 3}'\n"
            assert "because kohort left: orders:0 of kohort has no owner any more" in self.run("bash", "-ec", ask)
            told = json.loads(self.run("kohort", "broker", "status", "--json"))["kernels"]
            assert told == json.loads(self.run("kohort", "--version", "--json"))["kernels"]
            assert broker.end() == 0
        (self.folder / "test_orders.py").write_text(in_tests)
        assert "1 passed" in self.run(self.programs / "python", "-m", "pytest", "-q", "test_orders.py")


@pytest.mark.parametrize("form", ["sdist", "pure", "compiled"])
@pytest.mark.parametrize("version", NEW_ENOUGH)
def test_each_form_is_installed_by_each_python(
    version: str, form: str, dist: Sequence[Path], house: Path, tmp_path: Path
) -> None:
    """Without network and compiler; `kohort --version` says whether it has kernels."""
    machine = Machine(tmp_path, PYTHONS[version], house)
    (sdist,) = (path for path in dist if path.name.endswith(".tar.gz"))
    (pure,) = (path for path in dist if path.name.endswith("-py3-none-any.whl"))
    package = {"sdist": sdist, "pure": pure}.get(form)
    if package is None:
        # The release has the wheel of its own Python; those of the others are built of its sdist.
        tag = f"cp{version.replace('.', '')}"
        made = [path for path in dist if f"-{tag}-{tag}-" in path.name]
        if not made:
            offline = {name: value for name, value in machine.environment.items() if name != "CC"}
            run(machine.programs / "pip", "wheel", "-q", "--no-deps", "-w", tmp_path / "made", sdist, env=offline)
            made = list((tmp_path / "made").glob(f"*-{tag}-{tag}-*.whl"))
        (package,) = made
    machine.run("pip", "install", "-q", package, "pytest")
    told = machine.run("kohort", "--version")
    plain = "kernels: plain Python, up to 6 times slower: install a wheel or a compiler"
    assert ("kernels: compiled" if form == "compiled" else plain) in " ".join(told.split())
    machine.live_the_first_minute()


@pytest.mark.skipif(sys.platform != "linux", reason="manylinux is Linux")
def test_compiled_wheel_is_one_that_an_index_takes(dist: Sequence[Path]) -> None:
    """Its tag names the oldest C library, and it is small."""
    (wheel,) = (path for path in dist if "-cp3" in path.name)
    assert "manylinux" in wheel.name and "-linux_" not in wheel.name
    assert wheel.stat().st_size < 3_000_000, "the README says 3 MB"


@pytest.mark.skipif(not TOO_OLD, reason="no Python before 3.11 is there")
def test_python_that_is_too_old_is_told_so(dist: Sequence[Path], house: Path, tmp_path: Path) -> None:
    machine = Machine(tmp_path, PYTHONS[TOO_OLD[-1]], house)
    wheel = next(path for path in dist if path.name.endswith("-py3-none-any.whl"))
    # pip 23.0 looks for what the wheel needs before it looks at the Python, and here is no network.
    command, env = ["pip", "install", "--no-deps", wheel], machine.environment
    done = subprocess.run(command, env=env, capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == 1
    assert "requires a different Python" in done.stderr


def test_table_of_cibuildwheel_has_each_platform() -> None:
    """One build for each Python, library and processor: 5 Pythons x 2 libraries x 2 of Linux, 5 x 2 of macOS."""
    if find_spec("cibuildwheel") is None:
        pytest.skip("cibuildwheel is not installed: tools/setup.sh packages")
    counts = {}
    for platform in ("linux", "macos"):
        names = run(sys.executable, "-m", "cibuildwheel", "--platform", platform, "--print-build-identifiers", ".")
        counts[platform] = len(names.split())
    assert counts == {"linux": 20, "macos": 10}


def test_container_starts_what_the_command_line_knows(tmp_path: Path) -> None:
    """The Dockerfile's arguments, on addresses of this machine alone; it is not run as root."""
    text = (ROOT / "Dockerfile").read_text()
    assert re.search(r"^USER (?!root|0)\w+$", text, re.MULTILINE)
    words = json.loads(re.search(r"^CMD (\[.*?\])", text, re.DOTALL | re.MULTILINE)[1].replace("\\\n", ""))  # type: ignore[index]
    changed = {"/var/lib/kohort": str(tmp_path), "0.0.0.0:29092": "127.0.0.1:0", "0.0.0.0:9092": "127.0.0.1:0"}
    changed |= {"kohort:29092": "kohort:0", "localhost:9092": "localhost:0"}
    for old, new in changed.items():
        words = [word.replace(old, new) for word in words]
    command = [sys.executable, "-m", "kohort.cli.main", *words]
    with started(command, env={**os.environ, "PYTHONPATH": str(ROOT / "src")}, cwd=tmp_path) as broker:
        broker.wait_for_lines(1, start="ready ")
        assert broker.end() == 0
