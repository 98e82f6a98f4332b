"""The examples, and the README's tests with the fixture, run as they stand; its other blocks: test_readme.py."""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Mapping
from contextlib import closing, suppress
from pathlib import Path

import pytest

import kohort
from support.peers.cli import environment, forks_of
from support.peers.forked_commands import ForkedProcess, Forks
from support.waiting import until

ROOT = Path(__file__).resolve().parents[2]
EXAMPLES_FOLDER = ROOT / "examples"
EXAMPLES = sorted(EXAMPLES_FOLDER.glob("*.py"))
MOST_LINES = 40
#: Of an example that starts a Java, on a machine that is busy with others.
TIMEOUT_SECONDS = 500


def forks_of_examples() -> Forks:
    """The process that forks for the examples; a warning is an error, as by Python's -W."""
    return forks_of(environment({"PYTHONWARNINGS": "error"}))


def start_example(name: str, *arguments: str) -> ForkedProcess:
    """The process of an example."""
    return forks_of_examples().open(arguments, environment=environment(), script=EXAMPLES_FOLDER / name)


def run_example(name: str, *arguments: str, variables: Mapping[str, str] | None = None) -> list[str]:
    """The lines that an example prints; it must end well and complain of nothing."""
    code, out, errors = forks_of_examples().run(
        arguments, environment=environment(variables), timeout=TIMEOUT_SECONDS, script=EXAMPLES_FOLDER / name
    )
    assert code == 0, errors.decode()[-3000:]
    return out.decode().splitlines()


def readme_block(*words: str) -> str:
    """The one Python block of the README that has all these words."""
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    (found,) = [block for block in blocks if all(word in block for word in words)]
    return str(found)


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.name)
def test_example_is_short(path: Path) -> None:
    """An example that has to be scrolled is not read."""
    assert len(path.read_text().splitlines()) <= MOST_LINES


def test_embedded_broker() -> None:
    """What was sent is there after a restart."""
    lines = run_example("embedded_broker.py")
    assert lines[0].startswith("a broker listens on 127.0.0.1:")
    assert lines[1:] == ["before the restart: 10 records", "after the restart: 10 records"]


def test_consumer_group() -> None:
    """Every order is billed once, though a member leaves."""
    lines = run_example("consumer_group.py")
    assert lines[-1] == "3000 of 3000 orders billed, lag 0"
    assert {f"{name} leaves" for name in "abc"} <= set(lines)


def test_exactly_once() -> None:
    """Aborted transactions leave nothing, and no order is lost."""
    assert run_example("exactly_once.py")[-3:] == [
        "failed at order 200",
        "failed at order 600",
        "1000 invoices of 1000 orders",
    ]


def test_arrow_columns() -> None:
    """Sums that can be computed by hand."""
    pytest.importorskip("pyarrow", reason="pyarrow is not installed")
    assert run_example("arrow_columns.py") == [
        "customer-0: 5000 payments, 120000 in all",
        "customer-1: 5000 payments, 125000 in all",
        "customer-2: 5000 payments, 120000 in all",
        "customer-3: 5000 payments, 125000 in all",
    ]


def test_own_assignor() -> None:
    """No topic is split, and the second member has what the first has not."""
    shares = run_example("own_assignor.py")
    assert sorted(",".join(shares).split(",")) == ["clicks", "orders", "views"]
    assert sorted(len(share.split(",")) for share in shares) == [1, 2]


def test_lag_scheduler() -> None:
    """Sixty records stay, and as many go, though the broker would have left all where they were."""
    assert run_example("lag_scheduler.py") == ["before: 4 0", "after: [0] [1, 2, 3]"]


def test_static_fleet() -> None:
    """Nobody notices that a member was restarted."""
    lines = run_example("static_fleet.py")
    assert lines[:-1] == [f"till-{number} was away, and has what it had: True" for number in (1, 2, 3)]
    assert lines[-1] == "rebalances meanwhile: 0"


def test_offsets_in_sqlite() -> None:
    """A sum that can be computed by hand."""
    assert run_example("offsets_in_sqlite.py") == [f"10 accounts hold {sum(number % 7 for number in range(1000))}"]


def test_offsets_in_sqlite_outlive_a_kill(tmp_path: Path) -> None:
    """kill -9 in the middle, again and again: nothing is lost and nothing is booked twice."""
    file, payments = tmp_path / "accounts.sqlite", 0

    def booked() -> int:
        with closing(sqlite3.connect(file, timeout=60)) as db, suppress(sqlite3.OperationalError):
            return db.execute("SELECT total(total) FROM account").fetchone()[0]
        return 0

    quick = {"group.consumer.heartbeat.interval.ms": 100, "group.consumer.min.heartbeat.interval.ms": 50}
    with kohort.Broker(config={"group.disconnect.grace.ms": 0, **quick}) as broker:
        kills = 0
        while kills < 3:
            # Enough for this one, even if it has booked much more than was seen before it was killed.
            with kohort.Producer(bootstrap_servers=broker.bootstrap_servers) as producer:
                for number in range(30_000):
                    producer.send("payments", key=f"customer-{number % 10}", value=b"1")
            payments += 30_000
            before = booked()
            with start_example("offsets_in_sqlite.py", broker.bootstrap_servers, str(file)) as run:
                until(lambda before=before: booked() > before, what="some payments", seconds=60)  # type: ignore[misc]
                run.kill()
            # One that had booked all by then was not killed in the middle, and does not count.
            kills += run.returncode == -9
        lines = run_example("offsets_in_sqlite.py", broker.bootstrap_servers, str(file))

    assert lines == [f"10 accounts hold {payments}"]


@pytest.mark.spark
@pytest.mark.timeout(TIMEOUT_SECONDS + 100)
def test_spark_stream(java_of_programs: dict[str, str]) -> None:
    """Counts per key, and the group's offset at the end of the topic."""
    lines = run_example("spark_stream.py", variables=java_of_programs)
    assert [line for line in lines if line.startswith("|carrier-")] == [f"|carrier-{n}|  200|" for n in range(5)]
    assert lines[-1] == "flights-0: committed 1000 of 1000"


def test_broker_of_the_readme(capsys: pytest.CaptureFixture[str]) -> None:
    """Its first block prints an address; its test gets a broker that works."""
    tested: list[str] = []
    names: dict[str, object] = {"run_pipeline": tested.append}
    exec(readme_block("def test_my_pipeline"), names)
    assert capsys.readouterr().out.startswith("127.0.0.1:")
    test = names["test_my_pipeline"]
    assert callable(test)
    with kohort.Broker() as broker:
        test(broker)
        assert tested == [broker.bootstrap_servers]
