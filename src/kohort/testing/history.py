"""History of the operations of a broker's clients, ordered by time, and the check of such a history.

Each operation is two events: `invoke`, and its result `ok` (it happened), `fail` (it did not) or `info` (unknown). A
poll that returned, or a callback, is a single `ok`. Names and values of the operations:

| name | value |
| --- | --- |
| `send` | topic, partition, value; with `ok` the offset |
| `poll` | records: (topic, partition, offset, value) each |
| `assign`, `seek` | partitions: (topic, partition) each; the process may continue at any offset of them |
| `assigned`, `revoked`, `lost` | group, partitions; noted when the callback returns, `assigned` when it is called |
| `commit`, `committed`, `reset` | group, offsets: (topic, partition, offset) each; `committed` has them with `ok` |
| `finish` | nothing: everything ever acknowledged should have been polled by now |

Laws: an event is noted atomically, from any thread. An operation without a result counts as `info`.
Source: Jepsen's Kafka workload, without transactions; the checks of groups, which Jepsen lacks, are ours.
"""

from __future__ import annotations

import json
import threading
import time
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Final, Literal, NamedTuple

Kind = Literal["invoke", "ok", "fail", "info"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """The beginning or the result of an operation."""

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
    """Recorder of events; with a `path` each event is also written there, as a line of JSON.

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
        """Load the events of a file, without an incomplete last line."""
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
        """Record that an operation has happened; `value`: fields known only now."""
        self._end(number, "ok", value)

    def fail(self, number: int, **value: Any) -> None:
        """Record that an operation has not happened and never will."""
        self._end(number, "fail", value)

    def info(self, number: int, **value: Any) -> None:
        """Record that the client cannot know whether an operation has happened."""
        self._end(number, "info", value)

    def note(self, process: str, name: str, **value: Any) -> None:
        """Record an event without an `invoke`, such as a callback."""
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


class Operation(NamedTuple):
    """One operation, from its beginning and its result."""

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
        """Yield (partition, other fields) for each row of the list `of` in the value."""
        for topic, partition, *rest in self.value.get(of, ()):
            yield (str(topic), int(partition)), rest


def operations(events: Sequence[Event]) -> list[Operation]:
    """Return the operations of a history, ordered by their results; those without result come last."""
    begun: dict[int, tuple[int, Event]] = {}
    found = []
    for place, event in enumerate(events):
        if event.kind == "invoke":
            begun[event.number] = place, event
        else:
            began, _ = begun.pop(event.number, (place, event))
            found.append(Operation(event.process, event.name, event.kind, event.value, began, place, event.time_ns))
    # Dictionaries keep their order, so these are by their beginnings.
    for began, event in begun.values():
        found.append(Operation(event.process, event.name, "info", event.value, began, len(events), event.time_ns))
    return found


# Anomalies, by name. Each check takes time linear in the history, but for sorting:
# - `lost-write`: an acknowledged value below the highest position read was read by no client.
# - `unseen`: an acknowledged value was read by no client, though at the end all was read (`finish`).
# - `inconsistent-offset`: one offset has two values.
# - `duplicate`: one value stands at two offsets, though each is sent once by a producer that is idempotent.
# - `failed-read`: a value was read although its send has failed, or no client sent it.
# - `nonmonotonic-send`: a process's later send to a partition stands before its earlier one.
# - `poll-skip`, `nonmonotonic-poll`: a process jumps over records that exist, or goes back, while nothing moved it.
# - `unowned-read`: a process that shares partitions in a group read one that it was not given or had given back.
# - `commit-regress`: a group's committed offset was set back by a commit that followed the higher one.
# - `commit-lost`: an acknowledged commit is not there when a client asks later.
# - `double-owner`: two members that both read from a partition owned it at once.
# - `orphan`: a partition had no owner for longer than it may, though others of its group had one.
# What retention or compaction has taken away reads as lost: histories are of topics that keep everything.

_Partition = tuple[str, int]
_MS: Final = 1_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Anomaly:
    """A violation of the log's or the group's guarantees, found in a history."""

    #: See the module.
    check: str
    detail: str

    def __str__(self) -> str:
        return f"{self.check}: {self.detail}"


def check_history(events: Sequence[Event], *, orphan_limit_ms: int | None = None) -> list[Anomaly]:
    """Find every anomaly of a history, by check.

    `orphan_limit_ms`: longest time that a partition may be without an owner; `None`: any time.

    >>> from kohort.testing.history import History
    >>> history = History(clock=lambda: 0)
    >>> history.ok(history.invoke("p", "send", topic="t", partition=0, value="a"), offset=0)
    >>> history.note("q", "finish")
    >>> [str(anomaly) for anomaly in check_history(history.events)]
    ["unseen: 'a' is acknowledged at offset 0 of t-0, and no client has read it"]
    """
    facts = _facts(operations(events))
    found = [Anomaly(check=name, detail=detail) for name, check in _CHECKS.items() for detail in check(facts)]
    return found + [Anomaly(check="orphan", detail=detail) for detail in _orphans(facts, orphan_limit_ms)]


@dataclass(slots=True)
class _Tenure:
    """One member's ownership of a partition, from one index in the history to another."""

    process: str
    began: int
    ended: int
    began_ns: int
    ended_ns: int | None = None
    #: Place of its last poll that brought records of it; `None`: none did.
    last_read: int | None = None


@dataclass(slots=True)
class _Facts:
    """A history's operations, indexed for the checks."""

    #: By when they ended; those without an end last.
    all: list[Operation]
    #: Partition -> offset -> every value that was acknowledged or read there.
    values: defaultdict[_Partition, dict[int, set[str]]] = field(default_factory=lambda: defaultdict(dict))
    #: Partition -> offsets that were read.
    read: defaultdict[_Partition, set[int]] = field(default_factory=lambda: defaultdict(set))
    sends: list[Operation] = field(default_factory=list)
    #: (group, partition) -> its owners by the begin of their ownership.
    tenures: defaultdict[tuple[str, _Partition], list[_Tenure]] = field(default_factory=lambda: defaultdict(list))
    is_finished: bool = False


def _facts(ops: list[Operation]) -> _Facts:
    facts = _Facts(ops)
    owned: dict[tuple[str, _Partition], _Tenure] = {}
    for op in ops:
        if op.name == "send":
            facts.sends.append(op)
            if op.is_ok:
                _note_value(facts, _place(op), op.value["offset"], op.value["value"])
        elif op.name == "finish":
            facts.is_finished = True
        elif op.name == "poll":
            for partition, (offset, value) in op.rows("records"):
                _note_value(facts, partition, offset, value)
                facts.read[partition].add(offset)
                tenure = owned.get((op.process, partition))
                if tenure is not None:
                    tenure.last_read = op.ended
        elif op.name in _OWNERSHIP:
            _note_owner(facts, owned, op, len(ops) * 2)
    return facts


_OWNERSHIP: Final = ("assigned", "revoked", "lost")


def _note_owner(facts: _Facts, owned: dict[tuple[str, _Partition], _Tenure], op: Operation, end: int) -> None:
    for partition, _ in op.rows("partitions"):
        key = op.process, partition
        if op.name == "assigned":
            owned[key] = tenure = _Tenure(op.process, op.ended, end, op.time_ns)
            facts.tenures[op.value["group"], partition].append(tenure)
        elif (over := owned.pop(key, None)) is not None:
            # A member that has lost a partition learns of it late: the time of its last read counts.
            over.ended = over.last_read or over.began if op.name == "lost" else op.ended
            over.ended_ns = op.time_ns


def _note_value(facts: _Facts, partition: _Partition, offset: int, value: str) -> None:
    facts.values[partition].setdefault(offset, set()).add(value)


def _place(send: Operation) -> _Partition:
    return str(send.value["topic"]), int(send.value["partition"])


def _named(partition: _Partition) -> str:
    return f"{partition[0]}-{partition[1]}"


def _unread(facts: _Facts) -> Iterator[tuple[Operation, _Partition]]:
    """Yield the acknowledged sends that no client has read."""
    for send in facts.sends:
        partition = _place(send)
        if send.is_ok and send.value["offset"] not in facts.read[partition]:
            yield send, partition


def _lost_writes(facts: _Facts) -> Iterator[str]:
    highest = {partition: max(offsets) for partition, offsets in facts.read.items() if offsets}
    for send, partition in _unread(facts):
        if send.value["offset"] < highest.get(partition, 0):
            yield (
                f"{send.value['value']!r} is acknowledged at offset {send.value['offset']} of {_named(partition)}, and "
                f"readers went past it to {highest[partition]}"
            )


def _unseen(facts: _Facts) -> Iterator[str]:
    if not facts.is_finished:
        return
    for send, partition in _unread(facts):
        yield (
            f"{send.value['value']!r} is acknowledged at offset {send.value['offset']} of {_named(partition)}, and "
            "no client has read it"
        )


def _inconsistent_offsets(facts: _Facts) -> Iterator[str]:
    for partition, offsets in facts.values.items():
        for offset, values in offsets.items():
            if len(values) > 1:
                yield f"offset {offset} of {_named(partition)} has the values {sorted(values)}"


def _duplicates(facts: _Facts) -> Iterator[str]:
    places: defaultdict[str, list[str]] = defaultdict(list)
    for partition, offsets in facts.values.items():
        for offset, values in offsets.items():
            for value in values:
                places[value].append(f"{_named(partition)}@{offset}")
    for value, found in places.items():
        if len(found) > 1:
            yield f"{value!r} stands at {', '.join(found)}"


def _failed_reads(facts: _Facts) -> Iterator[str]:
    possible = {send.value["value"] for send in facts.sends if send.kind != "fail"}
    for partition, offsets in facts.values.items():
        for offset, values in offsets.items():
            for value in values - possible:
                yield f"{value!r} was read at offset {offset} of {_named(partition)}, and no producer sent it"


def _nonmonotonic_sends(facts: _Facts) -> Iterator[str]:
    last: dict[tuple[str, _Partition], Operation] = {}
    for send in sorted((each for each in facts.sends if each.is_ok), key=lambda each: each.began):
        key = send.process, _place(send)
        before = last.get(key)
        if before is not None and before.value["offset"] > send.value["offset"]:
            yield (
                f"{send.process} sent {before.value['value']!r} before {send.value['value']!r}, which stand at "
                f"{before.value['offset']} and {send.value['offset']} of {_named(key[1])}"
            )
        last[key] = send


def _polls(facts: _Facts) -> Iterator[tuple[str, _Partition, int, int]]:
    """Yield each pair of subsequent reads of a partition by one process, without a seek or rebalance between.

    Each is process, partition, the offset read before and the offset read after.
    """
    last: dict[tuple[str, _Partition], int] = {}
    for op in facts.all:
        if op.name in ("assign", "seek", *_OWNERSHIP):
            for partition, _ in op.rows("partitions"):
                last.pop((op.process, partition), None)
        elif op.name == "poll":
            for partition, (offset, _) in op.rows("records"):
                key = op.process, partition
                if key in last:
                    yield op.process, partition, last[key], offset
                last[key] = offset


def _poll_skips(facts: _Facts) -> Iterator[str]:
    known = {partition: sorted(offsets) for partition, offsets in facts.values.items()}
    for process, partition, before, offset in _polls(facts):
        there = known[partition]
        skipped = there[bisect_left(there, before + 1) : bisect_left(there, offset)]
        if skipped:
            yield f"{process} read {offset} of {_named(partition)} after {before}, and left out {skipped}"


def _nonmonotonic_polls(facts: _Facts) -> Iterator[str]:
    for process, partition, before, offset in _polls(facts):
        if offset <= before:
            yield f"{process} read {offset} of {_named(partition)} after {before}"


def _unowned_reads(facts: _Facts) -> Iterator[str]:
    sharing = {op.process for op in facts.all if op.name == "assigned"}
    owned: set[tuple[str, _Partition]] = set()
    for op in facts.all:
        keys = [(op.process, partition) for partition, _ in op.rows("partitions")]
        if op.name == "assigned":
            owned.update(keys)
        elif op.name in ("revoked", "lost"):
            owned.difference_update(keys)
        elif op.name == "poll" and op.process in sharing:
            for partition, (offset, _) in op.rows("records"):
                if (op.process, partition) not in owned:
                    yield f"{op.process} read {offset} of {_named(partition)}, which it did not own"


def _commits(facts: _Facts) -> dict[tuple[str, _Partition], list[tuple[Operation, int]]]:
    """Return (group, partition) -> commits and resets that may have happened, by their beginning."""
    found: defaultdict[tuple[str, _Partition], list[tuple[Operation, int]]] = defaultdict(list)
    for op in sorted(facts.all, key=lambda each: each.began):
        if op.name in ("commit", "reset") and op.kind != "fail":
            for partition, (offset,) in op.rows("offsets"):
                found[op.value["group"], partition].append((op, offset))
    return found


def _commit_regresses(facts: _Facts) -> Iterator[str]:
    for (group, partition), rows in _commits(facts).items():
        # Ends of what has happened for sure, ascending by end: what is higher and over before the next begins.
        over = sorted((op.ended, offset) for op, offset in rows if op.is_ok and op.name == "commit")
        resets = [op for op, _ in rows if op.name == "reset"]
        at, highest, since = 0, -1, 0
        for op, offset in rows:
            while at < len(over) and over[at][0] < op.began:
                since, highest = max((since, highest), over[at], key=lambda each: each[1])
                at += 1
            is_reset = any(each.ended > since and each.began < op.ended for each in resets)
            if op.is_ok and op.name == "commit" and offset < highest and not is_reset:
                yield f"group {group} has committed {offset} of {_named(partition)} after {highest}"


def _lost_commits(facts: _Facts) -> Iterator[str]:
    commits = _commits(facts)
    for op in facts.all:
        if op.name != "committed" or not op.is_ok:
            continue
        seen = {partition: offset for partition, (offset,) in op.rows("offsets")}
        for (group, partition), rows in commits.items():
            if group != op.value["group"]:
                continue
            before = [(each.began, offset) for each, offset in rows if each.is_ok and each.ended < op.began]
            if not before:
                continue
            began, latest = max(before, key=lambda each: each[0])
            found = seen.get(partition)
            # What overlapped the latest, or came behind it, may stand as well.
            possible = {offset for each, offset in rows if each.ended > began and each.began < op.ended}
            if found != latest and found not in possible:
                yield f"group {group} has committed {latest} of {_named(partition)}, and {found} is there"


def _double_owners(facts: _Facts) -> Iterator[str]:
    for (group, partition), tenures in facts.tenures.items():
        holder: _Tenure | None = None
        for tenure in tenures:
            if tenure.last_read is None:
                continue
            if holder is not None and holder.process != tenure.process and tenure.began < holder.ended:
                yield f"{holder.process} and {tenure.process} of {group} owned {_named(partition)} at once, and read"
            if holder is None or tenure.ended > holder.ended:
                holder = tenure


def _orphans(facts: _Facts, limit_ms: int | None) -> Iterator[str]:
    if limit_ms is None or not facts.all:
        return
    last_ns = max(op.time_ns for op in facts.all)
    living = {group for (group, _), tenures in facts.tenures.items() if tenures[-1].ended_ns is None}
    for (group, partition), tenures in facts.tenures.items():
        begins = [tenure.began_ns for tenure in tenures[1:]]
        if group in living:
            # A member of the group is there to the end, and should have it.
            begins.append(last_ns)
        for tenure, next_ns in zip(tenures, begins, strict=False):
            if tenure.ended_ns is not None and next_ns - tenure.ended_ns > limit_ms * _MS:
                gap_ms = (next_ns - tenure.ended_ns) // _MS
                yield f"no member of {group} owned {_named(partition)} for {gap_ms} ms behind {tenure.process}"


_CHECKS: Final[dict[str, Callable[[_Facts], Iterator[str]]]] = {
    "lost-write": _lost_writes,
    "unseen": _unseen,
    "inconsistent-offset": _inconsistent_offsets,
    "duplicate": _duplicates,
    "failed-read": _failed_reads,
    "nonmonotonic-send": _nonmonotonic_sends,
    "poll-skip": _poll_skips,
    "nonmonotonic-poll": _nonmonotonic_polls,
    "unowned-read": _unowned_reads,
    "commit-regress": _commit_regresses,
    "commit-lost": _lost_commits,
    "double-owner": _double_owners,
}
