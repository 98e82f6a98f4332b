"""The revoked capability tokens: stored in the catalog, in force on every connection.

A revoked id ends the tokens that have the id in their chains: the token itself, and those that its holders have
derived from it. A revoked label ends the tokens with that label, and with longer labels that begin with it.

Laws: a revocation is in force once the catalog's file has it, and again after a restart, before any client can log in.
All brokers are notified in the same turn of the loop. A revocation is dropped an hour after the end of the last lease,
and not before: the clock of a machine may be put back. The number of revocations is bounded.
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

#: The most revocations that a broker keeps.
MOST_REVOCATIONS: Final = 10_000
#: A revocation is kept for so many milliseconds after the end of the last lease.
KEPT_MS: Final = 3_600_000
#: Stands for the end of a lease that does not end.
NO_END_MS: Final = (1 << 63) - 1
#: The concern of all changes of revocations. No topic has this name, so they wait for each other and for no topic.
_CONCERN: Final = "/tokens"


class RevokedKind(IntEnum):
    """The numbers that say on the wire and in the catalog whether an id or a label is revoked."""

    ID = 0
    LABEL = 1


class Follower(Protocol):
    """A broker that is notified of revocations."""

    def tokens_revoked(self) -> None:
        """End the connections and requests of revoked tokens."""


class Revocations:
    """The revocations of one broker, and their changes.

    Args:
        changes: the catalog's changes.
        now_ms: returns the wall-clock time, milliseconds since 1970.
    """

    def __init__(self, changes: TopicChanges, now_ms: Callable[[], int]) -> None:
        self._changes: Final = changes
        self._now_ms: Final = now_ms
        #: The brokers of the cluster, which are notified of changes.
        self.followers: Final[WeakSet[Follower]] = WeakSet()
        self._names: dict[RevokedKind, set[str]] = {}
        self._read()

    def __len__(self) -> int:
        return sum(map(len, self._names.values()))

    def is_revoked(self, capability: Capability) -> bool:
        """Return whether a token was revoked: its own id, one of its chain, or its label."""
        ids, labels = self._names[RevokedKind.ID], self._names[RevokedKind.LABEL]
        if ids and not ids.isdisjoint(capability.chain):
            return True
        return bool(labels) and capability.label is not None and not labels.isdisjoint(_labels_of(capability.label))

    def rows(self) -> Iterator[tuple[RevokedName, RevokedTimes]]:
        """Yield the revocations whose last lease has not ended, in the order in which they were made."""
        now_ms = self._now_ms()
        return (row for row in self._changes.catalog.revocations.items() if row[1][1] >= now_ms)

    def revocation(self, ends_ms: Mapping[RevokedName, int], done: Callable[[Outcome], None]) -> Wanted:
        """Build the change that revokes tokens; `ends_ms`: the end of the last lease of each, ms since 1970."""

        def plan() -> TopicPlan:
            known, now_ms = self._changes.catalog.revocations, self._now_ms()
            added = {
                name: (now_ms, end_ms)
                for name, end_ms in ends_ms.items()
                # A token whose lease has ended needs no revocation. A revocation that lasts longer stays.
                if end_ms + KEPT_MS >= now_ms and (name not in known or known[name][1] < end_ms)
            }
            gone = [name for name, (_, end_ms) in known.items() if end_ms + KEPT_MS < now_ms and name not in added]
            if len(known.keys() | added.keys()) - len(gone) > MOST_REVOCATIONS:
                text = f"a broker keeps {MOST_REVOCATIONS} revocations at most; revoke a token that others derive from"
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
    """Yield the prefixes of a label, for holders may append to the label of their token.

    >>> list(_labels_of("team/app/worker"))
    ['team', 'team/app', 'team/app/worker']
    """
    parts = label.split("/")
    return ("/".join(parts[:count]) for count in range(1, len(parts) + 1))
