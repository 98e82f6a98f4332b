"""Messages of the coordinator to the leaders of partitions: fences and openings.

The effects of a decision become one message, which is handed to the leaders before its replies leave. A reply that
tells a member its assignment waits until every leader has acknowledged the messages about that member, or until no
grant of before can be alive: fence, acknowledgements, removal is told; open, acknowledgements, gain is told. One
broker acknowledges at once.

Laws: messages of one shard are told in the order of its decisions. No other reply waits. For a lease after a shard was
loaded leaders keep every opening: what they know of former owners may be lost.
Source: users@kafka 2014-07-16 (the nine steps); requirement H5.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final, Protocol

from kohort.broker.fetch.ownership import OwnershipChange, OwnershipTable, Sender
from kohort.coordinator import commands
from kohort.coordinator.decision import Decision, FencePartitions, OpenPartitions, ReplyBody
from kohort.coordinator.ownership.fences import loaded_ownership
from kohort.coordinator.settings import GroupSettings
from kohort.coordinator.shard import Shard
from kohort.ids import RequestToken

#: Partitions of one message after a shard was loaded.
LOADED_AT_ONCE: Final = 1_000
#: The clocks of two brokers may differ by this part of a lease: a leader that is cut off ends it by its own clock.
CLOCKS_DIFFER_BY: Final = 10
#: Value of `group.ownership.enforce` with which leaders know clients by client id and host.
_ALL: Final = "all"

#: Group id and member id.
MemberKey = tuple[str, str]


class Leaders(Protocol):
    """The leaders of partitions, as a coordinator reaches them."""

    def tell(self, shard: int, changes: Sequence[OwnershipChange], on_known: Callable[[], None]) -> bool:
        """Tell every leader of changes, in order.

        Returns:
            Whether all of them know already. Otherwise `on_known` is called when they do, or when no lease of before
            is alive any more.
        """

    def loaded(self, shard: int) -> None:
        """Note that a shard was loaded: its changes come from another coordinator from now on."""


class OwnLeader:
    """The only broker: leader of all partitions."""

    def __init__(self, table: OwnershipTable, monotonic_ms: Callable[[], int]) -> None:
        self._table: Final = table
        self._monotonic_ms: Final = monotonic_ms

    def tell(self, shard: int, changes: Sequence[OwnershipChange], on_known: Callable[[], None]) -> bool:
        """See `Leaders.tell`."""
        del shard, on_known
        now_ms = self._monotonic_ms()
        for change in changes:
            self._table.change(change, now_ms)
        return True

    def loaded(self, shard: int) -> None:
        """Do nothing: its table is as young as this coordinator."""


def alive_ms(lease_ms: int) -> int:
    """Return for how long a grant of that lease may be alive at a leader, ms: the longer, the slower its clock.

    >>> alive_ms(3_000)
    3300
    """
    return lease_ms + lease_ms // CLOCKS_DIFFER_BY


class OwnershipMessages:
    """The messages of one runtime's shards to the leaders; belongs to the loop."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop: Final = loop
        #: `None` until the broker's parts are put together.
        self._leaders: Leaders | None = None
        #: Principal of the token of a member, empty: it has none.
        self.principal_of: Callable[[str, str], str] = _no_principal
        self._tickets = 0
        #: Member -> the latest message about it that not every leader knows, and the shard of it.
        self.unknown: Final[dict[MemberKey, tuple[int, int]]] = {}
        #: Member -> replies that wait for that, in order.
        self._held_back: Final[dict[MemberKey, list[Callable[[], None]]]] = {}
        #: Shard -> until when leaders keep every opening, ms.
        self._keep_until: Final[dict[int, int]] = {}
        #: Group -> the highest epoch that was told, and until when a leader may know it, ms.
        self._told: Final[dict[str, tuple[int, int]]] = {}

    def begin(self, leaders: Leaders, shards: Iterable[Shard]) -> None:
        """Tell leaders from now on, and first of the owners in the loaded shards."""
        self._leaders = leaders
        for index, shard in enumerate(shards):
            self.loaded(index, shard)

    def loaded(self, index: int, shard: Shard) -> None:
        """Tell the owners in a shard that was read from its log."""
        shard.take_ownership()
        if self._leaders is None:
            return
        self._leaders.loaded(index)
        for key in [key for key, (_, told_by) in self.unknown.items() if told_by == index]:
            del self.unknown[key]
        now_ms = self._now_ms()
        longest_ms, batch, size = 0, list[FencePartitions | OpenPartitions](), 0
        for effect in loaded_ownership(shard.groups, shard.settings_for):
            longest_ms = max(longest_ms, alive_ms(effect.lease_ms))
            batch.append(effect)
            size += len(effect.places)
            if size >= LOADED_AT_ONCE:
                self._tell(index, shard, batch)
                batch, size = [], 0
        if batch:
            self._tell(index, shard, batch)
        self._keep_until[index] = now_ms + max(longest_ms, alive_ms(shard.settings.lease_ms))
        # Replies that the former coordinator held back wait for this one's messages, if there are any.
        for key in [key for key in self._held_back if key not in self.unknown]:
            self._let_go(key)

    def tell(self, index: int, shard: Shard) -> None:
        """Tell the leaders the fences and openings of a shard's latest decision."""
        effects = shard.take_ownership()
        if effects and self._leaders is not None:
            self._tell(index, shard, effects)

    def owner_of(self, group_id: str, body: ReplyBody, syncing_id: str) -> MemberKey | None:
        """Return the member of a reply that has to wait; `None` if it may leave.

        `syncing_id`: the member that a reply to a SyncGroup is for.
        """
        if isinstance(body, commands.ConsumerGroupHeartbeatReply):
            key = (group_id, "" if body.assignment is None else body.member_id)
        else:
            key = (group_id, syncing_id if isinstance(body, commands.SyncGroupReply) else "")
        return key if key in self.unknown else None

    def hold_back(self, key: MemberKey, send: Callable[[], None]) -> None:
        """Send a reply once every leader has the fences and openings of its member."""
        self._held_back.setdefault(key, []).append(send)

    def stop(self) -> None:
        """Send the replies that wait: the broker is about to stop."""
        self.unknown.clear()
        for key in list(self._held_back):
            self._let_go(key)

    def _tell(self, index: int, shard: Shard, effects: Sequence[FencePartitions | OpenPartitions]) -> None:
        assert self._leaders is not None
        now_ms = self._now_ms()
        shared: dict[str, Counter[tuple[str, str]]] = {}
        changes = [self._change(index, shard, effect, shared, now_ms) for effect in effects]
        self._tickets += 1
        ticket = self._tickets
        keys = [(change.group_id, change.member_id) for change in changes]
        if not self._leaders.tell(index, changes, lambda: self._known(keys, ticket)):
            self.unknown.update(dict.fromkeys(keys, (ticket, index)))

    def _known(self, keys: Iterable[MemberKey], ticket: int) -> None:
        for key in keys:
            # A later message about the member may be under way.
            if self.unknown.get(key, (0, 0))[0] == ticket:
                del self.unknown[key]
                self._let_go(key)

    def _let_go(self, key: MemberKey) -> None:
        for send in self._held_back.pop(key, ()):
            send()

    def _change(
        self,
        index: int,
        shard: Shard,
        effect: FencePartitions | OpenPartitions,
        shared: dict[str, Counter[tuple[str, str]]],
        now_ms: int,
    ) -> OwnershipChange:
        settings = shard.settings_for(effect.group_id)
        is_open = isinstance(effect, OpenPartitions)
        is_anew = self._note(effect, now_ms)
        return OwnershipChange(
            effect.group_id,
            effect.member_id,
            effect.epoch,
            effect.places,
            is_open,
            alive_ms(effect.lease_ms),
            alive_ms(effect.lease_ms) if isinstance(effect, OpenPartitions) else effect.stock_lease_ms,
            self._sender(shard, effect, settings, shared),
            settings.group_ownership_enforce,
            settings.group_ownership_refusal,
            keep=isinstance(effect, OpenPartitions) and (effect.keep or now_ms < self._keep_until.get(index, 0)),
            is_anew=is_anew,
        )

    def _note(self, effect: FencePartitions | OpenPartitions, now_ms: int) -> bool:
        """Note the epoch of a change; return whether the group counts its epochs anew, as one made again does."""
        epoch, until_ms = self._told.get(effect.group_id, (0, 0))
        stock_ms = effect.stock_lease_ms if isinstance(effect, FencePartitions) else 0
        ends_ms = max(until_ms, now_ms + max(alive_ms(effect.lease_ms), stock_ms))
        if isinstance(effect, FencePartitions):
            self._put(effect.group_id, max(epoch, effect.epoch), ends_ms, now_ms)
            return False
        is_anew = not effect.keep and bool(effect.member_id) and effect.epoch < epoch
        self._put(effect.group_id, effect.epoch if is_anew else max(epoch, effect.epoch), ends_ms, now_ms)
        return is_anew

    def _put(self, group_id: str, epoch: int, until_ms: int, now_ms: int) -> None:
        self._told.pop(group_id, None)
        self._told[group_id] = epoch, until_ms
        # The first entry is that of the group without changes for the longest.
        first = next(iter(self._told))
        if self._told[first][1] <= now_ms:
            del self._told[first]

    def _sender(
        self,
        shard: Shard,
        effect: FencePartitions | OpenPartitions,
        settings: GroupSettings,
        shared: dict[str, Counter[tuple[str, str]]],
    ) -> Sender:
        client_id, host = effect.client
        is_unique = False
        # The members of a group are counted only where that is asked for.
        if settings.group_ownership_enforce == _ALL:
            if effect.group_id not in shared:
                shared[effect.group_id] = _count_clients(shard, effect.group_id)
            is_member = _is_member(shard, effect.group_id, effect.member_id)
            is_unique = shared[effect.group_id][effect.client] == (1 if is_member else 0)
        return Sender(self.principal_of(effect.group_id, effect.member_id), client_id, host, is_unique)

    def _now_ms(self) -> int:
        return int(self._loop.time() * 1000)


def _no_principal(group_id: str, member_id: str) -> str:
    del group_id, member_id
    return ""


def syncing_members(shard: Shard, stimulus: commands.SyncGroup, decision: Decision) -> Mapping[RequestToken, str]:
    """Return the members whose SyncGroups the decision on one answers as it moves partitions, by their requests.

    The decision is not committed yet.
    """
    group = shard.groups.classic.get(stimulus.group_id)
    is_moving = any(isinstance(effect, FencePartitions | OpenPartitions) for effect in decision.effects)
    waiting = group.awaiting_sync if group is not None and is_moving else {}
    return {**{token: member_id for member_id, token in waiting.items()}, stimulus.request: stimulus.member_id}


def _count_clients(shard: Shard, group_id: str) -> Counter[tuple[str, str]]:
    consumer, classic = shard.groups.consumer.get(group_id), shard.groups.classic.get(group_id)
    members = () if consumer is None else consumer.members.values()
    others = () if classic is None else classic.members.values()
    return Counter((each.client_id, each.client_host) for each in (*members, *others))


def _is_member(shard: Shard, group_id: str, member_id: str) -> bool:
    classic = shard.groups.classic.get(group_id)
    return shard.groups.find_member(group_id, member_id) is not None or (
        classic is not None and member_id in classic.members
    )
