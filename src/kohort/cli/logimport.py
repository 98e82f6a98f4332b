"""`kohort log import`: take over the topics and offsets of a broker of Apache Kafka that is stopped.

Laws: the source is read and never written to; the directory that is made is new.
"""

from __future__ import annotations

import argparse
import sys
from typing import TYPE_CHECKING, Any, Final

from kohort.cli.output import complain, print_json, print_table
from kohort.errors import ConfigError, StorageError

if TYPE_CHECKING:
    from kohort.storage.files.fs import FileSystem
    from kohort.storage.offline.takeover import Survey

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
    taking.set_defaults(run=run_import)
    return taking


def run_import(options: argparse.Namespace) -> int:
    """A row for each topic that was taken."""
    from kohort.storage.files.fs import DiskFileSystem, is_locked_by_record
    from kohort.storage.offline.takeover import read_topic, survey_directories, take_over

    fs, reader = DiskFileSystem(), DiskFileSystem(reads_only=True)
    sources = [source.rstrip("/") or "/" for source in options.sources]
    for source in sources:
        if is_locked_by_record(f"{source}/.lock"):
            raise StorageError(f"Apache Kafka is running on {source}; stop it first")
    survey = survey_directories(reader, sources)
    configs = _configs(options.config, survey)
    for topic in survey.topics.values():
        read_topic(reader, topic)
    progress = _Progress(sum(topic.bytes for topic in survey.topics.values()))
    directory = options.into.rstrip("/") or "/"
    take_over(fs, survey, directory, source_fs=reader, configs=configs, on_copied=progress.add)
    progress.end()
    _check(fs, directory)
    _tell(options, survey)
    return 0


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
    """Start on the copy as a broker does, so that what a crash of Kafka left is cut now, and say so."""
    from kohort.storage.store import Store

    store = Store.open(directory, fs=fs)
    store.close()
    for each in store.recovery.cuts:
        complain(each)


def _tell(options: argparse.Namespace, survey: Survey) -> None:
    topics = sorted(survey.topics.values(), key=lambda topic: topic.name)
    if options.json:
        names = ("name", "bytes", "records", "damages")
        rows: list[dict[str, Any]] = [{name: getattr(topic, name) for name in names} for topic in topics]
        for row, topic in zip(rows, topics, strict=True):
            row["partitions"] = len(topic.folders)
        print_json({"topics": rows, "left": survey.left})
    else:
        cells = [(topic.name, len(topic.folders), topic.bytes, topic.records) for topic in topics]
        print_table(("TOPIC", "PARTITIONS", "BYTES", "RECORDS"), cells, empty="no topics")
        if survey.left:
            complain(f"left where they are: {', '.join(sorted(survey.left))}")
        complain(_NO_CONFIGS)


class _Progress:
    """How far a copy is, for a person who waits."""

    def __init__(self, total_bytes: int) -> None:
        self._total_bytes = total_bytes
        self._copied_bytes = 0
        self._is_told = sys.stderr.isatty()

    def add(self, count_bytes: int) -> None:
        """So many bytes more."""
        self._copied_bytes += count_bytes
        if self._is_told:
            done, total = self._copied_bytes / 1_000_000, self._total_bytes / 1_000_000
            sys.stderr.write(f"\r{done:,.0f} of {total:,.0f} MB copied")

    def end(self) -> None:
        """All of it."""
        if self._is_told:
            sys.stderr.write("\r\x1b[K")
