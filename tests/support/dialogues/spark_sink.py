"""A streaming query's sink without a JVM: the calls that Spark makes to both writers, in their order, and its two logs.

A call that is to be killed runs in a process of its own, which ends by SIGKILL before it sends a request or behind the
answer to it. All others run here: what goes from writer to tasks and back is pickled as Spark does.
"""

from __future__ import annotations

import json
import os
import pickle
import signal
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple
from uuid import uuid4

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.types import StructType

import kohort
from kohort import TopicPartition
from kohort.client.core.requests import RequestFailed, Requests
from kohort.client.producer.core import transactions
from kohort.spark.options import parse_sink_options
from kohort.spark.sink import KohortStreamWriter, Written
from support.peers.forked_commands import forks, python_variables

if TYPE_CHECKING:
    from kohort.client.core.actions import Endpoint, Lane
    from kohort.wire.schema import Message

SCHEMA: Final = StructType().add("key", "binary").add("value", "binary").add("partition", "integer")

#: The rows of a task: partition -> values.
Rows = dict[int, list[bytes]]


class Kill(NamedTuple):
    """Where a process ends: before the nth request of a kind is sent, or behind its answer."""

    request: str
    number: int
    is_behind: bool

    def __str__(self) -> str:
        return f"{'behind' if self.is_behind else 'before'} {self.request} {self.number}"


#: The steps of a batch that have a process each -> the requests of these.
STEPS: Final = {
    "begin": ("InitProducerId", "OffsetFetch"),
    "run_tasks": ("AddPartitionsToTxn", "Produce"),
    "commit": ("AddOffsetsToTxn", "TxnOffsetCommit", "EndTxn"),
}


class SinkQuery:
    """A query with a checkpoint folder, and the rows of its batches.

    Args:
        batches: of each batch the rows of its tasks.
    """

    def __init__(self, bootstrap: str, topic: str, folder: Path, batches: Any, **options: str) -> None:
        self.bootstrap, self.topic, self.folder, self.batches = bootstrap, topic, folder, batches
        self._options = options
        for log in ("offsets", "commits"):
            (folder / log).mkdir(parents=True, exist_ok=True)
        metadata = folder / "metadata"
        if not metadata.exists():
            metadata.write_text(f'{{"id":"{uuid4()}"}}')
        self.query_id: str = json.loads(metadata.read_text())["id"]

    @property
    def name(self) -> str:
        """Its transactional id."""
        return f"kohort-{self.query_id}"

    @property
    def number(self) -> int:
        """Of the batch that runs, or comes next."""
        return len(list((self.folder / "commits").iterdir()))

    def writer(self) -> KohortStreamWriter:
        """Make a writer, as each of the two processes does."""
        given = {
            "kafka.bootstrap.servers": self.bootstrap,
            "topic": self.topic,
            "kohort.exactlyOnce": "true",
            "checkpointlocation": str(self.folder),
            **{name.replace("__", "."): value for name, value in self._options.items()},
        }
        return KohortStreamWriter(parse_sink_options(given), SCHEMA)

    def plan(self, *, moment: int = 0) -> None:
        """Log the offsets of the next batch, unless that was done before; a later `moment` is another plan."""
        path = self.folder / "offsets" / str(self.number)
        if not path.exists():
            path.write_text(f'v1\n{{"batchTimestampMs":{moment}}}\n{{"{self.number}":{moment}}}')

    def begin(self) -> bytes:
        """Make the writer that travels; it is pickled twice."""
        writer = self.writer()
        pickle.dumps(writer)
        return pickle.dumps(writer)

    def run_tasks(self, writer: bytes) -> list[bytes]:
        """Run the tasks of the batch, one after the other."""
        return [self.run_task(writer, task) for task in range(len(self.batches[self.number]))]

    def run_task(self, writer: bytes, task: int, *, attempt: int = 0) -> bytes:
        rows = self.batches[self.number][task]
        with in_task(self.number, task, attempt, query_id=self.query_id):
            return pickle.dumps(pickle.loads(writer).write(iter([table_of(part, rows[part]) for part in rows])))

    def commit(self, messages: Sequence[bytes]) -> None:
        """End the batch by a writer of its own, or have it aborted, as Spark does if that fails."""
        found: list[Written] = [pickle.loads(each) for each in messages]
        try:
            self.writer().commit(list(found), self.number)
        except Exception:
            self.abort(messages)
            raise

    def abort(self, messages: Sequence[bytes | None]) -> None:
        """Have a batch aborted by a writer of its own; a failed task has sent no message."""
        self.writer().abort([None if each is None else pickle.loads(each) for each in messages], self.number)

    def log_commit(self) -> None:
        """Spark's commit log has the batch."""
        (self.folder / "commits" / str(self.number)).write_text("v1\n{}")

    def trigger(self) -> list[Written]:
        """Run one batch from plan to commit log; return the messages of its tasks."""
        self.plan()
        messages = self.run_tasks(self.begin())
        self.commit(messages)
        self.log_commit()
        return [pickle.loads(each) for each in messages]

    def trigger_killed(self, kill: Kill, *, flow: int) -> None:
        """Run one batch up to the step in which a process is killed, and that step in a process of its own."""
        self.plan()
        given: list[object] = []
        with flow_of(flow):
            for step in STEPS:
                if kill.request in STEPS[step]:
                    break
                given = [getattr(self, step)(*given)]
        _, code = self._fork(step, kill, flow, *given)
        assert code == -signal.SIGKILL, f"nothing is killed {kill}"

    def _fork(self, step: str, kill: Kill, flow: int, *arguments: object) -> tuple[Any, int]:
        asked = pickle.dumps((self, step, kill, flow, arguments))
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
        server = forks(tuple(python_variables(environment).items()), "kohort.spark.exactly_once", __name__)
        code, told, said = server.run([], stdin=asked, environment=environment, timeout=60, script=Path(_SCRIPT))
        assert code in (0, -signal.SIGKILL), said.decode()
        return (pickle.loads(told) if code == 0 else None), code

    def rows(self) -> list[bytes]:
        """Return all committed records by partition and offset, up to the last stable offset."""
        with kohort.Consumer(
            bootstrap_servers=self.bootstrap, auto_offset_reset="earliest", isolation_level="read_committed"
        ) as reader:
            places = [TopicPartition(self.topic, each) for each in reader.partitions_for(self.topic)]
            reader.assign(places)
            stable, found = reader.end_offsets(places), list[kohort.ConsumerRecord]()
            while any(reader.position(each) < stable[each] for each in places):
                found += reader.poll(0.2)
        return [each.value or b"" for each in sorted(found, key=lambda each: (each.partition, each.offset))]

    def is_stable(self) -> bool:
        """Return whether no transaction keeps readers of committed records from the end of the log."""
        ends = []
        for level in ("read_committed", "read_uncommitted"):
            with kohort.Consumer(bootstrap_servers=self.bootstrap, isolation_level=level) as reader:
                places = [TopicPartition(self.topic, each) for each in reader.partitions_for(self.topic)]
                ends.append(reader.end_offsets(places))
        return ends[0] == ends[1]


def table_of(partition: int, values: list[bytes]) -> pa.RecordBatch:
    """Return rows for one partition."""
    return pa.record_batch(
        {
            "key": pa.array([None] * len(values), pa.binary()),
            "value": pa.array(values, pa.binary()),
            "partition": pa.array([partition] * len(values), pa.int32()),
        }
    )


@contextmanager
def in_task(number: int, task: int, attempt: int = 0, *, query_id: str = "q") -> Iterator[None]:
    """Be a task of a streaming query."""
    before = TaskContext._taskContext
    TaskContext._taskContext = None
    context: Any = TaskContext._getOrCreate()
    context._localProperties = {"sql.streaming.queryId": query_id, "streaming.sql.batchId": str(number)}
    context._partitionId, context._attemptNumber = task, attempt
    try:
        yield
    finally:
        TaskContext._taskContext = before


@contextmanager
def flow_of(version: int) -> Iterator[None]:
    """Have the clients of this process use the flow before KIP-890 (0), or that of the broker (2)."""
    before = transactions._EPOCH_PER_TRANSACTION
    if version == 0:
        transactions._EPOCH_PER_TRANSACTION = 1 << 30  # type: ignore[misc]  # as if the broker had not finalized it
    try:
        yield
    finally:
        transactions._EPOCH_PER_TRANSACTION = before  # type: ignore[misc]


def _arm(kill: Kill) -> None:
    """Have this process end at a request."""
    usual, left = Requests.send, [kill.number]

    def send(self: Requests, to: Endpoint, lane: Lane, request: Message, then: Any, **more: Any) -> int:
        def behind(answer: Any, now_ms: int) -> None:
            assert not isinstance(answer, RequestFailed), answer
            os.kill(os.getpid(), signal.SIGKILL)

        if type(request).__name__ == f"{kill.request}Request":
            left[0] -= 1
            if left[0] == 0:
                if not kill.is_behind:
                    os.kill(os.getpid(), signal.SIGKILL)
                then = behind
        return usual(self, to, lane, request, then, **more)

    Requests.send = send  # type: ignore[method-assign]


_SCRIPT: Final = Path(__file__).with_name("spark_sink_worker.py")


def serve() -> None:
    """Take one step that comes by standard input, in a process of its own."""
    query, step, kill, flow, arguments = pickle.load(sys.stdin.buffer)
    _arm(kill)
    with flow_of(flow):
        told = getattr(query, step)(*arguments)
    sys.stdout.buffer.write(pickle.dumps(told))
    sys.stdout.buffer.flush()
    os._exit(0)
