"""A transactional producer of the transactions' world, as one generator: it yields pauses and requests.

It does as clients do: one request at a time, each tried again until its answer is final. It may stall for longer than
its transaction's timeout, give up a batch whose fate it does not know, or die at any step; another one then takes over
its transactional id. Some programs are of the flow before KIP-890 part 2.
"""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass, field
from random import Random
from typing import Final

from kohort.errors import ErrorCode

#: Codes with which a request is sent again.
RETRIABLE: Final = frozenset(
    {
        ErrorCode.CONCURRENT_TRANSACTIONS,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.REQUEST_TIMED_OUT,
    }
)
#: Codes after which the producer aborts, and goes on.
ABORTABLE: Final = frozenset({ErrorCode.TRANSACTION_ABORTABLE, ErrorCode.INVALID_TXN_STATE})
#: Most answers that never came before a producer gives up a batch; and any other request.
_PATIENCE: Final = 4
_LONG_PATIENCE: Final = 1_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Ask:
    """A request of a producer. `sequence`, `attempt`: of a produce request with one record."""

    api: str
    producer_id: int = -1
    epoch: int = -1
    partition: int = -1
    sequence: int = -1
    attempt: int = -1
    is_commit: bool = False


@dataclass(frozen=True, slots=True)
class Told:
    """The answer to a request: a code, and the id and epoch that some answers have."""

    code: ErrorCode
    producer_id: int = -1
    epoch: int = -1


@dataclass(slots=True)
class Attempt:
    """One transaction as its producer sees it.

    `wants`: whether EndTxn was sent, and with which result; `None`: never. `result`: the acknowledged one.
    """

    number: int
    producer: str
    wants: bool | None = None
    result: bool | None = None
    acknowledged: list[tuple[int, int]] = field(default_factory=list)


Steps = Generator[int | Ask, Told | None, None]


class SimulatedProducer:
    """One producer process: `steps` plays it, until it has done its transactions or is fenced."""

    def __init__(
        self,
        name: str,
        transactional_id: str,
        *,
        version: int,
        timeout_ms: int,
        partitions: int,
        transactions: int,
        random: Random,
        attempts: list[Attempt],
    ) -> None:
        self.name: Final = name
        self.transactional_id: Final = transactional_id
        #: Transaction version of the client: 2 is the flow of KIP-890 part 2.
        self.version: Final = version
        self.timeout_ms: Final = timeout_ms
        self.random: Final = random
        self._partitions: Final = partitions
        self._transactions: Final = transactions
        self._attempts: Final = attempts
        self.producer_id = -1
        self.epoch = -1
        #: Partition -> the next sequence.
        self._sequences: dict[int, int] = {}
        #: Why it has ended; empty: it has not, or it was killed.
        self.end = ""

    def steps(self) -> Steps:
        """Play the whole life of the producer."""
        if not (yield from self._init(is_new=True)):
            return
        for _ in range(self._transactions):
            yield self.random.randint(0, 80)
            if not (yield from self._transact()):
                return
        self.end = "done"

    def _transact(self) -> Generator[int | Ask, Told | None, bool]:
        """Play one transaction; return whether the producer may go on."""
        attempt = Attempt(len(self._attempts), self.name)
        self._attempts.append(attempt)
        count = self.random.choices((0, 1, 2, 3, 5), (1, 4, 4, 3, 2))[0]
        is_sound = True
        added: set[int] = set()
        for _ in range(count):
            partition = self.random.randrange(self._partitions)
            outcome = yield from self._send(attempt, partition, added)
            if outcome == "fenced":
                return False
            if outcome != "sent":
                is_sound = False
                break
            if self.random.random() < 0.04:
                # As after a long collection of garbage.
                yield self.random.randint(0, 2 * self.timeout_ms)
        is_commit = is_sound and self.random.random() < 0.75
        if not is_sound and outcome == "unknown" and (self.version < 2 or self.random.random() < 0.3):
            if self.random.random() < 0.5 and not (yield from self._finish(attempt, is_commit=False)):
                return False
            # KIP-360: the epoch alone tells a batch that is still on its way from the next transaction's.
            return (yield from self._init(is_new=False))
        if self.version < 2 and not added:
            return True
        if count == 0:
            is_commit = False
        return (yield from self._finish(attempt, is_commit=is_commit))

    def _send(self, attempt: Attempt, partition: int, added: set[int]) -> Generator[int | Ask, Told | None, str]:
        if self.version < 2 and partition not in added:
            # Even if no answer comes it may be in the transaction.
            added.add(partition)
            told = yield from self._repeat(self._ask("add", partition=partition))
            if told is None or told.code is not ErrorCode.NONE:
                return self._outcome(told)
        added.add(partition)
        sequence = self._sequences.get(partition, 0)
        ask = self._ask("produce", partition=partition, sequence=sequence, attempt=attempt.number)
        told = yield from self._repeat(ask)
        if told is None or told.code is not ErrorCode.NONE:
            return self._outcome(told)
        self._sequences[partition] = sequence + 1
        attempt.acknowledged.append((partition, sequence))
        return "sent"

    def _finish(self, attempt: Attempt, *, is_commit: bool) -> Generator[int | Ask, Told | None, bool]:
        attempt.wants = is_commit
        told = yield from self._repeat(self._ask("end", is_commit=is_commit), patience=_LONG_PATIENCE)
        if told is None or told.code is not ErrorCode.NONE:
            self._outcome(told)
            self.end = self.end or f"ended by {told}"
            return False
        attempt.result = is_commit
        if (told.producer_id, told.epoch) != (self.producer_id, self.epoch):
            self.producer_id, self.epoch = told.producer_id, told.epoch
            self._sequences.clear()
        return True

    def _init(self, *, is_new: bool) -> Generator[int | Ask, Told | None, bool]:
        ask = Ask(api="init") if is_new else self._ask("init")
        told = yield from self._repeat(ask, patience=_LONG_PATIENCE)
        if told is None or told.code is not ErrorCode.NONE:
            self.end = f"no epoch: {told}"
            return False
        self.producer_id, self.epoch = told.producer_id, told.epoch
        self._sequences.clear()
        return True

    def _repeat(self, ask: Ask, *, patience: int = 0) -> Generator[int | Ask, Told | None, Told | None]:
        """Ask until an answer is final; `None`: none came. `patience`: answers that may be missing, 0: drawn."""
        unanswered = 0
        patience = patience or self.random.randint(1, _PATIENCE)
        while unanswered < patience:
            told = yield ask
            if told is None:
                unanswered += 1
            elif told.code not in RETRIABLE:
                return told
            yield self.random.randint(1, 60)
        return None

    def _outcome(self, told: Told | None) -> str:
        if told is None:
            return "unknown"
        if told.code in ABORTABLE:
            return "abortable"
        self.end = f"fenced: {told.code.name}"
        return "fenced"

    def _ask(
        self, api: str, *, partition: int = -1, sequence: int = -1, attempt: int = -1, is_commit: bool = False
    ) -> Ask:
        return Ask(
            api=api,
            producer_id=self.producer_id,
            epoch=self.epoch,
            partition=partition,
            sequence=sequence,
            attempt=attempt,
            is_commit=is_commit,
        )
