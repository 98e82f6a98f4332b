"""Topic changes on their way: decided on the loop, written beside it, reported when in force.

Laws: a change is decided when all that were asked for before are in force, so that of two that want one name the
second is told what the first did; those of different topics are written together, with one sync. Each is answered
once. Where nothing waits for a disk everything is done on the loop, many topics in several turns.
Source: architecture rule 18; Apache Kafka's controller, which appends in its own thread and answers afterwards.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from queue import SimpleQueue
from typing import Final, NamedTuple

from kohort.errors import ConfigError, ErrorCode, Refused, StorageError
from kohort.storage.topics.topicchanges import TopicChanges, TopicPlan

log = logging.getLogger("kohort.broker")

#: Changes that are written together; more only make the first of them wait.
CHANGES_AT_ONCE: Final = 200
#: Changes in memory for one turn of the loop.
CHANGES_PER_TURN: Final = 25
#: How long a stop waits for a disk that hangs.
STOP_TIMEOUT_SECONDS: Final = 5.0

#: Why a change is not in force; `None` where it is.
Outcome = Refused | ConfigError | StorageError | None


def code_of(why: Refused | ConfigError | StorageError) -> ErrorCode:
    """Return the error code for a change that is not in force."""
    if isinstance(why, Refused):
        return why.code
    return ErrorCode.INVALID_CONFIG if isinstance(why, ConfigError) else ErrorCode.KAFKA_STORAGE_ERROR


class Wanted(NamedTuple):
    """A requested change."""

    #: Two changes of one concern wait for each other.
    concern: str
    #: Plans the change, on the loop when it is its turn; raises `Refused` or `ConfigError` if it is impossible.
    plan: Callable[[], TopicPlan]
    #: Told once, on the loop, in the order of asking.
    done: Callable[[Outcome], None]


class TopicWork:
    """Carries out requested changes: at once until `begin`, beside the loop from then on."""

    def __init__(self, changes: TopicChanges, *, on_settled: Callable[[], None]) -> None:
        """Create the queue; `on_settled` runs when changes are in force, before their requests are told."""
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
        """Whether no change waits or is under way."""
        return not self._is_busy and not self._waiting

    def begin(
        self, loop: asyncio.AbstractEventLoop, *, is_beside: bool, on_failure: Callable[[Exception], None]
    ) -> None:
        """Use the loop from now on; with `is_beside`, writing waits for a disk and gets a thread."""
        self._loop, self._is_beside, self._on_failure = loop, is_beside, on_failure

    def ask(self, wanted: Iterable[Wanted]) -> None:
        """Carry out changes after all that were requested before."""
        self._waiting.extend(wanted)
        self._pump()

    async def drain(self) -> None:
        """Wait until no change waits or is under way."""
        await self._is_idle.wait()

    def stop(self) -> None:
        """End the thread, after `drain` or when the broker fails; carry out later changes at once."""
        self._is_beside, self._loop = False, None
        if self._thread is not None:
            self._jobs.put(None)
            self._thread.join(STOP_TIMEOUT_SECONDS)
            self._thread = None

    def _pump(self) -> None:
        """Begin with the next changes, unless some are under way."""
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
                # The others have their turn.
                self._is_busy = True
                self._loop.call_soon(self._go_on)

    def _go_on(self) -> None:
        self._is_busy = False
        self._pump()

    def _take(self) -> list[tuple[Wanted, TopicPlan]]:
        """Decide on the next changes, up to the first that has to wait for one of them."""
        batch: list[tuple[Wanted, TopicPlan]] = []
        concerns: set[str] = set()
        most = CHANGES_AT_ONCE if self._is_beside else CHANGES_PER_TURN
        # A change is decided when all earlier ones of its topic are in force.
        while self._waiting and len(concerns) < most and self._waiting[0].concern not in concerns:
            wanted = self._waiting.popleft()
            # Refused changes count as well: deciding takes time, and answers leave in order.
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
            except Exception as error:  # whatever it is, what the disk holds is unknown now
                self._tell(self._fail, error)
                return
            self._tell(self._on_written, batch)

    def _tell(self, callback: Callable[..., None], argument: object) -> None:
        loop = self._loop
        if loop is not None and not loop.is_closed():
            loop.call_soon_threadsafe(callback, argument)

    def _fail(self, error: Exception) -> None:
        """Report a failure of the broker; answer no request any more, and let `drain` return."""
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
