"""Connections that wait at a broker: parked fetches and held heartbeats, and when each of them ended.

Laws: a connection is stamped when its socket can be read, before anything is read of it; nothing has come before.
"""

from __future__ import annotations

import secrets
import selectors
import ssl
import time
from collections.abc import Callable, Sequence
from typing import Any, Final

from kohort.security.scram import ScramExchange
from kohort.wire.messages.api_versions import ApiVersionsRequest
from kohort.wire.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from kohort.wire.messages.sasl_authenticate import SaslAuthenticateRequest
from kohort.wire.messages.sasl_handshake import SaslHandshakeRequest
from kohort.wire.registry import ApiKey
from support.dialogues.broker_wire import RawClient, fetch_request
from support.waiting import PATIENCE_SECONDS

#: Longer than any test.
FOREVER_MS: Final = 600_000
FETCH_VERSION, BEAT_VERSION = 12, 1
SCRAM: Final = "SCRAM-SHA-256"


class WaitingClient(RawClient):
    """One connection, which asks for something that takes its time."""

    def __init__(self, port: int, *, tls: ssl.SSLContext | None = None) -> None:
        super().__init__(port)
        if tls is not None:
            self.socket = tls.wrap_socket(self.socket, server_hostname="127.0.0.1")
        #: The request that waits.
        self.waits_for = ApiKey.FETCH
        # Only clients of kohort's bear answers that are held; this also reads what TLS sends behind its handshake.
        self.ask(ApiKey.API_VERSIONS, 3, ApiVersionsRequest(client_software_name="kohort", client_software_version="1"))

    def log_in(self, user: str, password: str) -> None:
        """By SCRAM."""
        exchange = ScramExchange(SCRAM, user, password, nonce=secrets.token_hex(8))
        assert self.ask(ApiKey.SASL_HANDSHAKE, 1, SaslHandshakeRequest(mechanism=SCRAM)).error_code == 0
        said = exchange.first()
        for _ in range(2):
            answer = self.ask(ApiKey.SASL_AUTHENTICATE, 2, SaslAuthenticateRequest(auth_bytes=said))
            assert answer.error_code == 0, answer
            said = exchange.reply(answer.auth_bytes)

    def park(self, topic: str) -> None:
        """Ask for records that do not come."""
        self.waits_for = ApiKey.FETCH
        self.send(ApiKey.FETCH, FETCH_VERSION, fetch_request(topic, max_wait_ms=FOREVER_MS))

    def join_and_hold(self, group: str, topic: str) -> None:
        """Become the group's only member, and send a heartbeat that has no news to wait for."""
        self.waits_for = ApiKey.CONSUMER_GROUP_HEARTBEAT

        def beat(epoch: int, owned: list[Any], **fields: Any) -> ConsumerGroupHeartbeatRequest:
            return ConsumerGroupHeartbeatRequest(
                group_id=group, member_id="a", member_epoch=epoch, topic_partitions=owned, **fields
            )

        first = {"rebalance_timeout_ms": 60_000, "subscribed_topic_names": [topic]}
        joined = self.ask(self.waits_for, BEAT_VERSION, beat(0, [], **first))
        assert joined.error_code == 0, joined
        owned = [] if joined.assignment is None else joined.assignment.topic_partitions
        self.send(self.waits_for, BEAT_VERSION, beat(joined.member_epoch, owned))

    def outcome(self) -> int | None:
        """The error that its request was answered with; `None` if the connection was closed instead."""
        self.socket.settimeout(PATIENCE_SECONDS)
        version = FETCH_VERSION if self.waits_for is ApiKey.FETCH else BEAT_VERSION
        try:
            frame = self.receive_frame()
        except ssl.SSLError:
            # A broker that cuts a connection does not take its leave of TLS first.
            return None
        if not frame:
            return None
        _, answer = self.decoded(frame, self.waits_for, version)
        code: int = answer.error_code or next(
            (row.error_code for topic in getattr(answer, "responses", []) for row in topic.partitions), 0
        )
        return code


def ended_ms(clients: Sequence[WaitingClient], change: Callable[[], object]) -> list[float]:
    """Make a change while all of them wait; how long after its begin each heard something, ascending.

    What waited must have heard nothing before.
    """
    ended: list[float] = []
    with selectors.DefaultSelector() as selector:
        for client in clients:
            client.socket.setblocking(False)
            selector.register(client.socket, selectors.EVENT_READ)
        assert selector.select(0) == [], "some did not wait"
        began_s = time.perf_counter()
        change()
        deadline = time.monotonic() + PATIENCE_SECONDS
        while selector.get_map() and time.monotonic() < deadline:
            for key, _ in selector.select(0.5):
                ended.append((time.perf_counter() - began_s) * 1000)
                selector.unregister(key.fileobj)
    return ended
