"""Waiting for what other processes and threads do: until a condition holds, never for a fixed time."""

from __future__ import annotations

import time
from collections.abc import Callable

#: On a machine that is busy with other tests, too.
PATIENCE_SECONDS = 40.0


def until(happened: Callable[[], bool], *, what: str, step: Callable[[], object]) -> None:
    """Call `step`, which blocks for a moment, until `happened`; fail with `what` if that takes too long."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not happened():
        assert time.monotonic() < deadline, f"not within {PATIENCE_SECONDS:.0f} s: {what}"
        step()
