"""The holders of a partition and the part that each has read, kept with the committed offsets.

A committed offset says how far a partition is read, but not by which query, nor whether a query has planned to read on.
A query's checkpoint says how far that query is, but not what others have read since. The metadata of the commit brings
both together: it has the chain of holders, each with the offset at which it took over, and the end of the batch that
the last holder has planned.

Laws: the checkpoint alone says what this query has read, the group alone says what others have read. A checkpoint that
was restored from an older copy makes the query read again what it read after the copy, and only that. Offsets that no
query is known to have read are read. An offset that was committed from outside, without kohort's metadata, to a
partition that this query held is an order, which the query follows. The state of a deleted topic does not count for a
new topic of the same name. Nothing here reads a clock or talks to a broker.
Source: Kafka's OffsetCommit, `metadata` (at most offset.metadata.max.bytes, 4096).
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Final, NamedTuple

from kohort.ids import TopicPartition
from kohort.spark.offsets import Span

#: The version in the metadata; metadata without it is foreign.
_VERSION: Final = 1
#: Earlier holders are forgotten, oldest first: what they read counts as settled.
MOST_HOLDERS: Final = 16
#: Below offset.metadata.max.bytes, which is 4096 unless a broker says otherwise.
_MOST_BYTES: Final = 3000


class Holder(NamedTuple):
    """A query that read a partition from the offset `since` on, until the next holder took over."""

    name: str
    since: int
    #: How many orders it has followed in the partition; an order may set it back to `since`.
    orders: int = 0


class Known(NamedTuple):
    """A checkpoint's state of a partition: where the query took over, and how far it has read since."""

    #: `None` in a checkpoint of the first form, or of Spark's own source.
    since: int | None
    end: int
    #: As `Holder.orders`.
    orders: int = 0

    def is_of(self, holder: Holder) -> bool:
        """Return whether this state is from that holder's time with the partition."""
        return (self.since, self.orders) == (holder.since, holder.orders)


@dataclass(frozen=True, slots=True, kw_only=True)
class Ledger:
    """A group's state of a partition: the committed offset with the chain of its holders."""

    #: The next offset to read; the planned batch is not counted.
    offset: int
    #: The holders in order; empty if another program has committed.
    chain: tuple[Holder, ...] = ()
    #: End of the batch that the last holder has planned; `None` if all planned batches are finished.
    planned: int | None = None
    #: How many batches were planned so far, which tells one plan from the next.
    count: int = 0
    #: The id of the topic at the commit; empty if it was not known.
    topic_id: str = ""

    @property
    def holder(self) -> str | None:
        """The name of the last holder; `None` if there is none."""
        return self.chain[-1].name if self.chain else None

    @property
    def doubt(self) -> Span | None:
        """The planned span that is not known to be finished; `None` if there is none."""
        if self.planned is None or self.planned <= self.offset:
            return None
        return Span(self.offset, self.planned)


class Place(NamedTuple):
    """The position at which a query goes on in a partition."""

    start: int
    #: The offset from which other queries have read, at which this query stops; `None` if none have.
    stop: int | None
    #: The holders with this query as the last; with a `stop` the group's chain, which stays as it is.
    chain: tuple[Holder, ...]
    #: The offset at which the query took over what it reads here, and how many orders it has followed.
    since: int
    orders: int = 0


def parse_ledger(offset: int, metadata: str) -> Ledger:
    """Parse metadata of `format_ledger`; with foreign metadata only the offset is kept."""
    try:
        said = json.loads(metadata)
        if said["kohort"] != _VERSION:
            return Ledger(offset=offset)
        chain = tuple(Holder(str(name), int(since), *map(int, orders)) for name, since, *orders in said["by"])
        planned = said.get("to")
        return Ledger(
            offset=offset,
            chain=chain,
            planned=None if planned is None else int(planned),
            count=int(said.get("n", 0)),
            topic_id=str(said.get("id", "")),
        )
    except (AttributeError, KeyError, TypeError, ValueError, RecursionError):
        return Ledger(offset=offset)


def format_ledger(ledger: Ledger) -> str:
    """Return the metadata to commit with the ledger's offset.

    >>> format_ledger(Ledger(offset=30, chain=(Holder("q-1", 0), Holder("q-2", 20)), planned=40))
    '{"kohort":1,"by":[["q-1",0],["q-2",20]],"to":40}'
    """
    chain = ledger.chain[-MOST_HOLDERS:]
    while True:
        by = [list(each if each.orders else each[:2]) for each in chain]
        said: dict[str, object] = {"kohort": _VERSION, "by": by}
        if ledger.planned is not None:
            said["to"] = ledger.planned
        if ledger.count:
            said["n"] = ledger.count
        if ledger.topic_id:
            said["id"] = ledger.topic_id
        text = json.dumps(said, separators=(",", ":"))
        if len(text) <= _MOST_BYTES or not chain:
            return text
        chain = chain[1:]


def find_place(
    ledger: Ledger | None, name: str, known: Known | None, *, is_owned: bool, follows_orders: bool = True
) -> Place | None:
    """Find the position at which the query of that name continues.

    Args:
        ledger: the group's state; `None` if it has no committed offset.
        known: the checkpoint's state; `None` if the query has not read the partition.
        is_owned: whether the group has assigned the partition to the query; if not, the query reads only offsets that
            it has read before and that its checkpoint does not have.
        follows_orders: whether an offset that was committed from outside counts if the checkpoint is beyond it.

    Returns:
        `None` if no query has read the partition yet, or the query has nothing to read in it.
    """
    if ledger is not None and ledger.chain:
        for start, end, holder in _find_lost(ledger, name, known):
            return Place(start, end, ledger.chain, holder.since, holder.orders)
    if not is_owned:
        return None
    if ledger is None or not ledger.chain:
        return _find_first_place(ledger, name, known, follows_orders=follows_orders)
    last = ledger.chain[-1]
    if last.name == name:
        start = known.end if known is not None and known.is_of(last) else last.since
        return Place(start, None, ledger.chain, last.since, last.orders)
    start = ledger.offset if known is None or known.since is not None else max(ledger.offset, known.end)
    return Place(start, None, _append(ledger.chain, Holder(name, start)), start)


def trim(span: Span, ledger: Ledger | None, taken: Holder | None) -> Span:
    """Return the rest of a planned span, without the part that other queries have taken over since.

    Args:
        taken: the query's entry in the chain of holders when it planned the span; `None` in a checkpoint of the
            first form.
    """
    if ledger is None:
        return span
    if taken is None or not ledger.chain:
        return Span(min(span.end, max(span.start, ledger.offset)), span.end)
    at = _index(ledger, taken)
    following = 0 if at is None else at + 1
    if following == len(ledger.chain):
        return span
    return Span(span.start, max(span.start, min(span.end, ledger.chain[following].since)))


def is_last_holder(ledger: Ledger | None, taken: Holder) -> bool:
    """Return whether `taken` is still the last holder of the partition."""
    return ledger is not None and ledger.chain[-1:] == (taken,)


def build_claims(
    name: str,
    places: Mapping[TopicPartition, Place | None],
    spans: Mapping[TopicPartition, Span],
    found: Mapping[TopicPartition, Ledger],
) -> tuple[dict[TopicPartition, Ledger], dict[TopicPartition, Holder]]:
    """Build the ledgers to commit before the query of that name reads these spans.

    `places`: the query's positions; `None` for a partition that no query has read yet.

    Returns:
        The ledgers that change, and the query's entry in each partition's chain of holders.
    """
    claims: dict[TopicPartition, Ledger] = {}
    taken: dict[TopicPartition, Holder] = {}
    for partition, span in spans.items():
        place = places[partition]
        if place is None or (place.stop is None and span.start < place.since):
            # No query has read the partition yet, or its topic was recreated, so that the query starts anew.
            place = Place(span.start, None, (Holder(name, span.start),), span.start)
        taken[partition] = Holder(name, place.since, place.orders)
        before = found.get(partition)
        count = 0 if before is None else before.count
        topic_id = "" if before is None else before.topic_id
        claim = Ledger(offset=span.start, chain=place.chain, count=count, topic_id=topic_id)
        if span.size > 0:
            claim = replace(claim, planned=span.end, count=count + 1)
        if place.stop is None and claim != before:
            claims[partition] = claim
    return claims, taken


def _find_first_place(ledger: Ledger | None, name: str, known: Known | None, *, follows_orders: bool) -> Place | None:
    """Find the position in a partition for which the group has no commit of kohort's."""
    if known is None:
        return None if ledger is None else Place(ledger.offset, None, (Holder(name, ledger.offset),), ledger.offset)
    start, orders = known.end, known.orders
    if ledger is not None and ledger.offset != start:
        # A checkpoint without `since` is of a query that was in no group: no offset there was an order to it.
        is_order = follows_orders and known.since is not None
        start = ledger.offset if is_order else max(start, ledger.offset)
        orders += is_order
    since = known.since if (start, orders) == (known.end, known.orders) and known.since is not None else start
    return Place(start, None, (Holder(name, since, orders),), since, orders)


def _find_lost(ledger: Ledger, name: str, known: Known | None) -> Iterator[tuple[int, int, Holder]]:
    """Yield each span that the query read and gave up and its checkpoint lacks, and its holder, in order.

    That happens when its checkpoint is restored from an older copy.
    """
    at = None if known is None or known.since is None else _index(ledger, Holder(name, known.since, known.orders))
    for number, (holder, following) in enumerate(zip(ledger.chain, ledger.chain[1:], strict=False)):
        if holder.name != name or (at is not None and number < at):
            continue
        if at is None and known is not None and (known.since is None or holder.since < known.since):
            continue
        start = known.end if known is not None and number == at else holder.since
        if start < following.since:
            yield start, following.since, holder


def _index(ledger: Ledger, taken: Holder) -> int | None:
    """Return the last index of the holder in the chain; `None` if it is not there."""
    found = [number for number, holder in enumerate(ledger.chain) if holder == taken]
    return found[-1] if found else None


def _append(chain: tuple[Holder, ...], holder: Holder) -> tuple[Holder, ...]:
    """Append a holder; drop those before it that took over at its offset, and so have read nothing."""
    while chain and chain[-1].since >= holder.since:
        chain = chain[:-1]
    return (*chain, holder)
