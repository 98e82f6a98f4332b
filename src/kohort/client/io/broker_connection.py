"""The state that the driver keeps for one broker and lane, over all connections to it.

Laws: there is one connection at most, or the attempt to open one. Requests wait here until it is ready.
"""

from __future__ import annotations

import asyncio
from collections import deque
from dataclasses import dataclass, field

from kohort.client.actions import Endpoint, Lane, Send
from kohort.client.io.connection import Connection


@dataclass(slots=True, kw_only=True, eq=False)
class Link:
    """The broker and lane of a connection, with its state over all reconnects."""

    to: Endpoint
    lane: Lane
    #: Open or being negotiated; `None`: there is none.
    connection: Connection | None = None
    #: The task that opens the connection; `None`: none is being opened.
    opening: asyncio.Task[None] | None = None
    #: (request, time at which it times out), in order, until the connection is ready.
    queue: deque[tuple[Send, int]] = field(default_factory=deque)
    #: Attempts in a row that did not become ready.
    failures: int = 0
    #: No attempt before this time.
    not_before_ms: int = 0
    #: When the connection's login has to be renewed; `None`: it need not be.
    renew_at_ms: int | None = None
    #: The task that renews the login.
    renewing: asyncio.Task[None] | None = None
