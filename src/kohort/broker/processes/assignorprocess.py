"""The child process of one user-defined assignor, and the thread that communicates with it.

An order is a request to the process to compute one assignment. The process is started before the first order, and
stays between orders. After an order without a valid response a new process is started. The new process imports the
package again, so a repaired package is used without a restart of the broker.

Laws: every wait is bounded by the time limit of a start or of an order. Orders are carried out one by one, and at most
`MOST_WAITING` wait. The process does not outlive the thread or the broker.
Source: issue 4, bad input (an assignor that takes a minute).
"""

from __future__ import annotations

import asyncio
import logging
import os
import pickle
import selectors
import subprocess
import threading
import time
from array import array
from collections.abc import Callable, Iterable
from contextlib import suppress
from functools import partial
from queue import Empty, Full, Queue
from typing import Final

from kohort.assign.interface import Assignor
from kohort.broker.processes.assignorloading import load_assignor
from kohort.broker.processes.assignorworker import ANSWER, FAILED, LONGEST_FAULT, ORDER, OWNERS, READY
from kohort.broker.processes.childprocess import bury, describe_end, kill, start_module
from kohort.coordinator.decision import ComputeTarget

log = logging.getLogger("kohort.broker.groups")

#: Time that the import of the assignor's package may take.
START_MS: Final = 20_000
#: Groups that may wait for one assignor.
MOST_WAITING: Final = 10_000
#: The most bytes of one read.
CHUNK: Final = 1 << 16
#: The time that a stop waits for the thread.
STOP_SECONDS: Final = 2.0

#: (owners or `None`, error) of one order; called on the thread.
Deliver = Callable[["array[int] | None", str], None]


class AssignorProcess:
    """The child process that computes the assignments of one user-defined assignor."""

    def __init__(self, name: str) -> None:
        self._name: Final = name
        self._orders: Final[Queue[tuple[ComputeTarget, Deliver] | None]] = Queue(MOST_WAITING)
        self._thread: Final = threading.Thread(target=self._run, name=f"kohort-assignor-{name}", daemon=True)
        #: Guards the two fields below, so that a stop also kills a process that was just started.
        self._lock: Final = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._is_stopped = False

    def start(self) -> None:
        """Start the thread, which starts the process."""
        self._thread.start()

    def put(self, order: ComputeTarget, deliver: Deliver) -> bool:
        """Queue an order; return `False` if the queue is full."""
        try:
            self._orders.put_nowait((order, deliver))
        except Full:
            return False
        return True

    def stop(self) -> None:
        """Kill the process at once, even during an order; deliver no more results."""
        with self._lock:
            self._is_stopped = True
            self._kill()
        while True:
            try:
                self._orders.put_nowait(None)
                break
            except Full:
                self._drop_one()
        # The thread is a daemon, so a stop need not wait any longer.
        self._thread.join(STOP_SECONDS)

    @property
    def process_id(self) -> int | None:
        """The id of the running process, `None` if there is none."""
        process = self._process
        return None if process is None else process.pid

    def _drop_one(self) -> None:
        try:
            self._orders.get_nowait()
        except Empty:
            return

    def _run(self) -> None:
        try:
            self._ready_channel()
        except (_Failure, OSError) as why:
            # The first order starts another process, and fails if that one cannot start either.
            log.warning("event=assignor_not_ready assignor=%s why=%r", self._name, str(why))
            self._end()
        while (task := self._orders.get()) is not None:
            order, deliver = task
            owner, error = self._carry_out(order)
            if self._is_stopped:
                break
            deliver(owner, error)
        self._end()

    def _carry_out(self, order: ComputeTarget) -> tuple[array[int] | None, str]:
        try:
            channel = self._ready_channel()
            payload = pickle.dumps(order.assignable, pickle.HIGHEST_PROTOCOL)
            limit = max(LONGEST_FAULT, array("i").itemsize * len(order.assignable.owner))
            deadline = _Deadline(order.timeout_ms, f"it took longer than {order.timeout_ms} ms")
            channel.write(ORDER.pack(len(payload), order.timeout_ms) + payload, deadline)
            kind, answer = channel.read_answer(limit, deadline)
        except (_Failure, OSError, MemoryError) as why:
            # Also if the machine has no free processes, pipes or memory, which may be temporary.
            self._end()
            return None, str(why) or type(why).__name__
        if kind != OWNERS:
            return None, answer.decode(errors="replace")
        owner = array("i")
        if len(answer) % owner.itemsize:
            return None, f"its process answered {len(answer)} bytes"
        owner.frombytes(answer)
        return owner, ""

    def _ready_channel(self) -> _Channel:
        """Return the channel to a process that has loaded the assignor."""
        process = self._process
        if process is not None:
            return _Channel(process)
        with self._lock:
            if self._is_stopped:
                raise _Failure("the broker stops")
            process = self._process = _start_process(self._name)
        channel = _Channel(process)
        kind, answer = channel.read_answer(LONGEST_FAULT, _Deadline(START_MS, f"it took {START_MS} ms to load"))
        if kind != READY:
            raise _Failure(answer.decode(errors="replace"))
        return channel

    def _end(self) -> None:
        with self._lock:
            process = self._process
            self._kill()
            self._process = None
        if process is not None:
            bury(process)

    def _kill(self) -> None:
        process = self._process
        if process is not None:
            kill(process)


class _Failure(Exception):
    """An order without a valid response of the process; the message has the reason."""


class _Deadline:
    """The time limit of one response, with the message of its error."""

    def __init__(self, ms: int, complaint: str) -> None:
        self._at: Final = time.monotonic() + ms / 1000
        self._complaint: Final = complaint

    def left(self) -> float:
        """Return the remaining seconds; raise `_Failure` if there are none."""
        left = self._at - time.monotonic()
        if left <= 0:
            raise _Failure(self._complaint)
        return left


class _Channel:
    """The pipes of a process, written and read without waiting beyond the deadline."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        assert process.stdin is not None and process.stdout is not None
        self._process: Final = process
        self._to: Final = process.stdin.fileno()
        self._from: Final = process.stdout.fileno()

    def write(self, data: bytes, deadline: _Deadline) -> None:
        """Write all of `data`."""
        rest = memoryview(data)
        while rest:
            self._wait(self._to, selectors.EVENT_WRITE, deadline)
            try:
                rest = rest[os.write(self._to, rest) :]
            except BlockingIOError:
                continue
            except BrokenPipeError:
                raise self._ended() from None

    def read_answer(self, limit: int, deadline: _Deadline) -> tuple[int, bytes]:
        """Read one response of at most `limit` bytes; return its kind and its bytes."""
        kind, size = ANSWER.unpack(self._read(ANSWER.size, deadline))
        if kind not in (READY, OWNERS, FAILED) or size > limit:
            raise _Failure("its process answered something that is no answer")
        return kind, self._read(size, deadline)

    def _read(self, size: int, deadline: _Deadline) -> bytes:
        found = bytearray()
        while len(found) < size:
            self._wait(self._from, selectors.EVENT_READ, deadline)
            try:
                chunk = os.read(self._from, min(CHUNK, size - len(found)))
            except BlockingIOError:
                continue
            if not chunk:
                raise self._ended()
            found += chunk
        return bytes(found)

    def _wait(self, number: int, event: int, deadline: _Deadline) -> None:
        with selectors.DefaultSelector() as selector:
            selector.register(number, event)
            selector.select(deadline.left())

    def _ended(self) -> _Failure:
        return _Failure(describe_end(self._process))


def _start_process(name: str) -> subprocess.Popen[bytes]:
    process = start_module("kohort.broker.processes.assignorworker", name)
    assert process.stdin is not None and process.stdout is not None
    os.set_blocking(process.stdin.fileno(), False)
    os.set_blocking(process.stdout.fileno(), False)
    return process


# The user-defined assignors of this broker, and the delivery of their results to the loop.
#
# Laws: the loop never waits for an assignor that is offloaded. The result of each order is delivered once, on the loop,
# unless the broker stops before. It is never delivered within the call of `compute`.
# Source: requirement G5; `ComputeTarget` and `TargetComputed` of the coordinator.

#: (owners or `None`, error); called on the loop.
OnComputed = Callable[["array[int] | None", str], None]


class OwnAssignors:
    """The user-defined assignors of one broker by name; used on the event loop only."""

    def __init__(self, loop: asyncio.AbstractEventLoop, names: Iterable[str]) -> None:
        self._loop: Final = loop
        self._processes: Final = {name: AssignorProcess(name) for name in names}
        #: Assignors that run on the loop itself, because offloading is disabled.
        self._loaded: Final[dict[str, Assignor]] = {}

    def start(self) -> None:
        """Start the process of each assignor, so that the assignor is loaded before the first order."""
        for process in self._processes.values():
            process.start()

    def stop(self) -> None:
        """End every process; results of orders in progress are not delivered."""
        for process in self._processes.values():
            process.stop()

    def compute(self, order: ComputeTarget, on_computed: OnComputed) -> None:
        """Carry out an order; `on_computed` gets its result."""
        if not order.is_offloaded:
            self._loop.call_soon(self._compute_here, order, on_computed)
        elif not self._processes[order.assignor].put(order, partial(self._deliver, on_computed)):
            self._loop.call_soon(on_computed, None, f"{MOST_WAITING} groups are waiting for it already")

    def process_id(self, name: str) -> int | None:
        """Return the id of an assignor's running process, `None` if there is none."""
        return self._processes[name].process_id

    def _deliver(self, on_computed: OnComputed, owner: array[int] | None, error: str) -> None:
        """Hand a result to the loop; called on a process's thread."""
        # On a closed loop nothing waits for the result.
        with suppress(RuntimeError):
            self._loop.call_soon_threadsafe(on_computed, owner, error)

    def _compute_here(self, order: ComputeTarget, on_computed: OnComputed) -> None:
        try:
            assignor = self._loaded.get(order.assignor)
            if assignor is None:
                assignor = self._loaded[order.assignor] = load_assignor(order.assignor)
            # The assignor gets a copy that it may change, as in a process of its own.
            owner = assignor.assign(pickle.loads(pickle.dumps(order.assignable)))
        except Exception as why:
            on_computed(None, f"{type(why).__name__}: {why}")
        else:
            on_computed(owner, "")
