"""The producer's identity, by which brokers recognise a batch that they have already.

Laws: sequence numbers of a partition rise without a gap under one identity; after a gap that cannot be closed a new
identity is asked for, once nothing is in flight, and numbering begins anew.
Source: KIP-98, KIP-360.
"""

from __future__ import annotations

from kohort.ids import TopicPartition

_SEQUENCES = 1 << 31


class Identity:
    """Producer id, epoch and sequence numbers; `producer_id` -1 means that none is known."""

    __slots__ = ("_next", "epoch", "is_spoilt", "is_wanted", "producer_id")

    def __init__(self, *, is_wanted: bool) -> None:
        #: Whether this producer is idempotent at all.
        self.is_wanted = is_wanted
        self.producer_id = -1
        self.epoch = -1
        #: A gap cannot be closed any more: nothing more is sent under this identity.
        self.is_spoilt = False
        #: partition -> sequence number of its next record; 0 where missing.
        self._next: dict[TopicPartition, int] = {}

    @property
    def is_ready(self) -> bool:
        """Whether batches may be sent."""
        return not self.is_wanted or (self.producer_id >= 0 and not self.is_spoilt)

    def renew(self, producer_id: int, epoch: int) -> None:
        """Begin with a new identity."""
        self.producer_id = producer_id
        self.epoch = epoch
        self.is_spoilt = False
        self._next.clear()

    def spoil(self) -> None:
        """A sequence number was used up in vain."""
        self.is_spoilt = self.is_wanted

    def number(self, partition: TopicPartition, count: int) -> int:
        """The sequence number of the first of `count` records; they are used up with that."""
        first = self._next.get(partition, 0)
        self._next[partition] = (first + count) % _SEQUENCES
        return first
