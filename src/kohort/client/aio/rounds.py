"""Rounds for the loop's other tasks, while one goes on and on and awaits nothing."""

from __future__ import annotations

import asyncio
import time
from typing import Final

#: Who takes what is there, or sends and sends, awaits nothing; the loop gets a round this often all the same.
_ROUND_S: Final = 0.005


class Rounds:
    """Of one client."""

    __slots__ = ("_last_s",)

    def __init__(self) -> None:
        self._last_s = 0.0

    @property
    def is_due(self) -> bool:
        """Whether the last one is some time ago; looked at for each record, where a coroutine would cost more."""
        return time.monotonic() - self._last_s >= _ROUND_S

    async def let_others_run(self) -> None:
        """Give the loop a round."""
        await asyncio.sleep(0)
        self._last_s = time.monotonic()
