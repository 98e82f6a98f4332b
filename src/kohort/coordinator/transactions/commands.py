"""Commands to a transaction coordinator and its replies.

Laws: as in `coordinator.commands`: a command contains its identity and all fresh ids; nothing here depends on API
versions. Codes are those of the latest version of each API, except for `is_fence_named`.
Source: Apache Kafka's InitProducerId, AddPartitionsToTxn, EndTxn, DescribeTransactions and ListTransactions; KIP-890.
"""

from __future__ import annotations

from typing import NamedTuple

from kohort.base.values import value
from kohort.coordinator.commands import Command, Refusal
from kohort.errors import ErrorCode
from kohort.ids import RequestToken

#: Topic and partition.
Partition = tuple[str, int]


@value
class TransactionCommand(Command):
    """A request about one transactional id; its response is a `Reply` with the same `request`.

    `principal`: the sender's principal, only for the journal.
    """

    request: RequestToken
    transactional_id: str
    principal: str = ""


@value
class InitProducer(TransactionCommand):
    """InitProducerId: fence earlier producers of the id, abort their transaction, and get an epoch.

    `producer_id`, `producer_epoch`: those that the producer has, to continue after an error; -1, -1: a new producer.
    `is_fence_named`: a fenced producer gets PRODUCER_FENCED, not INVALID_PRODUCER_EPOCH. `fresh_id`: an unused producer
    id, -1: none yet. `other_ids`: the number of transactional ids of the broker's other shards.
    """

    timeout_ms: int
    producer_id: int = -1
    producer_epoch: int = -1
    is_fence_named: bool = True
    fresh_id: int = -1
    other_ids: int = 0


@value
class AddPartitions(TransactionCommand):
    """AddPartitionsToTxn: add partitions to the transaction, and begin one if none is open.

    `is_verify_only`: only ask which of them are in it. `version`: transaction version of the client, 0 to 2.
    """

    producer_id: int
    producer_epoch: int
    partitions: tuple[Partition, ...]
    is_verify_only: bool = False
    version: int


@value
class EndTransaction(TransactionCommand):
    """EndTxn: commit or abort the transaction. `version`: transaction version of the client, 2 from EndTxn 5 on."""

    producer_id: int
    producer_epoch: int
    is_commit: bool
    version: int
    fresh_id: int = -1


@value
class AbortOverdue(Command):
    """The transaction has exceeded its timeout; no reply. The shell gets it in `NeedProducerId` only."""

    transactional_id: str
    fresh_id: int = -1


@value
class MarkersWritten(Command):
    """Partitions have the transaction's marker, durably, or are gone; no reply. `number`: that of the order."""

    transactional_id: str
    producer_id: int
    producer_epoch: int
    coordinator_epoch: int
    partitions: tuple[Partition, ...]
    number: int


@value
class DescribeTransaction(TransactionCommand):
    """DescribeTransactions, one id."""


@value
class ListTransactions(Command):
    """ListTransactions: the ids of the shard that pass each filter; an empty filter passes all.

    `older_than_ms`: for so long the transaction has been open at least; -1: any. `pattern`: an RE2 expression that
    matches the whole transactional id. `ids`: only of these; `None`: of all.
    """

    request: RequestToken
    states: tuple[str, ...] = ()
    producer_ids: tuple[int, ...] = ()
    older_than_ms: int = -1
    pattern: str = ""
    ids: tuple[str, ...] | None = None


#: Commands that a deferred decision may need a producer id for.
NeedsProducerId = InitProducer | EndTransaction | AbortOverdue
AnyCommand = TransactionCommand | ListTransactions | MarkersWritten | AbortOverdue


@value
class InitProducerReply:
    """The producer's id and epoch from now on."""

    producer_id: int
    producer_epoch: int


@value
class AddPartitionsReply:
    """A code for each partition, in the request's order."""

    errors: tuple[ErrorCode, ...]


@value
class EndTransactionReply:
    """The result is decided; the producer's id and epoch for its next transaction."""

    producer_id: int
    producer_epoch: int


@value
class DescribeTransactionReply:
    """The state of one transactional id. `start_ms`: begin of its latest transaction, -1: none."""

    state: str
    timeout_ms: int
    start_ms: int
    producer_id: int
    producer_epoch: int
    partitions: tuple[Partition, ...]


class ListedTransaction(NamedTuple):
    """A transactional id in a list."""

    transactional_id: str
    producer_id: int
    state: str


@value
class ListTransactionsReply:
    """The ids that pass the filters, by name, and those names of states in the filter that are unknown."""

    transactions: tuple[ListedTransaction, ...]
    unknown_states: tuple[str, ...]


ReplyBody = (
    InitProducerReply
    | AddPartitionsReply
    | EndTransactionReply
    | DescribeTransactionReply
    | ListTransactionsReply
    | Refusal
)
