"""What the option group.local.assignors takes, and what runs in the application's thread."""

from __future__ import annotations

import logging
from array import array
from collections import deque
from typing import Any

import pytest

import kohort
from kohort.assign.interface import Assignable, AssignableMember
from kohort.assign.ownership import PartitionSpace
from kohort.client.consumer.application_events import AssignmentSaid, ComputationDone, ComputationWanted, ConsumerEvent
from kohort.client.consumer.subscriptions import Assigning
from kohort.client.local_assignors import LocalAssignor, parse_assignors
from kohort.client.options import CONSUMER_OPTIONS, consumer_settings
from kohort.errors import ConfigError
from kohort.ids import TopicId

GROUP = Assignable(
    space=PartitionSpace([(TopicId(b"orders".ljust(16)), 2)]),
    topic_names=("orders",),
    members=(AssignableMember(member_id="a"),),
    subscribers=((0,),),
    owner=array("i", [-1, -1]),
)


def assignor(**attributes: Any) -> Any:
    """An assignor called mine that gives everything to the first member, with these attributes."""
    plain = {"name": "mine", "assign": lambda _, group: array("i", [0] * len(group.space))}
    return type("Mine", (), plain | attributes)()


def run(*assignors: Any, wanted: str = "mine") -> ComputationDone:
    """What comes of a computation."""
    posted: list[ConsumerEvent] = []
    asked = deque[ComputationWanted | AssignmentSaid]([ComputationWanted(number=4, assignor=wanted, group=GROUP)])
    Assigning(parse_assignors(list(assignors)), posted.append).answer(asked)
    (done,) = posted
    assert isinstance(done, ComputationDone) and done.number == 4 and not asked
    return done


def test_an_assignor_needs_a_name_and_a_function_and_may_have_versions() -> None:
    plain, other = assignor(), assignor(name="other", minimum_version=2, maximum_version=5, metadata_version=3)
    assert parse_assignors(plain) == (LocalAssignor("mine", 0, 0, 0, plain),)
    assert parse_assignors([plain, other]) == (
        LocalAssignor("mine", 0, 0, 0, plain),
        LocalAssignor("other", 2, 5, 3, other),
    )


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ("uniform", "'uniform' is no assignor: an object with a name and a method assign"),
        (type(assignor()), "is no assignor: an object"),
        (assignor(name=""), "is empty"),
        (assignor(assign=3), "is no assignor"),
        (assignor(minimum_version=-1), "minimum_version of .* is -1; 0 to 32767 is expected"),
        (assignor(maximum_version="2"), "maximum_version of .* is '2'"),
        (assignor(minimum_version=3, maximum_version=2), "minimum_version 3 and maximum_version 2 do not allow that"),
        ([assignor(), assignor()], "two of them are called mine"),
        ([assignor(name=f"a{number}") for number in range(17)], "17 assignors are given; at most 16"),
    ],
)
def test_what_cannot_be_used_is_refused_with_the_reason(given: object, why: str) -> None:
    with pytest.raises(ConfigError, match=why):
        kohort.Consumer(group_id="g", group_local_assignors=given)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"group_id": None}, "group.id is needed, too"),
        ({"group_protocol": "classic"}, "are for the consumer protocol"),
        ({"group_remote_assignor": "uniform"}, "exclude each other"),
    ],
)
def test_options_that_contradict_it_are_refused(options: dict[str, object], why: str) -> None:
    values = CONSUMER_OPTIONS.parse({"group_id": "g", "group_local_assignors": [assignor()], **options})
    with pytest.raises(ConfigError, match=why):
        consumer_settings(values)


def test_the_one_that_is_wanted_computes_and_says_what_the_others_are_told() -> None:
    done = run(assignor(), assignor(name="other", tell=lambda *_: {"a": b"x"}), wanted="other")
    assert (done.assignor, done.owner, done.said, done.error) == ("other", array("i", [0, 0]), {"a": b"x"}, "")


@pytest.mark.parametrize(
    ("given", "why"),
    [
        (assignor(assign=lambda *_: [0, 0]), "the assignor mine gave list instead of array('i')"),
        (assignor(assign=lambda *_: array("i", [0, 7])), "left partition orders-1 without an owner (number 7)"),
        (assignor(assign=lambda *_: 1 // 0), "raised ZeroDivisionError"),
        (assignor(tell=lambda *_: {"a": "x"}), "tell() of the assignor mine gave str; bytes"),
        (assignor(tell=lambda *_: {"a": bytes(70_000)}), "gave 70000 bytes; at most 65536"),
        (assignor(tell=lambda *_: {"a": memoryview(array("i", [0] * 20_000))}), "gave 80000 bytes; at most 65536"),
        (assignor(name="other"), "the assignor mine is none of this consumer's"),
    ],
)
def test_what_is_no_assignment_is_reported_and_not_raised(
    given: object, why: str, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.CRITICAL):
        done = run(given)
    assert why in done.error
    assert done.said == {}


@pytest.mark.parametrize("ends", [KeyboardInterrupt, SystemExit])
def test_what_ends_the_thread_is_raised_and_reported(ends: type[BaseException]) -> None:
    """Who goes on after that would keep its group waiting until max.poll.interval.ms is over."""

    def interrupted(*_: object) -> array[int]:
        raise ends

    posted: list[ConsumerEvent] = []
    asked = deque[ComputationWanted | AssignmentSaid]([ComputationWanted(number=4, assignor="mine", group=GROUP)])
    with pytest.raises(ends):
        Assigning(parse_assignors(assignor(assign=interrupted)), posted.append).answer(asked)
    (done,) = posted
    assert isinstance(done, ComputationDone) and (done.number, done.error) == (4, "the assignor mine was interrupted")


def test_metadata_are_asked_for_by_assignor_and_are_bytes() -> None:
    told = parse_assignors([assignor(metadata=lambda _: b"lag"), assignor(name="other")])
    assert Assigning(told, lambda _: None).metadata() == (b"lag", b"")
    with pytest.raises(TypeError, match=r"metadata\(\) of the assignor mine gave int; bytes are expected"):
        Assigning(parse_assignors(assignor(metadata=lambda _: 3)), lambda _: None).metadata()


def test_every_assignor_hears_what_came_with_an_assignment() -> None:
    heard: list[tuple[int, int, bytes]] = []
    mine = assignor(on_assignment=lambda _, *said: heard.append(said))
    said = AssignmentSaid(error=2, version=1, metadata=b"x")
    Assigning(parse_assignors([mine, assignor(name="deaf")]), lambda _: None).answer(deque([said]))
    assert heard == [(2, 1, b"x")]
