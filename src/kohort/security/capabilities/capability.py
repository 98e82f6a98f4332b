"""Capability tokens: `kh1.` and a chain of HMAC-SHA-256, each link of which is a caveat that narrows the rest.

The text is base64url without padding of: id of the root key (4 bytes), id of the token (16), links, HMAC of the last
link (32). A link is the number of its kind, the length of its value, and the value. The key of each HMAC is the HMAC of
the link before it, the first one's is the root key: a holder can add links, and can remove none.

Laws: sizes are checked first, and the HMAC before a link is used. No error or log line has a part of a token or a key.
Source: users@kafka 2014-07-18 (chained object capabilities, hash tokens); macaroons (Birgisson et al., NDSS 2014).
"""

from __future__ import annotations

import hashlib
import hmac
import re
from base64 import urlsafe_b64decode, urlsafe_b64encode
from binascii import Error as Base64Error
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field
from functools import lru_cache
from ipaddress import IPv4Address, IPv6Address, ip_address
from typing import Any, Final, NamedTuple

from kohort.base import values
from kohort.security.access_control import AclOperation, ResourceType
from kohort.security.capabilities.caveats import (
    COMMIT,
    LOG_LEVELS,
    CapabilityError,
    Caveat,
    Kind,
    Names,
    Network,
    closed,
    describe,
    read_value,
)
from kohort.security.capabilities.partition_sets import FormError, PartitionSet, Reader
from kohort.security.capabilities.root_keys import KEY_ID_BYTES, RootKeys

PREFIX: Final = "kh1."
#: The longest token, characters.
LONGEST_TOKEN: Final = 16_384
MOST_LINKS: Final = 64
TOKEN_ID_BYTES: Final = 16
_ID: Final = re.compile(r"[A-Za-z0-9_-]{22}")
_TAIL_BYTES: Final = 32
_HEAD_BYTES: Final = KEY_ID_BYTES + TOKEN_ID_BYTES
_HASH: Final = "sha256"
_ID_BYTES: Final = 16

#: Operations on single partitions, or that change nothing; all others concern a whole topic.
_OF_PARTITIONS: Final = sum(
    1 << each
    for each in (
        COMMIT,
        AclOperation.READ,
        AclOperation.WRITE,
        AclOperation.DESCRIBE,
        AclOperation.DESCRIBE_CONFIGS,
    )
)


class Row(NamedTuple):
    """A link of a token, as text: its number from 1 on, the kind of its caveat, and its value."""

    link: int
    caveat: str
    value: str


class Rate(NamedTuple):
    """A limit of a link: so many bytes or requests a second for all tokens together that have the link.

    `id`: the id of the chain up to the link; empty if the token is not verified. The limit counts by this id, not by
    whole tokens, or each token that a holder derives would have a limit of its own.
    """

    id: str
    per_second: int


@values.value
class Capability:
    """The rights that all links of a token together leave; an attribute of `None` means no limit.

    Only one from `verify` allows anything.
    """

    is_verified: bool
    #: Identifies the holder: the id up to the last link that is no `not_after`, so that a renewed lease keeps it.
    id: str
    #: Ids of the token as minted and after each of its links: revoking one ends all tokens attenuated from it.
    #: For a token that is not verified only the first and the last.
    chain: tuple[str, ...]
    #: Bit field of operations, including implied ones.
    operations: int | None = None
    topics: Names | None = None
    #: Topic name -> sets; a partition has to be in each of them.
    partitions: Mapping[str, tuple[PartitionSet, ...]] | None = None
    #: Topic id -> sets, likewise.
    partitions_by_id: Mapping[bytes, tuple[PartitionSet, ...]] | None = None
    groups: Names | None = None
    member: str | None = None
    epoch: int | None = None
    not_after_ms: int | None = None
    #: In the order of the links; all of them count.
    byte_rates: tuple[Rate, ...] = ()
    request_rates: tuple[Rate, ...] = ()
    log_level: str | None = None
    label: str | None = None
    #: The client's address has to be in one network of each entry.
    peers: tuple[tuple[Network, ...], ...] | None = None
    #: Whether a caveat limits topics, partitions, groups or the member: then other resources are refused.
    is_partial: bool = field(default=False, repr=False)

    @property
    def group(self) -> str | None:
        """The only group that the token is for; `None` if it is for several groups, or for all."""
        names = self.groups
        return next(iter(names.literals)) if names and len(names.literals) == 1 and not names.prefixes else None

    @property
    def byte_rate(self) -> int | None:
        """The lowest limit in bytes a second; `None` without a limit."""
        return min((each.per_second for each in self.byte_rates), default=None)

    @property
    def request_rate(self) -> int | None:
        """The lowest limit in requests a second; `None` without a limit."""
        return min((each.per_second for each in self.request_rates), default=None)

    def covers(self, topic_id: bytes | None, topic: str | None, partition: int) -> bool:
        """Return whether the caveats on partitions allow this one, by the topic's id and name."""
        return (self.partitions is None or _has(self.partitions, topic, partition)) and (
            self.partitions_by_id is None or _has(self.partitions_by_id, topic_id, partition)
        )

    def refusal(
        self,
        *,
        operation: int,
        resource_type: int,
        now_ms: int,
        name: str | None = None,
        topic_id: bytes | None = None,
        partition: int | None = None,
        group: str | None = None,
        member: str | None = None,
        epoch: int | None = None,
        peer: str | None = None,
    ) -> str | None:
        """Return the kind of the first caveat that refuses a request, such as `topics`; `None` if allowed.

        Args:
            operation: a number of `OPERATIONS`: Kafka's, and `COMMIT`.
            resource_type: Kafka's number of the type of the resource.
            now_ms: milliseconds since 1970.
            name: the resource's name; without it a caveat with names refuses a topic.
            topic_id: the topic's id; without it a caveat with topic ids refuses the topic.
            partition: `None` asks for the topic as a whole; without name and id, too, it asks whether the operation
                may be allowed on any topic or resource.
            group, member, epoch: those that the request names; `None` if it names none.
            peer: the client's address; without it a caveat on peers refuses.
        """
        if not self.is_verified:
            return "unverified"
        if self.not_after_ms is not None and now_ms > self.not_after_ms:
            return Kind.NOT_AFTER.word
        if self.operations is not None and not self.operations >> operation & 1:
            return Kind.OPERATIONS.word
        if self.peers is not None and not self._admits(peer):
            return Kind.PEERS.word
        if self.member is not None and member is not None and member != self.member:
            return Kind.MEMBER.word
        if self.epoch is not None and epoch is not None and epoch != self.epoch:
            return Kind.EPOCH.word
        if self.groups is not None:
            if group is not None and not self.groups.cover(group):
                return Kind.GROUPS.word
            if resource_type == ResourceType.GROUP and name is not None and not self.groups.cover(name):
                return Kind.GROUPS.word
        if resource_type == ResourceType.TOPIC:
            return self._refusal_of_topic(operation, name, topic_id, partition)
        if self.is_partial and resource_type != ResourceType.GROUP:
            # Every producer needs a producer id. To describe the cluster shows all groups, log dirs and ACLs.
            is_common = resource_type == ResourceType.CLUSTER and operation == AclOperation.IDEMPOTENT_WRITE
            return None if is_common else "resource"
        return None

    def _refusal_of_topic(
        self, operation: int, name: str | None, topic_id: bytes | None, partition: int | None
    ) -> str | None:
        is_any = name is None and topic_id is None and partition is None
        if self.topics is not None and not is_any and (name is None or not self.topics.cover(name)):
            return Kind.TOPICS.word
        if self.partitions is None and self.partitions_by_id is None:
            return None
        if not _OF_PARTITIONS >> operation & 1:
            # A right to some partitions of a topic is no right to delete it, or to change its configs.
            return Kind.PARTITIONS.word
        if is_any:
            return None
        if partition is not None:
            return None if self.covers(topic_id, name, partition) else Kind.PARTITIONS.word
        is_listed = (self.partitions is None or name in self.partitions) and (
            self.partitions_by_id is None or topic_id in self.partitions_by_id
        )
        return None if is_listed else Kind.PARTITIONS.word

    def _admits(self, peer: str | None) -> bool:
        address = None if peer is None else _address(peer)
        return address is not None and all(any(address in each for each in link) for link in self.peers or ())


def mint(keys: RootKeys, *caveats: Caveat, token_id: bytes) -> str:
    """Make a token with the current root key.

    Args:
        keys: the broker's.
        caveats: without any the token allows everything; a lease (`not_after`) is always written last.
        token_id: 16 bytes, random for a new holder. The same id and caveats with a later lease are the same holder.

    Raises:
        CapabilityError: the token would be too long, or have too many links.

    >>> from kohort.security.capabilities.caveats import operations, topics
    >>> keys = RootKeys.of(bytes(32))
    >>> token = mint(keys, operations("read"), topics("orders"), token_id=bytes(16))
    >>> token[:31], len(token)
    ('kh1.3mYftgAAAAAAAAAAAAAAAAAAAAA', 91)
    >>> verify(token, keys).topics.cover("orders")
    True
    """
    if len(token_id) != TOKEN_ID_BYTES:
        raise CapabilityError(f"a token id has {TOKEN_ID_BYTES} bytes")
    head = keys.current.id + token_id
    start = hmac.digest(keys.current.secret, PREFIX.encode() + head, _HASH)
    ordered = sorted(caveats, key=lambda each: each.kind is Kind.NOT_AFTER)
    return _write(head, b"", start, [each.link for each in ordered])


def attenuate(token: str, *caveats: Caveat) -> str:
    """Add caveats to a token, without a key and without the broker.

    Raises:
        CapabilityError: the text is no token, the result would be too long, or would allow nothing at all.
    """
    parts = _split(token)
    links = [each.link for each in caveats]
    if len(parts.links) + len(links) > MOST_LINKS:
        raise CapabilityError(f"a token has {MOST_LINKS} links at most")
    _combine([*_read(parts.links), *((each.kind, each.value) for each in caveats)], is_verified=False, chain=("",))
    return _write(parts.head, parts.body, parts.tail, links)


def parse(token: str) -> Capability:
    """Read a token without a key: its caveats, unverified.

    Raises:
        CapabilityError: the token has another form, or an unknown caveat.
    """
    parts = _split(token)
    chain = (_text(parts.token_id), _revocation_id(parts.tail)) if parts.links else (_text(parts.token_id),)
    return _combine(list(_read(parts.links)), is_verified=False, chain=chain)


def verify(token: str, keys: RootKeys) -> Capability:
    """Return the rights of a token, if a live root key has minted it and no link was changed since.

    Raises:
        CapabilityError: the text is no token of these keys, or has an unknown caveat.
    """
    parts = _split(token)
    key = keys.find(parts.head[:KEY_ID_BYTES])
    if key is None:
        raise CapabilityError("the token was minted with a root key that is not in force here")
    running = hmac.digest(key.secret, PREFIX.encode() + parts.head, _HASH)
    chain = [_text(parts.token_id)]
    for link in parts.links:
        running = hmac.digest(running, link, _HASH)
        chain.append(_revocation_id(running))
    if not hmac.compare_digest(running, parts.tail):
        raise CapabilityError("the token was changed, or was not minted by this broker")
    return _combine(list(_read(parts.links)), is_verified=True, chain=tuple(chain))


def explain(token: str) -> list[Row]:
    """Return the links of a token in order, without a key; `CapabilityError` as `parse`."""
    found = _read(_split(token).links)
    return [Row(number, kind.word, describe(kind, value)) for number, (kind, value) in enumerate(found, start=1)]


# The chain


@values.value(kw_only=False)
class _Parts:
    """The parts of a token, which its repr does not show."""

    head: bytes = field(repr=False)
    #: All links together.
    body: bytes = field(repr=False)
    links: Sequence[bytes] = field(repr=False)
    tail: bytes = field(repr=False)

    @property
    def token_id(self) -> bytes:
        return self.head[KEY_ID_BYTES:]


def _split(token: str) -> _Parts:
    """Split a token into its parts, after checking its size."""
    if len(token) > LONGEST_TOKEN:
        raise CapabilityError(f"a token has {LONGEST_TOKEN} characters at most")
    if not token.startswith(PREFIX):
        raise CapabilityError(f"a token begins with {PREFIX}")
    text = token[len(PREFIX) :]
    try:
        raw = urlsafe_b64decode(text + "=" * (-len(text) % 4))
    except (ValueError, Base64Error):
        raise CapabilityError("the token is cut off, or not in base64url") from None
    # Python skips other characters, and the last one has unused bits: either would be a second text of the token.
    if _text(raw) != text:
        raise CapabilityError("the token is not in base64url without padding")
    if len(raw) < _HEAD_BYTES + _TAIL_BYTES:
        raise CapabilityError("the token is cut off")
    body = raw[_HEAD_BYTES:-_TAIL_BYTES]
    return _Parts(raw[:_HEAD_BYTES], body, _links(body), raw[-_TAIL_BYTES:])


def _links(body: bytes) -> list[bytes]:
    reader = Reader(body)
    links: list[bytes] = []
    try:
        while not reader.is_at_end:
            if len(links) == MOST_LINKS:
                raise CapabilityError(f"a token has {MOST_LINKS} links at most")
            begin = reader.position
            reader.number()
            reader.sized()
            links.append(body[begin : reader.position])
    except FormError:
        raise CapabilityError("the token is cut off, or has links of another form") from None
    return links


def _read(links: Sequence[bytes]) -> Iterator[tuple[Kind, Any]]:
    """Read the kind and the value of each link."""
    for link in links:
        reader = Reader(link)
        number = reader.number()
        try:
            kind = Kind(number)
        except ValueError:
            raise CapabilityError(
                f"the token has a caveat of kind {number}, which this version does not know: it may forbid anything"
            ) from None
        yield kind, read_value(kind, reader.sized())


def _write(head: bytes, body: bytes, running: bytes, links: Sequence[bytes]) -> str:
    if len(links) > MOST_LINKS:
        raise CapabilityError(f"a token has {MOST_LINKS} links at most")
    for link in links:
        running = hmac.digest(running, link, _HASH)
    token = PREFIX + _text(b"".join([head, body, *links, running]))
    if len(token) > LONGEST_TOKEN:
        raise CapabilityError(f"the caveats are too long: a token has {LONGEST_TOKEN} characters at most")
    return token


def _revocation_id(running: bytes) -> str:
    return _text(hashlib.sha256(b"kohort revocation id\0" + running).digest()[:_ID_BYTES])


def is_id(text: str) -> bool:
    """Return whether a text has the form of a chain's id.

    >>> is_id("AAAAAAAAAAAAAAAAAAAAAA"), is_id("orders")
    (True, False)
    """
    return _ID.fullmatch(text) is not None


def _text(raw: bytes) -> str:
    return urlsafe_b64encode(raw).rstrip(b"=").decode("ascii")


# Caveats together


def _combine(found: list[tuple[Kind, Any]], *, is_verified: bool, chain: tuple[str, ...]) -> Capability:
    """Combine caveats into the rights that all of them together leave."""
    left: dict[Kind, Any] = {}
    identity = 0
    for number, (kind, value) in enumerate(found, start=1):
        if kind is not Kind.NOT_AFTER:
            identity = number
        known = closed(value) if kind is Kind.OPERATIONS else value
        if kind in (Kind.PARTITIONS, Kind.PARTITIONS_BY_ID):
            known = {topic: (chosen,) for topic, chosen in value.items()}
        elif kind is Kind.PEERS:
            known = (value,)
        elif kind in (Kind.BYTE_RATE, Kind.REQUEST_RATE):
            known = (Rate(chain[number] if is_verified else "", value),)
        left[kind] = _narrow(kind, left[kind], known) if kind in left else known
    if left.get(Kind.OPERATIONS) == 0:
        raise CapabilityError("the caveats operations of the token leave no operation")
    kinds = (Kind.TOPICS, Kind.PARTITIONS, Kind.PARTITIONS_BY_ID, Kind.GROUPS, Kind.MEMBER)
    return Capability(
        is_verified=is_verified,
        # The ids up to earlier links can be computed only with the root key.
        id=chain[identity] if is_verified else chain[-1],
        chain=chain,
        operations=left.get(Kind.OPERATIONS),
        topics=left.get(Kind.TOPICS),
        partitions=left.get(Kind.PARTITIONS),
        partitions_by_id=left.get(Kind.PARTITIONS_BY_ID),
        groups=left.get(Kind.GROUPS),
        member=left.get(Kind.MEMBER),
        epoch=left.get(Kind.EPOCH),
        not_after_ms=left.get(Kind.NOT_AFTER),
        byte_rates=left.get(Kind.BYTE_RATE, ()),
        request_rates=left.get(Kind.REQUEST_RATE, ()),
        log_level=left.get(Kind.LOG_LEVEL),
        label=left.get(Kind.LABEL),
        peers=left.get(Kind.PEERS),
        is_partial=any(kind in left for kind in kinds),
    )


def _narrow(kind: Kind, known: Any, value: Any) -> Any:
    """Return the value that two caveats of one kind allow together: the narrower of both."""
    match kind:
        case Kind.OPERATIONS:
            return known & value
        case Kind.TOPICS | Kind.GROUPS:
            return known.also(value)
        case Kind.PARTITIONS | Kind.PARTITIONS_BY_ID:
            return {topic: known[topic] + chosen for topic, chosen in value.items() if topic in known}
        case Kind.MEMBER | Kind.EPOCH:
            if known != value:
                raise CapabilityError(f"two caveats {kind.word} of the token contradict each other: it allows nothing")
            return known
        case Kind.NOT_AFTER:
            return min(known, value)
        case Kind.LOG_LEVEL:
            return max(known, value, key=LOG_LEVELS.index)
        case Kind.LABEL:
            return f"{known}/{value}"
        case Kind.PEERS | Kind.BYTE_RATE | Kind.REQUEST_RATE:
            return known + value


def _has(sets: Mapping[Any, tuple[PartitionSet, ...]], topic: Any, partition: int) -> bool:
    chosen = sets.get(topic)
    if chosen is None:
        return False
    return partition in chosen[0] if len(chosen) == 1 else all(partition in each for each in chosen)


@lru_cache(maxsize=1024)
def _address(peer: str) -> IPv4Address | IPv6Address | None:
    try:
        address = ip_address(peer.partition("%")[0])
    except ValueError:
        return None
    # On a socket of both families clients of IPv4 have addresses of IPv6.
    mapped = address.ipv4_mapped if isinstance(address, IPv6Address) else None
    return mapped or address
