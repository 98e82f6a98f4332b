"""Long work in short turns of the loop, so that others are answered in between.

Source: architecture rule 18: 20 ms.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator


def in_slices(loop: asyncio.AbstractEventLoop, steps: Iterator[None]) -> None:
    """Take the first step now and each further one in a turn of its own.

    >>> loop = asyncio.new_event_loop()
    >>> in_slices(loop, (print(number) for number in range(1)))
    0
    >>> loop.close()
    """
    if next(steps, steps) is None:
        loop.call_soon(in_slices, loop, steps)
