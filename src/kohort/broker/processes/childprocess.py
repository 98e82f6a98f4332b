"""Processes of the broker's own: how one is started that runs a module of kohort, and speaks through two pipes.

Laws: nothing of the broker's is open in it but the pipes and standard error. It has a group of its own, so that
whatever it starts ends with it, and the terminal's signals are the broker's.
Source: architecture rule 18.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from contextlib import suppress


def start_module(module: str, argument: str) -> subprocess.Popen[bytes]:
    """Start `python -m module argument`; `OSError` if the machine has no process or no pipe left."""
    # Where this process finds modules, that one has to find them, too.
    path = os.pathsep.join(each or os.getcwd() for each in sys.path)
    return subprocess.Popen(
        [sys.executable, "-m", module, argument],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": path},
        start_new_session=True,
    )


def kill(process: subprocess.Popen[bytes]) -> None:
    """End it and whatever it started, at once; whoever owns it waits for it."""
    # Who has been waited for has no number any more; until then it is not given to anybody else.
    if process.returncode is None:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)


def bury(process: subprocess.Popen[bytes]) -> None:
    """Wait for one that was killed, and give its pipes back."""
    process.wait()
    for pipe in (process.stdin, process.stdout):
        assert pipe is not None
        with suppress(BrokenPipeError):
            pipe.close()


def describe_end(process: subprocess.Popen[bytes]) -> str:
    """How one ended that has closed its end."""
    try:
        code = process.wait(1)
    except subprocess.TimeoutExpired:
        return "its process closed its end"
    return f"its process ended with code {code}" if code >= 0 else f"its process was ended by signal {-code}"
