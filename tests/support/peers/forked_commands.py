"""A process beside the tests that has imported the command `kohort` once, and forks for each command line or script.

Most of the processor time of a command is what Python and the imports take at its start. A command has a process of its
own all the same: streams, folder, environment, session and the end of its interpreter.

Laws: nothing but imports happens before the fork. A command is forked from a Python that is configured as its own
would be.
"""

from __future__ import annotations

import atexit
import gc
import json
import os
import select
import signal
import socket
import subprocess
import sys
import threading
import uuid
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import cache
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import IO, Any, Final, Self

#: Longer than any request, bytes: words and environment of one command.
_REQUEST_LIMIT: Final = 1 << 20
#: Hands a shell's streams on, with the words behind the name of the process that forks, and ends as the command does.
_CLIENT: Final = """
import array, json, os, sys
from _socket import AF_UNIX, SCM_RIGHTS, SOCK_SEQPACKET, SOL_SOCKET, socket, socketpair
server, (mine, theirs) = socket(AF_UNIX, SOCK_SEQPACKET), socketpair(AF_UNIX, SOCK_SEQPACKET)
server.connect("\\0" + sys.argv[1])
streams = array.array("i", [0, 1, 2, theirs.fileno()])
request = json.dumps([None, None, sys.argv[2:], os.getcwd(), dict(os.environ)]).encode()
server.sendmsg([request], [(SOL_SOCKET, SCM_RIGHTS, streams)])
theirs.close()
mine.recv(64)
code = int(mine.recv(64))
os._exit(code if code >= 0 else 128 - code)
"""
#: A Python reads these when it starts.
_OF_PYTHON: Final = ("PYTHON", "LC_", "LANG", "COVERAGE")


def python_variables(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the variables that a Python reads when it starts."""
    return {name: value for name, value in environment.items() if name.startswith(_OF_PYTHON)}


class ForkedProcess:
    """A forked process, as `subprocess.Popen` has its own."""

    def __init__(self, pid: int, status: socket.socket, streams: Sequence[IO[str] | None]) -> None:
        self.pid: Final = pid
        self.returncode: int | None = None
        self.stdin, self.stdout, self.stderr = streams
        self._status: Final = status
        self._waits: Final = threading.Lock()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for stream in (self.stdin, self.stdout, self.stderr):
            if stream is not None:
                stream.close()
        self.wait()

    def poll(self) -> int | None:
        """Return its exit code, `None` while it runs."""
        with suppress(subprocess.TimeoutExpired):
            self.wait(0.0)
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        """Wait for its end; return its exit code."""
        with self._waits:
            if self.returncode is None:
                self._status.settimeout(timeout)
                try:
                    self.returncode = int(self._status.recv(64))
                except (TimeoutError, BlockingIOError):
                    raise subprocess.TimeoutExpired(f"process {self.pid}", timeout or 0.0) from None
                self._status.close()
            return self.returncode

    def send_signal(self, number: int) -> None:
        """Send it a signal, unless it has ended."""
        if self.poll() is None:
            with suppress(ProcessLookupError):
                os.kill(self.pid, number)

    def kill(self) -> None:
        """Kill it, unless it has ended."""
        self.send_signal(signal.SIGKILL)


class Forks:
    """The process that forks, as this process sees it."""

    def __init__(self, environment: Mapping[str, str], modules: Sequence[str] = ()) -> None:
        self._socket, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _REQUEST_LIMIT)
        # The end of this process ends the other one.
        atexit.register(self._socket.close)
        self._is_ready = False
        self._name: Final = f"kohort-forks-{uuid.uuid4().hex}"
        with theirs:
            command = [sys.executable, __file__, self._name, *modules]
            actions = [(os.POSIX_SPAWN_DUP2, theirs.fileno(), 0)]
            os.posix_spawn(command[0], command, environment, file_actions=actions, setsid=True)

    def shell_words(self) -> list[str]:
        """Return the beginning of a command line that has a command forked: its words follow."""
        if not self._is_ready:
            self._is_ready = bool(self._socket.recv(64))
        return [sys.executable, "-I", "-S", "-c", _CLIENT, self._name]

    def start(
        self,
        words: Sequence[str],
        *,
        environment: Mapping[str, str],
        descriptors: Sequence[int],
        script: str | Path | None = None,
        streams: Sequence[IO[str] | None] = (None, None, None),
    ) -> ForkedProcess:
        """Start one command line, or a script with its arguments.

        Args:
            descriptors: its streams, which are closed here.
            streams: the other ends of its streams.
        """
        ours, status = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        theirs = [*descriptors, status.detach()]
        path = str(script) if isinstance(script, Path) else None
        text = script.read_text() if isinstance(script, Path) else script
        request = json.dumps([text, path, list(words), os.getcwd(), dict(environment)]).encode()
        try:
            socket.send_fds(self._socket, [request], theirs)
        finally:
            for each in theirs:
                os.close(each)
        return ForkedProcess(int(ours.recv(64)), ours, streams)

    def open(
        self,
        words: Sequence[str],
        *,
        environment: Mapping[str, str],
        script: str | Path | None = None,
        has_input: bool = False,
        errors: int | None = None,
    ) -> ForkedProcess:
        """Start one with pipes for its output, its input if it has one, and for errors if they go nowhere else."""
        theirs: list[int] = []
        streams: list[IO[str] | None] = []
        if has_input:
            reads, writes = os.pipe()
            theirs.append(reads)
            streams.append(os.fdopen(writes, "w", encoding="utf-8"))
        else:
            theirs.append(os.open(os.devnull, os.O_RDONLY))
            streams.append(None)
        for place in (None, errors):
            if place is None:
                reads, writes = os.pipe()
                theirs.append(writes)
                streams.append(os.fdopen(reads, encoding="utf-8"))
            else:
                theirs.append(os.dup(place))
                streams.append(None)
        return self.start(words, environment=environment, descriptors=theirs, script=script, streams=streams)

    def run(
        self,
        words: Sequence[str],
        *,
        stdin: bytes = b"",
        environment: Mapping[str, str],
        timeout: float,
        script: str | Path | None = None,
    ) -> tuple[int, bytes, bytes]:
        """Run one command line, or a script, until it ends; return its exit code, output and error output."""
        reads, writes = zip(*(os.pipe() for _ in range(3)), strict=True)
        given, out, err = os.fdopen(writes[0], "wb"), os.fdopen(reads[1], "rb"), os.fdopen(reads[2], "rb")
        with given, out, err:
            theirs = [reads[0], writes[1], writes[2]]
            process = self.start(words, environment=environment, descriptors=theirs, script=script)
            said: list[bytes] = [b"", b""]
            readers = [
                threading.Thread(target=_read_into, args=(said, place, stream.read), daemon=True)
                for place, stream in enumerate((out, err))
            ]
            for reader in readers:
                reader.start()
            # A command may end without reading all of it.
            with suppress(BrokenPipeError):
                given.write(stdin)
                given.flush()
            with suppress(BrokenPipeError):
                given.close()
            try:
                code = process.wait(timeout)
            except subprocess.TimeoutExpired:
                # A Python that has a handler of faults says where each of its threads hangs.
                process.send_signal(signal.SIGABRT)
                for reader in readers:
                    reader.join(timeout)
                raise subprocess.TimeoutExpired(["kohort", *words], timeout, said[0], said[1]) from None
            for reader in readers:
                reader.join(timeout)
        return code, said[0], said[1]


def _read_into(said: list[bytes], place: int, read: Callable[[], bytes]) -> None:
    said[place] = read()


@cache
def forks(environment: tuple[tuple[str, str], ...], *modules: str) -> Forks:
    """Return the process that forks for commands whose Python is configured so; it is started by the first of them.

    Args:
        modules: what it imports beside the command.
    """
    return Forks({**os.environ, **dict(environment)}, modules)


def _serve(requests: socket.socket, others: socket.socket) -> Any:
    """Fork for each request; `None` at the end of this process, the request in the process that is to run it."""
    while True:
        readable, _, _ = select.select([requests, others], [], [])
        place = requests if requests in readable else others.accept()[0]
        request, descriptors, _, _ = socket.recv_fds(place, _REQUEST_LIMIT, 4)
        if place is not requests:
            place.close()
        elif not request:
            return None
        # This process has the processor time of the commands: those that wait for them are waited for in the end.
        with suppress(ChildProcessError):
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        if len(descriptors) == 4 and os.fork() == 0:
            requests.close()
            others.close()
            return _run_forked(json.loads(request), descriptors)
        for each in descriptors:
            os.close(each)


def _run_forked(request: Any, descriptors: list[int]) -> Any:
    *streams, status = descriptors
    process = os.fork()
    if process:
        for each in streams:
            os.close(each)
        # Where nobody hears of it any more it is waited for all the same.
        with suppress(BrokenPipeError):
            os.write(status, b"%d" % process)
        _, ended = os.waitpid(process, 0)
        with suppress(BrokenPipeError):
            os.write(status, b"%d" % os.waitstatus_to_exitcode(ended))
        os._exit(0)
    os.setsid()
    os.close(status)
    for number, each in enumerate(streams):
        os.dup2(each, number)
        os.close(each)
    return request


def _run_script(script: str, path: str | None, words: Sequence[str]) -> int:
    """Run it in a module of its own, as `python -c` does, or as the file that it comes from."""
    sys.modules["__main__"] = main = ModuleType("__main__")
    if path is not None:
        main.__file__ = path
    sys.argv = [path or "-c", *words]
    sys.path.insert(0, os.path.dirname(path or ""))
    exec(compile(script, path or "<string>", "exec"), vars(main))
    return 0


def _main() -> int:
    from kohort import Admin, Broker, Consumer, Producer
    from kohort.cli import main as cli

    for name in sys.argv[2:]:
        import_module(name)
    cli.build_parser()
    assert Admin and Broker and Consumer and Producer
    # The memory of the fork stays that of its parent where no collection touches it.
    gc.freeze()
    assert threading.active_count() == 1, "a fork has only the thread that forks"
    others = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    others.bind(f"\0{sys.argv[1]}")
    others.listen()
    requests = socket.socket(fileno=os.dup(0))
    requests.send(b"ready")
    command = _serve(requests, others)
    if command is None:
        return 0
    script, path, words, folder, environment = command
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(environment)
    # A shell lets its background jobs ignore Ctrl-C.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    if script is not None:
        return _run_script(script, path, words)
    sys.argv = [cli.__file__, *words]
    return cli.main()


if __name__ == "__main__":
    sys.path.remove(os.path.dirname(__file__))
    sys.exit(_main())
