"""Messages about partition owners between a cluster's brokers; they may be delayed, lost, repeated, and are resent.

Each coordinator numbers its messages. A broker accepts only the next number, so that it knows a prefix of them, and
acknowledges the number up to which it knows all. A message counts as known once every running broker has acknowledged
it, or once all earlier leases have expired: a broker that is cut off for longer refuses by the expired leases itself.

Laws: a broker never accepts a message of a former coordinator, an older message, or one twice. A broker that starts
gets all messages that matter for a lease that may still be valid.
Source: users@kafka 2014-07-16 (brokers acknowledge reassignments before consumers learn of them); requirement H5.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

from kohort.broker.fetch.ownership import OwnershipChange, OwnershipTable

#: A message is sent again after so long without an acknowledgement.
RESEND_MS: Final = 100


class Faults(NamedTuple):
    """Faults of the messages to one broker.

    `delay_ms`: delay of each message and each acknowledgement. `lost`: number of messages to lose, `None`: all.
    `repeated`: number of repetitions of each message.
    """

    delay_ms: int = 0
    lost: int | None = 0
    repeated: int = 0


class Sent(NamedTuple):
    """A message: number `number` of term `term` of the coordinator of a shard, needed until `needed_until_ms`."""

    shard: int
    term: int
    number: int
    changes: tuple[OwnershipChange, ...]
    needed_until_ms: int


class _Unknown:
    """A message that some brokers have not acknowledged."""

    __slots__ = ("missing", "on_known")

    def __init__(self, missing: set[int], on_known: Callable[[], None]) -> None:
        self.missing: Final = missing
        self.on_known: Final = on_known


class _Receiver:
    """One running broker's knowledge: its table, and the latest message of each shard's coordinator."""

    __slots__ = ("known", "table", "unacknowledged")

    def __init__(self, table: OwnershipTable) -> None:
        self.table: Final = table
        #: Shard -> term and number of the latest message that it has taken.
        self.known: Final[dict[int, tuple[int, int]]] = {}
        #: Shard -> messages that are not acknowledged, oldest first, as the sender knows.
        self.unacknowledged: Final[dict[int, deque[Sent]]] = {}


class OwnershipLinks:
    """The links of all coordinators of a cluster to all of its brokers; used only on the event loop."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop: Final = loop
        self._receivers: Final[dict[int, _Receiver]] = {}
        #: Broker -> faults on the way to it.
        self.faults: Final[dict[int, Faults]] = {}
        #: Shard -> term of its coordinator, and number of its latest message.
        self._sent: Final[dict[int, tuple[int, int]]] = {}
        #: Messages that a broker which starts has to get, in order.
        self._live: Final[deque[Sent]] = deque()
        #: (shard, term, number) -> message that is not known everywhere.
        self._unknown: Final[dict[tuple[int, int, int], _Unknown]] = {}
        #: Messages that were sent, those sent again included.
        self.messages = 0

    def tell(self, shard: int, changes: Sequence[OwnershipChange], on_known: Callable[[], None]) -> bool:
        """See `Leaders.tell`."""
        now_ms = self._now_ms()
        term, number = self._sent.get(shard, (1, 0))
        lease_ms = max(change.lease_ms for change in changes)
        needed_ms = now_ms + max(max(change.lease_ms, change.stock_lease_ms) for change in changes)
        sent = Sent(shard, term, number + 1, tuple(changes), needed_ms)
        self._sent[shard] = term, number + 1
        self._forget(now_ms)
        self._live.append(sent)
        if not self._receivers:
            return True
        self._unknown[shard, term, sent.number] = _Unknown(set(self._receivers), on_known)
        # No grant of before is alive then: it was made before this message.
        self._loop.call_later(lease_ms / 1000, self._conclude, (shard, term, sent.number))
        for broker in self._receivers:
            self._put(broker, sent)
        return False

    def loaded(self, shard: int) -> None:
        """Begin another coordinator's term: brokers then accept no message of the former coordinator."""
        term, _ = self._sent.get(shard, (0, 0))
        self._sent[shard] = term + 1, 0
        for key in [key for key in self._unknown if key[0] == shard]:
            # The replies that wait for it wait for the messages of the next coordinator.
            del self._unknown[key]
        for receiver in self._receivers.values():
            receiver.unacknowledged.pop(shard, None)
        kept = [sent for sent in self._live if sent.shard != shard]
        self._live.clear()
        self._live.extend(kept)

    def joined(self, broker: int, table: OwnershipTable) -> None:
        """Add a broker that starts with an empty table, and send it the messages that still matter."""
        self._receivers[broker] = _Receiver(table)
        # Their numbers have no gap, though a message behind one that is needed for long may be needed no more.
        self._forget(self._now_ms())
        for sent in list(self._live):
            self._put(broker, sent)

    def is_behind(self, broker: int) -> bool:
        """Return whether a broker has unacknowledged messages."""
        receiver = self._receivers.get(broker)
        return receiver is not None and any(receiver.unacknowledged.values())

    def left(self, broker: int) -> None:
        """Remove a broker that has stopped and serves no fetches: no acknowledgement of it is needed."""
        if self._receivers.pop(broker, None) is not None:
            for key in list(self._unknown):
                self._acknowledge(key, broker)

    def _forget(self, now_ms: int) -> None:
        while self._live and self._live[0].needed_until_ms <= now_ms:
            self._live.popleft()

    def _put(self, broker: int, sent: Sent) -> None:
        waiting = self._receivers[broker].unacknowledged.setdefault(sent.shard, deque())
        waiting.append(sent)
        self._send(broker, sent)
        if len(waiting) == 1:
            self._loop.call_later(RESEND_MS / 1000, self._resend, broker, self._receivers[broker], sent.shard)

    def _resend(self, broker: int, receiver: _Receiver, shard: int) -> None:
        waiting = receiver.unacknowledged.get(shard)
        if self._receivers.get(broker) is not receiver or not waiting:
            return
        for sent in list(waiting):
            self._send(broker, sent)
        self._loop.call_later(RESEND_MS / 1000, self._resend, broker, receiver, shard)

    def _send(self, broker: int, sent: Sent) -> None:
        self.messages += 1
        faults, receiver = self.faults.get(broker, Faults()), self._receivers[broker]
        if faults.lost is None or faults.lost > 0:
            if faults.lost is not None:
                self.faults[broker] = faults._replace(lost=faults.lost - 1)
            return
        for _ in range(1 + faults.repeated):
            self._later(faults.delay_ms, self._receive, broker, receiver, sent)

    def _receive(self, broker: int, receiver: _Receiver, sent: Sent) -> None:
        if self._receivers.get(broker) is not receiver:
            return
        term, number = receiver.known.get(sent.shard, (0, 0))
        if sent.term < term:
            return
        if sent.term > term:
            # A broker that starts begins with the first message that is still needed.
            number = sent.number - 1 if self._is_first(receiver, sent) else 0
        if sent.number == number + 1:
            now_ms = self._now_ms()
            for change in sent.changes:
                receiver.table.change(change, now_ms)
            number = sent.number
            receiver.known[sent.shard] = sent.term, number
        elif sent.term > term:
            return
        self._later(self.faults.get(broker, Faults()).delay_ms, self._heard, broker, receiver, sent.shard, sent.term)

    def _is_first(self, receiver: _Receiver, sent: Sent) -> bool:
        waiting = receiver.unacknowledged.get(sent.shard)
        return waiting is not None and len(waiting) > 0 and waiting[0] is sent

    def _heard(self, broker: int, receiver: _Receiver, shard: int, term: int) -> None:
        """Handle an acknowledgement of all messages up to the latest that the broker knows."""
        if self._receivers.get(broker) is not receiver or receiver.known.get(shard, (0, 0))[0] != term:
            return
        number = receiver.known[shard][1]
        waiting = receiver.unacknowledged.get(shard, deque())
        while waiting and waiting[0].number <= number and waiting[0].term == term:
            sent = waiting.popleft()
            self._acknowledge((shard, term, sent.number), broker)

    def _acknowledge(self, key: tuple[int, int, int], broker: int) -> None:
        unknown = self._unknown.get(key)
        if unknown is not None:
            unknown.missing.discard(broker)
            if not unknown.missing:
                self._conclude(key)

    def _conclude(self, key: tuple[int, int, int]) -> None:
        unknown = self._unknown.pop(key, None)
        if unknown is not None:
            unknown.on_known()

    def _later(self, delay_ms: int, call: Callable[..., None], *arguments: object) -> None:
        if delay_ms:
            self._loop.call_later(delay_ms / 1000, call, *arguments)
        else:
            self._loop.call_soon(call, *arguments)

    def _now_ms(self) -> int:
        return int(self._loop.time() * 1000)
