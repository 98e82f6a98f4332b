"""Claims: the group member that sends a fetch, and the partitions that the fetch is refused for it.

The sender is recognised, best first, by a grant (a token that the coordinator made for one member's assignment), by the
tag `member`, by its login with a token, and, if `group.ownership.enforce` is `all`, by its client id and host.

Laws: a connection has one claim, until a fetch names another member or starts anew without naming one. A token is
verified once, and only its hash is kept; the number of kept hashes is bounded. A claim only restricts: a false one
makes a fetch get less, except for topics that only members may read.
Source: requirements H5 and H6; `ownership` has the rules.
"""

from __future__ import annotations

import logging
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping, Sequence
from hashlib import sha256
from types import MappingProxyType
from typing import Final

from kohort.base.clock import Clock
from kohort.broker.connections.request import Peer
from kohort.broker.fetch.fetchsessions import FetchPlan
from kohort.broker.fetch.ownership import NOT_LISTED, OURS, QUIET, Claim, OwnershipTable, Partitions, Refusal, Sender
from kohort.errors import ErrorCode
from kohort.ids import TopicId
from kohort.security.access_control import AclOperation, ResourceType
from kohort.security.capabilities import capability as capabilities
from kohort.security.capabilities.capability import Capability
from kohort.security.capabilities.caveats import CapabilityError
from kohort.security.capabilities.partition_sets import PartitionSet
from kohort.security.capabilities.root_keys import RootKeys
from kohort.storage.topics import Topic
from kohort.wire.messages.fetch import FetchRequest
from kohort.wire.messages.membership import KnownMembership

log = logging.getLogger("kohort.broker")

#: Characters of the longest token that is read.
LONGEST_GRANT: Final = 16 << 10
#: Tokens whose claims are kept.
MOST_KEPT: Final = 10_000

#: Lines about refused reads that are logged in so long a time.
MOST_LINES: Final = 20
LINES_MS: Final = 10_000

#: Verifies a token for a client's address; `None`: it is not valid, or no grant.
Verify = Callable[[str, str], Claim | None]


class GrantedPartitions:
    """The partitions of one topic in a token, with a cache of those that were looked up."""

    __slots__ = ("_known", "_sets")

    def __init__(self, sets: Sequence[PartitionSet]) -> None:
        #: A partition has to be in each.
        self._sets: Final = sets
        self._known: Final[set[int]] = set()

    def __contains__(self, partition: object) -> bool:
        if partition in self._known:
            return True
        if not isinstance(partition, int) or not all(partition in each for each in self._sets):
            return False
        if len(self._known) >= MOST_KEPT:
            self._known.clear()
        self._known.add(partition)
        return True

    def issuperset(self, partitions: Iterable[int]) -> bool:
        """Return whether the token includes all of `partitions`."""
        return self._known.issuperset(partitions) or all(each in self for each in partitions)


def grant_verifier(keys: Callable[[], RootKeys | None]) -> Verify:
    """Return a function that verifies grants with the broker's root keys at the time of the call."""

    def verify(token: str, host: str) -> Claim | None:
        root_keys = keys()
        if root_keys is None:
            return None
        try:
            return claim_of(capabilities.verify(token, root_keys), host)
        except CapabilityError:
            return None

    return verify


def claim_of(capability: Capability, host: str) -> Claim | None:
    """Return the claim of a verified token; `None`: it is no member's grant to read from this address."""
    group_id, member_id, epoch = capability.group, capability.member, capability.epoch
    listed = capability.partitions_by_id
    if group_id is None or member_id is None or epoch is None or listed is None:
        return None
    if capability.topics is not None or capability.partitions is not None:
        # The coordinator's grants name topics by id; rows are not compared with names.
        return None
    refusal = capability.refusal(
        operation=AclOperation.READ, resource_type=ResourceType.GROUP, name=group_id, now_ms=_LONG_AGO, peer=host
    )
    if refusal is not None:
        return None
    partitions = {TopicId(topic_id): GrantedPartitions(sets) for topic_id, sets in listed.items()}
    return Claim(
        group_id, member_id, epoch, partitions, capability.not_after_ms, is_granted=True, capability=capability
    )


#: A time by which no lease is over: leases are looked at with each fetch.
_LONG_AGO: Final = -(1 << 63)


class Claims:
    """The claims of all connections of one broker."""

    def __init__(self, verify: Verify) -> None:
        self._verify: Final = verify
        #: Number of a connection -> its claim.
        self._claims: Final[dict[int, Claim]] = {}
        #: Hash of a token and a client's address -> its claim, the latest used last.
        self._verified: Final[OrderedDict[bytes, Claim]] = OrderedDict()

    def __len__(self) -> int:
        return len(self._claims)

    def take(
        self, connection: Peer, message: FetchRequest, known: KnownMembership | None, *, begins_anew: bool
    ) -> Claim | None:
        """Update a connection's claim from the grant and the tag of a fetch, and return the claim.

        `known`: the tag `member`, if its sender may read the group. `begins_anew`: it begins a session, or is of none.
        """
        number, grant = connection.number, message.grant
        if message.member is None and grant is None:
            if not self._claims:
                return None
            if begins_anew:
                # Without a session each fetch says anew whose it is.
                self._claims.pop(number, None)
                return None
            return self._claims.get(number)
        if grant == "":
            # The member has none any more: nothing is enforced for its group.
            self._claims.pop(number, None)
            grant = None
        # A session that begins anew says anew whose it is.
        former = None if begins_anew else self._claims.get(number)
        if grant is not None:
            claim = self._of_grant(connection, grant, known, former)
        elif known is None:
            self._claims.pop(number, None)
            return None
        elif former is not None and former.is_granted and former.member == (known.group_id, known.member_id):
            claim = former
        else:
            claim = of_tag(known)
        self._claims[number] = claim
        return claim

    def of(self, connection: Peer) -> Claim | None:
        """Return the claim of a connection."""
        return self._claims.get(connection.number)

    def forget(self, connection: Peer) -> None:
        """Forget the claim of a connection that is closed, or that may not speak for its member any more."""
        if self._claims:
            self._claims.pop(connection.number, None)

    def end(self, is_revoked: Callable[[Capability], bool]) -> list[Claim]:
        """Replace the claims of revoked tokens by void ones; return the former claims."""
        ended: list[Claim] = []
        for key, claim in list(self._verified.items()):
            if claim.capability is not None and is_revoked(claim.capability):
                del self._verified[key]
        for number, claim in self._claims.items():
            if claim.capability is not None and is_revoked(claim.capability):
                ended.append(claim)
                self._claims[number] = void(claim)
        return ended

    def _of_grant(self, connection: Peer, grant: str, known: KnownMembership | None, former: Claim | None) -> Claim:
        if known is not None:
            said = known.group_id, known.member_id
        elif former is not None and not former.is_granted:
            said = former.member
        else:
            said = None
        claim = self._find(grant, connection.peer_host)
        if claim is not None and said in (None, claim.member):
            return claim
        # A token of another member than the connection's proves nothing.
        return VOID if said is None else VOID._replace(group_id=said[0], member_id=said[1])

    def _find(self, grant: str, host: str) -> Claim | None:
        if len(grant) > LONGEST_GRANT:
            return None
        key = sha256(f"{host} {grant}".encode(errors="surrogatepass")).digest()
        claim = self._verified.get(key)
        if claim is not None:
            self._verified.move_to_end(key)
            return claim
        claim = self._verify(grant, host)
        if claim is not None:
            self._verified[key] = claim
            if len(self._verified) > MOST_KEPT:
                self._verified.popitem(last=False)
        return claim


#: The claim of a token that is not valid.
VOID: Final = Claim("", "", -1, is_granted=True, is_void=True)


def void(claim: Claim) -> Claim:
    """Return a claim of the same member that allows no partition to be read."""
    return VOID._replace(group_id=claim.group_id, member_id=claim.member_id)


def of_tag(known: KnownMembership) -> Claim:
    """Build the claim of a fetch with the tag `member`."""
    listed: dict[TopicId, set[int]] = {}
    for row in known.topic_partitions:
        listed.setdefault(TopicId(row.topic_id), set()).update(row.partitions)
    partitions = {topic_id: frozenset(numbers) for topic_id, numbers in listed.items()}
    return Claim(known.group_id, known.member_id, known.member_epoch, partitions)


#: Told of a row that is refused: its refusal, topic and partition.
OnRefused = Callable[[Refusal, str, int], None]
#: Row -> code; NONE stands for no records and no error.
Codes = Mapping[int, ErrorCode]
NOTHING_WITHHELD: Final[Codes] = MappingProxyType({})


def is_over(claim: Claim | None, clock: Clock) -> bool:
    """Return whether the lease of a claim has expired."""
    return claim is not None and claim.not_after_ms is not None and clock.now_ms() >= claim.not_after_ms


def find_withheld(
    plan: FetchPlan,
    claim: Claim | None,
    table: OwnershipTable,
    *,
    sender: Callable[[], Sender],
    now_ms: int,
    on_refused: OnRefused,
) -> Codes:
    """Find the rows of a fetch that its member may not read.

    `sender`: builds the connections of a fetch without a claim; `now_ms`: time of a clock that never goes back.
    """
    if claim is not None and claim.is_void:
        on_refused(Refusal(OURS, *claim.member, _NOT_VALID), "", -1)
        return dict.fromkeys(range(len(plan)), OURS)
    if len(table):
        table.forget(now_ms)
    found: dict[int, ErrorCode] = {}
    for rows in plan.topics:
        topic = rows.topic
        if topic is None or rows.first == rows.stop:
            continue
        here, is_closed = table.of_topic(topic.topic_id), claim is None and is_for_members(topic)
        listed = claim.partitions if claim is not None and claim.is_granted else None
        if here is None and listed is None and not is_closed:
            continue
        numbers = plan.numbers[rows.first : rows.stop]
        allowed = None if listed is None else listed.get(topic.topic_id, _NO_PARTITIONS)
        if (
            not is_closed
            and (here is None or here.keys().isdisjoint(numbers))
            and (allowed is None or allowed.issuperset(numbers))
        ):
            continue
        reader = sender() if claim is None else claim
        for at, number in enumerate(numbers, rows.first):
            refusal = table.find_refusal(reader, topic.topic_id, number, now_ms)
            if claim is not None and allowed is not None and number not in allowed:
                refusal = Refusal(OURS, *claim.member, NOT_LISTED)
            elif is_closed:
                refusal = _FOR_MEMBERS
            if refusal is not None:
                found[at] = refusal.code
                on_refused(refusal, topic.name, number)
    return found or NOTHING_WITHHELD


def withhold_all(plan: FetchPlan, claim: Claim, on_refused: OnRefused | None) -> Codes:
    """Return a code for every row, since the claim's lease has expired; NONE without `on_refused`."""
    if on_refused is None:
        return dict.fromkeys(range(len(plan)), QUIET)
    on_refused(Refusal(OURS, *claim.member, _LEASE_OVER), "", -1)
    return dict.fromkeys(range(len(plan)), OURS)


_NO_PARTITIONS: Final[Partitions] = frozenset()
_FOR_MEMBERS: Final = Refusal(ErrorCode.TOPIC_AUTHORIZATION_FAILED, "", "", "only members may read the topic")
_NOT_VALID: Final = "its token is not valid, or of another member"
_LEASE_OVER: Final = "the lease of its token is over"


def is_for_members(topic: Topic) -> bool:
    """Return whether only group members may fetch from a topic."""
    return bool(topic.partitions) and topic.partitions[0].config.is_read_by_members_only


class RefusedReads:
    """The count of refused rows, and a log line for each refused member and partition."""

    def __init__(self, clock: Clock) -> None:
        self._clock: Final = clock
        #: Rows that were refused since the start.
        self.rows = 0
        #: What was logged last, the oldest first.
        self._told: Final[OrderedDict[tuple[str, str, str, int, str], None]] = OrderedDict()
        #: End of the time in which `_lines` were logged and `_kept_back` were not.
        self._until_ms = self._lines = self._kept_back = 0

    def note(self, refusal: Refusal, topic: str, partition: int) -> None:
        """Log a refusal unless it was logged before; at most `MOST_LINES` lines in `LINES_MS`."""
        key = (refusal.group_id, refusal.member_id, topic, partition, refusal.reason)
        if key in self._told:
            self._told.move_to_end(key)
            return
        self._told[key] = None
        if len(self._told) > MOST_KEPT:
            self._told.popitem(last=False)
        now_ms = self._clock.now_ms()
        if now_ms >= self._until_ms:
            if self._kept_back:
                log.info("event=reads_refused more=%d", self._kept_back)
            self._until_ms, self._lines, self._kept_back = now_ms + LINES_MS, 0, 0
        if self._lines >= MOST_LINES:
            self._kept_back += 1
            return
        self._lines += 1
        log.info(
            "event=read_refused group=%r member=%r topic=%r partition=%d answer=%s reason=%r",
            *key[:4],
            refusal.code.name,
            refusal.reason,
        )
