"""Fences at the leader: partitions that earlier owners of a group must not read any more.

The coordinator closes a partition's fence before it revokes the partition from its owner, and opens the fence before it
assigns the partition to the next owner. While the fence is closed no member of the group may read the partition. After
the fence is opened, earlier owners and older member epochs may not.

Laws: a fence says which epochs and members may *not* read; no assignment is stored. A fetch that is recognised as no
member's is not refused here. A fence is forgotten when no lease of an earlier owner can be valid, so that there are as
many fences as moves in one lease. A message with an older epoch than the last one neither opens nor closes a fence. A
repeated one changes nothing. No clock is read here: `now_ms` never goes back.
Source: users@kafka 2014-07-14 to -22 (fence, acknowledge, open; leases); requirement H5.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from heapq import heappop, heappush
from typing import Final, NamedTuple, Protocol

from kohort.errors import ErrorCode
from kohort.ids import TopicId
from kohort.security.capabilities.capability import Capability

#: Fences that are looked at in one turn of the loop to be forgotten.
FORGOTTEN_AT_ONCE: Final = 1_000
#: The value of `group.ownership.enforce` with which clients without a tag or a token are known by client id and host.
ALL: Final = "all"
#: The value of `group.ownership.refusal` with which stock clients get an error.
STRICT: Final = "strict"
#: What a row is answered with: to members of ours, and to stock clients, whom NONE gives no records.
OURS: Final = ErrorCode.FENCED_MEMBER_EPOCH
STOCK: Final = ErrorCode.NOT_LEADER_OR_FOLLOWER
QUIET: Final = ErrorCode.NONE
#: Why a row is withheld, as the log tells it.
_CLOSED: Final = "the partition is changing its owner"
_FORMER: Final = "the partition was taken from the member"
_OLD_EPOCH: Final = "the partition has an owner of a later epoch"
NOT_LISTED: Final = "the partition is not one of those that the member was told"


class Sender(NamedTuple):
    """The connections of a member as a leader may recognise them.

    `principal`: that of a token (`Token:<id>`) that is this member's alone; empty: there is none. `is_unique`: no other
    member of any group has this client id and host (`/10.0.0.7`, as Kafka prints it). `parents`, of a fetch: the
    principals of tokens that its own was made of, as far as no other member has logged in with them.
    """

    principal: str = ""
    client_id: str = ""
    host: str = ""
    is_unique: bool = False
    parents: tuple[str, ...] = ()

    @property
    def client(self) -> tuple[str, str]:
        """The client id and the host."""
        return self.client_id, self.host


class OwnershipChange(NamedTuple):
    """One message of a coordinator to a leader.

    Closing (`is_open` is false): `member_id` loses the places; `epoch` is the latest at which it may have read them.
    Opening: `member_id` has them from now on, at `epoch` and later ones. `lease_ms`: how long a grant of an earlier
    owner may be alive; `stock_lease_ms`: how long an earlier owner without grants may not know that it is one. `sender`
    is of `member_id`; `enforce` and `refusal` are the settings of its group. `keep`: an opening is kept though nothing
    was closed, because that may be unknown here. `is_anew`: the group was made again, and its epochs count from here.
    """

    group_id: str
    member_id: str
    epoch: int
    places: tuple[tuple[TopicId, int], ...]
    is_open: bool
    lease_ms: int
    stock_lease_ms: int
    sender: Sender = Sender()
    enforce: str = "ours"
    refusal: str = "quiet"
    keep: bool = False
    is_anew: bool = False


class Partitions(Protocol):
    """Partitions of one topic, such as a `frozenset` of them."""

    def __contains__(self, partition: object, /) -> bool:
        """Return whether `partition` is one of the partitions."""

    def issuperset(self, partitions: Iterable[int], /) -> bool:
        """Return whether all of `partitions` are included."""


class Claim(NamedTuple):
    """The group member that a fetch claims to be sent by.

    `partitions`: those that it may read at most; `None`: it does not say. `not_after_ms`: end of its lease, by the time
    of day; `None`: none. `is_granted`: a token of the coordinator's says it all. `is_void`: it contradicts itself, or
    its token is not valid: it may read nothing.
    """

    group_id: str
    member_id: str
    epoch: int
    partitions: Mapping[TopicId, Partitions] | None = None
    not_after_ms: int | None = None
    is_granted: bool = False
    is_void: bool = False
    #: What the token of the claim allows; `None`: it has none.
    capability: Capability | None = None

    @property
    def member(self) -> tuple[str, str]:
        """Group id and member id."""
        return self.group_id, self.member_id

    def lists(self, topic_id: TopicId, partition: int) -> bool:
        """Return whether the claim includes the partition, or lists no partitions at all."""
        return self.partitions is None or partition in self.partitions.get(topic_id, ())


class Refusal(NamedTuple):
    """The refusal of one partition in a fetch; code NONE: the response has no records and no error."""

    code: ErrorCode
    group_id: str
    member_id: str
    reason: str


class _Former:
    """An earlier owner of the partition, remembered until `until_ms`."""

    __slots__ = ("sender", "stock_lease_ms", "until_ms")

    def __init__(self, sender: Sender, until_ms: int, stock_lease_ms: int) -> None:
        self.sender = sender
        self.until_ms = until_ms
        self.stock_lease_ms = stock_lease_ms


class Fence:
    """The fence of one partition and one group."""

    __slots__ = ("entry", "epoch", "formers", "group_id", "is_open", "is_strict", "knows_clients", "owner", "until_ms")

    def __init__(self, group_id: str, entry: int) -> None:
        self.group_id: Final = group_id
        #: Number of its entry among those that are to be forgotten.
        self.entry: Final = entry
        #: Older epochs may not read.
        self.epoch = -1
        #: Whether there is an owner; no member may read otherwise.
        self.is_open = True
        #: The member that it was opened for last; empty: it was never opened, or is closed.
        self.owner = ""
        #: Earlier owners; never the present one.
        self.formers: Final[dict[str, _Former]] = {}
        #: When it is forgotten.
        self.until_ms = 0
        #: The settings of the group.
        self.is_strict = self.knows_clients = False

    def close(self, change: OwnershipChange, now_ms: int) -> bool:
        """Close the fence for all members of the group; return whether anything changed."""
        member_id, is_known = change.member_id, change.member_id in self.formers
        # A message of before the partition was opened comes late; one of a later owner shows that an opening was lost.
        is_late = change.epoch < self.epoch or (
            self.is_open and change.epoch == self.epoch and self.owner not in ("", member_id)
        )
        if is_late and (is_known or member_id == self.owner):
            return False
        if not is_late:
            if is_known and not self.is_open and change.epoch == self.epoch:
                return False
            self.is_open, self.epoch, self.owner = False, change.epoch, ""
        self._settle(change, now_ms)
        until_ms = now_ms + max(change.lease_ms, change.stock_lease_ms)
        self.formers[member_id] = _Former(change.sender, until_ms, change.stock_lease_ms)
        self.until_ms = max(self.until_ms, until_ms)
        return True

    def open(self, change: OwnershipChange, now_ms: int) -> bool:
        """Open the fence for the partition's new owner; return whether anything changed."""
        if change.epoch < self.epoch and not change.is_anew:
            return False
        if self.is_open and (self.owner, self.epoch) == (change.member_id, change.epoch):
            return False
        self.is_open, self.epoch, self.owner = True, change.epoch, change.member_id
        self.formers.pop(change.member_id, None)
        self._settle(change, now_ms)
        # No former owner is recognised by what the new one has as well: a guess must not starve an owner.
        for former in self.formers.values():
            former.sender = _without(former.sender, change.sender)
        # An older epoch may be in a grant that is as young as this message.
        self.until_ms = max(self.until_ms, now_ms + change.lease_ms)
        return True

    def find_reason(self, claim: Claim, topic_id: TopicId, partition: int) -> str | None:
        """Return why a member of the group may not read the partition; `None` if it may."""
        if not self.is_open:
            return _CLOSED
        if claim.member_id in self.formers:
            return _FORMER
        # Moves at a pace share an epoch; after a restart the earlier owner is known by nothing else.
        is_anothers = claim.epoch == self.epoch and self.owner not in ("", claim.member_id)
        if claim.epoch < self.epoch or is_anothers:
            return _OLD_EPOCH
        # What a member lists it was told; it says itself that this one is not its own.
        return None if claim.member_id == self.owner or claim.lists(topic_id, partition) else NOT_LISTED

    def find_former(self, sender: Sender) -> str | None:
        """Return the id of the earlier owner that `sender` is recognised as; `None` if it is none."""
        for member_id, former in self.formers.items():
            known = former.sender
            if known.principal:
                # The login by a token is certain: client id and host are not looked at.
                if known.principal == sender.principal or known.principal in sender.parents:
                    return member_id
            elif self.knows_clients and known.is_unique and known.client == sender.client:
                return member_id
        return None

    def renew(self, member_id: str, now_ms: int) -> None:
        """Remember an earlier owner for longer, since it has fetched the partition again."""
        former = self.formers.get(member_id)
        if former is not None:
            former.until_ms = max(former.until_ms, now_ms + former.stock_lease_ms)
            self.until_ms = max(self.until_ms, former.until_ms)

    def _settle(self, change: OwnershipChange, now_ms: int) -> None:
        """Apply the group's settings from `change`, and forget earlier owners whose lease has expired."""
        self.is_strict, self.knows_clients = change.refusal == STRICT, change.enforce == ALL
        for member_id in [each for each, former in self.formers.items() if former.until_ms <= now_ms]:
            del self.formers[member_id]


def _without(former: Sender, owner: Sender) -> Sender:
    """Return the marks of an earlier owner, without those that the present owner shares."""
    principal = "" if former.principal == owner.principal else former.principal
    return former._replace(principal=principal, is_unique=former.is_unique and former.client != owner.client)


class OwnershipTable:
    """All fences of one broker."""

    def __init__(self, on_fenced: Callable[[TopicId, int], None] | None = None) -> None:
        #: Topic id -> partition -> group -> fence; no empty inner mapping.
        self._topics: Final[dict[TopicId, dict[int, dict[str, Fence]]]] = {}
        #: When each fence is to be looked at, to forget it; one entry a fence.
        self._due: Final[list[tuple[int, int, TopicId, int, str]]] = []
        self._entries = self._size = 0
        #: Rises with each change.
        self.edition = 0
        #: Called with topic id and partition after it was closed or opened for a group.
        self.on_fenced = on_fenced or _ignore

    def __len__(self) -> int:
        return self._size

    def change(self, change: OwnershipChange, now_ms: int) -> None:
        """Apply a coordinator's message to the fences; a repeated or older one opens or closes no fence.

        Messages of the same epoch are applied in the order in which they arrive.

        Args:
            change: the message; with `enforce="off"` nothing is closed, and what was closed is opened.
            now_ms: `BrokerContext.monotonic_ms`.
        """
        self.forget(now_ms)
        is_off = change.enforce == "off"
        for topic_id, partition in change.places:
            here = self._topics.get(topic_id, {}).get(partition, {})
            fence = here.get(change.group_id)
            if is_off:
                if fence is not None:
                    self._drop(topic_id, partition, change.group_id)
                    self._tell(topic_id, partition)
                continue
            is_new = fence is None
            if fence is None:
                if change.is_open and not change.keep:
                    continue
                fence = self._add(topic_id, partition, change.group_id)
            if fence.open(change, now_ms) if change.is_open else fence.close(change, now_ms):
                self._tell(topic_id, partition)
            if is_new:
                heappush(self._due, (fence.until_ms, fence.entry, topic_id, partition, change.group_id))

    def of_topic(self, topic_id: TopicId) -> Mapping[int, Mapping[str, Fence]] | None:
        """Return the fences of a topic by partition and group; `None` if there are none."""
        return self._topics.get(topic_id)

    def refuses(self, claim: Claim | Sender, topic_id: TopicId, partition: int, now_ms: int) -> ErrorCode | None:
        """Return the error code for a partition that a fetch may not read; `None` if it may.

        NONE stands for no records and no error. The claim's lease and validity are not checked here.
        """
        refusal = self.find_refusal(claim, topic_id, partition, now_ms)
        return None if refusal is None else refusal.code

    def find_refusal(self, claim: Claim | Sender, topic_id: TopicId, partition: int, now_ms: int) -> Refusal | None:
        """Find why a fetch may not read a partition; `None` if it may."""
        topic = self._topics.get(topic_id)
        here = None if topic is None else topic.get(partition)
        if not here:
            return None
        if isinstance(claim, Claim):
            fence = here.get(claim.group_id)
            reason = None if fence is None else fence.find_reason(claim, topic_id, partition)
            if fence is None or reason is None:
                return None
            if not claim.is_granted:
                # A grant that is not renewed ends by itself.
                fence.renew(claim.member_id, now_ms)
            return Refusal(OURS, *claim.member, reason)
        for fence in here.values():
            member_id = fence.find_former(claim)
            if member_id is not None:
                fence.renew(member_id, now_ms)
                return Refusal(STOCK if fence.is_strict else QUIET, fence.group_id, member_id, _FORMER)
        return None

    def forget(self, now_ms: int) -> None:
        """Forget fences for which no lease can be valid any more, at most `FORGOTTEN_AT_ONCE`."""
        due = self._due
        for _ in range(FORGOTTEN_AT_ONCE):
            if not due or due[0][0] > now_ms:
                return
            _, entry, topic_id, partition, group_id = heappop(due)
            fence = self._topics.get(topic_id, {}).get(partition, {}).get(group_id)
            if fence is None or fence.entry != entry:
                continue
            if fence.until_ms > now_ms:
                heappush(due, (fence.until_ms, entry, topic_id, partition, group_id))
                continue
            self._remove(topic_id, partition, group_id)
            self.edition += 1

    def _tell(self, topic_id: TopicId, partition: int) -> None:
        self.edition += 1
        self.on_fenced(topic_id, partition)

    def _add(self, topic_id: TopicId, partition: int, group_id: str) -> Fence:
        self._entries += 1
        self._size += 1
        fence = Fence(group_id, self._entries)
        self._topics.setdefault(topic_id, {}).setdefault(partition, {})[group_id] = fence
        return fence

    def _drop(self, topic_id: TopicId, partition: int, group_id: str) -> None:
        self._remove(topic_id, partition, group_id)
        self.edition += 1

    def _remove(self, topic_id: TopicId, partition: int, group_id: str) -> None:
        topic = self._topics[topic_id]
        del topic[partition][group_id]
        self._size -= 1
        if not topic[partition]:
            del topic[partition]
        if not topic:
            del self._topics[topic_id]


def _ignore(topic_id: TopicId, partition: int) -> None:
    del topic_id, partition
