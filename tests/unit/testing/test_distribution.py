"""Which worker gets which file of the tests, and when."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from xdist.remote import Producer

from support.distribution import LONGEST, PROGRAMS, SHARED, WAITING, MixedFiles

ROOT = Path(__file__).resolve().parents[3]
COMPUTING = ["tests/unit/test_a.py", "tests/unit/test_b.py", "tests/sim/test_seeds.py"]
FILES = [
    "tests/spark/test_batch.py",
    "tests/spark/test_stream.py",
    "tests/spark/test_handover.py",
    "tests/interop/test_a.py",
    "tests/interop/test_b.py",
    "tests/interop/test_c.py",
    "tests/interop/test_d.py",
    "tests/interop/test_e.py",
    "tests/interop/test_demo.py",
    *PROGRAMS,
    *COMPUTING,
]
#: As many tests as keep a worker from being sent more.
TESTS_PER_FILE = 3


class Node:
    """A worker of xdist that notes what it is sent."""

    shutting_down = False

    def __init__(self, items: list[str]) -> None:
        self.gateway = self
        self.id = "worker"
        self.items = items
        self.sent: list[int] = []
        self.done = 0

    def send_runtest_some(self, indexes: list[int]) -> None:
        self.sent += indexes

    def shutdown(self) -> None:
        self.shutting_down = True

    def files(self) -> list[str]:
        """Those of its tests, each once."""
        return list(dict.fromkeys(self.items[index].partition("::")[0] for index in self.sent))


def played(workers: int, config: pytest.Config) -> list[Node]:
    """Every test is run by the worker that has it, one worker after the other."""
    items = [f"{file}::test_{number}" for file in FILES for number in range(TESTS_PER_FILE)]
    nodes: list[Any] = [Node(items) for _ in range(workers)]
    scheduler = MixedFiles(config, Producer("tests", enabled=False))
    scheduler.numnodes = workers
    for node in nodes:
        scheduler.add_node(node)
        scheduler.add_node_collection(node, items)
    scheduler.schedule()
    while any(node.done < len(node.sent) for node in nodes):
        for node in nodes:
            if node.done < len(node.sent):
                scheduler.mark_test_complete(node, node.sent[node.done])
                node.done += 1
    return nodes


@pytest.fixture
def ordered(pytestconfig: pytest.Config, monkeypatch: pytest.MonkeyPatch) -> pytest.Config:
    """As `make test` has it: files are not ordered by the number of their tests."""
    monkeypatch.setattr(pytestconfig.option, "loadscopereorder", False, raising=False)
    monkeypatch.setattr(pytestconfig.option, "tx", ["popen"], raising=False)
    return pytestconfig


@pytest.mark.parametrize("workers", [1, 2, 4])
def test_every_test_is_run_once(workers: int, ordered: pytest.Config) -> None:
    nodes = played(workers, ordered)
    assert sorted(index for node in nodes for index in node.sent) == list(range(len(FILES) * TESTS_PER_FILE))


def test_one_worker_computes_while_the_others_wait(ordered: pytest.Config) -> None:
    *waiting, computing = played(4, ordered)
    assert computing.files()[: len(COMPUTING)] == ["tests/sim/test_seeds.py", *COMPUTING[:2]]
    assert all(node.files()[0].startswith(WAITING) for node in waiting)


def test_the_longest_are_the_first(ordered: pytest.Config) -> None:
    first, second, third, _ = played(4, ordered)
    assert first.files()[0] == "tests/spark/test_batch.py"
    assert second.files()[0] == "tests/spark/test_handover.py"
    assert third.files()[0] == "tests/interop/test_demo.py"


def test_files_of_one_session_go_to_one_worker(ordered: pytest.Config) -> None:
    shared = {"tests/spark/test_batch.py", "tests/spark/test_stream.py"}
    assert [shared & set(node.files()) for node in played(4, ordered)] == [shared, set(), set(), set()]


def test_files_of_one_java_go_to_one_worker(ordered: pytest.Config) -> None:
    found = [[file for file in node.files() if file in PROGRAMS] for node in played(4, ordered)]
    assert sorted(found) == [[], [], [], [*PROGRAMS]]


def test_the_longest_are_there() -> None:
    """Nobody forgets a file that was moved."""
    assert [name for name in LONGEST if name != SHARED and not (ROOT / name).is_file()] == []
