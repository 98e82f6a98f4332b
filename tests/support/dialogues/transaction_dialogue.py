"""A transaction coordinator to talk to: requests, markers, time, restarts; every law is checked after each step."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from itertools import count
from typing import TypeVar

from kohort.coordinator.commands import Refusal
from kohort.coordinator.transactions import commands, events
from kohort.coordinator.transactions.commands import AnyCommand, Partition, ReplyBody
from kohort.coordinator.transactions.decision import Decision, NeedProducerId, SendMarkers
from kohort.coordinator.transactions.invariants import check_shard, check_step
from kohort.coordinator.transactions.records import (
    TransactionForgotten,
    TransactionStored,
    as_stored,
    build_log_batch,
    read_log_batch,
)
from kohort.coordinator.transactions.settings import TransactionSettings
from kohort.coordinator.transactions.shard import TransactionShard
from kohort.coordinator.transactions.states import TransactionState
from kohort.errors import ErrorCode
from kohort.ids import CauseId, RequestToken
from kohort.journal.ring import Journal
from kohort.journal.rows import transaction_key

Body = TypeVar("Body")
T0: Partition = ("t", 0)
T1: Partition = ("t", 1)


class Answer:
    """The answer to a request, once there is one."""

    def __init__(self) -> None:
        self.body: ReplyBody | None = None

    @property
    def is_held(self) -> bool:
        return self.body is None

    def as_body(self, kind: type[Body]) -> Body:
        assert isinstance(self.body, kind), f"{self.body!r} is not a {kind.__name__}"
        return self.body

    def refused(self) -> ErrorCode:
        """The code of the refusal."""
        return self.as_body(Refusal).code

    def producer(self) -> tuple[int, int]:
        """The producer's id and epoch in the answer to InitProducerId or EndTxn."""
        body = self.body
        assert isinstance(body, commands.InitProducerReply | commands.EndTransactionReply), body
        return body.producer_id, body.producer_epoch

    def errors(self) -> tuple[ErrorCode, ...]:
        return self.as_body(commands.AddPartitionsReply).errors


class TransactionDialogue:
    """Transactional id "tx", unless another is named, on one coordinator; markers are written when told."""

    def __init__(self, **settings: int) -> None:
        self.settings = TransactionSettings(**settings)
        self.shard = TransactionShard(self.settings, coordinator_epoch=7)
        self.now_ms = 1_000_000
        #: The log: one batch for each decision with records.
        self.log: list[bytes] = []
        self.markers: list[SendMarkers] = []
        self._ids = count(5_000)
        self._tokens = count(1)
        self._answers: dict[RequestToken, Answer] = {}
        self.journal = Journal(limit=1_000)
        #: Decisions whose records cannot be written, if true.
        self.is_disk_full = False

    def init(self, name: str = "tx", **fields: object) -> Answer:
        """InitProducerId."""
        return self.ask(commands.InitProducer, transactional_id=name, **{"timeout_ms": 60_000, **fields})

    def add(self, producer: tuple[int, int], *partitions: Partition, version: int = 2, **fields: object) -> Answer:
        """AddPartitionsToTxn."""
        of = dict(zip(("producer_id", "producer_epoch"), producer, strict=True))
        fields = {"transactional_id": "tx", "partitions": partitions or (T0,), "version": version, **of, **fields}
        return self.ask(commands.AddPartitions, **fields)

    def end(self, producer: tuple[int, int], *, commit: bool = True, version: int = 2, **fields: object) -> Answer:
        """EndTxn."""
        of = dict(zip(("producer_id", "producer_epoch"), producer, strict=True))
        fields = {"transactional_id": "tx", "is_commit": commit, "version": version, **of, **fields}
        return self.ask(commands.EndTransaction, **fields)

    def ask(self, kind: type[AnyCommand], **fields: object) -> Answer:
        token = RequestToken(CauseId(next(self._tokens)))
        answer = self._answers[token] = Answer()
        self.take(kind(cause=CauseId(token), request=token, **fields))  # type: ignore[arg-type]
        return answer

    def take(self, command: AnyCommand) -> None:
        """Decide and commit a command, and all that follows from it now."""
        self.commit(self.shard.handle(command, now_ms=self.now_ms), command)
        self.settle()

    def settle(self) -> None:
        """Decide all that is due."""
        for _ in range(1_000):
            decision = self.shard.expire(self.now_ms)
            if decision is None:
                return
            assert decision.due is not None
            self.commit(decision, decision.held)
        raise AssertionError("it never ends")

    def commit(self, decision: Decision, command: AnyCommand | None = None) -> None:
        for effect in decision.effects:
            if isinstance(effect, NeedProducerId):
                assert not decision.records and len(decision.effects) == 1
                given = replace(effect.command, fresh_id=next(self._ids))
                self.commit(self.shard.handle(given, now_ms=self.now_ms), given)
                return
        if decision.records and self.is_disk_full:
            return
        state = dict(self.shard.transactions)
        for record in decision.records:
            if isinstance(record, TransactionStored):
                check_step(state, record)
                state[record.transactional_id] = record
            elif isinstance(record, TransactionForgotten):
                del state[record.transactional_id]
        batch = build_log_batch(decision.records, now_ms=self.now_ms)
        if batch is not None:
            self.log.append(batch)
        events.report(
            self.journal, self.shard.transactions, command, decision, now_ms=self.now_ms, next_cause=lambda: 0
        )
        for reply in self.shard.commit(decision, now_ms=self.now_ms):
            answer = self._answers.pop(reply.request)
            answer.body = reply.body
        self.markers += self.shard.take_markers()
        check_shard(self.shard, now_ms=self.now_ms)

    def write_markers(self, *partitions: Partition) -> list[SendMarkers]:
        """Report the outstanding markers of these partitions, or of all, as written; returns the orders."""
        orders, self.markers = self.markers, []
        for order in orders:
            written = tuple(each for each in order.partitions if not partitions or each in partitions)
            self.report(order, written)
        return orders

    def told(self, name: str = "tx") -> list[str]:
        """The journal's rows about a transactional id, each with its producer and its details."""
        rows = self.journal.history(transaction_key(name)).rows
        return [
            " ".join([row.entry.event, row.entry.member_id, *map("=".join, row.entry.details), f"x{row.times}"])
            for row in rows
        ]

    def report(self, order: SendMarkers, partitions: Iterable[Partition] | None = None) -> None:
        """Report markers of an order as written."""
        self.take(
            commands.MarkersWritten(
                cause=CauseId(0),
                transactional_id=order.transactional_id,
                producer_id=order.producer_id,
                producer_epoch=order.producer_epoch,
                coordinator_epoch=order.coordinator_epoch,
                partitions=order.partitions if partitions is None else tuple(partitions),
                number=order.number,
            )
        )

    def advance(self, ms: int) -> None:
        self.now_ms += ms
        self.settle()

    def restart(self, *, is_down_ms: int = 0) -> None:
        """Load the coordinator anew from its log; requests that waited get no answer."""
        before = {name: as_stored(each) for name, each in self.shard.state_digest().items()}
        self.shard = TransactionShard(self.settings, coordinator_epoch=7)
        self.now_ms += is_down_ms
        for batch in self.log:
            for record in read_log_batch(batch):
                self.shard.apply(record)
        assert self.shard.state_digest() == before
        self.shard.on_loaded(self.now_ms)
        self._answers.clear()
        self.markers = self.shard.take_markers()
        check_shard(self.shard, now_ms=self.now_ms)
        self.settle()

    def state(self, name: str = "tx") -> TransactionState:
        transaction = self.shard.transactions.get(name)
        return TransactionState.DEAD if transaction is None else transaction.state

    def stored(self, name: str = "tx") -> TransactionStored:
        return self.shard.transactions[name]

    def begun(self, *partitions: Partition, version: int = 2) -> tuple[int, int]:
        """Let a producer begin a transaction; returns its id and epoch."""
        producer = self.init().producer()
        assert set(self.add(producer, *partitions, version=version).errors()) == {ErrorCode.NONE}
        return producer
