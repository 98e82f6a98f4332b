"""`kohort log`: the files of a data directory that no broker uses.

Each action but `check` has its module.

Laws: a directory that a broker holds is refused. `check` and `dump` change nothing.
Source: kafka-dump-log; fsck.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from operator import attrgetter
from typing import TYPE_CHECKING, Any

from kohort.cli.logdump import add_dump
from kohort.cli.logimport import add_import
from kohort.cli.logrepair import add_repair
from kohort.cli.main import add_json
from kohort.cli.output import complain, print_json, print_table

if TYPE_CHECKING:
    from kohort.storage.files.fs import FileSystem
    from kohort.storage.offline.inspection import PartitionContent


def add_parser(subparsers: Any) -> None:
    """Add the verb to the command line."""
    log = subparsers.add_parser(
        "log",
        help="the files of a stopped broker: check (is everything readable), repair, dump (batches and records), "
        "import (those of Apache Kafka)",
        allow_abbrev=False,
    )
    actions = log.add_subparsers(dest="action", metavar="ACTION", required=True)

    check = actions.add_parser(
        "check",
        help="read every batch of a data directory, and say what is damaged",
        description="Read every batch of every partition and compare its checksum, then what stands beside the "
        "batches: indexes, producers, leader epochs. Nothing is changed; ends with 1 where something is damaged.",
        allow_abbrev=False,
    )
    check.add_argument("directory", metavar="DIR", help="the data directory of a broker that is stopped")
    check.set_defaults(run=run_check)

    for parser in (check, add_repair(actions), add_dump(actions), add_import(actions)):
        add_json(parser)


def run_check(options: argparse.Namespace) -> int:
    """Print a row for each partition, then a line for each damage."""
    from kohort.storage.files.fs import DiskFileSystem

    _, found = read_directory(DiskFileSystem(reads_only=True), options.directory)
    damages = [damage for each in found for damage in each.damages]
    if options.json:
        print_json({"partitions": found, "is_damaged": any(each.is_damaged for each in found)})
        return 1 if damages else 0
    numbers = attrgetter("topic", "partition", "files", "bytes", "batches", "records", "begin", "end")
    columns = ("TOPIC", "PARTITION", "FILES", "BYTES", "BATCHES", "RECORDS", "BEGIN", "END", "DAMAGED")
    print_table(columns, [(*numbers(each), _told(each)) for each in found], empty="no partitions")
    for damage in damages:
        complain(damage)
    return 1 if damages else 0


def _told(content: PartitionContent) -> str:
    if content.is_damaged:
        return "yes"
    return "indexes" if content.damages else "no"


def read_directory(fs: FileSystem, name: str) -> tuple[str, list[PartitionContent]]:
    """Read a data directory, locked against brokers meanwhile: its path and its partitions' content."""
    from kohort.storage.offline.inspection import hold_offline, inspect_directory

    directory = name.rstrip("/") or "/"
    lock = hold_offline(fs, directory)
    try:
        return directory, list(_with_progress(inspect_directory(fs, directory)))
    finally:
        lock.release()


def _with_progress(partitions: Iterator[PartitionContent]) -> Iterator[PartitionContent]:
    """Pass partitions on, and show the progress on a terminal."""
    is_told = sys.stderr.isatty()
    count = size_bytes = 0
    for each in partitions:
        count += 1
        size_bytes += each.bytes
        if is_told:
            sys.stderr.write(f"\r{count} partitions, {size_bytes / 1_000_000:,.0f} MB read")
        yield each
    if is_told and count:
        sys.stderr.write("\r\x1b[K")
