"""Tests with kohort: brokers for your own tests, and the simulation that tests kohort itself.

The pytest fixtures are in `pytest_plugin`. `Broker` has injectable faults and a clock; `Cluster` is several brokers.

>>> from kohort.testing import World
>>> World(seed=7).run().seed
7
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from kohort.base import without_collections

if TYPE_CHECKING:
    from kohort.simulation.broker import SimulatedBroker
    from kohort.simulation.checkers import Checkers
    from kohort.simulation.network import NetworkQuality, SimulatedNetwork
    from kohort.simulation.scenario import GroupPlan, Scenario
    from kohort.simulation.trace import Story
    from kohort.simulation.world import Report, World
    from kohort.testing.broker import Broker, LivingMembersError
    from kohort.testing.clock import VirtualClock
    from kohort.testing.cluster import Cluster
    from kohort.testing.disks import Crashed, Fault, FaultyFileSystem, MemoryFileSystem, Operation
    from kohort.testing.faults import FaultNotStruckError, ProtocolFault, ProtocolFaults
    from kohort.testing.group import TestedGroup
    from kohort.testing.history import Anomaly, History, check_history

__all__ = [
    "Broker",
    "ProtocolFaults",
    "ProtocolFault",
    "FaultNotStruckError",
    "LivingMembersError",
    "TestedGroup",
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

#: Module -> the public names that it has.
_HOMES = {
    "kohort.simulation.broker": ("SimulatedBroker",),
    "kohort.simulation.checkers": ("Checkers",),
    "kohort.simulation.network": ("NetworkQuality", "SimulatedNetwork"),
    "kohort.simulation.scenario": ("GroupPlan", "Scenario"),
    "kohort.simulation.trace": ("Story",),
    "kohort.simulation.world": ("Report", "World"),
    "kohort.testing.broker": ("Broker", "LivingMembersError"),
    "kohort.testing.clock": ("VirtualClock",),
    "kohort.testing.faults": ("FaultNotStruckError", "ProtocolFault", "ProtocolFaults"),
    "kohort.testing.group": ("TestedGroup",),
    "kohort.testing.cluster": ("Cluster",),
    "kohort.testing.disks": ("Crashed", "Fault", "FaultyFileSystem", "MemoryFileSystem", "Operation"),
    "kohort.testing.history": ("Anomaly", "History", "check_history"),
}


def __getattr__(name: str) -> Any:
    # pytest loads this package in every run; the simulation is loaded only by those who use it.
    for home, names in _HOMES.items():
        if name in names:
            with without_collections():
                return getattr(import_module(home), name)
    raise AttributeError(f"module 'kohort.testing' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
