"""A streaming query without a JVM: calls a stream reader as Spark does, in Spark's order, on a checkpoint of its own.

`Checkpoint` outlives the readers, as the folder on disk does: its `offsets` are written before a batch runs, its
`commits` behind it; a query that finds one more offset than commits repeats that batch first. It can be copied and put
back, with its sink, and kept in a folder with the files that Spark writes.
"""

from __future__ import annotations

import json
import pickle
from copy import deepcopy
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Any, Literal, Protocol

from kohort import TopicPartition
from kohort.spark.offsets import OffsetJson
from kohort.spark.options import parse_options
from kohort.spark.stream import KohortStreamReader
from support.waiting import until

#: Spark's offset log has the time of each plan.
_MOMENTS = count(1_700_000_000_000)
#: One record: topic, partition, offset.
Place = tuple[str, int, int]


def places(topic: str, records: dict[int, range]) -> list[Place]:
    """The records of these offsets, by partition, in order."""
    return sorted((topic, partition, offset) for partition, span in records.items() for offset in span)


@dataclass
class Checkpoint:
    """What Spark keeps of a query, and what its sink has got."""

    offsets: list[str] = field(default_factory=list)
    commits: int = 0
    #: batch id -> its records, in the order in which they were written.
    batches: dict[int, list[Place]] = field(default_factory=dict)
    #: Which writing of a batch the sink keeps; one that appends keeps all.
    keeps: Literal["first", "last", "all"] = "last"
    #: Where the same is kept in files; `None` for nowhere.
    location: Path | None = None

    @property
    def finished(self) -> str | None:
        """The end of the last finished batch."""
        return self.offsets[self.commits - 1] if self.commits else None

    @property
    def is_open(self) -> bool:
        """Whether a batch was planned and is not finished."""
        return len(self.offsets) > self.commits

    @property
    def sink(self) -> list[Place]:
        """Every record that was written and kept."""
        return [place for _, written in sorted(self.batches.items()) for place in written]

    def places(self) -> list[Place]:
        """Everything in the sink, sorted; what was written twice is there twice."""
        return sorted(self.sink)

    def copy(self) -> Checkpoint:
        """As it is now, to be put back later."""
        return deepcopy(self)

    def log_offset(self, end: str) -> None:
        """The offset log has a batch."""
        told = f'{{"batchWatermarkMs":0,"batchTimestampMs":{next(_MOMENTS)}}}'
        self._write("offsets", len(self.offsets), f"v1\n{told}\n{end}")
        self.offsets.append(end)

    def write(self, written: list[Place]) -> None:
        """The sink has the open batch."""
        earlier = self.batches.get(self.commits)
        if self.keeps == "last" or earlier is None:
            self.batches[self.commits] = written
        elif self.keeps == "all":
            self.batches[self.commits] = earlier + written

    def log_commit(self) -> None:
        """The commit log has the open batch."""
        self._write("commits", self.commits, 'v1\n{"nextBatchWatermarkMs":0}')
        self.commits += 1

    def _write(self, log: str, number: int, text: str) -> None:
        if self.location is not None:
            folder = self.location / log
            folder.mkdir(parents=True, exist_ok=True)
            (folder / str(number)).write_text(text)


class Query:
    """One run of a query.

    Args:
        checkpoint: of earlier runs; a new query by default.
        available_now: end at what is there now.
        options: of the source, with `__` for dots.
    """

    def __init__(
        self, bootstrap: str, *, checkpoint: Checkpoint | None = None, available_now: bool = False, **options: object
    ) -> None:
        self.checkpoint = checkpoint or Checkpoint()
        given = {name.replace("__", "."): str(value) for name, value in options.items()}
        self.reader = KohortStreamReader(parse_options({"kafka.bootstrap.servers": bootstrap, **given}))
        self._columns = list(parse_options({"kafka.bootstrap.servers": bootstrap, **given}).columns)
        # Executors get a reader that was pickled before anything was live.
        self._shipped = pickle.dumps(self.reader)
        if available_now:
            self.reader.prepareForTriggerAvailableNow()

    def plan(self) -> bool:
        """Ask for the next batch and write its end into the checkpoint; `False` if there is nothing to do."""
        assert not self.checkpoint.is_open, "a batch is open"
        start = self._start()
        end = self._text(self.reader.latestOffset(self._json(start), self._limit()))
        self.reader.reportLatestOffset()
        if end == start:
            return False
        self.checkpoint.log_offset(end)
        return True

    def execute(self) -> list[Place]:
        """Read the open batch as executors do; its records, which are not in the sink yet."""
        tasks = self.reader.partitions(self._json(self._start()), self._json(self.checkpoint.offsets[-1]))
        places: list[Place] = []
        for task in tasks:
            shipped = pickle.loads(self._shipped)
            for batch in shipped.read(pickle.loads(pickle.dumps(task))):
                assert batch.schema.names == self._columns
                places += zip(
                    batch.column("topic").to_pylist(),
                    batch.column("partition").to_pylist(),
                    batch.column("offset").to_pylist(),
                    strict=True,
                )
        return places

    def finish(self, places: list[Place]) -> None:
        """The batch is written, and Spark's commit log has it."""
        self.checkpoint.write(places)
        self.checkpoint.log_commit()

    def trigger(self) -> list[Place]:
        """One micro-batch from plan to commit, or the repetition of an open one; its records."""
        if not self.checkpoint.is_open and not self.plan():
            return []
        places = self.execute()
        self.finish(places)
        return places

    def run(self) -> None:
        """Trigger until there is nothing to do."""
        while self.checkpoint.is_open or self.plan():
            self.finish(self.execute())

    def read(self, count: int) -> None:
        """Run until the sink has so many records: in a group partitions may come a moment later."""
        until(lambda: len(self.checkpoint.sink) >= count, what=f"{count} records are read", step=self.run)

    def owned(self) -> set[TopicPartition]:
        """The partitions that the last plan was about."""
        return set(self.reader._ends)

    @property
    def name(self) -> str:
        """Of the query in its group."""
        newest = self.checkpoint.offsets[-1:] or [self._text(self.reader.initialOffset())]
        return str(self._json(newest[0])["name"])

    def start_json(self) -> OffsetJson:
        """The end of the last finished batch, as Spark passes it."""
        return self._json(self._start())

    def stop(self) -> None:
        """End it cleanly."""
        self.reader.stop()

    def _start(self) -> str:
        return self.checkpoint.finished or self._text(self.reader.initialOffset())

    def _limit(self) -> Any:
        return self.reader.getDefaultReadLimit()

    @staticmethod
    def _json(text: str) -> OffsetJson:
        parsed: OffsetJson = json.loads(text)
        return parsed

    @staticmethod
    def _text(offset: OffsetJson) -> str:
        return json.dumps(offset)


class Start(Protocol):
    """Starts a query; `checkpoint` and `available_now` are as for `Query`."""

    def __call__(
        self, *, checkpoint: Checkpoint | None = None, available_now: bool = False, **options: Any
    ) -> Query: ...
