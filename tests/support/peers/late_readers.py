"""Spark gives the Python of a streaming source ten seconds to connect, which no setting changes: the late begin anew.

On a machine that has several virtual machines to start besides that happens, and says nothing of what is tested.
"""

from __future__ import annotations

import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

#: How often a program is run at most.
ATTEMPTS: Final = 3


def is_late(output: str) -> bool:
    """Whether a program has ended because a reader was late."""
    return "Python worker failed to connect back" in output


def run_in_time(
    command: Sequence[str | Path], environment: Mapping[str, str], *, folder: Path, seconds: float
) -> subprocess.CompletedProcess[str]:
    """Run a program to its end, once more where a reader was late; its last run."""
    for attempt in range(ATTEMPTS):
        done = subprocess.run(
            command, cwd=folder, env=environment, capture_output=True, text=True, check=False, timeout=seconds
        )
        if done.returncode == 0 or attempt == ATTEMPTS - 1 or not is_late(done.stdout + done.stderr):
            break
    return done
