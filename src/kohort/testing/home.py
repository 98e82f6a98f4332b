"""A shard of the simulated broker with its log, and the replay of a log."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, cast

from kohort.broker.groups.shard_log import Home as BrokersHome
from kohort.coordinator import recordcodec
from kohort.coordinator.settings import GroupSettings
from kohort.coordinator.shard import Shard
from kohort.storage.partitions.partition import PartitionLog

#: Key and value of a record, as they are stored.
Entry = tuple[bytes, bytes | None]


class SimulatedLog:
    """A simulated partition log for the coordinator; offsets count batches.

    It outlives the processes that write to it.
    """

    def __init__(self) -> None:
        #: One entry per decision that wrote something.
        self.batches: list[list[Entry]] = []
        #: How many batches are on disk.
        self.high_watermark = 0
        #: Whether a sync is under way.
        self.is_syncing = False

    @property
    def log_end_offset(self) -> int:
        """Return the number of batches."""
        return len(self.batches)

    def entries(self) -> list[Entry]:
        """Return the log's entries without their batches."""
        return [entry for batch in self.batches for entry in batch]


class Home(BrokersHome):
    """One shard and its log."""

    __slots__ = ("clock_offset_ms", "disk", "index", "mirror")

    def __init__(
        self, index: int, shard: Shard, mirror: Shard, disk: SimulatedLog, *, clock_offset_ms: int = 0
    ) -> None:
        super().__init__(shard, cast(PartitionLog, disk))
        self.index: Final = index
        #: A shard that only ever saw the bytes of the log: the fold that the living one is compared with.
        self.mirror: Final = mirror
        #: The log, as what it is.
        self.disk: Final = disk
        #: Offset of its process's clock from the world's.
        self.clock_offset_ms = clock_offset_ms


def fold(
    entries: Sequence[Entry], settings: GroupSettings, *, build: Callable[[GroupSettings], Shard] = Shard
) -> Shard:
    """Build a shard from a log."""
    shard = build(settings)
    for key, value in entries:
        record = recordcodec.decode(key, value)
        assert record is not None, "the log has records that nobody knows"
        shard.apply(record)
    return shard


def compact(entries: Sequence[Entry]) -> list[Entry]:
    """Keep only the latest record of each key, as Kafka's cleaner does."""
    last = {key: position for position, (key, _) in enumerate(entries)}
    return [entry for position, entry in enumerate(entries) if last[entry[0]] == position]
