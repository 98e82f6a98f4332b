"""The buffer of data that is fetched ahead of the application, and the share of each broker.

Laws: held and requested bytes together stay within the limit, except for what one answer brings beyond its request: a
broker sends one batch in any case, however large. One held record of an answer keeps the whole answer in memory, so the
answer counts whole until nothing of it is held. Each broker has an equal share that no other broker can use up. Answers
held only by paused partitions do not count there. The buffer counts bytes, never records.
Source: KIP-81 (bounded memory of the consumer); the consumer threading refactor (CTR): FetchBuffer.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass

from kohort.client.actions import Endpoint
from kohort.ids import TopicPartition


@dataclass(slots=True, kw_only=True, eq=False)
class _Pinned:
    """An answer of which some bytes are held."""

    broker: Endpoint
    size_bytes: int
    #: Number of held pieces, and how many of them are of partitions that are not paused.
    pieces: int
    active_pieces: int


@dataclass(slots=True, kw_only=True, eq=False)
class _Piece:
    answer: _Pinned
    left_bytes: int


class FetchBuffer:
    """Counts the bytes of fetched data until the application has taken them.

    >>> broker, orders = Endpoint("127.0.0.1", 9092), TopicPartition("orders", 0)
    >>> buffer = FetchBuffer(limit_bytes=100)
    >>> buffer.reserve(broker, 60)
    >>> buffer.room
    40
    >>> buffer.settle(broker, reserved=60, pinned_bytes=15, held={orders: 10})
    >>> buffer.room
    85
    >>> buffer.release({orders: 10})
    >>> buffer.room
    100
    """

    __slots__ = ("_active", "_paused", "_pieces", "_pinned_bytes", "_reserved", "_reserved_bytes", "limit_bytes")

    def __init__(self, *, limit_bytes: int) -> None:
        self.limit_bytes = limit_bytes
        #: partition -> its pieces that the application has not taken, oldest first; no empty ones.
        self._pieces: dict[TopicPartition, deque[_Piece]] = {}
        self._paused: set[TopicPartition] = set()
        #: broker -> bytes of its answers that a partition holds which is not paused.
        self._active: dict[Endpoint, int] = {}
        #: broker -> bytes that fetches under way may bring.
        self._reserved: dict[Endpoint, int] = {}
        self._pinned_bytes = 0
        self._reserved_bytes = 0

    @property
    def room(self) -> int:
        """Bytes that a fetch may still ask for."""
        return max(0, self.limit_bytes - self._pinned_bytes - self._reserved_bytes)

    def share(self, brokers: int) -> int:
        """Return the bytes that each of so many brokers may have requested and held."""
        return max(1, self.limit_bytes // max(1, brokers)) if self.limit_bytes else 0

    def used(self, broker: Endpoint) -> int:
        """Return the bytes of its share that a broker uses: requested, or held by unpaused partitions."""
        return self._reserved.get(broker, 0) + self._active.get(broker, 0)

    def held(self, partition: TopicPartition) -> int:
        """Return the bytes of a partition that the application has not taken."""
        return sum(piece.left_bytes for piece in self._pieces.get(partition, ()))

    def paused(self) -> list[TopicPartition]:
        """Return the paused partitions that hold data, sorted."""
        return sorted(partition for partition in self._paused if partition in self._pieces)

    def reserve(self, broker: Endpoint, size_bytes: int) -> None:
        """Count the bytes that a fetch asks for."""
        self._reserved[broker] = self._reserved.get(broker, 0) + size_bytes
        self._reserved_bytes += size_bytes

    def settle(
        self,
        broker: Endpoint,
        *,
        reserved: int,
        pinned_bytes: int = 0,
        held: Mapping[TopicPartition, int] | None = None,
    ) -> None:
        """End a fetch: `pinned_bytes` of its answer stay in memory until the pieces in `held` are taken."""
        self._reserved[broker] -= reserved
        self._reserved_bytes -= reserved
        assert self._reserved[broker] >= 0, f"{broker} ended more fetches than it was sent"
        if not held:
            return
        answer = _Pinned(broker=broker, size_bytes=pinned_bytes, pieces=0, active_pieces=0)
        self._pinned_bytes += pinned_bytes
        for partition, size_bytes in held.items():
            assert size_bytes > 0, f"nothing of {partition} is held"
            self._pieces.setdefault(partition, deque()).append(_Piece(answer=answer, left_bytes=size_bytes))
            answer.pieces += 1
            self._count(answer, int(partition not in self._paused))

    def release(self, sizes: Mapping[TopicPartition, int]) -> None:
        """Give back so many bytes of each partition, oldest pieces first."""
        for partition, size_bytes in sizes.items():
            pieces, left_bytes = self._pieces.get(partition), size_bytes
            while left_bytes:
                assert pieces, f"{partition} gave back more than it had"
                piece = pieces[0]
                taken = min(left_bytes, piece.left_bytes)
                piece.left_bytes -= taken
                left_bytes -= taken
                if not piece.left_bytes:
                    self._drop(partition, pieces.popleft())
            if not pieces:
                self._pieces.pop(partition, None)

    def pause(self, partition: TopicPartition, *, is_paused: bool) -> None:
        """Note whether a partition is paused: paused data does not count in its broker's share."""
        if is_paused == (partition in self._paused):
            return
        (self._paused.add if is_paused else self._paused.remove)(partition)
        for piece in self._pieces.get(partition, ()):
            self._count(piece.answer, -1 if is_paused else 1)

    def _drop(self, partition: TopicPartition, piece: _Piece) -> None:
        answer = piece.answer
        answer.pieces -= 1
        self._count(answer, -int(partition not in self._paused))
        if not answer.pieces:
            self._pinned_bytes -= answer.size_bytes

    def _count(self, answer: _Pinned, by: int) -> None:
        """Change the number of active pieces of an answer, and with it the broker's share."""
        was_active = answer.active_pieces > 0
        answer.active_pieces += by
        is_active = answer.active_pieces > 0
        if is_active != was_active:
            change = answer.size_bytes if is_active else -answer.size_bytes
            self._active[answer.broker] = self._active.get(answer.broker, 0) + change
