"""A broker that is killed and started again, and what its clients were promised meanwhile."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Self

import kohort
from support.ports import quiet_port
from support.waiting import PATIENCE_SECONDS, until


def wait_until(is_true: Callable[[], object], what: str, *, seconds: float = PATIENCE_SECONDS) -> None:
    """Return as soon as the condition holds; asking may itself be the waiting (a poll)."""
    pause = threading.Event()
    until(is_true, what=what, step=lambda: pause.wait(0.002), seconds=seconds)


class MortalBroker:
    """A broker in a process of its own, always on the same port and directory; a context manager."""

    def __init__(self, data_dir: Path, config: Mapping[str, object] | None = None) -> None:
        self.data_dir = data_dir
        self._port = quiet_port()
        self._config = {
            "group.initial.rebalance.delay.ms": 0,
            "group.consumer.heartbeat.interval.ms": 200,
            "group.consumer.min.heartbeat.interval.ms": 100,
            **(config or {}),
        }
        self._broker = self._new()

    def _new(self) -> kohort.Broker:
        return kohort.Broker(data_dir=self.data_dir, port=self._port, process=True, config=self._config)

    @property
    def address(self) -> str:
        """HOST:PORT, the same in every life."""
        return f"127.0.0.1:{self._port}"

    def kill(self) -> None:
        """End it as a crash would."""
        self._broker.kill()

    def revive(self) -> None:
        """Start it again after a kill."""
        self._broker = self._new().start()

    def __enter__(self) -> Self:
        self._broker.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._broker.stop()


class Worker:
    """A loop on a thread of its own that runs until it is stopped; what it raises is raised by `stop`."""

    def __init__(self, turn: Callable[[], None]) -> None:
        self._turn = turn
        self._is_over = threading.Event()
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, daemon=True)

    def _run(self) -> None:
        try:
            while not self._is_over.is_set():
                self._turn()
        except BaseException as error:  # handed to the test's thread
            self._error = error

    @property
    def is_alive(self) -> bool:
        """Whether the loop still runs."""
        return self._thread.is_alive()

    def check(self) -> None:
        """Raise what ended the loop, if something did."""
        if self._error is not None:
            raise self._error

    def stop(self) -> None:
        """Let the present turn be the last, and wait for it."""
        self._is_over.set()
        self._thread.join(PATIENCE_SECONDS)
        self.check()
        assert not self._thread.is_alive(), "the loop hangs"

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._is_over.set()
        self._thread.join(PATIENCE_SECONDS)
        if kind is None:
            self.check()
