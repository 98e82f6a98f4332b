"""Waiting for what other processes and threads do: until a condition holds, never for a fixed time.

Patience is no promise: it ends what hangs, with a word on what was waited for.
"""

from __future__ import annotations

import time
from collections.abc import Callable

#: On a machine that is busy with other tests, too.
PATIENCE_SECONDS = 40.0


def until(
    happened: Callable[[], object],
    *,
    what: str | Callable[[], str],
    step: Callable[[], object] = lambda: None,
    seconds: float = PATIENCE_SECONDS,
) -> None:
    """Call `step` until `happened`, one of which blocks for a moment; fail with `what` if that takes too long.

    `what` may be asked for when it has failed: then it tells how things stand.
    """
    deadline = time.monotonic() + seconds
    while not happened():
        if time.monotonic() > deadline:
            raise AssertionError(f"not within {seconds:g} s: {what if isinstance(what, str) else what()}")
        step()
