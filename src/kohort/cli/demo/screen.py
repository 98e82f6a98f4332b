"""The demo's output while it runs: a live table on a terminal, else a line every few seconds."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING

from kohort.cli.demo.watch import GroupWatch

if TYPE_CHECKING:
    from rich.table import Table

#: Seconds between two lines where there is no terminal.
LINE_INTERVAL_S = 4.0


class Screen:
    """The display while the block runs: a table on a terminal, lines elsewhere, nothing if `quiet`."""

    def __init__(self, render: Callable[[GroupWatch], tuple[str, Table]], watch: GroupWatch, *, quiet: bool) -> None:
        """Create a screen.

        `render`: returns one line and the table below it.
        """
        self._render = render
        self._watch = watch
        self._quiet = quiet
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> None:
        self._thread.start()

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join(5.0)

    def _run(self) -> None:
        if self._quiet:
            return
        if not sys.stdout.isatty():
            while not self._stop.wait(LINE_INTERVAL_S):
                print(self._render(self._watch)[0], flush=True)
            return
        from rich.console import Group
        from rich.live import Live

        with Live(refresh_per_second=4, transient=True) as live:
            while not self._stop.wait(0.3):
                live.update(Group(*self._render(self._watch)))
