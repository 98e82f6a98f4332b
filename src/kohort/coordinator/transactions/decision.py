"""Decisions of a transaction coordinator: records to append, and effects to carry out after that.

Laws: those of `coordinator.decision`. Deadlines follow from the state, so no effect sets one.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from kohort.base.values import value
from kohort.coordinator.transactions.commands import NeedsProducerId, Partition, ReplyBody, TransactionCommand
from kohort.coordinator.transactions.records import Record
from kohort.ids import RequestToken


class TimerKey(NamedTuple):
    """Key of a deadline: of a transactional id, or of a request that waits for its transaction's markers."""

    transactional_id: str
    request: RequestToken | None = None


@dataclass(frozen=True, slots=True)
class Reply:
    """The response to the request with this token; each request gets exactly one."""

    request: RequestToken
    body: ReplyBody


@value
class SendMarkers:
    """Write the transaction's marker to each partition, once the log is durable up to the decision.

    `version`: transaction version of the producer, which WriteTxnMarkers names from version 2 on. Each partition is
    reported by `MarkersWritten` with the same `number`; until then the shell tries again. Two transactions of a
    producer of the older flow differ by nothing else.
    """

    transactional_id: str
    producer_id: int
    producer_epoch: int
    coordinator_epoch: int
    is_commit: bool
    partitions: tuple[Partition, ...]
    version: int
    number: int


@dataclass(frozen=True, slots=True)
class NeedProducerId:
    """Take an unused producer id, and handle the command again with it as `fresh_id`; the only effect of a decision."""

    command: NeedsProducerId


@dataclass(frozen=True, slots=True)
class Hold:
    """Keep a request until its transaction is complete."""

    command: TransactionCommand


@dataclass(frozen=True, slots=True)
class NoteMarkers:
    """These partitions of a transaction have their marker."""

    transactional_id: str
    partitions: tuple[Partition, ...]


Effect = Reply | SendMarkers | NeedProducerId | Hold | NoteMarkers


@dataclass(frozen=True, slots=True)
class Decision:
    """The result of a decision function.

    `records` are appended as one batch and applied in order, then `effects` are carried out in order. `due`: the
    deadline that caused the decision, or the place of the request in `held`. `held`: the request that has waited and is
    decided now; if the records cannot be appended it is refused as any other request would be.
    """

    records: tuple[Record, ...] = ()
    effects: tuple[Effect, ...] = ()
    due: TimerKey | None = None
    held: TransactionCommand | None = None
