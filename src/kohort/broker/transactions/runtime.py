"""The runtime of the transaction coordinator: decide, append, apply; answer and send markers once the disk has it.

One shard per partition of `__transaction_state`, all on the loop's thread.

Laws: log first: nothing is applied that was not appended. Replies and markers leave once the log is durable up to
their decision. A request whose decision the disk refuses is answered NOT_COORDINATOR, upon which clients ask again;
the broker's own commands and deadlines are repeated. The ids of a log that cannot be read whole are served by nobody:
an answer out of what is left could commit one half of a transaction and abort the other.
Source: architecture rules 1 to 5; KIP-98; Apache Kafka's TransactionStateManager.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Final

from kohort.base.clock import WallClock
from kohort.broker.connections.request import Asker
from kohort.broker.durability import Durability, is_durable
from kohort.broker.groups.deadlines import Deadlines
from kohort.broker.groups.runtime import NOT_TAKEN, RETRY_MS, Translate
from kohort.broker.groups.shard_log import read_entries
from kohort.broker.producer_ids import OnId
from kohort.broker.transactions.markers import MARKERS_AT_ONCE, Marker, MarkerWriter
from kohort.coordinator.commands import Refusal
from kohort.coordinator.transactions import commands, events
from kohort.coordinator.transactions.commands import Partition
from kohort.coordinator.transactions.decision import Decision, NeedProducerId, SendMarkers
from kohort.coordinator.transactions.records import TransactionStored, build_log_batch, decode
from kohort.coordinator.transactions.settings import TransactionSettings
from kohort.coordinator.transactions.shard import TransactionShard
from kohort.coordinator.transactions.states import IDLE, TransactionState
from kohort.errors import CorruptRecordError, ErrorCode, StorageError
from kohort.ids import RequestToken, TopicPartition, coordinator_partition
from kohort.journal.ring import Journal
from kohort.storage.partitions.partition import PartitionLog

log = logging.getLogger("kohort.broker.transactions")

#: Deadlines that are carried out in one turn of the loop.
DECISIONS_AT_ONCE: Final = 100
#: Results upon which a marker is written again later.
_AGAIN: Final = frozenset({ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.KAFKA_STORAGE_ERROR})


class TransactionLog:
    """The shard of one partition of `__transaction_state` with its log; `shard` is `None` if it cannot be read."""

    __slots__ = ("log", "shard")

    def __init__(self, partition: PartitionLog, shard: TransactionShard | None) -> None:
        self.log: Final = partition
        self.shard: Final = shard


class TransactionRuntime:
    """The coordinator of every transactional id of this broker."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        clock: WallClock,
        durability: Durability,
        *,
        markers: MarkerWriter,
        next_token: Callable[[], RequestToken],
        take_id: Callable[[OnId], None],
        on_failure: Callable[[Exception], None],
        journal: Journal,
    ) -> None:
        self._loop: Final = loop
        self._journal: Final = journal
        self._durability: Final = durability
        self._markers: Final = markers
        self._next_token: Final = next_token
        self._take_id: Final = take_id
        self._on_failure: Final = on_failure
        self._logs: Final[list[TransactionLog]] = []
        self._deadlines: Final = Deadlines(
            loop, clock, on_due=self._fire, on_gap=self._shift, on_step=self._follow_clock
        )
        #: Token -> receiver of the reply (a request and its translation, or a function) and the log that was asked.
        self._waiting: Final[dict[RequestToken, tuple[Asker | None, Callable[..., Any], TransactionLog]]] = {}
        self._settings = TransactionSettings()
        self._is_stopped = False

    def start(self, settings: TransactionSettings, partitions: Sequence[PartitionLog]) -> None:
        """Rebuild every shard from its log, and write again the markers that a crash may have kept from partitions."""
        self._settings = settings
        self._logs[:] = [self._load(partition) for partition in partitions]
        for each in self._logs:
            self._begin(each)

    def stop(self) -> None:
        """Stop deciding and firing deadlines."""
        self._is_stopped = True
        self._deadlines.stop()

    def time_passed(self, by_ms: int) -> None:
        """Fire the deadlines that are due now that a test has set its clock forward by so much."""
        self._deadlines.time_passed(by_ms)

    @property
    def shards(self) -> list[TransactionShard]:
        """The shards that are served, to be read."""
        return [each.shard for each in self._logs if each.shard is not None]

    @property
    def is_whole(self) -> bool:
        """Whether every log could be read."""
        return all(each.shard is not None for each in self._logs)

    def index_of(self, transactional_id: str) -> int:
        """Return the partition of `__transaction_state` that keeps an id."""
        return coordinator_partition(transactional_id, len(self._logs))

    def serves(self, transactional_id: str) -> bool:
        """Whether the log of a transactional id could be read whole."""
        return self._logs[self.index_of(transactional_id)].shard is not None

    def answer(self, request: Asker, command: commands.TransactionCommand, translate: Translate) -> None:
        """Carry out a command; answer `request` with the translated reply once it is durable."""
        self._ask(self.index_of(command.transactional_id), command, request, translate)

    def ask(self, command: commands.TransactionCommand, on_reply: Callable[[Any], None]) -> None:
        """Carry out a command; call `on_reply` with its reply once it is durable."""
        self._ask(self.index_of(command.transactional_id), command, None, on_reply)

    @property
    def shard_count(self) -> int:
        """The number of shards."""
        return len(self._logs)

    def parts_of(self, index: int, most: int) -> list[tuple[str, ...]]:
        """Return the ids of a shard in parts of `most` at most, one part at least."""
        shard = self._logs[index].shard
        ids = () if shard is None else tuple(shard.transactions)
        return [ids[first : first + most] for first in range(0, max(len(ids), 1), most)]

    def ask_shard(self, index: int, command: commands.ListTransactions, on_reply: Callable[[Any], None]) -> None:
        """Carry out a command that concerns a whole shard."""
        self._ask(index, command, None, on_reply)

    def _ask(
        self,
        index: int,
        command: commands.TransactionCommand | commands.ListTransactions,
        request: Asker | None,
        then: Callable[..., Any],
    ) -> None:
        asked = self._logs[index]
        self._waiting[command.request] = (request, then, asked)
        self._carry_out(asked, command)

    def unfinished(self) -> Iterator[TransactionStored]:
        """Yield the transactions that have not ended."""
        for shard in self.shards:
            yield from (each for each in shard.transactions.values() if each.state not in IDLE)

    def open_producers(self) -> set[int]:
        """Return the producers whose transactions have not ended."""
        return {each.producer_id for each in self.unfinished()}

    def open_epochs(self) -> dict[tuple[int, Partition], set[int]]:
        """Return the epochs of the batches of each transaction that has not ended, by producer and partition."""
        found: dict[tuple[int, Partition], set[int]] = {}
        for each in self.unfinished():
            # The decision raises the epoch (KIP-890), or the abort by the coordinator.
            epochs = {each.producer_epoch, each.producer_epoch - (each.state is not TransactionState.ONGOING)}
            for place in each.partitions:
                found[each.producer_id, place] = epochs
        return found

    def open_transactions(self) -> list[tuple[int, str]]:
        """Return when each transaction that has not ended began, ms, and its id; the oldest first."""
        return sorted((each.start_ms, each.transactional_id) for each in self.unfinished())

    @property
    def id_count(self) -> int:
        """The number of transactional ids."""
        return sum(len(shard.transactions) for shard in self.shards)

    def call_soon(self, callback: Callable[[], None]) -> None:
        """Call back later in this turn of the loop."""
        self._loop.call_soon(callback)

    def hand_over(self, index: int) -> None:
        """Reload a shard from its log, as another node that takes over its ids would.

        Waiting requests are answered NOT_COORDINATOR.
        """
        moved = self._logs[index]
        refusal = Refusal(code=ErrorCode.NOT_COORDINATOR, message="the transactions have moved to another broker")
        for token in [token for token, (_, _, asked) in self._waiting.items() if asked is moved]:
            self._tell(token, refusal)
        self._logs[index] = self._load(moved.log)
        self._begin(self._logs[index])

    def _load(self, partition: PartitionLog) -> TransactionLog:
        reason = partition.offline or next((str(hole) for hole in partition.holes if not hole.is_settled), "")
        shard = TransactionShard(self._settings, coordinator_epoch=partition.leader_epoch)
        try:
            if not reason:
                for key, value in read_entries(partition):
                    record = decode(key or b"", value)
                    if record is not None:
                        shard.apply(record)
                return TransactionLog(partition, shard)
        except (StorageError, CorruptRecordError) as why:
            reason = str(why)
        advice = (
            "stop the broker, see kohort log check, restore the files or give up what is damaged (kohort log repair)"
        )
        log.error("event=transactions_not_served partition=%s %s; %s", partition.name, reason, advice)
        return TransactionLog(partition, None)

    def _begin(self, asked: TransactionLog) -> None:
        if asked.shard is None:
            return
        now_ms = self._deadlines.now_ms()
        asked.shard.on_loaded(now_ms)
        self._send_markers(asked)
        self._deadlines.watch(asked.shard.next_deadline(), now_ms)

    def _carry_out(self, asked: TransactionLog, command: commands.AnyCommand) -> None:
        if self._is_stopped or asked not in self._logs:
            return
        if asked.shard is None:
            if isinstance(command, commands.TransactionCommand | commands.ListTransactions):
                text = f"the transactions of {asked.log.name} are not served, since it cannot be read whole"
                self._tell(command.request, Refusal(code=ErrorCode.NOT_COORDINATOR, message=text))
            return
        if isinstance(command, commands.InitProducer):
            command = replace(command, other_ids=self.id_count - len(asked.shard.transactions))
        now_ms = self._deadlines.now_ms()
        try:
            decision = asked.shard.handle(command, now_ms=now_ms)
            self._commit(asked, decision, now_ms, command, on_refused=partial(self._refused, asked, command))
            self._expire(asked, now_ms)
            self._deadlines.watch(asked.shard.next_deadline(), now_ms)
        except Exception as error:
            self._fail(error)
            raise

    def _commit(
        self,
        asked: TransactionLog,
        decision: Decision,
        now_ms: int,
        command: commands.AnyCommand | None,
        *,
        on_refused: Callable[[], None],
    ) -> None:
        """Append a decision, journal and apply it, send replies and markers; `on_refused`: the disk took nothing."""
        shard = asked.shard
        assert shard is not None, "only shards that are served decide"
        needed = next((each for each in decision.effects if isinstance(each, NeedProducerId)), None)
        if needed is not None:
            self._take_id(partial(self._go_on, asked, needed.command))
            return
        batch = build_log_batch(decision.records, now_ms=now_ms)
        if batch is not None:
            try:
                self._durability.append(asked.log, bytearray(batch), now_ms=now_ms, validate=False)
            except StorageError as why:
                if why.fatal:
                    raise
                on_refused()
                return
        events.report(self._journal, shard.transactions, command, decision, now_ms=now_ms, next_cause=self._next_token)
        for reply in shard.commit(decision, now_ms=now_ms):
            self._reply(asked, reply.request, reply.body)
        self._send_markers(asked)

    def _expire(self, asked: TransactionLog, now_ms: int) -> None:
        """Carry out the deadlines of a shard that are due, and its requests that need wait no longer."""
        shard = asked.shard
        assert shard is not None, "only shards that are served have deadlines"
        for _ in range(DECISIONS_AT_ONCE):
            decision = shard.expire(now_ms)
            if decision is None:
                return
            held = decision.held
            # The shard tries a deadline again by itself.
            on_refused = _nothing if held is None else partial(self._refused, asked, held)
            self._commit(asked, decision, now_ms, held, on_refused=on_refused)
        self._loop.call_soon(self._expire_more, asked)

    def _expire_more(self, asked: TransactionLog) -> None:
        """Go on with deadlines that were too many for one turn of the loop."""
        if self._is_stopped or asked not in self._logs or asked.shard is None:
            return
        now_ms = self._deadlines.now_ms()
        try:
            self._expire(asked, now_ms)
            self._deadlines.watch(asked.shard.next_deadline(), now_ms)
        except Exception as error:
            self._fail(error)
            raise

    def _go_on(
        self, asked: TransactionLog, command: commands.NeedsProducerId, producer_id: int, why: Exception | None
    ) -> None:
        """Carry out a command again that needed a producer id."""
        if why is None:
            self._carry_out(asked, replace(command, fresh_id=producer_id))
        else:
            self._refused(asked, command)

    def _refused(self, asked: TransactionLog, command: commands.AnyCommand) -> None:
        """Refuse or postpone a command after its decision was not written."""
        if isinstance(command, commands.TransactionCommand | commands.ListTransactions):
            self._tell(command.request, NOT_TAKEN)
        else:
            self._loop.call_later(RETRY_MS / 1000, self._carry_out, asked, command)

    def _send_markers(self, asked: TransactionLog) -> None:
        assert asked.shard is not None, "only shards that are served send markers"
        for order in asked.shard.take_markers():
            # Not before the log has the end of the transaction: after a crash it could end otherwise.
            self._durability.when_durable(asked.log, partial(self._write_markers, asked, order, order.partitions))

    def _write_markers(self, asked: TransactionLog, order: SendMarkers, partitions: Sequence[Partition]) -> None:
        if self._is_stopped or asked not in self._logs:
            return
        marker = Marker(
            order.producer_id, order.producer_epoch, order.coordinator_epoch, order.is_commit, order.version >= 2
        )
        round_ = _Round(self, asked, order)
        for place in partitions[:MARKERS_AT_ONCE]:
            self._markers.write(marker, TopicPartition(*place), partial(round_.note, place))
        if len(partitions) > MARKERS_AT_ONCE:
            self._loop.call_soon(self._write_markers, asked, order, partitions[MARKERS_AT_ONCE:])

    def markers_written(self, asked: TransactionLog, order: SendMarkers, partitions: tuple[Partition, ...]) -> None:
        """Tell the coordinator that these partitions have their markers."""
        command = commands.MarkersWritten(
            cause=self._next_token(),
            transactional_id=order.transactional_id,
            producer_id=order.producer_id,
            producer_epoch=order.producer_epoch,
            coordinator_epoch=order.coordinator_epoch,
            number=order.number,
            partitions=partitions,
        )
        self._carry_out(asked, command)

    def write_later(self, asked: TransactionLog, order: SendMarkers, place: Partition) -> None:
        """Write a marker again that its partition did not take."""
        self._loop.call_later(RETRY_MS / 1000, self._write_markers, asked, order, [place])

    def _reply(self, asked: TransactionLog, token: RequestToken, body: object) -> None:
        """Send a reply once the log is durable up to its decision."""
        if is_durable(asked.log):
            self._tell(token, body)
        else:
            self._durability.when_durable(asked.log, partial(self._tell, token, body))

    def _tell(self, token: RequestToken, body: object) -> None:
        waiting = self._waiting.pop(token, None)
        if waiting is None:
            # Its shard has moved to another broker, upon which it was answered.
            return
        request, then, _ = waiting
        if request is None:
            then(body)
        elif request.is_open:
            request.answer(then(request, body))

    def _fire(self, now_ms: int) -> int | None:
        """Carry out every due deadline; return the next one."""
        next_ms: int | None = None
        try:
            for asked in self._logs:
                if asked.shard is None:
                    continue
                self._expire(asked, now_ms)
                deadline_ms = asked.shard.next_deadline()
                if deadline_ms is not None and (next_ms is None or deadline_ms < next_ms):
                    next_ms = deadline_ms
        except Exception as error:
            self._fail(error)
            raise
        return next_ms

    def _shift(self, gap_ms: int) -> None:
        for shard in self.shards:
            shard.shift(gap_ms)

    def _follow_clock(self, by_ms: int) -> None:
        for shard in self.shards:
            shard.follow_clock(by_ms)

    def _fail(self, error: Exception) -> None:
        if not self._is_stopped:
            self.stop()
            self._on_failure(error)


def _nothing() -> None:
    """Do nothing."""


class _Round:
    """Markers of one order: gathers the partitions that have theirs, to tell the coordinator of many at once."""

    def __init__(self, runtime: TransactionRuntime, asked: TransactionLog, order: SendMarkers) -> None:
        self._runtime: Final = runtime
        self._asked: Final = asked
        self._order: Final = order
        self._written: Final[list[Partition]] = []

    def note(self, place: Partition, code: ErrorCode) -> None:
        """Take the result for one partition."""
        if code in _AGAIN:
            self._runtime.write_later(self._asked, self._order, place)
            return
        if not self._written:
            self._runtime.call_soon(self.end_turn)
        self._written.append(place)

    def end_turn(self) -> None:
        """Report to the coordinator the partitions whose markers were written in this turn of the loop."""
        if self._written:
            written = tuple(self._written)
            self._written.clear()
            self._runtime.markers_written(self._asked, self._order, written)
