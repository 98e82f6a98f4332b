"""`kohort report` from a living broker to a page; and its tables, kept while a group goes on."""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import asdict
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import kohort
from kohort.cli.folders import take_tables_folder
from kohort.cli.parser import Parser
from kohort.cli.report import add_parser
from kohort.cli.report.aggregates import aggregate, tables_of
from kohort.cli.report.follow import put_together, read_table, start_query
from kohort.cli.report.gather import gather_groups
from kohort.cli.report.page import render
from kohort.client.admin.results.groups import HistoryEvent
from kohort.ids import JOURNAL_TOPIC
from kohort.journal.explain.explaining import explain
from support.dialogues.journal_rows import Followed
from support.waiting import until

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.timeout(400)]


def options_of(*words: str) -> argparse.Namespace:
    parser = Parser()
    add_parser(parser.add_subparsers())
    return parser.parse_args(["report", *words])


@pytest.fixture(scope="module")
def reported(spark: SparkSession, broker: kohort.Broker, admin: kohort.Admin, tmp_path_factory: Any) -> dict[str, Any]:
    """A group of two, one of which leaves after some records; what Spark makes of its history."""
    admin.create_topic("reported", 4)
    address = broker.bootstrap_servers
    with kohort.Producer(bootstrap_servers=address) as producer:
        producer.send_many("reported", [b"%d" % number for number in range(40)])
    with ExitStack() as stack:
        members = {
            name: stack.enter_context(
                kohort.Consumer(
                    "reported", bootstrap_servers=address, group_id="told", client_id=name, auto_offset_reset="earliest"
                )
            )
            for name in ("ada", "bob")
        }
        until(
            lambda: [len(member.assignment()) for member in members.values()] == [2, 2],
            what=lambda: f"two partitions each: {standing(admin, members)}",
            step=lambda: poll(members),
        )
        until(
            lambda: sum(row.committed or 0 for row in admin.group_offsets("told")) == 40,
            what=lambda: f"40 records committed: {standing(admin, members)}",
            step=lambda: poll(members),
        )
        members.pop("bob").close()
        until(
            lambda: len(members["ada"].assignment()) == 4,
            what=lambda: f"what bob had: {standing(admin, members)}",
            step=lambda: poll(members),
        )
        gathered = gather_groups(options_of("told", "-b", address), tmp_path_factory.mktemp("gathered"))
        # What `kohort group why` makes of the same rows; the group goes on.
        rows = [json.loads(line) for line in Path(gathered.paths[0]).read_text().splitlines()]
        events = [HistoryEvent(**{name: row[name] for name in row if name != "group_id"}) for row in rows]
        why = explain("told", events, now_ms=gathered.now_ms)
        return {**aggregate(tables_of(spark, gathered, since_ms=None), gathered), "why": why}


def test_a_report_goes_back_behind_what_the_broker_remembers(spark: SparkSession, tmp_path: Path) -> None:
    """In the topic of the journal, where the last rows may not be yet; a row that is in both counts once."""
    with (
        kohort.Broker(data_dir=str(tmp_path / "data"), config={"journal.ring.rows": 12}) as broker,
        kohort.Admin(bootstrap_servers=broker.bootstrap_servers) as admin,
    ):
        address = broker.bootstrap_servers
        admin.create_topic("reported", 4)
        for _ in range(3):
            with kohort.Consumer("reported", bootstrap_servers=address, group_id="told", client_id="ada") as member:
                until(lambda: len(member.assignment()) == 4, what="all of it", step=lambda: member.poll(0.05))
        with kohort.Consumer(bootstrap_servers=address, auto_offset_reset="earliest") as reader:
            reader.assign([kohort.TopicPartition(JOURNAL_TOPIC, 0)])
            ends: list[kohort.ConsumerRecord] = []

            def read() -> None:
                ends.extend(row for row in reader.poll(0.05) if b'"member_removed"' in (row.value or b""))

            until(lambda: len(ends) == 3, what="the ends of three stays", step=read)
        gathered = gather_groups(options_of("told", "--no-lag", "-b", address), tmp_path)
        report = aggregate(tables_of(spark, gathered, since_ms=None, assignors=()), gathered)
    assert report["notes"] == []
    assert [line["ends"] for line in report["flapping"]] == [3]
    assert report["summary"]["rebalances"] == len({line["epoch"] for line in report["rebalances"]})


def poll(members: Mapping[str, kohort.Consumer]) -> None:
    for member in members.values():
        member.poll(0.05)


def standing(admin: kohort.Admin, members: Mapping[str, kohort.Consumer]) -> str:
    """Where the members stand, and what the group has of it."""
    read = {
        name: {str(each): member.position(each) for each in member.assignment()} for name, member in members.items()
    }
    committed = {f"{row.topic}-{row.partition}": (row.committed, row.end_offset) for row in admin.group_offsets("told")}
    return f"positions {read}, committed and end {committed}"


def test_the_report_says_what_happened(reported: dict[str, Any]) -> None:
    assert reported["groups"] == ["told"] and reported["notes"] == []
    assert reported["summary"]["rebalances"] == len(reported["rebalances"]) >= 2
    assert reported["rebalances"][0]["cause"] == "bob left"
    assert {line["partition"] for line in reported["unread"]} <= {0, 1, 2, 3} and len(reported["unread"]) >= 2
    (skew,) = reported["skew"]
    assert (skew["members"], skew["partitions"], skew["ratio"]) == (1, 4, 1.0)
    (moved,) = reported["what_if"]
    assert (moved["as_it_was"], moved["uniform"]) == (reported["summary"]["moved"], reported["summary"]["moved"])
    (lag,) = reported["lag"]
    assert (lag["group_id"], lag["lag_now"]) == ("told", 0)
    json.dumps({name: lines for name, lines in reported.items() if name != "why"})


def test_page_and_why_and_journal_have_the_same_numbers(reported: dict[str, Any]) -> None:
    """The page's table counts by Spark's facts, its picture by the explanation; both are of the journal's rows."""
    (line,) = reported["by_group"]
    why = reported["why"]
    assert (line["group_id"], line["state"], line["rebalances"]) == ("told", "Stable", len(why.rebalances))
    assert round(1000 * line["unread_seconds"]) == sum(
        move.unread_ms or 0 for each in why.rebalances for move in each.moves
    )
    took = {round(1000 * each["seconds"]) for each in reported["rebalances"]}
    assert took == {(each.ended_ms or 0) - each.began_ms for each in why.rebalances}
    picture = reported["pictures"]["told"]
    assert [each["said"] for each in picture["told"]] == [each.sentence for each in why.rebalances]
    assert picture["unread_ms"] == round(1000 * line["unread_seconds"])
    page = render(reported)
    assert all(escape(each.sentence) in page for each in why.rebalances)
    assert picture["partitions"] == 4 and page.count('class="lanes"') == 4, "owners and density, broad and narrow"


def test_tables_are_kept_while_a_group_goes_on(spark: SparkSession, tmp_path: Path) -> None:
    """Two looks at a history, the second of which begins again: a process that was stopped has forgotten the first."""
    place, out = take_tables_folder(tmp_path / "tables"), tmp_path / "report.html"
    rows = Followed().two_members().rows
    since_1970_s = 100 * 365 * 86_400
    query = start_query(spark, place, out, group="billing", keep_s=since_1970_s)
    try:
        for name, part in (("1.json", rows[:7]), ("2.json", rows)):
            lines = [json.dumps({"group_id": "billing", **asdict(row)}) for row in part]
            (place / "history" / f".{name}").write_text("\n".join(lines))
            (place / "history" / f".{name}").rename(place / "history" / name)
            query.processAllAvailable()
    finally:
        query.stop()
    assert causes(spark, place, since_ms=0) == [("ada joined", 0), ("bob joined", 1)]
    assert "bob joined" in out.read_text()

    # Both batches are put together; the end of the first rebalance is too long ago.
    put_together(spark, place / "rebalances", before=2, since_ms=rows[7].time_ms, most=1)
    assert [path.name for path in (place / "rebalances").glob("batch=*")] == ["batch=1"]
    assert causes(spark, place, since_ms=0) == [("bob joined", 1)]


def causes(spark: SparkSession, place: Path, *, since_ms: int) -> list[tuple[Any, ...]]:
    kept = read_table(spark, place / "rebalances", since_ms=since_ms).orderBy("began").select("cause", "moved")
    return [tuple(row) for row in kept.collect()]
