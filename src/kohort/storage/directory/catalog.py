"""The catalog: the topics, the broker's dynamic configs, and the next producer id.

Laws: a catalog is a value, and so is a change of it; the catalog that follows from both is the same now and when the
changes are read again. A topic exists from the moment the file has the change that names it and is gone from the
moment it has the one that does not, whatever folders lie about. Producer ids are given out in blocks, written down
before the first of them is used, so that none is used twice.
Source: Apache Kafka's naming rules of topics and its blocks of 1,000 producer ids; its metadata log (KIP-631), of which
`catalogfile` is the small brother.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from kohort.errors import ErrorCode, Refused
from kohort.ids import TopicId, format_topic_id, parse_topic_id

#: Producer ids that one change of the catalog gives out, as in Kafka.
PRODUCER_ID_BLOCK: Final = 1000
_LONGEST_NAME: Final = 249
_TOPIC_NAME: Final = re.compile(r"[a-zA-Z0-9._-]+")
_FOLDER_NAME: Final = re.compile(r"(.+)-(0|[1-9][0-9]{0,9})")


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicEntry:
    """One topic as the catalog holds it; partitions are 0 to `partition_count` - 1."""

    name: str
    topic_id: TopicId
    partition_count: int
    configs: Mapping[str, str]

    def folders(self) -> list[str]:
        """Return the names of its partitions' folders."""
        return [f"{self.name}-{partition}" for partition in range(self.partition_count)]


@dataclass(frozen=True, slots=True, kw_only=True)
class CatalogChange:
    """The difference between a catalog and the next one."""

    #: Topics that are new or changed.
    topics: tuple[TopicEntry, ...] = ()
    #: Topics that are to be deleted, by name.
    gone: tuple[str, ...] = ()
    #: Topics whose folders are still in the way; a whole catalog has them, a change does not.
    deleting: tuple[TopicEntry, ...] = ()
    #: Whether the folders of all that were deleted before are out of the way.
    is_freed: bool = False
    #: `None` where no producer ids are given out.
    next_producer_id: int | None = None
    #: Every config of the broker that was set while it ran; `None` where they stay.
    broker_configs: Mapping[str, str] | None = None

    def document(self) -> dict[str, object]:
        """Return the change as JSON, without the fields that do not change."""
        found: dict[str, object] = {
            "topics": [_write_entry(entry) for entry in self.topics],
            "gone": list(self.gone),
            "deleting": [_write_entry(entry) for entry in self.deleting],
        }
        found = {name: value for name, value in found.items() if value}
        if self.is_freed:
            found["freed"] = True
        if self.next_producer_id is not None:
            found["next_producer_id"] = self.next_producer_id
        if self.broker_configs is not None:
            found["broker_configs"] = dict(self.broker_configs)
        return found

    @classmethod
    def of(cls, document: Mapping[str, object]) -> CatalogChange:
        """Read a change from its JSON.

        Raises:
            ValueError, KeyError, TypeError, Refused: it is no change that `document` wrote.
        """
        ids, configs = document.get("next_producer_id"), document.get("broker_configs")
        return cls(
            topics=tuple(_read_entry(entry) for entry in _list(document, "topics")),
            gone=tuple(str(name) for name in _list(document, "gone")),
            deleting=tuple(_read_entry(entry) for entry in _list(document, "deleting")),
            is_freed=bool(document.get("freed")),
            next_producer_id=None if ids is None else int(str(ids)),
            broker_configs=None if configs is None else _texts(configs),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Catalog:
    """The catalog of topics at one moment."""

    topics: Mapping[str, TopicEntry] = field(default_factory=dict)
    #: Deleted topics; their folders may still have their names.
    deleting: tuple[TopicEntry, ...] = ()
    #: Smallest producer id that was not given out.
    next_producer_id: int = 0
    #: Configs of the broker that were set while it ran.
    broker_configs: Mapping[str, str] = field(default_factory=dict)

    def changed(self, *changes: CatalogChange) -> Catalog:
        """Return the catalog after `changes`; `KeyError` if a missing topic is deleted."""
        topics, deleting = dict(self.topics), self.deleting
        next_producer_id, broker_configs = self.next_producer_id, self.broker_configs
        for change in changes:
            topics.update((entry.name, entry) for entry in change.topics)
            # The freed folders are those of earlier deletions, not of this change's.
            deleting = (() if change.is_freed else deleting) + change.deleting
            deleting += tuple(topics.pop(name) for name in change.gone)
            if change.next_producer_id is not None:
                next_producer_id = change.next_producer_id
            if change.broker_configs is not None:
                broker_configs = change.broker_configs
        return Catalog(
            topics=topics, deleting=deleting, next_producer_id=next_producer_id, broker_configs=broker_configs
        )

    def as_changes(self, *, topics_each: int) -> Iterable[CatalogChange]:
        """Yield the changes from an empty catalog to this one, each of `topics_each` topics at most."""
        yield CatalogChange(
            deleting=self.deleting, next_producer_id=self.next_producer_id, broker_configs=self.broker_configs
        )
        entries = list(self.topics.values())
        for first in range(0, len(entries), topics_each):
            yield CatalogChange(topics=tuple(entries[first : first + topics_each]))


def join(changes: Sequence[CatalogChange]) -> CatalogChange:
    """Join changes of different things into one."""
    ids = [each.next_producer_id for each in changes if each.next_producer_id is not None]
    configs = [each.broker_configs for each in changes if each.broker_configs is not None]
    return CatalogChange(
        topics=tuple(entry for each in changes for entry in each.topics),
        gone=tuple(name for each in changes for name in each.gone),
        deleting=tuple(entry for each in changes for entry in each.deleting),
        is_freed=any(each.is_freed for each in changes),
        # Blocks are given out in order: the last change has the largest id.
        next_producer_id=ids[-1] if ids else None,
        broker_configs=configs[-1] if configs else None,
    )


def check_topic_name(name: str) -> None:
    """Refuse a topic name that Kafka does not allow, in Kafka's words."""
    # The name becomes part of a folder's name.
    if not name:
        why = "the empty string is not allowed"
    elif name in (".", ".."):
        why = "'.' or '..' is not allowed"
    elif len(name) > _LONGEST_NAME:
        why = f"the length of '{name[:_LONGEST_NAME]}...' is longer than the max allowed length {_LONGEST_NAME}"
    elif not _TOPIC_NAME.fullmatch(name):
        why = f"'{name}' contains one or more characters other than ASCII alphanumerics, '.', '_' and '-'"
    else:
        return
    raise Refused(ErrorCode.INVALID_TOPIC_EXCEPTION, f"Topic name is invalid: {why}")


def collision_key(name: str) -> str:
    """Return the form of a topic name in which two topics must differ."""
    # Metrics of Kafka's write `.` as `_`.
    return name.replace(".", "_")


def split_folder_name(folder: str) -> tuple[str, int] | None:
    """Split the name of a partition's folder into topic and partition; `None` for other names."""
    match = _FOLDER_NAME.fullmatch(folder)
    return (match[1], int(match[2])) if match else None


def first_missing(partitions: Collection[int]) -> int | None:
    """Return the first missing partition below the largest one; `None` if none is missing."""
    # The largest may be any number: this must not cost as much as it says.
    if len(partitions) == max(partitions, default=-1) + 1:
        return None
    return next(number for number in range(len(partitions) + 1) if number not in partitions)


def _list(document: Mapping[str, object], name: str) -> list[Mapping[str, object]]:
    found = document.get(name, [])
    if not isinstance(found, list):
        raise TypeError(f"{name} is no list")
    return found


def _texts(configs: object) -> dict[str, str]:
    if not isinstance(configs, dict):
        raise TypeError("configs are no table")
    return {str(key): str(value) for key, value in configs.items()}


def _read_entry(entry: Mapping[str, object]) -> TopicEntry:
    name, count, configs = entry["name"], entry["partition_count"], entry["configs"]
    if not isinstance(name, str) or not isinstance(count, int) or count < 1:
        raise ValueError(f"topic {name!r} is incomplete")
    check_topic_name(name)
    return TopicEntry(
        name=name,
        topic_id=parse_topic_id(str(entry["topic_id"])),
        partition_count=count,
        configs=_texts(configs),
    )


def _write_entry(entry: TopicEntry) -> dict[str, object]:
    return {
        "name": entry.name,
        "topic_id": format_topic_id(entry.topic_id),
        "partition_count": entry.partition_count,
        "configs": dict(entry.configs),
    }
