"""Subscriptions by pattern: said, resolved, resolved again, forgotten, refused; and what they cost."""

from __future__ import annotations

import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kohort.coordinator import commands
from kohort.coordinator.commands.admin import DescribeConsumerGroupReply
from kohort.coordinator.consumer import regex as patterns
from kohort.coordinator.consumer.regex import (
    MAX_REGEX,
    TopicPattern,
    compile_pattern,
    resolve_again,
    resolve_regex,
)
from kohort.coordinator.model import ConsumerGroup
from kohort.coordinator.records.types import (
    ConsumerGroupEpochSet,
    ConsumerMemberSubscribed,
    MemberTargetSet,
    RegularExpressionForgotten,
    RegularExpressionResolved,
)
from kohort.coordinator.topics import TopicFacts, TopicImage
from kohort.errors import ErrorCode, Refused
from kohort.ids import TopicId
from support.dialogues.coordinator_dialogue import Answer, GroupDialogue

re2 = pytest.importorskip("re2")

ORDERS = "orders-.*"


def subscribe(group: GroupDialogue, member_id: str, regex: str, *, epoch: int = 0, **fields: object) -> Answer:
    """A heartbeat that says a pattern, and when joining no names."""
    topics: list[str] | None = fields.pop("topics", [] if epoch == 0 else None)  # type: ignore[assignment]
    return group.heartbeat(member_id, epoch=epoch, topics=topics, subscribed_topic_regex=regex, **fields)  # type: ignore[arg-type]


@pytest.fixture
def shop() -> GroupDialogue:
    return GroupDialogue({"orders-eu": 2, "orders-us": 1, "my-orders-eu": 1, "__consumer_offsets": 1})


def resolved_in(group: GroupDialogue) -> dict[str, tuple[str, ...]]:
    return {regex: resolved.topics for regex, resolved in group.group.regexes.items()}


def test_pattern_is_resolved_in_the_heartbeat_that_says_it(shop: GroupDialogue) -> None:
    """KAFKA-17593: Kafka resolves in the background, and the member learns of it a heartbeat later at best."""
    shop.new_records()
    subscribe(shop, "a", ORDERS).replies(epoch=1, assigned={"orders-eu": [0, 1], "orders-us": [0]})
    resolved = [record for record in shop.new_records() if isinstance(record, RegularExpressionResolved)]
    assert [(record.regex, record.topics, record.timestamp_ms) for record in resolved] == [
        (ORDERS, ("orders-eu", "orders-us"), shop.now_ms)
    ]
    members = shop.describe().body_as(DescribeConsumerGroupReply).members
    assert [(member.subscribed_topic_names, member.subscribed_topic_regex) for member in members] == [((), ORDERS)]


def test_new_topic_that_matches_is_assigned_at_once(shop: GroupDialogue) -> None:
    """KAFKA-18961: Kafka looks again after ten seconds at the earliest, and where nobody asks after ten minutes."""
    subscribe(shop, "a", ORDERS)
    shop.new_records()
    shop.set_topics({**shop.topic_counts, "orders-asia": 1, "invoices": 1})
    shop.fire_due()
    assert [type(record) for record in shop.new_records()][1:4] == [
        RegularExpressionResolved,
        ConsumerGroupEpochSet,
        MemberTargetSet,
    ]
    shop.heartbeat("a", epoch=1).replies(epoch=2, assigned={"orders-eu": [0, 1], "orders-us": [0], "orders-asia": [0]})


def test_second_new_pattern_does_not_wait_for_the_first(shop: GroupDialogue) -> None:
    """KAFKA-17593: in Kafka one resolution runs at a time, and the next starts ten seconds later at the earliest."""
    subscribe(shop, "a", ORDERS)
    subscribe(shop, "b", "my-.*").replies(epoch=2, assigned={"my-orders-eu": [0]})


def test_topic_that_does_not_match_concerns_nobody(shop: GroupDialogue) -> None:
    subscribe(shop, "a", ORDERS)
    shop.new_records()
    shop.set_topics({**shop.topic_counts, "invoices": 1})
    assert len(shop.new_records()) == 1
    shop.heartbeat("a", epoch=1).replies(epoch=1, assigned=None)


def test_topic_that_goes_and_comes_back_is_another_one(shop: GroupDialogue) -> None:
    subscribe(shop, "a", ORDERS)
    counts = shop.topic_counts
    shop.set_topics({name: count for name, count in counts.items() if name != "orders-eu"})
    assert resolved_in(shop) == {ORDERS: ("orders-us",)}
    shop.set_topics(counts)
    assert resolved_in(shop) == {ORDERS: ("orders-eu", "orders-us")}
    shop.settle()
    assert shop.holders() == {"a": {("orders-eu", 0), ("orders-eu", 1), ("orders-us", 0)}}


def test_topic_that_is_made_anew_between_two_pictures_is_assigned_anew(shop: GroupDialogue) -> None:
    subscribe(shop, "a", ORDERS)
    shop._generations["orders-us"] = 1
    shop.set_topics(shop.topic_counts)
    shop.settle()
    assert shop.holders() == {"a": {("orders-eu", 0), ("orders-eu", 1), ("orders-us", 0)}}
    assert shop.topic_id("orders-us") in shop.member("a").assigned


def test_topic_that_matches_and_grows(shop: GroupDialogue) -> None:
    subscribe(shop, "a", ORDERS)
    shop.set_topics({**shop.topic_counts, "orders-us": 3})
    shop.heartbeat("a", epoch=1).replies(epoch=2, assigned={"orders-eu": [0, 1], "orders-us": [0, 1, 2]})


def test_names_and_pattern_are_united(shop: GroupDialogue) -> None:
    subscribe(shop, "a", "orders-e.", topics=["my-orders-eu", "orders-eu"]).replies(
        epoch=1, assigned={"my-orders-eu": [0], "orders-eu": [0, 1]}
    )
    assert set(shop.group.topic_subscribers) == {"my-orders-eu", "orders-eu"}
    # The names alone, then the pattern alone, changed: the other stays.
    shop.heartbeat("a", epoch=1, topics=["orders-us"]).replies(
        epoch=2, assigned={"orders-eu": [0, 1], "orders-us": [0]}
    )
    shop.settle()
    assert set(shop.group.topic_subscribers) == {"orders-eu", "orders-us"}
    subscribe(shop, "a", "my-.*", epoch=shop.member("a").member_epoch)
    shop.settle()
    assert shop.holders() == {"a": {("my-orders-eu", 0), ("orders-us", 0)}}


def test_empty_pattern_takes_it_back_and_the_last_one_out_has_it_forgotten(shop: GroupDialogue) -> None:
    subscribe(shop, "a", ORDERS)
    subscribe(shop, "b", ORDERS)
    shop.settle()
    shop.new_records()
    subscribe(shop, "a", "", epoch=2, owned=[])
    assert not [record for record in shop.new_records() if isinstance(record, RegularExpressionForgotten)]
    assert shop.member("a").subscribed_topic_regex is None
    subscribe(shop, "b", "my-.*", epoch=2)
    forgotten = [record for record in shop.new_records() if isinstance(record, RegularExpressionForgotten)]
    assert forgotten == [RegularExpressionForgotten(group_id="g", regex=ORDERS)]
    shop.leave("b")
    assert RegularExpressionForgotten(group_id="g", regex="my-.*") in shop.new_records()
    assert shop.group.regexes == {}


def test_pattern_of_fenced_and_of_removed_members_is_forgotten(shop: GroupDialogue) -> None:
    for member_id in ("a", "b", "c"):
        subscribe(shop, member_id, ORDERS)
    gone = tuple(commands.LeavingMember(member_id=name) for name in ("a", "b"))
    shop.ask(commands.LeaveGroup(cause=shop.cause(), request=shop.request(), group_id="g", members=gone))
    assert resolved_in(shop) == {ORDERS: ("orders-eu", "orders-us")}
    shop.advance(ms=45_000)
    assert (shop.group.members, shop.group.regexes, shop.group.regex_subscribers) == ({}, {}, {})


def test_pattern_that_means_the_same_topics_moves_nothing(shop: GroupDialogue) -> None:
    subscribe(shop, "a", ORDERS)
    subscribe(shop, "a", "orders-(eu|us)", epoch=1).replies(epoch=1, assigned=None)
    assert shop.group.epoch == 1
    assert resolved_in(shop) == {"orders-(eu|us)": ("orders-eu", "orders-us")}


def test_pattern_that_matches_nothing_yet(shop: GroupDialogue) -> None:
    subscribe(shop, "a", "later-.*").replies(epoch=1, assigned={})
    shop.set_topics({**shop.topic_counts, "later-on": 1})
    shop.heartbeat("a", epoch=1).replies(epoch=2, assigned={"later-on": [0]})


def test_whole_names_are_matched(shop: GroupDialogue) -> None:
    for number, regex in enumerate(("orders", "orders-", "eu$", "^$")):
        subscribe(shop, f"m{number}", regex)
    assert set(resolved_in(shop).values()) == {()}


def test_brokers_own_topics_are_meant_only_where_the_pattern_says_so(shop: GroupDialogue) -> None:
    """Kafka's `.*` takes in `__consumer_offsets`: a group that commits would read its own commits for ever."""
    subscribe(shop, "a", ".*")
    subscribe(shop, "b", "__.*")
    assert resolved_in(shop) == {
        ".*": ("my-orders-eu", "orders-eu", "orders-us"),
        "__.*": ("__consumer_offsets",),
    }


@pytest.mark.parametrize(
    ("regex", "saying"),
    [
        ("orders-[", "does not compile: missing ]"),
        ("(?=orders).*", "does not compile"),
        ("(((a{900}){900}){900})", "does not compile"),
        (r"(\pL|\pN){900}", "does not compile: pattern too large"),
        ("x" * (MAX_REGEX + 1), f"at most {MAX_REGEX}"),
        ("\u20ac" * (MAX_REGEX // 2), f"at most {MAX_REGEX}"),
        ("\ud800", "no text in UTF-8"),
    ],
)
def test_pattern_that_cannot_be_served_changes_nothing(
    shop: GroupDialogue, regex: str, saying: str, capfd: pytest.CaptureFixture[str]
) -> None:
    """INVALID_REGULAR_EXPRESSION says why, in a sentence that is short whatever was sent; nothing goes to stderr."""
    subscribe(shop, "a", ORDERS)
    shop.new_records()
    refusal = subscribe(shop, "a", regex, epoch=1).is_refused(ErrorCode.INVALID_REGULAR_EXPRESSION, saying=saying)
    subscribe(shop, "b", regex).is_refused(ErrorCode.INVALID_REGULAR_EXPRESSION)
    assert len(refusal.message or "") < 600
    assert shop.new_records() == []
    assert capfd.readouterr().err == ""
    shop.heartbeat("a", epoch=1).replies(epoch=1, assigned=None)


def test_exploding_pattern_comes_to_an_end() -> None:
    """A backtracking engine would need longer than the universe is old for one of these names."""
    names = ["a" * 249 for _ in range(200)]
    assert TopicPattern("(a*)*(a|aa)*(a+)+b").matching(names) == []
    assert TopicPattern("(.*)(.*)(.*)(.*)(.*)(.*)[^a]").matching(names) == []


def test_pattern_over_very_many_topics_is_refused(monkeypatch: pytest.MonkeyPatch, shop: GroupDialogue) -> None:
    monkeypatch.setattr(patterns, "MAX_RESOLVED_TOPICS", 2)
    subscribe(shop, "a", ".*").is_refused(ErrorCode.INVALID_REGULAR_EXPRESSION, saying="matches 3 topics; at most 2")
    subscribe(shop, "a", ORDERS).replies(epoch=1, assigned={"orders-eu": [0, 1], "orders-us": [0]})


@pytest.mark.large
def test_of_a_hundred_thousand_topics_re2_sees_those_that_may_match(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only names with the pattern's fixed beginning are given to it, and only new ones when topics change."""
    pattern = patterns.compile_pattern(ORDERS)
    fullmatch, seen = pattern._fullmatch, list[str]()

    def watched(name: str) -> object:
        seen.append(name)
        return fullmatch(name)

    monkeypatch.setattr(pattern, "_fullmatch", watched)
    names = [f"other-{number}" for number in range(100_000)] + ["orders", "orders-eu"]
    image = image_of(names)
    group = ConsumerGroup("g")
    resolved = resolve_regex(group, ORDERS, image, now_ms=0)
    assert resolved is not None and resolved.topics == ("orders-eu",)
    assert len(seen) <= 2 and "orders-eu" in seen

    group.regexes = {ORDERS: resolved}
    seen.clear()
    (again,) = resolve_again(group, image_of([*names, "orders-us"]), ["orders-us"], now_ms=1)
    assert again.topics == ("orders-eu", "orders-us")
    assert seen == ["orders-us"]


def image_of(names: list[str]) -> TopicImage:
    facts = [
        TopicFacts(name=name, topic_id=TopicId(number.to_bytes(16, "big")), partition_count=1)
        for number, name in enumerate(names, start=1)
    ]
    return TopicImage.of(facts, version=1)


def test_without_re2_a_pattern_is_refused_and_names_are_served(
    shop: GroupDialogue, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The message says what to install; what was resolved before stays as far as its topics are there."""
    subscribe(shop, "a", ORDERS)
    compile_pattern.cache_clear()
    monkeypatch.setitem(sys.modules, "re2", None)
    subscribe(shop, "b", "my-.*").is_refused(ErrorCode.INVALID_REGULAR_EXPRESSION, saying="pip install kohort[regex]")
    shop.heartbeat("b", epoch=0, topics=["my-orders-eu"]).replies(epoch=2, assigned={"my-orders-eu": [0]})
    shop.set_topics({"orders-us": 1, "orders-asia": 1})
    assert resolved_in(shop) == {ORDERS: ("orders-us",)}


@pytest.mark.parametrize("topics_first", [False, True])
def test_restart_keeps_patterns_and_what_they_mean(shop: GroupDialogue, topics_first: bool) -> None:
    subscribe(shop, "a", ORDERS)
    shop.new_records()
    shop.restart(topics_first=topics_first)
    assert resolved_in(shop) == {ORDERS: ("orders-eu", "orders-us")}
    shop.heartbeat("a", epoch=1).replies(epoch=1, assigned=None)
    assert [type(record).__name__ for record in shop.new_records()] == ["TopicImageReplaced"]


def test_topics_that_came_while_the_broker_was_down_are_found_at_start(shop: GroupDialogue) -> None:
    subscribe(shop, "a", ORDERS)
    shop._topics = {**shop.topic_counts, "orders-asia": 1}
    shop.restart()
    shop.heartbeat("a", epoch=1).replies(epoch=2, assigned={"orders-eu": [0, 1], "orders-us": [0], "orders-asia": [0]})


def test_pattern_in_a_log_that_our_engine_cannot_read_keeps_its_topics(shop: GroupDialogue) -> None:
    subscribe(shop, "a", ORDERS)
    group = shop.shard.groups.consumer["g"]
    strange = RegularExpressionResolved(
        group_id="g", regex="orders-(?<", topics=("orders-eu", "orders-xx"), image_version=1, timestamp_ms=1
    )
    group.regexes["orders-(?<"] = strange
    again = patterns.resolve_again(group, shop.shard.groups.image, ["orders-us"], now_ms=5)
    assert [(record.regex, record.topics) for record in again] == [("orders-(?<", ("orders-eu",))]


def test_offsets_of_topics_that_a_pattern_means_are_in_use(shop: GroupDialogue) -> None:
    shop.commit({("orders-eu", 0): 5, ("my-orders-eu", 0): 5})
    subscribe(shop, "a", ORDERS)
    assert shop.delete_offsets([("orders-eu", 0), ("my-orders-eu", 0)]).errors() == (
        ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC,
        ErrorCode.NONE,
    )


def test_who_joins_without_a_pattern_has_none(group: GroupDialogue) -> None:
    """A join says everything, and what it leaves out is nobody's wish: neither its own of before nor that of the
    process whose name it takes. Kafka hands the pattern on; then it reads topics that it never asked for."""
    group.set_topics({"t": 1, "orders": 1})
    pattern = {"subscribed_topic_regex": "ord.*", "server_assignor": "range", "rack_id": "r"}
    group.heartbeat("a", epoch=0, instance_id="one", **pattern).replies(epoch=1, assigned={"t": [0], "orders": [0]})
    group.heartbeat("a", epoch=-2, instance_id="one")
    group.heartbeat("b", epoch=0, instance_id="one")
    group.settle()
    member = group.member("b")
    assert (member.subscribed_topic_regex, member.server_assignor, member.rack_id) == (None, None, None)
    assert group.holders() == {"b": {("t", 0)}}
    assert group.group.regexes == {}
    group.heartbeat("b", epoch=group.member("b").member_epoch, subscribed_topic_regex="ord.*")
    group.settle()
    assert group.holders() == {"b": {("t", 0), ("orders", 0)}}
    group.heartbeat("b", epoch=0, instance_id="one")
    group.settle()
    assert group.holders() == {"b": {("t", 0)}}


def test_static_member_comes_back_with_its_pattern(shop: GroupDialogue) -> None:
    subscribe(shop, "a", ORDERS, instance_id="one")
    shop.heartbeat("a", epoch=-2, instance_id="one")
    shop.new_records()
    subscribe(shop, "b", ORDERS, instance_id="one").replies(epoch=1, assigned={"orders-eu": [0, 1], "orders-us": [0]})
    kinds = {type(record) for record in shop.new_records()}
    assert ConsumerMemberSubscribed in kinds
    assert not kinds & {RegularExpressionForgotten, RegularExpressionResolved, ConsumerGroupEpochSet}


def test_deleting_a_group_forgets_patterns_that_another_broker_left(shop: GroupDialogue) -> None:
    subscribe(shop, "a", ORDERS)
    shop.leave("a")
    left = RegularExpressionResolved(group_id="g", regex="x", topics=(), image_version=1, timestamp_ms=1)
    shop.shard.apply(left)
    shop.new_records()
    shop.delete_group()
    assert shop.new_records()[0] == RegularExpressionForgotten(group_id="g", regex="x")


NAMES = st.lists(st.text("ab-._", min_size=1, max_size=6), max_size=20, unique=True)
REGEXES = st.sampled_from(
    ["a.*", "(?i)A.*", "ab|b", "a|ab", "(ab)+", "a?b", "^ab$", "[^a].*", ".*b", "(?:ab|a-).*", "", "a\\.b", "(|a)b*"]
)


@given(regex=REGEXES, names=NAMES)
def test_the_fixed_beginning_never_leaves_a_match_out(regex: str, names: list[str]) -> None:
    plain = re2.compile(regex)
    assert TopicPattern(regex).matching(names) == [name for name in names if plain.fullmatch(name)]


def test_refusal_is_not_kept() -> None:
    for _ in range(2):
        with pytest.raises(Refused):
            compile_pattern("(")
