"""One transaction coordinator: all decisions about the transactional ids of one partition of `__transaction_state`.

Laws: `handle` and `expire` read the state and decide; `commit` and `apply` change it. Each request gets exactly one
response, by its own decision or by a later one. The log of an id is its latest record, and so is its state: replaying
the log gives the same state, but for the markers that are written already, which are written again.
Source: architecture rules 1 to 4; KIP-98, KIP-890.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import replace
from typing import Final, assert_never

from kohort.base.timers import TimerTable
from kohort.coordinator.commands import Refusal
from kohort.coordinator.consumer.regex import compile_pattern
from kohort.coordinator.transactions import transitions
from kohort.coordinator.transactions.commands import (
    AbortOverdue,
    AddPartitions,
    AnyCommand,
    DescribeTransaction,
    DescribeTransactionReply,
    EndTransaction,
    InitProducer,
    ListedTransaction,
    ListTransactions,
    ListTransactionsReply,
    MarkersWritten,
    Partition,
    ReplyBody,
    TransactionCommand,
)
from kohort.coordinator.transactions.decision import (
    Decision,
    Hold,
    NeedProducerId,
    NoteMarkers,
    Reply,
    SendMarkers,
    TimerKey,
)
from kohort.coordinator.transactions.records import Record, TransactionForgotten, TransactionStored
from kohort.coordinator.transactions.settings import TransactionSettings
from kohort.coordinator.transactions.states import COMPLETION, TRANSITIONS, Event, TransactionState
from kohort.errors import ErrorCode, Refused
from kohort.ids import CauseId, RequestToken

#: A message quotes the request: an id alone may be as long as a string on the wire can be.
_MESSAGE_LIMIT: Final = 1_000
#: The cause of the coordinator's own commands; the shell names the deadline instead.
_NO_CAUSE: Final = CauseId(-1)


class TransactionShard:
    """The transactional ids of one coordinator.

    The shell calls `apply` for each record of the log, then `on_loaded`. Commands and `expire` come next, each decision
    committed before the next is made. After each commit and at each deadline it calls `expire` until that returns
    `None`, and sends the markers of `take_markers` once the log is durable up to the commit.
    """

    def __init__(self, settings: TransactionSettings, *, coordinator_epoch: int = 0) -> None:
        self.settings: Final = settings
        #: Leader epoch of the partition of `__transaction_state`; markers carry it.
        self.coordinator_epoch: Final = coordinator_epoch
        #: transactional id -> its latest record; kept by `apply`.
        self.transactions: Final[dict[str, TransactionStored]] = {}
        #: Transactional id in a Prepare state -> partitions that have no marker yet; not empty. A restart begins anew.
        self.unmarked: Final[dict[str, set[Partition]]] = {}
        #: The same ids -> number of the latest order for their markers; and the last number of any order.
        self._numbers: Final[dict[str, int]] = {}
        self._last_number = 0
        #: transactional id -> requests that wait for its transaction's end, in order of arrival; not empty.
        self.waiting: Final[dict[str, deque[TransactionCommand]]] = {}
        #: Deadlines of ids without markers to write, and of requests that wait.
        self.timers: Final[TimerTable[TimerKey]] = TimerTable()
        #: Transactional ids with requests that need wait no longer.
        self._ready: Final[deque[str]] = deque()
        #: Time of the commit that added to `_ready` last.
        self._ready_ms = 0
        #: Markers that `take_markers` has not returned yet.
        self._markers: Final[list[SendMarkers]] = []

    def handle(self, command: AnyCommand, *, now_ms: int) -> Decision:
        """Decide one command; nothing changes before `commit`."""
        match command:
            case MarkersWritten():
                return self._decide_written(command, now_ms=now_ms)
            case AbortOverdue():
                transaction = self.transactions.get(command.transactional_id)
                if transaction is None or transaction.state is not TransactionState.ONGOING:
                    return Decision()
                return self._sending(transitions.decide_overdue(transaction, command, self.settings, now_ms=now_ms))
        try:
            return self._decide(command, now_ms=now_ms)
        except Refused as refused:
            return _refuse(command.request, refused)

    def commit(self, decision: Decision, *, now_ms: int) -> list[Reply]:
        """Carry out a decision whose records are appended; return its responses, to send once durable."""
        touched = {record.transactional_id: self._is_open(record.transactional_id) for record in decision.records}
        for record in decision.records:
            self.apply(record)
        for transactional_id, was_open in touched.items():
            # The deadline of an open transaction has moved if the clock was set since its begin.
            if not (was_open and self._is_open(transactional_id)):
                self._follow(transactional_id, now_ms)
        replies: list[Reply] = []
        for effect in decision.effects:
            match effect:
                case Reply():
                    replies.append(effect)
                case Hold(command):
                    self.waiting.setdefault(command.transactional_id, deque()).append(command)
                    wait_ms = self.settings.concurrent_transactions_wait_ms
                    self.timers.arm(TimerKey(command.transactional_id, command.request), now_ms + wait_ms)
                    touched[command.transactional_id] = False
                case NoteMarkers(transactional_id, partitions):
                    self.unmarked[transactional_id].difference_update(partitions)
                case SendMarkers():
                    self._order(effect)
                case NeedProducerId():
                    raise AssertionError("the shell takes a producer id, and handles the command again")
                case _:
                    assert_never(effect)
        for transactional_id in touched:
            if transactional_id in self.waiting and not self.is_prepared(transactional_id):
                self._ready.append(transactional_id)
                self._ready_ms = now_ms
        return replies

    def apply(self, record: Record) -> None:
        """Apply one record to the state, alike for a record just decided and for one read from the log."""
        if isinstance(record, TransactionStored):
            self.transactions[record.transactional_id] = record
        elif isinstance(record, TransactionForgotten):
            self.transactions.pop(record.transactional_id, None)

    def on_loaded(self, now_ms: int) -> None:
        """Set the deadlines that a restart lost, and send the markers of decided transactions again."""
        for transactional_id, transaction in self.transactions.items():
            self._follow(transactional_id, now_ms)
            if transactional_id in self.unmarked:
                self._order(self._build_markers(transaction))

    def take_markers(self) -> list[SendMarkers]:
        """Take the markers to write; each is needed until it is reported, or the coordinator is loaded anew."""
        if not self._markers:
            return []
        taken = self._markers[:]
        self._markers.clear()
        return taken

    def next_deadline(self) -> int | None:
        """Return the time at which `expire` has work to do, `None` if there is no such time."""
        return self._ready_ms if self._ready else self.timers.next_deadline()

    def expire(self, now_ms: int) -> Decision | None:
        """Decide one request that has waited long enough, or one deadline that has passed; `None` if none is left."""
        while self._ready:
            transactional_id = self._ready[0]
            if transactional_id not in self.waiting or self.is_prepared(transactional_id):
                # Another of the waiting requests has begun and ended a transaction.
                self._ready.popleft()
                continue
            command = self._release(transactional_id)
            key = TimerKey(transactional_id, command.request)
            self.timers.disarm(key)
            return replace(self.handle(command, now_ms=now_ms), due=key, held=command)
        while (due := self.timers.pop_due(now_ms)) is not None:
            decision = self._decide_due(due, now_ms)
            if decision is not None:
                return replace(decision, due=due)
        return None

    def abandon(self, command: TransactionCommand) -> None:
        """Drop a waiting request of a client that has disconnected."""
        if command in self.waiting.get(command.transactional_id, ()):
            self._release(command.transactional_id, command.request)
            self.timers.disarm(TimerKey(command.transactional_id, command.request))

    def is_ready(self, transactional_id: str) -> bool:
        """Return whether the id's waiting requests are decided next."""
        return transactional_id in self._ready

    def all_waiting(self) -> Iterator[TransactionCommand]:
        """Yield every request that waits."""
        for commands in self.waiting.values():
            yield from commands

    def is_prepared(self, transactional_id: str) -> bool:
        """Return whether the result of the id's transaction is decided, and not all its markers are written."""
        transaction = self.transactions.get(transactional_id)
        return transaction is not None and transaction.state in COMPLETION

    def shift(self, gap_ms: int) -> None:
        """Postpone the deadlines of transactional ids by `gap_ms`, in which the process was suspended."""
        # Clients count the time of a waiting request themselves.
        self.timers.shift(gap_ms, but_for=lambda key: key.request is not None)

    def follow_clock(self, by_ms: int) -> None:
        """Shift all deadlines by a step of the coordinator's clock."""
        self.timers.shift(by_ms)
        self._ready_ms += by_ms

    def state_digest(self) -> dict[str, TransactionStored]:
        """Return the durable state as one comparable value; a fold over the log gives the same."""
        return dict(self.transactions)

    def _decide(self, command: TransactionCommand | ListTransactions, *, now_ms: int) -> Decision:
        if isinstance(command, ListTransactions):
            return self._reply(command.request, self._list(command, now_ms))
        if not command.transactional_id:
            raise Refused(ErrorCode.INVALID_REQUEST, "a transactional id is not empty")
        transaction = self.transactions.get(command.transactional_id)
        match command:
            case InitProducer():
                count = len(self.transactions)
                decision = transitions.decide_init(transaction, command, self.settings, now_ms=now_ms, id_count=count)
            case AddPartitions():
                decision = transitions.decide_add(transaction, command, self.settings, now_ms=now_ms)
            case EndTransaction():
                decision = transitions.decide_end(transaction, command, self.settings, now_ms=now_ms)
            case DescribeTransaction():
                return self._reply(command.request, _describe(transaction, command))
            case _:
                raise AssertionError(f"not a command: {command!r}")
        if any(isinstance(effect, Hold) for effect in decision.effects):
            waiting = len(self.waiting.get(command.transactional_id, ()))
            if waiting >= self.settings.waiting_limit and not decision.records:
                raise _concurrent(command)
        return self._sending(decision)

    def _decide_written(self, command: MarkersWritten, *, now_ms: int) -> Decision:
        transaction = self.transactions.get(command.transactional_id)
        told = command.producer_id, command.producer_epoch, command.coordinator_epoch
        if (
            transaction is None
            or transaction.state not in COMPLETION
            or told != (transaction.producer_id, transaction.producer_epoch, self.coordinator_epoch)
            or command.number != self._numbers.get(command.transactional_id)
        ):
            # It was written twice, or before a restart.
            return Decision()
        left = self.unmarked.get(command.transactional_id, set()).difference(command.partitions)
        if left:
            return Decision(effects=(NoteMarkers(command.transactional_id, command.partitions),))
        return Decision((transitions.build_completed(transaction, now_ms),))

    def _decide_due(self, key: TimerKey, now_ms: int) -> Decision | None:
        if key.request is not None:
            command = self._release(key.transactional_id, key.request)
            return replace(_refuse(command.request, _concurrent(command)), held=command)
        transaction = self.transactions.get(key.transactional_id)
        if transaction is None:
            return None
        # A decision whose records cannot be written, or for which there is no producer id, is made again.
        self.timers.arm(key, now_ms + self.settings.retry_ms)
        if transaction.state is TransactionState.ONGOING:
            overdue = AbortOverdue(cause=_NO_CAUSE, transactional_id=key.transactional_id)
            return self._sending(transitions.decide_overdue(transaction, overdue, self.settings, now_ms=now_ms))
        if transaction.state in COMPLETION:
            return Decision((transitions.build_completed(transaction, now_ms),))
        assert TRANSITIONS[transaction.state, Event.EXPIRATION] is TransactionState.DEAD
        return Decision((TransactionForgotten(transactional_id=key.transactional_id),))

    def _sending(self, decision: Decision) -> Decision:
        """Add the order for markers to a decision whose last record needs them."""
        last = decision.records[-1] if decision.records else None
        if not isinstance(last, TransactionStored) or last.state not in COMPLETION:
            return decision
        return replace(decision, effects=(*decision.effects, self._build_markers(last)))

    def _build_markers(self, transaction: TransactionStored) -> SendMarkers:
        return transitions.build_markers(transaction, self.coordinator_epoch, number=self._last_number + 1)

    def _order(self, markers: SendMarkers) -> None:
        self._last_number = self._numbers[markers.transactional_id] = markers.number
        self._markers.append(markers)

    def _follow(self, transactional_id: str, now_ms: int) -> None:
        """Set the deadline and the missing markers of an id by its state."""
        key = TimerKey(transactional_id)
        transaction = self.transactions.get(transactional_id)
        self.unmarked.pop(transactional_id, None)
        self._numbers.pop(transactional_id, None)
        if transaction is None:
            self.timers.disarm(key)
        elif transaction.state in COMPLETION and transaction.partitions:
            self.timers.disarm(key)
            self.unmarked[transactional_id] = set(transaction.partitions)
        elif transaction.state in COMPLETION:
            # Apache Kafka stores this state, too, and may have stopped in between.
            self.timers.arm(key, now_ms)
        elif transaction.state is TransactionState.ONGOING:
            # A clock that was set back while the broker was down must not prolong the transaction.
            since_ms = min(transaction.start_ms, now_ms)
            self.timers.arm(key, since_ms + transaction.timeout_ms)
        else:
            since_ms = min(transaction.last_update_ms, now_ms)
            self.timers.arm(key, since_ms + self.settings.transactional_id_expiration_ms)

    def _is_open(self, transactional_id: str) -> bool:
        transaction = self.transactions.get(transactional_id)
        return transaction is not None and transaction.state is TransactionState.ONGOING

    def _release(self, transactional_id: str, request: RequestToken | None = None) -> TransactionCommand:
        """Take a request out of `waiting`: the one of this token, or the first."""
        waiting = self.waiting[transactional_id]
        command = next(each for each in waiting if request in (None, each.request))
        waiting.remove(command)
        if not waiting:
            del self.waiting[transactional_id]
        return command

    def _list(self, command: ListTransactions, now_ms: int) -> ListTransactionsReply:
        known = {state.label: state for state in TransactionState}
        states = {known[name] for name in command.states if name in known}
        unknown = tuple(name for name in command.states if name not in known)
        fits = compile_pattern(command.pattern).matching if command.pattern else None
        asked = self.transactions if command.ids is None else filter(self.transactions.__contains__, command.ids)
        names = sorted(asked) if fits is None else fits(sorted(asked))
        found = (self.transactions[name] for name in names)
        rows = tuple(
            ListedTransaction(each.transactional_id, each.producer_id, each.state.label)
            for each in found
            if (not command.states or each.state in states)
            and (not command.producer_ids or each.producer_id in command.producer_ids)
            and (command.older_than_ms < 0 or now_ms - each.start_ms > command.older_than_ms)
        )
        return ListTransactionsReply(transactions=rows, unknown_states=unknown)

    @staticmethod
    def _reply(request: RequestToken, body: ReplyBody) -> Decision:
        return Decision(effects=(Reply(request, body),))


def _describe(transaction: TransactionStored | None, command: DescribeTransaction) -> DescribeTransactionReply:
    if transaction is None:
        raise Refused(
            ErrorCode.TRANSACTIONAL_ID_NOT_FOUND, f"there is no transactional id {command.transactional_id!r}"
        )
    return DescribeTransactionReply(
        state=transaction.state.label,
        timeout_ms=transaction.timeout_ms,
        start_ms=transaction.start_ms,
        producer_id=transaction.producer_id,
        producer_epoch=transaction.producer_epoch,
        partitions=transaction.partitions,
    )


def _concurrent(command: TransactionCommand) -> Refused:
    return Refused(
        ErrorCode.CONCURRENT_TRANSACTIONS,
        f"the markers of the transaction before of {command.transactional_id!r} are not all written yet",
    )


def _refuse(request: RequestToken, refused: Refused) -> Decision:
    message = refused.message
    if message is not None and len(message) > _MESSAGE_LIMIT:
        message = f"{message[:_MESSAGE_LIMIT]}..."
    return Decision(effects=(Reply(request, Refusal(code=refused.code, message=message)),))
