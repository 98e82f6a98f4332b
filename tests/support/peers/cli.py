"""The command `kohort` as a user runs it: a process of its own, its output and its exit code."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from kohort.cli.parser import _VERBS
from support.peers.forked_commands import ForkedProcess, Forks, forks, python_variables
from support.waiting import PATIENCE_SECONDS

SOURCE = Path(__file__).resolve().parents[3] / "src"
#: A command that says nothing for so long hangs.
TIMEOUT_SECONDS = PATIENCE_SECONDS
#: In the line of a broker whose process stood still for half a second.
STOOD_STILL = "event=clock_gap"
#: So begins what Python says of an exception that nobody foresaw: no command may.
_TRACEBACK = "Traceback (most recent call last)"


def foreign_words() -> Iterator[tuple[str, ...]]:
    """Every beginning of a command line that is another tool's, and is answered with an error."""
    for room, table in _VERBS.items():
        for word in table:
            yield (word,) if room == "kohort" else (room, word)


@dataclass(frozen=True, kw_only=True)
class Finished:
    """How a command ended."""

    code: int
    out: str
    err: str


def environment(extra: Mapping[str, str] | None = None) -> dict[str, str]:
    """This process's environment with the checkout's kohort in front."""
    return {**os.environ, "PYTHONPATH": str(SOURCE), "PYTHONUNBUFFERED": "1", **(extra or {})}


def run_python(
    arguments: Sequence[str],
    *,
    stdin: str | bytes = "",
    env: Mapping[str, str] | None = None,
    timeout: float = TIMEOUT_SECONDS,
) -> Finished:
    """Run this Python with arguments until it ends by itself."""
    done = subprocess.run(
        [sys.executable, *arguments],
        input=stdin.encode() if isinstance(stdin, str) else stdin,
        capture_output=True,
        timeout=timeout,
        check=False,
        env=environment(env),
    )
    return Finished(code=done.returncode, out=done.stdout.decode(), err=done.stderr.decode())


def forks_of(whole: Mapping[str, str], *modules: str) -> Forks:
    """The process that forks for commands with this environment, and has imported these modules besides."""
    return forks(tuple(sorted(python_variables(whole).items())), *modules)


def run_kohort(*words: str, stdin: str | bytes = "", env: Mapping[str, str] | None = None) -> Finished:
    """Run one command line until it ends by itself, in a process forked from one that has imported the command."""
    whole = environment(env)
    code, out, err = forks_of(whole).run(
        words,
        stdin=stdin.encode() if isinstance(stdin, str) else stdin,
        environment=whole,
        timeout=TIMEOUT_SECONDS,
    )
    finished = Finished(code=code, out=out.decode(), err=err.decode())
    assert _TRACEBACK not in finished.err, finished.err
    return finished


@dataclass
class Running:
    """A command that goes on; its lines are gathered as they come, without what a busy machine makes a broker say."""

    process: subprocess.Popen[str] | ForkedProcess
    lines: list[str] = field(default_factory=list)
    complaints: list[str] = field(default_factory=list)
    _news: threading.Condition = field(default_factory=threading.Condition)
    _readers: list[threading.Thread] = field(default_factory=list)

    def __post_init__(self) -> None:
        for stream, into in ((self.process.stdout, self.lines), (self.process.stderr, self.complaints)):
            assert stream is not None
            self._readers.append(threading.Thread(target=self._read, args=(stream, into), daemon=True))
            self._readers[-1].start()

    def _read(self, stream: Iterator[str], into: list[str]) -> None:
        for line in stream:
            if STOOD_STILL in line:
                continue
            with self._news:
                into.append(line.rstrip("\n"))
                self._news.notify_all()
        with self._news:
            self._news.notify_all()

    def wait_for_lines(self, count: int, *, start: str = "", timeout: float = TIMEOUT_SECONDS) -> list[str]:
        """The lines of the output that start like this, as soon as there are `count` of them."""

        def found() -> list[str]:
            return [line for line in self.lines if line.startswith(start)]

        with self._news:
            came = self._news.wait_for(
                lambda: len(found()) >= count or not any(reader.is_alive() for reader in self._readers), timeout
            )
            assert came and len(found()) >= count, f"{count} lines {start!r}… expected: {self.lines} {self.complaints}"
            return found()

    def wait_for_complaints(self, count: int, *, timeout: float = TIMEOUT_SECONDS) -> list[str]:
        """The lines of the error output, as soon as there are `count` of them."""
        with self._news:
            came = self._news.wait_for(lambda: len(self.complaints) >= count, timeout)
            assert came, f"{count} complaints expected: {self.lines} {self.complaints}"
            return self.complaints

    def end(self, signal_number: int = signal.SIGINT, *, timeout: float = TIMEOUT_SECONDS) -> int:
        """Send a signal and wait until it has ended and all its output is here; the exit code."""
        self.process.send_signal(signal_number)
        return self.wait(timeout=timeout)

    def wait(self, *, timeout: float = TIMEOUT_SECONDS) -> int:
        """Wait until it has ended by itself; the exit code."""
        code = self.process.wait(timeout)
        for reader in self._readers:
            reader.join(timeout)
        return code


@contextmanager
def started_kohort(*words: str) -> Iterator[Running]:
    """A command line that runs until it is told to stop; killed if it is still there at the end."""
    whole = environment()
    with _running(forks_of(whole).open(words, environment=whole)) as running:
        yield running
    assert not any(_TRACEBACK in line for line in running.complaints), "\n".join(running.complaints)


def _hear_ctrl_c() -> None:
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def started_python(*arguments: str) -> AbstractContextManager[Running]:
    """A Python that runs until it is told to stop; killed if it is still there at the end."""
    return started([sys.executable, *arguments], env=environment())


def started(
    command: Sequence[str], *, env: Mapping[str, str], cwd: Path | None = None
) -> AbstractContextManager[Running]:
    """Any command that runs until it is told to stop; killed if it is still there at the end."""
    process = subprocess.Popen(
        command,
        cwd=cwd,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=env,
        start_new_session=True,
        # A shell lets its background jobs ignore Ctrl-C, and they hand that down to everything that they start.
        preexec_fn=_hear_ctrl_c,  # noqa: PLW1509 - it takes no lock that another thread could hold
    )
    return _running(process)


@contextmanager
def _running(process: subprocess.Popen[str] | ForkedProcess) -> Iterator[Running]:
    running = Running(process)
    try:
        yield running
    finally:
        if process.poll() is None:
            process.kill()
        running.wait()
        for stream in (process.stdout, process.stderr):
            if stream is not None:
                stream.close()
