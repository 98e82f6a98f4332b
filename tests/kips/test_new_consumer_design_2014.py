"""users@kafka, "New Consumer Design", July 2014: what the thread asks of the coordinator of a group."""

from __future__ import annotations

from random import Random

import pytest

from kohort.assign.assignors import built_in
from kohort.assign.kernels import count_moves
from kohort.coordinator.records.types import MemberState
from kohort.errors import ErrorCode
from support.builders.assignables import group_of, loads_of
from support.dialogues.coordinator_dialogue import GroupDialogue
from support.dialogues.good_client import Client, check_owners
from support.dialogues.hold_dialogue import HoldDialogue
from support.dialogues.moves import statuses, submit


def _change(random: Random, dialogue: GroupDialogue, clients: list[Client], alive: list[Client]) -> None:
    """One of the events that trigger a rebalance."""
    counts = dialogue.topic_counts
    match random.choice(["join", "leave", "fail", "return", "subscribe", "grow", "create", "delete", "make anew"]):
        case "join" if len(alive) < len(clients):
            alive.append(next(client for client in clients if client not in alive))
        case "leave" if len(alive) > 1:
            gone = alive.pop(random.randrange(len(alive)))
            dialogue.heartbeat(gone.name, epoch=-1)
            gone.forget()
        case "fail" if len(alive) > 1:
            # Silent for its session: whoever is alive heartbeats meanwhile.
            gone = alive.pop(random.randrange(len(alive)))
            gone.forget()
            for _ in range(3):
                dialogue.advance(ms=20_000)
                for client in alive:
                    client.step()
        case "return":
            client = random.choice(alive)
            if client.instance_id is not None and client.epoch > 0:
                dialogue.heartbeat(client.name, epoch=-2, instance_id=client.instance_id)
                client.forget()
                client.name += "'"
        case "subscribe":
            client = random.choice(alive)
            client.topics = tuple(random.sample(["t", "u"], random.randint(0, 2)))
            client.regex = random.choice([None, "v.*", ".*"])
            client.missed_an_answer = True
        case "grow" if counts:
            name = random.choice(sorted(counts))
            dialogue.set_topics({**counts, name: counts[name] + 1})
        case "create":
            dialogue.set_topics({f"v{random.randint(0, 2)}": 2, "t": 3, **counts})
        case "delete" | "make anew" as what if len(counts) > 1:
            name = random.choice(sorted(counts))
            dialogue.set_topics({each: count for each, count in counts.items() if each != name})
            if what == "make anew":
                dialogue.set_topics(counts)


def _settled(group: GroupDialogue, *member_ids: str) -> None:
    """Have members join one after the other, and come to rest."""
    for member_id in member_ids:
        group.heartbeat(member_id, epoch=0)
    group.settle()


@pytest.mark.large
@pytest.mark.parametrize("seed", range(30))
def test_consecutive_triggers_never_give_two_owners(seed: int) -> None:
    """Guozhang Wang, 16 July 2014: assignments that ride on heartbeats could get inconsistent where one trigger of a
    rebalance follows the other, for want of a barrier. Several triggers come before anybody has heard of the first."""
    random = Random(seed)
    interval_ms = random.choice([0, 0, 500])
    dialogue = GroupDialogue({"t": 3, "u": 2}, group_consumer_assignment_interval_ms=interval_ms)
    clients = [
        Client(dialogue, "a"),
        Client(dialogue, "b", topics=("t", "u"), instance_id="b"),
        Client(dialogue, "c", topics=("u",), regex="v.*"),
        Client(dialogue, "d", topics=(), regex=".*", instance_id="d"),
    ]
    alive = clients[:2]
    for _ in range(30):
        for _ in range(random.randint(1, 4)):
            _change(random, dialogue, clients, alive)
            check_owners(alive)
        for _ in range(random.randint(0, 3)):
            random.choice(alive).step(is_lost=random.random() < 0.15)
            check_owners(alive)
        dialogue.advance(ms=random.choice([0, 10, 600]))
    # Longer than a session: whoever left for a while and did not come back is gone then.
    for _ in range(20):
        for client in alive:
            client.step()
            check_owners(alive)
        dialogue.advance(ms=3_000)
    assert {member.state for member in dialogue.group.members.values()} == {MemberState.STABLE}
    assert dialogue.group.members.keys() == {client.name for client in alive}
    given = [each for owned in dialogue.holders().values() for each in owned]
    subscribed = dialogue.group.topic_subscribers
    counts = {name: count for name, count in dialogue.topic_counts.items() if name in subscribed}
    assert sorted(given) == sorted((name, number) for name, count in counts.items() for number in range(count))


def test_each_of_the_four_events_triggers_one_rebalance() -> None:
    """Guozhang Wang, 8 July 2014, on the rebalance: a failure, a join, a changed subscription, changed partitions."""
    group = GroupDialogue({"t": 2, "u": 1})
    group.heartbeat("a", epoch=0)
    assert group.group.epoch == 1
    group.heartbeat("b", epoch=0)
    assert group.group.epoch == 2
    group.settle()
    group.heartbeat("b", epoch=2, topics=["t", "u"])
    assert group.group.epoch == 3
    group.set_topics({"t": 3, "u": 1})
    assert group.group.epoch == 4
    group.settle()
    group.advance(ms=44_000)
    group.heartbeat("b", epoch=group.member("b").member_epoch)
    group.advance(ms=1_000)
    assert (group.group.epoch, set(group.group.members)) == (5, {"b"})


def test_members_follow_the_assignment_that_they_receive_and_run_none_of_their_own() -> None:
    """Guozhang Wang, 8 July 2014: consumers run no logic of assignment but take what the coordinator says."""
    group = GroupDialogue({"t": 2})
    group.heartbeat("a", epoch=0).replies(epoch=1, assigned=[0, 1])
    group.heartbeat("b", epoch=0).replies(epoch=2, assigned=[])
    group.heartbeat("a", epoch=1).replies(epoch=1, assigned=[0])


def test_new_topics_that_a_wildcard_matches_are_picked_up() -> None:
    """Guozhang Wang, 8 July 2014, on wildcard consumption; here the coordinator sees the topic itself."""
    group = GroupDialogue({"orders-eu": 1})
    group.heartbeat("a", epoch=0, topics=[], subscribed_topic_regex="orders-.*")
    group.set_topics({"orders-eu": 1, "orders-us": 1})
    group.heartbeat("a", epoch=1).replies(epoch=2, assigned={"orders-eu": [0], "orders-us": [0]})


def test_commit_of_somebody_who_is_not_in_the_group_is_refused() -> None:
    """Guozhang Wang, 8 July 2014, moving forward: one coordinator for members and offsets can refuse strangers."""
    group = GroupDialogue()
    group.stable(a=[0, 1])
    group.commit({0: 7}, member_id="stranger", epoch=1).is_refused(ErrorCode.UNKNOWN_MEMBER_ID)
    group.commit({0: 7}, member_id="a", epoch=2).is_refused(ErrorCode.STALE_MEMBER_EPOCH)
    assert group.committed() == {}


def test_fourth_consumer_takes_one_partition_of_each_and_only_those_pause() -> None:
    """Robert Withers, 16 July 2014, steps 1 to 9: three members lose one partition each, the others go on; the new
    member gets each one when its loser has committed and let go of it, not waiting for the rest."""
    group = GroupDialogue({"t": 12})
    _settled(group, "a", "b", "c")
    group.heartbeat("d", epoch=0).replies(epoch=4, assigned=[])
    lost = {}
    for member_id in ("a", "b", "c"):
        before = set(group.member(member_id).assigned[group.topic_id("t")])
        group.heartbeat(member_id, epoch=3)
        kept = set(group.member(member_id).assigned[group.topic_id("t")])
        (lost[member_id],) = before - kept
        assert group.commit(dict.fromkeys(kept, 5), member_id=member_id, epoch=3).errors() == (0,) * 3
    for count, member_id in enumerate(("a", "b", "c"), start=1):
        assert group.commit({lost[member_id]: 9}, member_id=member_id, epoch=3).errors() == (ErrorCode.NONE,)
        kept = sorted(group.member(member_id).assigned[group.topic_id("t")])
        group.heartbeat(member_id, epoch=3, owned=kept)
        group.heartbeat("d", epoch=4)
        assert len(group.holders()["d"]) == count
    assert {number for _, number in group.holders()["d"]} == set(lost.values())


def test_commit_says_that_it_is_the_last_and_the_gainer_is_told_at_that_moment() -> None:
    """Robert Withers, 16 July 2014, steps 8 and 9: an existing consumer commits and sends a
    PartitionCommittedNotification; as the coordinator receives it, it sends the addPartition to the new consumer."""
    group = HoldDialogue({"t": 12})
    _settled(group, "a", "b", "c")
    group.heartbeat("d", epoch=0).replies(epoch=4, assigned=[])
    given: set[int] = set()
    for count, member_id in enumerate(("a", "b", "c"), start=1):
        before = set(group.member(member_id).assigned[group.topic_id("t")])
        group.heartbeat(member_id, epoch=3)
        (lost,) = before - set(group.member(member_id).assigned[group.topic_id("t")])
        waiting = group.watch("d", epoch=4, knows=given)
        assert waiting.is_parked
        # One request is both: the commit is stored before the partition is free.
        group.commit({lost: 9}, member_id=member_id, epoch=3, released=group.partitions([lost]))
        group.tell_news()
        given.add(lost)
        waiting.replies(epoch=4, assigned=given)
        assert group.committed([lost]) == {lost: 9}
        assert len(group.holders()["d"]) == count


def test_failure_of_a_member_with_one_partition_concerns_one_other() -> None:
    """Jay Kreps, 21 July 2014, suggestion 1: only the consumer that picks the partition up should be affected."""
    group = GroupDialogue({"t": 4})
    _settled(group, "a", "b", "c", "d")
    group.leave("d")
    told = []
    for member_id in ("a", "b", "c"):
        answer = group.heartbeat(member_id, epoch=4)
        if answer.body.assignment is not None:  # type: ignore[union-attr]
            told.append(member_id)
    assert len(told) == 1


def test_consumer_negotiates_how_often_it_heartbeats() -> None:
    """Guozhang Wang, 8 July 2014, failure detection: the interval is the consumer's to ask for, since a rebalance takes
    no less, and the coordinator's to bound, so that nobody floods it."""
    settings = {"group_heartbeat_rate_max": 1, "group_consumer_rebalance_heartbeat_interval_ms": 0}
    group = GroupDialogue({"t": 1}, **settings)
    answer = group.heartbeat("a", epoch=0, proposed_heartbeat_interval_ms=1_000)
    answer.replies(epoch=1, assigned=[0], interval=1_000)
    group.heartbeat("a", epoch=1, proposed_heartbeat_interval_ms=1).replies(epoch=1, interval=1_000)
    group.heartbeat("a", epoch=1, proposed_heartbeat_interval_ms=60_000).replies(epoch=1, interval=15_000)
    group.heartbeat("a", epoch=1).replies(epoch=1, interval=5_000)


@pytest.mark.large
def test_consumers_that_come_for_a_moment_cost_the_others_no_more_than_they_take() -> None:
    """Baran Nohutçuoğlu, 14 July 2014: a high number of consumers that come online, consume for a short time and are
    never seen again. Whoever stays gives up what the guest takes, and gets back what it leaves."""
    group = GroupDialogue({"t": 24})
    _settled(group, "a", "b", "c")
    epochs = group.group.epoch
    for number in range(20):
        before = group.holders()
        _settled(group, f"guest-{number}")
        during = group.holders()
        given = {name: before[name] - during[name] for name in before}
        assert set().union(*given.values()) == during[f"guest-{number}"], "nothing moves between those who stay"
        assert sorted(map(len, given.values())) == [2, 2, 2]
        group.leave(f"guest-{number}")
        group.settle()
        after = group.holders()
        assert all(during[name] <= after[name] for name in after), "who leaves takes nothing from anybody"
    assert group.group.epoch == epochs + 40


def test_consumer_names_its_own_algorithm_and_one_that_is_not_there_is_rejected() -> None:
    """Guozhang Wang, 8 July 2014: users write an assignor of their own after a common interface, and name it when they
    register. Where members of a group ask for different ones the protocol that came of it counts votes (KIP-848)."""
    group = GroupDialogue({"t": 2}, group_consumer_assignors=("uniform", "mine"), own_assignors=("mine",))
    group.heartbeat("a", epoch=0, server_assignor="mine").replies(epoch=1, assigned=[])
    (order,) = group.computations
    assert order.assignor == "mine"
    group.computed([0, 0])
    group.heartbeat("a", epoch=1).replies(epoch=2, assigned=[0, 1])
    group.heartbeat("b", epoch=0, server_assignor="theirs").is_refused(
        ErrorCode.UNSUPPORTED_ASSIGNOR, saying="uniform, mine"
    )
    assert group.group.members.keys() == {"a"}


def test_consumer_whose_algorithm_is_not_that_of_its_group_is_rejected_where_the_group_is_told_so() -> None:
    """The consumer rebalance design's registration: who names another assignment than its group has is refused. Where
    nothing is set members vote, as in KIP-848."""
    group = GroupDialogue({"t": 2}, group_consumer_assignor_mismatch="refuse")
    group.heartbeat("a", epoch=0, server_assignor="range")
    group.heartbeat("b", epoch=0, server_assignor="sticky").is_refused(
        ErrorCode.UNSUPPORTED_ASSIGNOR, saying="uses the assignor range, not sticky"
    )
    assert group.group.members.keys() == {"a"}


def test_few_moves_may_be_worth_more_than_an_even_load() -> None:
    """Jay Kreps, 21 July 2014, suggestion 1, its last sentence: all load to one consumer interrupts little and balances
    badly. Which of the two counts is a setting here."""
    even, calm = GroupDialogue({"t": 12}), GroupDialogue({"t": 12}, group_assignor_imbalance=20)
    for group in (even, calm):
        _settled(group, "a", "b", "c")
        group.leave("c")
        _settled(group, "d")
    assert sorted(map(len, even.holders().values())) == [4, 4, 4]
    kept = calm.holders()
    assert sum(map(len, kept.values())) == 12
    _settled(calm, "e")
    assert calm.holders() == {**kept, "e": set()}, "nobody gives anything up"


def test_rebalance_is_arithmetic_over_arrays() -> None:
    """Robert Withers, 18 July 2014, its last question: could a rebalance be reduced to operations on matrices? One
    array says who owns each partition; what moves, and how even it is, are operations on two of them."""
    before = group_of({"t": 6}, {"a": ["t"], "b": ["t"], "c": ["t"]}, owner=[0, 0, 0, 1, 1, 1])
    assignor = built_in("uniform")
    assert assignor is not None
    after = assignor.assign(before)
    assert after.typecode == "i"
    assert list(loads_of(after, 3)) == [2, 2, 2]
    assert count_moves(before.owner, after) == 2
    assert [old == new for old, new in zip(before.owner, after, strict=True)].count(False) == 2


def test_load_creeps_to_a_newcomer_one_partition_a_second() -> None:
    """Robert Withers, 18 July 2014: rebalance one partition per second so as to creep load to a new consumer; for the
    others it looks like the lag of single partitions."""
    group = GroupDialogue({"t": 12}, group_moves_per_second=1.0)
    _settled(group, "a", "b", "c")
    for _ in range(12):
        group.advance(ms=1_000)
        group.settle()
    before = group.holders()
    group.heartbeat("d", epoch=0)
    seen = []
    for _ in range(4):
        group.advance(ms=1)
        group.settle()
        after = group.holders()
        seen.append((len(after["d"]), sum(len(before[name] - after[name]) for name in "abc")))
        group.advance(ms=999)
    assert seen == [(1, 1), (2, 2), (3, 3), (3, 3)]


def test_switch_is_complete_when_the_loser_has_committed_and_the_new_consumer_has_it() -> None:
    """Robert Withers, 21 July 2014: a SwitchPartition awaits the commit of the consumer that loses the partition, and
    its local work, before its completion is confirmed; then the new consumer is informed. The heartbeat stays."""
    group = GroupDialogue({"t": 2})
    group.stable(a=[0], b=[1])
    submit(group, {0: "b"})
    group.heartbeat("a", epoch=2).replies(epoch=2, assigned=[])
    group.advance(ms=10_000)
    assert [move.phase for move in statuses(group)] == ["fenced"]
    group.heartbeat("b", epoch=2).replies(epoch=3)
    assert group.commit({0: 9}, member_id="a", epoch=2).errors() == (ErrorCode.NONE,)
    group.heartbeat("a", epoch=2, owned=[])
    assert [move.phase for move in statuses(group)] == ["committed"]
    group.heartbeat("b", epoch=3).replies(epoch=3, assigned=[0, 1])
    assert [move.phase for move in statuses(group)] == ["granted"]


def test_a_scheduler_beside_the_group_moves_what_nothing_else_moves() -> None:
    """Robert Withers, 21 July 2014: the rebalancer is a scheduler outside that issues SwitchPartition commands."""
    group = GroupDialogue({"t": 4}, group_assignor="external")
    _settled(group, "a", "b")
    owned = group.holders()
    assert sorted(map(len, owned.values())) == [0, 4], "who comes later waits for the scheduler"
    (idle,) = (name for name, found in owned.items() if not found)
    submit(group, dict.fromkeys(range(2), idle))
    group.settle()
    _settled(group, "c")
    assert {name: len(found) for name, found in group.holders().items()} == {**dict.fromkeys("ab", 2), "c": 0}
    group.leave(idle)
    group.settle()
    assert len(group.holders()["c"]) == 2, "what nobody owns is given out"


def test_partition_is_open_to_one_consumer_at_a_time_and_its_offset_goes_with_it() -> None:
    """Robert Withers, 18 July 2014: a rebalance closes a partition to one consumer and opens it to another, after the
    commit of the first; and 21 July: that one may finish its local work before it confirms."""
    group = GroupDialogue({"t": 2})
    _settled(group, "a")
    group.heartbeat("b", epoch=0)
    group.heartbeat("a", epoch=1).replies(epoch=1, assigned=[0])
    for _ in range(3):
        group.advance(ms=10_000)
        group.heartbeat("a", epoch=1).replies(epoch=1)
        group.heartbeat("b", epoch=2).replies(epoch=2)
        assert group.commit({1: 3}, member_id="b", epoch=2).errors() == (ErrorCode.STALE_MEMBER_EPOCH,)
    assert group.commit({1: 7}, member_id="a", epoch=1).errors() == (ErrorCode.NONE,)
    group.heartbeat("a", epoch=1, owned=[0]).replies(epoch=2)
    group.heartbeat("b", epoch=2).replies(epoch=2, assigned=[1])
    assert group.commit({1: 8}, member_id="a", epoch=1).errors() == (ErrorCode.STALE_MEMBER_EPOCH,)
    assert group.committed([1]) == {1: 7}
