"""The progress of the application in its partitions: the offsets that may be committed for it.

Laws: by default the application has processed all records that it was handed before it came back for more. With
`enable.auto.offset.store` off, only stored offsets count. Offsets are stored of held partitions only, and are forgotten
when their partition is given up. The background gets them in the order in which they were stored, by whichever thread.
Source: Kafka's auto-commit; librdkafka's offset store.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping
from typing import Final

from kohort.client.fetch.fetch_handler import FetchHandler
from kohort.client.records import Committable
from kohort.errors import StateError
from kohort.ids import TopicPartition


class Progress:
    """The consumed positions, or the offsets that are stored in their place.

    Args:
        handler: knows which partitions are held, and their positions.
        is_stored: whether the application stores its offsets itself, from any thread.
    """

    def __init__(self, handler: FetchHandler, *, is_stored: bool) -> None:
        self._handler = handler
        self.is_stored: Final = is_stored
        self._lock = threading.Lock()
        #: Stored offsets of held partitions.
        self._stored: dict[TopicPartition, Committable] = {}
        #: Stored offsets that the background has not got yet.
        self._news: dict[TopicPartition, Committable] = {}

    @property
    def has_news(self) -> bool:
        """Whether `tell` has offsets to hand on."""
        return bool(self._news) if self.is_stored else self._handler.has_moved

    def tell(self, post: Callable[[Mapping[TopicPartition, Committable]], None], *, but_the_last: bool = False) -> None:
        """Hand the progress since the last call to `post`; `but_the_last`: without the latest records."""
        if not self.is_stored:
            post(self._with_epochs(self._handler.consumed(but_the_last=but_the_last)))
            return
        with self._lock:
            news, self._news = self._news, {}
            post(news)

    def done(self, partitions: Iterable[TopicPartition] | None = None) -> Mapping[TopicPartition, Committable]:
        """Return the offsets up to which these partitions, or all, are processed, as far as known."""
        if not self.is_stored:
            return self._with_epochs(self._handler.positions(partitions))
        with self._lock:
            chosen = self._stored if partitions is None else partitions
            return {each: self._stored[each] for each in chosen if each in self._stored}

    def _with_epochs(self, positions: Mapping[TopicPartition, int]) -> dict[TopicPartition, Committable]:
        return {each: self._handler.with_epoch(each, offset) for each, offset in positions.items()}

    def store(self, offsets: Mapping[TopicPartition, Committable]) -> None:
        """Store the offsets below which the application has processed all records.

        Raises:
            StateError: a partition is not held; nothing is stored.
        """
        with self._lock:
            for each in offsets:
                if not self._handler.holds(each):
                    raise StateError(f"{each} is not assigned to this consumer")
            self._stored.update(offsets)
            self._news.update(offsets)

    def drop(self, partition: TopicPartition) -> None:
        """Forget the stored offset of a partition after its topic was deleted."""
        with self._lock:
            self._stored.pop(partition, None)
            self._news.pop(partition, None)

    def forget(self, partitions: Iterable[TopicPartition]) -> None:
        """Forget partitions that are given up, with their stored offsets."""
        gone = list(partitions)
        with self._lock:
            # Under the lock: a `store` of another thread cannot bring an offset of them back.
            self._handler.forget(gone)
            for each in gone:
                self._stored.pop(each, None)
                self._news.pop(each, None)
