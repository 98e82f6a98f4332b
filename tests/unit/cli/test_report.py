"""`kohort report`: what it refuses, and the page that it writes; Spark's part is in tests/spark/test_report.py."""

from __future__ import annotations

import json
import re
from datetime import UTC, datetime
from html import escape
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
from kohort.cli.report.timelines import draw_group
from kohort.errors import ConfigError, KohortError
from kohort.journal.explain.explaining import explain
from kohort.journal.explain.explanation import GroupExplanation, Ownership
from kohort.journal.words import write_partitions
from support.builders.group_reports import report, report_of, two_members
from support.dialogues.journal_rows import GroupRows
from support.ports import quiet_port
from support.waiting import until


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
    assert "<h1><bdi>2 groups</bdi></h1>" in page.read_text()
    assert [path.name for path in tmp_path.iterdir()] == ["report.html"]


def test_a_broker_without_a_history_is_told_for_lag_alone() -> None:
    """Nothing is known of rebalances, which is not the same as that there were none."""
    readings = [{"group_id": "billing", "time_ms": 1_000 * number, "lag": 7 * number} for number in range(3)]
    line = {"group_id": "billing", "state": "Empty", "rebalances": None, "lag_now": 14, "most": 14, "advice": "Nothing"}
    text = render(
        {"groups": ["billing"], "made": "now", "notes": ["no history"], "by_group": [line], "lag_points": readings}
    )
    assert re.findall("<h2>(.*?)</h2>", text) == ["Groups", "Owners over time"]
    assert ">14 at most</text>" in text


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
    return render(
        report_of(
            {"<i>": two_members().rows, "billing": two_members().rows},
            lag=[7, 1_234_567],
            unread=[{"group_id": "<b>", "topic": "a&b", "partition": 0, "seconds": 2.5, "longest_because": "away"}],
            what_if=[{"group_id": "billing", "rebalances": 1_234_567, "as_it_was": 3, "range": None}],
            notes=["a < b"],
        )
    )


def test_the_page_is_whole_and_needs_nothing(full: str) -> None:
    outline = Outline()
    outline.feed(full)
    assert outline.open == []
    assert not {"script", "link", "img", "iframe"} & set(outline.seen)
    names = re.findall(r' id="([^"]+)"', full)
    assert len(names) == len(set(names))
    assert outline.links and {link.removeprefix("#") for link in outline.links} <= set(names)
    assert PAGE_MARK in full[:1_000]


def test_names_are_text_whatever_is_in_them(full: str) -> None:
    """Groups, topics and members are called what their users like; in pictures too."""
    assert "<b>" not in full and "<bdi>&lt;b&gt;</bdi>" in full and "<bdi>a&amp;b</bdi>" in full
    assert "<i>" not in full and "a &lt; b" in full


def test_numbers_are_for_people_and_nothing_is_a_dash(full: str) -> None:
    assert ">1,234,567</td>" in full and ">-</td>" in full
    assert "2.5 s" in full, "as kohort group why tells durations"


def test_a_group_s_picture_tells_what_why_tells(full: str) -> None:
    rows = two_members().rows
    found = explain("billing", rows)
    assert len(found.rebalances) == 2
    for each in found.rebalances:
        assert full.count(f"<title>{escape(each.sentence)}</title>") == 4, "a tick, broad and narrow, of two groups"
        assert full.count(f" {escape(each.sentence)} ") == 2 and escape(each.timing) in full
    assert len(re.findall('class="unread"', full)) == 0, "these rows tell of no fetches"


def test_times_without_a_reader_are_drawn_as_long_as_why_says() -> None:
    tell = two_members()
    tell.goes("bob", "session timeout", released="orders-2")
    tell.after(700).settles("ada", gained="orders-2")
    released_ms, granted_ms = tell.at - 700, tell.at
    read = {"from": "bob", "partitions": "orders-2", "read_ms": released_ms - 300, "unread_ms": 1_100}
    tell.after(100).row("partitions_read", "ada", **read)
    found = explain("billing", tell.rows)
    picture = draw_group(found, end_ms=tell.at)
    (gap,) = [span for lane in picture["lanes"] for span in lane["spans"] if span["is_unread"]]
    assert found.last is not None and found.last.unread_ms == gap["to_ms"] - gap["from_ms"] == 1_100
    assert picture["unread_ms"] == 1_100 and granted_ms > released_ms
    assert gap["said"] == "no member read it for 1.1 s"


def test_partitions_with_one_history_share_a_lane_and_a_page_of_many_is_a_megabyte_at_most() -> None:
    """100 groups of 10,000 partitions, with names of 300 characters, and more rebalances than there is room for."""
    members, partitions = [f"member-{'m' * 280}-{number}" for number in range(10)], 1_000
    tell = GroupRows(read=lambda _: None, at=1_700_000_000_000)
    shares: dict[str, str] = {}
    for number, name in enumerate(members):
        shares[name] = write_partitions(("orders", number * partitions + each) for each in range(partitions))
        tell.joins(name)
        tell.after(100).settles(name, gained=shares[name])
    for number in range(60):
        name = members[number % 10]
        tell.after(5_000).goes(name, "session timeout", released=shares[name])
        tell.after(300).joins(name)
        tell.after(100).settles(name, gained=shares[name])
    found = explain("billing", tell.rows[-200:])
    picture = draw_group(found, end_ms=tell.at, limits=(9, 12, 4))
    assert picture["partitions"] <= 10_000 and 0 < len(picture["lanes"]) <= 10
    assert picture["seams"] == [] and sum(bar["count"] for bar in picture["density"]) == len(found.rebalances)
    names = [f"{number}{'g' * 300}" for number in range(130)]
    readings = [picture["from_ms"] + number * 1_000 for number in range(200)]
    lines = [{"group_id": name, "advice": picture["advice"], "unread_seconds": 1.0} for name in names[:100]]
    text = render(
        report(
            groups=names,
            by_group=lines,
            pictures=dict.fromkeys(names[:100], picture),
            lag_points=[{"group_id": name, "time_ms": at, "lag": at} for name in names[:100] for at in readings],
        )
    )
    assert len(text.encode()) <= 1_000_000
    assert "30 more are left out" in text and "too many for a line each" in text


def test_a_group_of_very_many_members_is_drawn_in_bounds() -> None:
    owners = tuple(
        Ownership(
            topic="orders", partition=number % 7, member=f"m{number}", began_ms=number * 10, ended_ms=number * 10 + 9,
            end="asked back", sentence="x" * 500,
        )
        for number in range(100_000)
    )  # fmt: skip
    found = GroupExplanation(group_id="g", is_gone=False, rebalances=(), owners=owners, now=(), summary="at rest")
    picture = draw_group(found, end_ms=1_000_000)
    assert len(picture["lanes"]) == 7 and len(json.dumps(picture)) < 10_000
    (span,) = picture["lanes"][0]["spans"]
    assert span["said"] == "14,286 owners, one after the other"


def test_a_history_with_holes_is_drawn() -> None:
    """Rows were dropped, or are of a member of which nothing else is known; some are there twice."""
    rows = two_members().rows
    for kept in (rows[4:], rows[::2], rows[5:6], rows[-1:], sorted([*rows, *rows], key=lambda row: row.sequence)):
        picture = draw_group(explain("billing", kept, is_complete=False), end_ms=kept[-1].time_ms)
        assert picture["from_ms"] < picture["to_ms"]
        render(report(by_group=[{"group_id": "billing", "advice": "Nothing"}], pictures={"billing": picture}))


@pytest.mark.parametrize(
    ("line", "lag", "sentence"),
    [
        ({}, {}, "Nothing"),
        ({"ends": 5, "silent": 0, "member": "ada"}, {}, "Find out why ada ends: 5 times within an hour, none of them"),
        ({}, {"lag_now": 7, "most": 9}, "Start a member: 7 records wait, and the group has none"),
        ({"still": 2}, {}, "Look for the owner of 2 partitions: no member reads there"),
    ],
)
def test_the_table_of_groups_says_what_to_do(line: dict[str, Any], lag: dict[str, Any], sentence: str) -> None:
    aggregates = pytest.importorskip("kohort.cli.report.aggregates", reason="PySpark is not installed")
    assert aggregates.advise(line, lag, state="Empty", known="").startswith(sentence)
    assert aggregates.advise(line, lag, state="Empty", known="Look at ada") == "Look at ada"


def test_a_line_has_its_beginning_and_duration_in_one_line() -> None:
    line = {"group_id": "billing", "began": "2026-01-31 12:00:00.000", "ended": "2026-01-31 12:00:02.500"}
    text = render(report(waits=[{**line, "seconds": 2.5}, {**line, "ended": None, "seconds": None}]))
    assert ">2026-01-31 12:00:00</span>" in text and ">2.5 s</span>" in text
    assert ">-</td>" in text and "12:00:02" not in text


def test_heads_are_words_and_not_names_of_columns(full: str) -> None:
    """But for assignors, which have no other name."""
    assert not [head for head in re.findall("<th.*?>(.*?)</th>", full) if "_" in head]


def test_a_report_of_nothing_says_so() -> None:
    text = render(report())
    assert all(section.empty in text for section in SECTIONS)
    assert "<svg" not in text
