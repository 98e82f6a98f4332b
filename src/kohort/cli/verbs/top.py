"""`kohort top`: groups with lag, members that others wait for, and why groups rebalance, in a terminal.

Laws: the verb shows the values of the console's pages, on a terminal as a screen, elsewhere as text or lines of JSON.
The state shown is the latest that was read. If reads fail, one line says since when. The verb changes nothing.
Source: requirement J3; top(1).
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import logging
import os
import signal
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final

from kohort.cli import arguments
from kohort.cli.bootstrap import connection
from kohort.cli.main import add_common
from kohort.cli.output import complain, one_line, print_json, print_table, say
from kohort.console import SORTS
from kohort.errors import ConfigError, KohortError
from kohort.journal.words import show_clock, show_duration

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.live import Live

    from kohort.console.reader import ClusterReader

#: The least seconds between two reads of the cluster, and the seconds between two checks for a new state.
LEAST_SECONDS: Final = 2
_TICK_SECONDS: Final = 0.5
#: Seconds without a response after which the output says so.
_SILENCE_SECONDS: Final = 4.0
#: The most members and rebalances that are shown of a group.
_MEMBERS, _REBALANCES = 12, 5
_HISTORYLESS: Final = "this cluster keeps no history of groups: only brokers of kohort tell why a group has rebalanced"
_GROUPS: Final = ("GROUP", "STATE", "MEMBERS", "LAG", "BEHIND", "CHANGES/H")
_MEMBER: Final = ("MEMBER", "HOST", "OWNS", "HEARD", "POLLED", "FETCHED", "COMMITTED", "SESSION LEFT")
_AGES: Final = ("heard_ms", "polled_ms", "fetched_ms", "committed_ms", "session_left_ms")
#: Bytes of a key -> its meaning.
_KEYS: Final = {
    **dict.fromkeys((b"q", b"Q", b"\x03", b"\x04"), "quit"),
    **dict.fromkeys((b"\x1b[A", b"\x1bOA", b"k"), "up"),
    **dict.fromkeys((b"\x1b[B", b"\x1bOB", b"j"), "down"),
    **dict.fromkeys((b"s", b"S"), "sort"),
}


def add_parser(subparsers: Any) -> None:
    """Add the verb to the command line."""
    top = subparsers.add_parser(
        "top",
        help="which groups are behind, their members, and why they rebalance, in a terminal",
        description="Show the groups of a cluster, kohort's or Apache Kafka's, those that are furthest behind first, "
        "and of one of them the members and the latest rebalances. Keys: q ends, s changes the order, up and down "
        "choose the group. If the output is no terminal, text is printed.",
        run=run,
    )
    add_common(top)
    top.add_argument("--group", metavar="TEXT", default="", help="only groups whose names contain this text")
    top.add_argument("--sort", choices=SORTS, default=SORTS[0], help="the order of groups (default: %(default)s)")
    top.add_argument(
        "--interval",
        metavar="SPAN",
        type=arguments.parse_duration,
        default=timedelta(seconds=LEAST_SECONDS),
        help=f"read the cluster again after this time: 5s, 1m (default, and least: {LEAST_SECONDS}s)",
    )
    top.add_argument("--once", action="store_true", help="read the cluster once; the age of a lag needs a second read")


def run(options: argparse.Namespace) -> int:
    """Show the cluster until q or Ctrl-C, or once."""
    if options.interval < timedelta(seconds=LEAST_SECONDS):
        raise ConfigError(f"--interval is too short: {LEAST_SECONDS}s or more is expected")
    # Imported here, so that the other verbs start without it.
    from kohort.console.reader import ClusterReader

    threads = ThreadPoolExecutor(4, thread_name_prefix="kohort-top")
    reader = ClusterReader(connection(options), threads)
    try:
        # A cluster that does not respond is an error at once.
        reader.admin.describe_cluster()
        # From now on the screen itself says that reads fail. Log lines of the client would spoil it.
        for handler in logging.getLogger("kohort.client").handlers:
            handler.setLevel(logging.CRITICAL)
        asyncio.run(_Top(reader, options).watch())
    finally:
        # The calls that are under way fail, and their threads end.
        reader.close()
        threads.shutdown(cancel_futures=True)
    return 0


class _Top:
    """The view of the cluster, and the keys that change the view."""

    def __init__(self, reader: ClusterReader, options: argparse.Namespace) -> None:
        self._reader: Final = reader
        self._options: Final = options
        self._sort: str = options.sort
        #: The group that was chosen; empty: the first one.
        self._chosen = ""
        #: Ids of the groups in the order shown.
        self._listed: Sequence[str] = ()
        self._is_over = False
        self._pressed = asyncio.Event()
        #: Of the state shown last: the time it was read, milliseconds; when it was shown, monotonic seconds.
        self._shown_ms, self._shown_at = 0, 0.0
        self._is_silent = False

    async def watch(self) -> None:
        """Read the cluster and show its state until q, Ctrl-C or SIGTERM; with `--once` a single time."""
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, self._press, "quit")
        is_screen = sys.stdout.isatty() and not self._options.json and not self._options.once
        with contextlib.ExitStack() as stack:
            live = None
            if is_screen:
                from rich.live import Live

                live = stack.enter_context(Live(screen=True, auto_refresh=False))
                stack.enter_context(self._keys())
            while not self._is_over:
                await self._until_pressed(self._look_and_show(live), None)
                if self._options.once:
                    return
                await self._until_pressed(asyncio.sleep(_TICK_SECONDS), live)

    async def _until_pressed(self, work: Any, live: Live | None) -> None:
        """Wait until `work` is done or the verb ends; with a screen also until a key is pressed."""
        task, pressed = asyncio.ensure_future(work), asyncio.ensure_future(self._pressed.wait())
        while not self._is_over and not task.done():
            await asyncio.wait({task, pressed}, return_when=asyncio.FIRST_COMPLETED)
            if pressed.done():
                self._pressed.clear()
                pressed = asyncio.ensure_future(self._pressed.wait())
                if live is not None:
                    break
        for each in (task, pressed):
            each.cancel()
        if task.done() and not task.cancelled():
            task.result()

    async def _look_and_show(self, live: Live | None) -> None:
        now = time.monotonic()
        is_due = now - self._shown_at >= self._options.interval.total_seconds() - _TICK_SECONDS
        if live is None and self._shown_ms and not is_due:
            return
        values = await self._values()
        is_new = values["time_ms"] > self._shown_ms
        if live is not None:
            from rich.console import Group

            live.update(Group(*self._drawn(values, live.console.size)), refresh=True)
        elif is_new:
            if self._options.json:
                print_json(values)
            else:
                self._print(values)
            sys.stdout.flush()
        if live is None and values["silence"] and not self._is_silent:
            complain(values["silence"])
        self._is_silent = bool(values["silence"])
        if is_new:
            self._shown_ms, self._shown_at = values["time_ms"], now

    async def _values(self) -> dict[str, Any]:
        """Return the groups of the cluster, and the details of the chosen one."""
        from kohort.console import pages

        await self._reader.know()
        found = await pages.groups(self._reader, {"q": self._options.group, "sort": self._sort})
        self._listed = [each["id"] for each in found["groups"]]
        snapshot = self._reader.view.snapshot
        if snapshot is None:
            # The cluster responds, but its groups cannot be read.
            raise KohortError(found["failure"])
        chosen = self._chosen if self._chosen in self._listed else next(iter(self._listed), "")
        silent_s = time.time() - snapshot.now_ms / 1000
        silence = ""
        if found["failure"] or silent_s > max(_SILENCE_SECONDS, 2 * self._options.interval.total_seconds()):
            why = f": {found['failure']}" if found["failure"] else ""
            silence = f"no response since {show_clock(snapshot.now_ms)[:8]}, when the state shown was read{why}"
        group = None
        if chosen:
            # The group may have been deleted since.
            with contextlib.suppress(pages.PageError):
                group = await pages.group_values(self._reader, chosen)
        count = f"{len(self._listed)} of {found['all']} groups by {self._sort}"
        title = f"{show_clock(snapshot.now_ms)[:8]}  cluster {snapshot.cluster_id}  {count}"
        cluster = {"time_ms": snapshot.now_ms, "cluster_id": snapshot.cluster_id, "silence": silence, "title": title}
        return {**cluster, **{name: found[name] for name in ("sort", "matching", "all", "groups")}, "group": group}

    @contextlib.contextmanager
    def _keys(self) -> Iterator[None]:
        """Read keys as they are pressed, without echo, until the context exits."""
        if not sys.stdin.isatty():
            yield
            return
        import termios
        import tty

        number, loop = sys.stdin.fileno(), asyncio.get_running_loop()
        before = termios.tcgetattr(number)
        tty.setcbreak(number)
        loop.add_reader(number, lambda: self._press(_KEYS.get(os.read(number, 16), "")))
        try:
            yield
        finally:
            loop.remove_reader(number)
            termios.tcsetattr(number, termios.TCSADRAIN, before)

    def _press(self, key: str) -> None:
        if key == "quit":
            self._is_over = True
        elif key == "sort":
            self._sort = SORTS[(SORTS.index(self._sort) + 1) % len(SORTS)]
        elif key and self._listed:
            at = self._listed.index(self._chosen) if self._chosen in self._listed else 0
            self._chosen = self._listed[min(max(0, at + (1 if key == "down" else -1)), len(self._listed) - 1)]
        self._pressed.set()

    def _print(self, values: Mapping[str, Any]) -> None:
        """Print the state as text."""
        say(*([""] if self._shown_ms else []), values["title"])
        print_table(_GROUPS, [_group_cells(each) for each in values["groups"]], empty="no groups")
        group = values["group"]
        if group is None:
            return
        say("", _head_of(group))
        print_table(_MEMBER, [_member_cells(each) for each in group["members"][:_MEMBERS]], empty="no members")
        say(*_tail_of(group))

    def _drawn(self, values: Mapping[str, Any], size: tuple[int, int]) -> Iterator[RenderableType]:
        """Yield the parts of the screen; `size`: its columns and lines."""
        from rich.text import Text

        yield Text(values["title"], style="bold", no_wrap=True, overflow="ellipsis")
        yield Text(values["silence"] or "q ends, s changes the order, up and down choose a group", style="dim")
        group = values["group"]
        told = [] if group is None else [_head_of(group), *_tail_of(group)]
        members = [] if group is None else group["members"][:_MEMBERS]
        # A sentence that is longer than a line takes several lines.
        below = len(members) + sum(1 + len(one_line(each)) // size[0] for each in told)
        room = max(3, size[1] - below - 6)
        chosen = -1 if group is None else self._listed.index(group["id"])
        first = max(0, min(chosen - room // 2, len(values["groups"]) - room))
        rows = [_group_cells(each) for each in values["groups"][first : first + room]]
        yield _table(_GROUPS, rows, right=(2, 3, 4, 5), chosen=chosen - first)
        if group is None:
            return
        yield Text("")
        yield Text(one_line(_head_of(group)), style="bold")
        if members:
            yield _table(_MEMBER, [_member_cells(each) for each in members], right=range(3, 8))
        for each in _tail_of(group):
            yield Text(one_line(each), style="bold red" if each.startswith("STUCK") else "")


def _age(ms: int | None) -> str | None:
    return None if ms is None else show_duration(ms)


def _group_cells(row: Mapping[str, Any]) -> tuple[object, ...]:
    state = f"{row['state']}, {row['stuck']} STUCK" if row["stuck"] else row["state"]
    lag = None if row["lag"] is None else f"{row['lag']:,}"
    return row["id"], state, row["members"], lag, _age(row["lag_ms"]), row["changes"] or None


def _member_cells(row: Mapping[str, Any]) -> tuple[object, ...]:
    name = f"{row['name']} (disconnected)" if row["is_connected"] is False else row["name"]
    return name, row["host"], row["owned"], *(_age(row[age]) for age in _AGES)


def _head_of(group: Mapping[str, Any]) -> str:
    """Return a line with the type, state, lag and rebalances of a group."""
    lag = "" if group["lag"] is None else f", lag {group['lag']:,}"
    behind = "" if group["lag_ms"] is None else f" ({show_duration(group['lag_ms'])})"
    often = f", {group['rebalances_per_hour']} rebalances in the last hour" if group["has_history"] else ""
    epoch = "" if group["group_epoch"] is None else f", epoch {group['group_epoch']}"
    return f"{group['id']}: {group['group_type'] or 'group'}, {group['state']}{epoch}{lag}{behind}{often}"


def _tail_of(group: Mapping[str, Any]) -> list[str]:
    """Return sentences about members that delay others, then about the latest rebalances, newest first."""
    more = len(group["members"]) - _MEMBERS
    said = [f"and {more} more members"] if more > 0 else []
    said += [f"STUCK: {each['name']}: {each['because']}" for each in group["members"] if each["is_stuck"]]
    said += [each["because"] for each in group["members"] if each["because"] and not each["is_stuck"]]
    if not group["has_history"]:
        return [*said, _HISTORYLESS]
    for each in group["rebalances"][:_REBALANCES]:
        said.append(f"{show_clock(each['began_ms'])[:8]}  {each['sentence']}")
        if each["timing"]:
            said.append(f"{' ' * 10}{each['timing']}")
    return said


def _table(
    columns: Sequence[str], rows: Sequence[Sequence[object]], *, right: Sequence[int], chosen: int = -1
) -> RenderableType:
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False, header_style="dim")
    for number, name in enumerate(columns):
        table.add_column(name, justify="right" if number in right else "left", no_wrap=True, overflow="ellipsis")
    for number, row in enumerate(rows):
        cells = (Text("-" if cell is None else one_line(cell)) for cell in row)
        table.add_row(*cells, style="reverse" if number == chosen else "")
    return table
