"""A standalone Spark cluster on this machine: a master and two workers, each a JVM, executors theirs, each another."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable
from contextlib import ExitStack, suppress
from pathlib import Path
from types import TracebackType
from typing import IO, Final, Self

import kohort
from kohort.spark.driver.java import find_java_home
from support.peers.late_readers import ATTEMPTS, is_late
from support.waiting import until

WORKERS: Final = 2
#: Of several virtual machines on a machine with two cores.
PATIENCE_SECONDS: Final = 300.0


class StandaloneCluster:
    """Runs while it is entered; `submit` runs a file on it, as a user does.

    Args:
        folder: for logs and the workers' files.
        python: what executors run; by default the Python of this process.
    """

    def __init__(self, folder: Path, *, python: str = sys.executable) -> None:
        import pyspark

        self.home = Path(pyspark.__file__).parent
        self.folder = folder
        self.python = python
        self._open = ExitStack()
        self._processes: list[subprocess.Popen[bytes]] = []
        self.master = ""

    @property
    def environment(self) -> dict[str, str]:
        """Of every process: this Java, this machine's loopback, nothing of another Spark."""
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("SPARK_", "PYSPARK_"))}
        return {
            **kept,
            "JAVA_HOME": find_java_home(),
            "SPARK_LOCAL_IP": "127.0.0.1",
            "SPARK_DAEMON_MEMORY": "256m",
            "PYSPARK_PYTHON": self.python,
            "PYSPARK_DRIVER_PYTHON": sys.executable,
            "PYTHONPATH": str(Path(kohort.__file__).parents[1]),
        }

    def __enter__(self) -> Self:
        log = self._start("master", "org.apache.spark.deploy.master.Master", "--port", "0", "--webui-port", "0")
        self._until(lambda: self._find(log, r"Starting Spark master at (\S+)"), what="a master")
        self.master = self._find(log, r"Starting Spark master at (\S+)")
        for number in range(WORKERS):
            self._start(
                f"worker-{number}",
                "org.apache.spark.deploy.worker.Worker",
                *("--webui-port", "0", "--cores", "1", "--memory", "1g", "--work-dir", str(self.folder / f"w{number}")),
                self.master,
            )
        until(lambda: log.read_text().count("Registering worker") == WORKERS, what="workers", seconds=PATIENCE_SECONDS)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for process in reversed(self._processes):
            process.terminate()
        # The jobs first, which do not end by themselves while they wait for executors.
        self._open.close()
        for process in self._processes:
            process.wait(30)

    def submit(self, file: Path, *arguments: str, options: tuple[str, ...] = ()) -> Job:
        """`spark-submit` that file."""
        command = [str(self.home / "bin" / "spark-submit"), "--master", self.master]
        settings = {"spark.executor.memory": "512m", "spark.ui.enabled": "false", "spark.log.level": "ERROR"}
        command += [word for name, value in settings.items() for word in ("--conf", f"{name}={value}")]
        job = Job([*command, *options, str(file), *arguments], self.environment, self._writing("job"))
        self._open.callback(job.end)
        return job

    def kill_executor(self) -> int:
        """kill -9 of one of them; its process id."""
        pid = min(self.executors())
        os.kill(pid, signal.SIGKILL)
        return pid

    def executors(self) -> set[int]:
        """Processes that run tasks, children of the workers."""
        workers = {process.pid for process in self._processes[1:]}
        return {pid for pid in map(int, filter(str.isdigit, os.listdir("/proc"))) if _parent(pid) in workers}

    def _until(self, happened: Callable[[], object], *, what: str) -> None:
        until(happened, what=what, step=lambda: wait_a_moment(self._processes[0]), seconds=PATIENCE_SECONDS)

    def _start(self, name: str, main: str, *arguments: str) -> Path:
        command = [str(self.home / "bin" / "spark-class"), main, "--host", "127.0.0.1", *arguments]
        log = self._writing(name)
        self._processes.append(
            subprocess.Popen(command, env=self.environment, stdout=log, stderr=subprocess.STDOUT, cwd=self.folder)
        )
        return Path(log.name)

    def _writing(self, name: str) -> IO[bytes]:
        return self._open.enter_context(open(self.folder / f"{name}.log", "wb"))

    @staticmethod
    def _find(log: Path, pattern: str) -> str:
        found = re.search(pattern, log.read_text())
        return found.group(1) if found else ""


class Job:
    """A submitted program, and what it has printed. One whose reader was late is submitted again."""

    def __init__(self, command: list[str], environment: dict[str, str], log: IO[bytes]) -> None:
        self._command, self._environment, self._log = command, environment, log
        self._attempts = 0
        self._submit()

    def _submit(self) -> None:
        self._attempts += 1
        self._log.seek(0)
        self._log.truncate()
        self._process = subprocess.Popen(
            self._command, env=self._environment, stdout=self._log, stderr=subprocess.STDOUT
        )

    def until(self, line: str) -> None:
        """Return when it has printed that line."""
        until(lambda: line in self.lines(), what=line, step=self._wait_a_moment, seconds=PATIENCE_SECONDS)

    def _wait_a_moment(self) -> None:
        try:
            wait_a_moment(self._process)
        except AssertionError:
            if self._attempts == ATTEMPTS or not is_late("\n".join(self.lines())):
                raise
            self._submit()

    def lines(self) -> list[str]:
        """All of its output so far, errors too."""
        return Path(self._log.name).read_text().splitlines()

    def end(self) -> None:
        """Kill it, unless it has ended."""
        self._process.kill()
        self._process.wait(30)

    def wait(self) -> list[str]:
        """Its lines when it has ended well; else its last ones are the failure's message."""
        code = self._process.wait(PATIENCE_SECONDS)
        assert code == 0, "\n".join(self.lines()[-60:])
        return self.lines()


def wait_a_moment(process: subprocess.Popen[bytes]) -> None:
    """Leave the processors to the others; a process that has ended is an error."""
    with suppress(subprocess.TimeoutExpired):
        raise AssertionError(f"{process.args} has ended with {process.wait(0.3)}")


def _parent(pid: int) -> int:
    try:
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    except OSError:
        return 0
