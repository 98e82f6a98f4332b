"""Producer ids, taken from the store in blocks so that most cost no write, and their expiration."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterator
from typing import Final

from kohort.base.clock import Clock
from kohort.broker.topics.topic_operations import Outcome
from kohort.storage.partitions.partition import PartitionLog
from kohort.storage.store import Store

#: Asks for a block; the callbacks get the ids when they are written, and then the outcome.
NextBlock = Callable[[Callable[[range], None], Callable[[Outcome], None]], None]
#: Takes an id, or the reason why there is none.
OnId = Callable[[int, Outcome], None]


class ProducerIds:
    """Gives out each id once, across restarts too.

    >>> blocks = iter([range(0, 2), range(2, 4)])
    >>> ids = ProducerIds(lambda then, done: (then(next(blocks)), done(None)))
    >>> for _ in range(3):
    ...     ids.take(lambda number, why: print(number))
    0
    1
    2
    """

    __slots__ = ("_block", "_next_block", "_waiting")

    def __init__(self, next_block: NextBlock) -> None:
        """Create the source; `next_block` gets unused ids, which the store keeps."""
        self._next_block: Final = next_block
        self._block: Iterator[int] = iter(())
        #: Callbacks that wait for the next block.
        self._waiting: Final[deque[OnId]] = deque()

    def take(self, on_id: OnId) -> None:
        """Hand `on_id` an unused id: at once, or when the next block is written."""
        if not self._waiting:
            for producer_id in self._block:
                on_id(producer_id, None)
                return
        self._waiting.append(on_id)
        # One request for a block at a time serves all that wait.
        if len(self._waiting) == 1:
            self._next_block(self._keep, self._serve)

    def _keep(self, block: range) -> None:
        self._block = iter(block)

    def _serve(self, why: Outcome) -> None:
        if why is not None:
            while self._waiting:
                self._waiting.popleft()(-1, why)
            return
        while self._waiting:
            producer_id = next(self._block, None)
            if producer_id is None:
                self._next_block(self._keep, self._serve)
                return
            self._waiting.popleft()(producer_id, None)


# The expiration of silent idempotent producers, and the bound on all that are remembered.
#
# Laws: one turn of the loop looks at so many producers, and at least at one partition. A producer that comes back
# after it was forgotten is taken at any sequence (KIP-360); only a batch that it repeats after so long is stored twice.
# Beyond the bound the partition that gets a new producer forgets its most silent one, or keeps the only one that it
# has.
# Source: Apache Kafka's producer.id.expiration.ms and producer.id.expiration.check.interval.ms (KIP-98, KIP-936).

#: Producers that all partitions remember together, at about 300 bytes each.
MOST_PRODUCERS: Final = 200_000
#: Producers that one turn looks at, and partitions.
PRODUCERS_AT_ONCE: Final = 5_000
PARTITIONS_AT_ONCE: Final = 200


class ProducerExpiry:
    """Expires the producers of all partitions, round after round; belongs to the loop."""

    def __init__(self, loop: asyncio.AbstractEventLoop, store: Store, clock: Clock, *, limit: int) -> None:
        self._loop: Final = loop
        self._store: Final = store
        self._clock: Final = clock
        self._limit: Final = limit
        self._expiration_ms = 0
        self._interval = 0.0
        #: Producers at the last count, plus those that came since.
        self.remembered = sum(len(log.producers) for log in self._logs())
        self._counted = 0
        self._left: Iterator[PartitionLog] = iter(())
        self._timer: asyncio.Handle | None = None

    def start(self, *, expiration_ms: int, interval_ms: int) -> None:
        """Begin the first round after one interval."""
        self._expiration_ms, self._interval = expiration_ms, interval_ms / 1000
        self._timer = self._loop.call_later(self._interval, self._begin)

    def stop(self) -> None:
        """Stop expiring producers."""
        if self._timer is not None:
            self._timer.cancel()

    def on_new(self, log: PartitionLog) -> None:
        """Count a new producer of `log`; beyond the limit, forget the log's most silent one."""
        self.remembered += 1
        if self.remembered > self._limit and len(log.producers) > 1:
            # KIP-360: a forgotten producer may come back at any sequence.
            log.producers.forget_oldest()
            self.remembered -= 1

    def _logs(self) -> Iterator[PartitionLog]:
        for topic in list(self._store.topics.values()):
            yield from list(topic.partitions)

    def _begin(self) -> None:
        self._left, self._counted = self._logs(), 0
        self._step()

    def _step(self) -> None:
        before_ms = self._clock.now_ms() - self._expiration_ms
        looked_at = 0
        for _ in range(PARTITIONS_AT_ONCE):
            log = next(self._left, None)
            if log is None:
                # The new count leaves out the producers of deleted partitions.
                self.remembered = self._counted
                self._timer = self._loop.call_later(self._interval, self._begin)
                return
            looked_at += len(log.producers)
            log.producers.expire(before_ms)
            self._counted += len(log.producers)
            if looked_at >= PRODUCERS_AT_ONCE:
                break
        self._timer = self._loop.call_soon(self._step)
