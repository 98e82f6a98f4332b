"""Ends what a run of the tests has started when pytest is gone: JVMs, brokers, workers, whoever started them.

pytest that is ended by a signal tears nothing down, and a process in a session of its own notices nothing. Every
process of a run has a mark in its environment, which it inherits; a process beside pytest waits until that is gone, and
ends those that have the mark.

Laws: nothing is ended that has not the mark of this run; a run that ends by itself says what it has left behind.
Source: proc(5), `/proc/PID/environ`. Where there is none nothing is guarded.
"""

from __future__ import annotations

import os
import signal
import sys
import time
import uuid
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

MARK: Final = "KOHORT_TEST_RUN"
#: What a process may take to end when it is asked to, s, and how often it is looked.
_PATIENCE_S: Final = 10.0
_LOOK_UP_S: Final = 0.1
#: Where the guard of this run listens; there is one at most.
_guarded: list[int] = []


def pytest_configure(config: Any) -> None:
    """Begin to guard a run; the workers of xdist belong to that of their parent."""
    if hasattr(config, "workerinput") or not Path("/proc/self/environ").exists():
        return
    os.environ[MARK] = uuid.uuid4().hex
    command = [sys.executable, "-S", "-E", __file__, os.environ[MARK]]
    reading, writing = os.pipe()
    # Nobody waits for it here: it ends after this process.
    os.posix_spawn(command[0], command, os.environ, file_actions=[(os.POSIX_SPAWN_DUP2, reading, 0)], setsid=True)
    os.close(reading)
    _guarded.append(writing)


def pytest_unconfigure(config: Any) -> None:
    """Let the guard know that the run ends by itself; what belongs to this process ends only with it, like a JVM."""
    for writing in _guarded:
        os.write(writing, b"over")


def find_marked(mark: str) -> list[int]:
    """Ids of the processes of a run, but for this one and the run itself."""
    wanted = f"{MARK}={mark}".encode()
    found = []
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit() and int(folder.name) not in (os.getpid(), os.getppid()):
            try:
                environment = (folder / "environ").read_bytes()
            except OSError:
                continue
            if wanted in environment.split(b"\0"):
                found.append(int(folder.name))
    return found


def end_marked(mark: str) -> None:
    """Ask them to end, and kill those that have not."""
    for how in (signal.SIGTERM, signal.SIGKILL):
        for process_id in find_marked(mark):
            with suppress(ProcessLookupError):
                os.kill(process_id, how)
        if not wait_for_end(mark):
            return


def wait_for_end(mark: str) -> list[int]:
    """Give them time; those that are still there."""
    until_s = time.monotonic() + _PATIENCE_S
    while (left := find_marked(mark)) and time.monotonic() < until_s:
        time.sleep(_LOOK_UP_S)
    return left


def main(mark: str) -> None:
    """Wait for the end of the run, be it of its own accord or not."""
    if sys.stdin.buffer.read() == b"over":
        for process_id in wait_for_end(mark):
            with suppress(OSError):
                command = Path(f"/proc/{process_id}/cmdline").read_bytes().replace(b"\0", b" ")
                print("the tests have left behind:", command[:120].decode(errors="replace"), file=sys.stderr)
    end_marked(mark)


if __name__ == "__main__":
    main(sys.argv[1])
