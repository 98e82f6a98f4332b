"""What the application has done of its partitions, which is what may be committed for it.

Laws: by default it has done what it was handed before it came back for more; with `enable.auto.offset.store` off, what
it has stored and nothing else. Nothing is stored of a partition that is not held, and what was stored of one that is
given up is forgotten with it. The background hears of it in the order in which it was done, whichever thread stores.
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
    """Positions, or what is stored in place of them.

    Args:
        handler: knows which partitions are held, and what was handed out of them.
        is_stored: the application says itself what it has done, from any thread.
    """

    def __init__(self, handler: FetchHandler, *, is_stored: bool) -> None:
        self._handler = handler
        self.is_stored: Final = is_stored
        self._lock = threading.Lock()
        #: Of partitions that are held.
        self._stored: dict[TopicPartition, Committable] = {}
        #: What of it the background has not heard yet.
        self._news: dict[TopicPartition, Committable] = {}

    @property
    def has_news(self) -> bool:
        """Whether `tell` has something to tell."""
        return bool(self._news) if self.is_stored else self._handler.has_moved

    def tell(self, post: Callable[[Mapping[TopicPartition, Committable]], None], *, but_the_last: bool = False) -> None:
        """Hand what was done since the last time to `post`; `but_the_last`: what was handed out last is not done."""
        if not self.is_stored:
            post(self._with_epochs(self._handler.consumed(but_the_last=but_the_last)))
            return
        with self._lock:
            news, self._news = self._news, {}
            post(news)

    def done(self, partitions: Iterable[TopicPartition] | None = None) -> Mapping[TopicPartition, Committable]:
        """How far these partitions, or all, are done, as far as that is known."""
        if not self.is_stored:
            return self._with_epochs(self._handler.positions(partitions))
        with self._lock:
            chosen = self._stored if partitions is None else partitions
            return {each: self._stored[each] for each in chosen if each in self._stored}

    def _with_epochs(self, positions: Mapping[TopicPartition, int]) -> dict[TopicPartition, Committable]:
        return {each: self._handler.with_epoch(each, offset) for each, offset in positions.items()}

    def store(self, offsets: Mapping[TopicPartition, Committable]) -> None:
        """The application has done what is below these offsets.

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
        """What was done of that partition is of a topic that is gone."""
        with self._lock:
            self._stored.pop(partition, None)
            self._news.pop(partition, None)

    def forget(self, partitions: Iterable[TopicPartition]) -> None:
        """Partitions are given up."""
        gone = list(partitions)
        with self._lock:
            self._handler.forget(gone)
            for each in gone:
                self._stored.pop(each, None)
                self._news.pop(each, None)
