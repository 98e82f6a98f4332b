"""Rows of the coordinator's journal as a data frame, and the facts that are found in them.

Laws: the rows of a group are followed in their order, one at a time: a worker holds the state of one group and a batch
of rows, however many there are; the driver holds none. Batch and stream use the same code; a stream returns a fact
when it is over, a batch also those that are not over at the end.
Source: requirement P5; the JSON of `kohort group history --json`, one document or a row per line.
"""

from __future__ import annotations

import gc
import pickle
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import groupby, pairwise
from operator import attrgetter, itemgetter
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol

from kohort.assign.interface import Assignor
from kohort.journal.rows import TRANSACTION_PREFIX
from kohort.journal.words import JournalRow
from kohort.pipelines import following, replaying
from kohort.pipelines.fact import COLUMNS, SPOKEN_OF, Fact, Kind
from kohort.pipelines.following import Follower
from kohort.pipelines.replaying import Replays, find_assignor

if TYPE_CHECKING:
    import pandas as pd  # type: ignore[import-untyped]
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

#: Columns of rows: as `kohort group history --json` has them, and the group.
JOURNAL_SCHEMA: Final = (
    "group_id string, sequence bigint, time_ms bigint, last_time_ms bigint, times int, cause bigint, origin bigint, "
    "kind string, event string, member_id string, details map<string,string>"
)
#: Columns of facts, see `Fact`.
FACTS_SCHEMA: Final = ", ".join(f"{name} {kind}" for name, kind in COLUMNS.items())

_EVENT: Final = JOURNAL_SCHEMA.replace(" ", ":", 1).replace(", ", ",").replace(" ", ":")
_LINE: Final = f"{JOURNAL_SCHEMA}, events array<struct<{_EVENT.partition(',')[2]}>>"
#: Columns that a follower reads.
_READ: Final = ("sequence", "time_ms", "last_time_ms", "times", "event", "member_id", "details")
_STATE: Final = "follower binary"


class GroupRow(NamedTuple):
    """A journal row as a follower or an explanation reads it."""

    sequence: int
    time_ms: int
    last_time_ms: int
    times: int
    event: str
    member_id: str
    details: Mapping[str, str]
    #: Number of the input that led to the row; 0 for followers, which do not read it.
    cause: int = 0


class Reader(Protocol):
    """A reader of one group's rows in order, which finds facts in them; it can be pickled."""

    def read(self, row: JournalRow) -> None:
        """Process the next row."""

    def take(self) -> list[Fact]:
        """Return the facts that have ended since the last call."""

    def finish(self) -> list[Fact]:
        """Return the remaining facts once there are no more rows."""


def read_journal(spark: SparkSession, path: str | list[str]) -> DataFrame:
    """Read rows from files of `kohort group history GROUP --json`: columns of `JOURNAL_SCHEMA`.

    Files of `--json --follow` have the same rows.

    Args:
        spark: any session.
        path: files, folders or patterns, of any file system that Spark reads.

    Lines that are no such JSON are left out.

    >>> rows = read_journal(spark, "history/*.json")  # doctest: +SKIP
    """
    return parse_journal(spark.read.text(path))


def parse_journal(lines: DataFrame) -> DataFrame:
    """Parse a column `value` with JSON of `kohort group history` into columns of `JOURNAL_SCHEMA`.

    The values are text or bytes, of a batch or a stream.

    So the history of a group can be sent through a topic: `kohort group history billing --json --follow | kohort send
    history` writes it, and this function parses what `format("kohort")` reads.

    >>> rows = parse_journal(spark.readStream.format("kohort").options(**where).load())  # doctest: +SKIP
    """
    from pyspark.sql import functions as f

    parsed = lines.select(f.from_json(f.col("value").cast("string"), _LINE).alias("line")).select("line.*")
    # A row of a document is in its list; a line that is a row itself becomes a list of one.
    own = [f.col(name) for name in _names_of(JOURNAL_SCHEMA) if name != "group_id"]
    events = f.coalesce(f.col("events"), f.array(f.struct(*own)))
    rows = parsed.select("group_id", f.explode(events).alias("row")).select("group_id", "row.*")
    # In the topic `__group_journal` there are rows about transactional ids, too.
    is_of_group = ~f.col("group_id").startswith(TRANSACTION_PREFIX)
    return rows.where("group_id is not null and event is not null and time_ms is not null").where(is_of_group)


def facts(
    rows: DataFrame, *, assignors: Sequence[str | Assignor] = (), partitions: Mapping[str, int] | None = None
) -> DataFrame:
    """Find the facts in journal rows: columns of `FACTS_SCHEMA`, one row a fact, in no order.

    The tables of this package are made of facts. Each table takes rows or facts; to make several, keep the facts
    (`facts(rows).persist()`), so that the rows are followed once.

    A stream keeps the state of each group for ever, some kilobytes; a watermark makes no difference. Rows of one group
    must arrive in their order, as from one partition of a topic; facts that are not over are not returned.

    Args:
        rows: journal rows, batch or stream; facts are returned as they are.
        assignors: those for which `what_if` is to find rows in the facts; `partitions` is as for `what_if`.

    Raises:
        ConfigError: there is no assignor of that name.

    >>> kept = facts(rows).persist()  # doctest: +SKIP
    """
    if "event" not in rows.columns:
        return rows
    chosen = tuple(find_assignor(assignor) for assignor in assignors)
    if not chosen:
        return follow_groups(rows, Follower, events=following.EVENTS)
    make = partial(_Readers, Replays(chosen, dict(partitions or {})))
    return follow_groups(rows, make, events=following.EVENTS | replaying.EVENTS)


class _Readers:
    """The readers of actual and of replayed assignments, over the same rows."""

    def __init__(self, replays: Replays, group_id: str) -> None:
        self._readers: Final[tuple[Reader, ...]] = (Follower(group_id), replays(group_id))

    def read(self, row: JournalRow) -> None:
        for reader in self._readers:
            reader.read(row)

    def take(self) -> list[Fact]:
        return [fact for reader in self._readers for fact in reader.take()]

    def finish(self) -> list[Fact]:
        return [fact for reader in self._readers for fact in reader.finish()]


def follow_groups(rows: DataFrame, make: Callable[[str], Reader], *, events: Collection[str]) -> DataFrame:
    """Return the facts that readers find in the rows of their groups: columns of `FACTS_SCHEMA`.

    Args:
        rows: batch or stream.
        make: makes the reader of a group; must be picklable.
        events: those that readers use; rows of other events are dropped first.
    """
    from pyspark.sql import functions as f

    needed = rows.where(f.col("event").isin(sorted(events))).select("group_id", *_READ)
    if rows.isStreaming:
        follow_on = partial(_follow_on, make)
        return needed.groupBy("group_id").applyInPandasWithState(follow_on, FACTS_SCHEMA, _STATE, "append", "NoTimeout")
    ordered = needed.repartition("group_id").sortWithinPartitions("group_id", "time_ms", "sequence")
    return ordered.mapInArrow(partial(_follow_all, make), FACTS_SCHEMA)


def rows_by_group(
    rows: DataFrame,
    make: Callable[[Iterable[tuple[str, Iterator[GroupRow]]]], Iterator[pa.RecordBatch]],
    schema: str,
) -> DataFrame:
    """Apply a function to each group with all of its rows in order, and return its results.

    Args:
        rows: a batch.
        make: takes groups one after the other, and must read the rows of each before the next; must be picklable.
        schema: of what it returns.
    """
    needed = rows.select("group_id", *_READ[:-1], "cause", "details")
    ordered = needed.repartition("group_id").sortWithinPartitions("group_id", "time_ms", "sequence")
    return ordered.mapInArrow(partial(_make_all, make), schema)


def _make_all(
    make: Callable[[Iterable[tuple[str, Iterator[GroupRow]]]], Iterator[pa.RecordBatch]],
    batches: Iterable[pa.RecordBatch],
) -> Iterator[pa.RecordBatch]:
    def read() -> Iterator[tuple[str, GroupRow]]:
        for batch in batches:
            columns = [batch.column(name).to_pylist() for name in ("group_id", *_READ[:-1])]
            others = (_dictionaries(batch.column("details")), batch.column("cause").to_pylist())
            for group_id, *values in zip(*columns, *others, strict=True):
                yield group_id, GroupRow(*values)

    return make((group_id, (row for _, row in own)) for group_id, own in groupby(read(), itemgetter(0)))


def _names_of(schema: str) -> list[str]:
    return [column.partition(" ")[0] for column in schema.split(", ")]


def _follow_all(make: Callable[[str], Reader], batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Follow groups one after the other, each whole and in order."""
    reader = make("")
    group: str | None = None
    # This code makes no reference cycles; those that an assignor makes are collected between batches.
    gc.disable()
    try:
        for batch in batches:
            told: list[Fact] = []
            gc.collect(1)
            columns = [batch.column(name).to_pylist() for name in ("group_id", *_READ[:-1])]
            for group_id, *values in zip(*columns, _dictionaries(batch.column(_READ[-1])), strict=True):
                if group_id != group:
                    told += reader.finish()
                    reader, group = make(group_id), group_id
                reader.read(GroupRow(*values))
            yield from batches_of(told + reader.take())
        yield from batches_of(reader.finish())
    finally:
        gc.enable()


def _dictionaries(maps: pa.MapArray) -> Iterator[dict[str, str]]:
    """Convert Arrow maps to dictionaries."""
    # Arrow's own conversion is slower, since it makes an object of each pair.
    offsets, keys, items = maps.offsets.to_pylist(), maps.keys.to_pylist(), maps.items.to_pylist()
    return (dict(zip(keys[start:stop], items[start:stop], strict=True)) for start, stop in pairwise(offsets))


def _follow_on(
    make: Callable[[str], Reader], key: tuple[str], frames: Iterator[pd.DataFrame], state: Any
) -> Iterator[pd.DataFrame]:
    """Follow the rows of one group in one micro-batch of a stream."""
    reader: Reader = pickle.loads(state.get[0]) if state.exists else make(key[0])
    rows = [GroupRow(*values) for frame in frames for values in frame[list(_READ)].itertuples(index=False)]
    # pandas has a map as a dictionary, or as pairs.
    rows = [row._replace(details=dict(row.details or ())) for row in rows]
    for row in sorted(rows, key=lambda row: (row.time_ms, row.sequence)):
        reader.read(row)
    told = reader.take()
    state.update((pickle.dumps(reader),))
    # pandas logs a warning when PySpark concatenates frames without rows.
    if told:
        yield frame_of(told)


def frame_of(told: Sequence[Fact]) -> pd.DataFrame:
    """Build a pandas frame with fixed columns and types, even without facts."""
    import pandas as pd
    import pyarrow as pa

    # PySpark concatenates the frames of many groups.
    types = {pa.string(): pd.StringDtype(), pa.int64(): pd.Int64Dtype(), pa.int32(): pd.Int32Dtype()}
    types[pa.bool_()] = pd.BooleanDtype()
    return pa.Table.from_batches(batches_of(told)).to_pandas(types_mapper=types.get)


def batches_of(told: Iterable[Fact]) -> Iterator[pa.RecordBatch]:
    """Build an Arrow record batch for each kind of fact; most of its columns are null."""
    import pyarrow as pa

    types = {"string": pa.string(), "bigint": pa.int64(), "int": pa.int32(), "boolean": pa.bool_()}
    schema = pa.schema([(name, types[kind]) for name, kind in COLUMNS.items()])
    by_kind: dict[Kind, list[Fact]] = {}
    for fact in told:
        by_kind.setdefault(fact.kind, []).append(fact)
    for kind, facts_of_kind in by_kind.items():
        names = ("kind", "group_id", "began_ms", "ended_ms", *SPOKEN_OF[kind])
        values = dict(zip(names, zip(*map(attrgetter(*names), facts_of_kind), strict=True), strict=True))
        nothing = [None] * len(facts_of_kind)
        columns = [pa.array(values.get(column.name, nothing), column.type) for column in schema]
        yield pa.RecordBatch.from_arrays(columns, schema=schema)
