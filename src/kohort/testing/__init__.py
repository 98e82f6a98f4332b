"""Tests with kohort: brokers for your own tests, and the simulation that tests kohort itself.

The pytest fixtures are `kohort_broker` and `kohort_cluster`; `Cluster` is several brokers in one process.

>>> from kohort.testing import World
>>> World(seed=7).run().seed
7
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from kohort.testing.broker import SimulatedBroker
    from kohort.testing.checkers import Checkers
    from kohort.testing.clock import VirtualClock
    from kohort.testing.cluster import Cluster
    from kohort.testing.faultydisk import Fault, FaultyFileSystem, Operation
    from kohort.testing.history import History
    from kohort.testing.logchecker import Anomaly, check_history
    from kohort.testing.memoryfs import Crashed, MemoryFileSystem
    from kohort.testing.network import NetworkQuality, SimulatedNetwork
    from kohort.testing.scenario import GroupPlan, Scenario
    from kohort.testing.trace import Story
    from kohort.testing.world import Report, World

__all__ = [
    "Cluster",
    "World",
    "Report",
    "Scenario",
    "GroupPlan",
    "VirtualClock",
    "SimulatedNetwork",
    "NetworkQuality",
    "SimulatedBroker",
    "Checkers",
    "Story",
    "FaultyFileSystem",
    "MemoryFileSystem",
    "Crashed",
    "Fault",
    "Operation",
    "History",
    "check_history",
    "Anomaly",
]

_HOMES = {
    "Cluster": "kohort.testing.cluster",
    "World": "kohort.testing.world",
    "Report": "kohort.testing.world",
    "Scenario": "kohort.testing.scenario",
    "GroupPlan": "kohort.testing.scenario",
    "VirtualClock": "kohort.testing.clock",
    "SimulatedNetwork": "kohort.testing.network",
    "NetworkQuality": "kohort.testing.network",
    "SimulatedBroker": "kohort.testing.broker",
    "Checkers": "kohort.testing.checkers",
    "Story": "kohort.testing.trace",
    "FaultyFileSystem": "kohort.testing.faultydisk",
    "MemoryFileSystem": "kohort.testing.memoryfs",
    "Crashed": "kohort.testing.memoryfs",
    "Fault": "kohort.testing.faultydisk",
    "Operation": "kohort.testing.faultydisk",
    "History": "kohort.testing.history",
    "check_history": "kohort.testing.logchecker",
    "Anomaly": "kohort.testing.logchecker",
}


def __getattr__(name: str) -> Any:
    # pytest loads this package in every run; the simulation is loaded only by those who use it.
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module 'kohort.testing' has no attribute {name!r}")
    return getattr(import_module(home), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
