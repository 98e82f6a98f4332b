"""The search for a query's checkpoint folder, by the files that the JVM has open.

Spark writes the end of a batch to the checkpoint's offset log between the reader's plan and the batch's tasks. For as
long as the file is open, milliseconds, the kernel shows its path to the reader, a child of the JVM and a process of the
same user. A reader that looks all the time meets it, unless the machine is busy: then there is the commit log, to which
Spark writes behind the tasks. Once is enough for the life of the process.

Laws: nothing is written or opened but what `checkpoint.py` reads; a folder counts only if it names the query; where
nothing can be seen (no /proc, a checkpoint on another file system, another user), nothing is looked for any more.
Source: proc(5); Spark's CheckpointFileManager: `offsets/.N.UUID.tmp`, renamed when it is whole.
"""

from __future__ import annotations

import os
import re
import threading
import time
from typing import Final

from kohort.spark.checkpoint import BatchState, read_batch_state
from kohort.spark.offsets import OffsetJson

#: How long it is looked behind a plan at most, how long for the commit of its batch, with which pauses, and behind how
#: many plans before it is given up.
_WATCH_S: Final = 1.0
_COMMIT_S: Final = 3.0
_PAUSE_S: Final = 0.001
_MOST_WATCHES: Final = 20
_LOG_FILE: Final = re.compile(r"(/.*)/(?:offsets|commits)/\.{1,2}\d+\.[0-9a-f-]{36}\.tmp(?:\.crc)?(?: \(deleted\))?")


class Lookout:
    """The search on a thread, for a moment after each plan, until it has the folder.

    Args:
        process_id: of the JVM.
    """

    def __init__(self, process_id: int) -> None:
        #: Of the query's checkpoint; `None` as long as it is not known.
        self.location: str | None = None
        self._folder = f"/proc/{process_id}/fd"
        self._left = _MOST_WATCHES
        self._thread: threading.Thread | None = None
        self._is_logged = threading.Event()
        #: Numbers of files that stay open: the JVM's libraries, hundreds of them.
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
        """Look for the checkpoint to which Spark writes that end about now; returns at once."""
        if self.location is not None or self._left == 0 or self.is_watching:
            return
        self._left -= 1
        self._is_logged.clear()
        self._thread = threading.Thread(target=self._watch, args=(end,), name="kohort-spark-lookout", daemon=True)
        self._thread.start()

    def note_logged(self) -> None:
        """Note that Spark has written the awaited end into its log."""
        # Spark writes the commit next, after the tasks.
        self._is_logged.set()

    def _watch(self, end: OffsetJson) -> None:
        seen: set[str] = set()
        began_s = time.monotonic()
        try:
            while True:
                is_logged = self._is_logged.is_set()
                # The file may have its name only now.
                is_last = time.monotonic() > began_s + (_COMMIT_S if is_logged else _WATCH_S)
                if not is_last:
                    seen |= self._look()
                self.location = next((each for each in seen if _says_something(each, end)), None)
                if is_last or self.location is not None:
                    return
                if is_logged:
                    time.sleep(_PAUSE_S)
        except OSError:
            self._left = 0

    def _look(self) -> set[str]:
        """Return the checkpoints to which the JVM writes at this moment, of any query."""
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


def _says_something(location: str, end: OffsetJson) -> bool:
    """Whether a checkpoint is of the query that has planned `end`."""
    return read_batch_state(location, end) is not BatchState.UNKNOWN
