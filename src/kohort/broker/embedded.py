"""A broker started from Python in one line, in a thread or in a child process, and its stop at exit.

Laws: an error that keeps a broker from starting is raised in the caller. A broker that is not stopped ends with the
program that started it. It ends cleanly, unless it was killed together with the program.
"""

from __future__ import annotations

import atexit
import contextlib
import json
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import field, replace
from os import PathLike, environ, pathsep, read
from pathlib import Path
from types import TracebackType
from typing import IO, TYPE_CHECKING, Final, Self, TypeVar

from kohort.base import without_collections
from kohort.base.options import Password, as_text
from kohort.base.values import value
from kohort.broker.limits.connection_quotas import raise_limit
from kohort.broker.options.first_users import FirstUser, check_first_users
from kohort.broker.options.listeners import address
from kohort.broker.options.settings import HTTP, HTTP_LISTEN, BrokerSettings
from kohort.errors import ConfigError, KohortError, StateError, StorageError

if TYPE_CHECKING:
    from asyncio import AbstractEventLoop

    from kohort.base.clock import WallClock
    from kohort.broker.http import HttpMaker
    from kohort.broker.server import Server

#: The listener of a broker that is started from Python without a config `listeners`.
ANY_PORT: Final = "PLAINTEXT://127.0.0.1:0"
#: The time limit of a start, which reads a data directory that may be large.
START_TIMEOUT_SECONDS: Final = 120.0
#: The time limit of a stop; then the process is killed.
STOP_TIMEOUT_SECONDS: Final = 20.0
#: Exit code after the disk refused a sync (EX_IOERR).
EXIT_DISK_FAILED: Final = 74
#: Exit code after a bug (EX_SOFTWARE).
EXIT_BUG: Final = 70


R = TypeVar("R")
#: Name of a listener -> the host and the port that it listens on.
Addresses = dict[str, tuple[str, int]]


@value
class Given:
    """The arguments of a broker, as they are sent to its process."""

    config: Mapping[str, object] = field(default_factory=dict, repr=False)
    host: str | None = None
    port: int | None = None
    data_dir: str | None = None

    def as_line(self) -> str:
        """Return one line of JSON; most values are texts, as in a file."""
        config = {name: _as_json(value) for name, value in self.config.items()}
        return json.dumps({"config": config, "host": self.host, "port": self.port, "data_dir": self.data_dir}) + "\n"

    @classmethod
    def of_line(cls, line: str) -> Given:
        """Parse a line that `as_line` has returned."""
        return cls(**json.loads(line))


def _as_json(value: object) -> object:
    if isinstance(value, Password):
        return value.value
    return value if value is None or isinstance(value, int | float) else as_text(value)


def tell_addresses(addresses: Mapping[str, tuple[str, int]]) -> str:
    """Return HOST:PORT of the first listener, then NAME=HOST:PORT of each further one.

    >>> tell_addresses({"INSIDE": ("127.0.0.1", 9092), "OUTSIDE": ("::", 9093)})
    '127.0.0.1:9092 OUTSIDE=[::]:9093'
    """
    first, *others = addresses.items()
    return " ".join((address(*first[1]), *(f"{name}={address(*each)}" for name, each in others)))


def _parse_addresses(told: str, names: Sequence[str]) -> Addresses:
    """Parse the result of `tell_addresses` for listeners of these names."""
    found = {}
    for name, word in zip(names, told.split(" "), strict=True):
        host, _, port = word.removeprefix(f"{name}=").rpartition(":")
        found[name] = host.strip("[]"), int(port)
    return found


class Broker:
    """A Kafka-compatible broker for as long as you need it.

    >>> with Broker() as broker:
    ...     broker.bootstrap_servers.startswith("127.0.0.1:")
    True

    Args:
        data_dir: where topics and groups are kept; `None` keeps them in memory.
        port: the port to listen on; 0 takes a free one, and the same one after a restart. By default that of the
            config `listeners`, or else 0.
        host: the address to listen on; by default that of the config `listeners`, or else 127.0.0.1. An address that
            other machines can reach needs a login and TLS, or the config `allow.anonymous.beyond.loopback`. With that
            config every host that reaches the broker may do everything, and a warning says so
            (`event=open_to_network`).
        process: whether the broker runs in its own process, which `kill` can end at once.
        config: broker configs by Kafka's names, dotted or with underscores.
    """

    def __init__(
        self,
        *,
        data_dir: str | PathLike[str] | None = None,
        port: int | None = None,
        host: str | None = None,
        process: bool = False,
        config: Mapping[str, object] | None = None,
    ) -> None:
        if not isinstance(process, bool):
            raise ConfigError(f"process cannot be {process!r}: True or False is expected")
        if isinstance(config, Mapping | None):
            config = {"listeners": ANY_PORT, **(config or {})}
        self._settings = BrokerSettings.of(config, host=host, port=port, data_dir=data_dir)
        self._given = Given(config=config, host=host, port=port, data_dir=self._settings.data_dir)
        self._is_process: Final = process
        self._running: _InThread | _InProcess | None = None
        #: The clock of a broker in this process; `None`: the clock of this machine.
        self._clock: WallClock | None = None
        #: Listener -> its address, in the order of the listeners; empty before the first start.
        self._addresses: Addresses = {}
        #: The lock of the thread that starts or stops the broker.
        self._changing: Final = threading.RLock()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.stop()

    def start(self) -> Self:
        """Start the broker; clients can connect when this returns."""
        with self._changing:
            if self._running is not None:
                raise StateError("this broker is running already")
            running: _InProcess | _InThread
            if self._is_process:
                running = _InProcess(self._settings, self._given)
            else:
                running = _InThread(self._settings, self._clock)
            self._addresses = running.start()
            self._running = running
            self._keep_ports()
        return self

    def _keep_ports(self) -> None:
        """Keep the chosen free ports for a restart, so that clients find the broker again."""
        settings, http = self._settings, self._settings.http_listener
        if all(each.port for each in settings.listeners) and (http is None or http.port):
            return
        ports = {name: port for name, (_, port) in self._addresses.items()}
        listeners = tuple(replace(each, port=ports[each.name]) for each in settings.listeners)
        kept = {"listeners": ",".join(each.url for each in listeners)}
        if http is not None:
            kept[HTTP_LISTEN] = address(http.host, ports[HTTP])
        self._settings = replace(settings, listeners=listeners, values={**settings.values, **kept})
        given = {name: value for name, value in self._given.config.items() if name.replace("_", ".") not in kept}
        self._given = replace(self._given, config={**given, **kept}, host=None, port=None)

    def stop(self) -> None:
        """Stop the broker cleanly; raise the error with which it has failed, if any.

        This has no effect if the broker does not run.
        """
        with self._changing:
            running, self._running = self._running, None
            if running is not None:
                running.stop()

    def kill(self) -> None:
        """End the process at once, as a crash would (SIGKILL); only with `process=True`."""
        if not isinstance(self._running, _InProcess):
            raise StateError("only a running broker with process=True can be killed")
        self._running.kill()
        self._running = None

    def _carry_out(self, work: Callable[[Server], R]) -> R:
        """Call `work` on the thread of a broker in this process; return its value."""
        if not isinstance(self._running, _InThread):
            raise StateError("this needs a broker that runs, and in this process: without process=True")
        return self._running.carry_out(work)

    @property
    def host(self) -> str:
        """The address that the first listener listens on."""
        return self._started()[0]

    @property
    def port(self) -> int:
        """The port that the first listener listens on."""
        return self._started()[1]

    @property
    def bootstrap_servers(self) -> str:
        """The HOST:PORT of the first listener, for the clients' `bootstrap_servers`."""
        return address(*self._started())

    @property
    def http_address(self) -> str:
        """The HOST:PORT of /metrics, /healthz and /readyz; `StateError` without the config `http.listen`."""
        self._started()
        if HTTP not in self._addresses:
            raise StateError("this broker speaks no HTTP: give the config http.listen, as 127.0.0.1:0")
        return address(*self._addresses[HTTP])

    def bootstrap_of(self, listener: str) -> str:
        """Return the HOST:PORT of a listener, for the clients' `bootstrap_servers`."""
        self._started()
        if not isinstance(listener, str) or listener.upper() not in self._addresses:
            known = ", ".join(self._addresses)
            raise ConfigError(f"there is no listener {listener!r}: one of {known} is expected")
        return address(*self._addresses[listener.upper()])

    @property
    def process_id(self) -> int | None:
        """The id of the broker's own process, `None` if it runs in this process."""
        return self._running.process_id if self._running is not None else None

    def _started(self) -> tuple[str, int]:
        if not self._addresses:
            raise StateError("this broker was not started; use it in a with statement or call start()")
        return next(iter(self._addresses.values()))


class _InThread:
    """A broker in a background thread with its own event loop."""

    process_id = None

    def __init__(self, settings: BrokerSettings, clock: WallClock | None) -> None:
        self._settings = settings
        self._clock = clock
        #: Set while it runs.
        self._server: Server | None = None
        self._loop: AbstractEventLoop | None = None
        self._ready: Future[Addresses] = Future()
        self._request_stop: Callable[[], object] = lambda: None
        self._forget_exit: Callable[[], None] = lambda: None
        self._failure: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name="kohort-broker", daemon=True)

    def start(self) -> Addresses:
        self._thread.start()
        addresses = self._ready.result(START_TIMEOUT_SECONDS)
        self._forget_exit = stop_at_exit(self._thread, self._request_stop)
        return addresses

    def stop(self) -> None:
        self._request_stop()
        self._thread.join()
        self._forget_exit()
        if self._failure is not None:
            raise self._failure

    def carry_out(self, work: Callable[[Server], R]) -> R:
        """Call `work` on the broker's thread; return its value, or raise its error."""
        server, loop, done = self._server, self._loop, Future[R]()
        assert server is not None and loop is not None, "it was started"

        def do() -> None:
            try:
                done.set_result(work(server))
            except BaseException as error:  # raised in the calling thread
                done.set_exception(error)

        loop.call_soon_threadsafe(do)
        return done.result(STOP_TIMEOUT_SECONDS)

    def _run(self) -> None:
        try:
            with without_collections():
                from kohort.broker.server import serve

            serve(self._settings, on_ready=self._announce, clock=self._clock)
        except BaseException as failure:  # raised in the thread that starts or stops the broker
            if self._ready.done():
                self._failure = failure
            else:
                self._ready.set_exception(failure)

    def _announce(self, server: Server, loop: AbstractEventLoop) -> None:
        def request_stop() -> None:
            if not loop.is_closed():
                loop.call_soon_threadsafe(server.request_stop)

        self._server, self._loop = server, loop
        self._request_stop = request_stop
        self._ready.set_result(dict(server.addresses))


class _InProcess:
    """A broker in a child process, which stops when its standard input ends."""

    def __init__(self, settings: BrokerSettings, given: Given) -> None:
        self._settings = settings
        self._given = given
        self._child: subprocess.Popen[str] | None = None

    @property
    def process_id(self) -> int | None:
        return None if self._child is None else self._child.pid

    def start(self) -> Addresses:
        self._child = subprocess.Popen(
            [sys.executable, "-m", "kohort.broker", "--given-by-stdin", "--stop-on-eof"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=_environment(),
        )
        stdin = self._child.stdin
        assert stdin is not None
        # The configs may have passwords, and every user of this machine sees the arguments of a process.
        with contextlib.suppress(BrokenPipeError):
            stdin.write(self._given.as_line())
            stdin.flush()
        line = self._first_line()
        word, _, rest = line.partition(" ")
        if word == "ready":
            names = [each.name for each in self._settings.listeners]
            return _parse_addresses(rest, [*names, HTTP] if self._settings.http_listener else names)
        self.kill()
        from kohort.broker.server import BrokerStartError

        raise BrokerStartError(rest if word == "error" else "the broker's process ended before it was ready")

    def stop(self) -> None:
        child = self._child
        assert child is not None and child.stdin is not None
        child.stdin.close()
        try:
            code = child.wait(STOP_TIMEOUT_SECONDS)
        except subprocess.TimeoutExpired:
            child.kill()
            code = child.wait()
        self._close_pipes()
        if code == EXIT_DISK_FAILED:
            raise KohortError("the broker stopped because its disk failed; its log says which file")
        if code != 0:
            raise KohortError(f"the broker's process ended with code {code}; its log says why")

    def kill(self) -> None:
        assert self._child is not None
        self._child.kill()
        self._child.wait()
        self._close_pipes()

    def _first_line(self) -> str:
        """Read the child's first line.

        Returns:
            The line, empty if the child ended; after `START_TIMEOUT_SECONDS`, an error line.
        """
        assert self._child is not None and self._child.stdout is not None
        stdout: IO[str] = self._child.stdout
        said: Future[str] = Future()
        threading.Thread(target=lambda: said.set_result(stdout.readline()), daemon=True).start()
        try:
            return said.result(START_TIMEOUT_SECONDS).rstrip("\n")
        except TimeoutError:
            return f"error the broker was not ready within {START_TIMEOUT_SECONDS:.0f} s"

    def _close_pipes(self) -> None:
        assert self._child is not None
        for pipe in (self._child.stdin, self._child.stdout):
            if pipe is not None:
                pipe.close()


def _environment() -> dict[str, str]:
    """Return this process's environment, with the running kohort first in PYTHONPATH."""
    source = str(Path(__file__).resolve().parents[2])
    # The child has to run the same kohort as this process, installed or not.
    path = environ.get("PYTHONPATH")
    return {**environ, "PYTHONPATH": source if not path else f"{source}{pathsep}{path}"}


def serve_in_foreground(
    *,
    data_dir: str | None = None,
    host: str | None = None,
    port: int | None = None,
    config: Mapping[str, object] | None = None,
    first_users: Iterable[FirstUser] = (),
    on_ready: Callable[[Addresses], None],
    stop_on_eof: bool = False,
    http_maker: HttpMaker | None = None,
) -> int:
    """Run a broker in the main thread until SIGINT or SIGTERM.

    With `stop_on_eof` the broker stops at the end of its standard input, when the program that started it has ended. An
    error that keeps the broker from starting is raised. `http_maker` is that of `serve`.

    Returns:
        The exit code: 0 after a clean stop, 74 if the disk failed, 70 after a bug; both are logged.
    """
    settings = BrokerSettings.of(config, host=host, port=port, data_dir=data_dir)
    settings = replace(settings, first_users=check_first_users(first_users))
    with without_collections():
        from kohort.broker.server import serve

    write_log_to_stderr()
    raise_limit()
    if stop_on_eof:
        # Ctrl-C sends SIGINT to both processes; the other program decides what to do.
        signal.signal(signal.SIGINT, signal.SIG_IGN)
    is_ready, starting = False, contextlib.ExitStack()

    def announce(server: Server, loop: AbstractEventLoop) -> None:
        nonlocal is_ready
        is_ready = True
        starting.close()
        server.hide_from_collector()
        if stop_on_eof:
            _watch_stdin(loop, server)
        on_ready(server.addresses)

    try:
        starting.enter_context(without_collections())
        stop_on = [signal.SIGTERM] if stop_on_eof else [signal.SIGINT, signal.SIGTERM]
        serve(settings, on_ready=announce, stop_on=stop_on, http_maker=http_maker)
    except Exception as failure:
        if not is_ready:
            raise
        return _report_failure(failure)
    finally:
        starting.close()
    return 0


def write_log_to_stderr() -> None:
    """Write the warnings and errors of kohort to standard error, unless the program has set up logging.

    One event is one line: time, level, `event=... key=value`.
    """
    import logging
    import time

    package = logging.getLogger("kohort")
    if package.hasHandlers():
        return
    formatter = logging.Formatter("%(asctime)s.%(msecs)03dZ %(levelname)s %(message)s", "%Y-%m-%dT%H:%M:%S")
    formatter.converter = time.gmtime
    # The handler has no level: the levels of the loggers decide, and an administrator may change them.
    handler = logging.StreamHandler()
    handler.setFormatter(formatter)
    package.addHandler(handler)


def _report_failure(failure: Exception) -> int:
    if isinstance(failure, StorageError):
        print(f"kohort broker stopped: {failure}", file=sys.stderr)  # noqa: T201
        return EXIT_DISK_FAILED
    print(f"kohort broker stopped because of a bug: {failure!r}", file=sys.stderr)  # noqa: T201
    return EXIT_BUG


def _watch_stdin(loop: AbstractEventLoop, server: Server) -> None:
    """Stop the broker when standard input ends."""

    def wait_for_end() -> None:
        while read(sys.stdin.fileno(), 4096):
            pass
        if not loop.is_closed():
            loop.call_soon_threadsafe(server.request_stop)

    threading.Thread(target=wait_for_end, name="kohort-stdin", daemon=True).start()


# The stop of brokers in threads at the exit of a program that has not stopped them.
#
# A loop that still runs while the interpreter shuts down ends the process by a segmentation fault, and the logs of the
# broker would have to be recovered.
#
# Laws: open clients are closed before the broker (`kohort.client.core.thread`). A disk that hangs delays the exit of
# the program for `EXIT_SECONDS` at most. A forked child stops nothing of its parent's.

#: The time that each broker may delay the exit of a program.
EXIT_SECONDS: Final = 20.0


def stop_at_exit(thread: threading.Thread, request_stop: Callable[[], object]) -> Callable[[], None]:
    """Stop a broker at exit; return a function to call once the broker was stopped before.

    Args:
        thread: the broker's thread, which ends when the broker has stopped.
        request_stop: requests the stop of the broker.
    """

    def stop() -> None:
        # In a forked child the thread does not run.
        if thread.is_alive():
            request_stop()
            thread.join(EXIT_SECONDS)

    def forget() -> None:
        atexit.unregister(stop)

    atexit.register(stop)
    return forget
