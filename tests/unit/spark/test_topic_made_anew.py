"""A topic that is deleted under a query, and one of the same name that comes after it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

import kohort
from kohort.errors import UnknownTopicError
from kohort.spark.offsets import RecordsLostError
from support.dialogues.spark_query import Checkpoint, Query
from support.waiting import until

pytestmark = pytest.mark.large

MADE_ANEW = "its topic was deleted and made anew"
Start = Callable[..., Query]


@pytest.fixture(params=["alone", "in a group"])
def start(address: str, request: pytest.FixtureRequest) -> Iterator[Start]:
    """Starts queries of a topic, from its beginning; what a test leaves running is stopped."""
    running: list[Query] = []

    def build(topic: str, **options: Any) -> Query:
        group = {"kafka.group.id": f"{topic}-g"} if request.param == "in a group" else {}
        query = Query(address, **{"subscribe": topic, "startingOffsets": "earliest", **group, **options})
        running.append(query)
        return query

    yield build
    for query in running:
        query.stop()


@pytest.fixture
def make_anew(admin: kohort.Admin, fill: Any) -> Callable[..., None]:
    """`make_anew("orders", 3, partitions=2)`: with so many records in each partition."""

    def make(topic: str, records: int, *, partitions: int = 1) -> None:
        admin.delete_topics([topic])
        admin.create_topic(topic, partitions)
        fill(topic, dict.fromkeys(range(partitions), records))

    return make


@pytest.fixture
def pass_by(start: Start, fill: Any) -> Callable[..., Query]:
    """`pass_by("orders", 20, checkpoint)`: ten more records, and a run that ends when its sink has 20."""

    def run(topic: str, count: int, checkpoint: Checkpoint | None = None) -> Query:
        fill(topic, {0: 10})
        query = start(topic, checkpoint=checkpoint, failOnDataLoss="false")
        query.read(count)
        # It hears that its batch is finished.
        query.run()
        query.stop()
        return query

    return run


def assert_lost(query: Query, why: str) -> None:
    """Its next plan that has the partition says so."""
    with pytest.raises(RecordsLostError, match=why):
        until(lambda: False, what="the loss is noticed", step=query.plan)


def offsets(query: Query, *, behind: int = 0) -> list[int]:
    """What the sink has got since it had so many records."""
    return [offset for _, _, offset in query.checkpoint.sink[behind:]]


@pytest.mark.parametrize("records", [2, 5, 9])
def test_it_is_not_taken_for_the_old_one(start: Start, topic: Any, fill: Any, make_anew: Any, records: int) -> None:
    """Whether it has fewer records, as many or more: running on or from the checkpoint, the query ends and says so."""
    name = topic(1)
    fill(name, {0: 5})
    query = start(name)
    query.read(5)
    make_anew(name, records)
    assert_lost(query, f"{name}-0 cannot be read at offset 5: {MADE_ANEW}")
    query.stop()
    assert_lost(start(name, checkpoint=query.checkpoint), MADE_ANEW)


@pytest.mark.parametrize("is_restarted", [False, True])
def test_it_is_read_from_its_beginning(
    start: Start, topic: Any, fill: Any, *, make_anew: Any, is_restarted: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """`failOnDataLoss=false`: every record of it once, partitions included that the old one had not; said once."""
    name = topic(1)
    fill(name, {0: 5})
    query = start(name, startingOffsets="latest", failOnDataLoss="false")
    until(lambda: query.checkpoint.commits, what="the query has begun", step=query.run)
    fill(name, {0: 3})
    query.read(3)
    assert offsets(query) == [5, 6, 7]
    make_anew(name, 9, partitions=2)
    if is_restarted:
        query.stop()
        query = start(name, failOnDataLoss="false", checkpoint=query.checkpoint)
    query.read(3 + 18)
    assert sorted(offsets(query, behind=3)) == sorted([*range(9), *range(9)])
    assert caplog.text.count(f"{name}-0 goes on at offset 0 and not at 8: {MADE_ANEW}") == 1
    fill(name, {0: 1})
    query.read(22)
    assert offsets(query, behind=21) == [9]


def test_one_that_is_empty_is_said_once(
    start: Start, topic: Any, fill: Any, make_anew: Any, caplog: pytest.LogCaptureFixture
) -> None:
    """Not with every trigger until it has records: where the query goes on stands in its checkpoint."""
    name = topic(1)
    fill(name, {0: 5})
    query = start(name, failOnDataLoss="false")
    query.read(5)
    make_anew(name, 0)
    before = query.checkpoint.commits
    until(lambda: query.checkpoint.commits > before, what="the loss is written down", step=query.run)
    query.run()
    assert query.checkpoint.commits == before + 1
    fill(name, {0: 2})
    query.read(7)
    assert offsets(query, behind=5) == [0, 1]
    assert caplog.text.count("goes on at") == 1


def test_a_batch_of_the_old_one_is_not_repeated_from_the_new(
    start: Start, topic: Any, fill: Any, make_anew: Any
) -> None:
    """A batch that was open when the query ended: its records are gone, and those of the new topic are others."""
    name = topic(1)
    fill(name, {0: 5})
    query = start(name)
    until(query.plan, what="a batch is planned")
    query.stop()
    make_anew(name, 7)
    strict = start(name, checkpoint=query.checkpoint)
    with pytest.raises(RecordsLostError, match=f"{name}-0 cannot be read at offset 0: {MADE_ANEW}"):
        strict.trigger()
    strict.stop()
    lenient = start(name, checkpoint=query.checkpoint, failOnDataLoss="false")
    assert lenient.trigger() == []
    lenient.read(7)
    assert offsets(lenient) == list(range(7))


def test_a_query_whose_topic_is_gone_ends(start: Start, topic: Any, fill: Any, admin: kohort.Admin) -> None:
    """At its next plan, and nobody creates it."""
    name = topic(1)
    fill(name, {0: 5})
    query = start(name)
    query.read(5)
    admin.delete_topics([name])
    with pytest.raises(UnknownTopicError, match=f"topic {name} does not exist"):
        query.plan()
    query.stop()
    with pytest.raises(UnknownTopicError):
        start(name).plan()
    assert name not in [each.name for each in admin.list_topics()]


def test_a_checkpoint_that_names_no_topic_ids_is_held_against_what_is_seen(
    start: Start, topic: Any, fill: Any, make_anew: Any
) -> None:
    """As one of Spark's own source: a topic that is made anew while the query runs is noticed."""
    name = topic(1)
    fill(name, {0: 5})
    query = start(name, checkpoint=Checkpoint(offsets=[f'{{"{name}": {{"0": 5}}}}'], commits=1))
    assert query.plan() is False
    make_anew(name, 9)
    assert_lost(query, MADE_ANEW)


@pytest.mark.parametrize("start", ["in a group"], indirect=True)
def test_what_was_read_of_the_old_one_is_not_told_of_the_new(
    start: Start, pass_by: Callable[..., Query], topic: Any, make_anew: Any
) -> None:
    """Both were taken over at offset 10, and read to 20 was the old one alone: who comes next begins at 10."""
    name = topic(1)

    first, second = pass_by(name, 10), pass_by(name, 10)
    make_anew(name, 0)
    pass_by(name, 20, first.checkpoint)
    passing = start(name, checkpoint=second.checkpoint, failOnDataLoss="false")
    until(passing.reader.reportLatestOffset, what="it takes the new one over", step=passing.run)
    passing.stop()
    pass_by(name, 30, first.checkpoint)
    assert offsets(first, behind=20) == list(range(10, 20))


@pytest.mark.parametrize("start", ["in a group"], indirect=True)
def test_one_that_is_made_anew_under_a_query_that_took_it_over(
    start: Start, pass_by: Callable[..., Query], topic: Any, fill: Any, make_anew: Any
) -> None:
    """What the group said of the old one, which another had begun, is forgotten with it."""
    name = topic(1)
    pass_by(name, 10)
    fill(name, {0: 10})
    second = start(name, failOnDataLoss="false")
    second.read(10)
    make_anew(name, 15)
    second.read(25)
    assert offsets(second, behind=10) == list(range(15))


@pytest.mark.parametrize("start", ["in a group"], indirect=True)
def test_what_another_query_has_read_of_the_new_one_is_not_read_again(
    pass_by: Callable[..., Query], topic: Any, make_anew: Any
) -> None:
    """It took the old one over at offset 10, but the new one at 0: whoever follows it believes that."""
    name = topic(1)

    first, second = pass_by(name, 10), pass_by(name, 10)
    make_anew(name, 0)
    pass_by(name, 20, second.checkpoint)
    pass_by(name, 20, first.checkpoint)
    assert offsets(second, behind=10) == list(range(10))
    assert offsets(first, behind=10) == list(range(10, 20))


@pytest.mark.parametrize("start", ["in a group"], indirect=True)
@pytest.mark.parametrize("follower", ["the same query", "one that had it from another", "a new query"])
def test_a_commit_of_the_old_one_that_the_new_one_has_taken_does_not_count(
    start: Start,
    pass_by: Callable[..., Query],
    topic: Any,
    fill: Any,
    *,
    make_anew: Any,
    admin: kohort.Admin,
    follower: str,
) -> None:
    """One that is tried again until there is a topic of that name: what stands there was said of the old topic."""
    name = topic(1)
    first = pass_by(name, 10)
    if follower != "the same query":
        first = pass_by(name, 10)
    stale = admin.list_group_offsets([f"{name}-g"])[f"{name}-g"]
    make_anew(name, 25)
    admin.alter_group_offsets(f"{name}-g", stale)
    query = start(name, failOnDataLoss="false", checkpoint=None if follower == "a new query" else first.checkpoint)
    before = len(query.checkpoint.sink)
    query.read(before + 25)
    assert offsets(query, behind=before) == list(range(25))
