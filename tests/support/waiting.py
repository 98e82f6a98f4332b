"""Waiting for what other processes and threads do: until a condition holds, never for a fixed time.

Patience is no promise: it ends what hangs, with a word on what was waited for.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from threading import Event
from typing import Final

#: On a machine that is busy with other tests, too.
PATIENCE_SECONDS = 40.0
#: Between two looks: to ask without end takes the processor from what is waited for.
_FIRST_PAUSE_S: Final = 0.001
_LONGEST_PAUSE_S: Final = 0.02
#: Behind a step that has not blocked for as long as the longest pause; it may bring what is waited for piece by piece.
_PAUSE_BEHIND_STEP_S: Final = 0.005
_PAUSE: Final = Event()


def until(
    happened: Callable[[], object],
    *,
    what: str | Callable[[], str],
    step: Callable[[], object] | None = None,
    seconds: float = PATIENCE_SECONDS,
) -> None:
    """Call `step` until `happened`, with a pause where neither blocks; fail with `what` if that takes too long.

    `what` may be asked for when it has failed: then it tells how things stand.
    """
    deadline, pause_s = time.monotonic() + seconds, _FIRST_PAUSE_S
    while True:
        began = time.monotonic()
        if happened():
            return
        if began > deadline:
            raise AssertionError(f"not within {seconds:g} s: {what if isinstance(what, str) else what()}")
        if step is not None:
            step()
            if time.monotonic() - began < _LONGEST_PAUSE_S:
                _PAUSE.wait(_PAUSE_BEHIND_STEP_S)
        elif time.monotonic() - began < _LONGEST_PAUSE_S:
            _PAUSE.wait(pause_s)
            pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)
