"""The requests that a query's `Membership` yields, as values, and the plan that it returns.

Laws: `core.py` yields one request at a time and is sent its result. The code that carries it out decides nothing.
Source: the calls of `client/steps.py`, which are coroutines for the same reason.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

from kohort.ids import TopicPartition
from kohort.spark.member.lineage import Holder, Ledger, Place
from kohort.spark.offsets import OffsetJson, QueryOffset, Span, to_json

T = TypeVar("T")

Places = dict[TopicPartition, Place | None]


@dataclass(frozen=True, slots=True)
class Fetch:
    """A fetch of the group's ledgers.

    The result is a `dict[TopicPartition, Ledger]`, without partitions for which nothing is committed.
    """

    partitions: tuple[TopicPartition, ...]


@dataclass(frozen=True, slots=True)
class Commit:
    """A commit of ledgers; the result is whether it was accepted, `False` if the member is fenced."""

    ledgers: dict[TopicPartition, Ledger]


@dataclass(frozen=True, slots=True)
class LeaveNotes:
    """A commit of notes on others' partitions (`batch_notes.py`); the result is whether it succeeded."""

    ledgers: dict[TopicPartition, Ledger]


@dataclass(frozen=True, slots=True)
class ReadNotes:
    """A fetch of another query's notes on these partitions; the result is as that of `Fetch`."""

    name: str
    partitions: tuple[TopicPartition, ...]


@dataclass(frozen=True, slots=True)
class Names:
    """A request for the names (`group.instance.id`) of the group's present members.

    The result includes static members that are away for a while.
    """


@dataclass(frozen=True, slots=True)
class Existing:
    """A request for all partitions of the topics that are read; the result is a list."""


@dataclass(frozen=True, slots=True)
class Choose:
    """A choice of spans, one for each place; no query has read a partition whose place is `None`."""

    places: Places


@dataclass(frozen=True, slots=True)
class Wait:
    """A wait until something has changed, or for a moment; the result is the time in milliseconds."""


Request = Fetch | Commit | LeaveNotes | ReadNotes | Names | Existing | Choose | Wait
Steps = Generator[Request, Any, T]


class NoAssignment(Exception):
    """The group assigned no partition in time; `thread.py` raises an error with possible reasons."""

    def __init__(self, *, is_joined: bool) -> None:
        super().__init__(is_joined)
        #: Whether the group has sent an assignment, but an empty one.
        self.is_joined = is_joined


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """The spans that a batch reads, with the other contents of its offset."""

    spans: dict[TopicPartition, Span]
    #: Empty spans at the query's positions, for partitions that are not in the batch.
    others: dict[TopicPartition, Span] = field(default_factory=dict)
    #: The query's entry in each partition's chain of holders.
    taken: dict[TopicPartition, Holder] = field(default_factory=dict)
    #: Moves to offsets set from outside: from where to where.
    external: dict[TopicPartition, Span] = field(default_factory=dict)

    def offset(
        self,
        start: OffsetJson,
        done: QueryOffset,
        *,
        name: str | None,
        topic_ids: Mapping[str, str] | None = None,
        renewed: Mapping[str, str] | None = None,
        has_skipped: bool = False,
    ) -> OffsetJson:
        """Build the end offset of the batch; return `start` (parsed: `done`) if there is nothing to do.

        A new query writes its start into its checkpoint even if there is nothing to read yet. A query that has
        skipped offsets writes the position at which it continues.

        Args:
            topic_ids: topic -> id, of the topics that are read.
            renewed: recreated topic -> id of the deleted one, to which the known offsets belong. That id is kept until
                a batch reads the new topic, because the loss of records is reported by then.
        """
        has_news = has_skipped or bool(self.external) or not done.spans
        if not any(span.size for span in self.spans.values()) and not (has_news and self.spans):
            return start
        kept = {topic: each for topic, each in (renewed or {}).items() if all(topic != one.topic for one in self.spans)}
        dropped = (renewed or {}).keys() - kept
        spans = {**{each: span for each, span in self.others.items() if each.topic not in dropped}, **self.spans}
        read = {partition.topic for partition in spans}
        ids = {topic: each for topic, each in {**(topic_ids or {}), **kept}.items() if topic in read}
        return to_json(
            spans,
            name=name,
            since={each: holder.since for each, holder in self.taken.items()},
            orders={each: holder.orders for each, holder in self.taken.items() if holder.orders},
            topic_ids=ids,
            external=self.external,
        )
