"""Fetches that count as heartbeats (H7): whose session is renewed, how often, and what it is no sign of."""

from __future__ import annotations

import pytest

from kohort.coordinator.decision import TimerKey
from kohort.errors import ConfigError
from support.dialogues.classic_client import SESSION_MS as CLASSIC_SESSION_MS
from support.dialogues.classic_client import ClassicClient
from support.dialogues.hold_dialogue import HoldDialogue
from support.dialogues.mixed_dialogue import MixedDialogue

SESSION_MS, INTERVAL_MS = 45_000, 5_000


@pytest.fixture
def group() -> HoldDialogue:
    """A group "g" that counts fetches, without members, and a topic "t" of four partitions."""
    return HoldDialogue({"t": 4}, group_liveness="fetch")


def left_ms(group: HoldDialogue | MixedDialogue, member_id: str) -> int | None:
    """How long the member may be silent from now on."""
    deadline_ms = group.shard.timers.deadline(TimerKey("session", group.group_id, member_id))
    return None if deadline_ms is None else deadline_ms - group.now_ms


def test_fetch_renews_a_session_without_a_decision(group: HoldDialogue) -> None:
    group.at_rest(a=[0, 1, 2, 3])
    group.new_records()
    group.advance(20_000)
    group.hear_fetch("a", epoch=1)
    assert left_ms(group, "a") == SESSION_MS
    assert not group.new_records()


def test_fetch_renews_a_session_once_in_a_quarter_of_an_interval(group: HoldDialogue) -> None:
    group.at_rest(a=[0, 1, 2, 3])
    group.advance(INTERVAL_MS // 4 - 1)
    group.hear_fetch("a", epoch=1)
    assert left_ms(group, "a") == SESSION_MS - INTERVAL_MS // 4 + 1
    group.advance(1)
    group.hear_fetch("a", epoch=1)
    assert left_ms(group, "a") == SESSION_MS


def test_fetch_counts_in_a_group_that_says_so_alone() -> None:
    group = HoldDialogue({"t": 4})
    group.at_rest(a=[0, 1, 2, 3])
    group.advance(20_000)
    group.hear_fetch("a", epoch=1)
    assert left_ms(group, "a") == SESSION_MS - 20_000
    group.alter_configs({"group.liveness": "fetch"}).is_done()
    group.hear_fetch("a", epoch=1)
    assert left_ms(group, "a") == SESSION_MS


def test_other_values_are_refused() -> None:
    with pytest.raises(ConfigError, match="heartbeat, fetch is expected"):
        HoldDialogue(group_liveness="prayer")


def test_fetch_at_an_epoch_that_the_member_does_not_have_is_none(group: HoldDialogue) -> None:
    group.at_rest(a=[0, 1, 2, 3])
    group.advance(20_000)
    group.hear_fetch("a", epoch=2)
    group.hear_fetch("x", epoch=1)
    assert left_ms(group, "a") == SESSION_MS - 20_000
    assert left_ms(group, "x") is None


def test_fetch_acknowledges_no_revocation_and_prolongs_none(group: HoldDialogue) -> None:
    group.at_rest(a=[0, 1, 2, 3])
    group.beat("b", epoch=0, hold_ms=0)
    group.beat("a", hold_ms=-1).replies(epoch=1, assigned=[0, 1])
    for _ in range(60):
        group.hear_fetch("a", epoch=1)
        group.beat("b", hold_ms=-1, epoch=2)
        group.advance(1_000)
    # It lives, and has not given up in time.
    assert "a" not in group.group.members


def test_first_fetch_of_a_member_that_counts_as_gone_brings_it_back() -> None:
    group = HoldDialogue({"t": 4}, group_liveness="fetch", group_disconnect_grace_ms=1_000)
    group.at_rest(a=[0, 1, 2, 3])
    group.disconnect("a")
    assert group.member("a").is_disconnected
    # One that ends with its connection does not.
    group.hear_fetch("a", epoch=1, is_over=True)
    assert group.member("a").is_disconnected
    group.hear_fetch("a", epoch=1)
    assert not group.member("a").is_disconnected
    assert left_ms(group, "a") == SESSION_MS
    assert group.told[-1].event == "connection_back"


def test_member_that_left_for_a_while_fetches_nothing(group: HoldDialogue) -> None:
    group.heartbeat("a", epoch=0, instance_id="one")
    group.heartbeat("a", epoch=-2, instance_id="one")
    left = left_ms(group, "a")
    group.hear_fetch("a")
    assert left_ms(group, "a") == left


def test_fetch_of_a_classic_member_counts_by_its_own_session() -> None:
    """A stock client that logs in with a token; in a classic group and in one of both protocols."""
    group = MixedDialogue({"t": 4}, group_liveness="fetch", group_initial_rebalance_delay_ms=0)
    classic = ClassicClient(group, "b")
    classic.join()
    classic.learn_generation()
    classic.sync({classic.member_id: (0, 1, 2, 3)})
    group.advance(CLASSIC_SESSION_MS // 2)
    group.hear_fetch(classic.member_id)
    assert left_ms(group, classic.member_id) == CLASSIC_SESSION_MS
    # The group becomes one of both protocols.
    group.heartbeat("a", epoch=0)
    assert group.member(classic.member_id).classic is not None
    group.advance(CLASSIC_SESSION_MS // 2)
    group.hear_fetch(classic.member_id)
    assert left_ms(group, classic.member_id) == CLASSIC_SESSION_MS


def test_history_says_whether_a_member_was_last_heard_of_by_a_fetch(group: HoldDialogue) -> None:
    group.at_rest(a=[0, 1], b=[2, 3])
    group.advance(20_000)
    for member_id in ("a", "b"):
        group.hear_fetch(member_id)
    group.fetch("a", [0, 1])
    group.advance(1_000)
    group.beat("b", hold_ms=-1)
    group.advance(SESSION_MS)
    removed = {entry.member_id: dict(entry.details) for entry in group.told if entry.event == "member_removed"}
    assert removed["a"]["heard_by"] == "fetch"
    assert "heard_by" not in removed["b"]
