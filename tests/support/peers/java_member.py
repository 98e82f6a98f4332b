"""A stock Java member of a group in a process of its own: Apache Kafka's consumer, by default of the new protocol."""

from __future__ import annotations

import queue
import subprocess
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Self

from support.peers.apache import java_program
from support.waiting import PATIENCE_SECONDS

PROGRAM = Path(__file__).with_name("KafkaMember.java")


class JavaMember:
    """A context manager; leaving it closes the consumer, which with an instance id says that it comes back."""

    def __init__(
        self,
        address: str,
        *,
        topic: str = "t",
        group_id: str = "g",
        instance_id: str | None = None,
        on_line: Callable[[str], None] | None = None,
        **config: str,
    ) -> None:
        """`config`: of the consumer, with underscores for the dots; `on_line` is called with what it prints."""
        settings = [f"{key.replace('_', '.')}={value}" for key, value in config.items()]
        command = java_program(PROGRAM, address, group_id, instance_id or "-", topic, *settings, heap="128m")
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self._lines: queue.Queue[str] = queue.Queue()
        self._on_line = on_line
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the consumer and wait for the end of its process."""
        assert self._process.stdin is not None
        if self._process.stdin.closed:
            return
        try:
            # One byte is its word to close; it may have ended by itself, upon an error.
            with suppress(BrokenPipeError):
                self._process.stdin.write("\n")
                self._process.stdin.flush()
            self._process.wait(PATIENCE_SECONDS)
        finally:
            self.kill()

    def kill(self) -> None:
        """End the process as a crash does."""
        self._process.kill()
        self._process.wait()
        self._reader.join()
        for pipe in (self._process.stdin, self._process.stdout):
            assert pipe is not None
            with suppress(BrokenPipeError):
                pipe.close()

    def wait_for(self, line: str) -> list[str]:
        """Wait until it prints a line that begins so; returns what it printed until then, that line included."""
        seen: list[str] = []
        while not seen or not seen[-1].startswith(line):
            try:
                seen.append(self._lines.get(timeout=PATIENCE_SECONDS))
            except queue.Empty:
                raise AssertionError(f"a Java member did not print {line!r}, but {seen}") from None
        return seen

    def said(self) -> list[str]:
        """What it has printed since it was asked last."""
        found: list[str] = []
        while not self._lines.empty():
            found.append(self._lines.get_nowait())
        return found

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self._lines.put(line.rstrip())
            if self._on_line is not None:
                self._on_line(line.rstrip())
