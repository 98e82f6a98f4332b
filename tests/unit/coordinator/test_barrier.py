"""Each partition is handed over on its own: no open revocation keeps a member from what concerns others (H3)."""

from __future__ import annotations

import pytest

from kohort.coordinator.records.types import MemberState
from kohort.errors import ErrorCode
from support.dialogues.coordinator_dialogue import GroupDialogue
from support.dialogues.moves import submit


@pytest.fixture
def giving() -> GroupDialogue:
    """Member a is asked for 2 and 3 and still has them; b, who shall have them, waits."""
    group = GroupDialogue({"t": 4})
    group.rebalance_timeout_ms = 10_000
    group.stable(a=[0, 1, 2, 3])
    group.heartbeat("b", epoch=0).replies(epoch=2, assigned=[])
    group.heartbeat("a", epoch=1).replies(epoch=1, assigned=[0, 1])
    return group


def test_what_is_free_is_taken_while_something_else_is_still_to_be_given_up(giving: GroupDialogue) -> None:
    giving.set_topics({"t": 8})
    giving.fire_due()

    giving.heartbeat("a", epoch=1).replies(epoch=3, assigned=[0, 1, 4, 6])

    assert giving.member("a").state == MemberState.UNREVOKED_PARTITIONS
    giving.heartbeat("b", epoch=2).replies(epoch=3, assigned=[5, 7])
    giving.heartbeat("a", epoch=3, owned=[0, 1, 4, 6]).replies(epoch=3, assigned=None)
    giving.heartbeat("b", epoch=3).replies(epoch=3, assigned=[2, 3, 5, 7])


def test_a_newer_revocation_is_told_while_an_older_one_is_open(giving: GroupDialogue) -> None:
    giving.heartbeat("c", epoch=0)
    giving.heartbeat("d", epoch=0)

    giving.heartbeat("a", epoch=1).replies(epoch=1, assigned=[0])

    # What was asked last is given up first.
    giving.heartbeat("a", epoch=1, owned=[0, 2, 3]).replies(epoch=1, assigned=None)
    assert giving.group.holders[giving.topic_id("t")] == {0: "a", 2: "a", 3: "a"}


def test_what_a_newer_target_gives_back_is_granted_again_once_it_was_given_up(giving: GroupDialogue) -> None:
    giving.leave("b")

    giving.heartbeat("a", epoch=1).replies(epoch=1, assigned=None)
    giving.heartbeat("a", epoch=1, owned=[0, 1, 3]).replies(epoch=3, assigned=[0, 1, 2])
    giving.heartbeat("a", epoch=3, owned=[0, 1, 2]).replies(epoch=3, assigned=[0, 1, 2, 3])


def test_a_lost_answer_that_gave_something_is_given_again_to_who_still_has_something_to_give_up(
    giving: GroupDialogue,
) -> None:
    giving.set_topics({"t": 8})
    giving.fire_due()
    giving.heartbeat("a", epoch=1).replies(epoch=3, assigned=[0, 1, 4, 6])

    giving.heartbeat("a", epoch=1, owned=[0, 1, 2, 3], full=True).replies(epoch=3, assigned=[0, 1, 4, 6])

    giving.heartbeat("a", epoch=1, owned=[0, 1, 2, 3, 5]).is_refused(ErrorCode.FENCED_MEMBER_EPOCH)


def test_what_is_still_to_be_given_up_is_committed_with_the_epoch_of_before_and_with_the_new_one(
    giving: GroupDialogue,
) -> None:
    giving.set_topics({"t": 8})
    giving.fire_due()
    giving.heartbeat("a", epoch=1)
    for epoch in (1, 3):
        assert giving.commit({2: 10 + epoch}, member_id="a", epoch=epoch).errors() == (ErrorCode.NONE,)

    giving.heartbeat("a", epoch=3, owned=[0, 1])
    giving.heartbeat("b", epoch=2)

    for epoch in (1, 3):
        assert giving.commit({2: 99}, member_id="a", epoch=epoch).errors() == (ErrorCode.STALE_MEMBER_EPOCH,)
    assert giving.committed([2]) == {2: 13}


def test_a_newer_revocation_prolongs_no_older_one(giving: GroupDialogue) -> None:
    giving.advance(ms=9_000)
    giving.heartbeat("c", epoch=0)
    giving.heartbeat("d", epoch=0)
    giving.heartbeat("a", epoch=1).replies(epoch=1, assigned=[0])

    giving.advance(ms=1_000)

    assert "a" not in giving.group.members


@pytest.mark.parametrize("restarts", [False, True])
def test_a_newer_revocation_has_its_own_time(giving: GroupDialogue, restarts: bool) -> None:
    giving.advance(ms=9_000)
    giving.heartbeat("c", epoch=0)
    giving.heartbeat("d", epoch=0)
    giving.heartbeat("a", epoch=1).replies(epoch=1, assigned=[0])
    if restarts:
        giving.restart()
    giving.heartbeat("a", epoch=1, owned=[0, 1]).replies(epoch=1, assigned=None)

    giving.advance(ms=9_999)
    assert "a" in giving.group.members

    giving.advance(ms=1)
    assert "a" not in giving.group.members


def test_who_still_has_something_of_a_topic_that_is_gone_takes_nothing(giving: GroupDialogue) -> None:
    """Clients tell topics by name: to them a partition of the topic that was made again is one that they have."""
    giving.set_topics({})
    giving.set_topics({"t": 4})
    giving.fire_due()

    giving.heartbeat("a", epoch=1).replies(epoch=1, assigned=[])
    giving.heartbeat("a", epoch=1, owned=[]).replies(epoch=giving.group.epoch, assigned=[0, 2])


@pytest.fixture
def taking(giving: GroupDialogue) -> GroupDialogue:
    """Member a still has 2 and 3, was given 4 and 6, and shall not have 6 any more."""
    giving.set_topics({"t": 8})
    giving.fire_due()
    giving.heartbeat("a", epoch=1).replies(epoch=3, assigned=[0, 1, 4, 6])
    submit(giving, {6: "b"})
    return giving


def test_a_list_that_is_older_than_a_grant_does_not_release_it(taking: GroupDialogue) -> None:
    """The client may be about to take what it was given: it would do so while somebody else has it."""
    taking.heartbeat("a", epoch=3, owned=[0, 1, 2]).replies(epoch=3, assigned=None)
    taking.heartbeat("a", epoch=3, owned=[0, 1]).replies(epoch=3, assigned=None)
    taking.heartbeat("b", epoch=2).replies(epoch=4, assigned=[2, 3, 5, 7])

    taking.heartbeat("a", epoch=3, owned=[0, 1, 4, 6]).replies(epoch=3, assigned=[0, 1, 4])
    taking.heartbeat("a", epoch=3, owned=[0, 1, 4]).replies(epoch=4, assigned=None)
    taking.heartbeat("b", epoch=4).replies(epoch=4, assigned=[2, 3, 5, 6, 7])


def test_what_was_given_by_an_answer_that_was_lost_is_not_released_by_a_list_without_it() -> None:
    """Seed 573: the next answer gives it again, and asks for something else that has to be given up first."""
    group = GroupDialogue({"t": 4})
    group.stable(a=[0, 1], b=[2, 3])
    group.set_topics({"t": 5})
    group.fire_due()
    group.heartbeat("a", epoch=2).replies(epoch=3, assigned=[0, 1, 4])
    submit(group, {1: "b"})
    group.heartbeat("a", epoch=2, owned=[0, 1]).replies(epoch=3, assigned=[0, 4])
    submit(group, {4: "b"})

    group.heartbeat("a", epoch=3, owned=[0, 1])
    group.heartbeat("a", epoch=3, owned=[0])
    group.heartbeat("b", epoch=2).replies(epoch=5, assigned=[1, 2, 3])

    group.heartbeat("a", epoch=3, owned=[0, 4]).replies(epoch=3, assigned=[0])
    group.heartbeat("a", epoch=3, owned=[0])
    group.heartbeat("b", epoch=5).replies(epoch=5, assigned=[1, 2, 3, 4])


def test_a_client_that_never_says_that_it_took_something_is_asked_for_it_in_the_end(taking: GroupDialogue) -> None:
    taking.heartbeat("a", epoch=3, owned=[0, 1])
    taking.advance(ms=9_999)
    taking.heartbeat("a", epoch=3).replies(epoch=3, assigned=None)

    taking.advance(ms=1)

    taking.heartbeat("a", epoch=3).replies(epoch=3, assigned=[0, 1, 4])
    taking.advance(ms=10_000)
    assert "a" not in taking.group.members


def test_a_broker_that_stood_still_gives_everybody_that_much_longer(giving: GroupDialogue) -> None:
    giving.advance(ms=9_000)
    giving.shard.shift(60_000)
    giving.now_ms += 60_000

    giving.heartbeat("a", epoch=1, owned=[0, 1, 2])

    giving.advance(ms=999)
    assert "a" in giving.group.members
    giving.advance(ms=1)
    assert "a" not in giving.group.members


@pytest.mark.parametrize("restarts", [False, True])
def test_what_was_given_bit_by_bit_is_not_free_for_a_list_without_it(giving: GroupDialogue, restarts: bool) -> None:
    """A client in its callback takes all of it when that ends, and lists what it owns meanwhile if it connects anew."""
    for count in (8, 12):
        giving.set_topics({"t": count})
        giving.fire_due()
        giving.heartbeat("a", epoch=giving.member("a").member_epoch)
    given = sorted(giving.member("a").assigned[giving.topic_id("t")].keys() - {0, 1})
    assert len(given) == 4, "two of each growth"
    if restarts:
        giving.restart()
    submit(giving, dict.fromkeys(given, "b"))

    giving.heartbeat("a", epoch=giving.member("a").member_epoch, owned=[0, 1, 2, 3], full=True)

    assert {giving.group.holders[giving.topic_id("t")][each] for each in given} == {"a"}
