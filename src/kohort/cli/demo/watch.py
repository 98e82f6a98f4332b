"""The demo's views of a group: a line or a table while it runs, how its partitions are shared, its explanation."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Final

from kohort import Admin, TopicPartition
from kohort.cli.demo.place import PARTITIONS, TOPIC
from kohort.client.admin.results.groups import GroupDescription
from kohort.errors import KohortError
from kohort.journal.explain.explanation import GroupRebalance
from kohort.journal.words import show_partitions

if TYPE_CHECKING:
    from rich.table import Table

#: Makes a line, and the table below it on a terminal, of the group (`None` before its first member) and its lag.
Render = Callable[[GroupDescription | None, int | None], tuple[str, "Table"]]
#: Seconds between two looks on a terminal, and between two lines elsewhere.
LOOK_INTERVAL_S: Final = 0.4
LINE_INTERVAL_S: Final = 4.0


class Screen:
    """The output while the demo runs; it shows nothing if `quiet`."""

    def __init__(self, *, quiet: bool) -> None:
        self._quiet = quiet

    def say(self, line: str) -> None:
        """Print a line at once."""
        if not self._quiet:
            print(line, flush=True)

    @contextmanager
    def watching(self, bootstrap: str, group: str, render: Render) -> Iterator[None]:
        """Show the group while the block runs: a live table on a terminal, else a line every few seconds."""
        stop = threading.Event()
        thread = threading.Thread(target=_watch, args=(bootstrap, group, render, stop), name="demo-watch", daemon=True)
        if not self._quiet:
            thread.start()
        try:
            yield
        finally:
            stop.set()
            if not self._quiet:
                thread.join(10.0)


def _watch(bootstrap: str, group: str, render: Render, stop: threading.Event) -> None:
    described: GroupDescription | None = None
    lag: int | None = None

    def look() -> tuple[str, Table]:
        nonlocal described, lag
        # Before its first member the group does not exist; that is not worth a word.
        with suppress(KohortError):
            described, lag = admin.describe_group(group), lag_of(admin, group)
        return render(described, lag)

    with Admin(bootstrap_servers=bootstrap) as admin:
        if not sys.stdout.isatty():
            while not stop.wait(LINE_INTERVAL_S):
                print(look()[0], flush=True)
            return
        from rich.console import Group
        from rich.live import Live

        with Live(refresh_per_second=4, transient=True) as live:
            while not stop.wait(LOOK_INTERVAL_S):
                live.update(Group(*look()))


def lag_of(admin: Admin, group: str) -> int | None:
    """Count the records that the group has not committed; `None` until it has or owns every partition."""
    offsets = admin.group_offsets(group)
    return (
        sum(row.end_offset if row.lag is None else row.lag for row in offsets) if len(offsets) == PARTITIONS else None
    )


def read_shares(admin: Admin, group: str) -> Mapping[str, int]:
    """Count each member's partitions, by instance id or else client id; nothing unless the group is stable."""
    if all(listing.group_id != group for listing in admin.list_groups()):
        return {}
    found = admin.describe_group(group)
    if found.state != "Stable":
        return {}
    return {member.instance_id or member.client_id: len(member.assignment) for member in found.members}


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
