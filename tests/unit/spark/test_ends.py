"""How a query finds out that nothing is in doubt, and ends clean: by its own checkpoint, or because it is told."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import kohort
from kohort.spark import planning
from kohort.spark.checkpoint import BatchState, read_batch_state
from kohort.spark.driver_channel import BatchDone, Drain, fingerprint, is_open, post
from kohort.spark.member.thread import GroupMember
from kohort.spark.offsets import OffsetJson
from support.dialogues.spark_groups import committed, of_group, share, total
from support.dialogues.spark_query import Checkpoint, Start, places
from support.waiting import until


def test_a_query_that_is_stopped_between_two_triggers_comes_back_and_doubles_nothing(
    start: Start, topic: Any, fill: Any, admin: kohort.Admin
) -> None:
    """Spark has the batch in its commit log and has not told: the partition waits for the query's return."""
    name = topic(2)
    first, second = share(start, admin, name)
    fill(name, {0: 40, 1: 40})
    assert first.trigger()
    first.stop()
    until(lambda: len(second.checkpoint.sink) == 40, what="the other reads its own", step=second.trigger)
    again = start(**of_group(name), checkpoint=first.checkpoint)
    until(
        lambda: sum(each or 0 for each in committed(admin, f"{name}-g").values()) == 80,
        what="all is committed",
        step=lambda: (again.trigger(), second.trigger()),
    )
    assert total(again, second) == places(name, {0: range(40), 1: range(40)})


def test_a_query_that_can_look_into_its_checkpoint_ends_clean(
    start: Start, topic: Any, fill: Any, admin: kohort.Admin, tmp_path: Path
) -> None:
    """Stopped between two triggers: it finds the batch in the commit log, tells the group and frees its partitions."""
    name = topic(1)
    fill(name, {0: 40})
    checkpoint = Checkpoint(location=tmp_path / "a checkpoint")
    query = start(**of_group(name), checkpointLocation=f"file://{tmp_path}/a%20checkpoint", checkpoint=checkpoint)
    assert query.trigger()
    query.stop()
    assert admin.describe_group(f"{name}-g").members == ()
    assert committed(admin, f"{name}-g") == {0: 40}


def test_a_batch_that_spark_has_not_written_down_is_not_in_doubt(
    start: Start, topic: Any, fill: Any, admin: kohort.Admin, tmp_path: Path
) -> None:
    """It was planned, and no run will ever repeat it."""
    name = topic(1)
    checkpoint = Checkpoint(location=tmp_path)
    query = start(**of_group(name), checkpointLocation=tmp_path, checkpoint=checkpoint)
    fill(name, {0: 3})
    query.run()
    fill(name, {0: 3})
    query.reader.latestOffset(query.start_json(), query.reader.getDefaultReadLimit())
    query.stop()
    other = start(**of_group(name))
    other.run()
    assert total(query, other) == places(name, {0: range(6)})


def test_a_query_that_is_told_that_its_batch_is_finished_ends_clean(
    start: Start, topic: Any, fill: Any, admin: kohort.Admin
) -> None:
    """By the driver's listener; the group has the offset without another trigger."""
    name = topic(1)
    fill(name, {0: 40})
    query = start(**of_group(name))
    assert query.trigger()
    assert query.checkpoint.finished is not None
    post(query.name, BatchDone("a" * 64))
    post(query.name, BatchDone(fingerprint(query.checkpoint.finished)))
    until(lambda: committed(admin, f"{name}-g") == {0: 40}, what="the group has it")
    query.stop()
    assert admin.describe_group(f"{name}-g").members == ()


def test_what_is_said_of_a_batch_is_not_taken_for_the_next_one(
    start: Start, topic: Any, fill: Any, admin: kohort.Admin, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It comes when the next one is planned, and Spark has not got its end yet."""
    name = topic(1)
    fill(name, {0: 6})
    query = start(**of_group(name, maxOffsetsPerTrigger=3))
    assert query.trigger()
    finished = query.checkpoint.finished
    assert finished is not None
    note_planned = GroupMember.note_planned

    def say_then_note(member: GroupMember, end: OffsetJson) -> None:
        post(query.name, BatchDone(fingerprint(finished)))
        query.stop()
        note_planned(member, end)

    monkeypatch.setattr(GroupMember, "note_planned", say_then_note)
    assert query.plan()
    assert committed(admin, f"{name}-g") == {0: 3}
    assert [each.instance_id for each in admin.describe_group(f"{name}-g").members] == [query.name]


def test_what_spark_has_logged_is_told_before_it_asks_again(
    start: Start, topic: Any, fill: Any, admin: kohort.Admin, tmp_path: Path
) -> None:
    """P3: nobody waits for a trigger that may be far away, neither for the offset nor for a partition that moves."""
    name = topic(2)
    fill(name, {0: 40, 1: 40})
    query = start(**of_group(name, checkpointLocation=tmp_path), checkpoint=Checkpoint(location=tmp_path))
    assert query.plan()
    query.finish(query.execute())
    until(lambda: committed(admin, f"{name}-g") == {0: 40, 1: 40}, what="the group has it")
    fill(name, {0: 5, 1: 5})
    start(**of_group(name)).read(5)


def test_a_query_that_drains_plans_nothing_more(start: Start, topic: Any, fill: Any, admin: kohort.Admin) -> None:
    """Its batch is finished and committed first; then others may have everything."""
    name = topic(1)
    fill(name, {0: 400})
    query = start(**of_group(name, maxOffsetsPerTrigger=1))
    assert query.plan()
    assert post(query.name, Drain())
    query.finish(query.execute())
    until(lambda: not query.plan(), what="it drains", step=lambda: query.finish(query.execute()))
    until(lambda: not is_open(query.name), what="it leaves by itself")
    assert not query.plan()
    read = len(query.checkpoint.sink)
    assert read < 400
    assert committed(admin, f"{name}-g") == {0: read}
    assert admin.describe_group(f"{name}-g").members == ()


@pytest.mark.parametrize("when", ["before", "after"])
def test_a_query_that_drains_while_spark_asks_for_topics_plans_nothing(
    start: Start, topic: Any, fill: Any, admin: kohort.Admin, monkeypatch: pytest.MonkeyPatch, *, when: str
) -> None:
    """It has nothing open and leaves at once: neither is that an error, nor is an assignment waited for."""
    name = topic(1)
    fill(name, {0: 4})
    query = start(**of_group(name))
    query.run()
    find_topics = planning.find_topics

    def drain_meanwhile(*arguments: Any) -> Any:
        found = find_topics(*arguments) if when == "after" else None
        post(query.name, Drain())
        until(lambda: not is_open(query.name), what="it leaves by itself")
        return found or find_topics(*arguments)

    monkeypatch.setattr(planning, "find_topics", drain_meanwhile)
    fill(name, {0: 4})
    assert not query.plan()
    assert committed(admin, f"{name}-g") == {0: 4}


def told_of_checkpoint(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [message for message in caplog.messages if "checkpoint" in message]


def test_checkpoint_of_another_query_is_said_once(
    start: Start, topic: Any, fill: Any, *, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The option names a folder in which Spark does not write down what this query has planned."""
    name = topic(1)
    query = start(**of_group(name, checkpointLocation=tmp_path / "other"))
    for count in (5, 10):
        fill(name, {0: 5})
        query.read(count)
    assert told_of_checkpoint(caplog) == [
        f"checkpointLocation of the source, {tmp_path / 'other'}, has no batch of this query: give it the folder that "
        "writeStream's checkpointLocation names, or leave it out"
    ]
    caplog.clear()
    own = start(**of_group(topic(1), checkpointLocation=tmp_path))
    own.checkpoint.location = tmp_path
    own.run()
    own.stop()
    assert told_of_checkpoint(caplog) == []


@pytest.mark.large
@pytest.mark.parametrize(
    ("folder", "listens", "line"),
    [
        ("temporary-0f1e2d3c-0f1e-2d3c-4b5a-0f1e2d3c4b5a", False, "the query has no checkpointLocation"),
        ("kept", False, None),
        (None, False, "the query's checkpoint was not found"),
        (None, True, None),
    ],
)
def test_query_without_a_checkpoint_that_lasts_is_said_once(
    start: Start,
    topic: Any,
    fill: Any,
    *,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    folder: str | None,
    listens: bool,
    line: str | None,
) -> None:
    """What the lookout has found, or has given up to find: the listener takes its place."""
    name = topic(1)
    query = start(**of_group(name))
    query.plan()
    member = query.reader._ownership
    assert isinstance(member, GroupMember)
    if listens:
        post(query.name, BatchDone("any"))
    until(lambda: member._has_listener is listens, what="it has heard of the driver")
    until(lambda: not member._discovery.is_watching, what="nothing is looked for any more")
    member._discovery.location = None if folder is None else str(tmp_path / folder)
    member._discovery._left = 0
    fill(name, {0: 5})
    query.read(5)
    query.stop()
    assert [each.startswith(line or "none") for each in told_of_checkpoint(caplog)] == ([True] if line else [])


def test_checkpoint_that_is_longer_than_any_says_nothing(tmp_path: Path) -> None:
    """Nothing of it is read into memory: a file with a hole is as long as one likes."""
    end: OffsetJson = {"kohort": 2, "name": "q-1", "topics": {}}
    checkpoint = Checkpoint(location=tmp_path)
    checkpoint.log_offset(json.dumps(end))
    assert read_batch_state(str(tmp_path), end) is BatchState.OPEN
    with (tmp_path / "offsets" / "0").open("ab") as file:
        file.write(b"\n")
        file.truncate(65 << 20)
    assert read_batch_state(str(tmp_path), end) is not BatchState.OPEN
