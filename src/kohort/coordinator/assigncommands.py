"""Assignors that members run themselves: what members say of them, how an assignment is asked for and given.

Source: KIP-848 as drafted (ConsumerGroupPrepareAssignment, ConsumerGroupInstallAssignment), which Apache Kafka has not.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from kohort.assign.interface import Assignable
from kohort.coordinator.stimulus import GroupCommand
from kohort.errors import ErrorCode


class ClientAssignor(NamedTuple):
    """An assignor that a member can run itself: KIP-848 as drafted.

    `version` is that of `metadata`, between the two others; `reason` other than 0 asks for a computation.
    """

    name: str
    minimum_version: int
    maximum_version: int
    reason: int
    version: int
    metadata: bytes


class ClientAssignment(NamedTuple):
    """What the member that computed an assignment says to one of the others; `error` other than 0: it could not."""

    error: int
    version: int
    metadata: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class PrepareAssignment(GroupCommand):
    """The member that shall compute its group's assignment asks of what."""

    member_id: str
    member_epoch: int


@dataclass(frozen=True, slots=True, kw_only=True)
class PrepareAssignmentReply:
    """What is to be assigned.

    `group_epoch`: to be named with the assignment. `assignor`, `version`: which one, in the highest version that all
    members have. `assignable`: the group, as an assignor sees it. `member_epochs`: in the order of its members.
    """

    group_epoch: int
    assignor: str
    version: int
    assignable: Assignable
    member_epochs: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class InstallAssignment(GroupCommand):
    """What came of a computation.

    `group_epoch`: the one that `PrepareAssignmentReply` named. `error` other than 0: the assignor failed, and the rest
    means nothing. `owners`: partition -> number of its member, both as in the `Assignable` that was given.
    `said`: what goes to members beside it: member id, version, metadata.
    """

    member_id: str
    member_epoch: int
    group_epoch: int
    error: int = 0
    owners: tuple[int, ...] = ()
    said: tuple[tuple[str, int, bytes], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class InstallAssignmentReply:
    """`error`: why the assignment was not taken; then somebody else is asked, and `message` tells what is wrong."""

    error: ErrorCode = ErrorCode.NONE
    message: str | None = None
