"""`kohort log repair`: repair damaged files of a stopped broker.

Laws: it shows what it would do, and does it with `--execute`; damaged bytes are kept in any case.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from typing import Any, Final

from kohort.cli.main import add_execute
from kohort.cli.output import NOTHING_CHANGED, complain, print_json, print_table
from kohort.ids import format_topic_id

#: The remark about facts that the folders cannot tell.
_CONFIGS_LOST: Final = (
    "this is what the folders tell. Configs of topics and of the broker are lost; these keep every record until you "
    "set others (kohort config alter)"
)


def add_repair(actions: Any) -> Any:
    """Add `repair` to the actions of `kohort log`; its parser."""
    mending = actions.add_parser(
        "repair",
        help="cut torn ends, take damage out of the middle, and let readers pass what is gone",
        description="Read every batch of a data directory and show what can be done about each damage; with --execute "
        "do it. Damaged bytes in the middle are kept in files that end in .quarantine, and readers that come to such "
        "a hole are refused until it is settled: --drop lets them go on behind it. A catalogue that is missing is made "
        "from the folders of the partitions.",
        allow_abbrev=False,
    )
    mending.add_argument("directory", metavar="DIR", help="the data directory of a broker that is stopped")
    mending.add_argument("--drop", action="store_true", help="give up what is damaged: readers go on behind the holes")
    add_execute(mending)
    mending.set_defaults(run=run_repair)
    return mending


def run_repair(options: argparse.Namespace) -> int:
    """Print a row for each damage; return 1 if only a backup or another disk helps."""
    from kohort.cli.log import read_directory
    from kohort.storage.files.fs import DiskFileSystem
    from kohort.storage.offline.repair import Remedy, plan_repair, repair

    made = _make_catalog(options)
    if made and not options.execute:
        # What is damaged is asked next, when it is known what belongs together.
        if options.json:
            print_json({"executed": False, "catalog": made, "steps": []})
        else:
            complain(NOTHING_CHANGED)
        return 0
    directory, contents = read_directory(DiskFileSystem(reads_only=True), options.directory)
    steps = list(plan_repair(contents, drop=options.drop))
    is_hopeless = any(step.remedy is Remedy.RESTORE for step in steps)
    is_left = is_hopeless or any(step.remedy is Remedy.UNREADABLE for step in steps)
    is_done = options.execute and bool(steps) and not is_hopeless
    if is_done:
        repair(DiskFileSystem(), directory, contents, drop=options.drop)
    if options.json:
        rows = [
            {"topic": each.topic, "partition": each.partition, "damage": each.damage, "remedy": each.remedy.value}
            for each in steps
        ]
        print_json({"executed": is_done or bool(made), "catalog": made, "steps": rows})
    else:
        cells = [
            (each.topic, each.partition, each.damage.offset, each.damage.bytes, each.remedy.value) for each in steps
        ]
        print_table(("TOPIC", "PARTITION", "OFFSET", "BYTES", "REMEDY"), cells, empty="nothing is damaged")
        for each in steps if is_hopeless else ():
            if each.remedy is Remedy.RESTORE:
                complain(each.damage)
        if steps and not is_done:
            complain("nothing is changed: a backup is needed first" if is_hopeless else NOTHING_CHANGED)
    return 1 if is_left else 0


def _make_catalog(options: argparse.Namespace) -> list[dict[str, object]]:
    """Make a missing catalog if the user says so, and return its topics; none if it exists."""
    from kohort.storage.directory.catalogfile import CATALOG_NAME, has_catalog
    from kohort.storage.files.fs import DiskFileSystem
    from kohort.storage.offline.inspection import hold_offline
    from kohort.storage.offline.repair import make_catalog, plan_catalog

    directory = options.directory.rstrip("/") or "/"
    fs = DiskFileSystem(reads_only=not options.execute)
    lock = hold_offline(fs, directory)
    try:
        if has_catalog(fs, directory):
            return []
        catalog = plan_catalog(fs, directory)
        if options.execute:
            make_catalog(fs, directory, catalog)
    finally:
        lock.release()
    topics = sorted(catalog.topics.values(), key=lambda entry: entry.name)
    if not options.json:
        cells = [
            (each.name, each.partition_count, format_topic_id(each.topic_id), _shown(each.configs)) for each in topics
        ]
        print_table(("TOPIC", "PARTITIONS", "ID", "CONFIGS"), cells, empty="no topics")
        complain(f"{directory}/{CATALOG_NAME} {'was' if options.execute else 'is'} missing: {_CONFIGS_LOST}")
    return [
        {
            "topic": entry.name,
            "topic_id": format_topic_id(entry.topic_id),
            "partitions": entry.partition_count,
            "configs": dict(entry.configs),
        }
        for entry in topics
    ]


def _shown(configs: Mapping[str, str]) -> str:
    return " ".join(f"{name}={value}" for name, value in configs.items())
