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
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import cache
from types import ModuleType
from typing import Any, Final

#: Longer than any request, bytes: words and environment of one command.
_REQUEST_LIMIT: Final = 1 << 20
#: A Python reads these when it starts.
_OF_PYTHON: Final = ("PYTHON", "LC_", "LANG", "COVERAGE")


def python_variables(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the variables that a Python reads when it starts."""
    return {name: value for name, value in environment.items() if name.startswith(_OF_PYTHON)}


class Forks:
    """The process that forks, as this process sees it."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        self._socket, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _REQUEST_LIMIT)
        # The end of this process ends the other one.
        atexit.register(self._socket.close)
        with theirs:
            command = [sys.executable, __file__]
            actions = [(os.POSIX_SPAWN_DUP2, theirs.fileno(), 0)]
            os.posix_spawn(command[0], command, environment, file_actions=actions, setsid=True)

    def run(
        self,
        words: Sequence[str],
        *,
        stdin: bytes = b"",
        environment: Mapping[str, str],
        timeout: float,
        script: str | None = None,
    ) -> tuple[int, bytes, bytes]:
        """Run one command line, or a script, until it ends; return its exit code, output and error output."""
        reads, writes = zip(*(os.pipe() for _ in range(3)), strict=True)
        ours, status = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        given, out, err = os.fdopen(writes[0], "wb"), os.fdopen(reads[1], "rb"), os.fdopen(reads[2], "rb")
        with ours, given, out, err:
            theirs = [reads[0], writes[1], writes[2], status.detach()]
            request = json.dumps([script, list(words), os.getcwd(), dict(environment)]).encode()
            try:
                socket.send_fds(self._socket, [request], theirs)
            finally:
                for each in theirs:
                    os.close(each)
            said: list[bytes] = [b"", b""]
            readers = [
                threading.Thread(target=_read_into, args=(said, place, stream.read), daemon=True)
                for place, stream in enumerate((out, err))
            ]
            for reader in readers:
                reader.start()
            process = int(ours.recv(64))
            ours.settimeout(timeout)
            # A command may end without reading all of it.
            with suppress(BrokenPipeError):
                given.write(stdin)
                given.flush()
            with suppress(BrokenPipeError):
                given.close()
            try:
                code = int(ours.recv(64))
            except TimeoutError:
                # A Python that has a handler of faults says where each of its threads hangs.
                os.kill(process, signal.SIGABRT)
                for reader in readers:
                    reader.join(timeout)
                raise subprocess.TimeoutExpired(["kohort", *words], timeout, said[0], said[1]) from None
            for reader in readers:
                reader.join(timeout)
        return code, said[0], said[1]


def _read_into(said: list[bytes], place: int, read: Callable[[], bytes]) -> None:
    said[place] = read()


@cache
def forks(environment: tuple[tuple[str, str], ...]) -> Forks:
    """Return the process that forks for commands whose Python is configured so; it is started by the first of them."""
    return Forks({**os.environ, **dict(environment)})


def _serve(requests: socket.socket) -> tuple[str | None, list[str], str, dict[str, str]] | None:
    """Fork for each request; `None` at the end of this process, the request in the process that is to run it."""
    while True:
        request, descriptors, _, _ = socket.recv_fds(requests, _REQUEST_LIMIT, 4)
        if not request:
            return None
        # This process has the processor time of the commands: those that wait for them are waited for in the end.
        with suppress(ChildProcessError):
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        if os.fork() == 0:
            requests.close()
            return _run_forked(json.loads(request), descriptors)
        for each in descriptors:
            os.close(each)


def _run_forked(request: Any, descriptors: list[int]) -> tuple[str | None, list[str], str, dict[str, str]]:
    *streams, status = descriptors
    process = os.fork()
    if process:
        for each in streams:
            os.close(each)
        os.write(status, b"%d" % process)
        _, ended = os.waitpid(process, 0)
        os.write(status, b"%d" % os.waitstatus_to_exitcode(ended))
        os._exit(0)
    os.close(status)
    for number, each in enumerate(streams):
        os.dup2(each, number)
        os.close(each)
    script, words, folder, environment = request
    return script, words, folder, environment


def _run_script(script: str) -> int:
    """Run it in a module of its own, as `python -c` does."""
    sys.modules["__main__"] = main = ModuleType("__main__")
    sys.argv = ["-c"]
    sys.path.insert(0, "")
    exec(compile(script, "<string>", "exec"), vars(main))
    return 0


def _main() -> int:
    from kohort import Admin, Broker, Consumer, Producer
    from kohort.cli import main as cli

    cli.build_parser()
    assert Admin and Broker and Consumer and Producer
    # The memory of the fork stays that of its parent where no collection touches it.
    gc.freeze()
    assert threading.active_count() == 1, "a fork has only the thread that forks"
    command = _serve(socket.socket(fileno=os.dup(0)))
    if command is None:
        return 0
    script, words, folder, environment = command
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(environment)
    # A shell lets its background jobs ignore Ctrl-C.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    if script is not None:
        return _run_script(script)
    sys.argv = [cli.__file__, *words]
    return cli.main()


if __name__ == "__main__":
    sys.path.remove(os.path.dirname(__file__))
    sys.exit(_main())
