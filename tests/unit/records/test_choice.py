"""Which kernels run, and that nothing heavy is loaded for it."""

from __future__ import annotations

import os
import subprocess
import sys
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path

import pytest

from kohort.errors import ConfigError
from kohort.records.choice import KernelSet, active_kernels, is_compiled, kernel_name, kernels_named, plain_kernels
from kohort.records.kernel_form import MODULES, tell_kernels

pytestmark = [pytest.mark.filterwarnings("error"), pytest.mark.process]


def run(code: str, **variables: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, **variables}
    if "KOHORT_KERNELS" not in variables:
        environment.pop("KOHORT_KERNELS", None)
    return subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=60, env=environment
    )


@pytest.mark.parametrize("name", ["numpy", "python"])
def test_the_environment_chooses(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KOHORT_KERNELS", name)
    assert kernel_name() == name


def test_compiled_kernels_run_where_there_are_some(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("KOHORT_KERNELS", raising=False)
    assert (kernel_name() == "c") == is_compiled()


def test_unknown_kernels_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KOHORT_KERNELS", "fortran")
    with pytest.raises(ConfigError, match="KOHORT_KERNELS='fortran'; choose one of c, numpy, python"):
        active_kernels()


def test_plain_python_runs_beside_its_compiled_form() -> None:
    assert str(plain_kernels().__file__).endswith("kernels.py")
    plain = kernels_named("python")
    assert isinstance(plain, KernelSet)
    assert plain.scan_records.__module__ != "kohort.records.kernels" or not is_compiled()


DECODE = """
import sys
{first}
from kohort.records.batch import build_batch
from kohort.records.columns import gather_columns
from kohort.records.choice import kernel_name
from kohort.records.scan import scan_batches
gather_columns([(scan_batches(build_batch([(b"k", b"v", 1, [])])), 0, 1)]).records()
print(kernel_name(), *sorted({{"numpy", "pyarrow", "cython", "Cython"}} & set(sys.modules)))
"""


def test_plain_python_loads_nothing_heavy() -> None:
    done = run(DECODE.format(first=""), KOHORT_KERNELS="python")
    assert done.stdout.split() == ["python"], done.stderr


@pytest.mark.skipif(not is_compiled(), reason="the kernels are not compiled")
def test_compiled_kernels_load_nothing_heavy() -> None:
    done = run(DECODE.format(first=""))
    assert done.stdout.split() == ["c"], done.stderr


UNCOMPILED = "from kohort.records import choice; choice.is_compiled = lambda: False; {more}"


def test_numpy_runs_where_arrow_is_in_use_and_nothing_is_compiled() -> None:
    done = run(DECODE.format(first=UNCOMPILED.format(more="import pyarrow")))
    assert done.stdout.split()[0] == "numpy", done.stderr


def test_without_arrow_and_compiler_plain_python_runs() -> None:
    done = run(DECODE.format(first=UNCOMPILED.format(more="")))
    assert done.stdout.split() == ["python"], done.stderr


def test_asking_for_c_where_nothing_is_compiled_says_what_to_do() -> None:
    done = run(DECODE.format(first=UNCOMPILED.format(more="")), KOHORT_KERNELS="c")
    assert "KOHORT_KERNELS=c, but the kernels are not compiled: install a wheel or a compiler" in done.stderr


def test_plain_kernels_are_told_with_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A build without a C compiler; one module that was not compiled is enough."""
    monkeypatch.delenv("KOHORT_KERNELS", raising=False)
    for name in MODULES:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / f"{name}{EXTENSION_SUFFIXES[0]}").touch()
    assert tell_kernels(str(tmp_path)) == "compiled"
    monkeypatch.setenv("KOHORT_KERNELS", "python")
    assert tell_kernels(str(tmp_path)).endswith("slower: KOHORT_KERNELS=python asks for it")
    monkeypatch.delenv("KOHORT_KERNELS")
    (tmp_path / f"{MODULES[0]}{EXTENSION_SUFFIXES[0]}").unlink()
    assert tell_kernels(str(tmp_path)) == "plain Python, up to 6 times slower: install a wheel or a compiler"


@pytest.mark.parametrize(("kernels", "level"), [("python", "WARNING"), ("", "INFO" if is_compiled() else "WARNING")])
@pytest.mark.parametrize("first", ["Broker().start()", "Producer(bootstrap_servers='127.0.0.1:1').close()"])
def test_log_and_status_say_what_the_kernels_are(first: str, kernels: str, level: str) -> None:
    """Once a process, by the first broker or client."""
    code = f"""
import logging
logging.basicConfig(level="INFO", format="%(levelname)s %(message)s")
import kohort
kohort.{first}
with kohort.Broker() as broker, kohort.Admin(bootstrap_servers=broker.bootstrap_servers) as admin:
    print(admin.describe_broker()["kernels"])
"""
    done = run(code, KOHORT_KERNELS=kernels)
    lines = [line for line in done.stderr.splitlines() if "kernels:" in line]
    assert lines == [f"{level} kernels: {done.stdout.strip()}"], done.stderr
