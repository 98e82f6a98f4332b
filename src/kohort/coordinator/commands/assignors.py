"""Commands and values of client-side assignors, which members run themselves.

Source: KIP-848 as drafted (ConsumerGroupPrepareAssignment, ConsumerGroupInstallAssignment), which Kafka does not have.
"""

from __future__ import annotations

from dataclasses import dataclass

from kohort.assign.interface import Assignable
from kohort.coordinator.commands.base import GroupCommand
from kohort.errors import ErrorCode


@dataclass(frozen=True, slots=True, kw_only=True)
class PrepareAssignment(GroupCommand):
    """Request of the member chosen to compute the assignment for the assignor's input."""

    member_id: str
    member_epoch: int


@dataclass(frozen=True, slots=True, kw_only=True)
class PrepareAssignmentReply:
    """Reply to `PrepareAssignment`: the input of the assignor.

    `group_epoch`: `InstallAssignment` has to name it. `assignor`, `version`: the chosen assignor, in the highest
    version that all members support. `assignable`: the group, as an assignor sees it. `member_epochs`: in the order of
    its members.
    """

    group_epoch: int
    assignor: str
    version: int
    assignable: Assignable
    member_epochs: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class InstallAssignment(GroupCommand):
    """The result of a client-side assignor.

    `group_epoch`: the one that `PrepareAssignmentReply` named. `error` other than 0: the assignor failed, and the other
    fields are ignored. `owners`: partition -> number of its member, both as in the `Assignable` that was sent.
    `said`: messages to members: member id, version, metadata.
    """

    member_id: str
    member_epoch: int
    group_epoch: int
    error: int = 0
    owners: tuple[int, ...] = ()
    said: tuple[tuple[str, int, bytes], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class InstallAssignmentReply:
    """Reply to `InstallAssignment`; `error` other than NONE: the assignment was refused.

    The coordinator then asks another member. `message` explains the error.
    """

    error: ErrorCode = ErrorCode.NONE
    message: str | None = None
