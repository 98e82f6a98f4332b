"""Which partition a record goes to.

Laws: a key always goes to the same partition while the number of partitions stays, and to the one that Kafka's Java
clients choose; records without a key fill one partition's batch before they turn to the next.
Source: Kafka's default partitioner: murmur2 of the key, and the sticky partitioner of KIP-480.
"""

from __future__ import annotations

from typing import Final

_M: Final = 0x5BD1E995
_SEED: Final = 0x9747B28C
_MASK: Final = 0xFFFFFFFF
#: Hashes of keys are remembered, because most streams repeat theirs.
_REMEMBERED_KEYS: Final = 16_384


def murmur2(data: bytes) -> int:
    """Kafka's variant of the 32-bit hash, unsigned.

    >>> hex(murmur2(b"21"))
    '0xc5f2f8ec'
    """
    length = len(data)
    value = _SEED ^ length
    whole = length & ~3
    for start in range(0, whole, 4):
        word = int.from_bytes(data[start : start + 4], "little") * _M & _MASK
        word = (word ^ (word >> 24)) * _M & _MASK
        value = (value * _M & _MASK) ^ word
    if whole < length:
        value = (value ^ int.from_bytes(data[whole:], "little")) * _M & _MASK
    value = (value ^ (value >> 13)) * _M & _MASK
    return value ^ (value >> 15)


class Partitioner:
    """Chooses for one producer; remembers where records without a key go at present."""

    __slots__ = ("_hashes", "_sticky", "_turn")

    def __init__(self) -> None:
        #: key -> non-negative hash; emptied when it grows too large.
        self._hashes: dict[bytes, int] = {}
        #: topic -> partition of the present batch of records without a key.
        self._sticky: dict[str, int] = {}
        self._turn = 0

    def choose(self, topic: str, key: bytes | None, partition_count: int) -> int:
        """The partition of one record; `partition_count` is above 0."""
        if key is None:
            sticky = self._sticky.get(topic)
            if sticky is None or sticky >= partition_count:
                self._turn += 1
                sticky = self._sticky[topic] = self._turn % partition_count
            return sticky
        hashed = self._hashes.get(key)
        if hashed is None:
            if len(self._hashes) >= _REMEMBERED_KEYS:
                self._hashes.clear()
            hashed = self._hashes[key] = murmur2(key) & 0x7FFFFFFF
        return hashed % partition_count

    def on_batch_closed(self, topic: str, partition: int) -> None:
        """Records without a key turn to another partition with their next batch."""
        if self._sticky.get(topic) == partition:
            del self._sticky[topic]
