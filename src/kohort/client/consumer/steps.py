"""Calls of a consumer as steps: what they do between two waits, without saying how to wait.

A call that may have to wait is a generator. It yields what it waits for and is resumed with what came of it, or with
the exception. The blocking door waits in the thread, the asyncio door on the loop; what they do is written once.

Laws: a call that is broken off at a wait has lost nothing: what it was about to return has not been taken yet.
"""

from __future__ import annotations

from collections.abc import Awaitable, Generator
from concurrent.futures import Future
from dataclasses import dataclass
from typing import TypeVar

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Pause:
    """Wait for the end of a ticket, whose result comes back, or without one for the next delivery of the machine."""

    #: At most so long; a ticket that has not ended by then is a `KohortTimeoutError`.
    seconds: float
    ticket: Future[object] | None = None


#: What a call waits for; the awaitable is what a rebalance callback of an asyncio application has returned.
Wait = Pause | Awaitable[object]
Steps = Generator[Wait, object, T]
