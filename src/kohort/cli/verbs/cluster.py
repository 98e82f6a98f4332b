"""`kohort cluster`: brokers, features, the metadata's quorum, log directories, replicas and leaders.

Laws: an action that changes the cluster prints its plan, and carries the plan out with `--execute`.
Source: kafka-cluster, kafka-features, kafka-metadata-quorum, kafka-log-dirs, kafka-reassign-partitions and its file,
kafka-leader-election.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, Final

from kohort.base.jsontext import parse_json
from kohort.cli.arguments import input_name, parse_pairs, read_input
from kohort.cli.bootstrap import open_admin
from kohort.cli.main import add_common, add_execute
from kohort.cli.output import print_json, print_table, show, show_plan
from kohort.cli.verbs.why import read_partition
from kohort.errors import ConfigError, PartlyDoneError
from kohort.ids import TopicPartition

if TYPE_CHECKING:
    from kohort import Admin
    from kohort.client.admin.results.topics import PartitionDescription


#: A partition and its brokers, the preferred leader first: orders-3=1,2
_MOVE: Final = re.compile(r"(.+)=(\d{1,9}(?:,\d{1,9})*)")
_MOST_BYTES: Final = 64 * 1024 * 1024
_FILE: Final = 'a JSON object with "partitions" of "topic", "partition" and "replicas" is expected'


def add_parser(subparsers: Any) -> None:
    """Add the verb to the command line."""
    cluster = subparsers.add_parser(
        "cluster", help="brokers, features, quorum and log directories of a cluster; replicas and leaders of partitions"
    )
    actions = cluster.add_subparsers(dest="action", metavar="ACTION", required=True)
    add_common(*_add_looks(actions), *_add_changes(actions))


def _add_looks(actions: Any) -> list[Any]:
    """Add the actions `describe`, `features`, `quorum` and `log-dirs`, and return their parsers."""
    describe = actions.add_parser("describe", help="the brokers", run=run_describe)
    describe.add_argument("--fenced", action="store_true", help="also fenced brokers")

    features = actions.add_parser(
        "features",
        help="show or switch the levels of the cluster's features",
        description="Without NAME=LEVEL, print all features; with it, validate the level (0: off), and with --execute "
        "switch to all given levels, or to none.",
        run=run_features,
    )
    features.add_argument("changes", metavar="NAME=LEVEL", nargs="*")
    features.add_argument("--downgrade", choices=("safe", "unsafe"), help="allow lower levels; unsafe loses metadata")
    add_execute(features)

    quorum = actions.add_parser(
        "quorum", help="the nodes of the metadata quorum, with their offsets and lag", run=run_quorum
    )

    log_dirs = actions.add_parser("log-dirs", help="the brokers' directories and what is in them", run=run_log_dirs)
    log_dirs.add_argument("brokers", metavar="ID", nargs="*", type=int, help="only of these brokers")
    log_dirs.add_argument("--topic", metavar="TOPIC", help="the logs of this topic, one by one")
    return [describe, features, quorum, log_dirs]


def _add_changes(actions: Any) -> list[Any]:
    """Add the actions `reassign` and `elect-leaders`, and return their parsers."""
    reassign = actions.add_parser(
        "reassign",
        help="move partitions to other brokers; list ongoing reassignments",
        description="Show the new replicas of each partition, and with --execute reassign them. Without a "
        "partition and a file, list the ongoing reassignments.",
        run=run_reassign,
    )
    reassign.add_argument("moves", metavar="TOPIC-N=ID,ID", nargs="*", type=_move, help="the preferred leader first")
    reassign.add_argument("--file", metavar="FILE", help="the plan of kafka-reassign-partitions, JSON; -: stdin")
    reassign.add_argument(
        "--cancel", metavar="TOPIC-N", action="append", type=read_partition, help="cancel a reassignment; repeatable"
    )
    add_execute(reassign)

    elect = actions.add_parser(
        "elect-leaders",
        help="elect the preferred leaders of partitions",
        description="Show the partitions whose leader is not the preferred one, and with --execute elect that one.",
        run=run_elect,
    )
    elect.add_argument("partitions", metavar="TOPIC-N", nargs="*", type=read_partition, help="only these")
    elect.add_argument(
        "--unclean", action="store_true", help="elect any live replica where there is no leader; it may lack records"
    )
    add_execute(elect)
    return [reassign, elect]


def run_describe(options: argparse.Namespace) -> int:
    """Print the brokers by their ids."""
    with open_admin(options) as admin:
        cluster = admin.describe_cluster(include_fenced=options.fenced)
    if options.json:
        print_json(cluster)
        return 0
    print(f"cluster {cluster.cluster_id}, controller {cluster.controller_id}")
    rows = [
        (row.broker_id, f"{row.host}:{row.port}", row.rack, "fenced" if row.is_fenced else "up")
        for row in cluster.brokers
    ]
    print_table(("BROKER", "ADDRESS", "RACK", "STATE"), rows, empty="no brokers")
    return 0


def run_features(options: argparse.Namespace) -> int:
    """Validate the given levels, or switch to them with `--execute`; then print all features."""
    changes = {name: _level(name, level) for name, level in parse_pairs(options.changes, option="feature").items()}
    with open_admin(options) as admin:
        if changes:
            admin.update_features(changes, downgrade=options.downgrade, validate_only=not options.execute)
        found = admin.describe_features()
    is_done = bool(changes) and options.execute
    shown = {"executed": is_done, "levels": changes, "epoch": found.epoch, "features": found.features}
    rows = [
        (row.name, f"{row.min_version}-{row.max_version}", row.version_level, changes.get(row.name, ""))
        for row in found.features
    ]
    if changes and not is_done:
        return show_plan(options, shown, ("FEATURE", "SUPPORTED", "LEVEL", "NEW"), rows, empty="no features")
    return show(options, shown, ("FEATURE", "SUPPORTED", "LEVEL"), [row[:3] for row in rows], empty="no features")


def run_quorum(options: argparse.Namespace) -> int:
    """Print the quorum's voters, then its observers."""
    with open_admin(options) as admin:
        quorum = admin.describe_quorum()
    if options.json:
        print_json(quorum)
        return 0
    print(f"leader {quorum.leader_id}, epoch {quorum.leader_epoch}, high watermark {quorum.high_watermark}")
    rows = [
        (row.replica_id, role, row.log_end_offset, row.lag, row.directory_id)
        for role, replicas in (("voter", quorum.voters), ("observer", quorum.observers))
        for row in replicas
    ]
    print_table(("NODE", "ROLE", "END", "LAG", "DIRECTORY"), rows, empty="no nodes")
    return 0


def run_log_dirs(options: argparse.Namespace) -> int:
    """Print a row for each log directory, or with `--topic` for each log of the topic."""
    with open_admin(options) as admin:
        partitions = None
        if options.topic is not None:
            topics = admin.describe_topics([options.topic])
            partitions = [TopicPartition(topic.name, row.partition) for topic in topics for row in topic.partitions]
        found = admin.describe_log_dirs(options.brokers or None, partitions=partitions)
    if options.topic is None:
        rows: list[Sequence[object]] = [
            (
                row.broker_id,
                row.path,
                len(row.logs),
                sum(log.size_bytes for log in row.logs),
                row.usable_bytes,
                row.error or ("cordoned" if row.is_cordoned else "ok"),
            )
            for row in found
        ]
        columns = ("BROKER", "DIRECTORY", "LOGS", "BYTES", "FREE", "STATE")
        return show(options, found, columns, rows, empty="no directories")
    rows = [
        (row.broker_id, log.partition, log.size_bytes, log.offset_lag, row.path + " (future)" * log.is_future)
        for row in found
        for log in row.logs
    ]
    return show(options, found, ("BROKER", "PARTITION", "BYTES", "LAG", "DIRECTORY"), rows, empty="no logs")


def run_reassign(options: argparse.Namespace) -> int:
    """Show the plan, and submit it with `--execute`; without a plan print the ongoing reassignments."""
    wanted: dict[TopicPartition, Sequence[int] | None] = {}
    given = [*options.moves, *(read_plan(options.file) if options.file else ())]
    for partition, brokers in [*given, *((each, None) for each in options.cancel or ())]:
        if partition in wanted:
            raise ConfigError(f"{partition} is named twice; name it once")
        wanted[partition] = brokers
    with open_admin(options) as admin:
        if not wanted:
            ongoing = admin.list_partition_reassignments()
            rows = [
                (row.topic, row.partition, _ids(row.replicas), _ids(row.adding), _ids(row.removing)) for row in ongoing
            ]
            columns = ("TOPIC", "PARTITION", "BROKERS", "ADDING", "REMOVING")
            return show(options, ongoing, columns, rows, empty="no reassignment is ongoing")
        now = _described(admin, wanted)
        if options.execute:
            admin.alter_partition_reassignments(wanted)
    plan = [
        {"topic": each.topic, "partition": each.partition, "replicas": list(now[each].replicas), "new": wanted[each]}
        for each in sorted(wanted)
    ]
    shown = [
        (each.topic, each.partition, _ids(now[each].replicas), _ids(wanted[each] or ()) or "as before")
        for each in sorted(wanted)
    ]
    value = {"executed": options.execute, "partitions": plan}
    return show_plan(options, value, ("TOPIC", "PARTITION", "BROKERS", "NEW"), shown, empty="")


def run_elect(options: argparse.Namespace) -> int:
    """Show partitions not led by their preferred replica, and elect leaders with `--execute`."""
    with open_admin(options) as admin:
        if options.partitions:
            now = _described(admin, options.partitions)
        else:
            topics = [topic.name for topic in admin.list_topics()]
            now = {
                TopicPartition(topic.name, row.partition): row
                for topic in admin.describe_topics(topics)
                for row in topic.partitions
            }
        due = {
            each: row
            for each, row in now.items()
            if (row.leader < 0 if options.unclean else row.leader != row.replicas[0])
        }
        failed: PartlyDoneError | None = None
        if options.execute and due:
            try:
                admin.elect_leaders(due, unclean=options.unclean)
            except PartlyDoneError as why:
                failed = why
    rows = [(each.topic, each.partition, row.leader, row.replicas[0]) for each, row in sorted(due.items())]
    names = ("topic", "partition", "leader", "preferred")
    value = {"executed": options.execute, "partitions": [dict(zip(names, row, strict=True)) for row in rows]}
    shown = [(*row[:2], row[2] if row[2] >= 0 else None, row[3]) for row in rows]
    show_plan(options, value, [name.upper() for name in names], shown, empty="no leader has to be elected")
    if failed is not None:
        raise failed
    return 0


def read_plan(path: str) -> list[tuple[TopicPartition, Sequence[int] | None]]:
    """Read partitions with their brokers from a file of kafka-reassign-partitions.

    Raises:
        ConfigError: the file has no such plan.
        OSError: the file cannot be opened.
    """
    name, data = input_name(path), read_input(path, _MOST_BYTES)
    from kohort.client.admin.results.cluster import to_reassignments

    try:
        # A partition that is named twice is refused by the caller.
        rows = [
            to_reassignments({(row["topic"], row["partition"]): row["replicas"]})
            for row in parse_json(data)["partitions"]
        ]
    except (ValueError, TypeError, KeyError):
        raise ConfigError(f"{name} is no plan: {_FILE}") from None
    return [each for row in rows for each in row.items()]


def _described(admin: Admin, wanted: Iterable[TopicPartition]) -> dict[TopicPartition, PartitionDescription]:
    """Describe the named partitions; `UnknownTopicError` if one does not exist."""
    from kohort.errors import UnknownTopicError

    chosen = sorted(set(wanted))
    there = {topic.name: topic.partitions for topic in admin.describe_topics(sorted({each.topic for each in chosen}))}
    for each in chosen:
        if each.partition >= len(there[each.topic]):
            raise UnknownTopicError(each.topic, each.partition, len(there[each.topic]))
    return {each: there[each.topic][each.partition] for each in chosen}


def _move(text: str) -> tuple[TopicPartition, list[int]]:
    found = _MOVE.fullmatch(text)
    if found is None:
        raise argparse.ArgumentTypeError(f"{text!r} is no move: TOPIC-N=ID,ID is expected, as in orders-3=1,2")
    return read_partition(found[1]), [int(each) for each in found[2].split(",")]


def _level(name: str, text: str) -> int:
    if not text.isdecimal() or len(text) > 5:
        raise ConfigError(f"the level of {name} cannot be {text!r}: a whole number is expected, 0 is off")
    return int(text)


def _ids(brokers: Iterable[int]) -> str:
    return ",".join(map(str, brokers))
