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
    from kohort.simulation.broker import SimulatedBroker
    from kohort.simulation.checkers import Checkers
    from kohort.simulation.network import NetworkQuality, SimulatedNetwork
    from kohort.simulation.scenario import GroupPlan, Scenario
    from kohort.simulation.trace import Story
    from kohort.simulation.world import Report, World
    from kohort.testing.clock import VirtualClock
    from kohort.testing.cluster import Cluster
    from kohort.testing.disks import Crashed, Fault, FaultyFileSystem, MemoryFileSystem, Operation
    from kohort.testing.history import Anomaly, History, check_history

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
    "World": "kohort.simulation.world",
    "Report": "kohort.simulation.world",
    "Scenario": "kohort.simulation.scenario",
    "GroupPlan": "kohort.simulation.scenario",
    "VirtualClock": "kohort.testing.clock",
    "SimulatedNetwork": "kohort.simulation.network",
    "NetworkQuality": "kohort.simulation.network",
    "SimulatedBroker": "kohort.simulation.broker",
    "Checkers": "kohort.simulation.checkers",
    "Story": "kohort.simulation.trace",
    "FaultyFileSystem": "kohort.testing.disks",
    "MemoryFileSystem": "kohort.testing.disks",
    "Crashed": "kohort.testing.disks",
    "Fault": "kohort.testing.disks",
    "Operation": "kohort.testing.disks",
    "History": "kohort.testing.history",
    "check_history": "kohort.testing.history",
    "Anomaly": "kohort.testing.history",
}


def __getattr__(name: str) -> Any:
    # pytest loads this package in every run; the simulation is loaded only by those who use it.
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module 'kohort.testing' has no attribute {name!r}")
    return getattr(import_module(home), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
