"""Kafka's part of a streaming query's progress: its partitions, its position in each, and their ends.

Laws: pure. A source that is neither kohort's nor Spark's Kafka source is ignored, and so is an offset that cannot be
read: a listener must not end a query because of another source's offset.
Source: Spark's StreamingQueryProgress; Spark's Kafka source calls itself KafkaV2[Subscribe[orders]].
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from kohort.ids import TopicPartition
from kohort.spark.offsets import CheckpointError, QueryOffset, from_json

if TYPE_CHECKING:
    from pyspark.sql.streaming.listener import StreamingQueryProgress

_SPARKS_OWN = "Kafka"


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceState:
    """The position of one source of a query after a batch.

    `ends`: partition -> the next offset that the query reads. `latest`: partition -> the end of the log when the batch
    was planned, of the partitions that were the query's then. `records`: rows of the batch. `name`: of the member that
    reads, `None` without a group. `end`: the offset as Spark has it, JSON.
    """

    ends: Mapping[TopicPartition, int]
    latest: Mapping[TopicPartition, int]
    records: int
    name: str | None
    end: str

    @property
    def lag(self) -> dict[TopicPartition, int]:
        """partition -> offsets that were there and are not read yet."""
        return {
            partition: max(0, latest - self.ends.get(partition, latest)) for partition, latest in self.latest.items()
        }


def read_sources(progress: StreamingQueryProgress) -> list[SourceState]:
    """Return the sources of a query that read Kafka, kohort's and Spark's own."""
    return [state for source in progress.sources for state in _read_source(source)]


def _read_source(source: Mapping[str, Any]) -> Iterator[SourceState]:
    end = _parse(source["endOffset"])
    if end is None or not (_is_ours(end) or str(source["description"]).startswith(_SPARKS_OWN)):
        return
    try:
        offset: QueryOffset = from_json(end)
        latest = from_json(_parse(source["latestOffset"])).spans
    except CheckpointError:
        return
    yield SourceState(
        ends={partition: span.end for partition, span in offset.spans.items()},
        latest={partition: span.end for partition, span in latest.items()},
        records=source["numInputRows"],
        name=offset.name,
        end=source["endOffset"],
    )


def _is_ours(end: Mapping[str, Any]) -> bool:
    return isinstance(end.get("kohort"), int)


def _parse(text: object) -> dict[str, Any] | None:
    """Parse an offset; `None` where there is none: Spark writes null, and py4j None."""
    try:
        found = json.loads(str(text))
    except ValueError:
        return None
    return found if isinstance(found, dict) else None
