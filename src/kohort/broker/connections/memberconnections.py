"""The connections by which each group member was heard of, to notice their end and late requests.

A member speaks to its coordinator over one connection; Java, librdkafka and our own client open the next one only after
they gave up the one before. Two things follow. A connection that closes takes its members with it, and their
coordinators are told. And a request that could do harm (what a member owns, what it has read, that it leaves) that
comes by an older connection than the youngest of the member's heartbeats is a late one, of before the change: its
connection is closed, and nothing is done, so that it neither acknowledges a revocation that the member knows nothing of
nor moves offsets back. A plain heartbeat by an older connection does no harm and is answered.

Laws: remembered are members whose request was accepted, so that strangers cost no memory, and at most
`MEMBERS_PER_CONNECTION` of one connection; all of them are forgotten with it. A member that was heard of by another
connection that is open is not disconnected. Joins make no request late: some clients join by a connection of its own,
younger than that of their heartbeats. A member is known by the first token that it logs in with, and by each that was
made of it, unless another member has logged in with that one.
Source: G3; the fencing of late requests is ours: Apache Kafka relies on epochs alone.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Protocol

from kohort.broker.access.rights import Rights
from kohort.errors import RemoteProtocolError

#: Members of one connection whose end is noticed; more speak by no client's one connection.
MEMBERS_PER_CONNECTION: Final = 10_000

#: Members with tokens whose principals are remembered, some 200 bytes each.
PRINCIPALS_REMEMBERED: Final = 50_000

#: Group id and member id.
MemberKey = tuple[str, str]


class Numbered(Protocol):
    """A connection, as far as this module knows it."""

    #: Rises with each connection that is accepted.
    number: int
    #: The client's principal.
    principal: str
    #: What it may do, by the caveats of its token if it has one.
    rights: Rights


#: Beginning of the principals of clients that log in with a token.
TOKEN_PREFIX: Final = "Token:"


class MemberConnections:
    """The open connections of each member, its youngest with a heartbeat, and each token's members."""

    __slots__ = ("_by_token", "_keys", "_on_disconnected", "_open", "_principals", "_youngest")

    def __init__(self, on_disconnected: Callable[[str, str], None]) -> None:
        """Create an empty table.

        `on_disconnected` is called with group id and member id when the last connection of a member is closed.
        """
        self._on_disconnected: Final = on_disconnected
        #: member -> numbers of the open connections by which it was heard of; one, except for unusual clients.
        self._open: Final[dict[MemberKey, tuple[int, ...]]] = {}
        #: member -> number of the youngest connection by which a heartbeat of it was accepted.
        self._youngest: Final[dict[MemberKey, int]] = {}
        #: connection number -> the members that were heard of by it -> the principals that they are known by.
        self._keys: Final[dict[int, dict[MemberKey, str]]] = {}
        #: Principal of a token -> its members with open connections, each with the number of those connections.
        self._by_token: Final[dict[str, dict[MemberKey, int]]] = {}
        #: Member -> the principal of the token that it logged in with, also when its connections are closed: only then
        #: it is given up, and may still fetch. The latest is the last.
        self._principals: Final[dict[MemberKey, str]] = {}

    def check(self, connection: Numbered, group_id: str, member_id: str) -> None:
        """Raise `RemoteProtocolError`, which closes the connection, if the request is late."""
        if self._youngest.get((group_id, member_id), 0) > connection.number:
            raise RemoteProtocolError(
                f"a late request of the member {member_id}, whose heartbeats come by a younger connection"
            )

    def heartbeat(self, connection: Numbered, group_id: str, member_id: str) -> None:
        """Record the connection of an accepted heartbeat."""
        key, number = (group_id, member_id), connection.number
        youngest = self._youngest.get(key, 0)
        if youngest != number and self._note(connection, key):
            self._youngest[key] = max(youngest, number)

    def joined(self, connection: Numbered, group_id: str, member_id: str) -> None:
        """Record the connection of an accepted join."""
        self._note(connection, (group_id, member_id))

    def fetched(self, connection: Numbered, group_id: str, member_id: str) -> None:
        """Record the connection of a fetch that counts as a heartbeat; a fetch makes no request late."""
        self._note(connection, (group_id, member_id))

    def holders(self, connection: Numbered) -> tuple[str, ...]:
        """Return the principals that a member may be known by if it has this connection.

        Its own, and those of the tokens that its token was made of, up to the one that a member has logged in with,
        which is left out if several members have.
        """
        found: list[str] = []
        for principal in _lineage(connection):
            members = self._by_token.get(principal)
            if members is None or len(members) == 1:
                found.append(principal)
            if members is not None:
                break
        return tuple(found)

    def member_of_token(self, connection: Numbered) -> MemberKey | None:
        """Return the member that logs in with the token of a connection, `None` if none or several do."""
        if not self._by_token:
            return None
        # Nearly every fetch comes by the token of the heartbeats.
        members = self._by_token.get(connection.principal)
        if members is None:
            known = (self._by_token.get(principal) for principal in self.holders(connection))
            members = next(filter(None, known), {})
        return next(iter(members)) if len(members) == 1 else None

    def principal_of(self, group_id: str, member_id: str) -> str:
        """Return the principal of the token that is this member's alone, empty if there is none."""
        key = (group_id, member_id)
        principal = self._principals.get(key, "") if self._principals else ""
        return "" if self._by_token.get(principal, {}).keys() - {key} else principal

    def is_connected(self, group_id: str, member_id: str) -> bool:
        """Return whether the member has sent an accepted request over an open connection."""
        return (group_id, member_id) in self._open

    def is_known(self, connection: Numbered, group_id: str, member_id: str) -> bool:
        """Return whether the member has sent an accepted request over this connection."""
        return connection.number in self._open.get((group_id, member_id), ())

    def left(self, group_id: str, member_id: str) -> None:
        """Forget the connections of a member that has left."""
        self._open.pop((group_id, member_id), None)
        self._youngest.pop((group_id, member_id), None)

    def closed(self, connection: Numbered) -> None:
        """Forget a closed connection; report members without another open one as disconnected."""
        for key, principal in sorted(self._keys.pop(connection.number, {}).items()):
            self._forget_token(principal, key)
            numbers = self._open.get(key, ())
            if connection.number not in numbers:
                continue
            # A member that another open connection brought is still connected.
            others = tuple(number for number in numbers if number != connection.number)
            if others:
                self._open[key] = others
                continue
            self.left(*key)
            self._on_disconnected(*key)

    def __len__(self) -> int:
        return len(self._open)

    def _note(self, connection: Numbered, key: MemberKey) -> bool:
        """Record a member's connection; return `False` if the connection has too many members."""
        number, numbers = connection.number, self._open.get(key, ())
        if number in numbers:
            return True
        keys = self._keys.setdefault(number, {})
        # The bound keeps hostile clients from filling the memory with made-up members.
        if len(keys) >= MEMBERS_PER_CONNECTION and key not in keys:
            return False
        if key not in keys:
            keys[key] = self._note_token(_lineage(connection), key)
        self._open[key] = (*numbers, number)
        return True

    def _note_token(self, lineage: tuple[str, ...], key: MemberKey) -> str:
        """Record the token of a member's connection; return the member's token principal, or an empty text."""
        if not lineage:
            return ""
        former = self._principals.pop(key, "")
        # A member that has narrowed its token is the one that it was.
        principal = self._principals[key] = former if former in lineage else lineage[0]
        if len(self._principals) > PRINCIPALS_REMEMBERED:
            del self._principals[next(iter(self._principals))]
        members = self._by_token.setdefault(principal, {})
        members[key] = members.get(key, 0) + 1
        return principal

    def _forget_token(self, principal: str, key: MemberKey) -> None:
        members = self._by_token.get(principal, {}) if self._by_token else {}
        if key in members:
            members[key] -= 1
            if not members[key]:
                del members[key]
            if not members:
                del self._by_token[principal]


def _lineage(connection: Numbered) -> tuple[str, ...]:
    """Return the principals of a connection's token and of the token's ancestors, the nearest first."""
    capability = connection.rights.capability
    if capability is None:
        return ()
    # The ids behind its own are those of leases alone.
    own = capability.chain.index(capability.id)
    return tuple(f"{TOKEN_PREFIX}{each}" for each in reversed(capability.chain[: own + 1]))
