"""The handshakes of one listener: so many at a time, each in its time, their steps on threads.

A handshake costs a millisecond of the processor, on the loop as long as any other client would wait. A client that has
sent no whole record costs its connection and no place.

Laws: no more handshakes than `ssl.handshakes.max` are begun and not done, and of one address no more than its part;
further ones wait unread. One that waits for its client gives its place to a client that waits for one. In a crowd of
one address the newest is next: those that have waited for longest have mostly gone. Sessions of clients whose
certificates are trusted no more end with the next look at the files.
Source: Apache Kafka does handshakes on its network threads, without a limit; requirement B4.
"""

from __future__ import annotations

import asyncio
import logging
import os
import ssl
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Final, Protocol

from kohort.broker.connections.tls_transport import RECEIVED_BYTES, Opened, TlsProtocol
from kohort.broker.options.listeners import ListenerSettings
from kohort.broker.scheduling import BlockingWork, CooperativeWork
from kohort.errors import KohortError
from kohort.security.principals import NoPrincipalError
from kohort.security.server_tls import ServerTls, explain_client, verified_chain

log = logging.getLogger("kohort.broker.connections")

#: Threads for steps; one processor stays for the loop, and more than these would wait for Python's lock.
MOST_THREADS: Final = 4
#: The time between two looks at handshakes that are not done, while there are any.
LOOK_SECONDS: Final = 0.25
#: How long a client may leave its place unused while another waits for one. A program that opens a thousand
#: connections at once, on a machine that is busy, takes longer than a second for the next word of each.
PATIENCE_SECONDS: Final = 3.0
#: The time between two looks at the files of certificates.
FILES_SECONDS: Final = 0.5
#: Connections whose certificates are examined in one turn of the loop; each costs some 100 us.
EXAMINED_AT_ONCE: Final = 50
#: A reason is logged no more often than that, with the number of its refusals, and so many reasons in this time.
LOG_EVERY_SECONDS: Final = 1.0
MOST_REASONS: Final = 10
#: A look that is later than this says that the loop stood still, and nothing about clients.
_LATE_SECONDS: Final = 2.0


class Admission(Protocol):
    """The counter of connections, as far as handshakes are counted."""

    def enter(self, guest: TlsProtocol) -> bool:
        """Admit a connection, if need be in the place of a silent one; `False` if it has to be closed."""

    def leave(self, guest: TlsProtocol) -> None:
        """Forget a connection."""


class Handshakes:
    """The connections of one listener that have TLS."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        listener: ListenerSettings,
        *,
        admission: Admission,
        connect: Callable[[str | None], Opened],
    ) -> None:
        """Load the certificates of a listener.

        Args:
            loop: the broker's.
            listener: its name and its options.
            admission: the counter of connections.
            connect: makes the connection above of a client with that principal, `None`: it has no certificate.

        Raises:
            ConfigError: the certificates cannot be loaded.
        """
        self.loop: Final = loop
        self.listener: Final = listener
        values = listener.values
        self._tls: Final = ServerTls(values)
        self._admission: Final = admission
        self._connect: Final = connect
        self._limit: Final[int] = values["ssl.handshakes.max"]
        self._limit_per_host: Final[int] = values["ssl.handshakes.max.per.ip"]
        self._patience_s: Final = values["ssl.handshake.timeout.ms"] / 1000
        self.received: Final = memoryview(bytearray(RECEIVED_BYTES))
        threads = max(1, min(MOST_THREADS, (os.cpu_count() or 1) - 1))
        self._work: Final = BlockingWork(loop, threads=threads, name="kohort-tls")
        #: Of its own, so that a crowd does not keep a certificate from being taken back.
        self._files: Final = BlockingWork(loop, threads=1, name="kohort-certificates")
        self._examinations: Final = CooperativeWork(loop)
        #: Connection before its end of the handshake -> when it has to be done; oldest first.
        self._new: Final[dict[TlsProtocol, float]] = {}
        #: Connections with a place, and their number by address.
        self._begun: Final[set[TlsProtocol]] = set()
        self._begun_by_host: Final[Counter[str]] = Counter()
        #: Connections with a place whose client has the next word -> since when; oldest first.
        self._awaited: Final[dict[TlsProtocol, float]] = {}
        #: Address -> its connections that wait for a place -> since when; oldest first. None is empty.
        self._queues: Final[dict[str, dict[TlsProtocol, float]]] = {}
        #: Connections of clients with certificates.
        self._proven: Final[set[TlsProtocol]] = set()
        self._look_timer: asyncio.TimerHandle | None = None
        self._files_timer: asyncio.TimerHandle | None = None
        self._is_stopped = False
        #: The last fault of the files that was logged.
        self._fault = ""
        #: All refusals since the start.
        self.refused = 0
        #: Reason -> refusals that were not logged, since the time below; a logged one has 0.
        self._unlogged: Final[dict[str, int]] = {}
        self._logged_since_s = -LOG_EVERY_SECONDS

    def start(self) -> None:
        """Begin to look at the files."""
        self._files_timer = self.loop.call_later(FILES_SECONDS, self._look_at_files)

    def stop(self) -> None:
        """Close all that is not done, and end the threads."""
        self._is_stopped = True
        for timer in (self._look_timer, self._files_timer):
            if timer is not None:
                timer.cancel()
        for connection in list(self._new):
            connection.abort()
        self._work.stop()
        self._files.stop()

    @property
    def context(self) -> ssl.SSLContext:
        """The context of new handshakes."""
        return self._tls.context

    def protocol(self) -> TlsProtocol:
        """Make the protocol of an accepted socket."""
        return TlsProtocol(self)

    def begin(self, connection: TlsProtocol) -> bool:
        """Count a new connection, which may give way to others as long as it has asked nothing."""
        if self._is_stopped or not self._admission.enter(connection):
            return False
        self._new[connection] = self.loop.time() + self._patience_s
        self._arm()
        return True

    def ask(self, connection: TlsProtocol) -> None:
        """Begin a handshake, or let it wait for a place."""
        self._queues.setdefault(connection.peer_host, {})[connection] = self.loop.time()
        self._fill()

    def step(self, connection: TlsProtocol) -> None:
        """Do a step on a thread."""
        self._awaited.pop(connection, None)

        def then(result: bool | Exception) -> None:
            if isinstance(result, ssl.SSLError):
                connection.fail(explain_client(result))
            elif isinstance(result, Exception):
                log.error("event=handshake_failed error=%r action=close", str(result), exc_info=result)
                connection.fail("the handshake could not be carried out")
            else:
                connection.on_step(result)

        self._work.submit(connection.shake_hands, then)

    def await_client(self, connection: TlsProtocol) -> None:
        """Note since when a client has the next word."""
        self._awaited[connection] = self.loop.time()

    def open(self, connection: TlsProtocol, tls: ssl.SSLObject) -> Opened | None:
        """Make the connection above, with its principal; `None` if the certificate gives it none."""
        self._forget(connection)
        principal: str | None = None
        certificate = tls.getpeercert(True) if self._tls.asks_certificates else None
        if certificate is not None:
            try:
                principal = self._tls.rules.principal(certificate)
            except (NoPrincipalError, ValueError) as why:
                self.refuse(connection, str(why))
                return None
            self._proven.add(connection)
            # The authorities may have changed during the handshake.
            if tls.context is not self._tls.context and not self._is_trusted(tls):
                self.refuse(connection, "the authority of its certificate is trusted no more")
                return None
        return self._connect(principal)

    def refuse(self, connection: TlsProtocol, reason: str) -> None:
        """Log a refusal, and no more than one of a crowd."""
        self.refused += 1
        now = self.loop.time()
        if now - self._logged_since_s >= LOG_EVERY_SECONDS:
            self._logged_since_s = now
            for earlier, times in list(self._unlogged.items()):
                if times:
                    log.warning("event=tls_refused listener=%s reason=%r times=%d", self.listener.name, earlier, times)
            self._unlogged.clear()
        if reason in self._unlogged:
            self._unlogged[reason] += 1
        elif len(self._unlogged) < MOST_REASONS:
            self._unlogged[reason] = 0
            peer = f"{connection.peer_host}:{connection.peer_port}"
            log.warning("event=tls_refused listener=%s peer=%s reason=%r", self.listener.name, peer, reason)

    def end(self, connection: TlsProtocol) -> None:
        """Forget a closed connection."""
        self._proven.discard(connection)
        self._forget(connection)

    def _forget(self, connection: TlsProtocol) -> None:
        """Forget a handshake that is over, and give its place to the next."""
        if self._new.pop(connection, None) is None:
            return
        self._admission.leave(connection)
        self._awaited.pop(connection, None)
        host = connection.peer_host
        queue = self._queues.get(host)
        if queue is not None and queue.pop(connection, None) is not None and not queue:
            del self._queues[host]
        if connection in self._begun:
            self._begun.remove(connection)
            self._begun_by_host[host] -= 1
            if not self._begun_by_host[host]:
                del self._begun_by_host[host]
            self._fill()

    def _fill(self) -> None:
        """Give free places to those that wait, an address after the other."""
        while len(self._begun) < self._limit and (connection := self._next()) is not None:
            self._begun.add(connection)
            self._begun_by_host[connection.peer_host] += 1
            connection.begin_handshake()

    def _next(self) -> TlsProtocol | None:
        now = self.loop.time()
        for host in list(self._queues):
            if self._begun_by_host[host] >= self._limit_per_host:
                continue
            # The address is the last one next time.
            queue = self._queues.pop(host)
            oldest = next(iter(queue))
            connection = oldest
            if now - queue[oldest] > PATIENCE_SECONDS:
                connection, _ = queue.popitem()
            else:
                del queue[oldest]
            if queue:
                self._queues[host] = queue
            return connection
        return None

    def _arm(self) -> None:
        if self._look_timer is None:
            due = self.loop.time() + LOOK_SECONDS
            self._look_timer = self.loop.call_at(due, self._look, due)

    def _look(self, due: float) -> None:
        """Close what takes too long."""
        self._look_timer = None
        now = self.loop.time()
        # If the loop stood still, the clients had no chance to be read.
        if now - due <= _LATE_SECONDS:
            for connection, until in list(self._new.items()):
                if until > now:
                    break
                connection.give_up("its handshake was not done within ssl.handshake.timeout.ms")
            self._give_way(now)
        if self._new and not self._is_stopped:
            self._arm()

    def _give_way(self, now: float) -> None:
        """Close handshakes whose clients are silent, as many as there are others that wait for these places."""
        wanted = {host: len(queue) for host, queue in self._queues.items()}
        all_wanted = sum(wanted.values())
        is_full = len(self._begun) >= self._limit
        for connection, since in list(self._awaited.items()):
            if now - since < PATIENCE_SECONDS or not all_wanted:
                break
            host = connection.peer_host
            # Another address gains nothing from this place unless all are taken.
            if is_full or wanted.get(host, 0):
                wanted[host] = wanted.get(host, 0) - 1
                all_wanted -= 1
                connection.give_up("its handshake stood still while others waited")

    def _look_at_files(self) -> None:
        self._files.submit(self._tls.reload_if_changed, self._on_files)

    def _on_files(self, result: bool | Exception) -> None:
        """Take note of new certificates, of which connections that are open know nothing."""
        if self._is_stopped:
            return
        self._files_timer = self.loop.call_later(FILES_SECONDS, self._look_at_files)
        if isinstance(result, KohortError):
            # Once for each fault: half of a pair may be there for long.
            if str(result) != self._fault:
                self._fault = str(result)
                log.warning(
                    "event=certificates_kept listener=%s reason=%r action='the earlier ones stay'",
                    self.listener.name,
                    self._fault,
                )
        elif isinstance(result, Exception):
            log.error("event=certificates_kept listener=%s", self.listener.name, exc_info=result)
        else:
            self._fault = ""
            if result:
                self._examinations.run(self._examine_all())

    def _examine_all(self) -> Iterator[None]:
        ended = 0
        for number, connection in enumerate(list(self._proven), start=1):
            tls = connection.get_extra_info("ssl_object")
            if not connection.is_closing() and (tls is None or not self._is_trusted(tls)):
                connection.abort()
                ended += 1
            if number % EXAMINED_AT_ONCE == 0:
                yield
        log.info("event=certificates_taken listener=%s connections_ended=%d", self.listener.name, ended)

    def _is_trusted(self, tls: ssl.SSLObject) -> bool:
        # Of a resumed session the chain is not known: its client comes again and is verified.
        chain = verified_chain(tls)
        return chain is not None and self._tls.trusts(chain)
