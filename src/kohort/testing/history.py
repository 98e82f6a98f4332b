"""The operations of a broker's clients in their order of time; `logchecker` judges them.

Each operation is two events: it begins (`invoke`) and ends (`ok`, `fail`: it did not happen, `info`: it may have). What
has no beginning of its own, a poll that returned or a callback, is one `ok`. Names and values of the operations:

| name | value |
| --- | --- |
| `send` | topic, partition, value; with `ok` the offset |
| `poll` | records: (topic, partition, offset, value) each |
| `assign`, `seek` | partitions: (topic, partition) each; the process goes on anywhere in them |
| `assigned`, `revoked`, `lost` | group, partitions; noted when the callback ends, `assigned` when it begins |
| `commit`, `committed`, `reset` | group, offsets: (topic, partition, offset) each; `committed` has them with `ok` |
| `finish` | nothing: all that was ever acknowledged has been polled for |

Laws: an event is noted in one step, from any thread; an operation that has not ended counts as `info`.
Source: the histories of Jepsen's Kafka workload.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final, Literal

Kind = Literal["invoke", "ok", "fail", "info"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """The begin or the end of an operation."""

    #: Which operation; its two events have the same.
    number: int
    process: str
    kind: Kind
    #: See the module.
    name: str
    value: dict[str, Any]
    #: Monotonic, for people and for how long a partition had no owner; the order of events is that of the history.
    time_ns: int


class History:
    """Events as they happen; with a `path` each is a line of JSON there, too.

    >>> history = History(clock=lambda: 0)
    >>> number = history.invoke("p", "send", topic="t", partition=0, value="a")
    >>> history.ok(number, offset=0)
    >>> [event.kind for event in history.events]
    ['invoke', 'ok']
    """

    def __init__(self, path: str | Path | None = None, *, clock: Callable[[], int] = time.monotonic_ns) -> None:
        self._lock: Final = threading.Lock()
        self._clock: Final = clock
        self._file = None if path is None else Path(path).open("w", encoding="utf-8")  # noqa: SIM115
        #: Number -> how an operation under way began.
        self._open: Final[dict[int, Event]] = {}
        self._next = 0
        #: In the order in which they happened.
        self.events: Final[list[Event]] = []

    @staticmethod
    def load(path: str | Path) -> list[Event]:
        """Load the events of a file; a torn last line is dropped."""
        lines = Path(path).read_text(encoding="utf-8").splitlines(keepends=True)
        return [Event(**json.loads(line)) for line in lines if line.endswith("\n")]

    def invoke(self, process: str, name: str, **value: Any) -> int:
        """Begin an operation and return its number."""
        with self._lock:
            number = self._next
            self._next += 1
            self._open[number] = self._note(number, process, "invoke", name, value)
            return number

    def ok(self, number: int, **value: Any) -> None:
        """End an operation that has happened; `value`: fields known only now."""
        self._end(number, "ok", value)

    def fail(self, number: int, **value: Any) -> None:
        """End an operation that has not happened and never will."""
        self._end(number, "fail", value)

    def info(self, number: int, **value: Any) -> None:
        """End an operation of which the client cannot know whether it has happened."""
        self._end(number, "info", value)

    def note(self, process: str, name: str, **value: Any) -> None:
        """Note an event that has no beginning of its own."""
        with self._lock:
            self._note(self._next, process, "ok", name, value)
            self._next += 1

    def close(self) -> None:
        """Close the file."""
        with self._lock:
            if self._file is not None:
                self._file.close()
                self._file = None

    def _end(self, number: int, kind: Kind, value: dict[str, Any]) -> None:
        with self._lock:
            begun = self._open.pop(number)
            self._note(number, begun.process, kind, begun.name, {**begun.value, **value})

    def _note(self, number: int, process: str, kind: Kind, name: str, value: dict[str, Any]) -> Event:
        event = Event(number=number, process=process, kind=kind, name=name, value=value, time_ns=self._clock())
        self.events.append(event)
        if self._file is not None:
            self._file.write(json.dumps(asdict(event)) + "\n")
        return event


@dataclass(frozen=True, slots=True, kw_only=True)
class Operation:
    """One operation with both its ends."""

    process: str
    name: str
    #: How it ended.
    kind: Kind
    #: The fields known at its end.
    value: dict[str, Any]
    #: Places in the history; the end of one that has none is behind everything.
    began: int
    ended: int
    #: When it ended; of one that has not, when it began.
    time_ns: int

    @property
    def is_ok(self) -> bool:
        """Whether the operation has certainly happened."""
        return self.kind == "ok"

    def rows(self, of: str) -> Iterator[tuple[tuple[str, int], list[Any]]]:
        """Yield the rows of a list in the value: each row's partition and its other fields."""
        for topic, partition, *rest in self.value.get(of, ()):
            yield (str(topic), int(partition)), rest


def operations(events: Sequence[Event]) -> list[Operation]:
    """Return the operations of a history by their end; those without an end come last."""
    begun: dict[int, tuple[int, Event]] = {}
    found = []
    for place, event in enumerate(events):
        if event.kind == "invoke":
            begun[event.number] = place, event
        else:
            began, _ = begun.pop(event.number, (place, event))
            found.append(_operation(event, began, place, event.kind))
    # Dictionaries keep their order, so these are by their beginnings.
    found += [_operation(event, began, len(events), "info") for began, event in begun.values()]
    return found


def _operation(event: Event, began: int, ended: int, kind: Kind) -> Operation:
    return Operation(
        process=event.process,
        name=event.name,
        kind=kind,
        value=event.value,
        began=began,
        ended=ended,
        time_ns=event.time_ns,
    )
