"""The broker's side of the process that compacts logs.

The process is started with the first order (the request to compact one log), and runs until `end` or `stop`.

Laws: callers are threads that may wait. A process that exits before its response has changed no log, and the next
order starts another process. The process does not outlive the broker.
Source: architecture rule 18 (the interpreter's lock is the loop's).
"""

from __future__ import annotations

import os
import pickle
import subprocess
import threading
from typing import Final

from kohort.broker.processes.childprocess import bury, describe_end, kill, start_module
from kohort.broker.processes.compactorworker import ANSWER, DISK_FAILED, MADE, ORDER
from kohort.errors import StorageError
from kohort.storage.compaction import Compacted, CompactionPlan, CompactionStopped
from kohort.storage.files.fs import DiskFailedError, DiskHealth


class CompactorProcess:
    """The process that compacts logs on disk, one at a time."""

    def __init__(self, health: DiskHealth) -> None:
        self._health: Final = health
        #: Guards the two fields below, so that a stop also kills a process that was just started.
        self._lock: Final = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._is_stopped = False

    @property
    def process_id(self) -> int | None:
        """The id of the running process, `None` if there is none."""
        process = self._process
        return None if process is None else process.pid

    def compact(self, plan: CompactionPlan, *, now_ms: int) -> Compacted:
        """Run `storage.compaction.compact` in the process, and block until it returns."""
        process = self._ready()
        try:
            kind, answer = _ask(process, pickle.dumps((plan, now_ms), pickle.HIGHEST_PROTOCOL))
        except (OSError, EOFError):
            how = describe_end(process)
            self.end()
            if self._is_stopped:
                raise CompactionStopped from None
            raise StorageError(f"{how} before the log was compacted; it is tried again") from None
        if kind == MADE:
            made = pickle.loads(answer)
            assert isinstance(made, Compacted)
            return made
        words = answer.decode()
        raise self._health.fail(DiskFailedError(words)) if kind == DISK_FAILED else StorageError(words)

    def end(self) -> None:
        """End the process; a waiting caller gets an error."""
        with self._lock:
            process, self._process = self._process, None
            if process is not None:
                kill(process)
                bury(process)

    def stop(self) -> None:
        """Kill the process for good, without waiting for it; `end` waits."""
        self._is_stopped = True
        with self._lock:
            if self._process is not None:
                kill(self._process)

    def _ready(self) -> subprocess.Popen[bytes]:
        with self._lock:
            if self._is_stopped:
                raise CompactionStopped
            if self._process is None:
                try:
                    self._process = start_module("kohort.broker.processes.compactorworker", str(os.getpid()))
                except OSError as why:
                    raise StorageError(f"no process can be started that compacts: {why.strerror or why}") from why
            return self._process


def _ask(process: subprocess.Popen[bytes], order: bytes) -> tuple[int, bytes]:
    """Send an order; return the kind and bytes of the response.

    Raises:
        EOFError: the process exited before its response.
    """
    assert process.stdin is not None and process.stdout is not None
    process.stdin.write(ORDER.pack(len(order)) + order)
    process.stdin.flush()
    head = process.stdout.read(ANSWER.size)
    if len(head) < ANSWER.size:
        raise EOFError
    kind, size = ANSWER.unpack(head)
    answer = process.stdout.read(size)
    if len(answer) < size:
        raise EOFError
    return kind, answer
