"""The consumer machine as its member sees it.

Source: the consumer threading refactor (CTR): the coordinator part and the fetching part of the background.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

from kohort.client.consumer.application_events import Start
from kohort.client.consumer.membership.publishing import Publishing
from kohort.errors import KohortError
from kohort.ids import TopicPartition

#: Continues the work at the given time, milliseconds.
Later = Callable[[int], None]


class Host(Protocol):
    """The calls by which a member starts and stops reading, commits, and reports to the application."""

    #: The metadata that the consumer publishes to its group.
    publishing: Publishing
    #: Wakes the member, whose answers to heartbeats concern no other part unless its state changes.
    wake_member: Callable[[], None]

    def start_reading(self, starts: Mapping[TopicPartition, Start], now_ms: int) -> None:
        """Fetch these partitions from now on."""
        ...

    def pause_reading(self, partitions: Sequence[TopicPartition]) -> None:
        """Stop fetching these partitions; their positions stay known."""
        ...

    def stop_reading(self, partitions: Sequence[TopicPartition]) -> None:
        """Stop fetching these partitions and drop the fetches under way."""
        ...

    def commit_before_revocation(
        self, partitions: Sequence[TopicPartition], deadline_ms: int, then: Later, now_ms: int
    ) -> None:
        """Commit the consumed offsets of partitions that are given up, if enabled; call `then` in any case."""
        ...

    def forget_consumed(self, partitions: Sequence[TopicPartition]) -> None:
        """Commit nothing more of these partitions: other members own them."""
        ...

    def on_trouble(self, error: KohortError, *, is_fatal: bool) -> None:
        """Report an error to the application at its next poll."""
        ...

    def fall_back_to_classic(self, reason: str, now_ms: int) -> None:
        """Go on with the classic protocol, because the broker lacks KIP-848."""
        ...
