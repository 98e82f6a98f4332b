"""`python -m kohort.broker.processes.compactorworker BROKER`: compacts logs for that process id.

Orders are read from standard input, one at a time; the response to each is written to standard output.

Apart: it is the main module of its own process.
Laws: the process reads closed files, and writes new ones under temporary names. It changes no other file. The process
exits at the end of its standard input, or during its work when the broker has exited. All other processes have a
higher priority.
Source: architecture rule 18; Apache Kafka's log cleaner.
"""

from __future__ import annotations

import os
import pickle
import sys
from struct import Struct
from typing import Final

from kohort.storage.compaction import CompactionPlan, CompactionStopped, compact
from kohort.storage.files.fs import DiskFileSystem

#: The header of an order: bytes that follow.
ORDER: Final = Struct(">I")
#: The header of a response: its kind, bytes that follow.
ANSWER: Final = Struct(">BQ")
#: Kinds of responses: the result follows; an error follows, as text; a failed disk's error follows, as text.
MADE, FAILED, DISK_FAILED = 0, 1, 2
#: The nice value of the process, so that all others get the processor first.
NICENESS: Final = 10


def main(broker: int) -> int:
    """Serve until standard input ends; return the exit code."""
    # Compaction must not slow down the broker that orders it.
    os.nice(NICENESS)
    orders, answers = sys.stdin.buffer, sys.stdout.buffer
    while len(head := orders.read(ORDER.size)) == ORDER.size:
        payload = orders.read(ORDER.unpack(head)[0])
        # Unpickling is safe: only the broker's own process has the other end of the pipe.
        plan, now_ms = pickle.loads(payload)
        try:
            kind, answer = _carry_out(plan, now_ms, broker)
        except CompactionStopped:
            break
        answers.write(ANSWER.pack(kind, len(answer)) + answer)
        answers.flush()
    return 0


def _carry_out(plan: CompactionPlan, now_ms: int, broker: int) -> tuple[int, bytes]:
    # A new file system for each order: the broker decides on the consequences of a disk error.
    fs = DiskFileSystem()
    try:
        made = compact(fs, plan, now_ms=now_ms, is_stopped=lambda: os.getppid() != broker)
    except CompactionStopped:
        raise
    except Exception as why:  # after any error the log is unchanged
        words = str(why) or type(why).__name__
        return DISK_FAILED if fs.health.failure is not None else FAILED, words.encode(errors="replace")
    return MADE, pickle.dumps(made, pickle.HIGHEST_PROTOCOL)


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1])))
