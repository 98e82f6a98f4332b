"""What tests have started ends with the run, however that ends."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from support import guard
from support.waiting import until

pytestmark = pytest.mark.process

SUPPORT = Path(guard.__file__).parents[1]
#: A test that starts a process in a session of its own, as a broker of Kafka's is, and is never done.
TEST = """
import signal, subprocess, sys
from pathlib import Path

def test_it():
    code = "import signal, sys; print(flush=True); signal.pause()"
    child = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, start_new_session=True)
    child.stdout.readline()
    Path("child").write_text(str(child.pid))
    signal.pause()
"""


@pytest.mark.parametrize(("how", "workers"), [(signal.SIGTERM, "0"), (signal.SIGTERM, "1"), (signal.SIGKILL, "0")])
def test_nothing_is_left_of_a_run_that_is_ended(tmp_path: Path, how: signal.Signals, workers: str) -> None:
    """`make test` that gets a SIGTERM, a container that is stopped."""
    (tmp_path / "test_it.py").write_text(TEST)
    plugins = ["-p", "support.guard", "-p", "xdist", "-p", "no:cacheprovider", "-n", workers]
    run = subprocess.Popen(
        [sys.executable, "-m", "pytest", "-q", "--rootdir", str(tmp_path), *plugins],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(SUPPORT), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    child = tmp_path / "child"
    until(lambda: child.exists() and child.read_text(), what="the test has started its process")
    run.send_signal(how)
    run.wait(60)
    until(lambda: not Path("/proc", child.read_text()).exists(), what="its process has ended")


@pytest.mark.skipif(shutil.which("make") is None, reason="make is not installed")
@pytest.mark.parametrize("target", ["test", "soak"])
def test_make_hands_its_end_on_to_pytest(tmp_path: Path, target: str) -> None:
    """A shell between the two would end alone, and the tests would go on."""
    stub = tmp_path / "python"
    stub.write_text(f"#!{sys.executable} -SE\nimport os, signal\nprint(os.getpid(), flush=True)\nsignal.pause()\n")
    stub.chmod(0o755)
    told = subprocess.check_output(
        ["make", "--no-print-directory", "-n", target, f"PY={stub}"], cwd=SUPPORT.parent, text=True
    )
    line = told.splitlines()[-1]
    assert line.startswith(f"exec {stub} ")
    (tmp_path / "Makefile").write_text(f"it:\n\t@{line}\n")
    run = subprocess.Popen(
        ["make", "-s", "it"], cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    )
    with run:
        assert run.stdout is not None
        child = run.stdout.readline().strip()
        run.terminate()
        until(lambda: not Path("/proc", child).exists(), what="pytest has ended")
