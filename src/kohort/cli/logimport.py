"""`kohort log import`: take over the topics and offsets of a broker of Apache Kafka that is stopped.

Laws: the source is read and never written to; the directory that is made is new. What a copy cannot keep of
transactions is named, and refused unless the user says that it may be left out.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from kohort.cli.output import complain, print_json, print_table
from kohort.errors import ConfigError, StorageError

if TYPE_CHECKING:
    from kohort.storage.files.fs import FileSystem
    from kohort.storage.offline.kafka_import import Survey
    from kohort.storage.offline.transactions import Transactions

#: Of partitions with transactions, and of groups in one of them, so many are named in a line.
_PLACES_TOLD: Final = 10
_GROUPS_TOLD: Final = 10
_NO_CONFIGS: Final = (
    "configs of topics are not in a log directory: give them with --config TOPIC:NAME=VALUE, "
    "or set them later with kohort config alter"
)


def add_import(actions: Any) -> Any:
    """Add `import` to the actions of `kohort log`; its parser."""
    taking = actions.add_parser(
        "import",
        help="copy the topics and offsets of a stopped Apache Kafka broker into a new data directory",
        description="Read every batch of the log directories of one Apache Kafka 4 broker that is stopped, and copy "
        "its topics, with the offsets of its groups, into a new data directory of kohort. The source is not changed.",
        allow_abbrev=False,
    )
    taking.add_argument("sources", metavar="SOURCE", nargs="+", help="a directory of its log.dirs")
    taking.add_argument("--into", metavar="DIR", required=True, help="the data directory to make")
    taking.add_argument(
        "--config", action="append", default=[], metavar="TOPIC:NAME=VALUE", help="a config of a topic; repeatable"
    )
    taking.add_argument(
        "--end-transactions",
        action="store_true",
        help="leave out the records of aborted transactions, and end open ones: they are aborted, but for those whose "
        "coordinator had decided to commit them",
    )
    taking.set_defaults(run=run_import)
    return taking


def run_import(options: argparse.Namespace) -> int:
    """Print a row for each topic that was taken."""
    from kohort.storage.files.fs import DiskFileSystem, is_locked_by_record
    from kohort.storage.offline.kafka_import import read_topic, survey_directories, take_over
    from kohort.storage.offline.transactions import read_decisions

    fs, reader = DiskFileSystem(), DiskFileSystem(reads_only=True)
    sources = [source.rstrip("/") or "/" for source in options.sources]
    for source in sources:
        if is_locked_by_record(f"{source}/.lock"):
            raise StorageError(f"Apache Kafka is running on {source}; stop it first")
    survey = survey_directories(reader, sources)
    configs = _configs(options.config, survey)
    committed = read_decisions(reader, survey.decisions)
    for topic in survey.topics.values():
        read_topic(reader, topic, committed)
    endings = list(_endings(reader, survey))
    if endings and not options.end_transactions:
        raise StorageError(_refusal(endings))
    progress = _Progress(sum(topic.bytes for topic in survey.topics.values()))
    directory = options.into.rstrip("/") or "/"
    take_over(fs, survey, directory, source_fs=reader, configs=configs, on_copied=progress.add)
    progress.end()
    _check(fs, directory)
    _tell(options, survey, endings)
    return 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Ending:
    """The outcome of one partition's transactions: those aborted, and those left open."""

    topic: str
    partition: int
    aborted_transactions: int
    aborted_records: int
    #: Open ones, by what a copy makes of them.
    open_transactions: int
    open_records: int
    committed_transactions: int
    #: Groups that have offsets in open ones.
    groups: list[str]

    def __str__(self) -> str:
        place = f"{self.topic}-{self.partition}"
        if self.groups:
            shown = ", ".join(self.groups[:_GROUPS_TOLD]) + (", ..." if len(self.groups) > _GROUPS_TOLD else "")
            return f"{place} has offsets of {shown} in {_counted(self.open_transactions, 'open transaction')}"
        parts = (
            (self.aborted_records, self.aborted_transactions, "aborted transaction"),
            (self.open_records, self.open_transactions, "open transaction"),
        )
        told = [f"{_counted(records, 'record')} of {_counted(count, kind)}" for records, count, kind in parts if count]
        return f"{place} has {' and '.join(told)}"


def _counted(count: int, noun: str) -> str:
    return f"{count} {noun}{'' if count == 1 else 's'}"


def _endings(fs: FileSystem, survey: Survey) -> Iterator[Ending]:
    for topic in sorted(survey.topics.values(), key=lambda topic: topic.name):
        for partition, found in sorted(topic.transactions.items()):
            if found.is_in_the_way:
                still_open = found.open
                yield Ending(
                    topic=topic.name,
                    partition=partition,
                    aborted_transactions=0 if found.is_of_groups else found.aborted,
                    aborted_records=0 if found.is_of_groups else found.aborted_records,
                    open_transactions=len(still_open),
                    open_records=sum(each.records for each in still_open),
                    committed_transactions=sum(each.is_committed for each in still_open),
                    groups=_groups(fs, topic.folders[partition], found) if found.is_of_groups else [],
                )


def _groups(fs: FileSystem, folder: str, transactions: Transactions) -> list[str]:
    """Return the groups that have offsets in open transactions."""
    from kohort.coordinator.logbatch import read_log_batch
    from kohort.storage.offline.inspection import FoundBatch, walk_segment
    from kohort.storage.segments.segment import segment_base

    found: dict[str, None] = {}
    for name in fs.list_directory(folder):
        base = segment_base(name)
        for each in () if base is None else walk_segment(fs, f"{folder}/{name}", base):
            if isinstance(each, FoundBatch) and transactions.is_open(each.header):
                found.update((record.group_id, None) for record in read_log_batch(each.read()))
    return list(found)


def _refusal(endings: Sequence[Ending]) -> str:
    shown = [str(each) for each in endings[:_PLACES_TOLD]]
    if len(endings) > _PLACES_TOLD:
        shown.append(f"and so do {_counted(len(endings) - _PLACES_TOLD, 'more partition')}")
    return (
        f"{'; '.join(shown)}: this broker has no transactions, and would serve them as if they were committed or wait "
        "for them for ever; end what is open in Apache Kafka, and leave out the rest with --end-transactions"
    )


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
    """Open the copy as a broker does, and report the bytes that its recovery has cut."""
    from kohort.storage.store import Store

    # What a crash of Kafka has torn is cut here, and not at the first start of a broker.
    store = Store.open(directory, fs=fs)
    store.close()
    for each in store.recovery.cuts:
        complain(each)


def _tell(options: argparse.Namespace, survey: Survey, endings: Sequence[Ending]) -> None:
    topics = sorted(survey.topics.values(), key=lambda topic: topic.name)
    if options.json:
        names = ("name", "bytes", "records", "damages")
        rows: list[dict[str, Any]] = [{name: getattr(topic, name) for name in names} for topic in topics]
        for row, topic in zip(rows, topics, strict=True):
            row["partitions"] = len(topic.folders)
        print_json({"topics": rows, "left": survey.left, "transactions": endings})
    else:
        cells = [(topic.name, len(topic.folders), topic.bytes, topic.records) for topic in topics]
        print_table(("TOPIC", "PARTITIONS", "BYTES", "RECORDS"), cells, empty="no topics")
        if survey.left:
            complain(f"left where they are: {', '.join(sorted(survey.left))}")
        for each in endings:
            complain(_outcome(each))
        complain(_NO_CONFIGS)


def _outcome(ending: Ending) -> str:
    word = "aborted" if ending.groups else "left out"
    committed = ending.committed_transactions
    but = f", but for {_counted(committed, 'open one')} that the coordinator had decided to commit" if committed else ""
    return f"{ending}: {word}{but}"


class _Progress:
    """The progress of a copy, shown on a terminal."""

    def __init__(self, total_bytes: int) -> None:
        self._total_bytes = total_bytes
        self._copied_bytes = 0
        self._is_told = sys.stderr.isatty()

    def add(self, count_bytes: int) -> None:
        """Add copied bytes to the progress."""
        self._copied_bytes += count_bytes
        if self._is_told:
            done, total = self._copied_bytes / 1_000_000, self._total_bytes / 1_000_000
            sys.stderr.write(f"\r{done:,.0f} of {total:,.0f} MB copied")

    def end(self) -> None:
        """Clear the line of the progress."""
        if self._is_told:
            sys.stderr.write("\r\x1b[K")
