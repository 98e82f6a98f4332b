"""What a driver of the hand-over's rounds runs: a Spark session whose one query does what lines of its input say.

Each line of the input is a JSON object, `do` and what that takes; each answer is a line that begins with ANSWER.
"""

from __future__ import annotations

import fcntl
import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import kohort.spark
from support.peers.java_options import FEW_ROWS

if TYPE_CHECKING:
    import pyarrow
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming import StreamingQuery

ANSWER: Final = "> "
SETTINGS: Final = {**FEW_ROWS, "spark.driver.memory": "512m"}
_DRAIN_S: Final = 90.0


class Program:
    """Its calls are what the input may say."""

    def __init__(self, spark: SparkSession) -> None:
        self._spark = spark
        self._query: StreamingQuery | None = None
        self._listener: kohort.spark.QueryListener | None = None

    def start(self, *, options: dict[str, str], folder: str, name: str, trigger: str, listens: bool) -> None:
        """Write each batch to a file of its own, named by query and batch id: the last writing counts."""
        if self._listener is not None:
            self._spark.streams.removeListener(self._listener)
        self._listener = kohort.spark.QueryListener() if listens else None
        if self._listener is not None:
            self._spark.streams.addListener(self._listener)
        frame = self._spark.readStream.format("kohort").options(**options).load()
        place, passes = Path(folder), pass_gate(f"{folder}/{name}.gate")

        def write(batch: DataFrame, number: int) -> None:
            (place / f"{name}-{number}.begun").touch()
            rows = batch.select("partition", "offset", "value")
            found = [
                (row.partition, row.offset, int(row.value)) for row in rows.mapInArrow(passes, rows.schema).collect()
            ]
            draft = place / f"{name}-{number}.draft"
            draft.write_text(json.dumps(found))
            draft.rename(place / f"{name}-{number}.json")

        self._query = (
            frame.writeStream.foreachBatch(write)
            .option("checkpointLocation", f"{folder}/{name}-checkpoint")
            .trigger(processingTime=trigger)
            .start()
        )

    def stop(self) -> None:
        """As users do."""
        if self._query is not None:
            self._query.stop()

    def drain(self) -> None:
        """As users do who want nothing in doubt."""
        assert self._query is not None
        kohort.spark.drain_and_stop(self._query, timeout=_DRAIN_S)

    def state(self) -> dict[str, object]:
        """Whether the query runs, and why not."""
        query = self._query
        if query is None:
            return {"active": False, "why": "it was never started"}
        return {"active": query.isActive, "why": str(query.exception() or "")[:1000]}


def pass_gate(path: str) -> Callable[[Iterator[pyarrow.RecordBatch]], Iterator[pyarrow.RecordBatch]]:
    """Tasks wait as long as somebody has the file's lock."""

    def wait(batches: Iterator[pyarrow.RecordBatch]) -> Iterator[pyarrow.RecordBatch]:
        with open(path, "ab") as gate:
            fcntl.flock(gate, fcntl.LOCK_SH)
        yield from batches

    return wait


def main() -> None:
    """Answer every line until the input ends."""
    program = Program(kohort.spark.session(master="local[2]", **SETTINGS))
    _answer({})
    for line in sys.stdin:
        wanted: dict[str, Any] = json.loads(line)
        try:
            _answer(getattr(program, wanted.pop("do"))(**wanted) or {})
        except Exception as why:
            _answer({"failed": f"{type(why).__name__}: {why}"[:2000]})


def _answer(what: dict[str, object]) -> None:
    print(f"{ANSWER}{json.dumps(what)}", flush=True)


if __name__ == "__main__":
    main()
