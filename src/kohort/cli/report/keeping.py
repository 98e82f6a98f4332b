"""The tables that `--follow` keeps: a folder each, and in it a folder for each batch of the query.

Laws: a line is in a table once, whatever is stopped and begun again: a batch that comes again replaces its folder, and
folders are put together in a draft that is whole before the first of them goes. What ended longer ago than is to be
kept goes on that occasion. What Spark does not read yet begins with a dot.
"""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

#: So many batches a table may have before they are put together.
MOST_BATCHES: Final = 50
_BATCH: Final = "batch="
_DRAFT: Final = ".together="


def write_batch(table: DataFrame, folder: Path, batch_id: int) -> None:
    """Write the rows of one batch of a query to the table in `folder`."""
    table.write.mode("overwrite").parquet(str(folder / f"{_BATCH}{batch_id}"))


def read_table(spark: SparkSession, folder: Path, *, since_ms: int) -> DataFrame:
    """Read the lines that ended since then, milliseconds since 1970."""
    return _kept(spark.read.parquet(str(folder)), since_ms).drop(_BATCH.removesuffix("="))


def put_together(spark: SparkSession, folder: Path, *, before: int, since_ms: int, most: int = MOST_BATCHES) -> None:
    """Merge the batches before `before` into one if there are more than `most`.

    Rows that ended before `since_ms` are dropped.

    The batch `before` itself may come again.
    """
    numbers = [number for number in _batches(folder) if number < before]
    if len(numbers) <= most:
        return
    old = spark.read.parquet(*(str(folder / f"{_BATCH}{number}") for number in numbers))
    draft = folder / f"{_DRAFT}{max(numbers)}"
    _kept(old, since_ms).coalesce(1).write.mode("overwrite").parquet(str(draft))
    finish(folder)


def finish(folder: Path) -> None:
    """Go on where a process was stopped that put batches together."""
    for draft in folder.glob(f"{_DRAFT}*"):
        last = int(draft.name.removeprefix(_DRAFT))
        if not (draft / "_SUCCESS").exists():
            shutil.rmtree(draft)
            continue
        for number in _batches(folder):
            if number <= last:
                shutil.rmtree(folder / f"{_BATCH}{number}")
        draft.rename(folder / f"{_BATCH}{last}")


def _batches(folder: Path) -> list[int]:
    return [int(path.name.removeprefix(_BATCH)) for path in folder.glob(f"{_BATCH}*")]


def _kept(table: DataFrame, since_ms: int) -> DataFrame:
    from pyspark.sql import functions as f

    # A line without an end counts from its beginning.
    last = f.coalesce(*(name for name in ("ended", "began") if name in table.columns))
    return table.where(last >= f.timestamp_millis(f.lit(since_ms)))
