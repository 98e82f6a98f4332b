"""Batches of other queries that are in doubt: whether to wait for them.

Laws: a planned batch is left to its query while that is in the group, or away for a while, and for a bounded time.
A query that takes it then logs which offsets may be read twice.
Source: KIP-345: a member that is away keeps its name until its session ends.
"""

from __future__ import annotations

from collections.abc import Collection

from kohort.ids import TopicPartition
from kohort.spark.member.lineage import Ledger
from kohort.spark.member.requests import Names, ReadNotes, Steps


class Doubts:
    """The open batches of other queries for which one query waits.

    Args:
        name: of the query.
        told: where sentences for the log go.
        waits: whether it waits at all.
        patience_ms: how long it waits for a query that is still a member.
    """

    def __init__(self, name: str, told: list[str], *, waits: bool, patience_ms: int) -> None:
        self._name = name
        self._told = told
        self._waits = waits
        self._patience_ms = patience_ms
        #: partition -> since when it is held back, milliseconds.
        self._held_since: dict[TopicPartition, int] = {}

    def find_held(
        self, found: dict[TopicPartition, Ledger], readable: set[TopicPartition], now_ms: int
    ) -> Steps[set[TopicPartition]]:
        """Find the partitions in which another query has an open batch that it may still finish.

        The notes that the other query has left meanwhile go into `found`.
        """
        doubted = {each for each in readable if found[each].doubt is not None and found[each].holder != self._name}
        for name in sorted({found[each].holder or "" for each in doubted}):
            asked = tuple(sorted(each for each in doubted if found[each].holder == name))
            notes: dict[TopicPartition, Ledger] = yield ReadNotes(name, asked)
            for partition, note in notes.items():
                if (note.chain, note.count) == (found[partition].chain, found[partition].count):
                    found[partition] = note
                    doubted.discard(partition)
        names: Collection[str] = (yield Names()) if doubted and self._waits else ()
        held: set[TopicPartition] = set()
        for partition in sorted(doubted):
            holder, doubt = found[partition].holder, found[partition].doubt
            assert doubt is not None
            began_ms = self._held_since.setdefault(partition, now_ms)
            if holder in names and now_ms < began_ms + self._patience_ms:
                held.add(partition)
            else:
                self._told.append(
                    f"offsets {doubt.start} to {doubt.end - 1} of {partition} may be read twice: {holder} has planned "
                    "them and did not come back"
                )
        self._held_since = {each: began for each, began in self._held_since.items() if each in held}
        return held
