"""`python -m kohort.broker.processes.assignorworker NAME`: one user assignor in its own process.

Orders are read from standard input, and responses are written to the original standard output. Output of the assignor
itself goes to standard error, which is the broker's.

Laws: the process exits at the end of its standard input. No computation exceeds its time limit by more than a second,
even if the broker no longer waits for it. Responses are bytes of a bounded length, and never pickles.
Source: architecture (nothing that a user wrote runs on the broker's loop); issue 4, bad input.
"""

from __future__ import annotations

import os
import pickle
import resource
import signal
import sys
import threading
import traceback
from queue import SimpleQueue
from struct import Struct
from typing import BinaryIO, Final

from kohort.assign.interface import Assignable, Assignor
from kohort.assign.moves import find_fault
from kohort.broker.processes.assignorloading import load_assignor

#: The header of an order: bytes that follow, time limit in milliseconds.
ORDER: Final = Struct(">II")
#: The header of a response: its kind, bytes that follow.
ANSWER: Final = Struct(">BI")
#: Kinds of responses: the assignor is loaded; owners follow, as C ints; an error follows, as text.
READY, OWNERS, FAILED = 0, 1, 2
#: Longest text of an error, in bytes.
LONGEST_FAULT: Final = 2_000
#: Bytes of memory that the process may take.
MEMORY_LIMIT: Final = 4 * 2**30
#: Time after the limit of a computation at which the process ends itself, if the broker has not killed it.
GRACE_SECONDS: Final = 1.0


def main(name: str) -> int:
    """Serve until standard input ends; return the exit code."""
    orders, answers = _take_channels()
    # An assignor that takes too much memory fails alone, without the broker.
    resource.setrlimit(resource.RLIMIT_DATA, _memory_limit())
    queue: SimpleQueue[tuple[int, Assignable]] = SimpleQueue()
    threading.Thread(target=_read_orders, args=(orders, queue), daemon=True).start()
    try:
        assignor = load_assignor(name)
    except BaseException as why:
        _send(answers, FAILED, f"it cannot be loaded: {_describe(why)}".encode())
        return 1
    _send(answers, READY, b"")
    while True:
        timeout_ms, group = queue.get()
        # The signal ends the process even if the assignor never returns to Python.
        signal.setitimer(signal.ITIMER_REAL, timeout_ms / 1000 + GRACE_SECONDS)
        kind, payload = _compute(assignor, group)
        signal.setitimer(signal.ITIMER_REAL, 0)
        _send(answers, kind, payload)


def _compute(assignor: Assignor, group: Assignable) -> tuple[int, bytes]:
    try:
        owner = assignor.assign(group)
        fault = find_fault(group, owner)
    except BaseException as why:
        traceback.print_exc()
        return FAILED, _describe(why).encode()
    return (FAILED, fault.encode()) if fault else (OWNERS, owner.tobytes())


def _describe(why: BaseException) -> str:
    """Describe an exception in one line."""
    try:
        said = " ".join(str(why).split())
    except Exception:
        said = "its text cannot be had"
    return f"{type(why).__name__}: {said}"


def _take_channels() -> tuple[BinaryIO, BinaryIO]:
    """Reserve standard input and output for orders and responses, and return them."""
    orders, answers = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    # Output of the assignor must not mix with the responses, so it goes to standard error.
    os.dup2(2, 1)
    return orders, answers


def _memory_limit() -> tuple[int, int]:
    _, hard = resource.getrlimit(resource.RLIMIT_DATA)
    limit = MEMORY_LIMIT if hard == resource.RLIM_INFINITY else min(MEMORY_LIMIT, hard)
    return limit, hard


def _read_orders(orders: BinaryIO, queue: SimpleQueue[tuple[int, Assignable]]) -> None:
    """Queue the broker's orders; exit at once when the broker has exited, even during a computation."""
    while len(head := orders.read(ORDER.size)) == ORDER.size:
        size, timeout_ms = ORDER.unpack(head)
        payload = orders.read(size)
        if len(payload) < size:
            break
        # Unpickling is safe: only the broker's own process has the other end of the pipe.
        queue.put((timeout_ms, pickle.loads(payload)))
    # The assignor may never return to Python, so the process ends without cleaning up.
    os._exit(0)


def _send(answers: BinaryIO, kind: int, payload: bytes) -> None:
    payload = payload[:LONGEST_FAULT] if kind == FAILED else payload
    answers.write(ANSWER.pack(kind, len(payload)) + payload)
    answers.flush()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
