"""What the members of one group publish, in the order in which it changed: so that who knows a part is told the rest.

Each change has a version. `edition` is the one up to which members are told: it follows `version` a moment later, and
what changes in between is told together.

Laws: within a life of a broker versions only rise. From one to the next they begin with a time, and since a clock may
be set back, with what is published: who knows a version of another life is not taken for who knows what is published
now, but with a chance of one in a million. A version that is not known here is answered with everything. Only `apply`
functions change a board.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator
from hashlib import blake2b
from typing import Final, NamedTuple

#: The version of a group in which nobody has published anything; 0 is that of a member that knows nothing.
NOTHING_YET: Final = 1
#: What a time in milliseconds is multiplied with to be a version.
VERSIONS_PER_MS: Final = 1 << 20
#: Bytes by which versions of two lives with other contents differ: some 17 minutes of versions.
_LIFE_BYTES: Final = 5
#: Members that are gone are remembered up to so many; then everybody is told everything once.
GONE_LIMIT: Final = 10_000
#: Changes that are out of date are kept until they are more than what counts, and more than these.
_SLACK: Final = 100


class Entry(NamedTuple):
    """The latest of one member; `metadata` is `None` where it publishes nothing any more or is gone."""

    version: int
    metadata: bytes | None
    published_ms: int


class Board:
    """Who publishes what."""

    __slots__ = ("_changes", "edition", "entries", "floor", "gone_count", "not_before_ms", "size_bytes", "version")

    def __init__(self) -> None:
        #: member id -> its latest.
        self.entries: dict[str, Entry] = {}
        #: Of the latest change.
        self.version = NOTHING_YET
        #: Up to which members are told. A restart tells all of it anew.
        self.edition = NOTHING_YET
        #: Who knows less than this is told everything.
        self.floor = NOTHING_YET
        #: When the next edition may come at the earliest, coordinator time, ms. A restart forgets it.
        self.not_before_ms = 0
        #: Derived: what all of it takes, without names.
        self.size_bytes = 0
        #: Derived: how many of `entries` say that somebody is gone.
        self.gone_count = 0
        #: Version and member id of each change, ascending; what was changed again since is out of date.
        self._changes: list[tuple[int, str]] = []

    def find(self, member_id: str) -> Entry | None:
        """What a member publishes; `None`: nothing."""
        entry = self.entries.get(member_id)
        return None if entry is None or entry.metadata is None else entry

    def living(self) -> dict[str, tuple[bytes, int]]:
        """member id -> what it publishes, and since when, ms."""
        return {
            member_id: (entry.metadata, entry.published_ms)
            for member_id, entry in self.entries.items()
            if entry.metadata is not None
        }

    def put(self, member_id: str, metadata: bytes, published_ms: int) -> None:
        """A member publishes something else."""
        if self.version == NOTHING_YET:
            # What is known of a board before this one, of a life in which somebody published, is not known of this.
            self.floor = published_ms * VERSIONS_PER_MS
        version = max(self.version, published_ms * VERSIONS_PER_MS) + 1
        self._change(member_id, Entry(version, metadata, published_ms))

    def drop(self, member_id: str) -> None:
        """A member publishes nothing any more."""
        entry = self.find(member_id)
        if entry is None:
            return
        self._change(member_id, Entry(self.version + 1, None, entry.published_ms))
        if self.gone_count > GONE_LIMIT:
            self.renumber(self.version)

    def loaded_base(self, now_ms: int) -> int:
        """Above what the versions of this life begin."""
        content = blake2b(digest_size=_LIFE_BYTES)
        for member_id in sorted(self.entries):
            metadata = self.entries[member_id].metadata
            if metadata is not None:
                content.update(f"{len(member_id)} {len(metadata)} {member_id}".encode())
                content.update(metadata)
        return max(now_ms * VERSIONS_PER_MS, self.version) + int.from_bytes(content.digest())

    def renumber(self, base: int) -> None:
        """Forget who is gone, and give everything a version above `base` and above all that were given so far."""
        living = [(member_id, entry) for member_id, entry in self.entries.items() if entry.metadata is not None]
        self.floor = self.version = max(base, self.version) + 1
        self.entries.clear()
        self._changes.clear()
        self.size_bytes = self.gone_count = 0
        for member_id, entry in living:
            self._change(member_id, entry._replace(version=self.version + 1))

    def changes_since(self, version: int) -> Iterator[tuple[str, Entry]]:
        """What changed behind a version, oldest first; of each member its latest."""
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
