"""What is committed for queries that are followed: the rules, without a broker."""

from __future__ import annotations

import random

from kohort import TopicPartition
from kohort.spark.driver.progress_listener import ProgressCommits

P0, P1 = TopicPartition("orders", 0), TopicPartition("orders", 1)


def known(standings: ProgressCommits, group: str = "g") -> ProgressCommits:
    """The group has been asked, and has nothing."""
    standings.know(group, dict.fromkeys(standings.unknown(group)))
    return standings


def test_group_is_asked_before_it_is_written() -> None:
    """It may be further than the query, whose checkpoint was put back: it never moves backwards."""
    standings = ProgressCommits()
    assert standings.groups() == []
    standings.note("g", 1, [(P0, 5), (P1, 5)])
    assert (standings.groups(), standings.unknown("g")) == (["g"], {P0, P1})
    standings.know("g", {P0: 7, P1: None})
    assert (standings.unknown("g"), standings.due("g")) == (set(), {P1: 5})
    standings.know("g", {P1: 5})
    assert standings.groups() == []
    assert standings.committed() == {"g": {P0: 7, P1: 5}}
    standings.note("g", 1, [(P0, 6), (P1, 4)])
    assert standings.due("g") == {}


def test_slowest_of_the_running_queries_counts() -> None:
    standings = ProgressCommits()
    standings.note("g", 1, [(P0, 9)])
    standings.note("g", 2, [(P0, 4), (P1, 4)])
    standings.note("other", 3, [(P0, 1)])
    assert standings.due("g") == {P0: 4, P1: 4}
    standings.note("g", 2, [(P0, 9)])
    assert standings.due("g") == {P0: 9, P1: 4}
    assert standings.due("other") == {P0: 1}


def test_query_that_has_ended_holds_nobody_up_and_loses_nothing() -> None:
    """Its last offsets are committed, unless another query reads those partitions; then it is forgotten."""
    standings = ProgressCommits()
    standings.note("g", 1, [(P0, 3), (P1, 3)])
    standings.note("g", 2, [(P0, 9)])
    standings.end(1)
    assert standings.due("g") == {P0: 9, P1: 3}
    known(standings).know("g", {P0: 9, P1: 3})
    assert standings._ends == {"g": {2: {P0: 9}}}


def test_query_that_starts_again_is_the_same() -> None:
    standings = ProgressCommits()
    standings.note("g", 1, [(P0, 3)])
    standings.end(1)
    standings.note("g", 1, [(P0, 5)])
    known(standings).know("g", {P0: 5})
    standings.note("g", 1, [(P0, 6)])
    assert standings.due("g") == {P0: 6}
    standings.end(77)


def test_partition_that_is_read_twice_stands_where_its_slower_side_does() -> None:
    """A join of a topic with itself; the next batch may move it."""
    standings = ProgressCommits()
    standings.note("g", 1, [(P0, 9), (P0, 3)])
    assert standings.due("g") == {P0: 3}
    standings.note("g", 1, [(P0, 9), (P0, 8)])
    assert standings.due("g") == {P0: 8}


def test_doubt_asks_again_and_a_dropped_topic_is_gone() -> None:
    standings = ProgressCommits()
    standings.note("g", 1, [(P0, 9), (TopicPartition("gone", 0), 1)])
    known(standings).doubt("g")
    assert standings.unknown("g") == {P0, ("gone", 0)}
    standings.drop("g", {"gone"})
    assert standings.due("g") == {P0: 9}


def test_offsets_of_random_lives_never_move_backwards_and_arrive() -> None:
    """Queries that read, end, start again and go back; brokers that fail in the middle."""
    for seed in range(200):
        chance = random.Random(seed)
        standings, broker = ProgressCommits(), dict[TopicPartition, int]()
        at = {query: dict.fromkeys((P0, P1), 0) for query in range(3)}
        said = {-1}
        for _ in range(60):
            query = chance.randrange(3)
            match chance.randrange(6):
                case 0:
                    standings.end(query)
                case 1:
                    at[query] = dict.fromkeys((P0, P1), chance.randrange(1 + at[query][P0]))
                case _:
                    at[query] = {partition: offset + chance.randrange(9) for partition, offset in at[query].items()}
                    standings.note("g", query, at[query].items())
                    said |= set(at[query].values())
            if chance.random() < 0.5 and standings.groups():
                standings.know("g", {partition: broker.get(partition) for partition in standings.unknown("g")})
                due = standings.due("g")
                assert all(offset > broker.get(partition, -1) for partition, offset in due.items()), seed
                broker.update(due)
                if chance.random() < 0.3:
                    standings.doubt("g")
                else:
                    standings.know("g", due)
        for query in range(3):
            standings.end(query)
        while standings.groups():
            standings.know("g", {partition: broker.get(partition) for partition in standings.unknown("g")})
            broker.update(standings.due("g"))
            standings.know("g", standings.due("g"))
        assert not standings._ends.get("g"), "what has ended is forgotten"
        assert set(broker.values()) <= said, "only ends of finished batches"
