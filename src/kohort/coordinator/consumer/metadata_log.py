"""Published metadata of a group's members in the order of its changes, for incremental reads.

Each change has a version. Responses to members have changes up to `edition`, which follows `version` a moment later, so
that several changes are sent together.

Laws: while the broker runs, versions only rise. After a restart they begin with a time plus, since a clock may be set
back, a hash of the content. So a member with a version from before the restart gets all metadata again, except with
a chance of one in a million. An unknown version gets all metadata. Only `apply` functions change a log.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator
from hashlib import blake2b
from typing import Final, NamedTuple

#: Version of a group without published metadata; 0 is that of a member that knows none.
NOTHING_YET: Final = 1
#: Versions per millisecond: factor from a time to a version.
VERSIONS_PER_MS: Final = 1 << 20
#: Bytes of the hash in the versions after a restart: some 17 minutes of versions.
_LIFE_BYTES: Final = 5
#: Most remembered members that are gone; beyond that all members are told everything once.
GONE_LIMIT: Final = 10_000
#: Outdated changes are kept until they are more than the current ones, and more than this number.
_SLACK: Final = 100


class Entry(NamedTuple):
    """Latest change of one member; `metadata`: `None` if the member withdrew it or was removed."""

    version: int
    metadata: bytes | None
    published_ms: int


class MetadataLog:
    """Published metadata of one group, with versions."""

    __slots__ = ("_changes", "edition", "entries", "floor", "gone_count", "not_before_ms", "size_bytes", "version")

    def __init__(self) -> None:
        #: member id -> its latest change.
        self.entries: dict[str, Entry] = {}
        #: Version of the latest change.
        self.version = NOTHING_YET
        #: Version up to which members are told. A restart tells all metadata anew.
        self.edition = NOTHING_YET
        #: Members with a version below this are told everything.
        self.floor = NOTHING_YET
        #: Earliest time of the next edition, coordinator time, ms. A restart forgets it.
        self.not_before_ms = 0
        #: Derived: size of all metadata, bytes, without member ids.
        self.size_bytes = 0
        #: Derived: number of `entries` of members that publish none any more.
        self.gone_count = 0
        #: Version and member id of each change, ascending; a change is outdated once the member has a later one.
        self._changes: list[tuple[int, str]] = []

    def find(self, member_id: str) -> Entry | None:
        """Return the published metadata of a member; `None`: none."""
        entry = self.entries.get(member_id)
        return None if entry is None or entry.metadata is None else entry

    def living(self) -> dict[str, tuple[bytes, int]]:
        """Return member id -> its metadata, and since when, ms."""
        return {
            member_id: (entry.metadata, entry.published_ms)
            for member_id, entry in self.entries.items()
            if entry.metadata is not None
        }

    def put(self, member_id: str, metadata: bytes, published_ms: int) -> None:
        """Set the metadata of a member."""
        if self.version == NOTHING_YET:
            # Versions below the floor belong to an earlier board of the group, and say nothing about this one.
            self.floor = published_ms * VERSIONS_PER_MS
        version = max(self.version, published_ms * VERSIONS_PER_MS) + 1
        self._change(member_id, Entry(version, metadata, published_ms))

    def drop(self, member_id: str) -> None:
        """Withdraw the metadata of a member."""
        entry = self.find(member_id)
        if entry is None:
            return
        self._change(member_id, Entry(self.version + 1, None, entry.published_ms))
        if self.gone_count > GONE_LIMIT:
            self.renumber(self.version)

    def loaded_base(self, now_ms: int) -> int:
        """Return the version above which versions begin after a restart."""
        content = blake2b(digest_size=_LIFE_BYTES)
        for member_id in sorted(self.entries):
            metadata = self.entries[member_id].metadata
            if metadata is not None:
                content.update(f"{len(member_id)} {len(metadata)} {member_id}".encode())
                content.update(metadata)
        return max(now_ms * VERSIONS_PER_MS, self.version) + int.from_bytes(content.digest())

    def renumber(self, base: int) -> None:
        """Drop entries without metadata; give the others versions above `base` and all earlier versions."""
        living = [(member_id, entry) for member_id, entry in self.entries.items() if entry.metadata is not None]
        self.floor = self.version = max(base, self.version) + 1
        self.entries.clear()
        self._changes.clear()
        self.size_bytes = self.gone_count = 0
        for member_id, entry in living:
            self._change(member_id, entry._replace(version=self.version + 1))

    def changes_since(self, version: int) -> Iterator[tuple[str, Entry]]:
        """Yield the changes after a version, oldest first, and only the latest of each member."""
        changes = self._changes
        for number in range(bisect_left(changes, (version + 1, "")), len(changes)):
            changed, member_id = changes[number]
            entry = self.entries[member_id]
            if entry.version == changed:
                yield member_id, entry

    def _change(self, member_id: str, entry: Entry) -> None:
        before = self.entries.get(member_id)
        if before is not None:
            self.size_bytes -= len(before.metadata or b"")
            self.gone_count -= before.metadata is None
        self.size_bytes += len(entry.metadata or b"")
        self.gone_count += entry.metadata is None
        self.entries[member_id] = entry
        self.version = entry.version
        self._changes.append((entry.version, member_id))
        if len(self._changes) > 2 * len(self.entries) + _SLACK:
            self._changes = sorted((each.version, name) for name, each in self.entries.items())
