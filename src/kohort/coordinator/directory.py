"""The assignment of groups to coordinators.

Source: Apache Kafka: the partition of `__consumer_offsets` that holds a group is the hash of its id.
"""

from __future__ import annotations

from typing import Final

from kohort.ids import OFFSETS_TOPIC, TopicPartition, coordinator_partition


class Directory:
    """Mapping of group ids to shards; shard i coordinates partition i of `__consumer_offsets`.

    >>> directory = Directory(50)
    >>> directory.shard_index("orders")
    31
    >>> str(directory.partition_of("orders"))
    '__consumer_offsets-31'
    """

    __slots__ = ("shard_count",)

    def __init__(self, shard_count: int) -> None:
        """Create a directory of `shard_count` partitions of `__consumer_offsets`.

        The number may not change while there are groups.
        """
        assert shard_count >= 1
        self.shard_count: Final = shard_count

    def shard_index(self, group_id: str) -> int:
        """Return the index of the shard that coordinates the group."""
        return coordinator_partition(group_id, self.shard_count)

    def partition_of(self, group_id: str) -> TopicPartition:
        """Return the partition of `__consumer_offsets` that holds the group's records."""
        return TopicPartition(OFFSETS_TOPIC, self.shard_index(group_id))
