"""KIP-345, static membership, for members of the consumer protocol; its names are those of KIP-345 as shipped."""

from __future__ import annotations

from kohort.coordinator import commands
from kohort.coordinator.records.types import ConsumerGroupEpochSet, MemberTargetSet
from kohort.errors import ErrorCode
from support.dialogues.coordinator_dialogue import GroupDialogue


def static_group(*names: str, partitions: int = 6) -> GroupDialogue:
    """Members "m-NAME" called NAME, at rest."""
    group = GroupDialogue({"t": partitions})
    for name in names:
        group.heartbeat(f"m-{name}", epoch=0, instance_id=name)
    group.settle()
    group.new_records()
    return group


def test_a_member_that_comes_back_under_its_name_causes_no_rebalance() -> None:
    """The draft's goal, in its paragraph on member transfer: intermittent failures shall not be several rebalances."""
    group = static_group("x", "y", "z")
    held = group.holders()["m-x"]
    for restart in range(3):
        old, new = ("m-x", "p-0") if restart == 0 else (f"p-{restart - 1}", f"p-{restart}")
        group.heartbeat(old, epoch=-2, instance_id="x")
        group.heartbeat(new, epoch=0, instance_id="x")
        assert group.holders()[new] == held
    group.heartbeat("m-y", epoch=3, instance_id="y").replies(epoch=3, assigned=None)
    assert group.group.epoch == 3
    assert not [record for record in group.new_records() if isinstance(record, ConsumerGroupEpochSet)]


def test_all_members_restart_one_by_one_and_nothing_moves() -> None:
    """A rolling bounce: the draft's registration timeout is there so that it costs nothing."""
    group = static_group("x", "y", "z")
    before = {name: group.holders()[f"m-{name}"] for name in "xyz"}
    for name in "xyz":
        group.heartbeat(f"m-{name}", epoch=-2, instance_id=name)
        group.heartbeat(f"new-{name}", epoch=0, instance_id=name)
    assert {name: group.holders()[f"new-{name}"] for name in "xyz"} == before
    assert group.group.epoch == 3


def test_a_member_that_stays_away_is_kicked_out_in_the_end_with_one_rebalance() -> None:
    """The paragraph on the registration timeout: the broker does not wait for ever; then one final rebalance."""
    group = static_group("x", "y")
    group.heartbeat("m-x", epoch=-2, instance_id="x")
    for _ in range(4):
        group.advance(ms=11_000)
        group.heartbeat("m-y", epoch=2, instance_id="y").replies(epoch=2, assigned=None)
    group.advance(ms=1_000)
    epochs = [record for record in group.new_records() if isinstance(record, ConsumerGroupEpochSet)]
    assert len(epochs) == 1
    group.heartbeat("m-y", epoch=2, instance_id="y").replies(epoch=3, assigned=range(6))


def test_the_earliest_of_several_absent_members_goes_first() -> None:
    """The same paragraph: what counts is when the member was last heard of, each for itself."""
    group = static_group("x", "y", "z")
    group.heartbeat("m-x", epoch=-2, instance_id="x")
    group.advance(ms=20_000)
    group.heartbeat("m-y", epoch=3, instance_id="y")
    group.heartbeat("m-z", epoch=3, instance_id="z")
    group.heartbeat("m-y", epoch=-2, instance_id="y")
    group.advance(ms=25_000)
    assert set(group.group.instance_ids) == {"y", "z"}
    group.advance(ms=20_000)
    assert group.group.instance_ids == {}


def test_commits_carry_the_name_and_a_replaced_process_is_fenced() -> None:
    """The draft adds the member's name to OffsetCommit: whoever lost it does not overwrite its successor's offsets."""
    group = static_group("x")
    assert group.commit({0: 5}, member_id="m-x", epoch=1, instance_id="x").errors() == (ErrorCode.NONE,)
    group.heartbeat("m-x", epoch=-2, instance_id="x")
    group.heartbeat("new", epoch=0, instance_id="x")
    group.commit({0: 3}, member_id="m-x", epoch=1, instance_id="x").is_refused(ErrorCode.FENCED_INSTANCE_ID)
    group.commit({0: 3}, member_id="m-x", epoch=1).is_refused(ErrorCode.UNKNOWN_MEMBER_ID)
    assert group.commit({0: 6}, member_id="new", epoch=1, instance_id="x").errors() == (ErrorCode.NONE,)
    assert group.committed([0], member_id="new", member_epoch=1) == {0: 6}


def test_two_live_holders_of_one_name_are_told_apart() -> None:
    """As shipped: a duplicate is an error in a configuration; with KIP-848 the later one is refused."""
    group = static_group("x")
    group.heartbeat("double", epoch=0, instance_id="x").is_refused(ErrorCode.UNRELEASED_INSTANCE_ID)
    group.heartbeat("m-x", epoch=1, instance_id="x").replies(epoch=1, assigned=None)
    group.heartbeat("double", epoch=1, instance_id="x").is_refused(ErrorCode.FENCED_INSTANCE_ID)


def test_a_name_that_nobody_bears_is_unknown() -> None:
    """As shipped: a static member that was removed has to join anew."""
    group = static_group("x")
    group.heartbeat("m-x", epoch=1, instance_id="gone").is_refused(ErrorCode.UNKNOWN_MEMBER_ID)
    group.heartbeat("m-x", epoch=-1, instance_id="gone").is_refused(ErrorCode.UNKNOWN_MEMBER_ID)


def test_an_administrator_scales_down_by_name() -> None:
    """As shipped, the part on scaling down: members are removed by instance id in one request, with one rebalance."""
    group = static_group("x", "y", "z")
    gone = tuple(commands.LeavingMember(member_id="", instance_id=name) for name in ("x", "y"))
    group.ask(commands.LeaveGroup(cause=group.cause(), request=group.request(), group_id="g", members=gone))
    records = group.new_records()
    assert len([record for record in records if isinstance(record, ConsumerGroupEpochSet)]) == 1
    assert len([record for record in records if isinstance(record, MemberTargetSet)]) == 1
    assert group.group.instance_ids == {"z": "m-z"}


def test_falling_back_to_dynamic_membership_needs_no_other_change() -> None:
    """The draft's paragraph on falling back: members that no longer say a name are treated as dynamic ones."""
    group = static_group("x", "y")
    group.heartbeat("m-x", epoch=-1, instance_id="x")
    group.heartbeat("dynamic", epoch=0)
    group.settle()
    assert {member.instance_id for member in group.group.members.values()} == {None, "y"}
    group.heartbeat("dynamic", epoch=-2).is_refused(ErrorCode.INVALID_REQUEST, saying="InstanceId")


def test_names_survive_a_restart_of_the_broker() -> None:
    """As shipped: the mapping of names is part of the group's durable state."""
    group = static_group("x", "y")
    group.heartbeat("m-x", epoch=-2, instance_id="x")
    group.restart()
    group.heartbeat("new", epoch=0, instance_id="x")
    assert (len(group.holders()["new"]), group.group.epoch) == (3, 2)
