"""The memory limit of records in a broker without a data directory.

Source: requirement G1; control groups of Linux, by which containers have less than their machine.
"""

from __future__ import annotations

import contextlib
import os
from pathlib import Path
from typing import Final

#: Where a container's limit stands: of control groups version 2, and of version 1.
_LIMIT_FILES: Final = ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes")
_PART: Final = 4


def memory_limit_bytes(asked: int | None) -> int:
    """Return the configured limit, or else a quarter of this machine's, or its container's, memory."""
    return asked if asked is not None else machine_bytes() // _PART


def machine_bytes() -> int:
    """Return the memory of this machine or container, bytes."""
    found = [os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")]
    for path in _LIMIT_FILES:
        # "max", or no such file: no limit.
        with contextlib.suppress(OSError, ValueError):
            found.append(int(Path(path).read_text()))
    return min(found)
