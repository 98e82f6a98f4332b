"""A process for an assignor of the user's own: whatever that does, there is an answer in time, and no process left."""

from __future__ import annotations

from array import array
from collections.abc import Iterator
from pathlib import Path
from queue import Queue

import pytest

from kohort.assign.assignors import BUILT_IN
from kohort.broker.options.settings import BrokerSettings
from kohort.broker.processes.assignorloading import installed_names, load_assignor
from kohort.broker.processes.assignorprocess import AssignorProcess
from kohort.coordinator.decision import ComputeTarget
from kohort.errors import ConfigError
from support.builders.assignables import group_of
from support.builders.assignor_package import AssignorPackage, wait_until_gone

pytestmark = pytest.mark.process

GROUP = group_of({"t": 2, "u": 1}, {"a": ["t", "u"], "b": ["t", "u"]})
#: Limits: of an order that is answered, and of one that is not.
LONG_MS, SHORT_MS = 30_000, 500

Answer = tuple["array[int] | None", str]


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AssignorPackage:
    return AssignorPackage(tmp_path / "installed", monkeypatch)


@pytest.fixture
def process(package: AssignorPackage) -> Iterator[AssignorProcess]:
    process = AssignorProcess("moody")
    process.start()
    yield process
    process.stop()


def order(timeout_ms: int = LONG_MS) -> ComputeTarget:
    return ComputeTarget(
        group_id="g",
        epoch=1,
        assignor="moody",
        assignable=GROUP,
        is_step=False,
        timeout_ms=timeout_ms,
        is_offloaded=True,
    )


def ask(process: AssignorProcess, timeout_ms: int = LONG_MS) -> Answer:
    answers: Queue[Answer] = Queue()
    assert process.put(order(timeout_ms), lambda owner, error: answers.put((owner, error)))
    return answers.get(timeout=60)


def nobody_listens(_owner: array[int] | None, _error: str) -> None:
    """Takes an answer."""


def test_answers_come_from_one_process_in_order(process: AssignorProcess) -> None:
    assert ask(process) == (array("i", [1, 0, 1]), "")
    first = process.process_id
    assert ask(process) == (array("i", [1, 0, 1]), "")
    assert process.process_id == first


@pytest.mark.parametrize(
    ("mood", "error"),
    [
        ("raises", "ValueError: no idea"),
        ("raises much", "ValueError: xxxxx"),
        ("exits", "SystemExit: 3"),
        ("short", "gave 2 owners for 3 partitions"),
        ("twice", "gave 4 owners for 3 partitions"),
        ("nobody", "left partition t-0 without an owner (number -1)"),
        ("stranger", "left partition t-0 without an owner (number 99)"),
        ("list", "gave list instead of array('i')"),
        ("nothing", "gave NoneType instead of array('i')"),
        ("wide", "gave array('q') instead of array('i')"),
        ("big", "MemoryError"),
        ("no such mood", "KeyError: 'no such mood'"),
    ],
)
def test_what_is_no_assignment_is_an_error_in_one_line(
    process: AssignorProcess, package: AssignorPackage, mood: str, error: str
) -> None:
    """Issue 4, bad input: raises, one partition twice, unknown members, wrong types; the same process goes on."""
    package.is_in(mood)
    owner, said = ask(process)
    assert owner is None
    assert said.startswith(error)
    assert len(said) <= 2_000
    package.is_in("good")
    assert ask(process) == (array("i", [1, 0, 1]), "")


@pytest.mark.parametrize(
    ("mood", "error"), [("dies", "its process ended with code 7"), ("crashes", "its process was ended by signal 6")]
)
def test_process_that_ends_is_started_anew(
    process: AssignorProcess, package: AssignorPackage, mood: str, error: str
) -> None:
    package.is_in(mood)
    assert ask(process) == (None, error)
    package.is_in("good")
    assert ask(process) == (array("i", [1, 0, 1]), "")


@pytest.mark.parametrize("mood", ["asleep", "busy"])
def test_assignor_that_takes_a_minute_is_ended_in_its_time(
    process: AssignorProcess, package: AssignorPackage, mood: str
) -> None:
    """Issue 4, bad input; also one that never lets the interpreter go."""
    assert ask(process)[1] == ""
    package.is_in(mood)
    before = process.process_id
    assert before is not None
    assert ask(process, SHORT_MS) == (None, "it took longer than 500 ms")
    wait_until_gone(before)
    package.is_in("good")
    assert ask(process) == (array("i", [1, 0, 1]), "")


def test_what_it_prints_and_does_to_its_input_hurts_nobody(process: AssignorProcess, package: AssignorPackage) -> None:
    package.is_in("scribbles")
    before = GROUP.owner[:]
    owner, said = ask(process)
    # In its own process the input is what it made of it; here it is as it was.
    assert (owner, said) == (array("i", [1, 0, 1]), "")
    assert GROUP.owner == before


def test_stop_ends_a_process_in_the_middle_of_its_work(package: AssignorPackage) -> None:
    process = AssignorProcess("moody")
    process.start()
    assert ask(process)[1] == ""
    number = process.process_id
    assert number is not None
    package.is_in("asleep")
    answers: list[Answer] = []
    # Who waited for the answer, or for the order's time, would outlast the test.
    process.put(order(timeout_ms=600_000), lambda owner, error: answers.append((owner, error)))
    process.stop()
    wait_until_gone(number)
    assert not answers


def test_more_groups_than_may_wait_are_told_so(package: AssignorPackage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kohort.broker.processes.assignorprocess.MOST_WAITING", 2)
    process = AssignorProcess("moody")
    assert [process.put(order(), nobody_listens) for _ in range(3)] == [True, True, False]
    process.start()
    process.stop()


@pytest.mark.parametrize(
    ("name", "error"),
    [
        ("broken", "it cannot be loaded: ModuleNotFoundError: No module named 'no_such_module'"),
        ("nameless", "it cannot be loaded: ConfigError: the entry point nameless of kohort.assignors is no assignor"),
        ("disguised", "it cannot be loaded: ConfigError: the assignor of the entry point disguised"),
    ],
)
def test_what_cannot_be_loaded_is_told_to_the_first_who_asks(package: AssignorPackage, name: str, error: str) -> None:
    process = AssignorProcess(name)
    process.start()
    owner, said = ask(process)
    process.stop()
    assert owner is None
    assert said.startswith(error)


def test_entry_points_are_found_by_name(package: AssignorPackage) -> None:
    """A name of kohort's own assignors stays theirs."""
    assert {"first", "moody", "broken"} <= set(installed_names())
    assert not set(BUILT_IN) & set(installed_names())
    assert load_assignor("first").name == "first"
    with pytest.raises(ConfigError, match="no installed package has the entry point thirst"):
        load_assignor("thirst")


def test_broker_offers_what_is_installed_and_nothing_else(package: AssignorPackage) -> None:
    settings = BrokerSettings.of({"group.consumer.assignors": "uniform,first"})
    assert settings.groups.group_consumer_assignors == ("uniform", "first")
    with pytest.raises(ConfigError, match=r"cannot be thirst: one or more of uniform, .*, first, .* is expected"):
        BrokerSettings.of({"group.consumer.assignors": "uniform,thirst"})
