"""Whether a measurement still gives what is published."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from support.builders.benches import load_bench

published = load_bench("published")


def bench(*rows: tuple[str, float | None], peer: float | None = 1.0, least: float = 9.0) -> dict[str, Any]:
    """A measured bench with one table: (row, ratio)."""
    row_of = {"peer": peer, "least_ratio": least}
    table = {
        "name": "t",
        "title": "T",
        "left_out": [],
        "rows": [row_of | {"what": what, "ratio": ratio} for what, ratio in rows],
    }
    return {"seconds": 90, "tables": [table]}


def findings(old: dict[str, Any], new: dict[str, Any]) -> list[tuple[bool, str]]:
    found = published.compare_with_published({"b": old}, {"b": new}, ["b"])
    return [(finding.is_failure, finding.what) for finding in found]


@pytest.mark.parametrize("ratio", [0.67, 1.0, 1.33])
def test_ratio_within_a_third_holds(ratio: float) -> None:
    """Two thirds of the published ratio and more; what is a little better is not worth a word."""
    assert findings(bench(("row", 1.0)), bench(("row", ratio))) == []


def test_ratio_below_two_thirds_fails_and_names_the_row() -> None:
    assert findings(bench(("row", 3.0)), bench(("row", 1.99))) == [(True, "t: row is 1.99x, published is 3.00x")]


def test_ratio_above_four_thirds_is_said_and_holds() -> None:
    assert findings(bench(("row", 3.0)), bench(("row", 4.01))) == [
        (False, "t: row is 4.01x, published is 3.00x: better")
    ]


def test_ratio_that_the_published_runs_gave_themselves_holds() -> None:
    """Their own spread is printed beside them."""
    assert findings(bench(("row", 3.0), least=1.2), bench(("row", 1.3))) == []
    assert [is_failure for is_failure, _ in findings(bench(("row", 3.0), least=1.2), bench(("row", 1.1)))] == [True]


def test_published_row_that_is_not_measured_fails() -> None:
    """A row that was renamed or deleted is a figure that the bench no longer gives."""
    new = findings(bench(("old", 1.0)), bench(("new", 1.0)))
    assert new == [(True, "t: old is published, but was not measured"), (False, "t: new is not published")]


def test_row_without_a_peer_is_not_compared() -> None:
    """Its value is the machine's as much as ours."""
    assert findings(bench(("row", None), peer=None), bench(("row", None), peer=None)) == []


def test_peer_that_cannot_be_had_here_fails_nothing() -> None:
    """Without Java there is nothing to compare with, and that is said."""
    new = bench(("row", None), peer=None)
    assert findings(bench(("row", 3.0)), new) == [(False, "t: row was not compared: its peer was left out")]


def test_better_without_limit_holds() -> None:
    """None are better than some: there is no ratio then, but a peer."""
    assert findings(bench(("moves", 1.0)), bench(("moves", None))) == []


def test_only_the_benches_that_were_run_are_compared() -> None:
    reference = {"a": bench(("row", 3.0)), "b": bench(("row", 3.0))}
    results = {"a": bench(("row", 1.0)), "b": bench(("row", 3.0))}
    assert published.compare_with_published(reference, results, ["b"]) == []
    assert [found.what for found in published.compare_with_published(reference, results, ["c"])] == [
        "c is not published"
    ]


def test_run_is_whole_when_every_bench_had_its_peer() -> None:
    """What was left out of one keeps the run from being published."""
    results = {"a": bench(("row", 1.0)), "b": bench(("row", 1.0))}
    results["b"]["tables"][0]["left_out"].append("left out: Apache Kafka needs Java and Maven")
    assert published.missing(results, ["a", "b", "c"]) == ["b", "c"]


def test_measurements_are_kept_as_they_are(tmp_path: Path) -> None:
    path = tmp_path / "results" / "latest.json"
    assert published.load(path) == {}
    published.store(path, {"b": bench(("1 MB x", 1.5))})
    assert published.load(path) == json.loads(path.read_text()) == {"b": bench(("1 MB x", 1.5))}


def test_duration_is_told_from_the_published_run() -> None:
    run = {"a": bench(), "b": bench()}
    assert published.expected(run, ["a"]) == "about 90 s"
    assert published.expected(run, ["a", "b"]) == "about 3 minutes"
    assert published.expected(run, ["a", "c"]) == "how long it takes is not known yet"
