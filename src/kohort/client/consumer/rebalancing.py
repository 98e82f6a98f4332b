"""The application's callbacks, which run in the application's thread; their return is reported to the machine.

Laws: an assigned partition is in `assignment()` before its callback begins; a revoked one is removed when its callback
has returned. The machine gets its report even if the callback raises, and `poll` raises the exception. Callbacks of
commits are called in the order of the commits.
Source: the consumer threading refactor (CTR): callbacks run in the polling thread, the background waits.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from inspect import isawaitable
from typing import Final, Generic, NamedTuple, TypeVar

from kohort.client.consumer import application_events as events
from kohort.client.consumer.application_events import CallbackKind, CallbackWanted
from kohort.client.consumer.deliveries import Deliveries
from kohort.client.consumer.fetch.fetch_handler import FetchHandler
from kohort.client.records import Committable, Rebalance, with_metadata
from kohort.client.steps import Returned
from kohort.errors import StateError
from kohort.ids import TopicPartition

C = TypeVar("C")
_LOG: Final = logging.getLogger("kohort.client")
#: Partitions that a line of the log names.
_SHOWN: Final = 10


class Callbacks(NamedTuple, Generic[C]):
    """The rebalance callbacks that the application gave to `subscribe`."""

    on_assigned: Callable[[C, list[TopicPartition]], object] | None = None
    on_revoked: Callable[[C, list[TopicPartition]], object] | None = None
    on_lost: Callable[[C, list[TopicPartition]], object] | None = None


class Rebalancing(Generic[C]):
    """Runs the application's callbacks when the machine asks for them, and reports their return."""

    def __init__(
        self,
        handler: FetchHandler,
        deliveries: Deliveries,
        progress: Progress,
        post: Callable[[events.ConsumerEvent], None],
        *,
        commits: bool,
    ) -> None:
        self._handler = handler
        self._deliveries = deliveries
        self._progress = progress
        self._post = post
        #: Whether the processed offsets of revoked partitions are committed automatically.
        self._commits = commits
        self.callbacks: Callbacks[C] = Callbacks()
        #: Called with the metadata of the group's members.
        self.on_published: Callable[[C, dict[str, bytes]], object] | None = None
        #: Number of changes of the assignment.
        self.count = 0
        #: The latest change of the assignment.
        self.last: Rebalance | None = None
        #: Whether a callback of the application is running.
        self.is_in_callback = False

    async def answer(self, consumer: C, *, with_progress: bool) -> None:
        """Run the callbacks that the machine waits for; await those of an asyncio application.

        Args:
            consumer: first argument of the callbacks.
            with_progress: whether the application has processed all records that `poll` has returned.
        """
        if self._deliveries.ended:
            await self.tell_commits()
        if self._deliveries.has_published:
            await self._tell_published(consumer)
        while self._deliveries.asked:
            wanted = self._deliveries.asked.popleft()
            partitions = self._prepare(wanted)
            self.count += bool(partitions)
            commits = wanted.kind is CallbackKind.REVOKED and self._commits
            consumed = self._progress.done(partitions) if commits and with_progress else {}
            try:
                self._note(wanted, partitions)
                await self._run(consumer, wanted, partitions)
            finally:
                if commits and self._progress.is_stored:
                    # The callback may have processed and stored more.
                    consumed = self._progress.done(partitions)
                # After the callback, which may still ask for their positions.
                if wanted.kind is not CallbackKind.ASSIGNED:
                    self._progress.forget(partitions)
                starts = self._handler.starts(partitions)
                self._post(events.CallbackDone(number=wanted.number, consumed=consumed, starts=starts))

    async def tell_commits(self) -> None:
        """Call the callbacks of asynchronous commits that have finished."""
        while self._deliveries.ended:
            ended = self._deliveries.ended.popleft()
            callback = ended.callback
            assert callable(callback), "the door checks this"
            offsets = {each: with_metadata(offset) for each, offset in ended.offsets.items()}
            await self._call(partial(callback, ended.error, offsets))

    async def _tell_published(self, consumer: C) -> None:
        """Call the application's callback for changed metadata of the members."""
        self._deliveries.has_published = False
        if self.on_published is not None:
            await self._call(partial(self.on_published, consumer, dict(self._deliveries.published)))

    def _prepare(self, wanted: CallbackWanted) -> list[TopicPartition]:
        if wanted.kind is CallbackKind.ASSIGNED:
            # Before the callback, which may seek.
            self._handler.hold(wanted.partitions)
            return list(wanted.partitions)
        # Their data stays until the callback has returned, which may ask for positions; no poll takes them meanwhile.
        return sorted(self._handler.assignment.intersection(wanted.partitions))

    def _note(self, wanted: CallbackWanted, partitions: list[TopicPartition]) -> None:
        if not partitions:
            return
        self.last = Rebalance(wanted.kind.value, tuple(partitions), wanted.reason)
        shown = ", ".join(map(str, partitions[:_SHOWN])) + (", ..." if len(partitions) > _SHOWN else "")
        _LOG.info("%s %s: %s", wanted.kind.value, shown, wanted.reason)

    async def _run(self, consumer: C, wanted: CallbackWanted, partitions: list[TopicPartition]) -> None:
        callback = getattr(self.callbacks, f"on_{wanted.kind.value}")
        if callback is None or not partitions:
            return
        gained = partitions if wanted.kind is CallbackKind.ASSIGNED else ()
        self._post(events.CallbackStarted(number=wanted.number, starts=self._handler.starts(gained)))
        await self._call(partial(callback, consumer, partitions))

    async def _call(self, callback: Callable[[], object]) -> None:
        self.is_in_callback = True
        try:
            awaitable = callback()
            if isawaitable(awaitable):
                await Returned(awaitable)
        finally:
            self.is_in_callback = False


class Progress:
    """The offsets that may be committed: consumed positions, or else those given to `store_offsets`.

    Laws: by default, records count as processed when the application calls for more. The background gets stored
    offsets in the order in which any threads have stored them.
    Source: Kafka's auto-commit; librdkafka's offset store (`enable.auto.offset.store` off).
    """

    def __init__(self, handler: FetchHandler, *, is_stored: bool) -> None:
        self._handler = handler
        #: Whether the application stores its offsets itself, from any thread.
        self.is_stored: Final = is_stored
        self._lock = threading.Lock()
        #: Stored offsets of held partitions.
        self._stored: dict[TopicPartition, Committable] = {}
        #: Stored offsets that were not reported to the background yet.
        self._news: dict[TopicPartition, Committable] = {}

    @property
    def has_news(self) -> bool:
        """Whether `tell` has new offsets to report."""
        return bool(self._news) if self.is_stored else self._handler.has_moved

    def tell(self, post: Callable[[Mapping[TopicPartition, Committable]], None], *, but_the_last: bool = False) -> None:
        """Pass the offsets processed since the last call to `post`; `but_the_last`: without the latest records."""
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
            StateError: a partition is not assigned; nothing is stored.
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
        """Forget revoked partitions, with their stored offsets."""
        gone = list(partitions)
        with self._lock:
            # Under the lock: a `store` of another thread cannot bring an offset of them back.
            self._handler.forget(gone)
            for each in gone:
                self._stored.pop(each, None)
                self._news.pop(each, None)
