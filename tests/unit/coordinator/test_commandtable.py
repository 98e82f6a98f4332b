"""The table of commands: each is decided somewhere, and each is asked for its group's id at one place."""

from __future__ import annotations

import sys
from collections.abc import Iterator

import pytest

from kohort.coordinator.commands import Command, GroupCommand
from kohort.coordinator.commandtable import DECIDE, LONGEST_GROUP_ID, check_group_id
from kohort.errors import ErrorCode, Refused

#: Commands that may be about the group without a name, as in Apache Kafka.
NAMELESS = {"CommitOffsets", "FetchOffsets", "DescribeClassicGroup", "DeleteGroup"}
#: Those that answer INVALID_REQUEST, as it does.
INVALID_REQUESTS = {"ConsumerGroupHeartbeat", "AlterGroupConfigs", "DescribeGroupConfigs"}


def kinds(kind: type[Command]) -> Iterator[type[Command]]:
    for below in kind.__subclasses__():
        yield from kinds(below)
        # A class with slots is made twice, and the first of the two is of no use.
        if below is not GroupCommand and getattr(sys.modules[below.__module__], below.__name__) is below:
            yield below


def named(kind: type[GroupCommand], group_id: str) -> GroupCommand:
    """A command of which nothing but the group is looked at."""
    command = kind.__new__(kind)
    object.__setattr__(command, "group_id", group_id)
    return command


def test_every_command_is_decided() -> None:
    of_groups = {kind for kind in kinds(Command) if not kind.__module__.startswith("kohort.coordinator.transactions")}
    assert of_groups == DECIDE.keys()


@pytest.mark.parametrize("kind", kinds(GroupCommand), ids=lambda kind: kind.__name__)
def test_group_without_a_name_is_refused_as_apache_kafka_does(kind: type[GroupCommand]) -> None:
    """Apache Kafka's `GroupCoordinatorService` and `ConsumerGroupHeartbeat`'s checks, each API for itself."""
    if kind.__name__ in NAMELESS:
        check_group_id(named(kind, ""))
        return
    with pytest.raises(Refused) as refused:
        check_group_id(named(kind, ""))
    is_invalid = kind.__name__ in INVALID_REQUESTS
    assert refused.value.code == (ErrorCode.INVALID_REQUEST if is_invalid else ErrorCode.INVALID_GROUP_ID)


@pytest.mark.parametrize("kind", kinds(GroupCommand), ids=lambda kind: kind.__name__)
def test_name_that_the_log_cannot_hold_is_refused(kind: type[GroupCommand]) -> None:
    """The keys of the group log have an int16 for its length in bytes."""
    check_group_id(named(kind, "é" * (LONGEST_GROUP_ID // 2)))
    with pytest.raises(Refused) as refused:
        check_group_id(named(kind, "é" * (LONGEST_GROUP_ID // 2 + 1)))
    assert refused.value.code == ErrorCode.INVALID_GROUP_ID
