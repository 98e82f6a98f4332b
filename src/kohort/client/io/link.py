"""What the driver knows of one broker and lane, over all connections to it.

Laws: there is one connection at most, or the attempt to open one, and requests wait here until it is ready.
"""

from __future__ import annotations

import asyncio
from collections import deque
from dataclasses import dataclass, field

from kohort.client.actions import Endpoint, Lane, Send
from kohort.client.io.connection import Connection


@dataclass(slots=True, kw_only=True, eq=False)
class Link:
    """One connection to one broker as the driver sees it, over all its reconnects."""

    to: Endpoint
    lane: Lane
    #: Open or being negotiated; `None` while there is none.
    connection: Connection | None = None
    #: Opens the connection; `None` while nothing is being opened.
    opening: asyncio.Task[None] | None = None
    #: (request, instant at which it times out), in order, until the connection is ready.
    queue: deque[tuple[Send, int]] = field(default_factory=deque)
    #: Attempts in a row that did not become ready.
    failures: int = 0
    #: No attempt before this instant.
    not_before_ms: int = 0
    #: When the login of the connection is due again; `None` while it is not.
    renew_at_ms: int | None = None
    #: Makes that login.
    renewing: asyncio.Task[None] | None = None
