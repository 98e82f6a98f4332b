"""The state of a batch as Spark's checkpoint folder shows it, and the search for that folder.

Laws: the folder is read, never written, and trusted only if its offsets name the query. A file that cannot be read, or
belongs to another query, gives no state. The search gives up where it can see nothing (no /proc, a checkpoint on
another file system, a JVM of another user).
Source: Spark's StreamExecution: `offsets/N` is written before batch N runs, `commits/N` after it, each by a rename of
`.N.UUID.tmp` (CheckpointFileManager); an offset file has a version, a line of metadata and one line for each source.
"""

from __future__ import annotations

import json
import os
import re
import threading
import time
from enum import Enum
from pathlib import Path
from typing import Final
from urllib.parse import unquote, urlparse

from kohort.errors import KohortError
from kohort.spark.offsets import OffsetJson

#: Parts of log lines: why the reader cannot see a checkpoint, and what the user can do about it.
REMOTE: Final = "on no file system of the driver's machine, so that the reader cannot see there which batch is finished"
TELL_THE_END: Final = (
    "add kohort.spark.QueryListener() to spark.streams, or stop the query by kohort.spark.drain_and_stop: without "
    "either its partitions wait for the session timeout when it ends"
)
#: The name of a folder that Spark makes for a query without checkpointLocation, and deletes when the query ends.
_TEMPORARY: Final = re.compile(r"temporary-[0-9a-f-]{36}")

#: More than the offsets of any query; a longer file is not Spark's.
_MOST_BYTES = 64 << 20


class BatchState(Enum):
    """Spark's progress with a batch."""

    #: The batch is in the commit log.
    FINISHED = "finished"
    #: The batch is in the offset log only: it may be running, and the next run of the query repeats it.
    OPEN = "open"
    #: The batch is not even in the offset log: no run will repeat it.
    UNWRITTEN = "unwritten"
    #: The folder is unknown, unreadable, or of another query.
    UNKNOWN = "unknown"


class BatchNotLoggedError(KohortError):
    """Spark treats a batch as finished that its commit log does not have."""

    def __str__(self) -> str:
        return (
            "Spark asks for the next batch before its commit log has the last one, and the group would be told too "
            "early: asyncProgressTrackingEnabled cannot be true with kafka.group.id; leave one of them out. If it is "
            "not set, checkpointLocation of the source is not the query's own"
        )


def to_local_path(location: str) -> Path | None:
    """Return the folder of a `checkpointLocation`; `None` if it is not on this machine's file system.

    >>> to_local_path("file:///tmp/a%20b"), to_local_path("hdfs://host/tmp")
    (PosixPath('/tmp/a b'), None)
    """
    parsed = urlparse(location)
    if parsed.scheme == "":
        return Path(location)
    return Path(unquote(parsed.path)) if parsed.scheme == "file" and parsed.netloc in ("", "localhost") else None


def read_batch_state(location: str | None, end: OffsetJson | None) -> BatchState:
    """Read Spark's state of the batch that ends at `end`, the last one that was planned.

    `location`: the query's checkpointLocation, as given to Spark; `None` if it is not known.
    """
    folder = None if location is None else to_local_path(location)
    if folder is None or end is None:
        return BatchState.UNKNOWN
    try:
        numbers = sorted(int(path.name) for path in (folder / "offsets").iterdir() if path.name.isdigit())[-1:]
        if not numbers:
            return BatchState.UNKNOWN
        newest = numbers[0]
        sources = read_sources(folder / "offsets" / str(newest))
        if end in sources:
            is_finished = (folder / "commits" / str(newest)).exists()
            return BatchState.FINISHED if is_finished else BatchState.OPEN
    except (OSError, ValueError):
        return BatchState.UNKNOWN
    is_ours = any(isinstance(each, dict) and each.get("name") == end.get("name") for each in sources)
    return BatchState.UNWRITTEN if is_ours else BatchState.UNKNOWN


def is_temporary(location: str) -> bool:
    """Return whether Spark made this checkpoint itself, for a query without checkpointLocation.

    >>> is_temporary("/tmp/temporary-0f1e2d3c-0f1e-2d3c-4b5a-0f1e2d3c4b5a"), is_temporary("/data/orders")
    (True, False)
    """
    return _TEMPORARY.fullmatch(Path(location).name) is not None


def read_sources(path: Path) -> list[object]:
    """Return the offsets of a query's sources in a file of Spark's offset log; `OSError` where there is none."""
    if path.stat().st_size > _MOST_BYTES:
        return []
    found: list[object] = []
    for line in path.read_text().splitlines()[2:]:
        try:
            found.append(json.loads(line))
        except ValueError:
            # "-" stands for a source that has no offset yet.
            continue
    return found


#: The longest search after a plan, the longest search for the commit of its batch, the pause between two looks at the
#: commit log, and the number of plans after which the search gives up.
_WATCH_S: Final = 1.0
_COMMIT_S: Final = 3.0
_PAUSE_S: Final = 0.001
_MOST_WATCHES: Final = 20
_LOG_FILE: Final = re.compile(r"(/.*)/(?:offsets|commits)/\.{1,2}\d+\.[0-9a-f-]{36}\.tmp(?:\.crc)?(?: \(deleted\))?")


# Spark writes the end of a batch to the offset log between the reader's plan and the batch's tasks. While that file is
# open, for milliseconds, /proc/PID/fd (proc(5)) shows its path to the reader, a child of the JVM and a process of the
# same user. A reader that looks all the time finds it, unless the machine is busy: then the reader looks for the commit
# log, which Spark writes after the tasks. One find is enough for the life of the process.
class CheckpointDiscovery:
    """The search for the checkpoint folder: in a thread, briefly after each plan, until it is found.

    Args:
        process_id: the JVM's.
    """

    def __init__(self, process_id: int) -> None:
        #: The folder of the query's checkpoint; `None` until it is found.
        self.location: str | None = None
        self._folder = f"/proc/{process_id}/fd"
        self._left = _MOST_WATCHES
        self._thread: threading.Thread | None = None
        self._is_logged = threading.Event()
        #: Descriptors that need no second look: hundreds of jars, which the JVM keeps open.
        self._lasting: set[str] = set()

    @property
    def has_given_up(self) -> bool:
        """Whether the search has ended without result, or is not possible here."""
        return self.location is None and self._left == 0 and not self.is_watching

    @property
    def is_watching(self) -> bool:
        """Whether the search is running at this moment."""
        return self._thread is not None and self._thread.is_alive()

    def watch(self, end: OffsetJson) -> None:
        """Start to look for the checkpoint to which Spark is about to write this end; return at once."""
        if self.location is not None or self._left == 0 or self.is_watching:
            return
        self._left -= 1
        self._is_logged.clear()
        self._thread = threading.Thread(target=self._watch, args=(end,), name="kohort-spark-checkpoint", daemon=True)
        self._thread.start()

    def note_logged(self) -> None:
        """Note that Spark has written the awaited end to its offset log."""
        # Spark writes the commit next, after the tasks.
        self._is_logged.set()

    def _watch(self, end: OffsetJson) -> None:
        seen: set[str] = set()
        began_s = time.monotonic()
        try:
            while True:
                is_logged = self._is_logged.is_set()
                # After the deadline one more check: Spark may have renamed a file that was seen only now.
                is_last = time.monotonic() > began_s + (_COMMIT_S if is_logged else _WATCH_S)
                if not is_last:
                    seen |= self._look()
                states = {each: read_batch_state(each, end) for each in seen}
                # A checkpoint of another query is UNKNOWN, and does not count.
                self.location = next((each for each in seen if states[each] is not BatchState.UNKNOWN), None)
                if is_last or self.location is not None:
                    return
                if is_logged:
                    time.sleep(_PAUSE_S)
        except OSError:
            self._left = 0

    def _look(self) -> set[str]:
        """Return the checkpoint folders, of any query, to which the JVM is writing now."""
        found = set()
        for number in os.listdir(self._folder):
            if number in self._lasting:
                continue
            try:
                path = os.readlink(f"{self._folder}/{number}")
            except FileNotFoundError:
                continue
            if path.endswith(".jar"):
                self._lasting.add(number)
            elif match := _LOG_FILE.fullmatch(path):
                found.add(match[1])
        return found
