"""`python -m kohort.broker.processes.compactorworker BROKER`: compacts logs of the broker with that process id.

Orders come through standard input, one at a time; each gets an answer through standard output.

Laws: files that are closed are read, new ones that nobody knows of are written, and nothing else is touched. The
process ends when its standard input does, or, in the middle of its work, when the broker is gone. Everybody else has
the processor first.
Source: architecture rule 18; Apache Kafka's log cleaner.
"""

from __future__ import annotations

import os
import pickle
import sys
from struct import Struct
from typing import Final

from kohort.storage.files.fs import DiskFileSystem
from kohort.storage.upkeep.closedbatches import CompactionStopped
from kohort.storage.upkeep.compaction import compact
from kohort.storage.upkeep.segmentwriter import CompactionPlan

#: Of an order: bytes that follow.
ORDER: Final = Struct(">I")
#: Of an answer: what it is, bytes that follow.
ANSWER: Final = Struct(">BQ")
#: What was made follows; or what went wrong, in words; or that the disk has failed, in words.
MADE, FAILED, DISK_FAILED = 0, 1, 2
#: How far behind others it stands in the line for the processor.
NICENESS: Final = 10


def main(broker: int) -> int:
    """Serve until standard input ends; the exit code."""
    os.nice(NICENESS)
    orders, answers = sys.stdin.buffer, sys.stdout.buffer
    while len(head := orders.read(ORDER.size)) == ORDER.size:
        payload = orders.read(ORDER.unpack(head)[0])
        # It comes from the broker's own process, which is the only one that has the other end.
        plan, now_ms = pickle.loads(payload)
        try:
            kind, answer = _carry_out(plan, now_ms, broker)
        except CompactionStopped:
            break
        answers.write(ANSWER.pack(kind, len(answer)) + answer)
        answers.flush()
    return 0


def _carry_out(plan: CompactionPlan, now_ms: int, broker: int) -> tuple[int, bytes]:
    # One for each order: an error of the disk is told, and what is made of it is for the broker to say.
    fs = DiskFileSystem()
    try:
        made = compact(fs, plan, now_ms=now_ms, is_stopped=lambda: os.getppid() != broker)
    except CompactionStopped:
        raise
    except Exception as why:  # the log is as it was, whatever it is
        words = str(why) or type(why).__name__
        return DISK_FAILED if fs.health.failure is not None else FAILED, words.encode(errors="replace")
    return MADE, pickle.dumps(made, pickle.HIGHEST_PROTOCOL)


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1])))
