"""Authorization: Kafka's ACLs, and decisions whether they allow a principal an operation.

Laws: a super user may do everything; an entry that denies goes before every entry that allows. If a resource has
entries, any operation that none of them allows is denied; only a resource without entries follows the default.
An entry that allows to read, write, delete or alter allows to describe as well, and one that allows to alter configs
allows to describe them; an entry that denies denies only its own operation. A decision costs one look-up for each
length of the prefixes of that resource type, however many entries there are. Nothing here does I/O.
Source: Apache Kafka 4.3: StandardAuthorizerData, Authorizer.authorizeByResourceType, ResourcePatternFilter; KIP-11,
KIP-290 (prefixes), KIP-679 (any resource of a type).
"""

from __future__ import annotations

import ipaddress
from bisect import insort
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from itertools import chain, product
from typing import Final, NamedTuple

from kohort.base.values import value
from kohort.security.access_control import WILDCARD, AclOperation, AclPermission, PatternType, ResourceType

#: The principal of entries for every user.
EVERY_USER: Final = "User:*"
#: The bits of all operations (KIP-430).
EVERY_OPERATION: Final = sum(1 << operation for operation in AclOperation)
#: Kafka's numbers in filters, in addition to `PatternType`: every value; every pattern that matches the named resource.
ANY: Final = 1
MATCH: Final = 2

#: In the bits of one pattern and principal, denied operations begin at this bit; those below are allowed ones.
_DENIED_FROM: Final = 16
_ALL: Final = 1 << AclOperation.ALL
_IMPLY_DESCRIBE: Final = sum(
    1 << each for each in (AclOperation.READ, AclOperation.WRITE, AclOperation.DELETE, AclOperation.ALTER)
)
_DESCRIBE: Final = 1 << AclOperation.DESCRIBE
_ALTER_CONFIGS: Final = 1 << AclOperation.ALTER_CONFIGS
_DESCRIBE_CONFIGS: Final = 1 << AclOperation.DESCRIBE_CONFIGS
#: Kafka asks for a resource of this name first when it is asked for any resource of a type.
_ANY_NAME: Final = "hardcode"

#: Bit -> the operation and permission of the entry that it stands for.
_MEANING: Final = {
    operation + shift: (operation, permission)
    for permission, shift in ((AclPermission.ALLOW, 0), (AclPermission.DENY, _DENIED_FROM))
    for operation in AclOperation
}

#: Names that are looked at, or entries that are found, in one part of a scan.
_NAMES_AT_ONCE: Final = 1_000
_ENTRIES_AT_ONCE: Final = 500

#: A principal and a host, as one entry names them.
Who = tuple[str, str]


class Acl(NamedTuple):
    """One entry: it allows or denies a principal, from a host, an operation on the resources of a pattern."""

    resource: ResourceType
    pattern: PatternType
    name: str
    principal: str
    host: str
    operation: AclOperation
    permission: AclPermission


@value
class AclFilter:
    """A filter of entries, with Kafka's numbers; `ANY` and `None` match every value."""

    resource: int = ANY
    pattern: int = ANY
    name: str | None = None
    principal: str | None = None
    host: str | None = None
    operation: int = ANY
    permission: int = ANY

    def has_pattern(self, resource: int, pattern: int, name: str) -> bool:
        """Return whether the filter matches the resource pattern of an entry.

        >>> AclFilter(pattern=MATCH, name="orders-eu").has_pattern(2, PatternType.PREFIXED, "orders-")
        True
        """
        if self.resource not in (ANY, resource) or self.pattern not in (ANY, MATCH, pattern):
            return False
        if self.name is None or self.name == name:
            return True
        if self.pattern != MATCH:
            return False
        return self.name.startswith(name) if pattern == PatternType.PREFIXED else name == WILDCARD

    def has_entry(self, acl: Acl) -> bool:
        """Return whether the filter matches an entry's principal, host, operation and permission."""
        return (
            self.principal in (None, acl.principal)
            and self.host in (None, acl.host)
            and self.operation in (ANY, acl.operation)
            and self.permission in (ANY, acl.permission)
        )


class _Patterns:
    """The entries for one resource type with one pattern type."""

    __slots__ = ("by_name", "by_who", "lengths", "of_length")

    def __init__(self) -> None:
        #: Name -> principal and host -> bits of the allowed operations, and above them of the denied ones.
        self.by_name: dict[str, dict[Who, int]] = {}
        #: Principal and host -> the names that have entries for them.
        self.by_who: dict[Who, dict[str, None]] = {}
        #: The lengths of names, ascending, and the number of names that have each.
        self.lengths: list[int] = []
        self.of_length: Counter[int] = Counter()

    def change(self, acl: Acl, *, wanted: bool) -> bool:
        """Add or remove an entry; return whether that changed anything."""
        who, bit = (acl.principal, acl.host), _bit(acl)
        entries = self.by_name.get(acl.name)
        bits = 0 if entries is None else entries.get(who, 0)
        if bool(bits & bit) is wanted:
            return False
        if entries is None:
            entries = self.by_name[acl.name] = {}
            length = len(acl.name)
            if not self.of_length[length]:
                insort(self.lengths, length)
            self.of_length[length] += 1
        entries[who] = bits ^ bit
        names = self.by_who.setdefault(who, {})
        names[acl.name] = None
        if not entries[who]:
            self._forget(acl.name, who)
        return True

    def _forget(self, name: str, who: Who) -> None:
        """Forget a principal and host for which a name has no entries any more."""
        del self.by_name[name][who], self.by_who[who][name]
        if not self.by_who[who]:
            del self.by_who[who]
        if not self.by_name[name]:
            del self.by_name[name]
            self.of_length[len(name)] -= 1
            if not self.of_length[len(name)]:
                del self.of_length[len(name)]
                self.lengths.remove(len(name))

    def bits(self, name: str, whos: Iterable[Who]) -> int:
        """Return the bits that the entries of one name have for some principals and hosts."""
        entries = self.by_name.get(name, _NO_ENTRIES)
        found = 0
        for who in whos:
            found |= entries.get(who, 0)
        return found

    def prefixes(self, name: str) -> Iterator[str]:
        """Yield the names of these entries that are prefixes of `name`, the shortest first."""
        for length in self.lengths:
            if length > len(name):
                return
            if (prefix := name[:length]) in self.by_name:
                yield prefix


_NO_ENTRIES: Final[Mapping[Who, int]] = {}


class Authorizer:
    """The entries in force, and the decisions that follow from them."""

    def __init__(self, *, super_users: Iterable[str] = (), allows_by_default: bool = False) -> None:
        """Create an authorizer without entries; `allows_by_default` is for resources without entries."""
        self.super_users: Final = frozenset(super_users)
        self.allows_by_default: Final = allows_by_default
        #: Rises with each change of the entries, after which decisions may differ.
        self.edition = 1
        self._count = 0
        self._literal: Final = {resource: _Patterns() for resource in ResourceType}
        self._prefixed: Final = {resource: _Patterns() for resource in ResourceType}

    def __len__(self) -> int:
        return self._count

    def __contains__(self, acl: Acl) -> bool:
        entries = self._patterns(acl.resource, acl.pattern).by_name.get(acl.name, _NO_ENTRIES)
        return bool(entries.get((acl.principal, acl.host), 0) & _bit(acl))

    def __iter__(self) -> Iterator[Acl]:
        return self.matching(AclFilter())

    def change(self, *, added: Iterable[Acl] = (), removed: Iterable[Acl] = ()) -> None:
        """Remove entries, then add entries; missing ones to remove and present ones to add are ignored."""
        before, changed = self._count, 0
        for acl in removed:
            changed -= self._patterns(acl.resource, acl.pattern).change(acl, wanted=False)
        self._count += changed
        gone = self._count != before
        for acl in added:
            self._count += self._patterns(acl.resource, acl.pattern).change(acl, wanted=True)
        if gone or self._count != before:
            self.edition += 1

    def add(self, *acls: Acl) -> None:
        """Add entries."""
        self.change(added=acls)

    def remove(self, *acls: Acl) -> None:
        """Remove entries."""
        self.change(removed=acls)

    def grants(self, whos: tuple[Who, ...], resource: ResourceType, name: str) -> int:
        """Return the bit field of the operations that a principal may do to a resource.

        Args:
            whos: the principal and hosts that entries may name, from `whos_of`.
            resource: the resource's type.
            name: the resource's name, not a pattern.
        """
        if whos[0][0] in self.super_users:
            return EVERY_OPERATION
        literal, prefixed = self._literal[resource], self._prefixed[resource]
        found, is_named = 0, False
        for each in (name, WILDCARD):
            if each in literal.by_name:
                is_named = True
                found |= literal.bits(each, whos)
        for prefix in prefixed.prefixes(name):
            is_named = True
            found |= prefixed.bits(prefix, whos)
        # Kafka's default is for resources without any entry, not for principals without one.
        return _allowed(found) if is_named else EVERY_OPERATION * self.allows_by_default

    def denials(self, whos: tuple[Who, ...], resource: ResourceType, name: str) -> int:
        """Return the bit field of the operations that entries deny a principal."""
        literal, prefixed = self._literal[resource], self._prefixed[resource]
        found = 0
        for each in (name, WILDCARD):
            found |= literal.bits(each, whos) if each in literal.by_name else 0
        for prefix in prefixed.prefixes(name):
            found |= prefixed.bits(prefix, whos)
        denied = found >> _DENIED_FROM
        return EVERY_OPERATION if denied & _ALL else denied

    def allows(self, principal: str, host: str, operation: AclOperation, resource: ResourceType, name: str) -> bool:
        """Return whether a principal may do this operation on the resource of that name."""
        return bool(self.grants(whos_of(principal, host), resource, name) >> operation & 1)

    def allows_any(self, whos: tuple[Who, ...], operation: AclOperation, resource: ResourceType) -> bool:
        """Return whether a principal may do this to at least one resource of that type (KIP-679).

        An allowed prefix counts unless it, or a prefix of it, is denied: resources that are denied one by one below an
        allowed prefix change nothing.
        """
        if self.grants(whos, resource, _ANY_NAME) >> operation & 1:
            return True
        literal, prefixed = self._literal[resource], self._prefixed[resource]
        # No operation implies another here: only the operation itself and ALL count.
        allows = 1 << operation | _ALL
        denies = allows << _DENIED_FROM
        of_all = literal.bits(WILDCARD, whos)
        if of_all & (denies | allows):
            return not of_all & denies
        for patterns in (literal, prefixed):
            for who in whos:
                for name in patterns.by_who.get(who, ()):
                    bits = patterns.by_name[name][who]
                    if bits & allows and not self._is_denied(whos, denies, resource, name, patterns is literal):
                        return True
        return False

    def _is_denied(self, whos: tuple[Who, ...], denies: int, resource: ResourceType, name: str, literal: bool) -> bool:
        """Return whether an allowed pattern is denied by one that covers all its resources."""
        if literal and self._literal[resource].bits(name, whos) & denies:
            return True
        prefixed = self._prefixed[resource]
        return any(prefixed.bits(prefix, whos) & denies for prefix in prefixed.prefixes(name))

    def matching(self, wanted: AclFilter) -> Iterator[Acl]:
        """Yield the entries that a filter matches, by resource pattern."""
        return chain.from_iterable(self.scan(wanted))

    def scan(self, wanted: AclFilter) -> Iterator[list[Acl]]:
        """Yield the same entries in parts; each takes little time, and may be empty.

        Entries may be added and removed between two parts.
        """
        part: list[Acl] = []
        looked_at = 0
        for resource, pattern in product(ResourceType, PatternType):
            patterns = self._patterns(resource, pattern)
            is_exact = wanted.pattern != MATCH and wanted.name is not None
            for name in [wanted.name or ""] if is_exact else list(patterns.by_name):
                looked_at += 1
                if name in patterns.by_name and wanted.has_pattern(resource, pattern, name):
                    for acl in self._entries(wanted, resource, pattern, name):
                        part.append(acl)
                        if len(part) == _ENTRIES_AT_ONCE:
                            yield part
                            part = []
                if looked_at == _NAMES_AT_ONCE:
                    yield part
                    part, looked_at = [], 0
        yield part

    def _entries(self, wanted: AclFilter, resource: ResourceType, pattern: PatternType, name: str) -> Iterator[Acl]:
        by_who = self._patterns(resource, pattern).by_name[name]
        if wanted.principal is not None and wanted.host is not None:
            rows = [(who, by_who[who]) for who in ((wanted.principal, wanted.host),) if who in by_who]
        else:
            rows = list(by_who.items())
        for (principal, host), bits in rows:
            left = bits
            while left:
                at = (left & -left).bit_length() - 1
                left &= left - 1
                operation, permission = _MEANING[at]
                acl = Acl(resource, pattern, name, principal, host, operation, permission)
                if wanted.has_entry(acl):
                    yield acl

    def _patterns(self, resource: ResourceType, pattern: PatternType) -> _Patterns:
        return (self._prefixed if pattern is PatternType.PREFIXED else self._literal)[resource]


def whos_of(principal: str, host: str) -> tuple[Who, ...]:
    """Return each principal and host by which an entry may name this client.

    >>> whos_of("User:alice", "10.0.0.7")[0]
    ('User:alice', '10.0.0.7')
    """
    hosts = dict.fromkeys((*_spellings(host), WILDCARD))
    return tuple((each, where) for each in dict.fromkeys((principal, EVERY_USER)) for where in hosts)


def is_met(principal: str, host: str) -> bool:
    """Return whether an entry with this principal and host can match any client.

    >>> [is_met("User:eve", host) for host in ("*", "10.0.0.7", "::1", "::ffff:10.0.0.7", "10.0.0.0/8", "eve.example")]
    [True, True, True, False, False, False]
    """
    if not principal.startswith("User:"):
        return False
    if host == WILDCARD:
        return True
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return False
    mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
    return mapped is None and host in _spellings(str(address))


def _spellings(host: str) -> tuple[str, ...]:
    """Return an address as given, and as Java writes it: `::1` is `0:0:0:0:0:0:0:1` there."""
    try:
        address = ipaddress.IPv6Address(host)
    except ValueError:
        return (host,)
    if address.ipv4_mapped is not None:
        # A socket for IPv6 and IPv4 shows IPv4 addresses in this form.
        return (str(address.ipv4_mapped), host)
    path, _, scope = host.partition("%")
    words = (f"{int(word, 16):x}" for word in ipaddress.IPv6Address(path).exploded.split(":"))
    return (host, ":".join(words) + ("%" + scope if scope else ""))


def _bit(acl: Acl) -> int:
    return 1 << acl.operation + (_DENIED_FROM if acl.permission == AclPermission.DENY else 0)


def _allowed(bits: int) -> int:
    """Return the operations that remain allowed if entries allow and deny those of `bits`."""
    denied, allowed = bits >> _DENIED_FROM, bits & EVERY_OPERATION
    if denied & _ALL:
        return 0
    if allowed & _ALL:
        allowed = EVERY_OPERATION
    if allowed & _IMPLY_DESCRIBE:
        allowed |= _DESCRIBE
    if allowed & _ALTER_CONFIGS:
        allowed |= _DESCRIBE_CONFIGS
    return allowed & ~denied
