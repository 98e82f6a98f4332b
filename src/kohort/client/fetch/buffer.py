"""How many bytes are fetched ahead of the application, and how brokers share them.

Laws: what is held and what is asked for together stay within the limit, but for the one batch per fetch that a broker
sends in any case, however large. Each broker has an equal share that no other one can use up. Counted in bytes, never
in records.
Source: KIP-81 (bounded memory of the consumer); the consumer threading refactor (CTR): FetchBuffer.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from typing import TypeVar

from kohort.client.actions import Endpoint
from kohort.ids import TopicPartition

K = TypeVar("K", bound=Hashable)


class FetchBuffer:
    """Counts the bytes of fetched data until the application has taken them.

    >>> broker, orders = Endpoint("127.0.0.1", 9092), TopicPartition("orders", 0)
    >>> buffer = FetchBuffer(limit_bytes=100)
    >>> buffer.reserve(broker, 60)
    >>> buffer.room
    40
    >>> buffer.settle(broker, reserved=60, held={orders: 10})
    >>> buffer.room
    90
    >>> buffer.release({orders: 10})
    >>> buffer.room
    100
    """

    __slots__ = ("_held", "_held_bytes", "_reserved", "_reserved_bytes", "limit_bytes")

    def __init__(self, *, limit_bytes: int) -> None:
        self.limit_bytes = limit_bytes
        #: partition -> bytes that have arrived and are not taken; only what is above 0.
        self._held: dict[TopicPartition, int] = {}
        #: broker -> bytes that fetches under way may bring; only what is above 0.
        self._reserved: dict[Endpoint, int] = {}
        self._held_bytes = 0
        self._reserved_bytes = 0

    @property
    def room(self) -> int:
        """Bytes that may still be asked for."""
        return max(0, self.limit_bytes - self._held_bytes - self._reserved_bytes)

    def share(self, brokers: int) -> int:
        """Bytes that each of so many brokers may have under way and held."""
        return max(1, self.limit_bytes // max(1, brokers)) if self.limit_bytes else 0

    def held(self, partition: TopicPartition) -> int:
        """Bytes of a partition that are not taken."""
        return self._held.get(partition, 0)

    def reserved(self, broker: Endpoint) -> int:
        """Bytes that a broker has been asked for."""
        return self._reserved.get(broker, 0)

    def reserve(self, broker: Endpoint, size_bytes: int) -> None:
        """A fetch for so many bytes goes out."""
        self._reserved[broker] = self._reserved.get(broker, 0) + size_bytes
        self._reserved_bytes += size_bytes

    def settle(self, broker: Endpoint, *, reserved: int, held: Mapping[TopicPartition, int]) -> None:
        """That fetch has ended and brought these bytes."""
        _subtract(self._reserved, broker, reserved)
        self._reserved_bytes -= reserved
        for partition, size_bytes in held.items():
            self._held[partition] = self._held.get(partition, 0) + size_bytes
            self._held_bytes += size_bytes

    def release(self, sizes: Mapping[TopicPartition, int]) -> None:
        """So many bytes of these partitions are not held any more."""
        for partition, size_bytes in sizes.items():
            _subtract(self._held, partition, size_bytes)
            self._held_bytes -= size_bytes


def _subtract(counts: dict[K, int], key: K, size_bytes: int) -> None:
    left = counts.get(key, 0) - size_bytes
    assert left >= 0, f"{key} gave back more than it had"
    if left:
        counts[key] = left
    else:
        counts.pop(key, None)
