"""Producer id, epoch and sequence numbers, by which brokers recognise a batch that they have already stored.

Laws: under one producer id and epoch, the sequence numbers of a partition rise without a gap. After a gap that cannot
be closed, a new producer id is requested once no request is in flight, and numbering begins anew.
Source: KIP-98, KIP-360.
"""

from __future__ import annotations

from kohort.ids import TopicPartition

_SEQUENCES = 1 << 31


class Identity:
    """Producer id, epoch and sequence numbers; `producer_id` -1 means that none is known."""

    __slots__ = ("_known", "_next", "epoch", "is_spoilt", "is_wanted", "producer_id")

    def __init__(self, *, is_wanted: bool) -> None:
        #: Whether this producer is idempotent at all.
        self.is_wanted = is_wanted
        self.producer_id = -1
        self.epoch = -1
        #: Whether a gap cannot be closed any more: then no new batch is sent under this identity.
        self.is_spoilt = False
        #: partition -> sequence number of its next record; 0 if missing.
        self._next: dict[TopicPartition, int] = {}
        #: Partitions whose broker has stored a batch under this producer id.
        self._known: set[TopicPartition] = set()

    @property
    def is_ready(self) -> bool:
        """Whether batches may be sent."""
        return not self.is_wanted or (self.producer_id >= 0 and not self.is_spoilt)

    def renew(self, producer_id: int, epoch: int) -> None:
        """Begin with a new identity."""
        if producer_id != self.producer_id:
            # A broker that knows the id accepts only sequence number 0 as the first of a new epoch.
            self._known.clear()
        self.producer_id = producer_id
        self.epoch = epoch
        self.is_spoilt = False
        self._next.clear()

    def spoil(self) -> None:
        """Stop using the identity, because a batch with a sequence number has failed for good."""
        self.is_spoilt = self.is_wanted

    def may_pipeline(self, partition: TopicPartition) -> bool:
        """Return whether a batch may be sent before the one ahead of it is acknowledged.

        A broker that does not know this producer accepts any sequence number as the first. If it refused the first
        batch, e.g. because it is not the leader yet, it would accept the second, and never again the first.
        """
        return not self.is_wanted or partition in self._known

    def acknowledge(self, partition: TopicPartition) -> None:
        """Note that the broker has stored a batch of the partition: from now on it detects a gap."""
        self._known.add(partition)

    def number(self, partition: TopicPartition, count: int) -> int:
        """Assign the next `count` sequence numbers, and return the first."""
        first = self._next.get(partition, 0)
        self._next[partition] = following(first, count)
        return first


def following(sequence: int, count: int) -> int:
    """Return the sequence number after `count` records; after 2**31 - 1 comes 0."""
    return (sequence + count) % _SEQUENCES
