"""A real Apache Kafka 4.3 (KRaft, broker and controller in one process) on loopback, for tests and benches."""

from __future__ import annotations

import base64
import shutil
import signal
import socket
import subprocess
import tempfile
import time
import uuid
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from support.peers.apache import CACHE, class_archive, in_cache, java_command, kafka_libs
from support.peers.kafka_tools import run_kafka_tool
from support.ports import quiet_port

_CLUSTER_ID = "AAAAAAAAAAAAAAAAAAAAAA"
#: A data directory that no broker has used yet.
BLANK: Final = CACHE / "blank"
#: Kafka's own topics have 50 partitions by default: to make their files takes seconds of every broker that has a group.
FEW_PARTITIONS: Final = {
    "offsets.topic.num.partitions": 6,
    "transaction.state.log.num.partitions": 6,
    "share.coordinator.state.topic.num.partitions": 6,
}


class ApacheKafka:
    """One broker of its own, formatted and empty; a context manager.

    Args:
        properties: broker configs beside those that it needs to run.
        directory: where its data goes; a temporary one by default.
        proxy_port: of a proxy that passes on to `proxied_port`; clients that begin there are sent there again.
    """

    def __init__(
        self,
        properties: Mapping[str, object] | None = None,
        *,
        directory: str | None = None,
        heap: str = "1g",
        proxy_port: int | None = None,
    ) -> None:
        kafka_libs()
        self._heap = heap
        self._is_temporary = directory is None
        self.directory = Path(directory or tempfile.mkdtemp(prefix="apache-kafka-"))
        self.port, controller = quiet_port(), quiet_port()
        self._quorum = f"1@127.0.0.1:{controller}"
        self._config = self.directory / "server.properties"
        self._logs = self.directory / "logs"
        settings: dict[str, object] = {
            "process.roles": "broker,controller",
            "node.id": 1,
            "controller.quorum.voters": self._quorum,
            "listeners": f"PLAINTEXT://127.0.0.1:{self.port},CONTROLLER://127.0.0.1:{controller}",
            "advertised.listeners": f"PLAINTEXT://127.0.0.1:{self.port}",
            "controller.listener.names": "CONTROLLER",
            "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT",
            "log.dirs": self._logs,
            "offsets.topic.replication.factor": 1,
            "transaction.state.log.replication.factor": 1,
            "transaction.state.log.min.isr": 1,
            "share.coordinator.state.topic.replication.factor": 1,
            "share.coordinator.state.topic.min.isr": 1,
            **FEW_PARTITIONS,
            **(properties or {}),
        }
        self.port = int(str(settings["listeners"]).partition(",")[0].rpartition(":")[2])
        #: Of the listener behind the proxy, if there is one.
        self.proxied_port = 0
        if proxy_port is not None:
            self.proxied_port = quiet_port()
            settings["listeners"] = f"{settings['listeners']},PROXIED://127.0.0.1:{self.proxied_port}"
            settings["advertised.listeners"] = f"{settings['advertised.listeners']},PROXIED://127.0.0.1:{proxy_port}"
            settings["listener.security.protocol.map"] = (
                f"{settings['listener.security.protocol.map']},PROXIED:PLAINTEXT"
            )
        self._config.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
        self._node_id = settings["node.id"]
        self.process: subprocess.Popen[bytes] | None = None

    @property
    def bootstrap_servers(self) -> str:
        """HOST:PORT."""
        return f"127.0.0.1:{self.port}"

    def follower_properties(self, *, node_id: int) -> dict[str, object]:
        """What makes another broker a part of this one's cluster, whose controller this one is."""
        port = quiet_port()
        return {
            "process.roles": "broker",
            "node.id": node_id,
            "controller.quorum.voters": self._quorum,
            "listeners": f"PLAINTEXT://127.0.0.1:{port}",
            "advertised.listeners": f"PLAINTEXT://127.0.0.1:{port}",
        }

    def start(self) -> Self:
        """Start it, unless it runs, and wait until its port is open."""
        if self.process is not None and self.process.poll() is None:
            return self
        if not self._logs.exists():
            with in_cache():
                self.format()
        self._run(java_command("kafka.Kafka", str(self._config), heap=self._heap))
        return self

    def format(self) -> None:
        """Give it an empty data directory; the first of all brokers leaves what all of them begin with."""
        if not BLANK.exists():
            # A Java of its own: the cache is locked, in which that of the other tools may have to be compiled.
            command = java_command("kafka.tools.StorageTool", "format", "-t", _CLUSTER_ID, "-c", str(self._config))
            subprocess.run(command, stdout=subprocess.DEVNULL, check=True, timeout=90)
            draft = Path(tempfile.mkdtemp(dir=CACHE, prefix="blank-"))
            shutil.move(self._logs, draft / "logs")
            draft.rename(BLANK)
        self._copy_blank()
        if not (archive := class_archive()).exists():
            self._write(archive)
            shutil.rmtree(self._logs)
            self._copy_blank()

    def _write(self, archive: Path) -> None:
        """Start and stop once, so that Java keeps the classes that this takes."""
        draft = archive.with_suffix(".draft")
        draft.unlink(missing_ok=True)
        program, *arguments = java_command("kafka.Kafka", str(self._config), heap=self._heap)
        self._run([program, f"-XX:ArchiveClassesAtExit={draft}", *arguments])
        self.stop()
        assert self.process is not None
        if self.process.returncode == 128 + signal.SIGTERM:
            # A Java that has written none goes without an empty one.
            draft.touch()
            draft.rename(archive)

    def _copy_blank(self) -> None:
        shutil.copytree(BLANK / "logs", self._logs)
        identity = base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
        facts = {"version": 1, "cluster.id": _CLUSTER_ID, "node.id": self._node_id, "directory.id": identity}
        (self._logs / "meta.properties").write_text("".join(f"{name}={value}\n" for name, value in facts.items()))

    def _run(self, command: list[str]) -> None:
        with (self.directory / "server.log").open("ab") as log:
            self.process = subprocess.Popen(command, stdout=log, stderr=log, start_new_session=True)
        deadline = time.monotonic() + 90
        while time.monotonic() < deadline:
            if self.process.poll() is not None:
                break
            with socket.socket() as probe:
                probe.settimeout(1)
                if probe.connect_ex(("127.0.0.1", self.port)) == 0:
                    return
            time.sleep(0.05)
        raise RuntimeError(f"Apache Kafka did not start: {(self.directory / 'server.log').read_text()[-2000:]}")

    def stop(self, *, kill: bool = False) -> None:
        """Stop it by SIGTERM, or SIGKILL."""
        if self.process is None or self.process.poll() is not None:
            return
        self.process.send_signal(signal.SIGKILL if kill else signal.SIGTERM)
        try:
            self.process.wait(60)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait(10)

    def tool(self, main_class: str, *arguments: str, timeout: float = 90) -> str:
        """Run one of Kafka's command line tools; what it prints."""
        return run_kafka_tool(main_class, *arguments, timeout=timeout)

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.stop()
        if self._is_temporary:
            shutil.rmtree(self.directory, ignore_errors=True)
