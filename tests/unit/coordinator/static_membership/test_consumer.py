"""A static KIP-848 group: KIP-345's draft, by its own examples; times are minutes and seconds of the dialogue."""

from __future__ import annotations

from typing import Any

import pytest

from kohort.coordinator.commands import ConsumerGroupHeartbeat
from kohort.coordinator.commands import admin as asked
from kohort.coordinator.consumer.describe import state_of
from kohort.coordinator.static_membership.mode import NAMELESS_ERRORS
from kohort.errors import ErrorCode
from support.dialogues.coordinator_dialogue import Answer, GroupDialogue

MINUTE = 60_000
REGISTRATION, EXPANSION = 15 * MINUTE, 5 * MINUTE
CONFIGS: dict[str, str | None] = {
    "group.membership": "static",
    "group.registration.timeout.ms": str(REGISTRATION),
    "group.expansion.timeout.ms": str(EXPANSION),
}


class StaticGroup(GroupDialogue):
    """A dialogue with a static group; a member is called as its name, its incarnations name, name2, name3."""

    def __init__(self, topics: dict[str, int] | None = None, **limits: Any) -> None:
        super().__init__(topics or {"t": 6}, **limits)
        self.alter_configs(CONFIGS).is_done()
        #: name -> id of the process that bears it, as far as the test goes on with it.
        self.online: dict[str, str] = {}

    def join(self, name: str, member_id: str = "", **fields: Any) -> Answer:
        self.online[name] = member_id or name
        return self.heartbeat(member_id or name, epoch=0, instance_id=name, client_id=name, **fields)

    def away(self, name: str) -> None:
        """It says that it goes for a while."""
        self.heartbeat(self.online.pop(name), epoch=-2, instance_id=name, client_id=name)

    def settle(self) -> None:
        """Everybody who is online heartbeats until nobody hears of anything new."""
        for _ in range(10):
            before = self.held()
            for member_id in self.online.values():
                self.beat(member_id)
            if self.held() == before:
                return
        raise AssertionError("the group does not come to rest")

    def beat(self, member_id: str) -> Answer:
        member = self.group.members[member_id]
        owned = [partition for grants in member.assigned.values() for partition in grants]
        return self.heartbeat(member_id, epoch=member.member_epoch, owned=owned, client_id=self.name_of(member_id))

    def name_of(self, member_id: str) -> str:
        return str(self.group.members[member_id].instance_id)

    def held(self) -> dict[str, list[int]]:
        """name -> partitions of t."""
        return {
            self.name_of(member_id): sorted(p for grants in member.assigned.values() for p in grants)
            for member_id, member in sorted(self.group.members.items())
        }

    def run(self, ms: int) -> None:
        """Time passes, and those who are online heartbeat every ten seconds."""
        while ms > 0:
            step = min(ms, 10_000)
            self.advance(ms=step)
            ms -= step
            for member_id in self.online.values():
                self.beat(member_id)


@pytest.fixture
def group() -> StaticGroup:
    """Three members with two partitions each."""
    group = StaticGroup()
    group.alter_configs({"group.expansion.timeout.ms": "100"}).is_done()
    for name in ("a", "b", "c"):
        group.join(name)
    group.run(200)
    group.settle()
    group.alter_configs({"group.expansion.timeout.ms": str(EXPANSION)}).is_done()
    assert group.held() == {"a": [0, 1], "b": [2, 3], "c": [4, 5]} or sorted(map(len, group.held().values())) == [
        2,
        2,
        2,
    ]
    return group


def test_the_earliest_offline_member_counts_and_the_clock_runs_on(group: StaticGroup) -> None:
    """A off 00:00, B off 00:10, A back 00:14: B's 00:10 counts. C off 00:18; at 00:25 B goes; C's runs to 00:33."""
    before, epoch = group.held(), group.group.epoch
    group.away("a")
    group.run(10 * MINUTE)
    group.away("b")
    group.run(4 * MINUTE)
    group.join("a", "a2").replies(epoch=group.group.target_epoch, assigned=before["a"])
    group.run(4 * MINUTE)
    group.away("c")
    group.run(7 * MINUTE - 1)
    assert group.group.epoch == epoch and group.held() == before
    group.run(1)
    assert group.group.epoch == epoch + 1 and "b" not in group.group.instance_ids
    group.settle()
    assert group.held()["c"] and set(before["a"]) < set(group.held()["a"])
    group.run(8 * MINUTE - 1)
    assert group.group.epoch == epoch + 1 and "c" in group.group.instance_ids
    group.run(1)
    assert group.group.epoch == epoch + 2
    group.settle()
    assert group.held() == {"a": [0, 1, 2, 3, 4, 5]}
    assert group.shard.groups.clocks == {}


def test_all_that_are_offline_for_as_long_go_in_one_rebalance(group: StaticGroup) -> None:
    epoch = group.group.epoch
    group.away("a")
    group.away("b")
    group.run(REGISTRATION)
    assert group.group.epoch == epoch + 1 and list(group.group.instance_ids) == ["c"]
    reasons = [dict(entry.details)["reason"] for entry in group.told if entry.event == "member_removed"]
    triggers = [dict(entry.details)["trigger"] for entry in group.told if entry.event == "epoch_bumped"]
    assert reasons == ["registration timeout"] * 2 and triggers[-1] == "registration timeout"


def test_new_members_are_gathered_and_one_rebalance_gives_them_something(group: StaticGroup) -> None:
    """D 00:00, E 00:02, F 00:04:59: one rebalance at 00:05. G at 00:05:01 opens the next window."""
    before, epoch = group.held(), group.group.epoch
    group.join("d").replies(epoch=epoch, assigned=[])
    group.run(2 * MINUTE)
    group.join("e").replies(epoch=epoch, assigned=[])
    group.run(2 * MINUTE + 59_000)
    group.join("f").replies(epoch=epoch, assigned=[])
    group.run(999)
    assert group.group.epoch == epoch and group.held() == {**before, "d": [], "e": [], "f": []}
    group.run(1)
    group.settle()
    assert group.group.epoch == epoch + 1 and [len(held) for held in group.held().values()] == [1] * 6
    triggers = [dict(entry.details)["trigger"] for entry in group.told if entry.event == "epoch_bumped"]
    assert triggers[-1] == "expansion timeout"
    group.run(1_000)
    group.join("g").replies(epoch=epoch + 1, assigned=[])
    group.run(EXPANSION - 1)
    assert group.group.epoch == epoch + 1
    group.run(1)
    assert group.group.epoch == epoch + 2


def test_an_empty_groups_first_member_waits_for_nobody() -> None:
    group = StaticGroup()
    group.join("a").replies(epoch=1, assigned=[0, 1, 2, 3, 4, 5])
    group.heartbeat("a", epoch=-1, instance_id="a", client_id="a")
    del group.online["a"]
    group.join("b").replies(epoch=group.group.epoch, assigned=[0, 1, 2, 3, 4, 5])
    assert group.shard.groups.clocks == {}


def test_those_that_start_together_share_from_the_beginning() -> None:
    """Who comes while the first target is about to be computed is in it."""
    group = StaticGroup(group_consumer_assignment_window_ms=50)
    for name in ("a", "b", "c"):
        group.join(name)
    group.run(100)
    group.settle()
    assert [len(held) for held in group.held().values()] == [2, 2, 2] and group.shard.groups.clocks == {}


def test_any_rebalance_takes_all_that_wait_and_closes_the_window(group: StaticGroup) -> None:
    epoch = group.group.epoch
    group.join("d")
    group.run(MINUTE)
    group.set_topics({"t": 8})
    group.advance(0)
    group.settle()
    assert group.group.epoch == epoch + 1 and [len(held) for held in group.held().values()] == [2] * 4
    group.run(EXPANSION)
    assert group.group.epoch == epoch + 1 and group.shard.groups.clocks == {}


def test_an_administrators_moves_leave_the_window_open(group: StaticGroup) -> None:
    """They give nothing to who waits."""
    group.join("d")
    group.ask(
        asked.SubmitMoves(
            cause=group.cause(),
            request=group.request(),
            group_id="g",
            moves=(asked.AskedMove(topic="t", partition=group.held()["a"][0], to_member_id="b"),),
        )
    )
    epoch = group.group.epoch
    group.run(EXPANSION)
    group.settle()
    assert group.group.epoch == epoch + 1 and group.held()["d"]


def test_what_only_new_members_want_is_no_change_of_topics(group: StaticGroup) -> None:
    """Neither a topic that is none of theirs, nor a restart, ends the window."""
    group.set_topics({"t": 6, "u": 2})
    epoch = group.group.epoch
    group.join("d", topics=["t", "u"])
    group.set_topics({"t": 6, "u": 2, "other": 1})
    group.advance(0)
    assert group.group.epoch == epoch
    group.restart()
    group.run(EXPANSION - MINUTE)
    assert group.group.epoch == epoch
    group.run(MINUTE)
    assert group.group.epoch == epoch + 1


def test_a_silent_member_keeps_what_it_has_and_comes_back_under_its_own_id(group: StaticGroup) -> None:
    """Its session has ended, nothing moves; it has to join again, and hears of no rebalance."""
    before, epoch = group.held(), group.group.epoch
    del group.online["a"]
    group.run(10 * MINUTE)
    assert group.held() == before and group.group.epoch == epoch
    group.heartbeat("a", epoch=epoch, client_id="a").is_refused(ErrorCode.FENCED_MEMBER_EPOCH)
    group.join("a").replies(epoch=epoch, assigned=before["a"])
    assert group.group.epoch == epoch and group.shard.groups.clocks == {}


def test_a_word_of_who_is_offline_does_not_bring_it_back(group: StaticGroup) -> None:
    """Its connection for heartbeats is closed, and it fetches on: news wait for its heartbeat, which tells them."""
    group.settle()
    epoch, mine = group.group.epoch, group.held()["a"]
    group.disconnect("a")
    del group.online["a"]
    watch = group.watch("a", epoch=epoch, knows=mine)
    group.alter_configs({"group.expansion.timeout.ms": "100"}).is_done()
    for name in ("d", "e", "f"):
        group.join(name)
    group.run(200)
    group.settle()
    group.tell_news()
    kept = sorted(p for found in group.group.targets["a"].values() for p in found if p in mine)
    assert group.group.epoch > epoch and kept != mine, "it shall have less"
    assert watch.is_parked
    group.watch("a", epoch=epoch, knows=mine, is_look=True).replies(epoch=epoch, assigned=None)
    assert list(group.shard.groups.clocks["g"].offline) == ["a"]

    # It is heard of: what is new is told again by each way.
    group.online["a"] = "a"
    group.heartbeat("a", epoch=epoch, owned=mine, client_id="a").replies(epoch=epoch, assigned=kept)
    assert group.shard.groups.clocks == {}
    group.watch("a", epoch=epoch, knows=mine).replies(epoch=epoch, assigned=kept)


def test_a_word_of_who_is_silent_has_it_ask(group: StaticGroup) -> None:
    """Its session has ended, so a heartbeat would be refused, too; it stays offline until it joins again."""
    epoch, mine = group.group.epoch, group.held()["a"]
    del group.online["a"]
    group.run(MINUTE)
    group.watch("a", epoch=epoch, knows=mine).is_refused(ErrorCode.UNKNOWN_MEMBER_ID)
    assert list(group.shard.groups.clocks["g"].offline) == ["a"]
    group.join("a").replies(epoch=epoch, assigned=mine)


def test_silence_counts_since_the_member_was_last_heard_of(group: StaticGroup) -> None:
    epoch = group.group.epoch
    del group.online["a"]
    group.run(REGISTRATION - 1)
    assert group.group.epoch == epoch
    group.run(1)
    assert group.group.epoch == epoch + 1


def test_a_connection_that_closed_counts_since_the_member_was_last_heard_of(group: StaticGroup) -> None:
    group.settle()
    group.advance(ms=3_000)
    group.disconnect("a")
    clock = group.shard.groups.clocks["g"]
    assert clock.offline_since("a") == group.now_ms - 3_000
    # It is there again on another connection.
    group.beat("a")
    assert group.shard.groups.clocks == {}


def test_nobody_waits_for_who_is_offline(group: StaticGroup) -> None:
    """What its target takes from it is free at once."""
    group.away("a")
    group.join("d")
    group.run(EXPANSION)
    group.settle()
    assert sum(len(held) for held in group.held().values()) == 6 and group.held()["d"]


def test_the_older_of_two_holders_is_fenced_at_once(group: StaticGroup) -> None:
    """S2; otherwise Kafka's rule: UNRELEASED_INSTANCE_ID for the younger."""
    before, epoch = group.held(), group.group.epoch
    group.join("a", "a2").replies(epoch=epoch, assigned=before["a"])
    group.heartbeat("a", epoch=epoch, instance_id="a").is_refused(ErrorCode.FENCED_INSTANCE_ID)
    # Nor does it get anywhere without saying its name, or by joining anew.
    group.heartbeat("a", epoch=epoch).is_refused(ErrorCode.FENCED_INSTANCE_ID)
    group.heartbeat("a", epoch=0, instance_id="a").is_refused(ErrorCode.FENCED_INSTANCE_ID)
    assert group.group.epoch == epoch


def test_a_new_token_forces_a_rebalance_that_takes_who_waits(group: StaticGroup) -> None:
    epoch = group.group.epoch
    group.join("d")
    group.alter_configs({"group.rebalance.token": "1"}).is_done()
    group.settle()
    assert group.group.epoch == epoch + 1 and group.held()["d"]
    triggers = [dict(entry.details)["trigger"] for entry in group.told if entry.event == "epoch_bumped"]
    assert triggers[-1] == "forced by an administrator"
    group.alter_configs({"group.rebalance.token": "1"}).is_done()
    assert group.group.epoch == epoch + 1
    group.alter_configs({"group.rebalance.token": "2"}).is_done()
    assert group.group.epoch == epoch + 2


def test_back_in_dynamic_mode_sessions_run_anew(group: StaticGroup) -> None:
    """S4: names stay; who is offline has a session to come back."""
    epoch = group.group.epoch
    group.away("a")
    group.run(10 * MINUTE)
    group.alter_configs({"group.membership": "dynamic"}).is_done()
    assert group.shard.groups.clocks == {}
    group.run(44_999)
    assert group.group.epoch == epoch
    group.run(1)
    assert group.group.epoch == epoch + 1 and "a" not in group.group.instance_ids
    assert sorted(group.group.instance_ids) == ["b", "c"]
    group.heartbeat("n", epoch=0)
    assert group.group.epoch == epoch + 2


def test_back_in_dynamic_mode_who_waited_gets_its_share(group: StaticGroup) -> None:
    epoch = group.group.epoch
    group.join("d")
    group.alter_configs({"group.membership": None}).is_done()
    group.settle()
    assert group.group.epoch == epoch + 1 and group.held()["d"]
    triggers = [dict(entry.details)["trigger"] for entry in group.told if entry.event == "epoch_bumped"]
    assert triggers[-1] == "group became dynamic"


def test_a_join_without_a_name_makes_a_stable_group_dynamic_if_it_may(group: StaticGroup) -> None:
    """KIP-345's draft: the first join of a stable group decides on the next round."""
    group.heartbeat("n", epoch=0).is_refused(NAMELESS_ERRORS[ConsumerGroupHeartbeat])
    group.alter_configs({"group.static.fallback": "join"}).is_done()
    group.away("a")
    group.heartbeat("n", epoch=0)
    assert group.configs()["group.membership"] == "dynamic" and group.shard.groups.clocks == {}
    assert "n" in group.group.members and "a" in group.group.instance_ids
    group.run(45_000)
    assert "a" not in group.group.instance_ids


def test_a_join_without_a_name_is_refused_while_the_group_is_not_stable(group: StaticGroup) -> None:
    group.alter_configs({"group.static.fallback": "join", "group.rebalance.token": "x"}).is_done()
    group.set_topics({"t": 9})
    assert group.group.epoch > group.group.target_epoch or state_of(group.group) != "Stable"
    group.heartbeat("n", epoch=0).is_refused(NAMELESS_ERRORS[ConsumerGroupHeartbeat])


def test_the_brokers_time_off_does_not_count(group: StaticGroup) -> None:
    epoch = group.group.epoch
    group.away("a")
    group.run(10 * MINUTE)
    group.restart()
    clock = group.shard.groups.clocks["g"]
    ran_ms = group.now_ms - (clock.offline_since("a") or 0)
    # It is noted twenty times in a timeout how far the clock has run.
    assert 10 * MINUTE - REGISTRATION // 20 <= ran_ms <= 10 * MINUTE
    group.run(REGISTRATION - ran_ms - 1)
    assert group.group.epoch == epoch
    group.run(1)
    assert group.group.epoch == epoch + 1


def test_topics_that_changed_while_the_broker_was_off_do_not_make_that_time_count(group: StaticGroup) -> None:
    """They close the window before the clock goes on, if they are told first; by a clock that is behind, too."""
    group.away("a")
    group.join("d")
    group.run(10 * MINUTE // 2 - 60_000)
    group.now_ms -= 60 * MINUTE
    group._topics["t"] = 8
    group.restart(topics_first=True)
    clock = group.shard.groups.clocks["g"]
    ran_ms = group.now_ms - (clock.offline_since("a") or 0)
    assert not clock.has_window and 0 < ran_ms <= 4 * MINUTE
    group.run(REGISTRATION - ran_ms)
    assert "a" not in group.group.instance_ids


def test_who_is_heard_of_after_a_restart_is_not_offline(group: StaticGroup) -> None:
    group.disconnect("a")
    group.restart()
    assert list(group.shard.groups.clocks["g"].offline) == ["a"]
    group.beat("a")
    assert group.shard.groups.clocks == {}


def test_a_slow_member_is_away_and_loses_no_more_than_it_was_asked_for(group: StaticGroup) -> None:
    """Who does not give up in time is fenced, and comes back to what its target leaves it."""
    group.join("d")
    group.alter_configs({"group.rebalance.token": "1"}).is_done()
    slow = next(name for name in "abc" if len(group.group.targets[name][group.topic_id("t")]) == 1)
    group.heartbeat(slow, epoch=group.group.members[slow].member_epoch, client_id=slow)
    del group.online[slow]
    epoch = group.group.epoch
    for _ in range(12):
        group.run(5_000)
        if slow in group.group.members and group.group.members[slow].member_epoch > 0:
            group.heartbeat(slow, epoch=group.group.members[slow].member_epoch, client_id=slow)
    assert group.group.members[slow].member_epoch == -2 and len(group.held()[slow]) == 1
    group.settle()
    assert group.group.epoch == epoch and group.held()["d"]


def test_a_described_member_is_offline_since_then(group: StaticGroup) -> None:
    group.away("a")
    reply = group.describe().body_as(asked.DescribeConsumerGroupReply)
    assert reply.is_static
    assert {each.instance_id: each.offline_since_ms for each in reply.members} == {"a": group.now_ms, "b": -1, "c": -1}
