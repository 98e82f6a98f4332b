"""What holds for every test."""

from __future__ import annotations

import gc
import logging
import os
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest

# Hypothesis would import trio, which no test gives to it.
os.environ.setdefault("HYPOTHESIS_NO_PLUGINS", "1")

from hypothesis import settings
from pytest_timeout import timeout_timer

from support import guard, processes, processor_time
from support.distribution import pytest_xdist_make_scheduler
from support.guard import pytest_unconfigure
from support.peers.java_options import SHORT_LIVED

__all__ = ["pytest_unconfigure", "pytest_xdist_make_scheduler"]

# No test asserts how fast a machine is, which test_tidy.py holds; what hangs is ended by the timeout of the whole test.
settings.register_profile("kohort", deadline=None)
settings.load_profile("kohort")

os.environ.setdefault("JDK_JAVA_OPTIONS", SHORT_LIVED)

#: Objects, and younger collections, after which the collector looks; 700, 10 and 10 by itself. So many full collections
#: are a twelfth of the processor time of the tests that start no process.
COLLECTED_AFTER = (700, 10, 1_000)


def pytest_addoption(parser: pytest.Parser) -> None:
    processes.pytest_addoption(parser)
    processor_time.pytest_addoption(parser)


def pytest_configure(config: pytest.Config) -> None:
    guard.pytest_configure(config)
    processes.register(config)
    processor_time.register(config)


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Iterator[None]:
    """Collect no garbage while tests are collected, and keep them out of every later collection.

    A worker has half a million objects of items and modules for good, and tests that count what is left collect often:
    each world of clients, each longest request. To look through them once takes longer than the garbage among them.
    """
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.set_threshold(*COLLECTED_AFTER)
        gc.enable()


@pytest.fixture(scope="session")
def java_of_programs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """Variables that have programs use one Java for their sessions of Spark, one after the other."""
    from support.peers.spark_session import started_java

    with started_java(tmp_path_factory.mktemp("java")) as variables:
        yield variables


class _Watchdog(threading.Thread):
    """Ends a worker whose test takes longer than it may: one thread for all, since one for each costs as they do."""

    def __init__(self) -> None:
        super().__init__(name="watchdog of tests", daemon=True)
        #: When the present test is over, s, the test and the settings of its timeout.
        self.due: tuple[float, pytest.Item, Any] | None = None

    def run(self) -> None:
        look = threading.Event()
        while not look.wait(1.0):
            due = self.due
            if due is not None and time.monotonic() > due[0]:
                timeout_timer(due[1], due[2])


_watchdogs: list[_Watchdog] = []


@pytest.hookimpl(optionalhook=True)
def pytest_timeout_set_timer(item: pytest.Item, settings: Any) -> bool | None:
    """Take the place of the timer that pytest-timeout would start for this test."""
    if settings.method != "thread":
        return None
    # None is begun where modules are only imported.
    if not _watchdogs:
        _watchdogs.append(_Watchdog())
        _watchdogs[0].start()
    _watchdogs[0].due = (time.monotonic() + settings.timeout, item, settings)
    return True


@pytest.hookimpl(optionalhook=True)
def pytest_timeout_cancel_timer(item: pytest.Item) -> bool:
    """Forget the time of the test that has ended."""
    for watchdog in _watchdogs:
        watchdog.due = None
    return True


class _Bugs(logging.Handler):
    """Collects what the log says of exceptions that were not foreseen."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.found: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        if record.exc_info:
            self.found.append(self.format(record))


@pytest.fixture(autouse=True)
def _collects_what_stock_clients_leave(request: pytest.FixtureRequest) -> Iterator[None]:
    """Close the sockets that a test's clients leave while it ignores them, not in a later test that does not."""
    yield
    ignored = " ".join(str(mark.args) for mark in request.node.iter_markers("filterwarnings"))
    if "PytestUnraisableExceptionWarning" in ignored or "ResourceWarning" in ignored:
        gc.collect()


@pytest.fixture(autouse=True)
def _no_bug_in_the_log(request: pytest.FixtureRequest) -> Iterator[None]:
    """A call may end well although something behind it broke: then the log says so, and nobody reads it."""
    bugs = _Bugs()
    loggers = [logging.getLogger(name) for name in ("kohort", "asyncio")]
    for logger in loggers:
        logger.addHandler(bugs)
    try:
        yield
    finally:
        for logger in loggers:
            logger.removeHandler(bugs)
    if request.node.get_closest_marker("logs_bugs") is None:
        assert not bugs.found, "\n".join(bugs.found)
