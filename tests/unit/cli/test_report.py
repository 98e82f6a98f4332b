"""`kohort report`: what it refuses, and the page that it writes; Spark's part is in tests/spark/test_report.py."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

import kohort
from kohort.cli.folders import PAGE_MARK, check_page, take_tables_folder
from kohort.cli.main import main
from kohort.cli.report import since_in_ms
from kohort.cli.report.follow import Rows, finish
from kohort.cli.report.page import SECTIONS, render, write_page
from kohort.errors import ConfigError, KohortError
from support.ports import quiet_port
from support.waiting import until

SUMMARY = {"rebalances": 1, "seconds": 0.4, "longest_seconds": 0.4, "moved": 3, "first": None, "last": None}


def report(**lines: list[dict[str, Any]]) -> dict[str, Any]:
    empty: dict[str, Any] = {section.name: [] for section in SECTIONS}
    return {**empty, "points": [], "groups": ["billing"], "made": "now", "notes": [], "summary": SUMMARY, **lines}


def at(seconds: int) -> datetime:
    return datetime.fromtimestamp(seconds, UTC)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("90s", 90), ("30m", 1_800), ("2h", 7_200), ("7d", 604_800)],
)
def test_a_span_counts_back_from_now(text: str, seconds: int) -> None:
    assert since_in_ms(text, now=at(2_000_000)) == (2_000_000 - seconds) * 1000


def test_a_time_may_have_a_zone() -> None:
    assert since_in_ms("1970-01-02T00:00+00:00", now=at(0)) == 86_400_000
    assert since_in_ms(None, now=at(0)) is None


@pytest.mark.parametrize("text", ["2 hours", "yesterday", "", "-3h", "h", "0001-01-01"])
def test_what_is_no_time_is_refused_with_examples(text: str) -> None:
    with pytest.raises(ConfigError, match="30m, 2h or 7d, or a time like 2026-01-31T12:00"):
        since_in_ms(text, now=at(0))


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        ([], "takes a GROUP or --all"),
        (["billing", "--all"], "takes a GROUP or --all"),
        (["billing", "--since", "soon"], "--since 'soon'"),
        (["billing", "--since", "9" * 40 + "d"], "--since '999"),
        (["billing", "--tables", "x"], "--tables needs --follow"),
        (["billing", "--keep", "7d"], "--keep needs --follow"),
        (["billing", "--follow", "--keep", "2026-01-31"], "--keep '2026-01-31': a duration like 12h or 7d"),
        (["billing", "--follow", "--input", "x"], "--follow follows a broker and cannot be used with --input"),
        (["billing", "--follow", "--json"], "--since and --json are for a single report"),
    ],
)
def test_contradictions_are_refused_before_anything_starts(
    words: list[str], sentence: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["report", *words]) == 2
    assert sentence in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["--out", "{0}/none/report.html"], "there is no folder {0}/none"),
        (["--out", "{0}"], "is a folder: a file is expected, such as {0}/report.html"),
        (["--out", "/proc/report.html"], "--out /proc/report.html cannot be written"),
        (["--input", "{0}/none.json"], "there is no such file; kohort group history GROUP --json > FILE makes one"),
        (["-b", "127.0.0.1:1"], "no broker can be reached"),
    ],
)
def test_what_is_missing_is_said_before_spark_starts(
    words: list[str], sentence: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("pyspark", reason="PySpark is not installed")
    monkeypatch.chdir(tmp_path)
    assert main(["report", "--all", *(word.format(tmp_path) for word in words)]) == 1
    assert sentence.format(tmp_path) in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_a_file_that_is_no_report_is_left_alone(tmp_path: Path) -> None:
    page = tmp_path / "index.html"
    page.write_text("<p>mine")
    with pytest.raises(KohortError, match="is no report: it is left alone; --force writes over it"):
        check_page(page, is_forced=False)
    check_page(page, is_forced=True)


def test_a_report_is_replaced_by_the_next(tmp_path: Path) -> None:
    page = tmp_path / "report.html"
    write_page(report(), page)
    check_page(page, is_forced=False)
    write_page(report(groups=["billing", "returns"]), page)
    assert "<h1>2 groups</h1>" in page.read_text()
    assert [path.name for path in tmp_path.iterdir()] == ["report.html"]


def test_a_broker_without_a_history_is_told_for_lag_alone() -> None:
    """Nothing is known of rebalances, which is not the same as that there were none."""
    pytest.importorskip("matplotlib", reason="matplotlib is not installed")
    text = render({"groups": ["billing"], "made": "now", "notes": ["no history"], "lag": [{"group_id": "billing"}]})
    assert re.findall("<h2>(.*?)</h2>", text) == ["Lag"]


def test_tables_that_cannot_be_made_are_said(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(KohortError, match="cannot hold tables: Not a directory; choose another with --tables"):
        take_tables_folder(tmp_path / "file" / "tables")


@pytest.mark.parametrize(
    ("is_whole", "left"), [(True, ["batch=2", "batch=3"]), (False, ["batch=1", "batch=2", "batch=3"])]
)
def test_batches_that_are_put_together_are_in_a_table_once(tmp_path: Path, is_whole: bool, left: list[str]) -> None:
    """The process was stopped before the folders of the batches had gone, or before the draft was whole."""
    for name in ("batch=1", "batch=2", "batch=3", ".together=2"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "part").write_text(name)
    if is_whole:
        (tmp_path / ".together=2" / "_SUCCESS").touch()
    finish(tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == left
    assert ((tmp_path / "batch=2" / "part").read_text() == ".together=2") is is_whole


def test_rows_of_a_broker_that_began_anew_are_written_too(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Its numbers begin anew with it; while it is away there is a word, and no end."""

    def comes_and_goes(address: str, name: str) -> None:
        with kohort.Consumer("orders", bootstrap_servers=address, group_id="billing", client_id=name) as member:
            until(member.assignment, what="a partition", step=lambda: member.poll(0.05))

    with kohort.Broker(port=quiet_port()) as broker:
        port, address = broker.port, broker.bootstrap_servers
        admin = kohort.Admin(bootstrap_servers=address, default_api_timeout_ms=1_000)
        with admin:
            rows = Rows(admin, tmp_path, "billing")
            admin.create_topic("orders", 1)
            comes_and_goes(address, "ada")
            comes_and_goes(address, "bob")
            rows.look()
            rows.look()
            broker.stop()
            rows.look()
            rows.look()
            with kohort.Broker(port=port):
                admin.create_topic("orders", 1)
                comes_and_goes(address, "eve")
                rows.look()
    assert capsys.readouterr().err.count("it is asked again") == 1
    before, after = (path.read_text() for path in sorted(tmp_path.glob("*.json")))
    assert '"bob"' in before and '"eve"' not in before
    assert '"eve"' in after and '"bob"' not in after
    assert len(after.splitlines()) < len(before.splitlines())


def test_tables_take_no_folder_of_somebody_else(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").touch()
    with pytest.raises(KohortError, match="holds files and not the mark of a report's tables"):
        take_tables_folder(tmp_path)
    assert take_tables_folder(take_tables_folder(tmp_path / "new")) == tmp_path / "new"


class Outline(HTMLParser):
    """Which tags a page has, and whether they nest."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.seen: list[str] = []
        self.links: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen.append(tag)
        self.links += [value or "" for name, value in attrs if name in ("href", "src", "xlink:href")]
        if tag not in ("meta", "br"):
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.links += [value or "" for name, value in attrs if name in ("href", "src", "xlink:href")]

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


@pytest.fixture
def full() -> str:
    pytest.importorskip("matplotlib", reason="matplotlib is not installed")
    return render(
        report(
            points=[{"began": "2026-01-31 12:00:00.000", "seconds": 0.4, "why": "member joined"}],
            unread=[{"group_id": "<b>", "topic": "a&b", "partition": 0, "seconds": 2.5, "longest_because": "away"}],
            lag=[{"group_id": "billing", "most": 1234567}],
            lag_points=[{"group_id": "<i>", "time": "2026-01-31 12:00:00.000", "lag": 7}],
            what_if=[{"group_id": "billing", "rebalances": 1, "as_it_was": 3, "range": None}],
            notes=["a < b"],
        )
    )


@pytest.mark.large
def test_the_page_is_whole_and_needs_nothing(full: str) -> None:
    outline = Outline()
    outline.feed(full)
    assert outline.open == []
    assert outline.seen.count("svg") == 4
    assert not {"script", "link", "img", "iframe"} & set(outline.seen)
    assert all(link.startswith("#") for link in outline.links)
    assert PAGE_MARK in full[:1_000]


@pytest.mark.large
def test_names_are_text_whatever_is_in_them(full: str) -> None:
    """Groups, topics and members are called what their users like; in pictures too."""
    assert "<b>2" not in full and "<td>&lt;b&gt;</td>" in full and "<td>a&amp;b</td>" in full
    assert "<i>" not in full and "a &lt; b" in full


def test_numbers_are_for_people_and_nothing_is_a_dash(full: str) -> None:
    assert "<td class=n>1,234,567</td>" in full
    assert "<td class=n>-</td>" in full


def test_a_line_has_its_beginning_and_seconds_in_one_line() -> None:
    line = {"group_id": "billing", "began": "2026-01-31 12:00:00.000", "ended": "2026-01-31 12:00:02.500"}
    text = render(report(waits=[{**line, "seconds": 2.5}, {**line, "ended": None, "seconds": None}]))
    assert "<td class=t>2026-01-31 12:00:00.000</td><td class=n>2.500</td>" in text
    assert "<td class=n>-</td>" in text and "12:00:02.500" not in text


def test_pictures_take_the_page_s_colours_and_have_names_of_their_own(full: str) -> None:
    assert "currentColor" in full and "#010203" not in full
    names = re.findall(r' id="([^"]+)"', full)
    assert len(names) == len(set(names))
    assert {link[1:] for link in re.findall(r'href="(#[^"]+)"', full)} <= set(names)


def test_a_group_that_is_never_behind_is_drawn_at_whole_records() -> None:
    pytest.importorskip("matplotlib", reason="matplotlib is not installed")
    points = [{"group_id": "billing", "time": f"2026-01-31 12:0{minute}:00.000", "lag": 0} for minute in range(5)]
    ticks = re.findall(r">([\d.]+)</text>", render(report(lag_points=points)))
    assert "1" in ticks and not any("." in tick for tick in ticks)


def test_a_report_of_nothing_says_so() -> None:
    text = render(report())
    assert all(section.empty in text for section in SECTIONS)
    assert "<svg" not in text
