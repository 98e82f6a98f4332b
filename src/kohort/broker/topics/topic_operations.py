"""Topic changes: planned on the loop, written in another thread, reported once they are in force.

Laws: a change is planned once all earlier changes of the same concern are in force. So the second of two changes of one
name sees the result of the first. Changes of different topics are written together, with one sync. Each change is
reported once. Without a disk to wait for, everything is done on the loop, many topics in several turns.
Source: architecture rule 18; Apache Kafka's controller, which appends in its own thread and responds afterwards.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from queue import SimpleQueue
from typing import Final, NamedTuple

from kohort.base.clock import Clock
from kohort.errors import ConfigError, ErrorCode, Refused, StorageError
from kohort.storage.topics import TopicChanges, TopicPlan

log = logging.getLogger("kohort.broker.topics")

#: The most changes that are written together; with more the first of them would only wait longer.
CHANGES_AT_ONCE: Final = 200
#: The most changes in one turn of the loop if nothing waits for a disk.
CHANGES_PER_TURN: Final = 25
#: The time that a stop waits for a disk that hangs.
STOP_TIMEOUT_SECONDS: Final = 5.0

#: The error of a change that is not in force; `None` if the change is in force.
Outcome = Refused | ConfigError | StorageError | None


def code_of(why: Refused | ConfigError | StorageError) -> ErrorCode:
    """Return the error code for a change that is not in force."""
    if isinstance(why, Refused):
        return why.code
    return ErrorCode.INVALID_CONFIG if isinstance(why, ConfigError) else ErrorCode.KAFKA_STORAGE_ERROR


class Wanted(NamedTuple):
    """A requested change."""

    #: The name that the change is about; changes of one concern wait for each other.
    concern: str
    #: Plans the change, on the loop when it is its turn; raises `Refused` or `ConfigError` if it is impossible.
    plan: Callable[[], TopicPlan]
    #: Called once with the outcome, on the loop, in the order of the requests.
    done: Callable[[Outcome], None]


class TopicOperations:
    """The queue of requested changes; they are carried out at once, or after `begin` in a thread."""

    def __init__(self, changes: TopicChanges, *, on_settled: Callable[[], None]) -> None:
        """Create the queue; `on_settled` runs when changes are in force, before they are reported."""
        self._changes: Final = changes
        self._on_settled: Final = on_settled
        self._waiting: Final[deque[Wanted]] = deque()
        self._is_busy = False
        #: Set by `begin`.
        self._loop: asyncio.AbstractEventLoop | None = None
        self._on_failure: Callable[[Exception], None] = lambda _: None
        self._jobs: Final[SimpleQueue[Sequence[tuple[Wanted, TopicPlan]] | None]] = SimpleQueue()
        self._thread: threading.Thread | None = None
        self._is_idle: Final = asyncio.Event()
        self._is_idle.set()
        self._is_beside = False

    @property
    def is_idle(self) -> bool:
        """Whether no change waits or is in progress."""
        return not self._is_busy and not self._waiting

    def begin(
        self, loop: asyncio.AbstractEventLoop, *, is_beside: bool, on_failure: Callable[[Exception], None]
    ) -> None:
        """Use the loop from now on; with `is_beside`, changes are written in a thread, as for a disk."""
        self._loop, self._is_beside, self._on_failure = loop, is_beside, on_failure

    def ask(self, wanted: Iterable[Wanted]) -> None:
        """Carry out changes after all that were requested before."""
        self._waiting.extend(wanted)
        self._pump()

    async def drain(self) -> None:
        """Wait until no change waits or is in progress."""
        await self._is_idle.wait()

    def stop(self) -> None:
        """Stop the thread, after `drain` or a failure of the broker; carry out later changes at once."""
        self._is_beside, self._loop = False, None
        if self._thread is not None:
            self._jobs.put(None)
            self._thread.join(STOP_TIMEOUT_SECONDS)
            self._thread = None

    def _pump(self) -> None:
        """Begin with the next changes, unless some are in progress."""
        while not self._is_busy:
            if not self._waiting and not self._changes.has_leftovers:
                self._is_idle.set()
                return
            self._is_busy = True
            self._is_idle.clear()
            batch = self._take()
            if self._is_beside:
                self._post(batch)
                return
            self._changes.write([plan for _, plan in batch])
            self._settle(batch)
            if self._waiting and self._loop is not None:
                # The other callbacks of the loop have their turn.
                self._is_busy = True
                self._loop.call_soon(self._go_on)

    def _go_on(self) -> None:
        self._is_busy = False
        self._pump()

    def _take(self) -> list[tuple[Wanted, TopicPlan]]:
        """Plan the next changes, up to the first that has to wait for one of them."""
        batch: list[tuple[Wanted, TopicPlan]] = []
        concerns: set[str] = set()
        most = CHANGES_AT_ONCE if self._is_beside else CHANGES_PER_TURN
        # A change is planned once all earlier changes of its topic are in force.
        while self._waiting and len(concerns) < most and self._waiting[0].concern not in concerns:
            wanted = self._waiting.popleft()
            # Refused changes count as well: planning takes time, and changes are reported in order.
            concerns.add(wanted.concern)
            try:
                batch.append((wanted, wanted.plan()))
            except (Refused, ConfigError) as why:
                wanted.done(why)
        return batch

    def _post(self, batch: Sequence[tuple[Wanted, TopicPlan]]) -> None:
        if self._thread is None:
            self._thread = threading.Thread(target=self._write_forever, name="kohort-topics", daemon=True)
            self._thread.start()
        self._jobs.put(batch)

    def _write_forever(self) -> None:
        while (batch := self._jobs.get()) is not None:
            try:
                self._changes.write([plan for _, plan in batch])
            except Exception as error:  # after any error the content of the disk is unknown
                self._tell(self._fail, error)
                return
            self._tell(self._on_written, batch)

    def _tell(self, callback: Callable[..., None], argument: object) -> None:
        loop = self._loop
        if loop is not None and not loop.is_closed():
            loop.call_soon_threadsafe(callback, argument)

    def _fail(self, error: Exception) -> None:
        """Report a failure of the broker, let `drain` return, and report no change any more."""
        self._on_failure(error)
        self._is_idle.set()

    def _on_written(self, batch: Sequence[tuple[Wanted, TopicPlan]]) -> None:
        try:
            self._settle(batch)
        finally:
            self._pump()

    def _settle(self, batch: Sequence[tuple[Wanted, TopicPlan]]) -> None:
        outcomes: list[Outcome] = []
        for _, plan in batch:
            try:
                self._changes.settle(plan)
                outcomes.append(None)
            except StorageError as why:
                outcomes.append(why)
        self._on_settled()
        if not batch and self._changes.stuck_on is not None:
            log.warning("event=deleted_folders_stay reason=%r", str(self._changes.stuck_on))
        self._is_busy = False
        for (wanted, _), outcome in zip(batch, outcomes, strict=True):
            wanted.done(outcome)


# Topic changes with a time limit: the `timeout_ms` of their request.
#
# Laws: each change is reported once: as in force, with its error, or with REQUEST_TIMED_OUT when the time is over. A
# change that has not begun by then is never done, so with a timeout of 0 no change is done. A change that has begun
# goes on.
# Source: Apache Kafka's QuorumController, in which a change has to begin within `timeout_ms`. (The earlier controller
# with ZooKeeper began each change regardless of the time.)


def ask_within(
    loop: asyncio.AbstractEventLoop,
    work: TopicOperations,
    wanted: Iterable[Wanted],
    *,
    timeout_ms: int,
    on_refusal: Callable[[str, StorageError], None],
) -> None:
    """Carry out changes by `work`, and report each within `timeout_ms`.

    `on_refusal` is called with the disk error of a change that had timed out before.
    """
    timed = [_Timed(each, timeout_ms, on_refusal) for each in wanted]
    # With a timeout of 0 no change is begun, as in Apache Kafka.
    if timeout_ms <= 0 or not timed:
        _expire(timed)
        return
    open_now = _Open(loop.call_later(timeout_ms / 1000, _expire, timed), len(timed))
    for each in timed:
        each.open = open_now
    work.ask(Wanted(each.wanted.concern, each.plan, each.done) for each in timed)


def _expire(timed: Iterable[_Timed]) -> None:
    for each in timed:
        each.expire()


class _Open:
    """The number of a request's unreported changes, and the timer that ends their time."""

    def __init__(self, timer: asyncio.TimerHandle, count: int) -> None:
        self._timer: Final = timer
        self._count = count

    def tell(self) -> None:
        """Count one reported change."""
        self._count -= 1
        if not self._count:
            self._timer.cancel()


class _Timed:
    """One change with a time limit."""

    def __init__(self, wanted: Wanted, timeout_ms: int, on_refusal: Callable[[str, StorageError], None]) -> None:
        self.wanted: Final = wanted
        self._on_refusal: Final = on_refusal
        self._timeout_ms: Final = timeout_ms
        self.open: _Open | None = None
        self._has_begun = self._is_told = False

    def plan(self) -> TopicPlan:
        """Plan the change; raise REQUEST_TIMED_OUT if its time is over."""
        if self._is_told:
            raise self._late()
        self._has_begun = True
        return self.wanted.plan()

    def done(self, why: Outcome) -> None:
        """Report the outcome of the change, unless it has timed out."""
        if not self._is_told:
            self._is_told = True
            if self.open is not None:
                self.open.tell()
            self.wanted.done(why)
        elif isinstance(why, StorageError):
            self._on_refusal(f"topic-{self.wanted.concern}", why)

    def expire(self) -> None:
        """Report REQUEST_TIMED_OUT, unless the change was reported before."""
        self.done(self._late())

    def _late(self) -> Refused:
        state = "it has begun, and goes on" if self._has_begun else "it had not begun, and is not done"
        return Refused(ErrorCode.REQUEST_TIMED_OUT, f"the change is not in force after {self._timeout_ms} ms; {state}")


# The limits of topics, of partitions, and of topics that are auto-created in a minute.
#
# Laws: a topic or partition above a limit is refused with POLICY_VIOLATION and a message that names the option.
# Existing ones stay.
# Source: requirement B4. Clients treat that code as final: librdkafka fails the records of that topic at once, Java's
# client logs the code by name and requests again. Apache Kafka has no such limits.

_MINUTE_MS: Final = 60_000


class TopicRate:
    """The rate of auto-created topics: a token bucket that holds the number of one minute."""

    __slots__ = ("_at_ms", "_clock", "_left", "_per_minute", "refused")

    def __init__(self, clock: Clock, per_minute: int) -> None:
        self._clock: Final = clock
        self._per_minute: Final = per_minute
        #: Topics that may be created as of `_at_ms`, in parts of 1 / `_MINUTE_MS`.
        self._left = per_minute * _MINUTE_MS
        self._at_ms = clock.now_ms()
        #: Topics that were refused by this rate since the start.
        self.refused = 0

    def take(self) -> None:
        """Count one auto-created topic; raise `Refused` if the rate is exceeded."""
        now_ms = self._clock.now_ms()
        passed_ms = max(0, now_ms - self._at_ms)
        self._left = min(self._per_minute * _MINUTE_MS, self._left + passed_ms * self._per_minute)
        self._at_ms = now_ms
        if self._left < _MINUTE_MS:
            self.refused += 1
            raise Refused(
                ErrorCode.POLICY_VIOLATION,
                f"more than {self._per_minute} topics a minute would be auto-created "
                "(auto.create.topics.per.minute); create the topics, or retry later",
            )
        self._left -= _MINUTE_MS


def check_count(count: int, most: int, what: str) -> None:
    """Raise `Refused` if a broker would have too many topics or partitions.

    >>> check_count(5, 5, "topics")
    >>> check_count(6, 5, "topics")
    Traceback (most recent call last):
    kohort.errors.Refused: this broker would have 6 topics; max.topics allows 5
    """
    if count > most:
        text = f"this broker would have {count} {what}; max.{what} allows {most}"
        raise Refused(ErrorCode.POLICY_VIOLATION, text)
