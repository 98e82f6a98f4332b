"""What a member needs of the machine around it.

Source: the consumer threading refactor (CTR): the coordinator part and the fetching part of the background.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

from kohort.client.exchange import Start
from kohort.client.membership.publishing import Publishing
from kohort.errors import KohortError
from kohort.ids import TopicPartition

#: Continues something at that time.
Later = Callable[[int], None]


class Host(Protocol):
    """What a member needs of the machine around it."""

    #: What it says of itself beside its membership.
    publishing: Publishing

    def start_reading(self, starts: Mapping[TopicPartition, Start], now_ms: int) -> None:
        """Fetch these partitions from now on."""
        ...

    def pause_reading(self, partitions: Sequence[TopicPartition]) -> None:
        """Fetch nothing of these partitions; where they stand stays known."""
        ...

    def stop_reading(self, partitions: Sequence[TopicPartition]) -> None:
        """Fetch these partitions no more; what is under way is dropped."""
        ...

    def commit_before_revocation(
        self, partitions: Sequence[TopicPartition], deadline_ms: int, then: Later, now_ms: int
    ) -> None:
        """Commit what was consumed of partitions that are given up, if that is wanted; `then` follows in any case."""
        ...

    def forget_consumed(self, partitions: Sequence[TopicPartition]) -> None:
        """These partitions belong to others: nothing of them is committed any more."""
        ...

    def on_trouble(self, error: KohortError, *, is_fatal: bool) -> None:
        """Tell the application at its next poll."""
        ...

    def fall_back_to_classic(self, reason: str, now_ms: int) -> None:
        """The broker lacks KIP-848: go on with the classic protocol."""
        ...
