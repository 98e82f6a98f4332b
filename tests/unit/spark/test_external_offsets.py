"""Offsets of a group that are set from outside while its query is down: an order, which the query follows."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

import kohort
from kohort import TopicPartition
from kohort.spark.offsets import to_json
from support.dialogues.spark_groups import committed, of_group
from support.dialogues.spark_query import Checkpoint, Query, Start, places
from support.waiting import until

SetOffset = Callable[[str, int], None]


@pytest.fixture
def set_offset(admin: kohort.Admin) -> SetOffset:
    """`set_offset("orders", 10)`: of partition 0, in the group of `of_group`, as tools do it."""

    def commit(name: str, offset: int) -> None:
        admin.alter_group_offsets(f"{name}-g", {TopicPartition(name, 0): offset})

    return commit


def stopped(start: Start, fill: Any, name: str, count: int = 100, **options: Any) -> Query:
    """A query that has read so many records and is down, with nothing in doubt."""
    fill(name, {0: count})
    query = start(**of_group(name, **options))
    query.read(count)
    query.run()
    query.stop()
    return query


def read_all(query: Query, name: str) -> None:
    """Run until offset 29 is read."""
    until(lambda: (name, 0, 29) in query.checkpoint.sink, what="everything is read", step=query.run)


def told(caplog: pytest.LogCaptureFixture) -> list[str]:
    """The lines about offsets that were set from outside."""
    return [message for message in caplog.messages if "from outside" in message]


@pytest.mark.parametrize(("offset", "more", "read"), [(10, 0, range(10, 100)), (150, 80, range(150, 180))])
def test_a_query_goes_where_its_group_was_set(
    start: Start,
    topic: Any,
    fill: Any,
    set_offset: SetOffset,
    *,
    admin: kohort.Admin,
    caplog: pytest.LogCaptureFixture,
    offset: int,
    more: int,
    read: range,
) -> None:
    """Back and on; one line, and the offset of the batch in the progress, say from where to where."""
    name = topic(1)
    query = stopped(start, fill, name)
    fill(name, {0: more})
    set_offset(name, offset)
    again = start(**of_group(name), checkpoint=query.checkpoint)
    again.read(100 + len(read))
    again.run()
    assert again.checkpoint.sink[100:] == places(name, {0: read})
    assert told(caplog) == [
        f"group {name}-g: {name}-0 goes on at offset {offset} and not at 100: its group's offset was set from outside"
    ]
    moves = [json.loads(end).get("external") for end in again.checkpoint.offsets]
    assert [each for each in moves if each] == [{name: {"0": {"from": 100, "to": offset}}}]
    assert committed(admin, f"{name}-g") == {0: read.stop}


@pytest.mark.large
def test_an_order_is_followed_once(start: Start, topic: Any, fill: Any, set_offset: SetOffset) -> None:
    """The next run goes on from its checkpoint, be the partition empty where the query was sent."""
    name = topic(1)
    query = stopped(start, fill, name, 20)
    set_offset(name, 5)
    for expected in (35, 35):
        query = start(**of_group(name), checkpoint=query.checkpoint)
        query.read(expected)
        query.run()
        query.stop()
        assert len(query.checkpoint.sink) == expected
    fill(name, {0: 10})
    set_offset(name, 30)
    query = start(**of_group(name), checkpoint=query.checkpoint)
    until(lambda: "external" in query.checkpoint.offsets[-1], what="it has gone on", step=query.run)
    query.stop()
    fill(name, {0: 1})
    query = start(**of_group(name), checkpoint=query.checkpoint)
    query.read(36)
    assert query.checkpoint.sink[35:] == [(name, 0, 30)]


@pytest.mark.large
@pytest.mark.parametrize(("offset", "more", "read"), [(10, 10, range(100, 110)), (150, 80, range(150, 180))])
def test_orders_may_be_ignored(
    start: Start,
    topic: Any,
    fill: Any,
    set_offset: SetOffset,
    *,
    caplog: pytest.LogCaptureFixture,
    offset: int,
    more: int,
    read: range,
) -> None:
    """`externalOffsets=ignore`: the checkpoint counts, and what others have read; with the line."""
    name = topic(1)
    query = stopped(start, fill, name)
    fill(name, {0: more})
    set_offset(name, offset)
    again = start(**of_group(name, externalOffsets="ignore"), checkpoint=query.checkpoint)
    again.read(100 + len(read))
    assert again.checkpoint.sink[100:] == places(name, {0: read})
    where = "100 and not at 10" if offset == 10 else "150 and not at 100"
    assert [f"goes on at offset {where}" in line for line in told(caplog)] == [True]


@pytest.mark.large
@pytest.mark.parametrize(
    ("offset", "read"),
    [
        # In the batch, at its ends, and outside of it.
        (14, [*range(14, 20)]),
        (10, [*range(10, 20)]),
        (20, []),
        (3, [*range(10, 20), *range(3, 20)]),
        (25, []),
    ],
)
def test_an_order_beside_an_open_batch(
    start: Start, topic: Any, fill: Any, set_offset: SetOffset, *, offset: int, read: list[int]
) -> None:
    """The batch is repeated from where the order lies in it, or whole; then the query goes where it was sent."""
    name = topic(1)
    query = stopped(start, fill, name, 10)
    fill(name, {0: 10})
    query = start(**of_group(name), checkpoint=query.checkpoint)
    until(query.plan, what="a batch is planned")
    # It does not come back in time: the group has no member any more.
    query.reader._ownership._core._waits = False  # type: ignore[union-attr]
    query.stop()
    fill(name, {0: 10})
    set_offset(name, offset)
    for _ in range(2):
        query = start(**of_group(name), checkpoint=query.checkpoint)
        last = offset if offset > 20 else 20
        read_all(query, name)
        query.stop()
        expected = [*read, *range(last, 30)]
        assert [each for _, _, each in query.checkpoint.sink[10:]] == expected


def test_a_group_that_a_query_has_never_been_in_gives_no_orders(
    start: Start, topic: Any, fill: Any, set_offset: SetOffset, *, caplog: pytest.LogCaptureFixture
) -> None:
    """A checkpoint of Spark's own source, whose offsets another program has committed, later: nothing is read twice."""
    name = topic(1)
    fill(name, {0: 30})
    set_offset(name, 5)
    checkpoint = Checkpoint(offsets=[json.dumps({name: {"0": 20}})], commits=1)
    query = start(**of_group(name), checkpoint=checkpoint)
    query.read(10)
    assert query.checkpoint.places() == places(name, {0: range(20, 30)})
    assert ["goes on at offset 20 and not at 5" in line for line in told(caplog)] == [True]


def test_a_new_query_starts_where_its_group_was_set_without_a_word(
    start: Start, topic: Any, fill: Any, set_offset: SetOffset, *, caplog: pytest.LogCaptureFixture
) -> None:
    """There is no place at which it would go on otherwise."""
    name = topic(1)
    fill(name, {0: 9})
    set_offset(name, 5)
    query = start(**of_group(name))
    query.read(4)
    assert query.checkpoint.places() == places(name, {0: range(5, 9)})
    assert told(caplog) == []
    assert "external" not in to_json({})
