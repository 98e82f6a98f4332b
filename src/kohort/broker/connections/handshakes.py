"""The TLS handshakes of one listener: limited in number and time, and run in threads.

A handshake takes a millisecond of the processor; on the loop all other clients would wait for it. A connection whose
first record is incomplete does not count as a handshake.

Laws: at most `ssl.handshakes.max` handshakes are in progress, and at most `ssl.handshakes.max.per.ip` of one address.
Further connections wait unread. A handshake whose client is silent is closed if another connection waits. If the
connections of one address have waited for long, the newest is next, because the clients of the oldest have mostly
disconnected. A session whose certificate is not trusted any more is closed after the next check of the files.
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

#: The most threads for handshakes. One processor is left for the loop; more threads would wait for Python's lock.
MOST_THREADS: Final = 4
#: The time between two checks of unfinished handshakes, while there are any.
LOOK_SECONDS: Final = 0.25
#: The time that a client may be silent in a handshake while another connection waits. A program that opens a thousand
#: connections at once on a busy machine takes longer than a second for its next bytes on each.
PATIENCE_SECONDS: Final = 3.0
#: The time between two checks of the files of certificates.
FILES_SECONDS: Final = 0.5
#: Connections whose certificates are examined in one turn of the loop; each costs some 100 us.
EXAMINED_AT_ONCE: Final = 50
#: A reason is logged once in this time, with the number of its refusals; and the most reasons in this time.
LOG_EVERY_SECONDS: Final = 1.0
MOST_REASONS: Final = 10
#: If a check is later than this, the loop was blocked, and clients are not closed for being slow.
_LATE_SECONDS: Final = 2.0


class Admission(Protocol):
    """The methods of the connection quotas that handshakes use."""

    def enter(self, guest: TlsProtocol) -> bool:
        """Admit a connection, and close a silent one if necessary; return `False` if it is refused."""

    def leave(self, guest: TlsProtocol) -> None:
        """Stop counting a connection."""


class Handshakes:
    """The connections of one listener with TLS, and their handshakes."""

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
            loop: the broker's loop.
            listener: the listener, with its options.
            admission: the connection quotas.
            connect: creates the Kafka connection of a client with this principal; `None`: it has no certificate.

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
        #: A separate thread, so that many handshakes do not delay the check of the files.
        self._files: Final = BlockingWork(loop, threads=1, name="kohort-certificates")
        self._examinations: Final = CooperativeWork(loop)
        #: Connection with an unfinished handshake -> the deadline of the handshake, seconds; oldest first.
        self._new: Final[dict[TlsProtocol, float]] = {}
        #: Connections whose handshake is in progress, and their number by address.
        self._begun: Final[set[TlsProtocol]] = set()
        self._begun_by_host: Final[Counter[str]] = Counter()
        #: Handshakes in progress whose next bytes are the client's -> since when, seconds; oldest first.
        self._awaited: Final[dict[TlsProtocol, float]] = {}
        #: Address -> its waiting connections -> since when, seconds; oldest first. No value is empty.
        self._queues: Final[dict[str, dict[TlsProtocol, float]]] = {}
        #: Open connections of clients with certificates.
        self._proven: Final[set[TlsProtocol]] = set()
        self._look_timer: asyncio.TimerHandle | None = None
        self._files_timer: asyncio.TimerHandle | None = None
        self._is_stopped = False
        #: The last error of the files that was logged.
        self._fault = ""
        #: All refusals since the start.
        self.refused = 0
        #: Reason -> refusals that were not logged since the time below; 0 after the line for the first.
        self._unlogged: Final[dict[str, int]] = {}
        self._logged_since_s = -LOG_EVERY_SECONDS

    def start(self) -> None:
        """Begin to check the files of certificates."""
        self._files_timer = self.loop.call_later(FILES_SECONDS, self._look_at_files)

    def stop(self) -> None:
        """Close all unfinished handshakes, and stop the threads."""
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
        """Create the protocol of an accepted socket."""
        return TlsProtocol(self)

    def begin(self, connection: TlsProtocol) -> bool:
        """Count a new connection; until its first request it may be closed for the sake of others."""
        if self._is_stopped or not self._admission.enter(connection):
            return False
        self._new[connection] = self.loop.time() + self._patience_s
        self._arm()
        return True

    def ask(self, connection: TlsProtocol) -> None:
        """Queue a connection, and begin its handshake when the limits allow it."""
        self._queues.setdefault(connection.peer_host, {})[connection] = self.loop.time()
        self._fill()

    def step(self, connection: TlsProtocol) -> None:
        """Run the next part of a handshake in a thread."""
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
        """Record that a handshake waits for bytes of its client, and since when."""
        self._awaited[connection] = self.loop.time()

    def open(self, connection: TlsProtocol, tls: ssl.SSLObject) -> Opened | None:
        """Create the Kafka connection with its principal; `None` if the certificate is not accepted."""
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
                self.refuse(connection, "the authority of its certificate is not trusted any more")
                return None
        return self._connect(principal)

    def refuse(self, connection: TlsProtocol, reason: str) -> None:
        """Log a refusal, but each reason only once in `LOG_EVERY_SECONDS`."""
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
        """Remove a closed connection."""
        self._proven.discard(connection)
        self._forget(connection)

    def _forget(self, connection: TlsProtocol) -> None:
        """Remove a finished handshake, and begin the next one."""
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
        """Begin waiting handshakes up to the limit, one address after the other."""
        while len(self._begun) < self._limit and (connection := self._next()) is not None:
            self._begun.add(connection)
            self._begun_by_host[connection.peer_host] += 1
            connection.begin_handshake()

    def _next(self) -> TlsProtocol | None:
        now = self.loop.time()
        for host in list(self._queues):
            if self._begun_by_host[host] >= self._limit_per_host:
                continue
            # The address is the last one in the next round.
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
        """Close handshakes that take too long."""
        self._look_timer = None
        now = self.loop.time()
        # If the loop was blocked, the bytes of clients could not be read.
        if now - due <= _LATE_SECONDS:
            for connection, until in list(self._new.items()):
                if until > now:
                    break
                connection.give_up("its handshake was not done within ssl.handshake.timeout.ms")
            self._give_way(now)
        if self._new and not self._is_stopped:
            self._arm()

    def _give_way(self, now: float) -> None:
        """Close handshakes with silent clients, as many as there are connections that wait."""
        wanted = {host: len(queue) for host, queue in self._queues.items()}
        all_wanted = sum(wanted.values())
        is_full = len(self._begun) >= self._limit
        for connection, since in list(self._awaited.items()):
            if now - since < PATIENCE_SECONDS or not all_wanted:
                break
            host = connection.peer_host
            # Closing this one helps connections of other addresses only if the limit of all is reached.
            if is_full or wanted.get(host, 0):
                wanted[host] = wanted.get(host, 0) - 1
                all_wanted -= 1
                connection.give_up("its handshake made no progress while others waited")

    def _look_at_files(self) -> None:
        self._files.submit(self._tls.reload_if_changed, self._on_files)

    def _on_files(self, result: bool | Exception) -> None:
        """Examine open connections after the files have changed; log an error of the files once."""
        if self._is_stopped:
            return
        self._files_timer = self.loop.call_later(FILES_SECONDS, self._look_at_files)
        if isinstance(result, KohortError):
            # Each error is logged once: for a time only one of two files may be new.
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
        # The chain of a resumed session is unknown. Its client connects again, and is verified then.
        chain = verified_chain(tls)
        return chain is not None and self._tls.trusts(chain)
