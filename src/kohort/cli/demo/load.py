"""The producer of the flights: a share of them at a time, at a steady rate, in the background.

Laws: the file's order is kept; settled flights are acknowledged.
"""

from __future__ import annotations

import threading
import time
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import islice
from pathlib import Path
from typing import Any, Self

from kohort import Producer
from kohort.cli.demo.flights import read_flights
from kohort.cli.demo.place import TOPIC


class Load:
    """Sends the first `flights` of the file, up to one share of them after another."""

    def __init__(self, bootstrap: str, path: Path, *, flights: int) -> None:
        #: Records that were given to the producer.
        self.sent = 0
        #: How many there are in all.
        self.flights = flights
        self._records = islice(read_flights(path), flights)
        self._producer = Producer(bootstrap_servers=bootstrap, linger_ms=20)
        self._thread = ThreadPoolExecutor(1, "demo-load")
        self._job: Future[None] | None = None
        self._is_over = threading.Event()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """Stop sending; the flights not sent yet are dropped."""
        self._is_over.set()
        self._thread.shutdown()
        self._producer.close()

    def begin(self, share: float, *, seconds: float) -> None:
        """Start to send flights up to this share of all, spread over the time, without waiting."""
        self.settle()
        self._job = self._thread.submit(self._send, round(share * self.flights), seconds)

    @property
    def is_settled(self) -> bool:
        """Whether nothing is on its way, be it that it failed."""
        return self._job is None or self._job.done()

    def settle(self) -> int:
        """Wait until all that was begun is acknowledged: how many records are in the topic now.

        Raises:
            KohortError: a record was not stored.
        """
        if self._job is not None:
            self._job.result()
        return self.sent

    def _send(self, target: int, seconds: float) -> None:
        count = target - self.sent
        step = max(1, min(500, count // 20))
        futures: list[Future[Any]] = []
        began = time.monotonic()
        for key, value in islice(self._records, count):
            futures.append(self._producer.send(TOPIC, value, key))
            self.sent += 1
            if len(futures) % step == 0:
                ahead = began + len(futures) / count * seconds - time.monotonic()
                if self._is_over.wait(max(ahead, 0.0)):
                    return
        self._producer.flush(30.0)
        for future in futures:
            future.result(30.0)
