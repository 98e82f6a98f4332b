"""Options of the journal: how many rows are kept, in memory and on disk; Kafka has none."""

from __future__ import annotations

from typing import Final

from kohort.config import Option, parse_bool, parse_int


def _bound(name: str, default: int, doc: str, *, low: int) -> Option:
    return Option(name=name, parse=parse_int, default=default, doc=doc, minimum=low, maximum=(1 << 63) - 1)


#: All options of the journal.
JOURNAL_OPTIONS: Final = [
    _bound(
        "journal.ring.rows",
        20_000,
        "Rows of the journal in memory; beyond that the group that has most loses its oldest; 0: none (not in Kafka).",
        low=0,
    ),
    Option(
        name="journal.topic.enable",
        parse=parse_bool,
        default=True,
        doc="Whether a broker with a data directory keeps the journal in the topic __group_journal (not in Kafka).",
    ),
    _bound(
        "journal.topic.retention.bytes",
        64 * 1024 * 1024,
        "Size above which the oldest segments of __group_journal go; -1: no limit (not in Kafka).",
        low=-1,
    ),
    _bound(
        "journal.topic.retention.ms",
        604_800_000,
        "Age at which the segments of __group_journal go; -1: never (not in Kafka).",
        low=-1,
    ),
]
