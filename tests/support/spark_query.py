"""A streaming query without a JVM: calls a stream reader as Spark does, in Spark's order, on a checkpoint of its own.

`Checkpoint` outlives the readers, as the folder on disk does: its `offsets` are written before a batch runs, its
`commits` behind it; a query that finds one more offset than commits repeats that batch first.
"""

from __future__ import annotations

import json
import pickle
from dataclasses import dataclass, field
from typing import Any

from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMinRows

from kohort import TopicPartition
from kohort.spark.offsets import OffsetJson
from kohort.spark.options import parse_options
from kohort.spark.stream import KohortStreamReader

#: One record: topic, partition, offset.
Place = tuple[str, int, int]


@dataclass
class Checkpoint:
    """What Spark keeps of a query, and what its sink has got."""

    offsets: list[str] = field(default_factory=list)
    commits: int = 0
    #: Records of finished batches, in the order in which they were written.
    sink: list[Place] = field(default_factory=list)

    @property
    def finished(self) -> str | None:
        """The end of the last finished batch."""
        return self.offsets[self.commits - 1] if self.commits else None

    def places(self) -> list[Place]:
        """Everything in the sink, sorted; what was written twice is there twice."""
        return sorted(self.sink)


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
        assert len(self.checkpoint.offsets) == self.checkpoint.commits, "a batch is open"
        start = self._start()
        end = self._text(self.reader.latestOffset(self._json(start), self._limit()))
        self.reader.reportLatestOffset()
        if end == start:
            return False
        self.checkpoint.offsets.append(end)
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
        self.checkpoint.sink += places
        self.checkpoint.commits += 1

    def trigger(self) -> list[Place]:
        """One micro-batch from plan to commit, or the repetition of an open one; its records."""
        is_open = len(self.checkpoint.offsets) > self.checkpoint.commits
        if not is_open and not self.plan():
            return []
        places = self.execute()
        self.finish(places)
        return places

    def run(self) -> None:
        """Trigger until there is nothing to do."""
        while len(self.checkpoint.offsets) > self.checkpoint.commits or self.plan():
            self.finish(self.execute())

    def owned(self) -> set[TopicPartition]:
        """The partitions that the last plan was about."""
        return set(self.reader._ends)

    def stop(self) -> None:
        """End it cleanly."""
        self.reader.stop()

    def _start(self) -> str:
        return self.checkpoint.finished or self._text(self.reader.initialOffset())

    def _limit(self) -> Any:
        limit = self.reader.getDefaultReadLimit()
        assert isinstance(limit, ReadAllAvailable | ReadMinRows) or limit.max_rows > 0
        return limit

    @staticmethod
    def _json(text: str) -> OffsetJson:
        parsed: OffsetJson = json.loads(text)
        return parsed

    @staticmethod
    def _text(offset: OffsetJson) -> str:
        return json.dumps(offset)
