"""What topics there are: the one file that says which partition folders count.

Laws: a catalog is a value; a change is a new one, in force when its file is in place. A topic exists from the moment
the file names it and is gone from the moment the file does not, whatever folders lie about. Producer ids are given
out in blocks, written down before the first of them is used, so that none is used twice.
Source: Apache Kafka's naming rules of topics and its blocks of 1,000 producer ids; JSON of our own, format version 1.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from kohort.errors import ErrorCode, Refused, StorageError
from kohort.ids import TopicId, format_topic_id, parse_topic_id
from kohort.storage.fs import FileSystem, read_bounded, replace_file

CATALOG_NAME: Final = "kohort.catalog.json"
CATALOG_FORMAT: Final = 1
#: More than any catalog that kohort writes.
CATALOG_LIMIT_BYTES: Final = 256 << 20
PRODUCER_ID_BLOCK: Final = 1000
_TOPIC_NAME: Final = re.compile(r"[a-zA-Z0-9._-]{1,249}")
_FOLDER_NAME: Final = re.compile(r"(.+)-(0|[1-9][0-9]{0,9})")


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicEntry:
    """One topic as the catalog holds it; partitions are 0 to `partition_count` - 1."""

    name: str
    topic_id: TopicId
    partition_count: int
    configs: Mapping[str, str]

    def folders(self) -> list[str]:
        """The names of its partitions' folders."""
        return [f"{self.name}-{partition}" for partition in range(self.partition_count)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Catalog:
    """Every topic at one moment."""

    topics: Mapping[str, TopicEntry] = field(default_factory=dict)
    #: Topics that are gone, whose folders may still carry their names.
    deleting: tuple[TopicEntry, ...] = ()
    #: Smallest producer id that nobody was given.
    next_producer_id: int = 0

    def with_topic(self, entry: TopicEntry) -> Catalog:
        """With this topic, new or changed."""
        return replace(self, topics={**self.topics, entry.name: entry})

    def without_topic(self, name: str) -> Catalog:
        """With this topic among those that are being deleted."""
        topics = dict(self.topics)
        gone = topics.pop(name)
        return replace(self, topics=topics, deleting=(*self.deleting, gone))

    def with_folders_freed(self) -> Catalog:
        """When the folders of deleted topics are out of the way."""
        return replace(self, deleting=())

    def with_producer_id_block(self) -> tuple[Catalog, range]:
        """The next block of producer ids, and the catalog that has given it out."""
        end = self.next_producer_id + PRODUCER_ID_BLOCK
        return replace(self, next_producer_id=end), range(self.next_producer_id, end)


def check_topic_name(name: str) -> None:
    """Refuse a name that Kafka does not allow; it becomes part of a folder's name."""
    if not _TOPIC_NAME.fullmatch(name) or name in (".", ".."):
        raise Refused(
            ErrorCode.INVALID_TOPIC_EXCEPTION,
            f"topic name {name!r} is not allowed: 1 to 249 of the letters a-z A-Z 0-9 . _ - are expected",
        )


def split_folder_name(folder: str) -> tuple[str, int] | None:
    """Topic and partition of a partition's folder; `None` for other names."""
    match = _FOLDER_NAME.fullmatch(folder)
    return (match[1], int(match[2])) if match else None


def load_catalog(fs: FileSystem, directory: str) -> Catalog:
    """Read the catalog's file; `StorageError` says what is wrong with it."""
    path = f"{directory}/{CATALOG_NAME}"
    raw = read_bounded(fs, path, limit_bytes=CATALOG_LIMIT_BYTES)
    try:
        document = json.loads(raw)
        version = document["format_version"]
        if version > CATALOG_FORMAT:
            raise StorageError(f"{path} has format {version}, this kohort reads up to {CATALOG_FORMAT}; upgrade kohort")
        topics = [_read_entry(entry) for entry in document["topics"]]
        return Catalog(
            topics={entry.name: entry for entry in topics},
            deleting=tuple(_read_entry(entry) for entry in document["deleting"]),
            next_producer_id=int(document["next_producer_id"]),
        )
    except (ValueError, KeyError, TypeError, AttributeError, Refused) as why:
        raise StorageError(f"{path} is damaged ({why}); restore it from a backup") from why


def save_catalog(fs: FileSystem, directory: str, catalog: Catalog) -> None:
    """Put the catalog in force: after this a crash keeps it, before it a crash keeps the old one."""
    document = {
        "format_version": CATALOG_FORMAT,
        "next_producer_id": catalog.next_producer_id,
        "topics": [_write_entry(entry) for entry in catalog.topics.values()],
        "deleting": [_write_entry(entry) for entry in catalog.deleting],
    }
    replace_file(fs, directory, CATALOG_NAME, json.dumps(document).encode())


def _read_entry(entry: Mapping[str, object]) -> TopicEntry:
    name, count, configs = entry["name"], entry["partition_count"], entry["configs"]
    if not isinstance(name, str) or not isinstance(count, int) or not isinstance(configs, dict) or count < 1:
        raise ValueError(f"topic {name!r} is incomplete")
    check_topic_name(name)
    return TopicEntry(
        name=name,
        topic_id=parse_topic_id(str(entry["topic_id"])),
        partition_count=count,
        configs={str(key): str(value) for key, value in configs.items()},
    )


def _write_entry(entry: TopicEntry) -> dict[str, object]:
    return {
        "name": entry.name,
        "topic_id": format_topic_id(entry.topic_id),
        "partition_count": entry.partition_count,
        "configs": dict(entry.configs),
    }
