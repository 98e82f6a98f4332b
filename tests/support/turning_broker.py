"""A broker in a process of its own that tells its longest turn in processor time, which noise leaves alone.

Run as a program it serves; each line on its input is a command: `mark` prints the longest turn since the last mark,
`work N` works for N milliseconds in one turn of the loop.
"""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from selectors import SelectorKey
from types import TracebackType
from typing import Final, NamedTuple, Self

from kohort.broker.options.settings import BrokerSettings
from kohort.broker.server import Server, run_broker
from kohort.broker.turns.loopwatch import LoopWatch, WatchedSelector


class Turn(NamedTuple):
    """The longest turn of the loop since the last mark."""

    #: Processor time of the loop's thread.
    ms: float
    during: str
    #: The longest by the clock on the wall, which may be another one.
    wall_ms: float


class TurningBroker:
    """The broker, seen from the test."""

    def __init__(self, data_dir: Path, config: Mapping[str, object] | None = None) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "support.turning_broker", str(data_dir), json.dumps(dict(config or {}))],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=Path(__file__).parent.parent,
        )
        self.port = int(self._said())

    @property
    def bootstrap_servers(self) -> str:
        return f"127.0.0.1:{self.port}"

    def mark(self) -> Turn:
        """The longest turn since the last mark."""
        self._say("mark")
        return Turn(*json.loads(self._said()))

    def work(self, ms: int) -> None:
        """Have the loop work for so long in one turn."""
        self._say(f"work {ms}")
        self._said()

    def kill(self) -> None:
        """SIGKILL."""
        self._process.kill()
        self._process.communicate()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._process.poll() is None:
            self._process.communicate(timeout=60)

    def _say(self, line: str) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(f"{line}\n")
        self._process.stdin.flush()

    def _said(self) -> str:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        assert line, "the broker has ended"
        return line


class ProcessorWatch(WatchedSelector):
    """Measures turns by the processor time of this thread, and beside it by the clock."""

    def __init__(self, watch: LoopWatch, wall: LoopWatch) -> None:
        super().__init__(wall)
        self._processor: Final = watch

    def select(self, timeout: float | None = None) -> list[tuple[SelectorKey, int]]:
        self._processor.end(time.thread_time())
        found = super().select(timeout)
        self._processor.begin(time.thread_time())
        return found


class _Told:
    """Carries out the commands."""

    def __init__(self, watch: LoopWatch, wall: LoopWatch) -> None:
        self._watch: Final = watch
        self._wall: Final = wall
        self.server: Server

    def listen(self, server: Server) -> None:
        self.server = server
        asyncio.get_running_loop().add_reader(sys.stdin, self._carry_out)
        server.hide_from_collector()
        print(server.port, flush=True)

    def _carry_out(self) -> None:
        match sys.stdin.readline().split():
            case ["mark"]:
                watch, wall = self._watch, self._wall
                print(
                    json.dumps([watch.longest_seconds * 1e3, watch.longest_during, wall.longest_seconds * 1e3]),
                    flush=True,
                )
                watch.longest_seconds = wall.longest_seconds = 0.0
            case ["work", ms]:
                until = time.thread_time() + int(ms) / 1e3
                while time.thread_time() < until:
                    pass
                print("done", flush=True)
            case _:
                asyncio.get_running_loop().remove_reader(sys.stdin)
                self.server.request_stop()


def main() -> None:
    """The broker's process."""
    data_dir, config = sys.argv[1:]
    watch, wall = LoopWatch(), LoopWatch()
    told = _Told(watch, wall)
    settings = BrokerSettings.of(json.loads(config), port=0, data_dir=data_dir)
    with asyncio.Runner(loop_factory=lambda: asyncio.SelectorEventLoop(ProcessorWatch(watch, wall))) as runner:
        runner.run(run_broker(settings, on_ready=told.listen, watch=watch))


if __name__ == "__main__":
    main()
