"""The expiration of silent idempotent producers, and the bound on all that are remembered.

Laws: one turn of the loop looks at so many producers, and at least at one partition. Who is forgotten and comes back is
taken at any sequence (KIP-360); only a batch that it repeats after so long is stored twice. Beyond the bound the
partition that gets a new producer forgets its most silent one, or keeps the only one that it has.
Source: Apache Kafka's producer.id.expiration.ms and producer.id.expiration.check.interval.ms (KIP-98, KIP-936).
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Final

from kohort.clock import Clock
from kohort.storage.partitions.partition import PartitionLog
from kohort.storage.store import Store

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
