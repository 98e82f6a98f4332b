"""Both brokers of a comparison as processes on loopback: kohort and Apache Kafka 4.3."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from report import APACHE_KAFKA

ROOT = Path(__file__).parent.parent
#: How long Maven may take for Apache Kafka's jars, once.
FETCH_SECONDS = 300
sys.path.insert(0, str(ROOT / "tests"))


class KohortServer:
    """`kohort up` with a data directory of its own (or in memory)."""

    name = "kohort"

    def __init__(
        self,
        properties: Mapping[str, object] | None = None,
        *,
        in_memory: bool = False,
        python: str = sys.executable,
        arguments: Sequence[str] = (),
    ) -> None:
        """`python`: the interpreter, which is that of the checkout whose broker it starts; `arguments` of `up`."""
        self._python = python
        self._arguments = list(arguments)
        self._properties = dict(properties or {})
        self.directory = None if in_memory else tempfile.mkdtemp(prefix="kohort-bench-")
        self.port = 0
        self.process: subprocess.Popen[str] | None = None
        self.ready_s = 0.0

    @property
    def bootstrap_servers(self) -> str:
        return f"127.0.0.1:{self.port}"

    def start(self) -> Self:
        command = [self._python, "-m", "kohort.cli.main", "up", "--port", "0"]
        command += ["--data-dir", self.directory] if self.directory else ["--in-memory"]
        for name, value in self._properties.items():
            command += ["--config", f"{name}={value}"]
        command += self._arguments
        began = time.monotonic()
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert self.process.stdout is not None
        for line in self.process.stdout:
            if line.startswith("ready "):
                self.port = int(line.rsplit(":", 1)[1])
                self.ready_s = time.monotonic() - began
                return self
        raise RuntimeError("kohort did not start")

    def stop(self) -> None:
        assert self.process is not None
        self.process.send_signal(signal.SIGTERM)
        try:
            self.process.wait(20)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait(10)
        if self.directory:
            shutil.rmtree(self.directory, ignore_errors=True)

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.stop()


def apache_left_out() -> list[str]:
    """A sentence why there is no Apache Kafka here; none if there is."""
    from support.peers.apache import KafkaUnavailableError, fetch_libs

    if shutil.which("java") is None:
        return ["left out: Apache Kafka (java is not installed)"]
    try:
        fetch_libs(timeout_seconds=FETCH_SECONDS)
    except KafkaUnavailableError as error:
        return [f"left out: Apache Kafka ({error})"]
    return []


def apache_server(properties: Mapping[str, object] | None = None) -> object:
    """An Apache Kafka 4.3 in the same shape, or a sentence why there is none."""
    if left_out := apache_left_out():
        return left_out[0]
    from support.peers.apache_broker import ApacheKafka

    class ApacheServer(ApacheKafka):
        name = APACHE_KAFKA

    # Its own default, which tests lower.
    return ApacheServer({"offsets.topic.num.partitions": 50, **(properties or {})})


def start_both(
    stack: ExitStack,
    properties: Mapping[str, object] | None = None,
    *,
    ours: Mapping[str, object] | None = None,
    peer: Mapping[str, object] | None = None,
) -> tuple[list[Any], list[str]]:
    """Both brokers until the stack is closed: (kohort and, if it can be had, Apache Kafka; sentences on what cannot).

    `properties` are for both, those of `ours` for kohort alone, those of `peer` for Apache Kafka alone.
    """
    theirs: Any = apache_server({**(properties or {}), **(peer or {})})
    servers: list[Any] = [stack.enter_context(KohortServer({**(properties or {}), **(ours or {})}))]
    if isinstance(theirs, str):
        return servers, [theirs]
    return [*servers, stack.enter_context(theirs)], []


def client_of(server: Any) -> str:
    """What members call themselves: by that name our broker holds their heartbeats; Apache Kafka holds none."""
    return "librdkafka" if isinstance(server, KohortServer) else ""


def cpu_s(pid: int) -> float:
    """User and system time of a process so far, seconds."""
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def exact_cpu_s(pid: int) -> float:
    """The same to the nanosecond, by the scheduler's count, of the threads that are there; seconds."""
    ran = (path.read_text().split()[0] for path in Path(f"/proc/{pid}/task").glob("*/schedstat"))
    return sum(map(int, ran)) / 1e9


def resident_mb(pid: int) -> float:
    """Resident memory of a process, megabytes."""
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 1e6
