"""The examples, and the README's tests with the fixture, run as they stand; its other blocks: test_readme.py."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import kohort

ROOT = Path(__file__).resolve().parents[2]
EXAMPLES = sorted((ROOT / "examples").glob("*.py"))
MOST_LINES = 40


def run_example(name: str) -> list[str]:
    """The lines that an example prints; it must end well and complain of nothing."""
    source = str(Path(kohort.__file__).resolve().parents[1])
    run = subprocess.run(
        [sys.executable, "-W", "error", str(ROOT / "examples" / name)],
        capture_output=True,
        text=True,
        timeout=150,
        check=False,
        env={**os.environ, "PYTHONPATH": source},
    )
    assert run.returncode == 0, run.stderr[-3000:]
    return run.stdout.splitlines()


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


@pytest.mark.spark
def test_spark_stream() -> None:
    """Counts per key, and the group's offset at the end of the topic."""
    pytest.importorskip("pyspark", reason="PySpark is not installed")
    from kohort.spark.java import JavaNotFoundError, use_java

    try:
        use_java()
    except JavaNotFoundError as why:
        pytest.skip(str(why))
    lines = run_example("spark_stream.py")
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
