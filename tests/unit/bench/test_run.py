"""What a run of the benches keeps, compares and publishes; the benches themselves are made up."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from support.builders.benches import load_bench

run = load_bench("run")
report = load_bench("report")


class Benches:
    """Two made-up benches in a place of their own: what each measures next, and what became of a run."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, place: Path) -> None:
        #: The ratio that a bench will give; it fails without one.
        self.ratios: dict[str, float | None] = {"first": 2.0, "second": 3.0}
        self.left_out: list[str] = []
        monkeypatch.setattr(run, "BENCHES", tuple(self.ratios))
        monkeypatch.setattr(run.published, "PUBLISHED", place / "published.json")
        monkeypatch.setattr(run.published, "RESULTS", place / "results" / "latest.json")
        for name in self.ratios:
            module = ModuleType(name)
            module.measure = lambda _, name=name: [self._table(name)]  # type: ignore[attr-defined]
            monkeypatch.setitem(sys.modules, name, module)
        monkeypatch.setattr(run.published, "commit", lambda: "abc")
        monkeypatch.setattr(run.published, "machine", lambda: {"cores": 2})

    def _table(self, name: str) -> Any:
        ratio = self.ratios[name]
        assert ratio is not None, "this one fails"
        row = report.compare("row", [ratio], [1.0], unit="s", reach="report", peer_name="p", how="1")
        return report.Table(name, name, [row], self.left_out)

    def run(self, *arguments: str) -> int:
        code: int = run.measure_all(run.parse(list(arguments)))
        return code

    def kept(self, path: str) -> dict[str, float]:
        """Ratios in a file, by bench."""
        found = json.loads((run.published.PUBLISHED.parent / path).read_text())
        return {name: entry["tables"][0]["rows"][0]["ratio"] for name, entry in found.items()}


@pytest.fixture
def benches(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Benches:
    return Benches(monkeypatch, tmp_path)


def test_failing_bench_loses_nothing_of_the_others(benches: Benches, capsys: pytest.CaptureFixture[str]) -> None:
    benches.ratios["first"] = None
    assert benches.run() == 1
    assert benches.kept("results/latest.json") == {"second": 3.0}
    assert "FAILED: first" in capsys.readouterr().out


def test_run_is_published_when_it_is_whole(benches: Benches) -> None:
    assert benches.run("--publish") == 0
    assert benches.kept("published.json") == {"first": 2.0, "second": 3.0}


def test_run_that_is_not_whole_is_not_published_until_the_rest_is_measured(
    benches: Benches, capsys: pytest.CaptureFixture[str]
) -> None:
    benches.ratios["first"] = None
    assert benches.run("--publish") == 1
    assert not run.published.PUBLISHED.exists()
    assert "Not published: first must be measured" in capsys.readouterr().out
    benches.ratios = {"first": 2.5, "second": None}
    assert benches.run("first", "--publish") == 0
    assert benches.kept("published.json") == {"first": 2.5, "second": 3.0}


def test_part_is_published_beside_the_rest(benches: Benches) -> None:
    """Of a checkout that has not measured the others itself."""
    benches.run("--publish")
    run.published.RESULTS.unlink()
    benches.ratios = {"first": 2.5, "second": None}
    assert benches.run("first", "--publish") == 0
    assert benches.kept("published.json") == {"first": 2.5, "second": 3.0}


def test_run_without_its_peers_is_not_published(benches: Benches) -> None:
    benches.left_out = ["left out: Apache Kafka needs Java and Maven"]
    assert benches.run("--publish") == 1


def test_ratio_that_no_longer_holds_fails_the_run_and_is_named(
    benches: Benches, capsys: pytest.CaptureFixture[str]
) -> None:
    benches.run("--publish")
    benches.ratios = {"first": 1.9, "second": 1.9}
    assert benches.run() == 1
    printed = capsys.readouterr().out
    assert "NO LONGER: second: row is 1.90x, published is 3.00x" in printed
    assert "first: row" not in printed


def test_part_of_the_benches_is_compared_alone(benches: Benches) -> None:
    benches.run("--publish")
    benches.ratios = {"first": 2.0, "second": 1.0}
    assert benches.run("first") == 0
    assert benches.run("second") == 1


def test_whole_run_keeps_nothing_of_the_one_before(benches: Benches) -> None:
    benches.run()
    benches.ratios["first"] = None
    assert benches.run() == 1
    assert benches.kept("results/latest.json") == {"second": 3.0}
