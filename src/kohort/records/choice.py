# ruff: noqa: PLR0917 - kernels take their arrays by position, as a compiled call does
"""The choice of the kernels' implementation: compiled C, numpy or plain Python.

Laws: all three give the same columns and refuse the same bytes; numpy is imported only when it is chosen. The
environment variable KOHORT_KERNELS (c, numpy, python) chooses; without it C where it was compiled, else numpy where
it or Arrow is in use already, else Python.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import replace
from functools import lru_cache
from importlib.util import find_spec
from itertools import accumulate
from types import ModuleType

from kohort.base.values import value
from kohort.errors import ConfigError, MissingDependencyError
from kohort.records import row_kernels
from kohort.records.header import Buffer
from kohort.records.kernel_form import NAMES, VARIABLE, asked_kernels, is_compiled_form, not_compiled, plain_form


@value
class KernelSet:
    """The loops over record bytes; `kernels.py` documents each."""

    name: str
    count_batches: Callable[[Buffer], int]
    index_batches: Callable[[Buffer, memoryview, int], int]
    scan_records: Callable[
        [Buffer, memoryview, int, int, int, int, memoryview, memoryview, memoryview],
        int,
    ]
    check_records: Callable[
        [Buffer, int, int, int, int, int, int, int, bool, memoryview],
        tuple[int, int, int],
    ]
    scan_headers: Callable[[Buffer, memoryview, int, int, memoryview, memoryview], int]
    sum_lengths: Callable[[memoryview, int, int, int], int]
    count_nulls: Callable[[memoryview, int, int, int], int]
    fill_validity: Callable[[memoryview, int, int, int, memoryview], int]
    gather: Callable[[Buffer, memoryview, int, int, int, int, memoryview, memoryview], int]
    build_rows: Callable[..., None]


def kernel_name() -> str:
    """Return the name of the implementation in use: c, numpy or python."""
    return active_kernels().name


def active_kernels() -> KernelSet:
    """Return the kernels to run if a caller names none.

    Raises:
        ConfigError: KOHORT_KERNELS names kernels that do not exist or were not compiled.
    """
    asked = asked_kernels()
    if asked:
        return kernels_named(asked)
    if is_compiled():
        return kernels_named("c")
    if ("numpy" in sys.modules or "pyarrow" in sys.modules) and _has_numpy():
        return kernels_named("numpy")
    return kernels_named("python")


@lru_cache(maxsize=8)
def kernels_named(name: str) -> KernelSet:
    """Return an implementation by its name.

    Raises:
        ConfigError: there is no such implementation, or it is C and was not compiled.
        MissingDependencyError: the name is numpy, which is not installed.
    """
    if name == "c":
        if not is_compiled():
            raise not_compiled()
        return _kernel_set(name, _imported_kernels(), row_kernels)
    if name == "numpy":
        if not _has_numpy():
            raise MissingDependencyError("numpy", "arrow")
        from kohort.records import vectorized

        return _kernel_set(name, vectorized, plain_form(row_kernels))
    if name == "python":
        return replace(_kernel_set(name, plain_kernels(), plain_form(row_kernels)), gather=gather_joined)
    raise ConfigError(f"{VARIABLE}={name!r}; choose one of {', '.join(NAMES)}")


@lru_cache(maxsize=1)
def is_compiled() -> bool:
    """Return whether the kernels are compiled, and have every function of their present source."""
    module = _imported_kernels()
    return is_compiled_form(module) and all(hasattr(module, name) for name in ("check_records", "gather"))


def plain_kernels() -> ModuleType:
    """Load `kernels.py` as plain Python, even if its compiled form would be imported first."""
    return plain_form(_imported_kernels())


def gather_joined(
    region: Buffer,
    spans: memoryview,
    width: int,
    field: int,
    first_row: int,
    stop_row: int,
    out: memoryview,
    out_offsets: memoryview,
) -> int:
    """Gather a field as `kernels.gather` does, without its byte loop, which only a compiler makes fast."""
    starts = spans[first_row * width + field : stop_row * width : width].tolist()
    lengths = spans[first_row * width + field + 1 : stop_row * width : width].tolist()
    source = region if isinstance(region, bytes) else bytes(region)
    joined = b"".join(
        [source[start : start + length] for start, length in zip(starts, lengths, strict=True) if length > 0]
    )
    written = int(out_offsets[first_row])
    out[written : written + len(joined)] = joined
    for row, position in enumerate(accumulate((max(length, 0) for length in lengths), initial=written), first_row):
        out_offsets[row] = position
    return written + len(joined)


def _imported_kernels() -> ModuleType:
    from kohort.records import kernels

    return kernels


@lru_cache(maxsize=1)
def _has_numpy() -> bool:
    return find_spec("numpy") is not None


def _kernel_set(name: str, *modules: ModuleType) -> KernelSet:
    """Build a set, each function from the module that has it."""
    loops = {
        each: getattr(module, each) for module in modules for each in KernelSet.__annotations__ if hasattr(module, each)
    }
    return KernelSet(name=name, **loops)
