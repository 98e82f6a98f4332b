"""Kafka topics in Spark: `format("kohort")` reads and writes them; helpers for a driver's Python.

Importing this package loads no PySpark; the names are loaded on first use.

>>> import kohort.spark
>>> kohort.spark.session.__name__
'session'
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from kohort.spark.driver.listening import BatchReport, QueryListener
    from kohort.spark.driver.progress_listener import Follower, follow
    from kohort.spark.driver.sessions import register, session
    from kohort.spark.driver.starting import ReaderLateError, start
    from kohort.spark.driver.stopping import Stopped, drain_and_stop
    from kohort.spark.frames import read_stream, read_topic, write_stream, write_topic

__all__ = [
    "session", "register", "read_topic", "read_stream", "write_topic", "write_stream",
    "start", "ReaderLateError", "QueryListener", "BatchReport", "drain_and_stop", "Stopped", "follow", "Follower",
]  # fmt: skip

_MODULES = {
    "driver.sessions": ("session", "register"),
    "frames": ("read_topic", "read_stream", "write_topic", "write_stream"),
    "driver.listening": ("QueryListener", "BatchReport"),
    "driver.starting": ("start", "ReaderLateError"),
    "driver.stopping": ("drain_and_stop", "Stopped"),
    "driver.progress_listener": ("follow", "Follower"),
}


def __getattr__(name: str) -> Any:
    module = next((module for module, names in _MODULES.items() if name in names), None)
    if module is None:
        raise AttributeError(f"module 'kohort.spark' has no attribute {name!r}")
    return getattr(import_module(f"kohort.spark.{module}"), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
