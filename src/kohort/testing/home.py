"""A shard of the simulated broker and its log, and what reading a log gives."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence

from kohort.coordinator import recordcodec
from kohort.coordinator.commands import GroupCommand, ReplyBody
from kohort.coordinator.settings import GroupSettings
from kohort.coordinator.shard import Shard

#: Key and value of a record, as they are stored.
Entry = tuple[bytes, bytes | None]


class Home:
    """One shard and its log."""

    def __init__(self, index: int, shard: Shard, mirror: Shard) -> None:
        self.index = index
        #: What decides.
        self.shard = shard
        #: A shard that only ever saw the bytes of the log: the fold that the living one is compared with.
        self.mirror = mirror
        #: One entry per decision that wrote something.
        self.log: list[list[Entry]] = []
        #: How many batches are on disk.
        self.durable = 0
        #: (batches that have to be on disk, command, answer), in the order of the decisions.
        self.waiting: deque[tuple[int, GroupCommand, ReplyBody]] = deque()
        #: Whether a sync is under way.
        self.is_syncing = False

    def entries(self) -> list[Entry]:
        """The log without its batches."""
        return [entry for batch in self.log for entry in batch]


def fold(
    entries: Sequence[Entry], settings: GroupSettings, *, build: Callable[[GroupSettings], Shard] = Shard
) -> Shard:
    """A shard that has read a log."""
    shard = build(settings)
    for key, value in entries:
        record = recordcodec.decode(key, value)
        assert record is not None, "the log has records that nobody knows"
        shard.apply(record)
    return shard


def compact(entries: Sequence[Entry]) -> list[Entry]:
    """Only the latest record of each key, as Kafka's cleaner leaves a log."""
    last = {key: position for position, (key, _) in enumerate(entries)}
    return [entry for position, entry in enumerate(entries) if last[entry[0]] == position]
