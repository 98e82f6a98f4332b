"""Values that commands and records share.

Laws: nothing here imports a command or a record.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple


class ClientAssignor(NamedTuple):
    """A client-side assignor of a member: KIP-848 as drafted.

    `version` is that of `metadata`, between the other two; `reason` other than 0 asks for a computation.
    """

    name: str
    minimum_version: int
    maximum_version: int
    reason: int
    version: int
    metadata: bytes


class ClientAssignment(NamedTuple):
    """Message of a client-side assignor to one member; `error` other than 0: the assignor failed."""

    error: int
    version: int
    metadata: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class ClassicMemberFacts:
    """Facts of a member of a KIP-848 group that speaks the classic protocol.

    `protocols` are (name, metadata) in the member's order, at least one; the metadata is an embedded subscription.
    """

    session_timeout_ms: int
    protocols: tuple[tuple[str, bytes], ...]

    @property
    def protocol_names(self) -> tuple[str, ...]:
        """Return each protocol name once, in the member's order of preference."""
        return tuple(dict.fromkeys(name for name, _ in self.protocols))

    @property
    def metadata_bytes(self) -> int:
        """Return the approximate memory of the protocols: names and metadata, bytes."""
        return sum(len(name) + len(metadata) for name, metadata in self.protocols)
