"""Grants: capability tokens that the coordinator gives members of ours for the partitions of their assignments.

A grant names group, member, epoch and partitions, allows to read and to commit them, and ends with its lease. A member
that asks for numbers is told one beside each assignment, and another one when a third of the lease is over: with the
answer to its next heartbeat, fetch or commit, whichever comes first.

Laws: none is made for a member that has the latest, so that a settled heartbeat costs a look; none where the group
enforces nothing. A member whose grants were revoked keeps the revoked one, also when it joins again by its member id. A
grant covers what the coordinator has assigned, and nothing that is to be given up. Times are those of a clock that
never goes back, but for the end in the token itself. No token is logged or shown.
Source: users@kafka 2014-07-18 (leases, revocation); requirement H6.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterable, Sequence
from typing import Final

from kohort.base.clock import WallClock
from kohort.broker.access.capabilities import Capabilities
from kohort.broker.connections.memberconnections import MemberKey
from kohort.broker.connections.request import Peer
from kohort.broker.groups.coordination import Coordination
from kohort.coordinator.records.types import Grants
from kohort.errors import ConfigError, ErrorCode
from kohort.ids import TopicId
from kohort.security.access_control import ResourceType
from kohort.security.capabilities import caveats
from kohort.security.capabilities.capability import TOKEN_ID_BYTES
from kohort.security.capabilities.caveats import COMMIT, CapabilityError
from kohort.wire.messages.consumer_group_heartbeat import OwnershipGrant

log = logging.getLogger("kohort.broker.groups")

#: A grant is renewed when this part of its lease is over.
RENEWALS_PER_LEASE: Final = 3
#: So long after a look, ms, it is not looked again whether the answer to a fetch or commit has to renew a grant, and
#: whether a group has begun to count fetches as heartbeats.
LOOK_MS: Final = 100
#: Connections that one grant was told by, beyond which it is told again.
MOST_TOLD: Final = 4
#: A time by which no lease is over: the coordinator itself knows whether the member is one.
_LONG_AGO: Final = -(1 << 63)


class _Grant:
    """The latest grant of a member with partitions, and the connections that carried it."""

    __slots__ = (
        "assigned", "epoch", "lease_ms", "looked", "minted_ms", "renew_ms", "stepped_ms", "token", "token_id", "told",
        "verified",
    )  # fmt: skip

    def __init__(self, token_id: bytes) -> None:
        #: Random, and the same in each renewal of one member's grant.
        self.token_id: Final = token_id
        self.token = ""
        self.epoch = -1
        #: The member's assignment in the coordinator's state, which is replaced when it changes.
        self.assigned: Grants | None = None
        #: When it was made, by a clock that never goes back; its lease, ms; and the steps of the clock of day by then.
        self.minted_ms = self.lease_ms = self.stepped_ms = 0
        #: When it is renewed.
        self.renew_ms = 0
        self.told: tuple[int, ...] = ()
        #: Connection and time of day, ms, of the latest fetch or commit by whose answer it was not to be renewed.
        self.looked = (-1, 0)
        #: The edition of the broker's tokens by which it was verified last; -1: not yet.
        self.verified = -1

    def covers(self, token: str, epoch: int, places: Iterable[tuple[str, TopicId, int]]) -> bool:
        """Whether this is the token, and it allows to commit these partitions at this epoch for certain."""
        if token != self.token or epoch != self.epoch or self.assigned is None:
            return False
        assigned = self.assigned
        return all(partition in assigned.get(topic_id, ()) for _, topic_id, partition in places)


class MemberGrants:
    """The grants of all members that are coordinated here.

    Args:
        runtime: of the coordinator.
        clock: of day, by which leases end in tokens.
        monotonic_ms: a clock that never goes back.
        tokens: the tokens of the broker, with its root keys.
    """

    def __init__(
        self, runtime: Coordination, clock: WallClock, monotonic_ms: Callable[[], int], tokens: Capabilities
    ) -> None:
        self._runtime: Final = runtime
        self._clock: Final = clock
        self._monotonic_ms: Final = monotonic_ms
        self._tokens: Final = tokens
        #: Whether the root keys can be read, as far as is known.
        self._has_keys = True
        #: The one that was made first stands first.
        self._grants: Final[dict[MemberKey, _Grant]] = {}

    def __len__(self) -> int:
        return len(self._grants)

    def lease_ms(self, group_id: str) -> int:
        """Return the lease of a group's grants, ms; 0: its members get none."""
        return self._runtime.lease_ms(group_id) if self._has_keys else 0

    def is_due(self, connection: Peer, member: MemberKey) -> bool:
        """Whether a member that asks for numbers needs a grant now, even if nothing else has changed."""
        lease_ms = self._runtime.lease_ms(member[0])
        if not lease_ms or not self._has_keys:
            return False
        grant = self._grants.get(member)
        if grant is None or not grant.token:
            found = self._runtime.assignment_of(*member)
            # One of partitions that no token can name is not tried again.
            return found is not None and bool(found[1]) and (grant is None or grant.assigned != found[1])
        return connection.number not in grant.told or self._is_old(grant, lease_ms)

    def tell(self, connection: Peer, member: MemberKey, *, is_new: bool) -> OwnershipGrant | None:
        """Return the grant for an answer to a member that asks for numbers; `None`: it has the latest.

        `is_new`: the answer tells an assignment or an epoch, which a grant belongs to.
        """
        lease_ms = self.lease_ms(member[0])
        found = self._runtime.assignment_of(*member) if lease_ms else None
        if found is None:
            self.forget(member)
            return None
        grant = self._grants.get(member)
        if grant is None or (grant.epoch, grant.assigned) != found or self._is_old(grant, lease_ms):
            grant = self._renew(member, grant, *found, lease_ms)
            if not grant.token:
                return None
        elif not is_new and connection.number in grant.told:
            return None
        if connection.number not in grant.told:
            grant.told = (*grant.told[-MOST_TOLD + 1 :], connection.number)
        left_ms = grant.lease_ms - (self._monotonic_ms() - grant.minted_ms)
        return OwnershipGrant(token=grant.token, lease_ms=left_ms)

    def renew(self, connection: Peer, member: MemberKey, now_ms: int) -> OwnershipGrant | None:
        """Return the renewed grant of a member without other news, if it has had one by a heartbeat.

        Nothing is renewed that has become another one: that is news, which has to come first. `now_ms`: time of day.
        """
        grant = self._grants.get(member)
        if grant is None or not grant.token:
            return None
        number, looked_ms = grant.looked
        # A consumer that is behind fetches hundreds of times in that time.
        if number == connection.number and looked_ms <= now_ms < looked_ms + LOOK_MS:
            return None
        if not self.is_due(connection, member):
            grant.looked = connection.number, now_ms
            return None
        if (grant.epoch, grant.assigned) != self._runtime.assignment_of(*member):
            return None
        return self.tell(connection, member, is_new=False)

    def forget(self, member: MemberKey) -> None:
        """Forget a member that has left, unless its grants were revoked."""
        grant = self._grants.get(member)
        if grant is not None and not self._is_revoked(grant):
            del self._grants[member]

    def epoch_of(self, member: MemberKey) -> int | None:
        """Return the epoch of a member's latest grant; `None`: it has not asked for numbers by a heartbeat."""
        grant = self._grants.get(member)
        return None if grant is None else grant.epoch

    def check_commit(
        self,
        token: str,
        member: MemberKey,
        epoch: int,
        places: Sequence[tuple[str, TopicId, int]],
        *,
        peer: str,
    ) -> ErrorCode:
        """Check whether a grant covers a commit of these partitions, by topic name and id.

        Returns:
            NONE; FENCED_MEMBER_EPOCH for a token that is not valid, or another member's; STALE_MEMBER_EPOCH for one of
            another epoch or other partitions. Its lease is not looked at.
        """
        # Nearly every commit shows the token that its member was told last.
        latest, edition = self._grants.get(member), self._tokens.edition
        if latest is not None and latest.verified == edition and latest.covers(token, epoch, places):
            return ErrorCode.NONE
        try:
            capability = self._tokens.verify(token)
        except CapabilityError:
            return ErrorCode.FENCED_MEMBER_EPOCH
        if (capability.group, capability.member) != member:
            return ErrorCode.FENCED_MEMBER_EPOCH
        group_id, member_id = member
        for name, topic_id, partition in places:
            refusal = capability.refusal(
                operation=COMMIT,
                resource_type=ResourceType.TOPIC,
                name=name,
                topic_id=topic_id,
                partition=partition,
                group=group_id,
                member=member_id,
                epoch=epoch,
                peer=peer,
                now_ms=_LONG_AGO,
            )
            if refusal is not None:
                return ErrorCode.STALE_MEMBER_EPOCH
        if latest is not None and latest.token == token:
            latest.verified = edition
        return ErrorCode.NONE

    def _is_revoked(self, grant: _Grant) -> bool:
        return bool(grant.token) and self._tokens.is_renewal_revoked(grant.token)

    def _is_old(self, grant: _Grant, lease_ms: int) -> bool:
        # A clock of day that was set would have leaders end the lease too early or too late.
        is_same = grant.lease_ms == lease_ms and grant.stepped_ms == self._clock.stepped_ms
        return not is_same or self._monotonic_ms() >= grant.renew_ms

    def _renew(self, member: MemberKey, former: _Grant | None, epoch: int, assigned: Grants, lease_ms: int) -> _Grant:
        """Put another grant in the place of the former one, without a token if there are no partitions."""
        self._tidy()
        self._grants.pop(member, None)
        grant = _Grant(os.urandom(TOKEN_ID_BYTES)) if former is None else former
        grant.epoch, grant.assigned, grant.lease_ms, grant.told = epoch, assigned, lease_ms, ()
        # The clock of day is read first: a step behind that shows.
        grant.minted_ms, grant.stepped_ms, now_ms = self._monotonic_ms(), self._clock.stepped_ms, self._clock.now_ms()
        grant.renew_ms, grant.verified = grant.minted_ms + lease_ms // RENEWALS_PER_LEASE, -1
        if not self._is_revoked(grant):
            grant.token = self._mint(member, grant, now_ms) if assigned else ""
        self._grants[member] = grant
        return grant

    def _mint(self, member: MemberKey, grant: _Grant, now_ms: int) -> str:
        """Make the token of a grant; empty: its partitions are more than a token can name."""
        group_id, member_id = member
        assert grant.assigned is not None, "its partitions are known"
        sets: dict[bytes, list[int]] = {topic_id: sorted(found) for topic_id, found in grant.assigned.items()}
        try:
            return self._tokens.mint(
                caveats.operations("read", "commit"),
                caveats.groups(group_id),
                caveats.member(member_id),
                caveats.epoch(grant.epoch),
                caveats.partitions(sets),
                caveats.not_after(now_ms + grant.lease_ms),
                token_id=grant.token_id,
            )
        except CapabilityError:
            # Its leaders know it by the tag `member` then.
            return ""
        except ConfigError as why:
            # The broker goes on without grants: fences hold members to what they say.
            log.error("event=root_keys_unread reason=%r action='members get no grants'", str(why))
            self._has_keys = False
            return ""

    def _tidy(self) -> None:
        """Forget the oldest grant if its lease ended long ago without a renewal."""
        member, oldest = next(iter(self._grants.items()), (None, None))
        if member is not None and oldest is not None and self._monotonic_ms() - oldest.minted_ms > 2 * oldest.lease_ms:
            del self._grants[member]
            if self._is_revoked(oldest):
                # As the latest it lets others be forgotten.
                self._grants[member] = oldest
