"""Open transactions in the logs of partitions, beside their coordinator: hanging ones, and those that hold groups.

A transaction hangs (KIP-664) if it is open in a partition's log and its coordinator does not know of it: no timeout
ends it there. One whose marker was in a hole hangs as well.

Laws: nothing is changed here. At most `LOOKED_AT` partitions of a group are looked at.
Source: KIP-664; requirement J2.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import TYPE_CHECKING, Final, NamedTuple

from kohort.broker.topics.metadata import Cluster
from kohort.ids import OFFSETS_TOPIC
from kohort.storage.partitions.partition import PartitionLog

if TYPE_CHECKING:
    from kohort.broker.transactions.runtime import TransactionRuntime
    from kohort.coordinator.model import GroupOffsets

#: Partitions of one group that are looked at, which takes 10 ms.
LOOKED_AT: Final = 10_000
#: Most partitions of a group that are named.
NAMED: Final = 100


class OpenInLog(NamedTuple):
    """A transaction that is open in a partition's log."""

    producer_id: int
    first_offset: int


class HoldingTransaction(NamedTuple):
    """A transaction that holds a group back in a partition.

    `offset`: where readers of committed records wait; -1: the group has a commit in the transaction. If no coordinator
    knows the transaction, `transactional_id` is `None`, `state` is empty, and `started_ms`, ms, is -1.
    """

    topic: str
    partition: int
    offset: int
    producer_id: int
    transactional_id: str | None
    state: str
    started_ms: int


def open_in(log: PartitionLog) -> list[OpenInLog]:
    """Return the transactions that are open in a log, the oldest first."""
    producers = log.producers
    found = [OpenInLog(*each) for each in producers.open_transactions.items()]
    found += [OpenInLog(each.producer_id, each.first_offset) for each in producers.hanging]
    return sorted(found, key=lambda each: each.first_offset)


def hanging(cluster: Cluster, runtime: TransactionRuntime | None) -> list[tuple[PartitionLog, OpenInLog]]:
    """Return the hanging transactions of all partitions, each with the oldest of its partition first."""
    known = {} if runtime is None else runtime.open_epochs()
    found = []
    for topic in cluster.topics.values():
        for log in () if topic.is_internal else topic.partitions:
            producers = log.producers
            if not producers.open_transactions and not producers.hanging:
                continue
            place = log.topic, log.partition
            lost = {each.producer_id for each in producers.hanging}
            found += [
                (log, each)
                for each in open_in(log)
                if each.producer_id in lost
                or producers.epochs_of(each.producer_id)[0] not in known.get((each.producer_id, place), ())
            ]
    return found


def holding(
    cluster: Cluster, runtime: TransactionRuntime | None, offsets: GroupOffsets
) -> Iterator[HoldingTransaction]:
    """Yield the transactions that hold a group back: commits that are pending, then partitions with a waiting reader.

    A group's readers of committed records wait in a partition if the group has committed the partition's last stable
    offset, and a transaction is open from there on.
    """
    named = {} if runtime is None else {each.producer_id: each for each in runtime.unfinished()}

    def build(topic: str, partition: int, offset: int, producer_id: int) -> HoldingTransaction:
        known = named.get(producer_id)
        if known is None:
            return HoldingTransaction(topic, partition, offset, producer_id, None, "", -1)
        return HoldingTransaction(
            topic, partition, offset, producer_id, known.transactional_id, known.state.label, known.start_ms
        )

    for (topic, partition), producers in islice(sorted(offsets.pending.items()), LOOKED_AT):
        for producer_id in producers:
            yield build(topic, partition, -1, producer_id)
    places = ((topic, partition) for topic in sorted(offsets.committed) for partition in offsets.committed[topic])
    for topic, partition in islice(places, LOOKED_AT):
        log = None if topic == OFFSETS_TOPIC else cluster.partition(cluster.topic(topic), partition)
        if log is None or not log.producers.has_undecided:
            continue
        stable = log.last_stable_offset
        if offsets.committed[topic][partition].offset == stable:
            for each in open_in(log)[:1]:
                yield build(topic, partition, stable, each.producer_id)
