"""Requests of a query's membership to its shell, as values, and its results.

Laws: the core yields one request at a time and gets the answer sent. The shell that carries it out decides nothing.
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

    Answer: `dict[TopicPartition, Ledger]`, without partitions that the group does not know.
    """

    partitions: tuple[TopicPartition, ...]


@dataclass(frozen=True, slots=True)
class Commit:
    """A commit of ledgers; answer: whether the group has taken it, `False` if the member is fenced."""

    ledgers: dict[TopicPartition, Ledger]


@dataclass(frozen=True, slots=True)
class LeaveNotes:
    """A note on the positions of others' partitions (`batch_notes.py`); answer: whether it was possible."""

    ledgers: dict[TopicPartition, Ledger]


@dataclass(frozen=True, slots=True)
class ReadNotes:
    """A look at another query's notes about these partitions; answer: `dict[TopicPartition, Ledger]`."""

    name: str
    partitions: tuple[TopicPartition, ...]


@dataclass(frozen=True, slots=True)
class Names:
    """A question for the names (`group.instance.id`) of the group's present members.

    The answer includes members that are away for a while.
    """


@dataclass(frozen=True, slots=True)
class Existing:
    """A question for every partition of the topics that are read."""


@dataclass(frozen=True, slots=True)
class Choose:
    """A choice of spans; answer: one for each place. A place of `None`: no query has begun the partition."""

    places: Places


@dataclass(frozen=True, slots=True)
class Wait:
    """A wait for a moment or until something has changed; answer: the time in milliseconds."""


Request = Fetch | Commit | LeaveNotes | ReadNotes | Names | Existing | Choose | Wait
Steps = Generator[Request, Any, T]


class NoAssignment(Exception):
    """The group assigned no partition in time; the shell tells the user, who may own them elsewhere."""

    def __init__(self, *, is_joined: bool) -> None:
        super().__init__(is_joined)
        #: Whether there was an assignment at all, but an empty one.
        self.is_joined = is_joined


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """The spans that a batch reads, with the other contents of its offset."""

    spans: dict[TopicPartition, Span]
    #: Spans of partitions that are not in the batch: where the query left them.
    others: dict[TopicPartition, Span] = field(default_factory=dict)
    #: The holder as which the query has taken each partition.
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
        """Build the offset of the batch's end; `start` itself, which is `done`, if there is nothing to do.

        A new query writes its start into its checkpoint even if there is nothing to read yet. A query that has
        skipped offsets writes where it goes on.

        Args:
            topic_ids: of the topics that are read, by their names.
            renewed: topics that were made anew, with the ids of the old ones: what is known of them is about those. It
                is kept until the batch reads the new topic, since a loss is told by then.
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
