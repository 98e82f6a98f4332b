"""Foundations for all other packages: error codes, options as data, deadlines, clocks, value classes, JSON."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

#: The version of kohort, which its clients and its broker send each other.
VERSION: Final = "0.1.0"

#: New objects whose first collection would take milliseconds.
_MANY: Final = 20_000


@contextmanager
def without_collections() -> Iterator[None]:
    """Switch off garbage collection while many objects are made that all stay, as by imports and loading."""
    # A collection would find nothing among them.
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            # To count frozen objects takes long where there are many.
            if gc.get_count()[0] > _MANY and not gc.get_freeze_count():
                # They count as old from now on: the first collection of young objects would look at each of them.
                gc.freeze()
                gc.unfreeze()
            gc.enable()
