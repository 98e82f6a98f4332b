"""Exactly once into Kafka: a micro-batch is one transaction, and is in the topic once or not at all.

Spark makes two writers for each batch, in two processes; each is killed before and behind each of its requests.
"""

from __future__ import annotations

import json
import logging
import pickle
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest

import kohort
from kohort import TopicPartition
from kohort.client.producer.core.partitioner import Partitioner
from kohort.client.producer.core.producer_events import ProducerIdAndEpoch
from kohort.client.producer.producer import Producer
from kohort.errors import ConfigError, KohortTimeoutError, TransactionAbortableError
from kohort.spark import exactly_once, workers
from kohort.spark.exactly_once import BatchTransaction, TransactionalWriteError
from kohort.spark.frames import choose_partitions, write_stream
from kohort.spark.offsets import Span, to_json
from kohort.spark.options import parse_sink_options
from kohort.spark.sink import KohortBatchWriter, KohortStreamWriter
from kohort.spark.source import KohortDataSource
from support.dialogues.spark_sink import SCHEMA, Kill, Rows, SinkQuery, flow_of, in_task

#: Three batches of two tasks, each of which writes to two partitions of its own.
BATCHES: list[list[Rows]] = [
    [
        {place: [b"%d-%d-%d" % (number, place, row) for row in range(3)] for place in (task, task + 2)}
        for task in range(2)
    ]
    for number in range(3)
]

Start = Callable[..., SinkQuery]


@pytest.fixture
def sink(address: str, topic: Callable[[int], str], tmp_path: Path) -> Start:
    """`sink()` is a query into a topic of four partitions."""

    def build(batches: list[list[Rows]] = BATCHES, *, partitions: int = 4, **options: str) -> SinkQuery:
        return SinkQuery(address, topic(partitions), tmp_path / "checkpoint", batches, **options)

    return build


@pytest.fixture(autouse=True)
def forget_clients() -> Iterator[None]:
    """Each test begins like fresh worker processes."""
    yield
    while workers._idle:
        workers._idle.popitem()[1].close(timeout=0)
    while exactly_once._readers:
        exactly_once._readers.popitem()[1].close(timeout=0)


def values(*numbers: int) -> list[bytes]:
    """The rows of batches, each once."""
    return sorted(value for number in numbers for task in BATCHES[number] for part in task.values() for value in part)


def seen(query: SinkQuery) -> list[bytes]:
    return sorted(query.rows())


# -- one transaction --------------------------------------------------------------------------------------------------


def test_batch_appears_whole_when_it_is_committed(sink: Start) -> None:
    """Not before, though its records are stored."""
    query = sink()
    query.trigger()
    query.plan()
    messages = query.run_tasks(query.begin())
    assert seen(query) == values(0)
    query.commit(messages)
    assert seen(query) == values(0, 1)
    assert query.is_stable()


@pytest.mark.parametrize("flow", [0, 2])
def test_batch_that_spark_repeats_is_not_written_again(sink: Start, flow: int) -> None:
    """It is in the topic, and not in Spark's commit log."""
    with flow_of(flow):
        query = sink()
        query.plan()
        query.commit(query.run_tasks(query.begin()))
        assert [each.is_repeated for each in query.trigger()] == [True, True]
        query.trigger()
    assert seen(query) == values(0, 1)


KILLS = [
    *(
        (2, Kill(request, number, is_behind))
        for request, number in (
            ("InitProducerId", 1),
            ("OffsetFetch", 1),
            ("Produce", 1),
            ("Produce", 2),
            ("TxnOffsetCommit", 1),
            ("EndTxn", 1),
        )
        for is_behind in (False, True)
    ),
    # The flow before KIP-890 has requests of its own, and one epoch for all attempts that do not ask for another.
    *(
        (0, Kill(request, 1, True))
        for request in ("AddPartitionsToTxn", "AddOffsetsToTxn", "TxnOffsetCommit", "EndTxn")
    ),
]


@pytest.mark.large
@pytest.mark.process
@pytest.mark.parametrize(("flow", "kill"), KILLS, ids=str)
def test_killed_at_each_request(sink: Start, flow: int, kill: Kill) -> None:
    """A reader of committed records sees each batch once and whole, and nothing keeps it from the end."""
    query = sink()
    query.trigger_killed(kill, flow=flow)
    is_committed = kill == Kill("EndTxn", 1, True)
    assert seen(query) == (values(0) if is_committed else [])
    with flow_of(flow):
        assert {each.is_repeated for each in query.trigger()} == {is_committed}
        query.trigger()
    assert seen(query) == values(0, 1)
    assert query.is_stable()


def test_batch_without_rows_has_no_transaction(sink: Start) -> None:
    """There is nothing to know again."""
    query = sink([[{}, {}], [{0: [b"a"]}]])
    query.trigger()
    assert query.rows() == []
    query.trigger()
    assert query.rows() == [b"a"]


def test_marker_names_query_and_plan(sink: Start, address: str) -> None:
    """It is an offset of the group that is called like the transactional id."""
    query = sink()
    query.trigger()
    query.trigger()
    with kohort.Consumer(bootstrap_servers=address, group_id=query.name) as reader:
        marker = reader.committed(TopicPartition(query.topic, 0), metadata=True)
    assert marker is not None and marker.offset == 2
    told = json.loads(marker.metadata)
    assert (told["query"], len(told["digest"])) == (query.query_id, 32)


def test_writer_takes_one_epoch_however_often_it_is_pickled(sink: Start) -> None:
    """PySpark pickles it twice; the writer that commits is never pickled, and takes none."""
    query = sink()
    query.plan()
    writer = query.writer()
    assert writer._transaction is None
    first, second = (pickle.loads(pickle.dumps(writer))._transaction for _ in range(2))
    assert first is not None and first == second


def test_epochs_that_run_out_end_in_a_new_producer_id(sink: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    """After 32,767 batches; here after a few."""
    from kohort.coordinator.transactions import transitions

    query = sink([[{0: [b"%d" % number]}] for number in range(8)])
    monkeypatch.setattr(transitions, "LAST_EPOCH", 6)
    ids = {query.trigger()[0].part.transaction.identity.producer_id for _ in range(8)}  # type: ignore[union-attr]
    assert len(ids) > 1
    assert seen(query) == [b"%d" % number for number in range(8)]


# -- what goes wrong --------------------------------------------------------------------------------------------------


def test_task_that_fails_ends_the_transaction_for_all(sink: Start) -> None:
    """It cannot be committed any more, and the batch is written whole by the next attempt."""
    query = sink()
    query.plan()
    writer = query.begin()
    first = query.run_task(writer, 0)

    def feed() -> Iterator[Any]:
        yield from ()
        raise OSError("the JVM is gone")

    with in_task(0, 1), pytest.raises(OSError, match="the JVM is gone"):
        pickle.loads(writer).write(feed())
    assert query.is_stable()
    with pytest.raises(TransactionalWriteError, match="ended by another task of this batch that has failed"):
        query.run_task(writer, 1)
    with pytest.raises(TransactionalWriteError, match="or by another query of the same transactional id"):
        query.commit([first])
    query.trigger()
    assert seen(query) == values(0)


def test_task_that_is_run_again_is_refused(sink: Start) -> None:
    """By a lost executor or by speculation: the first attempt's records are in the transaction."""
    query = sink()
    query.plan()
    writer = query.begin()
    with pytest.raises(TransactionalWriteError, match=r"task 1 of batch 0 is run again.*spark.speculation has to be"):
        query.run_task(writer, 1, attempt=1)


@pytest.mark.parametrize("rows", [1, 3], ids=["alike", "different"])
def test_two_tasks_with_one_partition_are_refused(sink: Start, rows: int) -> None:
    """By the broker, or at the end where it takes the second task's records for a repetition of the first's."""
    query = sink([[{0: [b"a"]}, {0: [b"b"] * rows}]])
    query.plan()
    with pytest.raises(TransactionalWriteError, match=r"two tasks of batch 0 write to .*write_stream\(frame, "):
        query.commit(query.run_tasks(query.begin()))
    assert query.rows() == []
    assert query.is_stable()


def test_driver_that_comes_back_is_fenced(sink: Start) -> None:
    """It stood still with a batch that its successor has written."""
    query = sink()
    query.plan()
    late = query.run_tasks(query.begin())
    query.commit(query.run_tasks(query.begin()))
    with pytest.raises(TransactionalWriteError, match="or by another query of the same transactional id"):
        query.commit(late)
    assert seen(query) == values(0)


def test_failed_batch_is_aborted_by_the_ids_of_its_messages(sink: Start, caplog: pytest.LogCaptureFixture) -> None:
    """An executor was lost; where no task has ended the next attempt ends the transaction."""
    query = sink()
    query.plan()
    caplog.set_level(logging.WARNING, "kohort.spark.sink")
    first = query.run_task(query.begin(), 0)
    query.abort([first, None])
    assert query.is_stable()
    assert caplog.messages == ["batch 0 has failed, and its transaction is aborted"]
    query.run_task(query.begin(), 0)
    for told in (None, first):
        # No task has told its ids, or they are those of an earlier attempt.
        caplog.clear()
        query.abort([told, None])
        assert not query.is_stable()
        assert caplog.messages == ["batch 0 has failed; its transaction has ended, or the next attempt ends it"]
    query.begin()
    assert query.is_stable()


def test_end_that_is_not_answered(sink: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    """The batch is in the topic or not; what Spark does next finds out."""
    query = sink()
    query.plan()
    messages = query.run_tasks(query.begin())
    usual = Producer.commit_transaction

    def commit(self: Producer) -> None:
        usual(self)
        raise KohortTimeoutError("no answer to EndTxn")

    with monkeypatch.context() as patch:
        patch.setattr(Producer, "commit_transaction", commit)
        with pytest.raises(TransactionalWriteError, match=r"it is not known whether batch 0 of .* no answer to EndTxn"):
            query.commit(messages)
    assert [each.is_repeated for each in query.trigger()] == [True, True]
    assert seen(query) == values(0)


def test_row_for_a_partition_that_is_not_there(sink: Start) -> None:
    """It names the partitions that are; nothing of the batch is seen."""
    query = sink([[{0: [b"a"], 9: [b"b"]}]])
    query.plan()
    with pytest.raises(TransactionalWriteError, match=r"batch 0 of kohort-.* is not written.*has partitions 0 to 3"):
        query.run_tasks(query.begin())
    assert query.is_stable()
    assert query.rows() == []


def test_batch_that_takes_longer_than_its_transaction(sink: Start, caplog: pytest.LogCaptureFixture) -> None:
    """It is said before, and then with the option that helps."""
    query = sink(kafka__transaction__timeout__ms="200000")
    query.plan()
    writer: KohortStreamWriter = pickle.loads(query.begin())
    assert writer._transaction is not None

    def aged(seconds: float) -> bytes:
        assert writer._transaction is not None
        return pickle.dumps(_with(writer, replace(writer._transaction, begun_s=writer._transaction.begun_s - seconds)))

    message = query.run_task(aged(110), 0)
    assert "has taken 110 s of the 200 s of kafka.transaction.timeout.ms" in caplog.text
    query.begin()
    with pytest.raises(TransactionalWriteError, match=r"it took 2\d\d s, .* Raise kafka.transaction.timeout.ms"):
        query.run_task(aged(100), 1)
    with pytest.raises(TransactionalWriteError, match="is not written: its transaction was ended"):
        query.commit([message])


def _with(writer: KohortStreamWriter, transaction: BatchTransaction) -> KohortStreamWriter:
    writer._transaction = transaction
    return writer


# -- checkpoints and names --------------------------------------------------------------------------------------------


def test_checkpoint_that_was_put_back_is_refused(sink: Start) -> None:
    """Its batches of the same numbers have other rows, or come a second time."""
    query = sink()
    query.trigger()
    query.trigger()
    (query.folder / "commits" / "1").unlink()
    (query.folder / "offsets" / "1").unlink()
    query.plan(moment=7)
    with pytest.raises(TransactionalWriteError, match="Spark runs another batch of that number: the checkpoint is an"):
        query.begin()
    (query.folder / "commits" / "0").unlink()
    (query.folder / "offsets" / "1").unlink()
    with pytest.raises(TransactionalWriteError, match=r"batch 1 of .* is in the topic, and Spark runs batch 0"):
        query.begin()
    assert seen(query) == values(0, 1)


def test_name_of_another_query_is_refused(sink: Start) -> None:
    """Two queries with one transactional id would take each other for an earlier attempt."""
    query = sink(kohort__transactionalId="shared")
    query.trigger()
    (query.folder / "metadata").write_text('{"id":"another"}')
    with pytest.raises(TransactionalWriteError, match=f"that of another query .{query.query_id}.: give each"):
        query.begin()


def test_checkpoint_elsewhere_needs_a_name(address: str, topic: Callable[[int], str]) -> None:
    """The query's id stands in its checkpoint, where the driver's machine can read that."""
    given = {"kafka.bootstrap.servers": address, "topic": "orders", "kohort.exactlyOnce": "true"}
    source = KohortDataSource(given)
    with pytest.raises(ConfigError, match=r"there is no checkpointLocation: give the option kohort\.transactionalId"):
        source.streamWriter(SCHEMA, overwrite=False)
    source = KohortDataSource({**given, "checkpointLocation": "s3a://bucket/query"})
    with pytest.raises(ConfigError, match="the checkpoint s3a://bucket/query is not readable here"):
        source.streamWriter(SCHEMA, overwrite=False)
    name = topic(1)
    options = parse_sink_options({**given, "topic": name, "kohort.transactionalId": f"{name}-x"})
    for is_repeated in (False, True):
        writer = pickle.dumps(KohortStreamWriter(options, SCHEMA))
        with in_task(4, 0):
            message = pickle.loads(writer).write(iter([_row(b"v")]))
        assert message.is_repeated is is_repeated
        KohortStreamWriter(options, SCHEMA).commit([message], 4)
    with in_task(3, 0), pytest.raises(TransactionalWriteError, match="and Spark runs batch 3"):
        pickle.loads(pickle.dumps(KohortStreamWriter(options, SCHEMA))).write(iter([_row(b"v")]))
    for number in (4, 5):
        # The driver cannot know the query's id, and its tasks can.
        with (
            in_task(number, 0, query_id="r"),
            pytest.raises(TransactionalWriteError, match=r"that of another query \(q\)"),
        ):
            pickle.loads(pickle.dumps(KohortStreamWriter(options, SCHEMA))).write(iter([_row(b"v")]))


def _row(value: bytes) -> Any:
    from support.dialogues.spark_sink import table_of

    return table_of(0, [value])


def test_batch_writer_is_refused(sink: Start) -> None:
    """A write inside foreachBatch has no number of its own, and two would take each other for a repetition."""
    with pytest.raises(ConfigError, match=r"is for writeStream: a batch has no number .*foreachBatch"):
        KohortBatchWriter(sink().writer()._options, SCHEMA, False)


def test_task_of_no_query_is_refused(sink: Start) -> None:
    query = sink()
    query.plan()
    with pytest.raises(ConfigError, match="is for streaming queries, and this task belongs to none"):
        pickle.loads(query.begin()).write(iter([]))


def test_broker_that_is_away_is_said_in_time(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """PySpark passes the sentence on as it is."""
    caplog.set_level(logging.ERROR)
    limits = {"kafka__max__block__ms": "300", "kafka__request__timeout__ms": "200"}
    query = SinkQuery("127.0.0.1:1", "orders", tmp_path / "checkpoint", BATCHES, **limits)
    query.plan()
    with pytest.raises(pickle.PicklingError, match=rf"the transaction of {query.name} cannot begin: .*127\.0\.0\.1:1"):
        query.begin()


# -- write_stream -----------------------------------------------------------------------------------------------------


def test_rows_are_parted_as_the_producer_does() -> None:
    """By the key; a row without one goes by its value, so that it goes there again when Spark computes it again."""
    keys = [b"%d" % number for number in range(200)]
    usual = Partitioner(batch_bytes=1)
    expected = [usual.choose("t", key, 7, 1) for key in keys]
    assert choose_partitions(pa.array(keys), pa.array([None] * 200, pa.binary()), 7).to_pylist() == expected
    assert choose_partitions(pa.array([None] * 200, pa.binary()), pa.array(keys), 7).to_pylist() == expected
    assert choose_partitions(pa.array([None], pa.binary()), pa.array([None], pa.binary()), 7).to_pylist() == [0]


def frame_of(settings: dict[str, str]) -> Any:
    """A stream of a session with these settings."""
    return SimpleNamespace(isStreaming=True, sparkSession=SimpleNamespace(conf=settings))


@pytest.mark.parametrize("settings", [{}, {"spark.stage.maxConsecutiveAttempts": "2"}])
def test_cluster_that_may_run_a_stage_again_is_refused(settings: dict[str, str]) -> None:
    """A task of the second attempt would write under the sequences of the first."""
    frame = frame_of({"spark.master": "spark://host:7077", **settings})
    with pytest.raises(ConfigError, match=r"exactly_once needs spark\.stage\.maxConsecutiveAttempts=1 on a cluster"):
        write_stream(frame, "orders", exactly_once=True, bootstrap_servers="127.0.0.1:1")


def test_rows_cannot_be_parted_for_a_topic_that_is_not_there(address: str) -> None:
    """Nor by another rule than that of the function."""
    frame = frame_of({"spark.master": "local[2]"})
    with pytest.raises(ConfigError, match="needs the partitions of nowhere, and there is no such topic yet"):
        write_stream(frame, "nowhere", exactly_once=True, bootstrap_servers=address)
    with pytest.raises(ConfigError, match="exactly_once parts rows by murmur2_random, Kafka's own"):
        write_stream(frame, "nowhere", exactly_once=True, bootstrap_servers=address, partitioner="consistent")


@pytest.mark.parametrize("is_still", [False, True])
def test_source_that_stands_still_needs_no_note(tmp_path: Path, is_still: bool) -> None:
    """A reader that is started again is not asked about a batch that has nothing of its source."""
    query = SinkQuery("127.0.0.1:1", "orders", tmp_path, BATCHES)
    for number in range(2):
        end = 7 if is_still else 7 + number
        source = json.dumps(to_json({TopicPartition("orders", 0): Span(3, end)}, name="nobody"))
        (tmp_path / "offsets" / str(number)).write_text(f"v1\n{{}}\n{source}")
    transaction = BatchTransaction("x", ProducerIdAndEpoch(1, 0, 2), 0.0, 1.0, exactly_once.Query(None, None), 0, None)
    offsets = exactly_once._offsets_of_sources(query.writer()._options, exactly_once.Part(transaction, "q", 1))
    if is_still:
        assert list(offsets) == []
    else:
        with pytest.raises(TransactionAbortableError, match="its reader has left no note of batch 1"):
            list(offsets)
