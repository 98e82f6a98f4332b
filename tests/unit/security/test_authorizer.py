"""Decisions about rights, beside a few lines that read every entry each time."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple

import pytest

from kohort.security import authorizer as module
from kohort.security.access_control import AclOperation, AclPermission, PatternType, ResourceType
from kohort.security.authorizer import ANY, EVERY_USER, MATCH, Acl, AclFilter, Authorizer, whos_of
from support.depth import SEED, at_depth

TOPIC, GROUP, CLUSTER = ResourceType.TOPIC, ResourceType.GROUP, ResourceType.CLUSTER
LITERAL, PREFIXED = PatternType.LITERAL, PatternType.PREFIXED
ALLOW, DENY = AclPermission.ALLOW, AclPermission.DENY
ALICE, BOB, ROOT = "User:alice", "User:bob", "User:root"
NEAR, FAR = "10.0.0.7", "192.168.0.1"

#: Few of each, so that entries and questions meet; names that look like patterns are among them.
NAMES = ("a", "ab", "abc", "b", "*", "*a")
PRINCIPALS = (ALICE, ALICE, ALICE, BOB, ROOT, EVERY_USER)
HOSTS = (NEAR, FAR, "*")
TYPES = (TOPIC, GROUP)
#: Mostly those that meet: allowed and denied, implied and implying.
OPERATIONS = (*AclOperation, *(2, 10, 11) * 3, *(3, 8) * 10)


def entry(
    *, name: str = "orders", principal: str = ALICE, operation: AclOperation = AclOperation.READ,
    permission: AclPermission = ALLOW, pattern: PatternType = LITERAL, resource: ResourceType = TOPIC, host: str = "*",
) -> Acl:  # fmt: skip
    """Build an entry that lets alice read a topic, but for what is said otherwise."""
    return Acl(resource, pattern, name, principal, host, operation, permission)


IMPLIED = {
    AclOperation.DESCRIBE: (AclOperation.READ, AclOperation.WRITE, AclOperation.DELETE, AclOperation.ALTER),
    AclOperation.DESCRIBE_CONFIGS: (AclOperation.ALTER_CONFIGS,),
}


class Asked(NamedTuple):
    """A question to an authorizer."""

    principal: str
    host: str
    operation: AclOperation
    of: ResourceType
    name: str


def oracle(acls: Iterable[Acl], asked: Asked, *, by_default: bool) -> bool:
    """Read every entry, as Kafka's documentation has it."""
    principal, host, operation, of, name = asked
    if principal == ROOT:
        return True
    meant = {LITERAL: lambda acl: acl.name in (name, "*"), PREFIXED: lambda acl: name.startswith(acl.name)}
    about = [acl for acl in acls if acl.resource is of and meant[acl.pattern](acl)]
    mine = [acl for acl in about if acl.principal in (principal, EVERY_USER) and acl.host in (host, "*")]
    same = (operation, AclOperation.ALL)
    denied = any(acl.permission is DENY and acl.operation in same for acl in mine)
    allowed = any(acl.permission is ALLOW and acl.operation in (*same, *IMPLIED.get(operation, ())) for acl in mine)
    return not denied and (allowed or (not about and by_default))


def any_oracle(acls: Sequence[Acl], asked: Asked, *, by_default: bool) -> bool:
    """Follow Kafka's `authorizeByResourceType`, entry by entry."""
    principal, host, operation, of, _ = asked
    if oracle(acls, asked._replace(name="hardcode"), by_default=by_default):
        return True
    mine = [
        acl for acl in acls
        if acl.resource is of and acl.principal in (principal, EVERY_USER) and acl.host in (host, "*")
        and acl.operation in (operation, AclOperation.ALL)
    ]  # fmt: skip
    denied = {(acl.pattern, acl.name) for acl in mine if acl.permission is DENY}
    allowed = {(acl.pattern, acl.name) for acl in mine if acl.permission is ALLOW}
    if (LITERAL, "*") in denied:
        return False
    if (LITERAL, "*") in allowed:
        return True
    for pattern, name in allowed:
        dominated = any((PREFIXED, name[:end]) in denied for end in range(1, len(name) + 1))
        if not dominated and not (pattern is LITERAL and (LITERAL, name) in denied):
            return True
    return False


def random_acls(chance: random.Random, most: int) -> list[Acl]:
    """Draw entries about few names, principals and hosts."""
    return [
        Acl(
            chance.choice(TYPES), chance.choice((LITERAL, PREFIXED)), chance.choice(NAMES), chance.choice(PRINCIPALS),
            chance.choice(HOSTS), AclOperation(chance.choice(OPERATIONS)), chance.choice((ALLOW, ALLOW, DENY)),
        )
        for _ in range(chance.randrange(most))
    ]  # fmt: skip


def differences(cases: int, *, seed: int = SEED) -> Iterator[str]:
    """Compare so many decisions with the oracle's; yield each that differs."""
    chance = random.Random(seed)
    asked = 0
    while asked < cases:
        by_default = chance.random() < 0.3
        authorizer = Authorizer(super_users=[ROOT], allows_by_default=by_default)
        acls: dict[Acl, None] = {}
        for _ in range(3):
            gone, new = [acl for acl in acls if chance.random() < 0.3], random_acls(chance, 16)
            authorizer.change(added=new, removed=gone)
            acls = {acl: None for acl in acls if acl not in gone} | dict.fromkeys(new)
            for _ in range(10):
                asked += 1
                case = Asked(
                    chance.choice(PRINCIPALS[:5]), chance.choice(HOSTS[:2]), AclOperation(chance.choice(OPERATIONS)),
                    chance.choice(TYPES), chance.choice((*NAMES, "abcde", "c", "")),
                )  # fmt: skip
                if authorizer.allows(*case) != oracle(acls, case, by_default=by_default):
                    yield f"{case}, {by_default=}: {[*acls]}"
                found = authorizer.allows_any(module.whos_of(*case[:2]), case.operation, case.of)
                if found != any_oracle([*acls], case, by_default=by_default):
                    yield f"any: {case}, {by_default=}: {[*acls]}"
        assert sorted(authorizer) == sorted(acls)
        assert len(authorizer) == len(acls)


def test_decisions_are_those_of_the_oracle() -> None:
    """20,000 random questions about random entries; 100,000 in the soak."""
    assert list(differences(at_depth(20_000, 100_000))) == []


def plant_deny_ignored(patch: pytest.MonkeyPatch) -> None:
    """Take entries that deny for entries that say nothing."""
    real = module._allowed
    patch.setattr(module, "_allowed", lambda bits: real(bits & module.EVERY_OPERATION))


def plant_prefix_as_literal(patch: pytest.MonkeyPatch) -> None:
    """Take a prefix for the whole name."""
    patch.setattr(module._Patterns, "prefixes", lambda patterns, name: iter([name] if name in patterns.by_name else []))


def plant_denied_implies(patch: pytest.MonkeyPatch) -> None:
    """Deny describing as well where reading is denied."""
    real = module._allowed
    reads = 1 << AclOperation.READ + module._DENIED_FROM
    describes = 1 << AclOperation.DESCRIBE + module._DENIED_FROM
    patch.setattr(module, "_allowed", lambda bits: real(bits | describes if bits & reads else bits))


def plant_host_ignored(patch: pytest.MonkeyPatch) -> None:
    """Take every entry for one about every host."""
    patch.setattr(
        module, "whos_of",
        lambda principal, _: tuple((each, where) for each in (principal, EVERY_USER) for where in (NEAR, FAR, "*")),
    )  # fmt: skip


def plant_default_by_principal(patch: pytest.MonkeyPatch) -> None:
    """Follow the default where no entry is about the principal, although some are about the resource."""
    real = Authorizer.grants

    def grants(self: Authorizer, whos: tuple[module.Who, ...], resource: ResourceType, name: str) -> int:
        granted = real(self, whos, resource, name)
        return granted or module.EVERY_OPERATION * self.allows_by_default

    patch.setattr(Authorizer, "grants", grants)


def plant_super_user_as_others(patch: pytest.MonkeyPatch) -> None:
    """Ask the entries about a super user, too."""
    real = Authorizer.grants

    def grants(self: Authorizer, whos: tuple[module.Who, ...], resource: ResourceType, name: str) -> int:
        plain = Authorizer(allows_by_default=self.allows_by_default)
        plain.change(added=self)
        return real(plain, whos, resource, name)

    patch.setattr(Authorizer, "grants", grants)


@pytest.mark.parametrize(
    "plant",
    [
        plant_deny_ignored, plant_prefix_as_literal, plant_denied_implies, plant_host_ignored,
        plant_default_by_principal, plant_super_user_as_others,
    ],
)  # fmt: skip
def test_oracle_finds_a_planted_fault(
    plant: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The oracle is no echo of the decisions: each fault shows in some thousands of questions."""
    plant(monkeypatch)

    assert next(differences(5_000), None) is not None


def test_deny_goes_before_every_allowance() -> None:
    """KIP-11: whatever the patterns are, and whatever came first."""
    authorizer = Authorizer()
    authorizer.add(entry(), entry(name="*", operation=AclOperation.ALL), entry(name="ord", pattern=PREFIXED))
    authorizer.add(entry(name="o", pattern=PREFIXED, permission=DENY, principal=EVERY_USER, host=NEAR))

    assert not authorizer.allows(ALICE, NEAR, AclOperation.READ, TOPIC, "orders")
    assert authorizer.allows(ALICE, FAR, AclOperation.READ, TOPIC, "orders")
    assert authorizer.allows(ALICE, NEAR, AclOperation.WRITE, TOPIC, "orders")


def test_prefix_is_no_literal_name() -> None:
    """KIP-290: `ord*` has `orders`, and the literal name `ord` has itself alone."""
    authorizer = Authorizer()
    authorizer.add(entry(name="ord", pattern=PREFIXED), entry(name="bil", pattern=LITERAL))

    assert authorizer.allows(ALICE, NEAR, AclOperation.READ, TOPIC, "orders")
    assert authorizer.allows(ALICE, NEAR, AclOperation.READ, TOPIC, "ord")
    assert not authorizer.allows(ALICE, NEAR, AclOperation.READ, TOPIC, "or")
    assert not authorizer.allows(ALICE, NEAR, AclOperation.READ, TOPIC, "bills")
    assert not authorizer.allows(ALICE, NEAR, AclOperation.READ, GROUP, "orders")


def test_prefixed_wildcard_is_a_prefix() -> None:
    """KIP-290: `*` stands for everything as a literal name only."""
    authorizer = Authorizer()
    authorizer.add(entry(name="*", pattern=PREFIXED))

    assert not authorizer.allows(ALICE, NEAR, AclOperation.READ, TOPIC, "orders")
    assert authorizer.allows(ALICE, NEAR, AclOperation.READ, TOPIC, "*orders")


@pytest.mark.parametrize("operation", IMPLIED[AclOperation.DESCRIBE])
def test_right_to_change_is_a_right_to_describe(operation: AclOperation) -> None:
    """Apache Kafka: read, write, delete and alter imply describe, where they are allowed."""
    authorizer = Authorizer()
    authorizer.add(entry(operation=operation), entry(name="audit"), entry(name="audit", permission=DENY))
    authorizer.add(entry(name="audit", operation=operation), entry(name="audit", operation=operation, permission=DENY))
    authorizer.add(entry(name="audit", operation=AclOperation.DESCRIBE))

    assert authorizer.allows(ALICE, NEAR, AclOperation.DESCRIBE, TOPIC, "orders")
    assert not authorizer.allows(ALICE, NEAR, AclOperation.DESCRIBE_CONFIGS, TOPIC, "orders")
    assert not authorizer.allows(ALICE, NEAR, operation, TOPIC, "audit")
    assert authorizer.allows(ALICE, NEAR, AclOperation.DESCRIBE, TOPIC, "audit")


def test_default_is_for_resources_without_entries() -> None:
    """Apache Kafka: with allow.everyone.if.no.acl.found an entry about a resource closes it to all others."""
    authorizer = Authorizer(allows_by_default=True)
    authorizer.add(entry(principal=BOB))

    assert not authorizer.allows(ALICE, NEAR, AclOperation.READ, TOPIC, "orders")
    assert authorizer.allows(ALICE, NEAR, AclOperation.READ, TOPIC, "audit")
    assert authorizer.allows(ALICE, NEAR, AclOperation.ALTER, CLUSTER, "kafka-cluster")


def test_super_user_is_denied_nothing() -> None:
    """Apache Kafka: an entry that denies a super user has no effect."""
    authorizer = Authorizer(super_users=[ROOT])
    authorizer.add(entry(name="*", principal=EVERY_USER, operation=AclOperation.ALL, permission=DENY))

    assert authorizer.allows(ROOT, NEAR, AclOperation.READ, TOPIC, "orders")
    assert authorizer.allows_any(whos_of(ROOT, NEAR), AclOperation.WRITE, TOPIC)
    assert not authorizer.allows(ALICE, NEAR, AclOperation.READ, TOPIC, "orders")


def test_edition_rises_with_each_change_that_is_one() -> None:
    """What was decided stays true while the edition does."""
    authorizer = Authorizer()
    first = authorizer.edition
    authorizer.add(entry())
    added = authorizer.edition
    authorizer.add(entry())
    authorizer.remove(entry(name="audit"))
    assert first != added == authorizer.edition

    authorizer.change(added=[entry()], removed=[entry()])
    assert authorizer.edition != added
    authorizer.remove(entry())
    assert len(authorizer) == 0


@pytest.mark.parametrize(
    ("wanted", "found"),
    [
        (AclFilter(), 6),
        (AclFilter(resource=TOPIC), 5),
        (AclFilter(name="orders"), 2),
        (AclFilter(name="orders", pattern=LITERAL), 1),
        (AclFilter(name="orders", pattern=PREFIXED), 1),
        (AclFilter(name="orders", pattern=MATCH), 4),
        (AclFilter(name="orders-eu", pattern=MATCH), 3),
        (AclFilter(name="ord", pattern=ANY), 1),
        (AclFilter(pattern=MATCH), 6),
        (AclFilter(principal=BOB), 1),
        (AclFilter(principal=ALICE, host="*"), 4),
        (AclFilter(principal=ALICE, host=NEAR), 1),
        (AclFilter(operation=AclOperation.WRITE), 1),
        (AclFilter(permission=DENY), 1),
        (AclFilter(principal="User:nobody"), 0),
    ],
)
def test_filters_let_through_what_kafkas_do(wanted: AclFilter, found: int) -> None:
    """Kafka's ResourcePatternFilter: MATCH finds all patterns that have the name, ANY those of exactly this name."""
    authorizer = Authorizer()
    authorizer.add(
        entry(),
        entry(pattern=PREFIXED, operation=AclOperation.WRITE),
        entry(name="ord", pattern=PREFIXED, permission=DENY),
        entry(name="*", host=NEAR),
        entry(name="audit", principal=BOB),
        entry(resource=GROUP, name="billing"),
    )

    matching = list(authorizer.matching(wanted))

    assert len(matching) == found
    assert all(wanted.has_pattern(acl.resource, acl.pattern, acl.name) and wanted.has_entry(acl) for acl in matching)


@pytest.mark.parametrize(
    ("host", "written"),
    [
        ("::1", "0:0:0:0:0:0:0:1"),
        ("2001:db8::ff", "2001:db8:0:0:0:0:0:ff"),
        ("fe80::1%eth0", "fe80:0:0:0:0:0:0:1%eth0"),
        ("::ffff:10.0.0.7", "10.0.0.7"),
        ("::1", "::1"),
        ("10.0.0.7", "10.0.0.7"),
    ],
)
def test_address_is_meant_as_java_writes_it(host: str, written: str) -> None:
    """Entries that were made for Apache Kafka name addresses of IPv6 as `InetAddress.getHostAddress` does."""
    authorizer = Authorizer()
    authorizer.add(entry(host=written))

    assert authorizer.allows(ALICE, host, AclOperation.READ, TOPIC, "orders")


class Counted(dict[str, dict[module.Who, int]]):
    """Entries by name that count the looks for a name."""

    looks = 0

    def __contains__(self, name: object) -> bool:
        Counted.looks += 1
        return super().__contains__(name)


def looks(count: int) -> int:
    """Count the looks into tables that one decision takes among so many entries."""
    Counted.looks = 0
    authorizer = Authorizer()
    authorizer.change(
        added=(
            entry(name=f"team-{number:06}-", pattern=pattern) for number in range(count // 2) for pattern in PatternType
        )
    )
    for patterns in (authorizer._literal[TOPIC], authorizer._prefixed[TOPIC]):
        patterns.by_name = Counted(patterns.by_name)
    assert authorizer.allows(ALICE, NEAR, AclOperation.READ, TOPIC, "team-000007-orders")
    return Counted.looks


def test_decision_costs_the_same_among_100_000_entries() -> None:
    """Some looks into tables, whose number follows the lengths of prefixes and not the number of entries."""
    assert looks(100_000) == looks(100) <= 4
