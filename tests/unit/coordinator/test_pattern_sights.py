"""Patterns of members that may see some topics only: resolved, resolved again with topics and with rights."""

from __future__ import annotations

import pytest

from kohort.coordinator.consumer.regex import PatternSeen
from kohort.coordinator.records.types import RegularExpressionResolved
from support.dialogues.coordinator_dialogue import Answer, GroupDialogue

pytest.importorskip("re2")

ORDERS = "orders-.*"
EU, US, UK = "orders-eu", "orders-us", "orders-uk"


class Sight:
    """What a test lets a member see."""

    def __init__(self, *names: str) -> None:
        self.names = set(names)
        self.edition = 0

    def sees(self, topic: str) -> bool:
        return topic in self.names

    def change(self, *names: str) -> None:
        self.names = set(names)
        self.edition += 1


@pytest.fixture
def shop() -> GroupDialogue:
    group = GroupDialogue({EU: 1, US: 1})
    group.hides_topics = True
    return group


def join(group: GroupDialogue, member_id: str, sight: Sight) -> Answer:
    answer = group.heartbeat(member_id, epoch=0, topics=[], subscribed_topic_regex=ORDERS, sight=sight)
    # The broker sends it when the heartbeat was accepted.
    group.pattern_sent(ORDERS, sight)
    return answer


def topics_of(group: GroupDialogue) -> tuple[str, ...]:
    return group.group.regexes[ORDERS].topics


def test_a_pattern_matches_what_its_member_may_see(shop: GroupDialogue) -> None:
    """KAFKA-18813: neither the answer nor a record names a topic that is hidden."""
    join(shop, "a", Sight(EU, UK)).replies(epoch=1, assigned={EU: [0]})
    assert topics_of(shop) == (EU,)


def test_a_topic_that_is_created_later_is_matched_if_it_may_be_seen(shop: GroupDialogue) -> None:
    join(shop, "a", Sight(EU, UK))
    shop.set_topics({EU: 1, US: 1, "orders-hidden": 1})
    assert topics_of(shop) == (EU,)
    shop.set_topics({EU: 1, US: 1, UK: 1})
    assert topics_of(shop) == (EU, UK)


def test_other_rights_show_old_topics_and_hide_them(shop: GroupDialogue) -> None:
    sight = Sight(EU)
    join(shop, "a", sight)
    sight.change(EU, US)
    shop.rights_changed()
    assert topics_of(shop) == (EU, US)
    epoch = shop.group.epoch
    sight.change(US)
    shop.rights_changed()
    assert topics_of(shop) == (US,)
    assert shop.group.epoch == epoch + 1
    shop.new_records()
    shop.rights_changed()
    assert not [each for each in shop.new_records() if isinstance(each, PatternSeen | RegularExpressionResolved)]


def test_the_member_that_sent_the_pattern_last_decides(shop: GroupDialogue) -> None:
    """As in Apache Kafka, members with one pattern share its topics; those of another one's rights raise the epoch."""
    join(shop, "a", Sight(EU))
    epoch = shop.group.epoch
    join(shop, "b", Sight(EU, US))
    assert topics_of(shop) == (EU, US)
    assert shop.group.epoch == epoch + 2


def test_after_a_restart_nothing_new_is_matched_until_a_member_sends_the_pattern(shop: GroupDialogue) -> None:
    """A restart forgets the sight, and does not guess."""
    sight = Sight(EU, US, UK)
    join(shop, "a", sight)
    shop.restart()
    shop.set_topics({EU: 1, US: 1, UK: 1})
    assert topics_of(shop) == (EU, US)
    join(shop, "a", sight)
    assert topics_of(shop) == (EU, UK, US)


def test_a_pattern_that_nobody_sends_any_more_is_forgotten_with_its_sight(shop: GroupDialogue) -> None:
    join(shop, "a", Sight(EU))
    shop.heartbeat("a", epoch=-1)
    assert shop.group.sights == {}
    shop.pattern_sent(ORDERS, Sight(US))
    assert shop.group.regexes == {} == shop.group.sights
