"""The port through which the APIs reach the transaction coordinator.

The coordinator is loaded, and its topic `__transaction_state` created, when a client first asks for a transactional
id, as in Apache Kafka: a broker without transactions pays for neither.

Laws: what waits for the topic is answered in the order in which it came. A batch of a transaction is appended only
after its coordinator knows of the partition, in the order in which the producer sent it.
Source: KIP-98; KIP-890 (the broker asks for each partition before the first batch of a transaction).
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Container, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol

from kohort.base.clock import WallClock
from kohort.broker.connections.request import Asker
from kohort.broker.durability import Durability
from kohort.broker.groups.runtime import Runtime, Translate
from kohort.broker.producer_ids import OnId
from kohort.broker.topics.metadata import Cluster
from kohort.broker.topics.topic_operations import Outcome
from kohort.coordinator.commands import Refusal
from kohort.errors import ErrorCode
from kohort.ids import TRANSACTIONS_TOPIC, TopicPartition
from kohort.storage.partitions.partition import PartitionLog

if TYPE_CHECKING:
    from kohort.broker.transactions.markers import Marker, MarkerWriter, OnResult
    from kohort.broker.transactions.runtime import TransactionRuntime
    from kohort.coordinator.transactions import commands

logger = logging.getLogger("kohort.broker.transactions")

#: Bytes of batches that may wait for the coordinator, of all producers.
WAITING_LIMIT_BYTES: Final = 64 << 20
#: Transactional ids that are listed in one turn of the loop, each in 2 microseconds.
IDS_AT_ONCE: Final = 4_000
#: The answer while the topic cannot be created, or its log not be read; clients ask again.
_NOT_AVAILABLE: Final = Refusal(
    code=ErrorCode.COORDINATOR_NOT_AVAILABLE, message="the transaction coordinator is not available at present"
)
#: Errors of the coordinator after which a producer sends its batch again: older clients know none of them in Produce.
TRANSIENT: Final = frozenset({
    ErrorCode.CONCURRENT_TRANSACTIONS,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_COORDINATOR,
})  # fmt: skip


class TransactionCoordination(Protocol):
    """The transaction coordinator as one broker reaches it: `Transactions`, or a cluster's view of one broker."""

    @property
    def is_ready(self) -> bool:
        """Whether the coordinator is loaded."""

    def when_ready(self, then: Callable[[], None]) -> None:
        """Load the coordinator, after its topic was created if need be, and call `then`, also if that failed."""

    @property
    def runtime(self) -> TransactionRuntime | None:
        """The coordinator; `None` until a client has asked for it."""

    def serves(self, transactional_id: str) -> bool:
        """Whether the coordinator is loaded, and the log of a transactional id could be read whole."""

    def answer(self, request: Asker, command: commands.TransactionCommand, translate: Translate) -> None:
        """Carry out a client's command; answer `request` with the translated reply once it is durable."""

    def ask_here(self, command: commands.TransactionCommand, on_reply: Callable[[Any], None]) -> None:
        """Carry out a command if this broker coordinates the transaction; call `on_reply` with the reply."""

    def ask(self, command: commands.TransactionCommand, on_reply: Callable[[Any], None]) -> None:
        """Carry out a command by the coordinator of the transaction, wherever it is."""

    def add(self, command: commands.AddPartitions, then: Callable[[ErrorCode], None]) -> None:
        """Add one partition to a transaction, or look for it, for a request that is not the coordinator's own."""

    def before_append(self, log: PartitionLog, batch: TransactionalBatch, then: OnKnown) -> None:
        """Call `then` when the coordinator knows of the partition of a batch, after earlier batches of its producer."""

    def list_transactions(self, command: ListCommand, take: OnListed, complete: Callable[[], None]) -> None:
        """Ask each shard that this broker coordinates for its transactions: `take` gets each reply."""

    def write_marker(self, marker: Marker, place: TopicPartition, on_result: OnResult) -> None:
        """Write a marker to one partition."""


class TransactionalBatch(NamedTuple):
    """A batch of a transaction, as its producer has sent it."""

    transactional_id: str
    producer_id: int
    producer_epoch: int
    #: The version of transactions that its producer speaks; from 2 on the broker adds the partition (KIP-890).
    version: int
    #: Its bytes.
    size: int


#: Makes the command for some ids of a shard, of its cause and request; and takes one reply.
ListCommand = Callable[..., "commands.ListTransactions"]
OnListed = Callable[["commands.ListTransactionsReply | Refusal"], None]
#: Told whether a batch may be appended, and whether the transaction begins with it in this partition.
OnKnown = Callable[[ErrorCode, bool], None]


class Transactions:
    """The transaction coordinator of this process."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        clock: WallClock,
        durability: Durability,
        cluster: Cluster,
        groups: Runtime,
        *,
        on_failure: Callable[[Exception], None],
    ) -> None:
        self._loop: Final = loop
        self._clock: Final = clock
        self._durability: Final = durability
        self._cluster: Final = cluster
        self._groups: Final = groups
        #: Set by `start`.
        self._take_id: Callable[[OnId], None] = lambda _: None
        self._on_failure: Final = on_failure
        #: Tells whether a broker that runs leads a partition.
        self.is_led: Callable[[PartitionLog], bool] = lambda _: True
        self._runtime: TransactionRuntime | None = None
        self._writer: MarkerWriter | None = None
        #: What waits for the topic.
        self._unready: Final[deque[Callable[[], None]]] = deque()
        #: Log and producer -> batches that wait until the coordinator knows of the partition, in their order.
        self._batches: Final[dict[tuple[PartitionLog, int], deque[tuple[TransactionalBatch, OnKnown]]]] = {}
        self._waiting_bytes = 0

    def start(self, take_id: Callable[[OnId], None]) -> None:
        """Load the coordinator if there were transactions before; `take_id` gives unused producer ids."""
        self._take_id = take_id
        if self._cluster.topic(TRANSACTIONS_TOPIC) is not None:
            self._load()
        runtime = self._runtime
        # Transactions of a log whose coordinator's log is not there, or has forgotten them, end here or never.
        if runtime is None or runtime.is_whole:
            self._groups.abort_transactions(set() if runtime is None else runtime.open_producers())
            self._abort_unknown({} if runtime is None else runtime.open_epochs())

    def _abort_unknown(self, known: Mapping[tuple[int, tuple[str, int]], Container[int]]) -> None:
        """Abort each transaction that is open in a partition's log and unknown to the coordinator.

        Where a topic does not sync each append, a power cut may have taken the marker alone.
        """
        for topic in list(self._cluster.topics.values()):
            for log in () if topic.is_internal else topic.partitions:
                for producer_id in list(log.producers.open_transactions):
                    place = log.topic, log.partition
                    epoch, coordinator_epoch = log.producers.epochs_of(producer_id)
                    if epoch not in known.get((producer_id, place), ()):
                        self._abort(log, producer_id, epoch, max(coordinator_epoch, 0))

    def _abort(self, log: PartitionLog, producer_id: int, epoch: int, coordinator_epoch: int) -> None:
        # Loaded with the first transaction.
        from kohort.broker.transactions.markers import Marker

        words = "the transaction coordinator does not know of it: its marker was lost, or its log"
        logger.warning("event=transaction_aborted partition=%s producer=%d why=%r", log.name, producer_id, words)
        marker = Marker(producer_id, epoch, coordinator_epoch, is_commit=False, is_bumped=False)
        self.write_marker(marker, TopicPartition(log.topic, log.partition), lambda _: None)

    def stop(self) -> None:
        """Stop deciding."""
        if self._runtime is not None:
            self._runtime.stop()

    def time_passed(self, by_ms: int) -> None:
        """Fire the deadlines that are due now that a test has set its clock forward by so much."""
        if self._runtime is not None:
            self._runtime.time_passed(by_ms)

    def hand_over(self, index: int) -> None:
        """Reload a shard from its log, as another broker that takes over its ids would."""
        if self._runtime is not None:
            self._runtime.hand_over(index)

    @property
    def runtime(self) -> TransactionRuntime | None:
        """The coordinator; `None` until a client has asked for it."""
        return self._runtime

    @property
    def is_ready(self) -> bool:
        """Whether the coordinator is loaded."""
        return self._runtime is not None

    def when_ready(self, then: Callable[[], None]) -> None:
        """Load the coordinator, after its topic was created if need be, and call `then`, also if that failed."""
        if self._runtime is not None:
            then()
            return
        self._unready.append(then)
        if len(self._unready) == 1:
            self._cluster.work.ask([self._cluster.transactions_creation(self._on_created)])

    def serves(self, transactional_id: str) -> bool:
        """Whether the coordinator is loaded, and the log of a transactional id could be read whole."""
        return self._runtime is not None and self._runtime.serves(transactional_id)

    def answer(self, request: Asker, command: commands.TransactionCommand, translate: Translate) -> None:
        """Carry out a client's command; answer `request` with the translated reply once it is durable."""
        if self._runtime is None:
            self.when_ready(partial(self._answer_ready, request, command, translate))
        else:
            self._runtime.answer(request, command, translate)

    def _answer_ready(self, request: Asker, command: commands.TransactionCommand, translate: Translate) -> None:
        if self._runtime is not None:
            self._runtime.answer(request, command, translate)
        elif request.is_open:
            request.answer(translate(request, _NOT_AVAILABLE))

    def ask(self, command: commands.TransactionCommand, on_reply: Callable[[Any], None]) -> None:
        """Carry out a command by the coordinator of the transaction."""
        if self._runtime is None:
            self.when_ready(partial(self._ask_ready, command, on_reply))
        else:
            self._runtime.ask(command, on_reply)

    ask_here = ask

    def _ask_ready(self, command: commands.TransactionCommand, on_reply: Callable[[Any], None]) -> None:
        if self._runtime is not None:
            self._runtime.ask(command, on_reply)
        else:
            on_reply(_NOT_AVAILABLE)

    def add(self, command: commands.AddPartitions, then: Callable[[ErrorCode], None]) -> None:
        """Add one partition to a transaction, or look for it, for a request that is not the coordinator's own."""

        def take(reply: commands.AddPartitionsReply | Refusal) -> None:
            code = reply.code if isinstance(reply, Refusal) else reply.errors[0]
            if code is ErrorCode.TRANSACTION_ABORTABLE and command.version < 1:
                code = ErrorCode.INVALID_TXN_STATE
            # As Apache Kafka: the request's own answers have the older code only.
            then(ErrorCode.INVALID_PRODUCER_EPOCH if code is ErrorCode.PRODUCER_FENCED else code)

        self.ask(command, take)

    def before_append(self, log: PartitionLog, batch: TransactionalBatch, then: OnKnown) -> None:
        """Call `then` when the coordinator knows of the partition of a batch, after earlier batches of its producer."""
        key = log, batch.producer_id
        queue = self._batches.get(key)
        if queue is None and log.producers.is_in_transaction(batch.producer_id, batch.producer_epoch):
            then(ErrorCode.NONE, False)
            return
        if self._waiting_bytes + batch.size > WAITING_LIMIT_BYTES:
            then(ErrorCode.NOT_ENOUGH_REPLICAS, False)
            return
        if queue is None:
            queue = self._batches[key] = deque()
        queue.append((batch, then))
        self._waiting_bytes += batch.size
        if len(queue) == 1:
            self._look_for(key)

    def _look_for(self, key: tuple[PartitionLog, int]) -> None:
        """Ask the coordinator about the first waiting batch of a producer."""
        log, _ = key
        batch, _ = self._batches[key][0]
        if log.producers.is_in_transaction(batch.producer_id, batch.producer_epoch):
            self._known(key, ErrorCode.NONE, begins=False)
            return
        # Loaded with the first transaction.
        from kohort.coordinator.transactions.commands import AddPartitions

        token = self._groups.next_token()
        command = AddPartitions(
            cause=token,
            request=token,
            transactional_id=batch.transactional_id,
            producer_id=batch.producer_id,
            producer_epoch=batch.producer_epoch,
            partitions=((log.topic, log.partition),),
            is_verify_only=batch.version < 2,
            version=batch.version,
        )
        self.add(command, lambda code: self._known(key, code, begins=True))

    def _known(self, key: tuple[PartitionLog, int], code: ErrorCode, *, begins: bool) -> None:
        queue = self._batches[key]
        # Batches behind one that is to come again are to come again, too: they would be out of order before it.
        for _ in range(len(queue) if code in TRANSIENT else 1):
            batch, then = queue.popleft()
            self._waiting_bytes -= batch.size
            # NOT_ENOUGH_REPLICAS: the code that makes every producer send the batch again and ask for no metadata.
            then(ErrorCode.NOT_ENOUGH_REPLICAS if code in TRANSIENT else code, begins)
        if queue:
            self._loop.call_soon(self._look_for, key)
        else:
            del self._batches[key]

    def list_transactions(self, command: ListCommand, take: OnListed, complete: Callable[[], None]) -> None:
        """Ask each shard for its transactions: `take` gets each reply, of some ids each."""
        self.list_shards(command, take, complete, is_listed=lambda _: True)

    def list_shards(
        self,
        command: ListCommand,
        take: OnListed,
        complete: Callable[[], None],
        *,
        is_listed: Callable[[int], bool],
    ) -> None:
        """Ask each shard whose number `is_listed` for its transactions, some in each turn of the loop."""
        runtime = self._runtime
        indexes = [] if runtime is None else list(filter(is_listed, range(runtime.shard_count)))
        # A shard is asked once at least: it knows which of the filters are unknown.
        questions = [(at, ids) for at in indexes for ids in runtime.parts_of(at, IDS_AT_ONCE)] if runtime else []
        if runtime is None or not questions:
            complete()
            return
        left = len(questions)

        def on_reply(reply: commands.ListTransactionsReply | Refusal) -> None:
            nonlocal left
            take(reply)
            left -= 1
            if not left:
                complete()

        def ask(number: int) -> None:
            token = self._groups.next_token()
            at, ids = questions[number]
            runtime.ask_shard(at, command(cause=token, request=token, ids=ids), on_reply)
            if number + 1 < len(questions):
                self._loop.call_soon(ask, number + 1)

        ask(0)

    def write_marker(self, marker: Marker, place: TopicPartition, on_result: OnResult) -> None:
        """Write a marker to one partition."""
        self._marker_writer().write(marker, place, on_result)

    def _marker_writer(self) -> MarkerWriter:
        if self._writer is None:
            from kohort.broker.transactions.markers import MarkerWriter

            self._writer = MarkerWriter(self._clock, self._cluster, self._durability, self._groups, is_led=self._is_led)
        return self._writer

    def _is_led(self, log: PartitionLog) -> bool:
        return self.is_led(log)

    def _on_created(self, _: Outcome) -> None:
        if self._runtime is None and self._cluster.topic(TRANSACTIONS_TOPIC) is not None:
            self._load()
        while self._unready:
            self._unready.popleft()()

    def _load(self) -> None:
        # Loaded with the first transaction, for its imports.
        from kohort.broker.transactions.runtime import TransactionRuntime
        from kohort.coordinator.transactions.settings import TransactionSettings

        topic = self._cluster.topic(TRANSACTIONS_TOPIC)
        assert topic is not None, "it was created"
        runtime = TransactionRuntime(
            self._loop,
            self._clock,
            self._durability,
            markers=self._marker_writer(),
            next_token=self._groups.next_token,
            take_id=self._take_id,
            on_failure=self._on_failure,
            journal=self._groups.journal,
        )
        values = self._cluster.values
        settings = TransactionSettings(
            transaction_max_timeout_ms=values["transaction.max.timeout.ms"],
            transactional_id_expiration_ms=values["transactional.id.expiration.ms"],
            transactional_id_limit=values["max.transactional.ids"],
            transaction_partition_limit=values["max.transaction.partitions"],
            waiting_limit=values["max.transaction.waiting.requests"],
        )
        runtime.start(settings, list(topic.partitions))
        self._runtime = runtime


def code_of(reply: object, version: int, *, fenced_since: int = 2) -> ErrorCode:
    """Return the code of a reply, as clients of a version of the request know it.

    `fenced_since`: the version of the request since which clients know PRODUCER_FENCED (KIP-588).
    """
    if isinstance(reply, Refusal):
        is_unknown = reply.code is ErrorCode.PRODUCER_FENCED and version < fenced_since
        return ErrorCode.INVALID_PRODUCER_EPOCH if is_unknown else reply.code
    errors = getattr(reply, "errors", ())
    return next(filter(None, errors), ErrorCode.NONE)
