"""A broker in a process of its own that tells its longest turn in calls, which are the same on every machine.

Run as a program it serves; each line on its input is a command: `begin` counts from now on, `end` prints the longest
turn since then, `work N` makes N calls in one turn of the loop.
"""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from selectors import SelectorKey
from types import TracebackType
from typing import Final, NamedTuple, Self

from kohort.broker.options.settings import BrokerSettings
from kohort.broker.scheduling import LoopWatch, WatchedSelector
from kohort.broker.server import Server, run_broker
from support.work import CallCount


class Turn(NamedTuple):
    """The longest turn of the loop while it was counted."""

    #: Of Python and of C, in the loop's thread.
    calls: int
    #: The last request of it.
    during: str


class TurningBroker:
    """The broker, seen from the test."""

    def __init__(self, data_dir: Path, config: Mapping[str, object] | None = None) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "support.peers.turning_broker", str(data_dir), json.dumps(dict(config or {}))],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=Path(__file__).parents[2],
        )
        self.port = int(self._said())

    @property
    def bootstrap_servers(self) -> str:
        return f"127.0.0.1:{self.port}"

    def begin(self) -> None:
        """Count from now on."""
        self._say("begin")
        self._said()

    def end(self) -> Turn:
        """The longest turn since `begin`."""
        self._say("end")
        return Turn(*json.loads(self._said()))

    def work(self, calls: int) -> None:
        """Have the loop make so many calls in one turn."""
        self._say(f"work {calls}")
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


class CountingSelector(WatchedSelector):
    """Measures turns in calls."""

    def __init__(self, watch: LoopWatch) -> None:
        super().__init__(LoopWatch())
        self._watch_of_calls: Final = watch
        self.calls: Final = CallCount()

    def select(self, timeout: float | None = None) -> list[tuple[SelectorKey, int]]:
        # The time at which a turn begins is none of a clock that has not begun: it begins at one.
        self._watch_of_calls.end(1 + self.calls.take())
        found = super().select(timeout)
        self.calls.take()
        self._watch_of_calls.begin(1)
        return found


class _Served:
    """Carries out the commands."""

    def __init__(self) -> None:
        self.watch: Final = LoopWatch()
        self._selector: Final = CountingSelector(self.watch)
        self._server: Server

    def new_loop(self) -> asyncio.AbstractEventLoop:
        return asyncio.SelectorEventLoop(self._selector)

    def listen(self, server: Server) -> None:
        """Clients can connect."""
        self._server = server
        server.hide_from_collector()
        asyncio.get_running_loop().add_reader(sys.stdin, self._carry_out)
        print(server.port, flush=True)

    def _carry_out(self) -> None:
        match sys.stdin.readline().split():
            case ["begin"]:
                self.watch.longest_seconds = 0
                self._selector.calls.begin()
                print("begun", flush=True)
            case ["end"]:
                self._selector.calls.end()
                print(json.dumps([int(self.watch.longest_seconds), self.watch.longest_during]), flush=True)
            case ["work", calls]:
                for _ in range(int(calls)):
                    len("")
                print("done", flush=True)
            case _:
                asyncio.get_running_loop().remove_reader(sys.stdin)
                self._server.request_stop()


def main() -> None:
    """The broker's process."""
    data_dir, config = sys.argv[1:]
    settings = BrokerSettings.of(json.loads(config), port=0, data_dir=data_dir)
    served = _Served()
    with asyncio.Runner(loop_factory=served.new_loop) as runner:
        runner.run(run_broker(settings, on_ready=served.listen, watch=served.watch))


if __name__ == "__main__":
    main()
