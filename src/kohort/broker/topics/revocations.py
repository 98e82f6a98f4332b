"""The capability tokens that are revoked: kept in the catalog, in force on every connection.

A revoked id ends the tokens that have it in their chains: the token itself, and what its holders have made of it. A
revoked label ends those with it, and with labels behind it.

Laws: a revocation is in force when the catalog's file has it, and again after a restart, before any client can log in.
Those who hear of it do so in the same turn of the loop. It is forgotten when the last lease is over, and not before; an
hour is added, since the clock of a machine may be put back. Their number is bounded.
Source: requirement H6; KIP-48, whose tokens are in the metadata log, too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from enum import IntEnum
from typing import Final, Protocol
from weakref import WeakSet

from kohort.broker.topics.topic_operations import Outcome, Wanted
from kohort.errors import ErrorCode, Refused
from kohort.security.capabilities.capability import Capability
from kohort.storage.catalog import RevokedName, RevokedTimes
from kohort.storage.topics import TopicChanges, TopicPlan

#: Revocations that are remembered at once.
MOST_REVOCATIONS: Final = 10_000
#: Milliseconds after the end of the last lease.
KEPT_MS: Final = 3_600_000
#: In place of the end of a lease: there is none.
NO_END_MS: Final = (1 << 63) - 1
#: Changes of revocations wait for each other, and for no topic: none has this name.
_CONCERN: Final = "/tokens"


class RevokedKind(IntEnum):
    """The numbers of what is revoked, on the wire and in the catalog."""

    ID = 0
    LABEL = 1


class Follower(Protocol):
    """A broker, as revocations see it."""

    def tokens_revoked(self) -> None:
        """End what the revoked tokens were for."""


class Revocations:
    """The revocations of one broker, and their changes.

    Args:
        changes: of the catalog.
        now_ms: the time of the day, milliseconds since 1970.
    """

    def __init__(self, changes: TopicChanges, now_ms: Callable[[], int]) -> None:
        self._changes: Final = changes
        self._now_ms: Final = now_ms
        #: The brokers of the cluster, which hear of changes.
        self.followers: Final[WeakSet[Follower]] = WeakSet()
        self._names: dict[RevokedKind, set[str]] = {}
        self._read()

    def __len__(self) -> int:
        return sum(map(len, self._names.values()))

    def is_revoked(self, capability: Capability) -> bool:
        """Whether a token was revoked: itself, one that it was made of, or its label."""
        ids, labels = self._names[RevokedKind.ID], self._names[RevokedKind.LABEL]
        if ids and not ids.isdisjoint(capability.chain):
            return True
        return bool(labels) and capability.label is not None and not labels.isdisjoint(_labels_of(capability.label))

    def rows(self) -> Iterator[tuple[RevokedName, RevokedTimes]]:
        """Yield the revocations that some lease needs, in the order in which they were made."""
        now_ms = self._now_ms()
        return (row for row in self._changes.catalog.revocations.items() if row[1][1] >= now_ms)

    def revocation(self, ends_ms: Mapping[RevokedName, int], done: Callable[[Outcome], None]) -> Wanted:
        """Build the change that revokes tokens; `ends_ms`: the end of the last lease of each, ms since 1970."""

        def plan() -> TopicPlan:
            known, now_ms = self._changes.catalog.revocations, self._now_ms()
            added = {
                name: (now_ms, end_ms)
                for name, end_ms in ends_ms.items()
                # One that is over needs none, and a longer one stays.
                if end_ms + KEPT_MS >= now_ms and (name not in known or known[name][1] < end_ms)
            }
            gone = [name for name, (_, end_ms) in known.items() if end_ms + KEPT_MS < now_ms and name not in added]
            if len(known.keys() | added.keys()) - len(gone) > MOST_REVOCATIONS:
                text = f"a broker remembers {MOST_REVOCATIONS} revocations at most; revoke a token that others are of"
                raise Refused(ErrorCode.POLICY_VIOLATION, text)
            return self._changes.plan_revocations(added, gone, self._put_in_force)

        return Wanted(_CONCERN, plan, done)

    def _put_in_force(self) -> None:
        self._read()
        for follower in list(self.followers):
            follower.tokens_revoked()

    def _read(self) -> None:
        self._names = {kind: set() for kind in RevokedKind}
        for kind, name in self._changes.catalog.revocations:
            self._names[RevokedKind(kind)].add(name)


def _labels_of(label: str) -> Iterator[str]:
    """Yield the beginnings of a label that holders have made longer.

    >>> list(_labels_of("team/app/worker"))
    ['team', 'team/app', 'team/app/worker']
    """
    parts = label.split("/")
    return ("/".join(parts[:count]) for count in range(1, len(parts) + 1))
