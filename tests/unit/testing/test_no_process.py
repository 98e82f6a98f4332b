"""`--no-process` leaves out the tests with the marker `process`, and fails others that start a process."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from support import processes

pytestmark = pytest.mark.process

CONFTEST = """
from support.processes import pytest_addoption, register

def pytest_configure(config):
    config.addinivalue_line("markers", "process: starts a process")
    register(config)
"""
TESTS = """
import os, subprocess, sys
import pytest

def start():
    subprocess.run([sys.executable, "-S", "-E", "-c", ""], check=True)

@pytest.fixture
def child():
    start()

@pytest.mark.process
def test_has_the_marker():
    raise AssertionError("it was run")

def test_starts_none():
    pass

def test_starts_one():
    start()

def test_spawns_one():
    os.waitpid(os.posix_spawn(sys.executable, [sys.executable, "-S", "-E", "-c", ""], {}), 0)

def test_takes_a_fixture_that_starts_one(child):
    pass
"""


def test_only_tests_with_the_marker_may_start_a_process(tmp_path: Path) -> None:
    (tmp_path / "conftest.py").write_text(CONFTEST)
    (tmp_path / "test_it.py").write_text(TESTS)
    run = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "--no-process", "--rootdir", str(tmp_path), "-p", "no:cacheprovider"],
        cwd=tmp_path,
        env={
            **os.environ,
            "PYTHONPATH": str(Path(processes.__file__).parents[1]),
            "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
        },
        capture_output=True,
        text=True,
        check=False,
    )
    assert "2 failed, 1 passed, 1 deselected, 1 error" in run.stdout
    assert "FAILED test_it.py::test_starts_one - Failed: started a process" in run.stdout
