"""Who has read which part of a partition: what a query keeps beside the offsets that it commits for its group.

A committed offset says how far a partition is read, but not by whom, nor whether somebody has planned to read on. A
query's checkpoint says how far that query is, but not what others have read since. The metadata of the commit holds
what is needed to bring both together: the chain of those who held the partition, each with the offset at which it took
over, and the end of the batch that the last of them has planned.

Laws: what this query has read itself is settled by its checkpoint alone, what others have read by the group alone; a
checkpoint that was put back to an older copy makes the query read again what it read after the copy, and only that;
offsets that nobody is known to have read are read. Nothing here reads a clock or talks to a broker.
Source: Kafka's OffsetCommit, `metadata` (at most offset.metadata.max.bytes, 4096).
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Final, NamedTuple

from kohort.ids import TopicPartition
from kohort.spark.offsets import Span

#: Of the metadata's form; another one is somebody else's.
_VERSION: Final = 1
#: Earlier holders are forgotten, oldest first: what they read counts as settled.
MOST_HOLDERS: Final = 16
#: Below offset.metadata.max.bytes, which is 4096 unless a broker says otherwise.
_MOST_BYTES: Final = 3000


class Holder(NamedTuple):
    """A query that read a partition from an offset on, until the next one took it."""

    name: str
    since: int


class Known(NamedTuple):
    """What a checkpoint says of a partition: up to which offset the query is done, of those it took at `since`."""

    #: `None` in a checkpoint of the first form, or of Spark's own source.
    since: int | None
    end: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Ledger:
    """What a group remembers of a partition."""

    #: The next offset to read, but for what is planned.
    offset: int
    #: In the order in which they held it; empty where somebody else has committed.
    chain: tuple[Holder, ...] = ()
    #: End of the batch that the last holder has planned; `None` while nothing is in doubt.
    planned: int | None = None
    #: How many batches were planned, by which one plan is told from the next.
    count: int = 0

    @property
    def holder(self) -> str | None:
        """Who held it last."""
        return self.chain[-1].name if self.chain else None

    @property
    def doubt(self) -> Span | None:
        """What was planned and is not known to be finished."""
        if self.planned is None or self.planned <= self.offset:
            return None
        return Span(self.offset, self.planned)


class Place(NamedTuple):
    """Where a query goes on in a partition."""

    start: int
    #: It must not read on behind this, where others have; `None`: it may.
    stop: int | None
    #: With the query itself as the last; the group's is left alone where `stop` is a number.
    chain: tuple[Holder, ...]
    #: Where the query took what it reads here.
    since: int


def parse_ledger(offset: int, metadata: str) -> Ledger:
    """The inverse of `format_ledger`; of metadata that is not ours only the offset counts."""
    try:
        said = json.loads(metadata)
        if said["kohort"] != _VERSION:
            return Ledger(offset=offset)
        chain = tuple(Holder(str(name), int(since)) for name, since in said["by"])
        planned = said.get("to")
        return Ledger(
            offset=offset,
            chain=chain,
            planned=None if planned is None else int(planned),
            count=int(said.get("n", 0)),
        )
    except (AttributeError, KeyError, TypeError, ValueError, RecursionError):
        return Ledger(offset=offset)


def format_ledger(ledger: Ledger) -> str:
    """The metadata to commit with the ledger's offset.

    >>> format_ledger(Ledger(offset=30, chain=(Holder("q-1", 0), Holder("q-2", 20)), planned=40))
    '{"kohort":1,"by":[["q-1",0],["q-2",20]],"to":40}'
    """
    chain = ledger.chain[-MOST_HOLDERS:]
    while True:
        said: dict[str, object] = {"kohort": _VERSION, "by": [list(holder) for holder in chain]}
        if ledger.planned is not None:
            said["to"] = ledger.planned
        if ledger.count:
            said["n"] = ledger.count
        text = json.dumps(said, separators=(",", ":"))
        if len(text) <= _MOST_BYTES or not chain:
            return text
        chain = chain[1:]


def find_place(ledger: Ledger | None, name: str, known: Known | None, *, is_owned: bool) -> Place | None:
    """Where the query of that name goes on.

    Args:
        ledger: of the group; `None` if it remembers nothing.
        known: of the query's checkpoint; `None` if the query has not read the partition.
        is_owned: whether the group has given the partition to the query; if not, only what the query has read itself,
            and what its checkpoint does not have, is left for it.

    Returns:
        `None` if there is nothing to go by: nobody has begun the partition, or it is not the query's.
    """
    if ledger is not None and ledger.chain:
        for start, end, since in _find_lost(ledger, name, known):
            return Place(start, end, ledger.chain, since)
    if not is_owned:
        return None
    if ledger is None or not ledger.chain:
        return _find_first_place(ledger, name, known)
    last = ledger.chain[-1]
    if last.name == name:
        is_known = known is not None and known.since == last.since
        return Place(known.end if known is not None and is_known else last.since, None, ledger.chain, last.since)
    start = ledger.offset if known is None or known.since is not None else max(ledger.offset, known.end)
    return Place(start, None, _append(ledger.chain, Holder(name, start)), start)


def trim(span: Span, ledger: Ledger | None, name: str, since: int | None) -> Span:
    """What a query still has to read of a batch that it planned before: not what others have taken meanwhile.

    Args:
        since: where the query had taken the partition when it planned; `None` in a checkpoint of the first form.
    """
    if ledger is None:
        return span
    if since is None or not ledger.chain:
        return Span(min(span.end, max(span.start, ledger.offset)), span.end)
    at = _index(ledger, name, since)
    following = 0 if at is None else at + 1
    if following == len(ledger.chain):
        return span
    return Span(span.start, max(span.start, min(span.end, ledger.chain[following].since)))


def is_last_holder(ledger: Ledger | None, name: str, since: int | None) -> bool:
    """Whether the query that took the partition at `since` holds it still."""
    return ledger is not None and bool(ledger.chain) and ledger.chain[-1] == (name, since)


def build_claims(
    name: str,
    places: Mapping[TopicPartition, Place | None],
    spans: Mapping[TopicPartition, Span],
    found: Mapping[TopicPartition, Ledger],
) -> tuple[dict[TopicPartition, Ledger], dict[TopicPartition, int]]:
    """What the group has to be told before these spans are read.

    Args:
        name: of the query that reads them.
        places: where it goes on; `None` in a partition that nobody has begun.
        spans: what it reads there, perhaps nothing.
        found: what the group remembers.

    Returns:
        Ledgers to commit, of those that change anything, and where the query took what it reads.
    """
    claims: dict[TopicPartition, Ledger] = {}
    since: dict[TopicPartition, int] = {}
    for partition, span in spans.items():
        place = places[partition]
        if place is None or (place.stop is None and span.start < place.since):
            # Nobody has begun it, or it begins again: what was taken over was a topic that was made anew since.
            place = Place(span.start, None, (Holder(name, span.start),), span.start)
        since[partition] = place.since
        before = found.get(partition)
        count = 0 if before is None else before.count
        claim = Ledger(offset=span.start, chain=place.chain, count=count)
        if span.size > 0:
            claim = replace(claim, planned=span.end, count=count + 1)
        if place.stop is None and claim != before:
            claims[partition] = claim
    return claims, since


def _find_first_place(ledger: Ledger | None, name: str, known: Known | None) -> Place | None:
    """Where nobody of ours has committed."""
    if known is None:
        return None if ledger is None else Place(ledger.offset, None, (Holder(name, ledger.offset),), ledger.offset)
    start = known.end if ledger is None else max(known.end, ledger.offset)
    since = known.since if start == known.end and known.since is not None else start
    return Place(start, None, (Holder(name, since),), since)


def _find_lost(ledger: Ledger, name: str, known: Known | None) -> Iterator[tuple[int, int, int]]:
    """Start, end and since of what the query has read, handed over, and does not know any more; in order.

    That happens when its checkpoint is put back to an older copy.
    """
    at = None if known is None or known.since is None else _index(ledger, name, known.since)
    for number, (holder, following) in enumerate(zip(ledger.chain, ledger.chain[1:], strict=False)):
        if holder.name != name or (at is not None and number < at):
            continue
        if at is None and known is not None and (known.since is None or holder.since < known.since):
            continue
        start = known.end if known is not None and number == at else holder.since
        if start < following.since:
            yield start, following.since, holder.since


def _index(ledger: Ledger, name: str, since: int) -> int | None:
    """Where in the chain the query took the partition at `since`, the last time."""
    found = [number for number, holder in enumerate(ledger.chain) if holder == (name, since)]
    return found[-1] if found else None


def _append(chain: tuple[Holder, ...], holder: Holder) -> tuple[Holder, ...]:
    """One more holder; those before it that took the partition there have read nothing."""
    while chain and chain[-1].since >= holder.since:
        chain = chain[:-1]
    return (*chain, holder)
