"""The tests that start no process: `--no-process` runs these alone, and fails one that starts a process all the same.

Laws: a test that starts a process, or takes a fixture that does, has the marker `process`; so has all of a module that
does so throughout.
Source: Python's table of audit events. `multiprocessing` raises none for the methods spawn and forkserver.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any, Final

import pytest

STARTS: Final = frozenset({
    "subprocess.Popen", "os.exec", "os.fork", "os.forkpty", "os.posix_spawn", "os.spawn", "os.system",
    "_winapi.CreateProcess",
})  # fmt: skip


class NoProcess:
    """The plugin of a run with `--no-process`."""

    def __init__(self) -> None:
        self._started: list[str] = []
        sys.addaudithook(self._on_event)

    def _on_event(self, event: str, arguments: tuple[Any, ...]) -> None:
        if event in STARTS:
            self._started.append(f"{event}{arguments!r:.200}")

    def pytest_collection_modifyitems(self, config: pytest.Config, items: list[pytest.Item]) -> None:
        """Leave out the tests with the marker."""
        deselected = [item for item in items if item.get_closest_marker("process")]
        config.hook.pytest_deselected(items=deselected)
        items[:] = [item for item in items if not item.get_closest_marker("process")]

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_setup(self) -> Iterator[None]:
        """Look at the fixtures."""
        yield from self._looked_at()

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_call(self) -> Iterator[None]:
        """Look at the test itself."""
        yield from self._looked_at()

    def _looked_at(self) -> Iterator[None]:
        self._started.clear()
        yield
        if self._started:
            pytest.fail(f"started a process, and has not the marker: {', '.join(self._started)}", pytrace=False)


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add `--no-process`."""
    parser.addoption("--no-process", action="store_true", help="leave out the tests that start a process")


def register(config: pytest.Config) -> None:
    """Watch this run if it was asked to be without processes."""
    if config.getoption("--no-process"):
        config.pluginmanager.register(NoProcess(), "kohort-no-process")
