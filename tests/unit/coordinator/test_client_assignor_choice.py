"""Which assignor of its members a group uses, and what members may say of theirs."""

from __future__ import annotations

from typing import Any

import pytest

from kohort.coordinator.commands import ClientAssignor, Refusal
from kohort.coordinator.commands import admin as asked
from kohort.coordinator.consumer.client_assignors.assignor_metadata import (
    MOST_ASSIGNORS,
    MOST_METADATA_BYTES,
    MOST_METADATA_BYTES_OF_GROUP,
    check_room,
)
from kohort.coordinator.consumer.client_assignors.state import ClientAssignorState
from kohort.coordinator.model import ConsumerGroup
from kohort.coordinator.records.types import ClientAssignorsForgotten
from kohort.errors import ErrorCode, Refused
from support.dialogues.client_assignors import assignor, beat, compute, given, is_asked, join
from support.dialogues.coordinator_dialogue import GroupDialogue
from support.dialogues.mixed_dialogue import MixedDialogue


def chosen(group: GroupDialogue) -> str:
    """The assignor that tools are told."""
    name: str = group.describe().body_as(asked.DescribeConsumerGroupReply).assignor_name
    return name


def of_members(*members: tuple[ClientAssignor, ...]) -> GroupDialogue:
    """A group whose members have these assignors."""
    group = GroupDialogue({"t": 4})
    for name, assignors in zip("abcdef", members, strict=False):
        group.heartbeat(name, epoch=0, client_assignors=assignors)
    return group


def test_used_is_what_all_members_have_and_most_like_best() -> None:
    """KIP-848 as drafted: the highest preference that all members have."""
    x, y, z = assignor("x"), assignor("y"), assignor("z")
    assert chosen(of_members((x, y))) == "x"
    assert chosen(of_members((x, y), (y, z))) == "y"
    assert chosen(of_members((x, y), (y, x), (y, x))) == "y"
    assert chosen(of_members((y, x), (x, y))) == "x", "the first by name of equals"
    assert chosen(of_members((z, x, y), (y, x), (y, x))) == "y", "what not all have gets no vote"
    assert chosen(of_members((x,), (y,))) == "uniform"


def test_first_member_of_a_group_whose_assignor_is_set_has_its_target_at_once() -> None:
    """Whatever it can compute: nobody is waited for, so no empty target comes first."""
    group = GroupDialogue({"t": 4}, group_assignor="uniform")
    join(group, "a").replies(epoch=1, assigned=[0, 1, 2, 3])
    assert group.group.target_epoch == group.group.epoch == 1


def test_who_has_none_leaves_it_to_the_server() -> None:
    group = of_members((assignor(),))
    assert is_asked(beat(group, "a"))
    group.heartbeat("b", epoch=0)
    assert chosen(group) == "uniform"
    assert group.group.target_epoch == group.group.epoch == 3
    assert not is_asked(beat(group, "a"))
    group.leave("b")
    assert chosen(group) == "mine"
    assert is_asked(beat(group, "a"))


def test_a_classic_member_leaves_it_to_the_server() -> None:
    """Nobody of the classic protocol can compute, or says what it could."""
    group = MixedDialogue({"t": 4}, group_consumer_migration_policy="bidirectional")
    join(group, "a")
    compute(group, "a", 0, 0, 0, 0)
    group.settle()
    group.client("x").send_join()
    assert chosen(group) == "uniform"
    assert group.group.computing is None


def test_versions_have_to_meet() -> None:
    """KIP-268: the highest version that all have; where there is none, that assignor is out."""
    group = of_members((assignor(low=1, high=4),), (assignor(low=2, high=3),))
    assert (given(group, "a").assignor, given(group, "a").version) == ("mine", 3)
    group = of_members((assignor(low=1, high=2), assignor("y")), (assignor(low=3, high=4), assignor("y")))
    assert chosen(group) == "y"
    assert chosen(of_members((assignor(low=1, high=2),), (assignor(low=3, high=4),))) == "uniform"


def test_another_version_is_another_choice_and_is_computed_anew() -> None:
    group = of_members((assignor(low=1, high=4),))
    compute(group, "a", 0, 0, 0, 0)
    group.settle()
    epoch = group.group.epoch
    assert is_asked(beat(group, "a", client_assignors=(assignor(low=1, high=2),)))
    assert group.group.epoch == epoch + 1
    assert given(group, "a").version == 2


def test_what_an_administrator_has_set_goes_before() -> None:
    group = of_members((assignor(),))
    group.alter_configs({"group.assignor": "range"})
    assert chosen(group) == "range"
    group.fire_due()
    group.heartbeat("b", epoch=0, client_assignors=(assignor(),))
    assert group.group.target_epoch == group.group.epoch


@pytest.mark.parametrize(
    ("low", "high", "version", "why"),
    [
        (3, 2, 3, "MinimumVersion 3 and MaximumVersion 2 leave no version"),
        (-1, 2, 0, "MinimumVersion -1 and MaximumVersion 2 leave no version"),
        (1, 2, 3, "MetadataVersion 3 is not between MinimumVersion 1 and MaximumVersion 2"),
        (1, 2, 0, "MetadataVersion 0 is not between MinimumVersion 1 and MaximumVersion 2"),
    ],
)
def test_versions_that_cannot_be_are_refused_and_named(low: int, high: int, version: int, why: str) -> None:
    """Issue 14: a range that leaves no version is UNSUPPORTED_ASSIGNOR, naming both."""
    group = GroupDialogue({"t": 4})
    answer = join(group, "a", assignor(low=low, high=high, version=version))
    answer.is_refused(ErrorCode.UNSUPPORTED_ASSIGNOR, saying=f"the client assignor mine cannot be used: {why}")
    assert "g" not in group.shard.groups.consumer


@pytest.mark.parametrize(
    ("assignors", "why"),
    [
        ([assignor(f"a{number}") for number in range(MOST_ASSIGNORS + 1)], "has 17 assignors, more than 16"),
        ([assignor(""), assignor("b")], "a Name in ClientAssignors is empty"),
        ([assignor("b" * 250)], "longer than 249 characters"),
        ([assignor("b"), assignor("b", 2, 3)], "has b more than once"),
        ([assignor("b", metadata=b"!" * (MOST_METADATA_BYTES + 1))], "take 65537 bytes, more than 65536"),
    ],
)
def test_bounds_of_what_a_member_says(assignors: list[ClientAssignor], why: str) -> None:
    group = GroupDialogue({"t": 4})
    join(group, "a", *assignors).is_refused(ErrorCode.INVALID_REQUEST, saying=why)
    join(group, "a")
    beat(group, "a", client_assignors=tuple(assignors)).is_refused(ErrorCode.INVALID_REQUEST, saying=why)
    assert [each.name for each in side(group).assignors["a"]] == ["mine"]


def side(group: GroupDialogue) -> Any:
    """What is known of assignors that members run."""
    found = group.group.client_assignors
    assert found is not None
    return found


def test_the_metadata_of_a_group_are_bounded() -> None:
    """16 MiB: who has more to say then is refused, who has less than before is not."""
    full, group = (assignor(metadata=b"!" * MOST_METADATA_BYTES),), ConsumerGroup("g")
    check_room(group, (), full)
    group.client_assignors = ClientAssignorState()
    for number in range(MOST_METADATA_BYTES_OF_GROUP // MOST_METADATA_BYTES):
        group.client_assignors.put(f"m{number}", full)
    with pytest.raises(Refused, match="may take 16777216 bytes") as refused:
        check_room(group, (), (assignor(metadata=b"!"),))
    assert refused.value.code == ErrorCode.GROUP_MAX_SIZE_REACHED
    check_room(group, full, full)
    check_room(group, full, (assignor(),))


def test_what_is_known_of_a_member_goes_with_it() -> None:
    group = of_members((assignor(),), (assignor(metadata=b"x"),))
    group.new_records()
    group.leave("b")
    (forgotten,) = [record for record in group.new_records() if isinstance(record, ClientAssignorsForgotten)]
    assert forgotten.member_id == "b"
    assert (list(side(group).assignors), side(group).metadata_bytes) == (["a"], 0)
    assert list(group.fold(group.compacted()).groups.consumer["g"].client_assignors.assignors) == ["a"]  # type: ignore[union-attr]
    group.leave("a")
    group.delete_group().is_done()
    assert [
        key for key, value in group.compacted() if value is not None and int.from_bytes(key[:2], "big") > 20_000
    ] == []


def test_a_join_says_everything_and_null_is_unchanged() -> None:
    group = of_members((assignor(),))
    assert not isinstance(beat(group, "a", rack_id="north").body, Refusal)
    assert list(side(group).assignors) == ["a"]
    group.heartbeat("a", epoch=0)
    assert not side(group).assignors
    beat(group, "a", client_assignors=(assignor(),))
    beat(group, "a", client_assignors=())
    assert not side(group).assignors
