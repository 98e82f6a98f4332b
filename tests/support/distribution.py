"""The scheduling of `--dist loadfile`: a worker gets whole files, and one gets all that share a session or a Java.

A session of Spark takes ten seconds of processor time to start, and compiles what it runs anew in each worker.

Tests beside other processes wait for half of their time, the others compute. Workers that all do the same leave a core
idle in one half of a run, and take turns at it in the other half. Thus one worker of four computes from the beginning
on, and the others begin with what waits. A worker that has no more of its kind takes the other kind.

Laws: every file is run once; the longest files of a kind are the first, so that none of them is alone at the end.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import PurePosixPath
from typing import Final

import pytest
from xdist.remote import Producer
from xdist.scheduler import LoadFileScheduling
from xdist.workermanage import WorkerController

#: The folder whose files share the session, but for this one: it starts drivers of its own.
SHARED: Final = "tests/spark"
OWN_DRIVERS: Final = "tests/spark/test_handover.py"
#: Files of programs that have one Java between them (`java_of_programs`); together they go by the name of the first.
PROGRAMS: Final = (
    "tests/interop/test_readme.py",
    "tests/interop/test_examples.py",
    "tests/spark/test_spark_tutorial.py",
)
#: Folders whose tests wait: for other processes, or for the heartbeats of a query's members.
WAITING: Final = (SHARED, "tests/interop", "tests/unit/spark")
#: So many workers have one that computes.
WORKERS_PER_COMPUTING: Final = 4
#: The files that take longest on the clock, of both kinds, the longest first.
LONGEST: Final = (
    SHARED,
    OWN_DRIVERS,
    "tests/interop/test_client_apache.py",
    "tests/interop/test_demo.py",
    PROGRAMS[0],
    "tests/interop/test_static_groups.py",
    "tests/interop/test_client_apache_cluster.py",
    "tests/interop/test_disconnects.py",
    "tests/interop/test_restart.py",
    "tests/interop/test_restart_members.py",
    "tests/interop/test_client_scenarios.py",
    "tests/interop/test_program_end.py",
    "tests/interop/test_site.py",
    "tests/sim/test_seeds.py",
    "tests/sim/test_planted_bugs.py",
    "tests/unit/broker/test_worst_requests.py",
    "tests/unit/broker/test_longest_turns.py",
    "tests/sim/test_client_planted_bugs.py",
    "tests/fuzz/test_files.py",
)


class Collection(list[str]):
    """Names of the tests of a worker, which know their places: the scheduler looks for each of them."""

    def __init__(self, names: Sequence[str]) -> None:
        super().__init__(names)
        self._places = {name: place for place, name in enumerate(names)}

    def index(self, name: str, *_: object) -> int:
        """Return the place of a test, as `list.index` does."""
        return self._places[name]


class MixedFiles(LoadFileScheduling):
    """Sends files that share a session or a Java to the same worker, and to each worker files of its kind first."""

    def _split_scope(self, nodeid: str) -> str:
        """Return the name of the file, session or Java that keeps a test on one worker."""
        file = super()._split_scope(nodeid)
        if file in PROGRAMS:
            return PROGRAMS[0]
        return SHARED if str(PurePosixPath(file).parent) == SHARED and file != OWN_DRIVERS else file

    def add_node_collection(self, node: WorkerController, collection: Sequence[str]) -> None:
        """Take the tests that a worker has collected."""
        super().add_node_collection(node, collection)
        if node in self.registered_collections:
            self.registered_collections[node] = Collection(collection)

    def mark_test_complete(self, node: WorkerController, item_index: int, duration: float = 0) -> None:
        """Note that a test was run, and forget its file behind the last one: the scheduler counts all that it knows."""
        super().mark_test_complete(node, item_index, duration)
        scope = self._split_scope(self.registered_collections[node][item_index])
        if all(self.assigned_work[node][scope].values()):
            del self.assigned_work[node][scope]

    def _assign_work_unit(self, node: WorkerController) -> None:
        """Send a worker the next file of its kind, and of the other kind when there is none."""
        computes = self._computes(node)
        # `min` takes the first of equals: the order of the queue is kept.
        chosen = min(self.workqueue, key=lambda scope: (scope.startswith(WAITING) == computes, _rank(scope)))
        self.workqueue.move_to_end(chosen, last=False)
        super()._assign_work_unit(node)

    def _computes(self, node: WorkerController) -> bool:
        """Tell whether a worker begins with the files that compute: the last one, and more of many."""
        count = max(1, len(self.nodes) // WORKERS_PER_COMPUTING)
        return self.nodes.index(node) >= len(self.nodes) - count


def _rank(scope: str) -> int:
    return LONGEST.index(scope) if scope in LONGEST else len(LONGEST)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> MixedFiles | None:
    """Replace the scheduler of `--dist loadfile`."""
    return MixedFiles(config, log) if config.getvalue("dist") == "loadfile" else None
