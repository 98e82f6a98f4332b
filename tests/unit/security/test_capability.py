"""Capability tokens: what they allow, what holders can make of them, and what is refused."""

from __future__ import annotations

import hashlib
import hmac
import random
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Callable, Iterator, Sequence
from ipaddress import ip_address, ip_network
from typing import Any, NamedTuple

import pytest

from kohort import capabilities
from kohort.capabilities import CapabilityError, Caveat, RootKeys, attenuate, explain, mint, parse, verify
from kohort.ids import format_topic_id
from kohort.security.access_control import AclOperation, ResourceType
from kohort.security.capabilities import capability as module
from kohort.security.capabilities import caveats as kinds
from kohort.security.capabilities.caveats import COMMIT, OPERATIONS, Kind, Names
from support.depth import SEED, at_depth

SECRET = b"CANARY-of-32-bytes-CANARY-of-32b"
KEYS = RootKeys.of(SECRET)
OTHER_KEYS = RootKeys.of(bytes(32))
TOKEN_ID = bytes(range(16))
TOPICS = ("a", "ab", "b", "bill")
IDS = {name: hashlib.sha256(name.encode()).digest()[:16] for name in TOPICS}
PEERS = ("10.0.0.1", "10.1.0.1", "127.0.0.1", "::1", "fe80::1")
NETWORKS = ("10.0.0.0/8", "10.0.0.0/16", "127.0.0.1", "::/0", "fe80::/64")
WORDS = ("read", "write", "commit", "describe", "create", "alter_configs", "describe_configs", "idempotent_write")


class Asked(NamedTuple):
    """A request, as `Capability.refusal` is asked about it."""

    operation: int
    resource_type: int
    name: str | None
    topic_id: bytes | None
    partition: int | None
    group: str | None
    member: str | None
    epoch: int | None
    peer: str | None
    now_ms: int


#: A link: the name of its function in `kohort.capabilities`, and what it was made of.
Link = tuple[str, Any]

PARTIAL = {"topics", "groups", "partitions", "by_id", "member"}
IMPLIES = {"describe": ("read", "write", "commit", "delete", "alter"), "describe_configs": ("alter_configs",)}
WORD_OF = {number: word for word, number in OPERATIONS.items()}


def oracle(links: Sequence[Link], asked: Asked) -> bool:
    """Whether a request is allowed, link by link, without a token."""
    word, of_topic = WORD_OF[asked.operation], asked.resource_type == ResourceType.TOPIC
    is_common = asked.resource_type == ResourceType.CLUSTER and word == "idempotent_write"
    is_whole = of_topic and word not in ("read", "write", "commit", "describe", "describe_configs")
    listed = of_topic and (asked.name, asked.topic_id, asked.partition) != (None, None, None)
    left: dict[str, Callable[[Any], bool]] = {
        "operations": lambda words: bool({word, *IMPLIES.get(word, ())} & set(words)),
        "topics": lambda names: not listed or (asked.name is not None and among(names, asked.name)),
        "groups": lambda names: all(among(names, each) for each in groups_of(asked)),
        "partitions": lambda sets: not is_whole and (not listed or within(sets, asked.name, asked.partition)),
        "by_id": lambda sets: not is_whole and (not listed or within(sets, asked.topic_id, asked.partition)),
        "member": lambda member: asked.member in (None, member),
        "epoch": lambda epoch: asked.epoch in (None, epoch),
        "not_after": lambda when: asked.now_ms <= when,
        "peers": lambda all_of: any(ip_address(asked.peer or "0.0.0.0") in ip_network(each) for each in all_of),
    }
    is_partial = (
        any(kind in PARTIAL for kind, _ in links) and not of_topic and asked.resource_type != ResourceType.GROUP
    )
    return (not is_partial or is_common) and all(left[kind](value) for kind, value in links if kind in left)


def among(names: tuple[list[str], list[str]], name: str) -> bool:
    return name in names[0] or any(name.startswith(each) for each in names[1])


def within(sets: dict[Any, set[int]], topic: Any, partition: int | None) -> bool:
    return topic in sets and (partition is None or partition in sets[topic])


def groups_of(asked: Asked) -> Iterator[str]:
    yield from (asked.group,) if asked.group is not None else ()
    yield from (asked.name,) if asked.resource_type == ResourceType.GROUP and asked.name is not None else ()


def contradict(links: Sequence[Link]) -> bool:
    """Whether links say different members or epochs, or leave no operation: such a token is refused as a whole."""
    words = [
        {*said, *(word for word, by in IMPLIES.items() if {*by} & {*said})}
        for kind, said in links
        if kind == "operations"
    ]
    by_kind = [{value for kind, value in links if kind == one} for one in ("member", "epoch")]
    return any(len(each) > 1 for each in by_kind) or bool(words and not set.intersection(*words))


def random_link(chance: random.Random) -> Link:
    def some(of: Sequence[Any]) -> list[Any]:
        return chance.sample(of, chance.randint(1, min(3, len(of))))

    prefixes = some(["", "a", "ab", "b"])[1:]
    match chance.randrange(12):
        case 0 | 1:
            return "operations", chance.sample(WORDS, chance.randint(2, len(WORDS)))
        case 2:
            return "topics", (some(TOPICS), [each for each in prefixes if each])
        case 3:
            return "groups", (some(TOPICS), [each for each in prefixes if each])
        case 4 | 5:
            named = chance.random() < 0.5
            sets = {
                name if named else IDS[name]: set(chance.sample(range(12), chance.randint(1, 12)))
                for name in some(TOPICS)
            }
            return "partitions" if named else "by_id", sets
        case 6:
            return "member", chance.choice("mn")
        case 7:
            return "epoch", chance.choice((3, 3, 4))
        case 8:
            return "not_after", chance.choice((-(1 << 63), 99, 100, 101, (1 << 63) - 1))
        case 9:
            return "peers", some(NETWORKS)
        case 10:
            return chance.choice(("byte_rate", "request_rate")), chance.randint(1, 9)
        case _:
            return chance.choice((("label", "x"), ("log_level", "DEBUG"), ("log_level", "WARN")))


def caveat(link: Link) -> Caveat:
    kind, value = link
    make = getattr(capabilities, "partitions" if kind == "by_id" else kind)
    if kind in ("topics", "groups"):
        return make(*value[0], prefixes=value[1])
    return make(*value) if kind in ("operations", "peers") else make(value)


def random_asked(chance: random.Random) -> Asked:
    def some(of: Sequence[Any]) -> Any:
        return chance.choice((*of, None))

    resource = chance.choice((2, 2, 2, 2, 3, 3, 4, 5, 7))
    name = some(TOPICS)
    return Asked(
        operation=OPERATIONS[chance.choice(WORDS)],
        resource_type=resource,
        name=name if chance.random() < 0.9 else None,
        topic_id=chance.choice((None, IDS.get(name or ""))) if resource == ResourceType.TOPIC else None,
        partition=some(range(12)) if resource == ResourceType.TOPIC else None,
        group=some(TOPICS),
        member=some("mn"),
        epoch=some((3, 4)),
        peer=chance.choice(PEERS),
        now_ms=chance.choice((-(1 << 63), 0, 99, 100, 101, (1 << 63) - 1)),
    )


def allowed(token: str) -> Callable[[Asked], bool]:
    """What a token allows; one that contradicts itself allows nothing."""
    try:
        refusal = verify(token, KEYS).refusal
    except CapabilityError as why:
        assert "contradict" in str(why) or "leave no operation" in str(why)
        return lambda _: False
    return lambda asked: refusal(**asked._asdict()) is None


def forged(*links: bytes, keys: RootKeys = KEYS) -> str:
    """Make a token by the format alone."""
    head = hashlib.sha256(b"kohort root key\0" + keys.current.secret).digest()[:4] + TOKEN_ID
    running = hmac.digest(keys.current.secret, b"kh1." + head, "sha256")
    for link in links:
        running = hmac.digest(running, link, "sha256")
    return text_of(head + b"".join(links) + running)


def text_of(raw: bytes) -> str:
    return "kh1." + urlsafe_b64encode(raw).decode().rstrip("=")


def raw_of(token: str) -> bytes:
    text = token.removeprefix("kh1.")
    return urlsafe_b64decode(text + "=" * (-len(text) % 4))


# -- what is allowed ----------------------------------------------------------------------------------------------


def test_token_without_a_caveat_allows_everything() -> None:
    refusal = verify(mint(KEYS, token_id=TOKEN_ID), KEYS).refusal
    for resource in ResourceType:
        for operation in (*AclOperation, COMMIT):
            assert refusal(operation=operation, resource_type=resource, name="x", now_ms=0) is None


def differences(pairs: int, *, requests: int = 20) -> Iterator[str]:
    """Requests about which a token and the oracle differ, or which a child allows and its parent does not."""
    chance = random.Random(SEED)
    for _ in range(pairs):
        links = [random_link(chance) for _ in range(chance.randrange(5))]
        more = [random_link(chance) for _ in range(chance.randrange(1, 4))]
        parent = mint(KEYS, *map(caveat, links), token_id=TOKEN_ID)
        is_void = contradict(links), contradict([*links, *more])
        if is_void[0]:
            child = forged(*(caveat(each).link for each in (*links, *more)))
        else:
            try:
                child = attenuate(parent, *map(caveat, more))
            except CapabilityError:
                assert is_void[1]
                child = forged(*(caveat(each).link for each in (*links, *more)))
        of_parent, of_child = allowed(parent), allowed(child)
        for _ in range(requests):
            asked = random_asked(chance)
            said = of_parent(asked), of_child(asked)
            if said[1] and not said[0]:
                yield f"the child allows more: {links} {more} {asked}"
            expected = not is_void[0] and oracle(links, asked), not is_void[1] and oracle([*links, *more], asked)
            if said != expected:
                yield f"the oracle says {expected} and not {said}: {links} {more} {asked}"


def test_child_allows_no_more_than_its_parent_and_both_what_the_oracle_says() -> None:
    """1 M pairs in `make soak`."""
    assert next(differences(at_depth(1_000, 1_000_000), requests=5), None) is None


def plant_lease_that_is_late(patch: pytest.MonkeyPatch) -> None:
    original = module._narrow
    patch.setattr(module, "_narrow", lambda kind, a, b: max(a, b) if kind is Kind.NOT_AFTER else original(kind, a, b))


def plant_operations_that_add(patch: pytest.MonkeyPatch) -> None:
    original = module._narrow
    patch.setattr(module, "_narrow", lambda kind, a, b: a | b if kind is Kind.OPERATIONS else original(kind, a, b))


def plant_first_set_alone(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(module, "_has", lambda sets, topic, partition: topic in sets and partition in sets[topic][0])


def plant_topics_of_the_last_link(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Names, "also", lambda _, other: other)


def plant_prefixes_forgotten(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Names, "_begins", lambda *_: False)


def plant_nothing_implied(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(module, "closed", lambda mask: mask)


def plant_peer_of_any_link(patch: pytest.MonkeyPatch) -> None:
    def admits(self: module.Capability, peer: str | None) -> bool:
        return any(ip_address(peer or "") in each for link in self.peers or () for each in link)

    patch.setattr(module.Capability, "_admits", admits)


PLANTED = [value for name, value in list(globals().items()) if name.startswith("plant_")]


@pytest.mark.parametrize("plant", PLANTED, ids=lambda plant: plant.__name__)
def test_oracle_finds_a_planted_fault(
    plant: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    plant(monkeypatch)
    assert next(differences(5_000), None) is not None


def test_holder_is_the_same_behind_a_renewed_lease() -> None:
    """KIP-368: a client that logs in again has to be the same principal."""
    of_holder = [capabilities.topics("orders"), capabilities.label("a")]
    first = verify(mint(KEYS, capabilities.not_after(1), *of_holder, token_id=TOKEN_ID), KEYS)
    later = verify(mint(KEYS, *of_holder, capabilities.not_after(2), token_id=TOKEN_ID), KEYS)
    assert first.id == later.id == first.chain[2]
    assert first.chain[-1] != later.chain[-1]
    assert verify(mint(KEYS, token_id=TOKEN_ID), KEYS).id == format_topic_id(TOKEN_ID)


def test_chain_of_a_child_begins_with_its_parents() -> None:
    """Revoking one id of it revokes what was attenuated from there; a reader without a key sees the ends."""
    parent = mint(KEYS, capabilities.topics("orders"), token_id=TOKEN_ID)
    child = attenuate(parent, capabilities.member("m"), capabilities.epoch(3))
    chain = verify(child, KEYS).chain
    assert chain[:2] == verify(parent, KEYS).chain == parse(parent).chain
    assert parse(child).chain == (chain[0], chain[-1])
    assert len(set(chain)) == 4


def test_token_that_is_not_verified_allows_nothing() -> None:
    token = mint(KEYS, token_id=TOKEN_ID)
    assert parse(token).refusal(operation=AclOperation.READ, resource_type=2, name="x", now_ms=0) == "unverified"


def test_rates_levels_and_labels_of_several_links() -> None:
    """The least rate counts, the most silent level, and labels in the order of the links."""
    token = mint(
        KEYS, capabilities.byte_rate(9), capabilities.log_level("debug"), capabilities.label("a"), token_id=TOKEN_ID
    )
    child = attenuate(token, capabilities.byte_rate(10), capabilities.log_level("warn"), capabilities.label("b"))
    child = attenuate(
        child, capabilities.request_rate(5), capabilities.request_rate(4), capabilities.log_level("trace")
    )
    found = verify(child, KEYS)
    assert (found.byte_rate, found.request_rate, found.log_level, found.label) == (9, 4, "WARN", "a/b")


def test_rate_is_counted_by_the_link_that_has_it() -> None:
    """Two children of a throttled token have one rate together, and each its own beside it."""
    parent = mint(KEYS, capabilities.byte_rate(9), token_id=TOKEN_ID)
    children = [
        verify(attenuate(parent, capabilities.label(each), capabilities.byte_rate(20)), KEYS) for each in ("a", "b")
    ]
    first, second = (each.byte_rates for each in children)
    assert first[0] == second[0] == (verify(parent, KEYS).chain[-1], 9)
    assert [first[1].per_second, second[1].per_second] == [20, 20]
    assert first[1].id != second[1].id
    assert children[0].byte_rate == 9
    assert parse(parent).byte_rates == (("", 9),)


def test_address_of_ipv4_on_a_socket_of_both_families() -> None:
    found = verify(mint(KEYS, capabilities.peers("10.0.0.0/8"), token_id=TOKEN_ID), KEYS)

    def refusal(peer: str | None) -> str | None:
        return found.refusal(operation=AclOperation.READ, resource_type=2, now_ms=0, peer=peer)

    assert [refusal(peer) for peer in ("10.9.9.9", "::ffff:10.9.9.9")] == [None, None]
    assert [refusal(peer) for peer in ("11.0.0.1", "::1", "", "nonsense", None)] == ["peers"] * 5


def test_partitions_of_a_topic_that_was_made_anew_are_others() -> None:
    """A grant names ids, and needs no name."""
    found = verify(mint(KEYS, capabilities.partitions({IDS["a"]: [1, (4, 6)]}), token_id=TOKEN_ID), KEYS)
    assert [found.covers(IDS["a"], None, each) for each in (1, 2, 4, 6, 7)] == [True, False, True, True, False]
    assert not found.covers(IDS["b"], "a", 1)
    assert not found.covers(None, "a", 1)


def test_member_without_partitions_has_a_grant_of_none() -> None:
    found = verify(mint(KEYS, capabilities.partitions({}), token_id=TOKEN_ID), KEYS)
    assert not found.covers(IDS["a"], "a", 0)


def test_ten_thousand_partitions_fit() -> None:
    """Every other of 20,000, any half of 20,000, and one of ten of 100,000."""
    any_half = random.Random(1).sample(range(20_000), 10_000)
    for chosen in (range(0, 20_000, 2), any_half, range(7, 100_000, 10)):
        token = mint(KEYS, capabilities.partitions({TOKEN_ID: chosen}), token_id=TOKEN_ID)
        found = verify(token, KEYS)
        assert all(found.covers(TOKEN_ID, None, each) for each in chosen)
        assert sum(found.covers(TOKEN_ID, None, each) for each in range(100_000)) == 10_000
        assert len(token) < 4_096


# -- the format ---------------------------------------------------------------------------------------------------

#: Tokens as they were written first, with secret and id of this module; they have to be read for ever.
GOLDEN: Sequence[tuple[str, Sequence[Caveat]]] = (
    ("kh1.t1WVaQABAgMEBQYHCAkKCwwNDg-oqT5gsmBztFGAOXuJd00KBG5jt7p6o_342FAZuE4OEw", ()),
    (
        "kh1.t1WVaQABAgMEBQYHCAkKCwwNDg8BAQoCDwAGb3JkZXJzAQViaWxsLQUJAAdiaWxsaW5nDRgECAoAAAAGgAAAAAAAAAAAAAAA"
        "AAAAAAEJA8CEPQoBMgsBAQwGdGVhbS1hCAgAAAG6YNM4ANZ-t5NoTET5I3JL1vUBO-P23WVfoxAHB0YLG5-mhjTU",
        (
            capabilities.operations("read", "commit"),
            capabilities.topics("orders", prefixes=["bill-"]),
            capabilities.groups("billing"),
            capabilities.peers("10.0.0.0/8", "::1"),
            capabilities.byte_rate(1_000_000),
            capabilities.request_rate(50),
            capabilities.log_level("DEBUG"),
            capabilities.label("team-a"),
            capabilities.not_after(1_900_000_000_000),
        ),
    ),
    (
        "kh1.t1WVaQABAgMEBQYHCAkKCwwNDg8FCQAHYmlsbGluZwYDbS0xBwQAAAAHAwwBBm9yZGVycwMBAB0ELwI-I-gWADlZSjOJT2Vk"
        "4bE0BgEAEwIBAsqXgRLKG73K-sIxs5oj3E0GAAAD8gMCCAiAAAAAAAAAAD-SGifwI_cOXtg9aBTmfOq6hXAogN_ZthZoVJf4J2YT",
        (
            capabilities.groups("billing"),
            capabilities.member("m-1"),
            capabilities.epoch(7),
            capabilities.partitions({"orders": [0, (2, 4)]}),
            capabilities.partitions({IDS["a"]: range(0, 1_000, 2), IDS["b"]: [0, 1, 4, 9, 16, 25]}),
            capabilities.not_after(-(1 << 63)),
        ),
    ),
)


@pytest.mark.parametrize(("token", "caveats"), GOLDEN, ids=range(len(GOLDEN)))
def test_token_is_written_as_ever(token: str, caveats: Sequence[Caveat]) -> None:
    """Golden vectors: bytes that an implementation in another language has to make."""
    assert mint(KEYS, *caveats, token_id=TOKEN_ID) == token
    assert [(row.caveat, row.value) for row in explain(token)] == [(each.kind.word, str(each)) for each in caveats]
    assert forged(*(each.link for each in caveats)) == token
    assert verify(token, KEYS).is_verified


def test_every_kind_is_in_a_golden_token() -> None:
    assert {each.kind for _, caveats in GOLDEN for each in caveats} == set(Kind)


# -- what is refused ----------------------------------------------------------------------------------------------

FULL = mint(
    KEYS,
    capabilities.operations("read"),
    capabilities.topics("orders"),
    capabilities.partitions({"orders": [1, 2]}),
    capabilities.not_after(1),
    token_id=TOKEN_ID,
)
LINKS = [capabilities.operations("read").link, capabilities.topics("orders").link, capabilities.member("m").link]


def assert_refused(token: str, said: str = "token") -> None:
    """Refused in a sentence that has nothing of the token."""
    with pytest.raises(CapabilityError, match=said) as why:
        verify(token, KEYS)
    assert len(str(why.value)) < 200
    assert why.value.__cause__ is None
    assert not any(token[at : at + 8] in str(why.value) for at in range(4, len(token) - 8))


def test_token_that_is_cut_off_anywhere_is_refused() -> None:
    for end in range(len(FULL)):
        assert_refused(FULL[:end])


def test_links_cannot_be_taken_away_swapped_doubled_or_moved() -> None:
    token = forged(*LINKS)
    raw = raw_of(token)
    head, tail = raw[:20], raw[-32:]
    assert verify(token, KEYS).member == "m"
    for links in (LINKS[:2], LINKS[1:], [], [LINKS[1], LINKS[0], LINKS[2]], [*LINKS, LINKS[2]], [LINKS[0], *LINKS]):
        assert_refused(text_of(head + b"".join(links) + tail), "was changed")
    other = raw_of(forged(*LINKS[:2]))
    assert_refused(text_of(other[:-32] + LINKS[2] + other[-32:]), "was changed")


def test_link_is_written_twice_by_a_holder_and_narrows_no_more() -> None:
    assert verify(forged(*LINKS, *LINKS), KEYS).member == "m"


def test_caveat_that_is_not_known_is_refused() -> None:
    """A newer kohort, or another program, may forbid anything by it."""
    for link in (b"\x4d\x00", b"\x00\x00", b"\xff\x01\x02ab"):
        assert_refused(forged(LINKS[0], link), "does not know")
        with pytest.raises(CapabilityError, match="does not know"):
            attenuate(forged(link), capabilities.label("a"))


def test_caveat_of_another_form_is_refused() -> None:
    """Proven by its HMAC, and still not what this version writes: any holder can make one."""
    bodies = {
        Kind.OPERATIONS: (b"", b"\x00", b"\x80\x00", b"\x08\x00", b"\x04", b"\x80\x80\x80\x80\x10"),
        Kind.TOPICS: (b"\x02\x01a", b"\x00\x05ab", b"\x00\x01\xff"),
        Kind.PARTITIONS: (b"", b"\x01", b"\x02\x01a\x02\x00\x00", b"\x01\x01a\x03\x00\x00\x02\x00", b"\x7f"),
        Kind.PARTITIONS_BY_ID: (b"\x01" + bytes(15), b"\x01" + bytes(16) + b"\x02\x01\x00"),
        Kind.GROUPS: (b"\x00",),
        Kind.MEMBER: (b"", b"\xff"),
        Kind.EPOCH: (b"", bytes(3), bytes(5)),
        Kind.NOT_AFTER: (bytes(7), bytes(9)),
        Kind.BYTE_RATE: (b"\x00", b"\xff" * 8, b"\x01\x01"),
        Kind.REQUEST_RATE: (b"\x00", b""),
        Kind.LOG_LEVEL: (b"\x06", b""),
        Kind.LABEL: (b"", b"a\nb", b"a/b", b"x" * 65),
        Kind.PEERS: (b"\x04", b"\x05\x00", b"\x04\x21abcd", b"\x04\x08\x0a\x01\x00\x00", b"\x06\x08abcd"),
    }
    assert bodies.keys() == set(Kind)
    for kind, wrong in bodies.items():
        for body in wrong:
            assert_refused(forged(Caveat(kind, body).link), f"caveat {kind.word} of another form")


def test_bounds_come_before_work(monkeypatch: pytest.MonkeyPatch) -> None:
    """64 KB, and chains of 1,000 links: not one HMAC is made."""
    chain = forged(*(b"\x0c\x01a" for _ in range(1_000)))
    long = forged(*(capabilities.member("m" * 900).link for _ in range(64)))
    assert len(long) > 64_000
    monkeypatch.setattr(module.hmac, "digest", None)
    assert_refused(long, "16384 characters at most")
    assert_refused(chain, "64 links at most")
    assert_refused("kh1." + "A" * 16_381, "16384 characters at most")


def test_token_that_would_be_too_long_is_not_made() -> None:
    token = mint(KEYS, *[capabilities.label("a")] * 64, token_id=TOKEN_ID)
    assert verify(token, KEYS).label == "/".join("a" * 64)
    with pytest.raises(CapabilityError, match="64 links at most"):
        attenuate(token, capabilities.label("b"))
    with pytest.raises(CapabilityError, match="64 links at most"):
        mint(KEYS, *[capabilities.label("a")] * 65, token_id=TOKEN_ID)
    with pytest.raises(CapabilityError, match="the caveats are too long"):
        mint(KEYS, capabilities.topics(*map(str, range(9_999))), token_id=TOKEN_ID)
    with pytest.raises(CapabilityError, match="16 bytes"):
        mint(KEYS, token_id=b"short")


def test_caveats_that_contradict_each_other_make_no_token() -> None:
    for one, other in (("member", ("m", "n")), ("epoch", (1, 2))):
        make = getattr(capabilities, one)
        with pytest.raises(CapabilityError, match=f"two caveats {one} of the token contradict"):
            attenuate(mint(KEYS, make(other[0]), token_id=TOKEN_ID), make(other[1]))
    with pytest.raises(CapabilityError, match="leave no operation"):
        attenuate(mint(KEYS, capabilities.operations("read"), token_id=TOKEN_ID), capabilities.operations("create"))


def test_time_at_both_ends() -> None:
    """Of an int64, asked at both ends; and times that no calendar has are shown as numbers."""
    low, high = -(1 << 63), (1 << 63) - 1
    for when, good in ((low, [True, False, False]), (0, [True, True, False]), (high, [True, True, True])):
        found = verify(mint(KEYS, capabilities.not_after(when), token_id=TOKEN_ID), KEYS)
        ask = [found.refusal(operation=3, resource_type=2, now_ms=now) is None for now in (low, 0, high)]
        assert ask == good
    assert str(capabilities.not_after(high)) == f"{high} ms"
    for beyond in (low - 1, high + 1):
        with pytest.raises(CapabilityError, match="int64"):
            capabilities.not_after(beyond)


def test_caveats_of_wrong_values_are_not_made() -> None:
    wrong: Sequence[Callable[[], Caveat]] = (
        capabilities.operations,
        lambda: capabilities.operations("read", "fly"),
        capabilities.topics,
        lambda: capabilities.topics(""),
        lambda: capabilities.groups("\ud800"),
        lambda: capabilities.partitions({"a": [-1]}),
        lambda: capabilities.partitions({"a": [(3, 2)]}),
        lambda: capabilities.partitions({"a": [1 << 31]}),
        lambda: capabilities.partitions({b"short": [1]}),
        lambda: capabilities.partitions({"a": [1], TOKEN_ID: [1]}),  # type: ignore[dict-item]
        lambda: capabilities.member(""),
        lambda: capabilities.epoch(1 << 31),
        lambda: capabilities.byte_rate(0),
        lambda: capabilities.request_rate(1 << 53),
        lambda: capabilities.log_level("loud"),
        lambda: capabilities.label("a/b"),
        capabilities.peers,
        lambda: capabilities.peers("example.com"),
    )
    for make in wrong:
        with pytest.raises(CapabilityError):
            make()


def mutations(chance: random.Random, raw: bytes, text: str) -> str:
    """Change bytes below the base64, or characters of it."""
    if chance.random() < 0.6:
        changed = bytearray(raw)
        for _ in range(chance.randint(1, 3)):
            at = chance.randrange(len(changed))
            match chance.randrange(4):
                case 0:
                    changed[at] ^= 1 << chance.randrange(8)
                case 1:
                    changed[at:at] = chance.randbytes(chance.randint(1, 3))
                case 2:
                    del changed[at : at + chance.randint(1, 3)]
                case _:
                    other = chance.randrange(len(changed))
                    changed[at : at + 4], changed[other : other + 4] = changed[other : other + 4], changed[at : at + 4]
        return text_of(bytes(changed))
    at = chance.randrange(len(text))
    piece = chance.choice(("", "A", "=", "_", "+", "/", " ", "\n", "\0", "é", "kh1.", text[at - 1 : at]))
    return text[:at] + piece + text[at + chance.randint(0, 2) :]


def test_no_changed_token_is_good() -> None:
    """1 M in `make soak`: each is refused in a sentence, or is the text that it was."""
    chance = random.Random(SEED)
    raws = [(raw_of(token), token) for token, _ in GOLDEN]
    good = set()
    for _ in range(at_depth(10_000, 1_000_000)):
        raw, text = chance.choice(raws)
        changed = mutations(chance, raw, text)
        try:
            verify(changed, KEYS)
        except CapabilityError as why:
            assert len(str(why)) < 200
        else:
            good.add(changed)
    assert good <= {text for _, text in raws}


def test_no_bytes_of_a_caveat_raise_anything_else() -> None:
    """Any holder can write any bytes, with an HMAC that is right; reading them costs no more than their length."""
    chance = random.Random(SEED)
    read = 0
    for _ in range(at_depth(10_000, 1_000_000)):
        kind = chance.choice(list(Kind))
        body = bytearray(chance.choice([each.body for _, caveats in GOLDEN for each in caveats if each.kind is kind]))
        for _ in range(chance.randint(1, 3)):
            at = chance.randint(0, len(body))
            body[at : at + chance.randrange(3)] = chance.randbytes(chance.randrange(3))
        try:
            assert str(Caveat(kind, bytes(body)))
            read += 1
        except CapabilityError as why:
            assert kind.word in str(why)
    assert read


# -- nothing is told ----------------------------------------------------------------------------------------------


def test_no_text_has_a_secret() -> None:
    """The canary is the root key; what a token ends in is as secret."""
    tail = raw_of(FULL)[-32:]
    shown = [KEYS, KEYS.rotated(bytes(32)), KEYS.current, verify(FULL, KEYS), parse(FULL), module._split(FULL)]
    for text in (*map(repr, shown), *map(str, shown), *(str(row) for row in explain(FULL))):
        assert "CANARY" not in text
        for secret in (SECRET, tail):
            for form in (secret.hex(), repr(secret)[2:-1], urlsafe_b64encode(secret).decode()[:40]):
                assert form not in text
        assert FULL[-20:] not in text


def test_ids_of_a_chain_are_no_keys_of_it() -> None:
    """An id is a digest of the HMAC behind its link, which would let its reader take later links away."""
    running = hmac.digest(SECRET, b"kh1." + raw_of(FULL)[:20], "sha256")
    for link, shown in zip(kinds_of(FULL), verify(FULL, KEYS).chain[1:], strict=True):
        running = hmac.digest(running, link, "sha256")
        assert urlsafe_b64encode(running).decode()[:8] not in shown
        assert (
            urlsafe_b64encode(hashlib.sha256(b"kohort revocation id\0" + running).digest()[:16]).decode()[:22] == shown
        )


def kinds_of(token: str) -> Sequence[bytes]:
    return module._split(token).links


def test_texts_of_caveats_are_short() -> None:
    many = capabilities.topics(*(f"t{number}" for number in range(500)))
    assert str(many).endswith("492 more")
    assert repr(capabilities.operations("read")) == "Caveat(operations: read)"
    assert kinds.describe(Kind.BYTE_RATE, 5) == "5/s"
