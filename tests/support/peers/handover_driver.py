"""A driver process with a virtual machine and a reader of its own, and every way in which they can end."""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
import threading
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

import kohort
from support.peers import handover_program
from support.peers.handover_program import ANSWER
from support.peers.java_options import SHORT_LIVED
from support.waiting import until

#: Of a virtual machine on a machine that is busy.
PATIENCE_S: Final = 180.0
_READER: Final = b"python_streaming_source_runner"
_PAUSE: Final = threading.Event()


class Driver:
    """Starts when it is first asked, and anew after an end.

    Args:
        log: gets what the process says on its standard error, of all its lives.
    """

    def __init__(self, log: Path) -> None:
        self.log = log
        self._process: subprocess.Popen[bytes] | None = None
        self._heard = b""

    @property
    def is_running(self) -> bool:
        """Whether there is a process."""
        return self._process is not None and self._process.poll() is None

    def launch(self) -> None:
        """Start the process if there is none, and do not wait for its session."""
        if self.is_running:
            return
        self.close()
        path = os.pathsep.join([str(Path(kohort.__file__).parents[1]), str(Path(__file__).parents[2])])
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                [sys.executable, handover_program.__file__],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                env={"JDK_JAVA_OPTIONS": SHORT_LIVED, **os.environ, "PYTHONPATH": path, "SPARK_LOCAL_IP": "127.0.0.1"},
                start_new_session=True,
            )
        self._heard = b""
        self._is_ready = False

    def ask(self, do: str, **how: object) -> dict[str, Any]:
        """One line, and its answer; what the program could not do is an error here."""
        self.launch()
        assert self._process is not None and self._process.stdin is not None
        if not self._is_ready:
            self._read_answer()
            self._is_ready = True
        self._process.stdin.write(json.dumps({"do": do, **how}).encode() + b"\n")
        self._process.stdin.flush()
        answer = self._read_answer()
        assert "failed" not in answer, f"{do}: {answer['failed']}"
        return answer

    def _read_answer(self) -> dict[str, Any]:
        assert self._process is not None and self._process.stdout is not None
        pipe = self._process.stdout.fileno()
        while True:
            line, found, rest = self._heard.partition(b"\n")
            if found:
                self._heard = rest
                if line.startswith(ANSWER.encode()):
                    return dict(json.loads(line[len(ANSWER) :]))
                continue
            assert select.select([pipe], [], [], PATIENCE_S)[0], f"the driver has said nothing for {PATIENCE_S:g} s"
            heard = os.read(pipe, 65_536)
            assert heard, f"the driver has ended:\n{self.log.read_text()[-3000:]}"
            self._heard += heard

    # -- ends ---------------------------------------------------------------------------------------------------------

    def kill_reader(self) -> None:
        """Only the process in which the query's reader lives."""
        for pid in self._readers():
            _kill(pid)

    def kill_java(self) -> None:
        """The virtual machine; the reader lives on for as long as it takes to say so, the driver no longer."""
        family, readers = self._family(), self._readers()
        for pid, command in family.items():
            if b"org.apache.spark.deploy.SparkSubmit" in command:
                _kill(pid)
        _until_gone(readers)
        self.close()

    def kill_all(self) -> None:
        """As when a container is killed: nobody says a word."""
        family = self._family()
        assert self._process is not None
        # Who is stopped first cannot see the others go.
        for end in (signal.SIGSTOP, signal.SIGKILL):
            for pid in (self._process.pid, *family):
                with suppress(ProcessLookupError):
                    os.kill(pid, end)
        _until_gone(set(family))
        self.close()

    def terminate(self) -> None:
        """SIGTERM to the driver, as a scheduler sends it; what belongs to it ends by itself."""
        family = self._family()
        assert self._process is not None
        self._process.terminate()
        _until_gone(set(family))
        self.close()

    def close(self) -> None:
        """End whatever runs."""
        process, self._process = self._process, None
        if process is None:
            return
        family = _descendants(process.pid)
        for pid in (process.pid, *family):
            _kill(pid)
        process.wait()
        for pipe in (process.stdin, process.stdout):
            if pipe is not None:
                with suppress(OSError):
                    pipe.close()
        _until_gone(set(family))

    def _family(self) -> dict[int, bytes]:
        return {} if self._process is None else _descendants(self._process.pid)

    def _readers(self) -> set[int]:
        return {pid for pid, command in self._family().items() if _READER in command}


def _descendants(ancestor: int) -> dict[int, bytes]:
    """Process id -> command line, of all processes below that one."""
    parents: dict[int, int] = {}
    for name in filter(str.isdigit, os.listdir("/proc")):
        with suppress(OSError):
            parents[int(name)] = int(Path(f"/proc/{name}/stat").read_text().rpartition(")")[2].split()[1])
    found: dict[int, bytes] = {}
    known = {ancestor}
    while True:
        more = {pid for pid, parent in parents.items() if parent in known} - known
        if not more:
            return found
        known |= more
        for pid in more:
            with suppress(OSError):
                found[pid] = Path(f"/proc/{pid}/cmdline").read_bytes()


def _kill(pid: int) -> None:
    with suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)


def _until_gone(pids: set[int]) -> None:
    until(
        lambda: not any(_is_alive(pid) for pid in pids),
        what="the driver's processes end",
        step=lambda: _PAUSE.wait(0.02),
        seconds=PATIENCE_S,
    )


def _is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False
