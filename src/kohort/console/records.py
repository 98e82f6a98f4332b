"""Records of a topic for a page: from an offset, from a time, with a key; a scan says its bound.

Laws: no group is joined and nothing is committed. A page reads a bounded number of records in a bounded time, with the
rights of its visitor; no more than two pages read at a time.
Source: requirement J3; `kohort tail`, which reads the same way.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from kohort.cli.output import text
from kohort.errors import UnknownTopicError
from kohort.ids import TopicPartition

if TYPE_CHECKING:
    from kohort import Consumer, ConsumerRecord

#: Records of a page, those that a scan looks through, and the time for both.
RECORDS_SHOWN: Final = 20
SCANNED_AT_MOST: Final = 500_000
SCAN_SECONDS: Final = 4.0
#: Characters of a key and of a value that are shown.
_TEXT_LIMIT: Final = 2_000
_AT_ONCE: Final = asyncio.Semaphore(2)
#: Parts of a path into a value.
_PATH_PARTS: Final = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """The records that a page asks for; `None`: all partitions, from the end, any key, the whole value."""

    topic: str
    partition: int | None = None
    offset: int | None = None
    time_ms: int | None = None
    key: str | None = None
    path: str = ""


async def read_records(options: Mapping[str, Any], wanted: Wanted) -> dict[str, Any]:
    """Read records with the options of a client.

    Raises:
        KohortError: the cluster refuses it, or does not answer.
    """
    async with _AT_ONCE:
        return await asyncio.to_thread(_read, options, wanted)


def _read(options: Mapping[str, Any], wanted: Wanted) -> dict[str, Any]:
    from kohort import Consumer

    with Consumer(dict(options), auto_offset_reset="earliest") as consumer:
        there = consumer.partitions_for(wanted.topic)
        if not there or (wanted.partition is not None and wanted.partition not in there):
            raise UnknownTopicError(wanted.topic)
        partitions = [TopicPartition(wanted.topic, number) for number in there if wanted.partition in (None, number)]
        begins, ends = consumer.beginning_offsets(partitions), consumer.end_offsets(partitions)
        starts = _starts(consumer, wanted, begins, ends)
        consumer.assign(partitions)
        for place, offset in starts.items():
            consumer.seek(place, offset)
        found, scanned, is_cut = _scan(consumer, wanted, ends)
        # Of a key the records before the first that was looked at are not known.
        is_cut |= wanted.key is not None and len(found) < RECORDS_SHOWN and starts != dict(begins)
    if wanted.offset is None and wanted.time_ms is None and wanted.key is None:
        # From the end: the latest of all partitions together, in the order of their times.
        found = sorted(found, key=lambda record: (record.timestamp, record.partition, record.offset))[-RECORDS_SHOWN:]
    return {
        "records": [_values(record, wanted.path) for record in found],
        "scanned": scanned,
        "is_cut": is_cut,
        "bound": f"at most {SCANNED_AT_MOST:,} records and {SCAN_SECONDS:.0f} s",
        "next": max((record.offset + 1 for record in found), default=None) if wanted.partition is not None else None,
    }


def _starts(
    consumer: Consumer,
    wanted: Wanted,
    begins: Mapping[TopicPartition, int],
    ends: Mapping[TopicPartition, int],
) -> dict[TopicPartition, int]:
    """Return the offset at which reading begins in each partition, within the log."""
    if wanted.time_ms is not None:
        found = consumer.offsets_for_times(dict.fromkeys(begins, wanted.time_ms))
        return {place: ends[place] if at is None else at[0] for place, at in found.items()}
    if wanted.offset is not None:
        return {place: min(max(begin, wanted.offset), ends[place]) for place, begin in begins.items()}
    # A key is looked for among the latest records; without one the latest few are shown.
    back = SCANNED_AT_MOST // max(1, len(begins)) if wanted.key is not None else RECORDS_SHOWN
    return {place: max(begin, ends[place] - back) for place, begin in begins.items()}


def _scan(
    consumer: Consumer, wanted: Wanted, ends: Mapping[TopicPartition, int]
) -> tuple[list[ConsumerRecord], int, bool]:
    """Read until enough is found, the end is reached, or the bound; whether it was the bound comes last."""
    key = None if wanted.key is None else wanted.key.encode()
    # Without a start each partition has its latest few, of which the page shows the latest.
    most = RECORDS_SHOWN * (1 if wanted.offset is not None or wanted.time_ms is not None or key else len(ends))
    found: list[ConsumerRecord] = []
    scanned, until = 0, time.monotonic() + SCAN_SECONDS
    while any(consumer.position(place) < end for place, end in ends.items()):
        if time.monotonic() > until or scanned >= SCANNED_AT_MOST:
            return found, scanned, True
        # Arrow's columns, filtered by the key, took as long as these records, and to load Arrow twice as long as both.
        for record in consumer.poll(0.2):
            scanned += 1
            if record.offset < ends[record.topic_partition] and (key is None or record.key == key):
                found.append(record)
                if len(found) >= most:
                    return found, scanned, False
    return found, scanned, False


def _values(record: ConsumerRecord, path: str) -> dict[str, Any]:
    value = text(record.value)
    shown = value if value is None or not path else _pick(value, path)
    return {
        "partition": record.partition,
        "offset": record.offset,
        "time_ms": record.timestamp if record.timestamp >= 0 else None,
        "key": _cut(text(record.key)),
        "value": _cut(shown),
        "bytes": len(record.value or b""),
        "headers": [[name, _cut(text(each))] for name, each in record.headers[:50]],
    }


def _pick(value: str, path: str) -> str | None:
    """Return the value at a path like `$.lines[0].sku` in a JSON text, or `None` if the path does not exist.

    >>> _pick('{"lines": [{"sku": "a"}]}', "$.lines[0].sku")
    'a'
    """
    try:
        found: Any = json.loads(value)
        for part in path.removeprefix("$").replace("[", ".").replace("]", "").strip(".").split(".")[:_PATH_PARTS]:
            if part:
                found = found[int(part)] if isinstance(found, list) else found[part]
    except (ValueError, KeyError, IndexError, TypeError, RecursionError):
        return None
    return found if isinstance(found, str) else json.dumps(found)


def _cut(shown: str | None) -> str | None:
    return shown if shown is None or len(shown) <= _TEXT_LIMIT else f"{shown[:_TEXT_LIMIT]}…"
