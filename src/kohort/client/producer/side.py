"""The application's side of a producer: the part that the blocking and the asyncio door share.

Laws: no object that the machine's host refers to leads back to a door: a producer that was dropped without `close` can
be collected, and is flushed.
Source: Kafka's producer; C9.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Self
from weakref import WeakSet

from kohort.client.io.host import Host, refuse_copies
from kohort.client.metrics import producer_metrics
from kohort.client.options import PRODUCER_OPTIONS, client_settings
from kohort.client.producer.buffer_pool import AnyRoom
from kohort.client.producer.core.producer_events import ProducerCloseAsked, ProducerEvent, RecordsSubmitted
from kohort.client.producer.core.submissions import Outgoing, Submissions
from kohort.client.producer.deliveries import Deliveries
from kohort.client.producer.encoder import Intake
from kohort.client.producer.settings import is_idempotent, sender_settings
from kohort.errors import KohortError, StateError

if TYPE_CHECKING:
    from kohort.client.producer.core.producer_machine import ProducerMachine

_SUBMITTED: Final = RecordsSubmitted()
#: Seconds in which the background flushes a producer that was dropped without `close`.
_FORGOTTEN_S: Final = 30.0
#: Bytes of a piece of `send_many`: enough for a batch of `max.request.size` to each of several partitions.
_PIECE_BYTES: Final = 4 * 1024 * 1024
#: Headers as applications write them.
HeadersArgument = Iterable[tuple[str, Any]] | Mapping[str, Any] | None


#: The buffer limits of this process's producers. In a fork of it they are shut.
_rooms: Final[WeakSet[Any]] = WeakSet()


def _shut_rooms() -> None:
    for room in _rooms:
        # Its lock may be held by a thread that this process does not have.
        room.is_shut = True


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_shut_rooms)


class ProducerSide:
    """The application's side of a producer: its parts, and its end."""

    __reduce__ = refuse_copies

    _room: Any
    _io: Any

    def _set_up(
        self,
        config: Mapping[str, Any] | None,
        options: Mapping[str, Any],
        build_room: Callable[[int, float], AnyRoom],
        build_host: Callable[..., Host[ProducerEvent]],
        on_ended: Callable[[Deliveries], Callable[[Any], None]] = lambda deliveries: deliveries.put,
    ) -> None:
        """Build the parts of the producer; nothing is connected.

        Args:
            config: options by Kafka's dotted names.
            options: options by keyword.
            build_room: makes the limit of so many bytes, for which a call waits so many seconds at most.
            build_host: class or function that makes the host of the machine.
            on_ended: makes the function that takes ended records with a callback from the deliveries.
        """
        given = PRODUCER_OPTIONS.gather(config, options)
        values = PRODUCER_OPTIONS.parse(given)
        self._is_closed = False
        # Imported when the first producer is created, not with its class.
        from kohort.client.producer.core.producer_machine import ProducerMachine

        self._max_block_s: float = values["max.block.ms"] / 1000
        self._room = build_room(values["buffer.memory"], self._max_block_s)
        _rooms.add(self._room)
        self._intake = Intake(
            max_request_bytes=values["max.request.size"],
            key_serializer=values["key.serializer"],
            value_serializer=values["value.serializer"],
        )
        #: Many records are handed over in pieces of so many bytes: the first are sent while the last wait for room.
        self._piece_bytes: int = min(values["buffer.memory"] // 2, _PIECE_BYTES)
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
            on_release=self._room.release,
            is_room_wanted=self._room.is_wanted,
            on_ended=on_ended(self._deliveries),
            partitioner=values["partitioner"],
        )
        self._tally = machine.tally
        self._io = build_host(
            machine,
            settings,
            deliver=lambda _: None,
            what="producer",
            on_crash=partial(_abandon, machine, self._room),
            farewell=lambda ticket, deadline_ms: ProducerCloseAsked(ticket=ticket, deadline_ms=deadline_ms),
        )
        self._wake: Callable[[], None] = partial(self._io.post, _SUBMITTED)

    @classmethod
    def from_config(cls, config: Mapping[str, Any]) -> Self:
        """Create a producer from Kafka's dotted names: `Producer.from_config({"linger.ms": 5})`."""
        return cls(config)  # type: ignore[call-arg]  # what doors take

    def metrics(self) -> dict[str, float]:
        """Return this producer's counters by Kafka's names (docs/client.md); may be called from any thread."""
        return producer_metrics(self._io.traffic, self._tally, self._room)

    def __del__(self) -> None:
        # Also called for one whose options were refused.
        io = getattr(self, "_io", None)
        if io is not None and not self._is_closed:
            io.retire(_FORGOTTEN_S)
            io.warn_unclosed()

    def _refusal(self) -> KohortError:
        """Return the error of a producer that takes no more records."""
        try:
            self._io.check()
        except KohortError as why:
            return why
        return StateError("this producer is closed")

    def _submit(self, record: Outgoing) -> None:
        """Hand over a record for which room was taken."""
        if self._submissions.append(record):
            self._wake()
        if self._deliveries.ended:
            self._deliveries.serve()

    def _refuse_the_late(self) -> None:
        """Fail the records of `send` calls that were under way while the producer closed."""
        self._submissions.close()
        for record in self._submissions.take():
            record.fail(StateError("this producer is closed"))


def _abandon(machine: ProducerMachine, room: AnyRoom, error: StateError) -> None:
    machine.abandon(error)
    room.shut()
