"""The distribution of the rows of one call over the partitions.

Laws: every row goes to the partition that its rule names for a single record. Rows without a key go in pieces of a
batch or more, each to the next partition in turn.
Source: Kafka's partitioners, see `partitioner.py`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from kohort.client.producer.bulk_send import Bulk
from kohort.client.producer.core.partitioner import Partitioner


class PartitionMissingError(Exception):
    """A record names a partition that its topic lacks, as far as is known."""


def shares(
    bulk: Bulk, partition_count: int, partitioner: Partitioner, batch_bytes: int
) -> Iterator[tuple[int, Sequence[int] | None, int, int]]:
    """Yield partition, rows (`None`: a range of all), and beginning and end among these, in order.

    Raises:
        PartitionMissingError: a row names a partition that does not exist.
        ConfigError: the application's own partitioner has failed.
    """
    columns = bulk.columns
    if bulk.partition is not None:
        _check(bulk.partition < partition_count, bulk.name, partition_count)
        yield bulk.partition, None, 0, columns.count
    elif partitioner.has_own_rule or (not columns.is_free and not partitioner.is_usual):
        chosen: dict[int, list[int]] = {}
        for row in range(columns.count):
            number = columns.partition_of(row)
            if number is None:
                number = partitioner.choose(bulk.name, columns.key_of(row), partition_count, batch_bytes)
            _check(number < partition_count, bulk.name, partition_count)
            chosen.setdefault(number, []).append(row)
        for number, rows in chosen.items():
            yield number, columns.chosen(rows), 0, len(rows)
    elif columns.is_free:
        piece_bytes = max(batch_bytes, bulk.size_bytes // partition_count)
        start = 0
        while start < columns.count:
            stop, size_bytes = columns.measure(None, start, columns.count, piece_bytes)
            yield partitioner.choose(bulk.name, None, partition_count, size_bytes), None, start, stop
            start = stop
    else:
        turn = partitioner.choose(bulk.name, None, partition_count, batch_bytes)
        spread = columns.spread(partition_count, turn)
        _check(bool(spread), bulk.name, partition_count)
        for number, own in enumerate(spread):
            if own:
                yield number, own, 0, len(own)


def _check(is_there: bool, topic: str, partition_count: int) -> None:
    if not is_there:
        raise PartitionMissingError(f"{topic} has partitions 0 to {partition_count - 1}, a record names another one")
