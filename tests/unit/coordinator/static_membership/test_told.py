"""Static groups in the journal: who went offline, how long after its last word, and who is back after what time."""

from __future__ import annotations

import pytest

from kohort.errors import ErrorCode
from kohort.journal.rows import Entry
from support.dialogues.classic_fleet import Fleet
from support.dialogues.mixed_dialogue import MixedDialogue

#: What is told of those who are there and those who are not.
OF_PRESENCE = ("member_away", "member_offline", "member_back", "member_removed")


def told(dialogue: MixedDialogue) -> list[tuple[str, str, dict[str, str]]]:
    """Event, member and details of what was told of who is there, since the last call."""
    entries: list[Entry] = dialogue.told
    dialogue.told = []
    return [(each.event, each.member_id, dict(each.details)) for each in entries if each.event in OF_PRESENCE]


@pytest.fixture
def consumer() -> MixedDialogue:
    """Member a of a static KIP-848 group, whose sessions are of 45 s."""
    group = MixedDialogue(group_membership="static", group_registration_timeout_ms=600_000)
    group.heartbeat("a", epoch=0, instance_id="one")
    told(group)
    return group


@pytest.fixture
def fleet() -> Fleet:
    """Classic members x, who leads, and a."""
    made = Fleet()
    made.start("x", "a")
    told(made.dialogue)
    return made


def test_a_silent_member_is_away_and_back_once_it_has_joined_again(consumer: MixedDialogue) -> None:
    consumer.advance(45_000)
    assert told(consumer) == [("member_away", "a", {"instance": "one", "held": "t-0 t-1"})]
    consumer.advance(15_000)
    consumer.heartbeat("a", epoch=1).is_refused(ErrorCode.FENCED_MEMBER_EPOCH)
    assert told(consumer) == []
    consumer.heartbeat("a", epoch=0, instance_id="one")
    assert told(consumer) == [("member_back", "a", {"instance": "one", "away_ms": "60000"})]


def test_a_closed_connection_is_told_with_the_time_since_the_last_word(consumer: MixedDialogue) -> None:
    consumer.advance(2_000)
    consumer.disconnect("a")
    assert told(consumer) == [("member_offline", "a", {"instance": "one", "silent_ms": "2000"})]


def test_who_says_that_it_leaves_for_a_while_is_told_of_once(consumer: MixedDialogue) -> None:
    consumer.heartbeat("a", epoch=-2, instance_id="one")
    assert [event for event, *_ in told(consumer)] == ["member_away"]
    consumer.advance(30_000)
    consumer.heartbeat("b", epoch=0, instance_id="one")
    assert ("member_back", "b", {"instance": "one", "away_ms": "30000"}) in told(consumer)


def test_who_is_removed_or_has_a_session_again_is_not_back(consumer: MixedDialogue) -> None:
    consumer.disconnect("a")
    consumer.alter_configs({"group.membership": "dynamic"}).is_done()
    assert [event for event, *_ in told(consumer)] == ["member_offline"]
    consumer.alter_configs({"group.membership": "static"}).is_done()
    consumer.advance(700_000)
    assert [event for event, *_ in told(consumer)] == ["member_away", "member_removed"]


def test_a_classic_member_that_is_silent_and_comes_back_by_itself(fleet: Fleet) -> None:
    sailor = fleet.living["a"]
    fleet.off("a", is_silent=True)
    fleet.until("00:20")
    ((event, member_id, details),) = told(fleet.dialogue)
    assert (event, member_id, details["instance"]) == ("member_offline", sailor.member_id, "a")
    assert int(details["silent_ms"]) == 10_000
    fleet.living["a"] = sailor
    fleet.step()
    ((event, member_id, details),) = told(fleet.dialogue)
    assert (event, member_id, details["instance"]) == ("member_back", sailor.member_id, "a")
    assert int(details["away_ms"]) >= 20_000


def test_a_classic_member_that_comes_back_as_another_process(fleet: Fleet) -> None:
    fleet.off("a")
    fleet.until("00:30")
    assert [event for event, *_ in told(fleet.dialogue)] == ["member_offline"]
    sailor = fleet.join("a")
    ((event, member_id, details),) = told(fleet.dialogue)
    assert (event, member_id, details["instance"]) == ("member_back", sailor.member_id, "a")
    assert int(details["away_ms"]) >= 30_000


def test_a_classic_member_whose_registration_ends_is_not_back(fleet: Fleet) -> None:
    fleet.off("a")
    fleet.until("16:00")
    assert [event for event, *_ in told(fleet.dialogue)] == ["member_offline", "member_removed"]
