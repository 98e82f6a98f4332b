"""The kinds of caveats, which narrow a capability token, and the encoding of each.

Laws: a caveat only removes rights, and none adds any. A kind that is not known here is refused, since it may forbid
anything. Each value has one encoded form.
Source: users@kafka 2014-07-18 (chained capabilities with leases, QoS, debug level and monitoring); macaroons (Birgisson
et al., NDSS 2014).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import field
from datetime import UTC, datetime
from enum import IntEnum
from ipaddress import IPv4Network, IPv6Network, ip_network
from typing import Any, Final, TypeAlias

from kohort.base.values import value
from kohort.ids import format_topic_id
from kohort.security.access_control import AclOperation
from kohort.security.capabilities.partition_sets import FormError, PartitionSet, Range, Reader, encode_number

Network: TypeAlias = IPv4Network | IPv6Network

#: The longest label of one caveat, characters: journals and lists show it.
LONGEST_LABEL: Final = 64
#: Kafka's levels of loggers, the most talkative first.
LOG_LEVELS: Final = ("TRACE", "DEBUG", "INFO", "WARN", "ERROR", "FATAL")
#: More is no limit.
MOST_RATE: Final = (1 << 53) - 1
_EARLIEST_MS: Final = -(1 << 63)
_LATEST_MS: Final = (1 << 63) - 1
_TOPIC_ID_BYTES: Final = 16
#: Names and networks that a text shows.
_MOST_SHOWN: Final = 8


class CapabilityError(ValueError):
    """A token is refused, or cannot have these caveats; the text has no part of a token or a key."""


class Kind(IntEnum):
    """The numbers of the kinds of caveats on the wire; none is ever used for another kind."""

    OPERATIONS = 1
    TOPICS = 2
    PARTITIONS = 3
    PARTITIONS_BY_ID = 4
    GROUPS = 5
    MEMBER = 6
    EPOCH = 7
    NOT_AFTER = 8
    BYTE_RATE = 9
    REQUEST_RATE = 10
    LOG_LEVEL = 11
    LABEL = 12
    PEERS = 13

    @property
    def word(self) -> str:
        """The name in texts and on the command line, such as `not_after`."""
        return self.name.lower()


#: Numbers of operations: those of Kafka, and `commit`, to which Kafka gives no right of its own.
OPERATIONS: Final[Mapping[str, int]] = {
    "commit": 1,
    **{each.name.lower(): int(each) for each in AclOperation if each is not AclOperation.ALL},
}
COMMIT: Final = OPERATIONS["commit"]
#: Operation -> the operations that it implies. Kafka: READ, WRITE, DELETE and ALTER imply DESCRIBE.
_IMPLIED: Final = {
    **dict.fromkeys(
        (COMMIT, AclOperation.READ, AclOperation.WRITE, AclOperation.DELETE, AclOperation.ALTER), AclOperation.DESCRIBE
    ),
    AclOperation.ALTER_CONFIGS: AclOperation.DESCRIBE_CONFIGS,
}
_ALL_OPERATIONS: Final = sum(1 << number for number in OPERATIONS.values())


@value(kw_only=False)
class Names:
    """Names of topics or groups, and prefixes of names.

    >>> few = Names(frozenset({"a"}), frozenset({"team-"}))
    >>> few.cover("a"), few.cover("team-a"), few.cover("b")
    (True, True, False)
    >>> few.also(Names(frozenset({"team-b", "b"}), frozenset()))
    Names(literals=frozenset({'team-b'}), prefixes=frozenset())
    """

    literals: frozenset[str]
    prefixes: frozenset[str]
    #: Lengths of the prefixes: a look for each, however many prefixes there are.
    _lengths: frozenset[int] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_lengths", frozenset(map(len, self.prefixes)))

    def cover(self, name: str) -> bool:
        """Return whether a name is one of them, or has one of the prefixes."""
        return name in self.literals or (bool(self.prefixes) and self._begins(name))

    def also(self, other: Names) -> Names:
        """Return the names that both cover; their size is at most that of both together."""
        literals = {each for each in self.literals if other.cover(each)} | {
            each for each in other.literals if self.cover(each)
        }
        prefixes = {each for each in self.prefixes if other._begins(each)} | {
            each for each in other.prefixes if self._begins(each)
        }
        return Names(frozenset(literals), frozenset(prefixes))

    def _begins(self, name: str) -> bool:
        prefixes = self.prefixes
        return any(name[:length] in prefixes for length in self._lengths)

    def __str__(self) -> str:
        return _listed([*sorted(self.literals), *(f"{each}*" for each in sorted(self.prefixes))])


@value(kw_only=False)
class Caveat:
    """One link of a token, as it is written; made by the functions of this module.

    >>> operations("read", "commit")
    Caveat(operations: commit, read)
    """

    kind: Kind
    body: bytes = field(repr=False)

    @property
    def value(self) -> Any:
        """The value: a bit field, names, sets by topic, a number, a text or networks, by the kind."""
        return read_value(self.kind, self.body)

    @property
    def link(self) -> bytes:
        """The bytes of the caveat in the token."""
        return encode_number(self.kind) + encode_number(len(self.body)) + self.body

    def __str__(self) -> str:
        return describe(self.kind, self.value)

    def __repr__(self) -> str:
        return f"Caveat({self.kind.word}: {self})"


def operations(*words: str) -> Caveat:
    """Limit to operations, by Kafka's names in lower case and `commit`.

    Read, write, commit, delete and alter imply describe, as in Kafka's access lists.
    """
    unknown = [word for word in words if word not in OPERATIONS]
    if unknown or not words:
        raise CapabilityError(
            f"operations cannot be {', '.join(unknown)[:100] or 'none'}: some of {', '.join(OPERATIONS)} are expected"
        )
    return Caveat(Kind.OPERATIONS, encode_number(sum(1 << OPERATIONS[word] for word in set(words))))


def topics(*names: str, prefixes: Iterable[str] = ()) -> Caveat:
    """Limit to topics of these names, or whose names begin so."""
    return Caveat(Kind.TOPICS, _write_names(names, prefixes))


def groups(*names: str, prefixes: Iterable[str] = ()) -> Caveat:
    """Limit to groups of these names, or whose names begin so."""
    return Caveat(Kind.GROUPS, _write_names(names, prefixes))


def partitions(sets: Mapping[str, Iterable[int | Range]] | Mapping[bytes, Iterable[int | Range]]) -> Caveat:
    """Limit to partitions: the name of each topic, or its id of 16 bytes, -> partitions or (first, last) ranges.

    A recreated topic has another id. One caveat cannot have both names and ids.
    """
    try:
        # In order, so that the same partitions are always the same bytes.
        ordered: list[tuple[Any, Iterable[int | Range]]] = sorted(sets.items())
        written = {key: PartitionSet.of(chosen).written for key, chosen in ordered}
    except (TypeError, ValueError) as why:
        raise CapabilityError(f"partitions: {why}") from None
    parts = [encode_number(len(written))]
    by_id = all(isinstance(key, bytes) for key in written)
    for key, chosen in written.items():
        if isinstance(key, bytes):
            if len(key) != _TOPIC_ID_BYTES:
                raise CapabilityError("partitions: a topic id has 16 bytes")
            parts.append(key)
        else:
            parts.append(_sized(_utf8(key)))
        parts.append(_sized(chosen))
    return Caveat(Kind.PARTITIONS_BY_ID if by_id else Kind.PARTITIONS, b"".join(parts))


def member(member_id: str) -> Caveat:
    """Limit to one member of a group."""
    if not member_id:
        raise CapabilityError("member: the id of a member is expected")
    return Caveat(Kind.MEMBER, _utf8(member_id))


def epoch(member_epoch: int) -> Caveat:
    """Limit to one epoch of the member."""
    if not -(1 << 31) <= member_epoch < 1 << 31:
        raise CapabilityError("epoch: an int32 is expected")
    return Caveat(Kind.EPOCH, member_epoch.to_bytes(4, "big", signed=True))


def not_after(when_ms: int) -> Caveat:
    """Limit to requests up to and including a time, milliseconds since 1970: the end of a lease."""
    if not _EARLIEST_MS <= when_ms <= _LATEST_MS:
        raise CapabilityError("not_after: milliseconds since 1970 of an int64 are expected")
    return Caveat(Kind.NOT_AFTER, when_ms.to_bytes(8, "big", signed=True))


def byte_rate(per_second: int) -> Caveat:
    """Throttle this token and all tokens attenuated from it, in total, to so many bytes a second."""
    return Caveat(Kind.BYTE_RATE, _write_rate(Kind.BYTE_RATE, per_second))


def request_rate(per_second: int) -> Caveat:
    """Throttle this token and all tokens attenuated from it, in total, to so many requests a second."""
    return Caveat(Kind.REQUEST_RATE, _write_rate(Kind.REQUEST_RATE, per_second))


def log_level(level: str) -> Caveat:
    """Log the token's requests at one of Kafka's levels; of several caveats the least verbose counts."""
    if level.upper() not in LOG_LEVELS:
        raise CapabilityError(f"log_level cannot be {level[:40]!r}: one of {', '.join(LOG_LEVELS)} is expected")
    return Caveat(Kind.LOG_LEVEL, encode_number(LOG_LEVELS.index(level.upper())))


def label(text: str) -> Caveat:
    """Name the token in journals and lists; later labels are appended, with a slash between."""
    if not _is_label(text):
        raise CapabilityError(f"label: 1 to {LONGEST_LABEL} printable characters without a slash are expected")
    return Caveat(Kind.LABEL, text.encode())


def peers(*networks: str) -> Caveat:
    """Limit to clients with these addresses, or in these networks, such as `10.0.0.0/8`."""
    if not networks:
        raise CapabilityError("peers: an address or a network is expected")
    found: set[Network] = set()
    for text in networks:
        try:
            found.add(ip_network(text))
        except ValueError:
            raise CapabilityError(
                f"peers cannot be {text[:60]!r}: an address is expected, or a network such as 10.0.0.0/8"
            ) from None
    ordered = sorted(found, key=lambda each: (each.version, int(each.network_address), each.prefixlen))
    return Caveat(
        Kind.PEERS, b"".join(bytes([each.version, each.prefixlen]) + each.network_address.packed for each in ordered)
    )


def describe(kind: Kind, value: Any) -> str:
    """Return the value of a caveat as text, shortened if it is long."""
    if kind is Kind.OPERATIONS:
        return ", ".join(word for word, number in OPERATIONS.items() if value >> number & 1)
    if kind is Kind.PARTITIONS_BY_ID:
        value = {format_topic_id(each): chosen for each, chosen in value.items()}
    if kind in (Kind.PARTITIONS, Kind.PARTITIONS_BY_ID):
        return _listed([f"{topic} {chosen}" for topic, chosen in value.items()], between="; ")
    if kind is Kind.PEERS:
        return _listed([str(each) for each in value])
    if kind is Kind.NOT_AFTER:
        return format_time(value)
    if kind in (Kind.BYTE_RATE, Kind.REQUEST_RATE):
        return f"{value}/s"
    return str(value)


def format_time(when_ms: int) -> str:
    """Return a time as in RFC 3339; beyond the calendar, its milliseconds."""
    try:
        return datetime.fromtimestamp(when_ms // 1000, UTC).isoformat().replace("+00:00", "Z")
    except (ValueError, OverflowError, OSError):
        return f"{when_ms} ms"


# Reading


def read_value(kind: Kind, body: bytes) -> Any:
    """Decode the value of a caveat; `CapabilityError` names the kind if the bytes are malformed."""
    try:
        return _READERS[kind](body)
    except (FormError, UnicodeDecodeError) as why:
        shown = why if isinstance(why, FormError) else "text that is not UTF-8"
        raise CapabilityError(f"the token has a caveat {kind.word} of another form: {shown}") from None


def closed(mask: int) -> int:
    """Return a bit field of operations including those that they imply."""
    for operation, implied in _IMPLIED.items():
        if mask >> operation & 1:
            mask |= 1 << implied
    return mask


def _read_operations(body: bytes) -> int:
    mask = _whole(body, lambda reader: reader.number())
    if not mask or mask & ~_ALL_OPERATIONS:
        raise FormError("an operation that is not known")
    return mask


def _read_names(body: bytes) -> Names:
    reader = Reader(body)
    kinds: tuple[list[str], list[str]] = ([], [])
    while not reader.is_at_end:
        is_prefix = reader.number(1)
        kinds[is_prefix].append(reader.text())
    return Names(frozenset(kinds[0]), frozenset(kinds[1]))


def _read_sets(body: bytes, key: Callable[[Reader], Any]) -> dict[Any, PartitionSet]:
    reader = Reader(body)
    count = reader.number(len(body))
    found = {}
    for _ in range(count):
        topic = key(reader)
        found[topic] = PartitionSet(reader.sized())
    if not reader.is_at_end or len(found) != count:
        raise FormError("a topic twice, or bytes behind the last")
    return found


def _read_peers(body: bytes) -> tuple[Network, ...]:
    reader = Reader(body)
    found: list[Network] = []
    while not reader.is_at_end:
        version, length = reader.take(2)
        if version not in (4, 6):
            raise FormError("an address of another family")
        try:
            found.append(
                IPv4Network((reader.take(4), length)) if version == 4 else IPv6Network((reader.take(16), length))
            )
        except ValueError:
            raise FormError("no network") from None
    return tuple(found)


def _read_member(body: bytes) -> str:
    if not body:
        raise FormError("no member")
    return body.decode()


def _read_label(body: bytes) -> str:
    text = body.decode()
    if not _is_label(text):
        raise FormError("a label that is long, or not printable")
    return text


def _read_level(body: bytes) -> str:
    return LOG_LEVELS[_whole(body, lambda reader: reader.number(len(LOG_LEVELS) - 1))]


def _read_rate(body: bytes) -> int:
    rate = _whole(body, lambda reader: reader.number(MOST_RATE))
    if not rate:
        raise FormError("a rate of 0")
    return rate


def _whole(body: bytes, read: Callable[[Reader], int]) -> int:
    reader = Reader(body)
    value = read(reader)
    if not reader.is_at_end:
        raise FormError("bytes behind its value")
    return value


def _fixed(size: int) -> Callable[[bytes], int]:
    def read(body: bytes) -> int:
        if len(body) != size:
            raise FormError("a number of another size")
        return int.from_bytes(body, "big", signed=True)

    return read


_READERS: Final[Mapping[Kind, Callable[[bytes], Any]]] = {
    Kind.OPERATIONS: _read_operations,
    Kind.TOPICS: _read_names,
    Kind.PARTITIONS: lambda body: _read_sets(body, Reader.text),
    Kind.PARTITIONS_BY_ID: lambda body: _read_sets(body, lambda reader: reader.take(_TOPIC_ID_BYTES)),
    Kind.GROUPS: _read_names,
    Kind.MEMBER: _read_member,
    Kind.EPOCH: _fixed(4),
    Kind.NOT_AFTER: _fixed(8),
    Kind.BYTE_RATE: _read_rate,
    Kind.REQUEST_RATE: _read_rate,
    Kind.LOG_LEVEL: _read_level,
    Kind.LABEL: _read_label,
    Kind.PEERS: _read_peers,
}


# Writing


def _write_names(names: Iterable[str], prefixes: Iterable[str]) -> bytes:
    chosen = [*((0, name) for name in sorted(set(names))), *((1, name) for name in sorted(set(prefixes)))]
    if not chosen or not all(name for _, name in chosen):
        raise CapabilityError("names: at least one is expected, and none that is empty")
    return b"".join(encode_number(is_prefix) + _sized(_utf8(name)) for is_prefix, name in chosen)


def _write_rate(kind: Kind, per_second: int) -> bytes:
    if not 1 <= per_second <= MOST_RATE:
        raise CapabilityError(f"{kind.word}: 1 to {MOST_RATE} a second are expected")
    return encode_number(per_second)


def _utf8(text: str) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError:
        raise CapabilityError("a name is not text: it cannot be written in UTF-8") from None


def _sized(data: bytes) -> bytes:
    return encode_number(len(data)) + data


def _is_label(text: str) -> bool:
    return 0 < len(text) <= LONGEST_LABEL and text.isprintable() and "/" not in text


def _listed(texts: list[str], between: str = ", ") -> str:
    rest = len(texts) - _MOST_SHOWN
    return between.join([*texts[:_MOST_SHOWN], *([f"{rest} more"] if rest > 0 else [])]) or "none"
