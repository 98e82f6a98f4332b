"""How a run of the benches becomes the tables of docs/reference/performance.md."""

from __future__ import annotations

import runpy
from pathlib import Path
from typing import Any

import pytest

TOOL: dict[str, Any] = runpy.run_path(str(Path(__file__).resolve().parents[3] / "tools" / "docs.py"))
ROW = {
    "what": "one record",
    "unit": "req/s",
    "ours": 19_400.0,
    "ours_range": [9_000.0, 20_000.0],
    "peer": 8_353.0,
    "peer_range": [7_662.0, 8_796.0],
    "peer_name": "Apache Kafka 4.3",
    "ratio": 2.3225,
    "reach": ">= 1.5x",
    "how": "3, after 10 s of it",
    "settings": "",
    "cores": None,
}


def published(**rows: dict[str, Any]) -> dict[str, Any]:
    """A run with one bench, a table for each row."""
    tables = [{"name": name, "title": name, "rows": [row], "left_out": []} for name, row in rows.items()]
    machine = {"cores": 2, "system": "Linux x86_64", "Python": "3.11.7"}
    return {"b": {"date": "2026-11-22", "commit": "abc", "machine": machine, "seconds": 120, "tables": tables}}


def test_row_has_both_sides_with_their_units() -> None:
    assert TOOL["bench_table"](published(t=ROW), ["t"]) == [
        "| what | kohort | peer | peer is | ratio | reach | runs | min–max, kohort / peer |",  # noqa: RUF001
        "| --- | --- | --- | --- | --- | --- | --- | --- |",
        "| one record | 19.4 k req/s | 8,353 req/s | Apache Kafka 4.3 | 2.32× | ≥ 1.5× | 3, after 10 s of it "  # noqa: RUF001
        "| 9,000–20.0 k req/s / 7,662–8,796 req/s |",  # noqa: RUF001
    ]


def test_settings_and_cores_are_columns_where_a_row_has_them() -> None:
    loaded = ROW | {"settings": "ours: flush.messages=2^63-1", "cores": [0.98, 0.31, 1.62, 0.2]}
    head, _, line, other = TOOL["bench_table"](published(t=loaded, u=ROW), ["t", "u"])
    assert head.endswith("| not the default | cores, kohort / peer (generator) |")
    assert line.endswith("| ours: flush.messages=2⁶³-1 | 0.98 / 1.62 (0.31 / 0.20) |")
    assert other.endswith("| - | - |")


def test_row_without_a_peer_has_dashes() -> None:
    alone = ROW | {"peer": None, "peer_range": None, "ratio": None, "peer_name": "no peer", "ours_range": [1.0, 1.0]}
    line = TOOL["bench_table"](published(t=alone), ["t"])[2]
    assert line == "| one record | 19.4 k req/s | - | no peer | - | ≥ 1.5× | 3, after 10 s of it | - |"  # noqa: RUF001


def test_table_that_is_not_measured_yet_is_said() -> None:
    """Of a bench that is new, until a run of it is published."""
    assert TOOL["bench_table"](published(t=ROW), ["gone"]) == ["Not published yet; `make bench` measures it."]


def test_run_is_described_once() -> None:
    """More than one commit or date is said where benches were measured apart."""
    run = published(t=ROW)
    assert TOOL["run_of"](run) == [
        "Measured on 2026-11-22 at commit abc, in 2 minutes: 2 cores, Linux x86_64, Python 3.11.7."
    ]
    run["c"] = run["b"] | {"commit": "def"}
    assert TOOL["run_of"](run)[0].startswith("Measured on 2026-11-22 at commit abc and def, in 4 minutes: ")


@pytest.mark.parametrize(
    ("value", "unit", "text"),
    [
        (5_670_000.0, "rec/s", "5.67 M rec/s"),
        (16_320.0, "us", "16.3 ms"),
        (336.2, "us", "336 us"),
        (0.2014, "s", "0.201 s"),
        (1_227.4, "MB/s", "1,227 MB/s"),
        (400.0, "moves", "400"),
        (0.0, "moves", "0"),
        (2.07, "ms", "2.07 ms"),
    ],
)
def test_figure_reads_as_a_person_writes_it(value: float, unit: str, text: str) -> None:
    assert TOOL["figure"](value, unit) == text
