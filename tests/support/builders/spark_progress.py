"""Progress of streaming queries as PySpark hands it over: its own classes, read from the JSON that Spark writes."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any
from uuid import UUID

from pyspark.sql.streaming.listener import QueryProgressEvent, QueryTerminatedEvent, StreamingQueryProgress

from kohort import TopicPartition
from kohort.spark.offsets import Span, to_json

#: What the JVM calls our source, and Spark's own.
KOHORT = "org.apache.spark.sql.execution.datasources.v2.python.PythonMicroBatchStreamWithTriggerAvailableNow@74ae5e93"
KAFKA = "KafkaV2[Subscribe[orders]]"
ORDERS = TopicPartition("orders", 0)

#: partition -> offset
Offsets = Mapping[int, int]


def ours(ends: Offsets, latest: Offsets | None = None, *, name: str | None = None, records: int = 0) -> dict[str, Any]:
    """A source of `format("kohort")` on topic orders; `latest` none where the last plan owned nothing."""
    spans = {TopicPartition("orders", number): Span(0, end) for number, end in ends.items()}
    end = {"orders": {str(number): at for number, at in latest.items()}} if latest is not None else None
    return source(KOHORT, to_json(spans, name=name), end, records=records)


def sparks(ends: Offsets, latest: Offsets | None = None, *, topic: str = "orders", records: int = 0) -> dict[str, Any]:
    """A source of Spark's own `format("kafka")`."""
    by_topic = [{topic: {str(number): at for number, at in each.items()}} for each in (ends, latest or ends)]
    return source(KAFKA, by_topic[0], by_topic[1], records=records)


def source(description: str, end: object, latest: object, *, records: int = 0) -> dict[str, Any]:
    """Any source."""
    return {
        "description": description,
        "startOffset": None,
        "endOffset": end,
        "latestOffset": latest,
        "numInputRows": records,
        "inputRowsPerSecond": 0.0,
        "processedRowsPerSecond": 0.0,
    }


def progress(
    *sources: dict[str, Any], query: int = 1, run: int = 1, name: str | None = "departures", batch: int | None = 0
) -> StreamingQueryProgress:
    """What a query says behind a batch; `batch` `None`: while it has nothing to do."""
    said = {
        "id": str(UUID(int=query)),
        "runId": str(UUID(int=run)),
        "name": name,
        "timestamp": "2026-01-31T09:08:52.551Z",
        "batchId": 0 if batch is None else batch,
        "batchDuration": 1792,
        "durationMs": {"latestOffset": 141} | ({} if batch is None else {"addBatch": 797, "triggerExecution": 1792}),
        "stateOperators": [],
        "sources": list(sources),
        "sink": {"description": "NoopTable", "numOutputRows": 10},
    }
    return StreamingQueryProgress.fromJson(json.loads(json.dumps(said)))


def progressed(*sources: dict[str, Any], **more: Any) -> QueryProgressEvent:
    """The event of `progress`."""
    return QueryProgressEvent(progress(*sources, **more))


def terminated(*, query: int = 1, run: int = 1, exception: str | None = None) -> QueryTerminatedEvent:
    """The event of a query's end; `exception` is what has ended it, with Java's stack."""
    return QueryTerminatedEvent(UUID(int=query), UUID(int=run), exception, None)
