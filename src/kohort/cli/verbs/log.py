"""`kohort log check|dump|repair|import`: the files of a stopped broker, of kohort or of Apache Kafka.

Laws: a directory that a running broker has locked is refused. `check` and `dump` change nothing. They report unreadable
bytes with their position, and show the rest. `repair` shows its plan, carries the plan out with `--execute`, and keeps
damaged bytes. `import` never writes to its source, and makes a new directory. `import` names the transactions that the
copy cannot keep, and refuses to leave them out without `--end-transactions`.
Source: fsck; kafka-dump-log (`--print-data-log`, `--offsets-decoder`, `--deep-iteration`).
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from datetime import UTC, datetime
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Final

from kohort.cli.arguments import parse_offset
from kohort.cli.main import add_execute, add_json
from kohort.cli.output import NOTHING_CHANGED, complain, plain, print_json, print_table, show, text
from kohort.errors import ConfigError, CorruptRecordError, StorageError
from kohort.ids import OFFSETS_TOPIC, TRANSACTIONS_TOPIC, format_topic_id

if TYPE_CHECKING:
    from kohort.records.batch import Record
    from kohort.storage.files.fs import FileSystem
    from kohort.storage.tools.inspection import Damage, FoundBatch, PartitionContent
    from kohort.storage.tools.kafka_import import Survey, Transactions


def add_parser(subparsers: Any) -> None:
    """Add the verb to the command line."""
    log = subparsers.add_parser(
        "log",
        help="the files of a stopped broker: check (is everything readable), repair, dump (batches and records), "
        "import (those of Apache Kafka)",
    )
    actions = log.add_subparsers(dest="action", metavar="ACTION", required=True)

    check = actions.add_parser(
        "check",
        help="read every batch of a data directory, and print what is damaged",
        description="Read every batch of every partition and compare its checksum. Then check the files beside the "
        "batches: indexes, producers, leader epochs. Nothing is changed. The exit code is 1 if something is damaged.",
        run=run_check,
    )
    check.add_argument("directory", metavar="DIR", help="the data directory of a broker that is stopped")

    for parser in (check, add_repair(actions), add_dump(actions), add_import(actions)):
        add_json(parser)


def run_check(options: argparse.Namespace) -> int:
    """Print a row for each partition, then a line for each damage."""
    from kohort.storage.files.fs import DiskFileSystem

    _, found = read_directory(DiskFileSystem(reads_only=True), options.directory)
    damages = [damage for each in found for damage in each.damages]
    value = {"partitions": found, "is_damaged": any(each.is_damaged for each in found)}
    names = ("topic", "partition", "files", "bytes", "batches", "records", "begin", "end")
    rows = [
        (*attrgetter(*names)(each), "yes" if each.is_damaged else "indexes" if each.damages else "no") for each in found
    ]
    show(options, value, [*map(str.upper, names), "DAMAGED"], rows, empty="no partitions")
    for damage in () if options.json else damages:
        complain(damage)
    for each in () if options.json else found:
        for hanging in each.hanging:
            complain(f"{each.topic}-{each.partition}: {hanging}; they are not shown to readers of committed records")
    return 1 if damages else 0


def read_directory(fs: FileSystem, name: str) -> tuple[str, list[PartitionContent]]:
    """Read a data directory under its lock; return its path and the content of its partitions."""
    from kohort.storage.tools.inspection import hold_offline, inspect_directory

    directory = name.rstrip("/") or "/"
    lock = hold_offline(fs, directory)
    try:
        return directory, list(_with_progress(inspect_directory(fs, directory)))
    finally:
        lock.release()


def _with_progress(partitions: Iterator[PartitionContent]) -> Iterator[PartitionContent]:
    """Yield the partitions, and show the progress on a terminal."""
    size_bytes = 0
    for count, each in enumerate(partitions, 1):
        size_bytes += each.bytes
        _show_progress(f"{count} partitions, {size_bytes / 1_000_000:,.0f} MB read")
        yield each
    _show_progress()


def _show_progress(words: str = "") -> None:
    """Replace the last line of a terminal by `words`; an empty text clears the line."""
    if sys.stderr.isatty():
        sys.stderr.write(f"\r{words}" if words else "\r\x1b[K")


_ID_BYTES: Final = 16


def add_dump(actions: Any) -> Any:
    """Add the action `dump` to `kohort log`, and return its parser."""
    dump = actions.add_parser(
        "dump",
        help="print the batches of a segment file or of a partition's folder, and their records",
        description="Print a line for each batch, with --records also for each record. Records of __consumer_offsets "
        "and __transaction_state are decoded. The exit code is 1 if something is damaged.",
        run=run_dump,
    )
    dump.add_argument("path", metavar="PATH", help="DIR/orders-0, or one of the files in it that end in .log")
    dump.add_argument("-r", "--records", action="store_true", help="print records, too")
    dump.add_argument("--raw", action="store_true", help="do not decode the records of these two topics")
    dump.add_argument("-o", "--from", dest="start", type=parse_offset, default=0, metavar="N", help="from offset N on")
    dump.add_argument("-n", "--count", type=int, default=0, metavar="N", help="stop after N batches")
    return dump


def run_dump(options: argparse.Namespace) -> int:
    """Print a line for each batch and each damage in log order; with `--json` a JSON document."""
    from kohort.storage.data_directory import broker_on
    from kohort.storage.files.fs import DiskFileSystem
    from kohort.storage.tools.inspection import Damage

    fs = DiskFileSystem(reads_only=True)
    path = options.path.rstrip("/") or "/"
    folder = path.rpartition("/")[0] or "." if path.endswith(".log") else path
    directory = folder.rpartition("/")[0] or "."
    holder = broker_on(fs, directory)
    if holder is not None:
        raise StorageError(f"a broker{holder} runs on {directory}; stop it first, or read with kohort tail")
    topic = "" if options.raw else folder.rpartition("/")[2].rpartition("-")[0]
    left = options.count or -1
    is_damaged = False
    for each in _batches(fs, path):
        if isinstance(each, Damage):
            is_damaged = True
            if options.json:
                print_json({"damage": each})
            else:
                print(f"DAMAGED {each}")
        elif each.header.last_offset >= options.start:
            _tell_batch(each, options, topic=topic)
            left -= 1
            if left == 0:
                break
    return 1 if is_damaged else 0


def _batches(fs: FileSystem, path: str) -> Iterator[FoundBatch | Damage]:
    from kohort.storage.segments.segment import segment_base
    from kohort.storage.tools.inspection import walk_segment

    folder, _, name = path.rpartition("/")
    if segment_base(name) is not None:
        names = [name]
    else:
        folder, names = path, [each for each in fs.list_directory(path) if segment_base(each) is not None]
        if not names:
            raise StorageError(f"{path} is no segment file (20 digits and .log), and holds none")
    for each in names:
        # Compaction leaves gaps between offsets. A gap is shown as it is; only damage is reported.
        yield from walk_segment(fs, f"{folder or '.'}/{each}", segment_base(each) or 0)


def _tell_batch(batch: FoundBatch, options: argparse.Namespace, *, topic: str) -> None:
    header = batch.header
    rows = _records(batch, topic=topic) if options.records else []
    if options.json:
        shown = {"position": batch.position, "size_bytes": header.size_bytes, **header._asdict()}
        shown |= {"last_offset": header.last_offset, "compression": header.compression}
        print_json(shown | ({"records": [row for row, _ in rows]} if options.records else {}))
        return
    words = [
        f"offsets {header.base_offset}-{header.last_offset}",
        f"byte {batch.position}",
        f"{header.size_bytes} bytes",
    ]
    words += [f"{header.record_count} records", header.compression, f"epoch {header.partition_leader_epoch}"]
    if header.producer_id >= 0:
        words.append(f"producer {header.producer_id}/{header.producer_epoch} from {header.base_sequence}")
    words += ["transactional"] * header.is_transactional + ["control"] * header.is_control
    words.append(_time(header.max_timestamp) + (" (broker's)" if header.has_log_append_time else ""))
    print(", ".join(words))
    for _, line in rows:
        print(f"  {line}")


def _records(batch: FoundBatch, *, topic: str) -> list[tuple[object, str]]:
    """Return each record as JSON and as a line of text; an unreadable record ends the list."""
    from kohort.records.batch import iterate_records

    rows: list[tuple[object, str]] = []
    try:
        for record in iterate_records(batch.read(), include_control=True, check_crcs=False):
            if batch.header.is_control:
                rows.append(_control_row(record))
            else:
                is_decoded = topic in (OFFSETS_TOPIC, TRANSACTIONS_TOPIC)
                rows.append(_decoded_row(record, topic) if is_decoded else _plain_row(record))
    except CorruptRecordError as why:
        rows.append(({"unreadable": str(why)}, f"UNREADABLE {why}"))
    return rows


def _plain_row(record: Record) -> tuple[object, str]:
    words = [f"{record.offset}", _time(record.timestamp), f"key={text(record.key)}", f"value={text(record.value)}"]
    words += [f"{name}={text(value)}" for name, value in record.headers]
    return record, "  ".join(words)


def _control_row(record: Record) -> tuple[object, str]:
    """Return a marker as JSON and as a line of text."""
    from kohort.records.batch import coordinator_epoch_of, is_commit_marker

    is_commit = is_commit_marker(record.key)
    if is_commit is None:
        return _plain_row(record)
    said = {"marker": "commit" if is_commit else "abort", "coordinator_epoch": coordinator_epoch_of(record.value)}
    line = f"{record.offset}  {_time(record.timestamp)}  {said['marker']} by coordinator epoch "
    return {"offset": record.offset, "timestamp": record.timestamp, **said}, f"{line}{said['coordinator_epoch']}"


def _decoded_row(record: Record, topic: str) -> tuple[object, str]:
    """Return a coordinator's record, decoded, as JSON and as a line of text."""
    from kohort.coordinator.records import codec
    from kohort.coordinator.transactions import records

    decode: Callable[[bytes, bytes | None], object] = codec.decode if topic == OFFSETS_TOPIC else records.decode
    try:
        fact = decode(record.key or b"", record.value)
    except StorageError as why:
        return {"offset": record.offset, "unreadable": str(why)}, f"{record.offset}  UNREADABLE {why}"
    if fact is None:
        return _plain_row(record)
    # Topic ids are bytes in the coordinator's records, and text in every output.
    said = {field.name: _with_ids(getattr(fact, field.name)) for field in fields(fact)}  # type: ignore[arg-type]
    kind = type(fact).__name__
    shown = "  ".join(f"{name}={value}" for name, value in said.items())
    return {"offset": record.offset, "type": kind, **said}, f"{record.offset}  {kind}  {shown}"


def _with_ids(value: Any) -> Any:
    if isinstance(value, bytes) and len(value) == _ID_BYTES:
        return format_topic_id(value)
    if isinstance(value, Mapping):
        return {_with_ids(key): _with_ids(each) for key, each in value.items()}
    return plain(value)


def _time(timestamp_ms: int) -> str:
    if timestamp_ms < 0:
        return "no time"
    try:
        moment = datetime.fromtimestamp(timestamp_ms / 1000, UTC)
    except (ValueError, OverflowError):
        return f"{timestamp_ms} ms"
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


#: The remark about configs, which cannot be read from the folders of partitions.
_CONFIGS_LOST: Final = (
    "its topics are read from the folders. Configs of topics and of the broker are lost; topics keep all records until "
    "you set others (kohort config alter)"
)


def add_repair(actions: Any) -> Any:
    """Add the action `repair` to `kohort log`, and return its parser."""
    mending = actions.add_parser(
        "repair",
        help="cut torn ends of logs, take damaged batches out of the middle, and let readers pass the holes",
        description="Read every batch of a data directory and print a remedy for each damage; with --execute "
        "apply it. Damaged bytes in the middle are kept in files that end in .quarantine. Fetches of such "
        "a hole fail until --drop lets readers go on behind it. A missing catalog is made "
        "from the folders of the partitions.",
        run=run_repair,
    )
    mending.add_argument("directory", metavar="DIR", help="the data directory of a broker that is stopped")
    mending.add_argument("--drop", action="store_true", help="give up damaged records: readers go on behind the holes")
    add_execute(mending)
    return mending


def run_repair(options: argparse.Namespace) -> int:
    """Print a row for each damage; return 1 if only a backup or another disk helps."""
    from kohort.storage.files.fs import DiskFileSystem
    from kohort.storage.tools.repair import Remedy, plan_repair, repair

    made = _make_catalog(options)
    if made and not options.execute:
        # Damage is looked for only with a catalog: the catalog says which folders belong to a topic.
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
        values = attrgetter("topic", "partition", "damage.offset", "damage.bytes", "remedy.value")
        columns = ("TOPIC", "PARTITION", "OFFSET", "BYTES", "REMEDY")
        print_table(columns, map(values, steps), empty="nothing is damaged")
        for each in steps if is_hopeless else ():
            if each.remedy is Remedy.RESTORE:
                complain(each.damage)
        if steps and not is_done:
            complain("nothing is changed: a backup is needed first" if is_hopeless else NOTHING_CHANGED)
    return 1 if is_left else 0


def _make_catalog(options: argparse.Namespace) -> list[dict[str, object]]:
    """Return the topics of a missing catalog, and write it with `--execute`; empty if one exists."""
    from kohort.storage.catalog import CATALOG_NAME, has_catalog
    from kohort.storage.files.fs import DiskFileSystem
    from kohort.storage.tools.inspection import hold_offline
    from kohort.storage.tools.repair import make_catalog, plan_catalog

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
            (
                each.name,
                each.partition_count,
                format_topic_id(each.topic_id),
                " ".join(map("=".join, each.configs.items())),
            )
            for each in topics
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


#: Groups that are named of one partition.
_GROUPS_TOLD: Final = 10
_NO_CONFIGS: Final = (
    "configs of topics are not in a log directory: give them with --config TOPIC:NAME=VALUE, "
    "or set them later with kohort config alter"
)


def add_import(actions: Any) -> Any:
    """Add the action `import` to `kohort log`, and return its parser."""
    taking = actions.add_parser(
        "import",
        help="copy the topics and offsets of a stopped Apache Kafka broker into a new data directory",
        description="Read every batch of the log directories of one Apache Kafka 4 broker that is stopped, and copy "
        "its topics, with the offsets of its groups, into a new data directory of kohort. The source is not changed.",
        run=run_import,
    )
    taking.add_argument("sources", metavar="SOURCE", nargs="+", help="a directory of its log.dirs")
    taking.add_argument("--into", metavar="DIR", required=True, help="the data directory to make")
    taking.add_argument(
        "--config", action="append", default=[], metavar="TOPIC:NAME=VALUE", help="a config of a topic; repeatable"
    )
    taking.add_argument(
        "--end-transactions",
        action="store_true",
        help="leave __transaction_state, and end the open transactions: they are aborted, except those whose "
        "coordinator had decided to commit them; without it the transaction coordinator is taken over and ends them",
    )
    return taking


def run_import(options: argparse.Namespace) -> int:
    """Copy topics and offsets into a new data directory, and print a row for each topic."""
    from kohort.storage.files.fs import DiskFileSystem, is_locked_by_record
    from kohort.storage.tools.kafka_import import (
        leave_coordinator,
        read_coordinator,
        read_topic,
        survey_directories,
        take_over,
    )

    fs, reader = DiskFileSystem(), DiskFileSystem(reads_only=True)
    sources = [source.rstrip("/") or "/" for source in options.sources]
    for source in sources:
        if is_locked_by_record(f"{source}/.lock"):
            raise StorageError(f"Apache Kafka is running on {source}; stop it first")
    survey = survey_directories(reader, sources)
    if options.end_transactions:
        leave_coordinator(survey)
    configs = _configs(options.config, survey)
    coordinator = read_coordinator(reader, survey)
    for topic in survey.topics.values():
        read_topic(reader, topic, coordinator)
    endings = list(_endings(reader, survey))
    total_bytes = sum(topic.bytes for topic in survey.topics.values())
    copied_bytes = 0

    def on_copied(count_bytes: int) -> None:
        nonlocal copied_bytes
        copied_bytes += count_bytes
        _show_progress(f"{copied_bytes / 1_000_000:,.0f} of {total_bytes / 1_000_000:,.0f} MB copied")

    directory = options.into.rstrip("/") or "/"
    take_over(
        fs,
        survey,
        directory,
        source_fs=reader,
        coordinator=coordinator,
        configs=configs,
        on_copied=on_copied,
    )
    _show_progress()
    _check(fs, directory)
    _tell(options, survey, endings)
    return 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Ending:
    """The open transactions of one partition."""

    topic: str
    partition: int
    #: Open transactions, their records, and those that the import commits, since their coordinator had decided so.
    open_transactions: int
    open_records: int
    committed_transactions: int
    #: Those that the copied transaction coordinator ends.
    coordinated_transactions: int
    #: Groups that have offsets in open transactions.
    groups: list[str]

    def __str__(self) -> str:
        place, count = f"{self.topic}-{self.partition}", _counted(self.open_transactions, "open transaction")
        if self.groups:
            shown = ", ".join(self.groups[:_GROUPS_TOLD]) + (", ..." if len(self.groups) > _GROUPS_TOLD else "")
            return f"{place} has offsets of {shown} in {count}"
        return f"{place} has {_counted(self.open_records, 'record')} of {count}"


def _counted(count: int, noun: str) -> str:
    return f"{count} {noun}{'' if count == 1 else 's'}"


def _endings(fs: FileSystem, survey: Survey) -> Iterator[Ending]:
    for topic in sorted(survey.topics.values(), key=lambda topic: topic.name):
        for partition, found in sorted(topic.transactions.items()):
            still_open = found.open
            if still_open:
                yield Ending(
                    topic=topic.name,
                    partition=partition,
                    open_transactions=len(still_open),
                    open_records=sum(each.records for each in still_open),
                    committed_transactions=sum(each.is_committed and not each.is_coordinated for each in still_open),
                    coordinated_transactions=sum(each.is_coordinated for each in still_open),
                    groups=_groups(fs, topic.folders[partition], found) if found.is_of_groups else [],
                )


def _groups(fs: FileSystem, folder: str, transactions: Transactions) -> list[str]:
    """Return the groups that have offsets in open transactions."""
    from kohort.coordinator.records.codec import read_log_batch
    from kohort.storage.segments.segment import segment_base
    from kohort.storage.tools.inspection import FoundBatch, walk_segment

    found: dict[str, None] = {}
    for name in fs.list_directory(folder):
        base = segment_base(name)
        for each in () if base is None else walk_segment(fs, f"{folder}/{name}", base):
            if isinstance(each, FoundBatch) and transactions.is_open(each.header):
                found.update((record.group_id, None) for record in read_log_batch(each.read()))
    return list(found)


def _configs(pairs: list[str], survey: Survey) -> dict[str, dict[str, str]]:
    configs: dict[str, dict[str, str]] = {}
    for pair in pairs:
        topic, colon, rest = pair.partition(":")
        name, equals, value = rest.partition("=")
        if not colon or not equals:
            raise ConfigError(f"--config {pair!r} is not TOPIC:NAME=VALUE")
        if topic not in survey.topics:
            raise ConfigError(f"--config {pair!r}: there is no topic {topic} among {', '.join(survey.topics)}")
        configs.setdefault(topic, {})[name] = value
    return configs


def _check(fs: FileSystem, directory: str) -> None:
    """Open the copy as a broker does, and print the bytes that recovery has cut from its logs."""
    from kohort.storage.store import Store

    # Batches that a crash of Kafka has torn are cut here, and not at the first start of a broker.
    store = Store.open(directory, fs=fs)
    store.close()
    for each in store.recovery.cuts:
        complain(each)


def _tell(options: argparse.Namespace, survey: Survey, endings: Sequence[Ending]) -> None:
    topics = sorted(survey.topics.values(), key=lambda topic: topic.name)
    names = ("name", "bytes", "records", "damages")
    rows = [{**{name: getattr(topic, name) for name in names}, "partitions": len(topic.folders)} for topic in topics]
    cells = [(topic.name, len(topic.folders), topic.bytes, topic.records) for topic in topics]
    value = {"topics": rows, "left": survey.left, "transactions": endings}
    show(options, value, ("TOPIC", "PARTITIONS", "BYTES", "RECORDS"), cells, empty="no topics")
    if not options.json:
        if survey.left:
            complain(f"not copied: {', '.join(sorted(survey.left))}")
        for each in endings:
            complain(_outcome(each))
        complain(_NO_CONFIGS)


def _outcome(ending: Ending) -> str:
    if ending.coordinated_transactions == ending.open_transactions:
        return f"{ending}: the transaction coordinator ends it once the broker runs"
    committed, left = ending.committed_transactions, ending.coordinated_transactions
    buts = [f"{_counted(committed, 'one')} that the coordinator had decided to commit"] * bool(committed)
    buts += [f"{_counted(left, 'one')} that the transaction coordinator ends once the broker runs"] * bool(left)
    return f"{ending}: aborted{', but for ' * bool(buts)}{' and '.join(buts)}"
