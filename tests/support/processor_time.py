"""Processor time of the tests by folder and by file: `pytest -n 0 --processor-time` prints both tables.

It is that of this process and of all that have the mark of the run, without what ended and was waited for by none.
Source: proc(5), `/proc/PID/stat`: a process has the time of its children that have ended.
"""

from __future__ import annotations

import os
import time
from collections import Counter, defaultdict
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path, PurePosixPath
from typing import Any, Final

import pytest

from support.guard import MARK, find_marked

#: Files in the second table.
_SLOWEST: Final = 20


class ProcessorTime:
    """The plugin of a run with `--processor-time`."""

    def __init__(self) -> None:
        #: File -> items, seconds on the clock, and seconds of processor time.
        self._spent: dict[str, Counter[str]] = defaultdict(Counter)
        #: File -> names of its test functions.
        self._functions: dict[str, set[str]] = defaultdict(set)

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        """Note the time of an item, with the fixtures that it sets up and tears down."""
        began_s, used_s = time.monotonic(), _used_s()
        result = yield
        file, _, name = item.nodeid.partition("::")
        self._functions[file].add(name.partition("[")[0])
        self._spent[file] += Counter(items=1, wall=time.monotonic() - began_s, processor=_used_s() - used_s)
        return result

    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        """Print the tables."""
        for title, of_file in (("folder", _folder_of), ("file", str)):
            rows: dict[str, Counter[str]] = defaultdict(Counter)
            for file, spent in self._spent.items():
                rows[of_file(file)] += spent + Counter(functions=len(self._functions[file]))
            terminalreporter.section(f"processor time by {title}")
            terminalreporter.line(f"{'items':>7}{'functions':>11}{'wall, s':>9}{'CPU, s':>8}  {title}")
            for name, row in sorted(rows.items(), key=lambda each: -each[1]["processor"])[:_SLOWEST]:
                counts = f"{row['items']:7}{row['functions']:11}{row['wall']:9.1f}{row['processor']:8.1f}"
                terminalreporter.line(f"{counts}  {name}")


def _used_s() -> float:
    own = sum(os.times()[:4])
    ticks = 0
    for process_id in find_marked(os.environ.get(MARK, "")):
        with suppress(OSError):
            fields = Path(f"/proc/{process_id}/stat").read_text().rpartition(")")[2].split()
            ticks += sum(map(int, fields[11:15]))
    return own + ticks / os.sysconf("SC_CLK_TCK")


def _folder_of(file: str) -> str:
    return "/".join(PurePosixPath(file).parts[:2]) if file.count("/") > 1 else "tests"


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add `--processor-time`."""
    parser.addoption("--processor-time", action="store_true", help="print what each folder took; with -n 0")


def register(config: pytest.Config) -> None:
    """Measure this run if it was asked for."""
    if config.getoption("--processor-time"):
        config.pluginmanager.register(ProcessorTime(), "kohort-processor-time")
