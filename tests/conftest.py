"""What holds for every test."""

from __future__ import annotations

import gc
import logging
import os
from collections.abc import Iterator

import pytest
from hypothesis import settings

from support import guard, processes, processor_time
from support.distribution import pytest_xdist_make_scheduler
from support.guard import pytest_unconfigure
from support.peers.java_options import SHORT_LIVED

__all__ = ["pytest_unconfigure", "pytest_xdist_make_scheduler"]

# No test asserts how fast a machine is, which test_tidy.py holds; what hangs is ended by the timeout of the whole test.
settings.register_profile("kohort", deadline=None)
settings.load_profile("kohort")

os.environ.setdefault("JDK_JAVA_OPTIONS", SHORT_LIVED)


def pytest_addoption(parser: pytest.Parser) -> None:
    processes.pytest_addoption(parser)
    processor_time.pytest_addoption(parser)


def pytest_configure(config: pytest.Config) -> None:
    guard.pytest_configure(config)
    processes.register(config)
    processor_time.register(config)


@pytest.hookimpl(trylast=True)
def pytest_collection_finish() -> None:
    """Keep what was collected out of every later collection of garbage.

    A worker has half a million objects of items and modules for good, and tests that count what is left collect often:
    each world of clients, each longest request.
    """
    gc.collect()
    gc.freeze()


@pytest.fixture(scope="session")
def java_of_programs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """Variables that have programs use one Java for their sessions of Spark, one after the other."""
    from support.peers.spark_session import started_java

    with started_java(tmp_path_factory.mktemp("java")) as variables:
        yield variables


class _Bugs(logging.Handler):
    """Collects what the log says of exceptions that were not foreseen."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.found: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        if record.exc_info:
            self.found.append(self.format(record))


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
