"""Every example in a docstring runs; those that need a broker bring their own, in memory."""

from __future__ import annotations

import doctest
from importlib import import_module
from pathlib import Path

import pytest

import kohort

SOURCE = Path(__file__).resolve().parents[1] / "src"
MODULES = sorted(path for path in SOURCE.rglob("*.py") if ">>> " in path.read_text())


def name_of(path: Path) -> str:
    """The dotted name of a module's file."""
    parts = path.relative_to(SOURCE).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


@pytest.mark.parametrize("path", MODULES, ids=name_of)
def test_examples_run(path: Path) -> None:
    """What a docstring shows is what happens."""
    name = name_of(path)
    if name.startswith(("kohort.columnar", "kohort.spark")):
        pytest.importorskip("pyarrow", reason="pyarrow is not installed")
    if name.startswith("kohort.spark"):
        pytest.importorskip("pyspark", reason="PySpark is not installed")
    module = import_module(name)
    # One that is skipped, since it needs a JVM, still has to be an example that doctest can read.
    assert any(found.examples for found in doctest.DocTestFinder().find(module)), f"{name} hides its >>> from doctest"
    assert doctest.testmod(module, optionflags=doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE).failed == 0


@pytest.mark.parametrize("name", [name for name in kohort.__all__ if name != "errors"])
def test_public_names_have_an_example(name: str) -> None:
    """House style: each public name has a doctested example."""
    assert ">>> " in (getattr(kohort, name).__doc__ or ""), f"kohort.{name} shows no example"
