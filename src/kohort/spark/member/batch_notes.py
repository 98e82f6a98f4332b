"""A query's notes about its batches in partitions that other queries own by now.

A group accepts no commit for a partition from a member that does not own it. A query that comes back, or is fenced, and
still finishes its batch commits that to a group of its own, which has offsets but never a member. The present owner of
the partition, which waits for that batch, reads those offsets.

Laws: a note is about one planned batch, and counts only while the group's ledger has that batch.
Source: Kafka's offsets of groups without members; they expire by `offsets.retention.minutes`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from kohort.client.consumer.consumer import Consumer
from kohort.client.records import OffsetAndMetadata
from kohort.ids import TopicPartition
from kohort.spark.member.lineage import Ledger, format_ledger, parse_ledger


def group_of_notes(group_id: str, name: str) -> str:
    """Return the group to which the query of that name commits its notes.

    >>> group_of_notes("billing", "kohort-1a2b")
    'billing.kohort-1a2b.notes'
    """
    return f"{group_id}.{name}.notes"


def to_offsets(
    ledgers: Mapping[TopicPartition, Ledger], topic_ids: Mapping[str, str]
) -> dict[TopicPartition, OffsetAndMetadata]:
    """Convert ledgers to the offsets and metadata to commit, each with the id of its topic.

    The id shows if a commit that failed for a deleted topic was retried until there was a topic of the same name.
    """
    return {
        each: OffsetAndMetadata(
            ledger.offset, format_ledger(replace(ledger, topic_id=topic_ids.get(each.topic) or ledger.topic_id))
        )
        for each, ledger in ledgers.items()
    }


def from_offsets(
    found: Mapping[TopicPartition, OffsetAndMetadata | None], topic_ids: Mapping[str, str]
) -> dict[TopicPartition, Ledger]:
    """Convert committed offsets to ledgers, leaving out missing ones and those of deleted topics."""
    ledgers = {each: parse_ledger(entry.offset, entry.metadata) for each, entry in found.items() if entry is not None}
    return {
        each: ledger
        for each, ledger in ledgers.items()
        if ledger.topic_id in ("", topic_ids.get(each.topic) or ledger.topic_id)
    }


def leave_notes(
    client: Mapping[str, str], group: str, ledgers: Mapping[TopicPartition, Ledger], topic_ids: Mapping[str, str]
) -> None:
    """Commit notes about the positions of these partitions to a group of `group_of_notes`."""
    with _open(client, group) as consumer:
        consumer.commit(to_offsets(ledgers, topic_ids))


def read_notes(
    client: Mapping[str, str], group: str, partitions: Sequence[TopicPartition], topic_ids: Mapping[str, str]
) -> dict[TopicPartition, Ledger]:
    """Read the notes about these partitions."""
    with _open(client, group) as consumer:
        return from_offsets(consumer.committed(partitions, metadata=True), topic_ids)


def _open(client: Mapping[str, str], group: str) -> Consumer:
    return Consumer.from_config({**client, "group.id": group, "enable.auto.commit": False})
