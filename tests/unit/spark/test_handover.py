"""How queries of one group end, come back and follow each other: who reads which record, and how often."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import pytest

import kohort
from kohort import TopicPartition
from kohort.spark.member.names import HolderWatch, NameTakenError
from support.dialogues.spark_groups import committed, of_group, owned, share, total
from support.dialogues.spark_query import Checkpoint, Query, Start, places
from support.waiting import until


@pytest.mark.parametrize(("names", "sentences"), [(("", ""), 1), (("q-1", "q-2"), 0)], ids=["unnamed", "named"])
def test_two_sources_of_an_application_are_told_unless_the_user_has_named_them(
    start: Start, topic: Any, caplog: pytest.LogCaptureFixture, names: tuple[str, str], sentences: int
) -> None:
    """A source with a `kafka.group.instance.id` is a member on purpose."""
    name = topic(2)
    for each in names:
        start(**of_group(name), **({"kafka__group__instance__id": each} if each else {})).plan()
    assert sum("divide the topics between them" in message for message in caplog.messages) == sentences


def follow_each_other(start: Start, name: str, fill: Any) -> tuple[Query, Checkpoint, Query]:
    """A query has read 0 to 4 and has left, another one reads on to 7; a copy of the first one's checkpoint at 3."""
    fill(name, {0: 5})
    first = start(**of_group(name, maxOffsetsPerTrigger=3))
    first.trigger()
    copy = first.checkpoint.copy()
    first.run()
    first.stop()
    fill(name, {0: 3})
    other = start(**of_group(name))
    other.run()
    return first, copy, other


# -- a checkpoint that was put back ------------------------------------------------------------------------------------


@pytest.mark.large
def test_a_checkpoint_that_was_put_back_is_the_query_s_authority(start: Start, topic: Any, fill: Any) -> None:
    """The sink is put back with it: what came behind the copy is read again, though the group is beyond it."""
    name = topic(2)
    fill(name, {0: 5, 1: 5})
    query = start(**of_group(name))
    query.run()
    copy = query.checkpoint.copy()
    fill(name, {0: 4, 1: 3})
    query.run()
    query.stop()
    again = start(**of_group(name), checkpoint=copy)
    again.run()
    assert again.checkpoint.places() == places(name, {0: range(9), 1: range(8)})


def test_the_group_goes_back_with_a_checkpoint_that_was_put_back(
    start: Start, topic: Any, fill: Any, admin: kohort.Admin
) -> None:
    """Whoever follows that query starts where it really is, and not where it once was."""
    name = topic(1)
    fill(name, {0: 5})
    query = start(**of_group(name, maxOffsetsPerTrigger=2))
    query.trigger()
    copy = query.checkpoint.copy()
    query.run()
    query.stop()
    assert committed(admin, f"{name}-g") == {0: 5}
    again = start(**of_group(name, maxOffsetsPerTrigger=2), checkpoint=copy)
    again.trigger()
    again.plan()
    assert committed(admin, f"{name}-g") == {0: 4}


def test_an_open_batch_of_a_checkpoint_that_was_put_back_is_read_whole(start: Start, topic: Any, fill: Any) -> None:
    """The copy was taken while a batch ran; the query's own commits since then trim nothing."""
    name = topic(1)
    fill(name, {0: 6})
    query = start(**of_group(name, maxOffsetsPerTrigger=3))
    query.trigger()
    assert query.plan()
    copy = query.checkpoint.copy()
    query.run()
    query.stop()
    again = start(**of_group(name, maxOffsetsPerTrigger=3), checkpoint=copy)
    again.run()
    assert again.checkpoint.places() == places(name, {0: range(6)})


@pytest.mark.large
def test_what_others_have_read_behind_the_copy_stays_theirs(
    start: Start, topic: Any, fill: Any, admin: kohort.Admin
) -> None:
    """One query reads 0 to 4, the other 5 to 7, and the first again 8 and 9: put back to 2 it reads only its own."""
    name = topic(1)
    first, copy, other = follow_each_other(start, name, fill)
    other.stop()
    fill(name, {0: 2})
    first = start(**of_group(name), checkpoint=first.checkpoint)
    first.run()
    first.stop()
    assert total(first, other) == places(name, {0: range(10)})

    again = start(**of_group(name), checkpoint=copy)
    again.run()
    assert other.checkpoint.places() == places(name, {0: range(5, 8)})
    assert again.checkpoint.places() == places(name, {0: [*range(5), *range(8, 10)]})  # type: ignore[dict-item]


@pytest.mark.large
def test_what_was_handed_over_behind_the_copy_is_not_lost(
    start: Start, topic: Any, fill: Any, admin: kohort.Admin
) -> None:
    """The other query owns the partition now; what the first has lost of it is read by the first all the same."""
    name = topic(1)
    _, copy, other = follow_each_other(start, name, fill)
    again = start(**of_group(name), checkpoint=copy)
    again.run()
    assert total(again, other) == places(name, {0: range(8)})
    assert committed(admin, f"{name}-g") == {0: 8}


@pytest.mark.large
def test_a_run_that_ends_behind_a_repeated_batch_leaves_nothing_in_doubt(
    start: Start, topic: Any, fill: Any, admin: kohort.Admin, *, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Put back to its first batch and stopped before its first plan, it says of what it planned later: never mind."""
    name = topic(2)
    fill(name, {0: 3})
    options = of_group(name, checkpointLocation=tmp_path)
    query = start(**of_group(name))
    assert query.plan()
    copy = query.checkpoint.copy()
    query.finish(query.execute())
    fill(name, {1: 4})
    assert query.plan()
    query.stop()
    other = start(**of_group(name))
    until(lambda: owned(admin, name, other), what="it is given a partition", step=other.trigger)
    assert owned(admin, name, other) == {TopicPartition(name, 1)}
    again = start(**options, checkpoint=copy)
    copy.location = tmp_path
    copy.log_offset(copy.offsets.pop())
    again.trigger()
    again.stop()
    other.read(4)
    assert total(again, other) == places(name, {0: range(3), 1: range(4)})
    assert "may be read twice" not in caplog.text


# -- in doubt ----------------------------------------------------------------------------------------------------------


@pytest.mark.large
def test_a_batch_in_doubt_waits_for_its_query(start: Start, topic: Any, fill: Any, admin: kohort.Admin) -> None:
    """Stopped in a batch, it comes back within its session: the same member, the same partitions, no rebalance."""
    name = topic(2)
    first, second = share(start, admin, name)
    fill(name, {0: 40, 1: 40})
    assert first.plan()
    before = admin.describe_group(f"{name}-g")
    first.stop()
    until(lambda: len(second.checkpoint.sink) == 40, what="the other reads its own", step=second.trigger)
    assert second.trigger() == []
    again = start(**of_group(name), checkpoint=first.checkpoint)
    again.run()
    after = admin.describe_group(f"{name}-g")
    assert after.group_epoch == before.group_epoch
    assert {each.instance_id for each in after.members} == {each.instance_id for each in before.members}
    assert total(again, second) == places(name, {0: range(40), 1: range(40)})


@pytest.mark.large
def test_whoever_takes_a_batch_in_doubt_says_which_offsets_may_be_read_twice(
    start: Start, topic: Any, fill: Any, admin: kohort.Admin, caplog: pytest.LogCaptureFixture
) -> None:
    """The query does not come back before its session has ended."""
    name = topic(1)
    fill(name, {0: 40})
    first = start(**of_group(name, maxOffsetsPerTrigger=10))
    assert first.plan()
    first.stop()
    other = start(**of_group(name))
    with caplog.at_level(logging.WARNING, logger="kohort.spark.member.thread"):
        until(lambda: bool(other.checkpoint.sink), what="the other takes over", step=other.trigger)
    assert f"offsets 0 to 9 of {name}-0 may be read twice: {first.name} has planned them" in caplog.text
    assert other.checkpoint.places() == places(name, {0: range(40)})


@pytest.mark.large
def test_a_partition_that_moves_while_its_batch_is_in_doubt_waits_too(
    start: Start, topic: Any, fill: Any, admin: kohort.Admin
) -> None:
    """A third query joins while the first is away: it is given the partition, and does not read what may be read."""
    name = topic(2)
    fill(name, {0: 40, 1: 40})
    first = start(**of_group(name))
    assert first.plan()
    first.stop()
    other = start(**of_group(name))
    until(lambda: owned(admin, name, other), what="it is given a partition", step=other.trigger)
    assert other.checkpoint.sink == []
    again = start(**of_group(name), checkpoint=first.checkpoint)
    again.trigger()
    fill(name, {0: 5, 1: 5})

    def both() -> None:
        again.trigger()
        other.trigger()

    until(lambda: len(total(again, other)) >= 90, what="all is read", step=both)
    assert total(again, other) == places(name, {0: range(45), 1: range(45)})
    assert other.checkpoint.sink


# -- names -------------------------------------------------------------------------------------------------------------


def test_a_query_has_one_name_for_as_long_as_its_checkpoint_lives(start: Start, topic: Any, fill: Any) -> None:
    """Spark asks for the initial offset twice, and again before it repeats the first batch."""
    name = topic(1)
    fill(name, {0: 3})
    query = start(**of_group(name))
    assert query.reader.initialOffset() == query.reader.initialOffset()
    assert query.plan()
    query.stop()
    again = start(**of_group(name), checkpoint=query.checkpoint)
    again.run()
    assert again.name == query.name
    assert start(**of_group(name)).reader.initialOffset()["name"] != query.name


def test_a_name_that_another_query_bears_is_said(start: Start, topic: Any, fill: Any) -> None:
    """A copied checkpoint, started beside the query that it was copied from."""
    name = topic(1)
    fill(name, {0: 3})
    options = of_group(name, kafka__group__protocol="classic", kafka__heartbeat__interval__ms=100)
    query = start(**options)
    query.run()
    twin = start(**options, checkpoint=query.checkpoint.copy())
    fill(name, {0: 3})
    with pytest.raises(NameTakenError, match=f"{query.name} of group {name}-g is another query that runs"):
        until(lambda: False, what="one of them hears of it", step=lambda: (twin.trigger(), query.trigger()))


def test_copied_checkpoint_is_refused_as_soon_as_its_query_is_seen_to_live(
    start: Start, topic: Any, fill: Any, admin: kohort.Admin
) -> None:
    """The session would be waited for otherwise: the name may be that of a process that was killed."""
    name = topic(1)
    fill(name, {0: 3})
    admin.alter_group_configs(f"{name}-g", {"consumer.session.timeout.ms": 60_000})
    query = start(**of_group(name, groupJoinTimeout="120s"))
    query.run()
    twin = start(**of_group(name, groupJoinTimeout="120s"), checkpoint=query.checkpoint.copy())
    fill(name, {0: 3})
    with pytest.raises(NameTakenError, match=f"{query.name} of group {name}-g is another query that runs"):
        until(lambda: False, what="it hears of it long before the session ends", step=twin.trigger)
    assert query.trigger(), "the query that was there reads on"


@pytest.mark.parametrize(
    ("signs", "is_sure"),
    [
        ([], False),
        # Heartbeats of before are those of a killed process.
        ([(-9, -9), (-4, -4)], False),
        # A process that is being stopped.
        ([(1, 1)], False),
        ([(1, 1), (1.2, 1.4), (2, 2.4)], False),
        # One heartbeat, of whose time ever more is known.
        ([(0.5, 3), (1, 3), (2, 3)], False),
        ([(1, 1.2), (3, 3.1)], True),
        ([(5, 5), (10, 10)], True),
    ],
)
def test_holder_of_a_name_is_sure_to_live_after_two_signs(signs: list[tuple[float, float]], is_sure: bool) -> None:
    watch = HolderWatch(0.0)
    assert [watch.note_sign(*each) for each in signs][-1:] == ([is_sure] if signs else [])
