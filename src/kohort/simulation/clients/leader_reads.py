"""Fetches that partition leaders serve, and the owners that leaders know of, in the clients' world.

Laws, about members whose fetches name their group and member:
- `ReadByOwner`: once all leaders know that a partition is to be revoked, no member of the group gets records of it;
  once they know its next owner, only that member does. A leader that is cut off from the coordinator refuses by the
  expired lease of the former owner's grant.
- `ToldAfterLeaders`: a member is told that it owns a partition only when all leaders know.
- `RevokedIsRevoked`: a revoked grant gets no records from any leader.
- `OwnerIsServed`: a leader that has all messages never refuses a member a partition that the member owns by the
  coordinator's state and by its own claim; so a member without a move never waits.
Source: requirement H5.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any, Final
from unittest.mock import patch

from kohort.broker.apis import fetch
from kohort.broker.fetch.ownership import Claim, OwnershipChange
from kohort.errors import ErrorCode
from kohort.ids import TopicId
from kohort.security.capabilities.capability import Capability
from kohort.simulation.trace import LawBroken
from kohort.testing.clusternodes import Brokers

#: Group, topic id, partition.
_Place = tuple[str, TopicId, int]


class LeaderReads:
    """The fetches that the brokers of one world serve, and the owners that all of them know."""

    def __init__(self, fail: Callable[[Exception], None]) -> None:
        self._fail: Final = fail
        #: Partition -> member that all leaders know as its owner; `None`: they know that it is fenced.
        self._known: Final[dict[_Place, str | None]] = {}
        #: Partition -> epoch from which its owner has it.
        self._since: Final[dict[_Place, int]] = {}
        #: Partition -> number of the latest message about it; an older one may be known to all later.
        self._latest: Final[dict[_Place, int]] = {}
        self._messages = 0
        #: Shard -> how often it was loaded; messages of a former coordinator count no more.
        self._terms: Final[dict[int, int]] = {}
        self._brokers: Brokers | None = None
        #: Member -> the latest grant that it has shown.
        self.shown: Final[dict[str, Capability]] = {}
        #: Rows with records that members were served, and rows that they were refused.
        self.served = self.refused = 0

    @contextmanager
    def watching(self, brokers: Brokers) -> Iterator[None]:
        """Check each response to a fetch, and follow each message about owners."""
        self._brokers = brokers
        links, original = brokers.ownership, fetch.Fetching._response
        tell, loaded = links.tell, links.loaded

        def told(shard: int, changes: Sequence[OwnershipChange], on_known: Callable[[], None]) -> bool:
            # What is on its way is known to some leaders, and to others not yet.
            self._messages += 1
            for change in changes:
                for place in _places([change]):
                    self._latest[place] = self._messages
                    # A coordinator that has read its log tells the same again.
                    if not change.is_open or self._known.get(place) != change.member_id:
                        self._known.pop(place, None)
            known = partial(self._note, shard, (self._terms.get(shard, 0), self._messages), changes)

            def all_know() -> None:
                known()
                on_known()

            is_known = tell(shard, changes, all_know)
            if is_known:
                known()
            return is_known

        def loads(shard: int) -> None:
            self._terms[shard] = self._terms.get(shard, 0) + 1
            loaded(shard)

        def responding(fetching: Any) -> Any:
            response = original(fetching)
            try:
                self._check(fetching)
            except LawBroken as why:
                self._fail(why)
            return response

        links.tell, links.loaded = told, loads  # type: ignore[method-assign]
        with patch.object(fetch.Fetching, "_response", responding):
            yield

    def check_told(self, group_id: str, member_id: str, topic_id: TopicId, partition: int) -> None:
        """Check `ToldAfterLeaders` as a member is told of a partition."""
        place = (group_id, topic_id, partition)
        if self._known.get(place) != member_id and self._owner_of(place) == member_id and self._is_enforced(group_id):
            why = f"{member_id} is told of partition {partition}, and not all leaders know it"
            raise LawBroken("ToldAfterLeaders", why)

    def _note(self, shard: int, sent: tuple[int, int], changes: Sequence[OwnershipChange]) -> None:
        term, number = sent
        if self._terms.get(shard, 0) != term:
            return
        for change in changes:
            for place in _places([change]):
                if self._latest[place] == number:
                    self._known[place] = change.member_id if change.is_open else None
                    self._since[place] = change.epoch

    def _check(self, fetching: Any) -> None:
        claim, plan = fetching._claim, fetching._plan
        if not isinstance(claim, Claim) or claim.is_void:
            return
        if claim.capability is not None:
            self.shown[claim.member_id] = claim.capability
        for topic_id, rows in ((rows.topic.topic_id, rows) for rows in plan.topics if rows.topic is not None):
            for at in range(rows.first, rows.stop):
                row = fetching._rows[at]
                if row is None:
                    continue
                place = (claim.group_id, topic_id, plan.numbers[at])
                if row.records:
                    self.served += 1
                    if self._is_revoked(claim, fetching):
                        why = f"{claim.member_id} is served partition {place[2]} by a grant that was revoked"
                        raise LawBroken("RevokedIsRevoked", why)
                    self._check_served(place, claim)
                elif row.error_code == ErrorCode.FENCED_MEMBER_EPOCH:
                    self.refused += 1
                    self._check_refused(place, claim, fetching)

    def _check_served(self, place: _Place, claim: Claim) -> None:
        if place in self._known and self._known[place] != claim.member_id:
            owner = self._known[place]
            now = "it is fenced" if owner is None else f"it is {owner}'s"
            raise LawBroken("ReadByOwner", f"{claim.member_id} is served partition {place[2]}, and {now}")

    def _check_refused(self, place: _Place, claim: Claim, fetching: Any) -> None:
        context, now_ms = fetching._context, fetching._context.clock.now_ms()
        assert self._brokers is not None
        # A leader that is cut off for longer than a lease has not heard of the next owner.
        if self._brokers.ownership.is_behind(context.settings.node_id):
            return
        if claim.not_after_ms is not None and claim.not_after_ms <= now_ms:
            return
        if self._is_revoked(claim, fetching):
            return
        is_owner = self._known.get(place) == claim.member_id == self._owner_of(place)
        if claim.epoch < self._since.get(place, 0):
            # By a grant of before the member gave the partition up: it was on its way when it got it again.
            return
        if is_owner and claim.lists(place[1], place[2]):
            raise LawBroken("OwnerIsServed", f"{claim.member_id} is refused partition {place[2]}, which is its own")

    @staticmethod
    def _is_revoked(claim: Claim, fetching: Any) -> bool:
        return claim.capability is not None and fetching._context.revocations.is_revoked(claim.capability)

    def _owner_of(self, place: _Place) -> str | None:
        """Return the member that a partition is assigned to and not to be revoked from, or `None`."""
        group_id, topic_id, partition = place
        group = self._shard(group_id).groups.consumer.get(group_id)
        holder = None if group is None else group.holders.get(topic_id, {}).get(partition)
        if group is None or holder is None:
            return None
        return holder if partition in group.members[holder].assigned.get(topic_id, ()) else None

    def _is_enforced(self, group_id: str) -> bool:
        return bool(self._shard(group_id).settings_for(group_id).group_ownership_enforce != "off")

    def _shard(self, group_id: str) -> Any:
        assert self._brokers is not None
        runtime = self._brokers.runtime
        return runtime._shard_logs[runtime.index_of(group_id)].shard


def _places(changes: Iterable[OwnershipChange]) -> Iterator[_Place]:
    for change in changes:
        for topic_id, partition in change.places:
            yield change.group_id, topic_id, partition
