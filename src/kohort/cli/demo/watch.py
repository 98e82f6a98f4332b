"""The demo's views of a group: the broker's description while it runs, its explanation at the end."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from kohort import Admin, TopicPartition
from kohort.cli.demo.place import TOPIC
from kohort.client.admin.results.groups import GroupDescription
from kohort.errors import KohortError
from kohort.journal.explain.explanation import GroupRebalance
from kohort.journal.words import show_partitions

if TYPE_CHECKING:
    from rich.table import Table


#: Seconds between two looks.
LOOK_INTERVAL_S = 0.5


class GroupWatch:
    """A watch that describes the group twice a second."""

    def __init__(self, bootstrap: str, group: str) -> None:
        self._group = group
        self._admin = Admin(bootstrap_servers=bootstrap)
        self._stop = threading.Event()
        #: The group as it was last described, `None` before its first member.
        self.group: GroupDescription | None = None
        #: Records that are not committed yet, over all partitions; `None` while the group has none.
        self.lag: int | None = None
        self._thread = threading.Thread(target=self._run, name="demo-watch", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Stop watching."""
        self._stop.set()
        self._thread.join(10.0)
        self._admin.close()

    def _run(self) -> None:
        while not self._stop.wait(LOOK_INTERVAL_S):
            try:
                self.group = self._admin.describe_group(self._group)
                offsets = self._admin.group_offsets(self._group)
            except KohortError:
                # Before its first member the group does not exist; that is not worth a word.
                continue
            if offsets:
                self.lag = sum(row.end_offset if row.lag is None else row.lag for row in offsets)


def read_rebalances(admin: Admin, group: str) -> list[GroupRebalance]:
    """Read the rebalances of a group up to now, with the broker's sentences.

    Raises:
        KohortError: the broker has dropped the beginning of its history.
    """
    found = admin.explain_group(group, whole=True)
    if not found.is_complete:
        raise KohortError(f"the broker has dropped the beginning of the history of {group}")
    return list(found.rebalances)


def show_numbers(partitions: Iterable[int]) -> str:
    """Format partition numbers as `0-3,7`, or a dash for none."""
    return show_partitions(TopicPartition(TOPIC, partition) for partition in partitions).removeprefix(f"{TOPIC}:")


def wait_until(is_reached: Callable[[], bool], otherwise: str, *, seconds: float = 40.0) -> float:
    """Wait for a condition and return the seconds.

    Raises:
        KohortError: it was not reached in time.
    """
    began = time.monotonic()
    while not is_reached():
        if time.monotonic() > began + seconds:
            raise KohortError(f"{otherwise} within {seconds:g} s")
        time.sleep(0.05)
    return time.monotonic() - began


# The demo's output while it runs: a live table on a terminal, else a line every few seconds.

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
