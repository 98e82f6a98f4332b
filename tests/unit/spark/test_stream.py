"""Streaming queries as Spark drives them, in this process, against a real broker."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable
from typing import Any

import pytest

import kohort
from kohort import TopicPartition
from kohort.errors import BrokersUnreachableError, ConfigError, KohortTimeoutError, UnknownTopicError
from kohort.spark.member.thread import GroupMember
from kohort.spark.offsets import CheckpointError, QueryOffset
from kohort.spark.options import parse_options
from kohort.spark.stream import KohortStreamReader
from kohort.wire.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from support.dialogues.raw_client import RawClient
from support.dialogues.spark_query import Checkpoint, Query, Start, places
from support.ports import quiet_port
from support.waiting import until


def committed(admin: kohort.Admin, group: str) -> dict[int, int | None]:
    return {row.partition: row.committed for row in admin.group_offsets(group)}


def eventually(condition: Callable[[], bool], what: str, *, step: Callable[[], object] | None = None) -> None:
    until(condition, what=what, step=step)


def owners(admin: kohort.Admin, group: str) -> list[int]:
    return sorted(len(member.assignment) for member in admin.describe_group(group).members)


def fence(admin: kohort.Admin, address: str, group: str) -> str:
    """Make the coordinator forget the one member, as if its session had ended; its id."""
    (member,) = admin.describe_group(group).members
    with RawClient(address) as raw:
        raw.ask(ConsumerGroupHeartbeatRequest(group_id=group, member_id=member.member_id, member_epoch=-1), 1)
    return member.member_id


# -- without a group ------------------------------------------------------------------------------------------------


def test_a_query_reads_from_the_earliest_offset_and_goes_on(start: Start, topic: Any, fill: Any) -> None:
    """Each record once, over several triggers, with nothing to do in between."""
    name = topic(2)
    fill(name, {0: 5, 1: 3})
    query = start(subscribe=name, startingOffsets="earliest")
    query.run()
    assert query.trigger() == []
    fill(name, {1: 4})
    query.run()
    assert query.checkpoint.places() == places(name, {0: range(5), 1: range(7)})


def test_latest_means_the_end_at_the_first_plan(start: Start, topic: Any, fill: Any) -> None:
    """The default: what is there is left out, what comes from then on is read, though the first plans are empty."""
    name = topic(1)
    fill(name, {0: 5})
    query = start(subscribe=name)
    query.run()
    query.run()
    fill(name, {0: 3})
    query.run()
    assert query.checkpoint.places() == places(name, {0: range(5, 8)})


def test_latest_is_kept_by_the_checkpoint_of_a_query_that_read_nothing(start: Start, topic: Any, fill: Any) -> None:
    """Records that come while such a query is down are not lost."""
    name = topic(1)
    fill(name, {0: 5})
    query = start(subscribe=name)
    query.run()
    query.stop()
    fill(name, {0: 3})
    start(subscribe=name, checkpoint=query.checkpoint).run()
    assert query.checkpoint.places() == places(name, {0: range(5, 8)})


def test_offsets_by_partition_start_a_query(start: Start, topic: Any, fill: Any) -> None:
    """JSON with numbers, -2 for the beginning and -1 for the end."""
    name = topic(3)
    fill(name, {0: 5, 1: 5, 2: 5})
    query = start(subscribe=name, startingOffsets=f'{{"{name}": {{"0": 2, "1": -2, "2": -1}}}}')
    query.run()
    fill(name, {2: 1})
    query.run()
    assert query.checkpoint.places() == places(name, {0: range(2, 5), 1: range(5), 2: range(5, 6)})


@pytest.mark.parametrize(
    ("offsets", "sentence"),
    [
        ('{"0": 1}', "startingOffsets gives offsets for some partitions only; missing: NAME-1"),
        ('{"0": 1, "1": 1, "2": 1}', "startingOffsets names partitions that are not read: NAME-2"),
        ('{"0": 1, "1": 9}', "startingOffsets: NAME-1 has no offset 9, it ends at 3"),
    ],
)
def test_starting_offsets_that_cannot_be_end_the_query(
    start: Start, topic: Any, fill: Any, offsets: str, sentence: str
) -> None:
    """At its first plan, in one sentence."""
    name = topic(2)
    fill(name, {0: 3, 1: 3})
    query = start(subscribe=name, startingOffsets=f'{{"{name}": {offsets}}}')
    with pytest.raises(ConfigError, match=sentence.replace("NAME", name)):
        query.plan()


def test_a_partition_that_is_added_is_read_from_its_beginning(
    start: Start, topic: Any, fill: Any, admin: kohort.Admin
) -> None:
    """Also by a query that started at the latest offset: the records came after its start."""
    name = topic(1)
    fill(name, {0: 2})
    query = start(subscribe=name, kafka__metadata__max__age__ms=50)
    query.run()
    admin.create_partitions(name, 2)
    fill(name, {0: 1, 1: 3})
    expected = places(name, {0: range(2, 3), 1: range(3)})
    eventually(lambda: query.checkpoint.places() == expected, "both partitions are read", step=query.run)


def test_an_unfinished_batch_is_repeated(start: Start, topic: Any, fill: Any) -> None:
    """After a crash the first call is for the tasks of the batch that the checkpoint has open."""
    name = topic(2)
    fill(name, {0: 5, 1: 5})
    crashed = start(subscribe=name, startingOffsets="earliest", maxOffsetsPerTrigger=4)
    assert crashed.plan()
    first = crashed.execute()
    again = start(subscribe=name, startingOffsets="earliest", maxOffsetsPerTrigger=4, checkpoint=crashed.checkpoint)
    assert sorted(again.execute()) == sorted(first)
    again.run()
    assert again.checkpoint.places() == places(name, {0: range(5), 1: range(5)})


def test_available_now_ends_where_the_topic_ended_when_it_began(start: Start, topic: Any, fill: Any) -> None:
    """In as many batches as the limit demands; what comes meanwhile is for the next run."""
    name = topic(1)
    fill(name, {0: 10})
    query = start(subscribe=name, startingOffsets="earliest", maxOffsetsPerTrigger=4, available_now=True)
    query.trigger()
    fill(name, {0: 10})
    query.run()
    assert query.checkpoint.places() == places(name, {0: range(10)})
    assert query.checkpoint.commits == 3


def test_assign_reads_only_those_partitions(start: Start, topic: Any, fill: Any) -> None:
    """Without a group, also at AvailableNow."""
    name = topic(3)
    fill(name, {0: 2, 1: 2, 2: 2})
    query = start(assign=f'{{"{name}": [0, 2]}}', startingOffsets="earliest", available_now=True)
    query.run()
    assert query.checkpoint.places() == places(name, {0: range(2), 2: range(2)})


def test_progress_shows_the_end_of_each_partition(start: Start, topic: Any, fill: Any) -> None:
    """`latestOffset` of the query's progress, from which lag can be computed."""
    name = topic(2)
    fill(name, {0: 5, 1: 3})
    query = start(subscribe=name, startingOffsets="earliest", maxOffsetsPerTrigger=2)
    assert query.reader.reportLatestOffset() is None
    query.plan()
    assert query.reader.reportLatestOffset() == {name: {"0": 5, "1": 3}}


@pytest.mark.parametrize(
    "group", [{}, {"kafka__group__id": "nowhere", "groupJoinTimeout": "1h"}], ids=["alone", "group"]
)
def test_a_topic_that_does_not_exist_is_said_at_once(start: Start, group: dict[str, str]) -> None:
    """Not after a wait for an assignment that cannot come."""
    query = start(subscribe="no-such-topic", kafka__default__api__timeout__ms="3600000", **group)
    with pytest.raises(UnknownTopicError, match="no-such-topic does not exist"):
        query.plan()


@pytest.mark.large
@pytest.mark.parametrize("group", [{}, {"kafka__group__id": "deleted"}], ids=["alone", "group"])
def test_a_topic_that_is_deleted_ends_the_query(
    start: Start, topic: Any, fill: Any, admin: kohort.Admin, group: dict[str, str]
) -> None:
    """Nothing would come any more, and nobody would know why."""
    name = topic(1)
    fill(name, {0: 3})
    query = start(
        subscribe=name,
        startingOffsets="earliest",
        kafka__metadata__max__age__ms=50,
        **group,
        kafka__default__api__timeout__ms=2500,
    )
    query.run()
    admin.delete_topics([name])
    with pytest.raises(UnknownTopicError):
        eventually(lambda: False, "the deletion is noticed", step=query.run)


def test_a_checkpoint_of_another_source_is_refused(start: Start, topic: Any) -> None:
    """Whatever it means, it is not a place in a topic."""
    query = start(subscribe=topic(1))
    with pytest.raises(CheckpointError, match="not written by format"):
        query.reader.latestOffset({"seq": 23}, query.reader.getDefaultReadLimit())


def test_a_checkpoint_of_sparks_own_source_goes_on_where_it_stood(start: Start, topic: Any, fill: Any) -> None:
    """With its open batch first: the format's name is all that has to be changed."""
    name = topic(2)
    fill(name, {0: 9, 1: 9})
    logged = [f'{{"{name}": {{"0": 3, "1": 2}}}}', f'{{"{name}": {{"0": 5, "1": 2}}}}']
    query = start(subscribe=name, checkpoint=Checkpoint(offsets=logged, commits=1))
    assert query.trigger() == places(name, {0: range(3, 5)})
    query.run()
    assert query.checkpoint.places() == places(name, {0: range(3, 9), 1: range(2, 9)})


def test_an_unreachable_broker_ends_the_query_with_its_address() -> None:
    """Not a hang, and not a sentence about groups."""
    options = {"kafka.bootstrap.servers": "127.0.0.1:1", "subscribe": "x", "kafka.group.id": "x"}
    reader = KohortStreamReader(parse_options(options))
    with pytest.raises(BrokersUnreachableError, match=r"127\.0\.0\.1:1"):
        reader.latestOffset({}, reader.getDefaultReadLimit())
    reader.stop()


# -- as a member of a group -----------------------------------------------------------------------------------------


def test_the_group_has_the_offsets_of_finished_batches(
    start: Start, topic: Any, fill: Any, admin: kohort.Admin
) -> None:
    """Not before Spark's commit log has the batch, and then with the next plan."""
    name = topic(2)
    fill(name, {0: 5, 1: 3})
    query = start(subscribe=name, startingOffsets="earliest", kafka__group__id=f"{name}-g")
    assert query.plan()
    records = query.execute()
    assert committed(admin, f"{name}-g") == {0: 0, 1: 0}
    query.finish(records)
    assert not query.plan()
    assert committed(admin, f"{name}-g") == {0: 5, 1: 3}


def test_latest_is_committed_for_the_next_owner(start: Start, topic: Any, fill: Any, admin: kohort.Admin) -> None:
    """Whoever gets the partition next starts where this query would have started."""
    name = topic(1)
    fill(name, {0: 5})
    first = start(subscribe=name, kafka__group__id=f"{name}-g")
    eventually(lambda: committed(admin, f"{name}-g") == {0: 5}, "its start is committed", step=first.run)
    first.stop()
    fill(name, {0: 3})
    second = start(subscribe=name, kafka__group__id=f"{name}-g", available_now=True)
    second.run()
    assert second.checkpoint.places() == places(name, {0: range(5, 8)})


def test_a_partition_that_is_added_while_a_member_waits_for_records(
    start: Start, topic: Any, fill: Any, admin: kohort.Admin
) -> None:
    """A query that started at the latest offset reads it from its beginning all the same."""
    name = topic(1)
    query = start(subscribe=name, kafka__group__id=f"{name}-g", kafka__metadata__max__age__ms=50)
    # The group's first answer may have no partition yet, and then there is nothing to begin at.
    eventually(lambda: bool(query.checkpoint.offsets), "it has begun", step=query.run)
    admin.create_partitions(name, 2)
    fill(name, {0: 1, 1: 3})
    expected = places(name, {0: range(1), 1: range(3)})
    eventually(lambda: query.checkpoint.places() == expected, "the new partition is read", step=query.run)


@pytest.mark.large
def test_partitions_are_handed_over_between_batches(start: Start, topic: Any, fill: Any, admin: kohort.Admin) -> None:
    """P4: what is in flight stays until its batch is committed; each record is read once by one of both."""
    name, group = (made := topic(4)), f"{made}-g"
    fill(name, dict.fromkeys(range(4), 10))
    options = {"subscribe": name, "kafka__group__id": group, "startingOffsets": "earliest"}
    first = start(**options, maxOffsetsPerTrigger=8)
    assert first.plan()
    records = first.execute()
    second = start(**options)
    eventually(lambda: len(admin.describe_group(group).members) == 2, "the second has joined", step=second.run)
    # The group wants two partitions back, but a batch reads them.
    second.run()
    assert second.checkpoint.places() == []
    assert owners(admin, group) == [0, 4]
    first.finish(records)

    def both() -> None:
        first.run()
        second.run()

    everything = places(name, dict.fromkeys(range(4), range(10)))
    total = lambda: sorted(first.checkpoint.sink + second.checkpoint.sink)  # noqa: E731
    eventually(lambda: owners(admin, group) == [2, 2], "each owns two", step=both)
    fill(name, dict.fromkeys(range(4), 5))
    both()
    eventually(lambda: len(total()) >= 60, "all is read", step=both)
    assert total() == places(name, dict.fromkeys(range(4), range(15)))
    assert everything == [place for place in total() if place[2] < 10]
    assert second.checkpoint.sink


@pytest.mark.large
def test_a_query_that_stops_gives_its_partitions_back(start: Start, topic: Any, fill: Any, admin: kohort.Admin) -> None:
    """With `inDoubt=release` in the middle of a batch too; its next owner starts where the group stands."""
    name, group = (made := topic(2)), f"{made}-g"
    fill(name, {0: 5, 1: 5})
    options = {"subscribe": name, "kafka__group__id": group, "startingOffsets": "earliest", "inDoubt": "release"}
    first = start(**options)
    assert first.plan()
    first.stop()
    assert admin.describe_group(group).state == "Empty"
    second = start(**options)
    second.run()
    assert second.checkpoint.places() == places(name, {0: range(5), 1: range(5)})


def test_a_restart_commits_what_the_last_run_could_not(
    start: Start, topic: Any, fill: Any, admin: kohort.Admin
) -> None:
    """Stopped between Spark's commit log and the next plan: the group is one batch behind, the query is not."""
    name, group = (made := topic(1)), f"{made}-g"
    fill(name, {0: 5})
    options = {"subscribe": name, "kafka__group__id": group, "startingOffsets": "earliest"}
    first = start(**options)
    first.trigger()
    assert committed(admin, group) == {0: 0}
    first.stop()
    again = start(**options, checkpoint=first.checkpoint)
    eventually(lambda: committed(admin, group) == {0: 5}, "the group knows", step=again.plan)
    assert again.checkpoint.places() == places(name, {0: range(5)})


@pytest.mark.large
def test_a_repeated_batch_leaves_out_what_others_have_taken(
    start: Start, topic: Any, fill: Any, admin: kohort.Admin
) -> None:
    """A crash, another query takes over and leaves again, the first comes back: each record once."""
    name, group = (made := topic(1)), f"{made}-g"
    fill(name, {0: 10})
    options = {"subscribe": name, "kafka__group__id": group, "startingOffsets": "earliest", "inDoubt": "release"}
    crashed = start(**options)
    assert crashed.plan()
    crashed.stop()
    other = start(**options, maxOffsetsPerTrigger=6)
    other.trigger()
    other.plan()
    other.stop()
    again = start(**options, checkpoint=crashed.checkpoint)
    eventually(lambda: again.trigger() or len(again.checkpoint.sink) == 4, "the rest is read")
    assert other.checkpoint.places() == places(name, {0: range(6)})
    assert again.checkpoint.places() == places(name, {0: range(6, 10)})


def test_the_batch_of_a_fenced_member_is_committed_when_it_is_back(
    start: Start, topic: Any, fill: Any, admin: kohort.Admin, address: str
) -> None:
    """Its partitions were nobody's meanwhile: the query neither fails nor reads anything twice."""
    name, group = (made := topic(2)), f"{made}-g"
    fill(name, {0: 5, 1: 5})
    query = start(subscribe=name, kafka__group__id=group, startingOffsets="earliest")
    assert query.plan()
    records = query.execute()
    fence(admin, address, group)
    query.finish(records)
    fill(name, {0: 2})
    # The group's first word to a member that is back may be that nothing is its yet: then a trigger reads nothing.
    eventually(lambda: len(query.checkpoint.sink) >= 12, "the rest is read", step=query.run)
    assert query.checkpoint.places() == places(name, {0: range(7), 1: range(5)})
    assert committed(admin, group) == {0: 7, 1: 5}


@pytest.mark.large
def test_an_available_now_run_that_is_fenced_ends_only_when_everything_is_read(
    start: Start, topic: Any, fill: Any, admin: kohort.Admin, address: str
) -> None:
    """Owning nothing for a moment is not the end."""
    name, group = (made := topic(2)), f"{made}-g"
    fill(name, {0: 10, 1: 10})
    options = {"subscribe": name, "kafka__group__id": group, "startingOffsets": "earliest", "available_now": True}
    query = start(**options, maxOffsetsPerTrigger=4)
    for _ in range(3):
        query.trigger()
        fence(admin, address, group)
    query.run()
    assert query.checkpoint.places() == places(name, {0: range(10), 1: range(10)})


@pytest.mark.large
def test_a_batch_of_a_fenced_member_does_not_move_its_new_owner(
    start: Start, topic: Any, fill: Any, admin: kohort.Admin, address: str
) -> None:
    """The late commit is refused and ends nothing; the new owner's offsets stay."""
    name, group = (made := topic(1)), f"{made}-g"
    fill(name, {0: 10})
    options = {"subscribe": name, "kafka__group__id": group, "startingOffsets": "earliest"}
    slow = start(**options, maxOffsetsPerTrigger=3)
    options["inDoubt"] = "release"
    assert slow.plan()
    records = slow.execute()
    quick = start(**options)
    eventually(lambda: len(admin.describe_group(group).members) == 2, "the second has joined", step=quick.run)
    with RawClient(address) as raw:

        def cut_off() -> None:
            """Again where it is back before the other one has the partition."""
            for row in admin.describe_group(group).members:
                if row.assignment and row.instance_id == slow.name:
                    raw.ask(ConsumerGroupHeartbeatRequest(group_id=group, member_id=row.member_id, member_epoch=-1), 1)
            quick.run()

        eventually(lambda: committed(admin, group) == {0: 10}, "the second reads all", step=cut_off)
    slow.finish(records)
    slow.run()
    assert committed(admin, group) == {0: 10}
    assert quick.checkpoint.places() == places(name, {0: range(10)})
    assert slow.checkpoint.places() == places(name, {0: range(3)})


@pytest.mark.large
def test_available_now_waits_for_partitions_that_a_running_batch_holds(
    start: Start, topic: Any, fill: Any, admin: kohort.Admin
) -> None:
    """P3: its first assignment is empty, and yet the run does not end empty."""
    name, group = (made := topic(2)), f"{made}-g"
    fill(name, {0: 200, 1: 200})
    options = {"subscribe": name, "kafka__group__id": group, "startingOffsets": "earliest"}
    first = start(**options, maxOffsetsPerTrigger=2)
    assert first.plan()
    records = first.execute()
    second = start(**options, available_now=True)
    runner = threading.Thread(target=second.run)
    runner.start()
    eventually(lambda: len(admin.describe_group(group).members) == 2, "the second has joined")
    assert runner.is_alive()
    first.finish(records)
    eventually(lambda: not runner.is_alive(), "the second has read its part", step=first.trigger)
    assert second.checkpoint.sink
    second.stop()
    eventually(
        lambda: len(first.checkpoint.sink + second.checkpoint.sink) >= 400, "the first has the rest", step=first.run
    )
    assert sorted(first.checkpoint.sink + second.checkpoint.sink) == places(name, {0: range(200), 1: range(200)})


@pytest.mark.large
def test_available_now_without_any_partition_is_an_error(
    start: Start, topic: Any, fill: Any, admin: kohort.Admin
) -> None:
    """The others may be dead, and the run would have read nothing: better to say so."""
    name, group = (made := topic(1)), f"{made}-g"
    fill(name, {0: 4})
    options = {"subscribe": name, "kafka__group__id": group, "startingOffsets": "earliest"}
    first = start(**options)
    assert first.plan()
    second = start(**options, available_now=True, groupJoinTimeout="700ms")
    with pytest.raises(KohortTimeoutError, match=r"gave no partition within 0\.7 s"):
        second.plan()


@pytest.mark.large
def test_a_member_to_spare_goes_on_without_partitions(start: Start, topic: Any, fill: Any, admin: kohort.Admin) -> None:
    """It reads nothing until the other one leaves."""
    name, group = (made := topic(1)), f"{made}-g"
    fill(name, {0: 4})
    options = {"subscribe": name, "kafka__group__id": group, "startingOffsets": "earliest"}
    first = start(**options)
    first.run()
    spare = start(**options)
    spare.run()
    assert spare.owned() == set()
    assert len(admin.describe_group(group).members) == 2
    first.stop()
    fill(name, {0: 2})
    eventually(lambda: bool(spare.checkpoint.sink), "the spare member takes over", step=spare.run)
    assert spare.checkpoint.places() == places(name, {0: range(4, 6)})


def test_a_group_that_gives_no_assignment_in_time() -> None:
    """`groupJoinTimeout`, with a broker that takes connections and never answers."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        given = {"kafka.bootstrap.servers": f"127.0.0.1:{silent.getsockname()[1]}", "subscribe": "x"}
        options = parse_options({**given, "kafka.group.id": "never", "groupJoinTimeout": "300ms"})
        member = GroupMember(options, "q-1", is_bounded=False)
        with pytest.raises(KohortTimeoutError, match=r"group never gave no assignment within 0\.3 s"):
            member.plan(QueryOffset(spans={}), {}, lambda _: {})
        member.close()


def test_a_member_that_is_refused_ends_the_query_with_the_reason(
    start: Start, topic: Any, fill: Any, address: str
) -> None:
    """Whatever it does, the coordinator does not want it: here a group of the classic protocol with members."""
    name, group = (made := topic(1)), f"{made}-g"
    fill(name, {0: 1})
    query = start(subscribe=name, kafka__group__id=group, kafka__group__remote__assignor="no-such-assignor")
    with pytest.raises(kohort.errors.KohortError, match="UNSUPPORTED_ASSIGNOR"):
        query.plan()


def test_a_query_reads_while_its_broker_restarts(tmp_path: Any) -> None:
    """Connections of the reader and of the executors' idle consumers are made anew."""
    config = {"group.consumer.heartbeat.interval.ms": 150, "group.consumer.min.heartbeat.interval.ms": 100}
    with kohort.Broker(data_dir=tmp_path / "data", port=quiet_port(), config=config) as broker:
        port = broker.port
        address = broker.bootstrap_servers
        with kohort.Admin(bootstrap_servers=address) as admin, kohort.Producer(bootstrap_servers=address) as producer:
            admin.create_topic("kept", 2)
            for number in range(10):
                producer.send("kept", b"v", partition=number % 2).result(10)
        query = Query(address, subscribe="kept", kafka__group__id="kept", startingOffsets="earliest")
        query.run()
        assert query.plan() is False
    with kohort.Broker(data_dir=tmp_path / "data", port=port, config=config) as broker:
        with kohort.Producer(bootstrap_servers=address) as producer:
            producer.send("kept", b"v", partition=1).result(10)
        query.run()
        query.stop()
        assert query.checkpoint.places() == places("kept", {0: range(5), 1: range(6)})


def test_the_offsets_of_a_batch_are_the_same_text_again(start: Start, topic: Any, fill: Any) -> None:
    """Spark compares offsets as text: nothing new has to be what it gave."""
    name = topic(1)
    fill(name, {0: 2})
    query = start(subscribe=name, startingOffsets="earliest")
    query.run()
    end = query.checkpoint.finished
    assert end is not None
    assert not query.plan()
    assert query.checkpoint.finished == end
    assert TopicPartition(name, 0) in query.owned()
