"""The application's side of a producer: the part that the blocking and the asyncio client share.

Laws: no object that the machine's host refers to leads back to the client: a producer that was dropped without `close`
can be garbage-collected, and is flushed then.
Source: Kafka's producer and its configuration; C9.
"""

from __future__ import annotations

import logging
import os
import threading
import time
from collections import deque
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from concurrent.futures import Future
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Protocol, Self, cast
from weakref import WeakSet

from kohort.client.arguments import to_offsets, to_seconds, to_topic
from kohort.client.core.host import Host, refuse_copies
from kohort.client.metrics import producer_metrics
from kohort.client.options import PRODUCER_OPTIONS, client_settings, machine_options
from kohort.client.producer.buffer_pool import AnyBufferPool
from kohort.client.producer.bulk_send import Bulk, ManyFuture, TablesFuture
from kohort.client.producer.core import producer_events as events
from kohort.client.producer.core.accumulator import RECORD_OVERHEAD_BYTES
from kohort.client.producer.core.submission_kernels import PlainRecords, Submissions
from kohort.client.producer.encoder import RecordEncoder
from kohort.client.producer.record_future import RecordFuture
from kohort.client.records import Committable, ConsumerRecord, GroupMetadata, SentMany
from kohort.client.steps import Pause
from kohort.errors import ConfigError, KohortError, StateError, no_transaction
from kohort.ids import TopicPartition

if TYPE_CHECKING:
    from kohort.client.producer.core.producer_machine import ProducerMachine
    from kohort.client.producer.core.sender import SenderSettings


_LOG: Final = logging.getLogger("kohort.client")
_SUBMITTED: Final = events.RecordsSubmitted()
FOREVER_S: Final = 1e9
#: Seconds that a call may take beyond its timeout, so that the machine's better error arrives.
GRACE_S: Final = 5.0
#: Seconds in which the background flushes a producer that was dropped without `close`.
_FORGOTTEN_S: Final = 30.0
#: Most bytes of a piece of `send_many`: enough for a batch of `max.request.size` to each of several partitions.
_PIECE_BYTES: Final = 4 * 1024 * 1024
#: Values of acks, and their numbers in Produce.
_ACKS: Final = {"all": -1, "-1": -1, "0": 0, "1": 1}
#: Makes an event of a ticket and a deadline.
_Build = Callable[[Future[object], Any], events.ProducerEvent]
#: The steps that end a transaction.
_ENDS: Final = (events.TransactionStep.COMMIT, events.TransactionStep.ABORT)
#: Headers as applications write them.
HeadersArgument = Iterable[tuple[str, Any]] | Mapping[str, Any] | None


#: Offsets as applications give them: by partition, or as a record or records, each of which stands for its offset + 1.
OffsetsArgument = Mapping[TopicPartition, Committable] | ConsumerRecord | Sequence[ConsumerRecord]


class OffsetsSource(Protocol):
    """A consumer, blocking or asyncio, as the source of offsets that are committed in a transaction."""

    @property
    def processed_offsets(self) -> Callable[[], dict[TopicPartition, Committable]]:
        """The call that returns the offsets behind the records that `poll` has returned."""

    @property
    def group_metadata(self) -> Callable[[], GroupMetadata]:
        """The call that returns the consumer's identity in its group."""


#: The buffer limits of this process's producers. In a fork of it they are shut.
_pools: Final[WeakSet[Any]] = WeakSet()


def _shut_pools() -> None:
    for pool in _pools:
        # Its lock may be held by a thread that this process does not have.
        pool.is_shut = True


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_shut_pools)


class ProducerDoor:
    """The base of the blocking and the asyncio producer: how they are built, asked and closed."""

    __reduce__ = refuse_copies

    _pool: Any
    _io: Any

    def _set_up(
        self,
        config: Mapping[str, Any] | None,
        options: Mapping[str, Any],
        build_pool: Callable[[int, float], AnyBufferPool],
        build_host: Callable[..., Host[events.ProducerEvent]],
        on_ended: Callable[[Deliveries], Callable[[Any], None]] = lambda deliveries: deliveries.put,
    ) -> None:
        """Build the parts of the producer; nothing is connected.

        Args:
            build_pool: makes the buffer pool from its size in bytes and the longest wait for space in seconds.
            build_host: class or function that makes the host of the machine, a thread or a loop.
            on_ended: makes, for `Deliveries`, the function that gets finished records with a callback.
        """
        given = PRODUCER_OPTIONS.gather(config, options)
        values = PRODUCER_OPTIONS.parse(given)
        self._is_closed = False
        # Imported when the first producer is created, not with its class.
        from kohort.client.producer.core.producer_machine import ProducerMachine

        self._max_block_s: float = values["max.block.ms"] / 1000
        self._pool = build_pool(values["buffer.memory"], self._max_block_s)
        _pools.add(self._pool)
        self._transactional_id: str | None = values["transactional.id"]
        # A transactional producer accepts records from `begin_transaction` on.
        self._pool.is_shut = self._transactional_id is not None
        self._encoder = RecordEncoder(
            max_request_bytes=values["max.request.size"],
            piece_bytes=min(values["buffer.memory"] // 2, _PIECE_BYTES),
            key_serializer=values["key.serializer"],
            value_serializer=values["value.serializer"],
        )
        self._submissions = Submissions(wake_bytes=values["batch.size"])
        self._deliveries = Deliveries()
        settings = client_settings(values, seed=time.monotonic_ns() & 0xFFFF_FFFF)
        machine = ProducerMachine(
            settings,
            sender_settings(values),
            submissions=self._submissions,
            batch_bytes=values["batch.size"],
            linger_ms=values["linger.ms"],
            is_idempotent=is_idempotent(values, given),
            on_release=self._pool.release,
            is_room_wanted=self._pool.is_wanted,
            on_ended=on_ended(self._deliveries),
            on_broken=self._pool.break_off,
            partitioner=values["partitioner"],
        )
        self._counters = machine.counters
        self._io = build_host(
            machine,
            settings,
            deliver=lambda _: None,
            what="producer",
            on_crash=partial(_abandon, machine, self._pool),
            farewell=lambda ticket, deadline_ms: events.ProducerCloseAsked(ticket=ticket, deadline_ms=deadline_ms),
        )
        self._wake: Callable[[], None] = partial(self._io.post, _SUBMITTED)
        self._submit_plain = self._build_plain().submit

    def _build_plain(self) -> PlainRecords:
        return PlainRecords(
            RecordFuture,
            self._submissions,
            self._pool,
            topics=self._encoder.plain_topics,
            overhead_bytes=RECORD_OVERHEAD_BYTES,
            limit_bytes=self._encoder.limit_bytes,
            clock=time.time_ns,
            wake=self._wake,
        )

    @classmethod
    def from_config(cls, config: Mapping[str, Any]) -> Self:
        """Create a producer from Kafka's dotted option names: `Producer.from_config({"linger.ms": 5})`."""
        return cls(config)  # type: ignore[call-arg]  # what doors take

    def metrics(self) -> dict[str, float]:
        """Return this producer's counters by Kafka's names, from any thread; see docs/how-to/read-metrics.md."""
        return producer_metrics(self._io.traffic, self._counters, self._pool)

    def __del__(self) -> None:
        # Also called for one whose options were refused.
        io = getattr(self, "_io", None)
        if io is not None and not self._is_closed:
            io.retire(_FORGOTTEN_S)
            io.warn_unclosed()

    def _refusal(self) -> KohortError:
        """Return the error of a producer that accepts no more records."""
        try:
            self._io.check()
        except KohortError as why:
            return why
        if self._is_closed or self._transactional_id is None:
            return StateError("this producer is closed")
        return self._pool.why or no_transaction(self._transactional_id)

    # -- calls of both doors, each carried out in the door's way ------------------------------------------------------

    async def _ask(self, build: _Build, timeout: float | None) -> object:
        """Post an event that carries a ticket to the machine, and wait for the ticket's result.

        Args:
            build: makes the event of the ticket and a deadline.
            timeout: seconds; `None` means `max_block_ms`.

        Raises:
            StateError: the producer is closed.
        """
        if self._is_closed:
            raise self._refusal()
        seconds = self._max_block_s if timeout is None else to_seconds(timeout)
        return await self._end_of(build, seconds, self._io.deadline_ms(seconds))

    async def _end_of(self, build: _Build, seconds: float, at: Any) -> object:
        self._check_may_wait()
        ticket: Future[object] = Future()
        self._io.post(build(ticket, at))
        return await Pause(seconds + GRACE_S, ticket)

    async def _send_tables(self, data: object, topic: str | None, headers: HeadersArgument) -> TablesFuture:
        tables = self._encoder.arrow_rows(data, topic, headers=headers)
        if self._pool.is_shut:
            raise self._refusal()
        parts: list[Future[SentMany]] = []
        for pieces in filter(None, tables):
            parts.append(await self._send_pieces(pieces[0].name, pieces, is_begun=bool(parts)))
        return TablesFuture(parts)

    async def _send_pieces(self, topic: str, pieces: list[Bulk], *, is_begun: bool = False) -> ManyFuture:
        if not is_begun and self._pool.is_shut:
            raise self._refusal()
        if not pieces:
            return ManyFuture(topic, 0)
        for place, piece in enumerate(pieces):
            try:
                await self._reserve(piece.size_bytes)
                if self._pool.is_shut:
                    self._pool.release(piece.size_bytes)
                    raise self._refusal()
            except KohortError as error:
                # Before the first piece is queued the call itself raises; later the future does.
                if place == 0 and not is_begun:
                    raise
                piece.future.give_up(sum(each.count for each in pieces[place:]), error)
                break
            self._submit(piece)
        return pieces[0].future

    async def _reserve(self, size: int) -> None:
        """Reserve `size` bytes of the buffer; wait for them in the thread or on the loop."""
        raise NotImplementedError

    async def _connected(self, timeout: float | None) -> None:
        await self._ask(lambda ticket, at: events.ConnectAsked(ticket=ticket, deadline_ms=at), timeout)

    async def _partitions(self, topic: str, timeout: float | None) -> list[int]:
        name = to_topic(topic, "partitions_for('orders')")
        found = await self._ask(
            lambda ticket, at: events.PartitionsAsked(topic=name, ticket=ticket, deadline_ms=at), timeout
        )
        return cast("list[int]", found)

    async def _flushed(self, timeout: float | None) -> int:
        seconds = FOREVER_S if timeout is None else to_seconds(timeout)
        self._io.raise_failure()
        if not self._io.is_running:
            return 0
        deadline = None if timeout is None else self._io.deadline_ms(seconds)
        left = await self._end_of(
            lambda ticket, at: events.FlushAsked(ticket=ticket, deadline_ms=at), seconds, deadline
        )
        return cast("int", left)

    # -- transactions -------------------------------------------------------------------------------------------------

    async def _take_step(self, step: events.TransactionStep, timeout: float | None) -> events.ProducerIdAndEpoch:
        """Take a step of a transaction; `timeout` in seconds, `None` means `max_block_ms`."""
        if self._transactional_id is None:
            raise ConfigError(f"{step.value} needs the option transactional_id")
        if step in _ENDS:
            # Records that come from other threads from now on do not belong to this transaction.
            self._pool.shut()
        told = await self._ask(
            lambda ticket, at: events.TransactionAsked(step=step, ticket=ticket, deadline_ms=at), timeout
        )
        if step is events.TransactionStep.BEGIN and not self._is_closed:
            self._pool.reopen()
        return cast("events.ProducerIdAndEpoch", told)

    async def _share(self, identity: events.ProducerIdAndEpoch | None, timeout: float | None) -> None:
        """Take part in the transaction that has this identity; `None`: leave the present one as it is."""
        if identity is None:
            self._pool.shut()
        await self._ask(
            lambda ticket, at: events.TransactionShared(identity=identity, ticket=ticket, deadline_ms=at), timeout
        )
        if identity is not None and not self._is_closed:
            self._pool.reopen()

    async def _begin(self, timeout: float | None) -> None:
        """Begin a transaction: at once if the one before has ended."""
        if self._transactional_id is not None and not self._is_closed and self._pool.why is None:
            self._io.check()
            self._check_may_wait()
            if timeout is not None:
                to_seconds(timeout)
            if self._submissions.begin():
                self._pool.reopen()
                if self._is_closed:
                    # By another thread meanwhile.
                    self._pool.shut()
                return
        await self._take_step(events.TransactionStep.BEGIN, timeout)

    def _take_back_begin(self) -> None:
        """Abort the transaction of a begin that was interrupted, without waiting: it may have begun all the same."""
        self._pool.shut()
        deadline_ms = self._io.deadline_ms(self._max_block_s)
        with suppress(StateError):
            self._io.post(
                events.TransactionAsked(step=events.TransactionStep.ABORT, ticket=None, deadline_ms=deadline_ms)
            )

    def _post_offsets(self, offsets: OffsetsArgument, group: GroupMetadata | str) -> None:
        """Commit offsets of a group with the transaction, without waiting: the commit fails if they are refused."""
        if self._is_closed:
            raise self._refusal()
        deadline_ms = self._io.deadline_ms(self._max_block_s)
        chosen, of = to_offsets(offsets), to_group(group)
        self._io.post(events.TransactionOffsetsAsked(group=of, offsets=chosen, ticket=None, deadline_ms=deadline_ms))

    async def _send_offsets(self, offsets: object, group: object, timeout: float | None) -> None:
        if self._transactional_id is None:
            raise ConfigError("send_offsets_to_transaction needs the option transactional_id")
        chosen, of = to_offsets(offsets), to_group(group)
        await self._ask(
            lambda ticket, at: events.TransactionOffsetsAsked(group=of, offsets=chosen, ticket=ticket, deadline_ms=at),
            timeout,
        )

    def _check_may_wait(self) -> None:
        """Refuse to wait in a thread that would wait for itself; only a blocking client has such threads."""

    def _submit(self, record: events.Outgoing) -> None:
        """Hand a record to the machine; its space in the buffer is reserved already."""
        if self._submissions.append(record):
            self._wake()
        if self._deliveries.ended:
            self._deliveries.serve()

    def _refuse_the_late(self) -> None:
        """Fail the records of `send` calls that were under way while the producer closed."""
        self._submissions.close()
        for record in self._submissions.take():
            record.fail(StateError("this producer is closed"))


def _abandon(machine: ProducerMachine, pool: AnyBufferPool, error: StateError) -> None:
    machine.abandon(error)
    pool.shut()


def to_group(group: object) -> GroupMetadata:
    """Check the group of offsets: a consumer's `group_metadata()`, or a group id, which names no member."""
    if isinstance(group, GroupMetadata):
        return group
    if isinstance(group, str) and group:
        return GroupMetadata(group, -1, "", None)
    raise TypeError(f"the group cannot be {group!r}: consumer.group_metadata() is expected, or a group id")


def note_failed_abort(error: BaseException, why: KohortError) -> None:
    """Add to an exception that left a block why the transaction could not be aborted."""
    if why is not error and why is not error.__cause__:
        error.add_note(f"the transaction could not be aborted: {why}")


def is_idempotent(values: Mapping[str, Any], given: Container[str]) -> bool:
    """Return whether the producer is idempotent; `given`: options that are set. Raise `ConfigError` if they clash."""
    wanted: bool = values["enable.idempotence"]
    if values["transactional.id"] == "":
        raise ConfigError("transactional.id cannot be empty: give the producer a name, or leave the option out")
    if values["transactional.id"] is not None and (_ACKS[values["acks"]] != -1 or not wanted):
        raise ConfigError("transactional.id needs acks=all and enable.idempotence: leave the others out")
    if _ACKS[values["acks"]] != -1 and wanted:
        if "enable.idempotence" in given:
            raise ConfigError("enable.idempotence needs acks=all; leave one of the two out")
        return False
    if wanted and values["max.in.flight.requests.per.connection"] > 5:
        raise ConfigError("max.in.flight.requests.per.connection cannot be above 5 with enable.idempotence")
    return wanted


def sender_settings(values: Mapping[str, Any]) -> SenderSettings:
    """Build settings from options that `PRODUCER_OPTIONS` has parsed."""
    # Part of the machine, so imported only when a producer is created.
    from kohort.client.producer.core.sender import SenderSettings

    levels = {
        "gzip": values["compression.gzip.level"],
        "lz4": values["compression.lz4.level"],
        "zstd": values["compression.zstd.level"],
    }
    return SenderSettings(
        options=machine_options(values),
        acks=_ACKS[values["acks"]],
        compression_level=levels.get(values["compression.type"]),
    )


class Deliveries:
    """Finished records, stored or failed, whose `on_delivery` has yet to be called; may be shared by threads.

    Callbacks are called inside the application's calls of `send`, `poll`, `flush` and `close`, as in confluent-kafka:
    not on the I/O thread, which a slow callback would block, nor on a thread that the application does not know.

    Laws: each callback is called once, in the order in which the records finish, by one thread at a time, and never
    inside another callback. The exception of a callback is logged, and the next callback is called.
    """

    def __init__(self) -> None:
        #: Finished records with a callback, in the order in which they finished; looked at without a lock.
        self.ended: deque[RecordFuture] = deque()
        self._some = threading.Condition()
        #: Held by `_caller`, the thread that calls callbacks.
        self._turn = threading.Lock()
        self._caller: int | None = None

    def put(self, records: Sequence[RecordFuture]) -> None:
        """Append finished records; called on the I/O thread."""
        self.ended.extend(records)
        with self._some:
            self._some.notify_all()

    def wait(self, seconds: float) -> None:
        """Wait until there are finished records, `seconds` at most."""
        if not self.ended and self._caller != threading.get_ident():
            with self._some:
                self._some.wait_for(lambda: bool(self.ended), seconds)

    def serve(self, *, patience_s: float = 0.0) -> int:
        """Call the callbacks, unless another thread is calling them; return how many were called.

        Args:
            patience_s: seconds to wait for that other thread.
        """
        if not self.ended and not patience_s:
            return 0
        caller = threading.get_ident()
        if self._caller == caller or not self._turn.acquire(timeout=patience_s):
            return 0
        # A callback that calls `send` or `poll` must not call callbacks itself.
        self._caller = caller
        count = 0
        try:
            while self.ended:
                record = self.ended.popleft()
                on_delivery, record.on_delivery = record.on_delivery, None
                assert on_delivery is not None
                try:
                    on_delivery(record.end.error, record.metadata())
                except Exception:
                    _LOG.exception("on_delivery has failed for a record of %s", record.topic)
                count += 1
        finally:
            self._caller = None
            self._turn.release()
        return count

    def check_outside(self, call: str) -> None:
        """Raise `StateError` inside a callback: the call would wait for that callback to return."""
        if self._caller == threading.get_ident():
            raise StateError(f"{call} waits for callbacks to return, so none of them can call it: call it behind")
