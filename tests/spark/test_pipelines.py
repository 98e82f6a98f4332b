"""Journal rows in Spark: tables as their documentation says them, the same in a batch and in a stream."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import kohort
from kohort import pipelines
from kohort.client.admin.results.groups import HistoryEvent
from kohort.pipelines.fact import COLUMNS
from kohort.pipelines.following import Follower
from support.dialogues.journal_rows import Followed, GroupRows

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

DOCUMENT = Path(__file__).resolve().parents[2] / "docs" / "reference" / "pipelines.md"

pytestmark = pytest.mark.spark


def consumer_group() -> list[HistoryEvent]:
    """bob comes, is silent, and comes back twice."""
    tell = Followed().two_members()
    tell.goes("bob", "session timeout", released="orders-2")
    tell.after(300).settles("ada", gained="orders-2")
    for name in ("b2", "b3"):
        tell.after(1_000).joins(name, client="bob")
        tell.after(100).settles("ada")
        tell.settles(name)
        tell.after(100).goes(name, "session timeout")
        tell.settles("ada")
    return tell.rows


def killed_member() -> list[HistoryEvent]:
    """bob comes and is killed; the brokers see who reads."""
    tell = Followed().tell
    tell.joins("ada")
    tell.after(100).settles("ada", gained="orders-0 orders-1 orders-2")
    tell.after(900).joins("bob")
    tell.after(50).gives_back("ada", "orders-2")
    tell.after(50).waits("bob")
    tell.after(200).row(
        "assignment_changed", "ada", epoch=3, state="STABLE", released="orders-2", read_ms=tell.at - 200
    )
    tell.after(100).settles("bob", gained="orders-2")
    tell.after(100).row("partitions_read", "bob", partitions="orders-2", read_ms=tell.at - 400, unread_ms=400)
    tell.after(20_000).row("assignment_released", "bob", released="orders-2", read_ms=tell.at - 7_700)
    tell.goes("bob", "session timeout")
    tell.after(50).settles("ada", gained="orders-2")
    tell.after(50).row("partitions_read", "ada", partitions="orders-2", read_ms=tell.at - 7_800, unread_ms=7_800)
    return tell.rows


def classic_group() -> list[HistoryEvent]:
    tell = GroupRows(lambda _: None, at=1_500)
    tell.row("member_joined", "m1", client="eve")
    tell.row("rebalance_began", trigger="member joined")
    tell.after(3_000).row("group_at_rest", state="Stable", generation=1, members=1)
    tell.row("refused", "m2", times=3, api="CommitOffsets", error="ILLEGAL_GENERATION", why="from before")
    return tell.rows


GROUPS = {"billing": consumer_group(), "old": classic_group()}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One group as `kohort group history --json` has it, the other as with `--follow`; and a line that is neither."""
    folder = tmp_path_factory.mktemp("history")
    document = {"group_id": "billing", "events": [asdict(row) for row in GROUPS["billing"]], "counts": {"commits": 3}}
    (folder / "a.json").write_text(json.dumps(document) + "\nhello\n")
    rows = [{"group_id": "old", **asdict(row)} for row in reversed(GROUPS["old"])]
    (folder / "b.json").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return folder


@pytest.fixture(scope="module")
def rows(spark: SparkSession, folder: Path) -> DataFrame:
    return pipelines.read_journal(spark, str(folder))


@pytest.fixture(scope="module")
def facts(rows: DataFrame) -> Iterator[DataFrame]:
    kept = pipelines.facts(rows).persist()
    yield kept
    kept.unpersist()


def collected(frame: DataFrame) -> list[dict[str, Any]]:
    return [row.asDict() for row in frame.collect()]


def in_order(facts: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return sorted(facts, key=lambda fact: json.dumps(fact, sort_keys=True))


def test_rows_of_several_groups_are_followed_each_in_its_order(facts: DataFrame) -> None:
    told = []
    for group_id, rows in GROUPS.items():
        follower = Follower(group_id)
        for row in rows:
            follower.read(row)
        told += [asdict(fact) for fact in follower.finish()]
    assert list(told[0]) == list(COLUMNS) == facts.columns
    assert in_order(collected(facts)) == in_order(told)


def test_tables_say_what_happened(rows: DataFrame, facts: DataFrame) -> None:
    found = {row["cause"]: row for row in collected(pipelines.rebalances(facts).orderBy("began", ascending=False))}
    assert (found["bob joined"]["seconds"], found["bob joined"]["unread_seconds"]) == (0.4, 0.1)
    assert (found["eve joined"]["protocol"], found["eve joined"]["seconds"], found["eve joined"]["moved"]) == (
        "classic", 3.0, None,
    )  # fmt: skip
    gaps = {row["why"]: row for row in collected(pipelines.unread(facts, session_timeout_ms={"billing": 2_000}))}
    assert (gaps["asked back"]["seconds"], gaps["session timeout"]["seconds"]) == (0.1, 2.3)
    (long,) = collected(pipelines.waits(facts, longer_than_s=0.27))
    assert (long["member"], long["why"], long["seconds"]) == ("bob", "waits for others", 0.3)
    flaps = {row["member"]: row for row in collected(pipelines.flapping(facts, every="1 day"))}
    assert (flaps["bob"]["ends"], flaps["bob"]["silent"], flaps["bob"]["is_flapping"]) == (3, 3, True)
    assert {row["member"] for row in collected(pipelines.stays(facts)) if row["ended"] is None} == {"ada", "eve"}
    assert max(row["ratio"] for row in collected(pipelines.skew(facts))) == 2.0
    (refused,) = collected(pipelines.refusals(facts))
    assert (refused["api"], refused["error"], refused["times"]) == ("CommitOffsets", "ILLEGAL_GENERATION", 3)
    told = pipelines.facts(rows, assignors=["range", "sticky"], partitions={"orders": 3})
    moved = pipelines.what_if(told, ["sticky"]).groupBy("group_id").sum("moved")
    assert collected(moved) == [{"group_id": "billing", "sum(moved)": 3}]


def test_the_document_s_example_prints_what_it_shows(
    spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """docs/reference/pipelines.md, its blocks one after the other; `path` is of a group in which bob is killed."""
    path = tmp_path / "billing.json"
    rows = [{"group_id": "billing", **asdict(row)} for row in killed_member()]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    names: dict[str, Any] = {"spark": spark, "path": str(path)}
    blocks = re.findall(r"```python\n(.*?)```\n\n```text\n(.*?)```", DOCUMENT.read_text(), re.DOTALL)
    assert len(blocks) == 3
    for code, shown in blocks:
        exec(code, names)
        assert capsys.readouterr().out == shown


def test_a_stream_tells_what_a_batch_tells_once_it_is_over(
    spark: SparkSession, facts: DataFrame, tmp_path: Path
) -> None:
    """Rows of one group come with several batches; what is known of it is kept between them."""
    folder = tmp_path / "rows"
    folder.mkdir()
    lines = [json.dumps({"group_id": group_id, **asdict(row)}) for group_id in GROUPS for row in GROUPS[group_id]]
    stream = pipelines.facts(pipelines.parse_journal(spark.readStream.text(str(folder))))
    for part in (lines[:9], lines[9:]):
        (folder / f"{len(part)}.json").write_text("\n".join(part))
        query = (
            stream.writeStream.option("checkpointLocation", str(tmp_path / "checkpoint"))
            .format("parquet")
            .trigger(availableNow=True)
            .start(str(tmp_path / "facts"))
        )
        query.awaitTermination()
    told = collected(spark.read.parquet(str(tmp_path / "facts")))
    assert in_order(told) == in_order(collected(facts.where("ended_ms is not null")))


def test_lag_is_read_from_commits_and_logs(spark: SparkSession, broker: kohort.Broker, fill: Any) -> None:
    """Three of five records are committed."""
    fill("lagging", partitions=1, records=5)
    where = {"kafka.bootstrap.servers": broker.bootstrap_servers}
    with kohort.Consumer(
        bootstrap_servers=broker.bootstrap_servers, group_id="slow-é", enable_auto_commit=False
    ) as consumer:
        consumer.assign([kohort.TopicPartition("lagging", 0)])
        consumer.commit({kohort.TopicPartition("lagging", 0): 3})
    source = spark.read.format("kohort").options(**where)
    commits = pipelines.parse_commits(source.option("subscribe", "__consumer_offsets").load())
    mine = commits.where("topic = 'lagging'").persist()
    (commit,) = collected(mine)
    assert (commit["group_id"], commit["partition"], commit["offset"]) == ("slow-é", 0, 3)
    ends = pipelines.parse_ends(source.option("subscribe", "lagging").load(), every="1 day").persist()
    (row,) = collected(pipelines.lag(mine, ends, every="1 day"))
    assert (row["group_id"], row["committed"], row["end_offset"], row["lag"]) == ("slow-é", 3, 5, 2)
