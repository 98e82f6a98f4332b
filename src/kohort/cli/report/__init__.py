"""`kohort report GROUP|--all`: the events of groups, as one page of tables and pictures that Spark makes.

Laws: a page that is no report is not written over; nothing else is touched but, with `--follow`, the folder of the
tables. Of rows and records only sums, counts and the few lines that a page shows come to this process.
"""

from __future__ import annotations

import argparse
import sys
from datetime import UTC, datetime
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from kohort.assign.assignors import BALANCING
from kohort.cli.arguments import parse_duration, parse_since
from kohort.cli.bootstrap import add_bootstrap
from kohort.cli.main import add_json
from kohort.cli.output import complain, print_json
from kohort.errors import ConfigError, MissingDependencyError


def add_parser(subparsers: Any) -> None:
    """Add the verb to the command line."""
    report = subparsers.add_parser(
        "report",
        help="a page about groups: rebalances, unread partitions, stuck members, lag",
        description="One page without scripts or network: each group with its state and what to do about it, the "
        "owners of its partitions over time, rebalances with cause, duration and cost, stuck and flapping members, "
        "lag, and what another assignor would have moved. "
        "Spark makes the page from the history that the broker keeps, or from --input.",
        run=run,
    )
    report.add_argument("group", metavar="GROUP", nargs="?")
    report.add_argument("--all", action="store_true", help="all groups")
    report.add_argument(
        "--since",
        metavar="WHEN",
        help="only events that ended later: 90s, 30m, 2h, 7d, or 2026-01-31[T12:00] (default: the whole history)",
    )
    report.add_argument("--out", default="report.html", metavar="FILE", help="the page (default report.html)")
    report.add_argument("--force", action="store_true", help="overwrite a FILE that is no report")
    report.add_argument(
        "--input",
        action="append",
        metavar="PATH",
        help="a file of kohort group history --json, instead of a broker's history; repeatable",
    )
    report.add_argument("--no-lag", action="store_true", help="omit lag, for which the groups' topics are read")
    report.add_argument("--no-what-if", action="store_true", help="omit the moves of other assignors")
    report.add_argument(
        "--follow", action="store_true", help="keep the tables in --tables and the page up to date, until Ctrl-C"
    )
    report.add_argument(
        "--tables", metavar="DIR", help="with --follow: Parquet, a folder per table (default: FILE with -tables)"
    )
    report.add_argument(
        "--keep", metavar="SPAN", help="with --follow: how long finished rows are kept: 12h, 7d (default 30d)"
    )
    add_json(report)
    add_bootstrap(report)


def run(options: argparse.Namespace) -> int:
    """Make the page, or with `--json` print its contents."""
    from kohort.cli.folders import check_page
    from kohort.cli.report.gather import gather_files, gather_groups

    if bool(options.group) == options.all:
        raise ConfigError("kohort report takes a GROUP or --all")
    if options.follow and options.input:
        raise ConfigError("--follow follows a broker and cannot be used with --input")
    for name in ("tables", "keep"):
        if getattr(options, name) and not options.follow:
            raise ConfigError(f"--{name} needs --follow")
    if options.follow and (options.since or options.json):
        raise ConfigError("--follow keeps all new events in tables: --since and --json are for a single report")
    since_ms = since_in_ms(options.since, now=datetime.now(UTC))
    try:
        keep_s = int(parse_duration(options.keep or "30d").total_seconds())
    except argparse.ArgumentTypeError:
        raise ConfigError(f"--keep {options.keep!r}: a duration like 12h or 7d is expected") from None
    out = Path(options.out)
    if not options.json:
        check_page(out, is_forced=options.force)
    if find_spec("pyspark") is None:
        raise MissingDependencyError("pyspark", "spark")
    with TemporaryDirectory(prefix="kohort-report-") as scratch:
        folder = Path(scratch)
        if options.follow:
            from kohort.cli.report.follow import follow

            follow(options, out, folder, keep_s=keep_s)
            return 0
        gathered = gather_files(options.input, options.group) if options.input else gather_groups(options, folder)
        _make(options, gathered, out, folder=folder, since_ms=since_ms)
    return 0


def _make(options: argparse.Namespace, gathered: Any, out: Path, *, folder: Path, since_ms: int | None) -> None:
    from kohort.cli.report.aggregates import aggregate, tables_of
    from kohort.cli.report.page import write_page
    from kohort.cli.report.session import open_session

    if not options.json:
        complain("Spark makes the report")
    with open_session(folder, name="kohort report") as spark:
        assignors = () if options.no_what_if else BALANCING
        tables = tables_of(spark, gathered, since_ms=since_ms, assignors=assignors)
        report = aggregate(tables, gathered, since_ms=since_ms)
    if options.json:
        print_json({name: lines for name, lines in report.items() if name != "pictures"})
        return
    write_page(report, out)
    groups = f"{len(report['groups'])} group{'s' * (len(report['groups']) != 1)}"
    if "summary" not in report:
        sys.stdout.write(f"{out}: lag of {groups}; this broker keeps no history of groups\n")
        return
    rebalances = report["summary"]["rebalances"]
    sys.stdout.write(f"{out}: {rebalances} rebalance{'s' * (rebalances != 1)} of {groups}\n")


def since_in_ms(text: str | None, *, now: datetime) -> int | None:
    """Parse a time, or a duration before `now`, to milliseconds since 1970; `None` stays `None`."""
    if text is None:
        return None
    since = parse_since(text, now=now)
    if since is None:
        raise ConfigError(f"--since {text!r}: a duration like 30m, 2h or 7d, or a time like 2026-01-31T12:00")
    return max(0, int(since.timestamp() * 1000))
