"""Child processes of the broker, each running a module of kohort behind two pipes.

Laws: a child inherits no open file of the broker but the pipes and standard error. A child has its own process group,
so that the processes that it starts are killed with it, and the terminal's signals reach only the broker.
Source: architecture rule 18.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from contextlib import suppress


def start_module(module: str, argument: str) -> subprocess.Popen[bytes]:
    """Start `python -m module argument`; raise `OSError` if the machine has no process or pipe left."""
    # The child has to find modules in the same places as this process.
    path = os.pathsep.join(each or os.getcwd() for each in sys.path)
    return subprocess.Popen(
        [sys.executable, "-m", module, argument],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": path},
        # A process group of its own, see the laws above.
        start_new_session=True,
    )


def kill(process: subprocess.Popen[bytes]) -> None:
    """Kill a process and all processes that it started, at once; call `bury` to wait for it."""
    # A process keeps its id until it was waited for, so the id cannot belong to another process here.
    if process.returncode is None:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)


def bury(process: subprocess.Popen[bytes]) -> None:
    """Wait for a killed process, and close its pipes."""
    process.wait()
    for pipe in (process.stdin, process.stdout):
        assert pipe is not None
        with suppress(BrokenPipeError):
            pipe.close()


def describe_end(process: subprocess.Popen[bytes]) -> str:
    """Describe the end of a process that has closed its pipe."""
    try:
        code = process.wait(1)
    except subprocess.TimeoutExpired:
        return "its process closed its end"
    return f"its process ended with code {code}" if code >= 0 else f"its process was ended by signal {-code}"
