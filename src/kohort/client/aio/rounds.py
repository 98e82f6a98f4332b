"""Rounds of the loop for its other tasks, while one client goes on and on and awaits nothing."""

from __future__ import annotations

import asyncio
import time
from typing import Final

#: Seconds between two rounds: a task that takes ready records, or sends without a wait, awaits nothing by itself.
_ROUND_S: Final = 0.005


class Rounds:
    """The rounds that one client gives to the loop's other tasks."""

    __slots__ = ("_last_s",)

    def __init__(self) -> None:
        self._last_s = 0.0

    @property
    def is_due(self) -> bool:
        """Whether the last round is some time ago.

        Looked at for each record: a coroutine would cost more.
        """
        return time.monotonic() - self._last_s >= _ROUND_S

    async def let_others_run(self) -> None:
        """Give the loop a round."""
        await asyncio.sleep(0)
        self._last_s = time.monotonic()
