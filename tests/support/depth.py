"""How much of its table each test tries: a sample in `make test`, all of it in `make soak`."""

from __future__ import annotations

import os
from typing import Final

#: 0 in `make test`. `make soak` sets 1, or more: seeds, inputs and lives are multiplied by it.
DEPTH: Final = int(os.environ.get("DEPTH", "0"))
IS_SOAK: Final = DEPTH > 0
#: Random tests draw other inputs with another one.
SEED: Final = int(os.environ.get("SEED", "0"))


def at_depth(daily: int, soak: int) -> int:
    """Return `daily` in `make test`, and in `make soak` so many for each unit of DEPTH."""
    return soak * DEPTH if IS_SOAK else daily
