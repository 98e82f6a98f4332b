"""Client-side assignors of simulated members: some correct, some wrong, repeated, late, or without result.

Laws: a member that was asked to compute always fetches the input first. After the faults end, results are correct.
Source: KIP-848 as drafted; `kohort.coordinator.consumer.client_assignors`.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from kohort.coordinator import commands
from kohort.coordinator.decision import ReplyBody
from kohort.errors import ErrorCode
from kohort.simulation.assignors import even, foreign, legal

if TYPE_CHECKING:
    from kohort.simulation.members.process import MemberProcess


#: Possible behaviours by weight; the names are methods of `Computation`.
_WEIGHTS: Final = {
    "_right": 8,
    "_whimsical": 3,
    "_twice": 2,
    "_failing": 2,
    "_foreign": 2,
    "_missing": 1,
    "_too_many": 1,
    "_of_another_epoch": 1,
    "_to_nobody": 1,
    "_hanging": 2,
    "_dying": 1,
}
_USUAL_MS: Final = 300
#: It is asked again so much later while it has another epoch than the coordinator.
_AGAIN_MS: Final = 200


class Computation:
    """The assignor of one member, which computes when the coordinator asks."""

    def __init__(self, member: MemberProcess, epoch: Callable[[], int]) -> None:
        self._member: Final = member
        #: Returns the member's present epoch.
        self._epoch: Final = epoch
        self._random: Final = member.random
        #: Between the word that it shall compute and the end of that.
        self._is_busy = False
        self._metadata = 0
        self._reason = 0

    def assignors(self) -> tuple[commands.ClientAssignor, ...]:
        """Return the assignors that the member names in its heartbeat."""
        reason, self._reason = self._reason, 0
        metadata = str(self._metadata).encode()
        return (
            commands.ClientAssignor("own", 0, 3, reason, 2, metadata),
            commands.ClientAssignor("other", 1, 1, 0, 1, b""),
        )

    def change(self) -> None:
        """Change the assignor's metadata, or give a reason to compute again."""
        if self._random.random() < 0.5:
            self._metadata += 1
        else:
            self._reason = 1

    def begin(self) -> None:
        """Compute as the coordinator has asked, unless a computation runs already."""
        if not self._is_busy:
            self._is_busy = True
            self._prepare()

    def forget(self) -> None:
        """Forget the computation of a member that has left its group."""
        self._is_busy = False

    def _prepare(self) -> None:
        member = self._member
        command = member.build(
            commands.PrepareAssignment,
            member_id=member.member_id,
            member_epoch=self._epoch(),
        )
        member.ask(command, self._on_prepared, self._on_failure)

    def _on_failure(self) -> None:
        if self._is_busy:
            self._prepare()

    def _on_prepared(self, body: ReplyBody) -> None:
        if isinstance(body, commands.Refusal):
            self._on_refused(body)
            return
        assert isinstance(body, commands.PrepareAssignmentReply), body
        if not self._is_busy:
            return
        how = "_right"
        if not self._member.world.broker.assignors.is_healed:
            how = self._random.choices(list(_WEIGHTS), list(_WEIGHTS.values()))[0]
        self._member.tell(f"computes the assignment of epoch {body.group_epoch}, {how.strip('_').replace('_', ' ')}")
        act: Callable[[commands.PrepareAssignmentReply], None] = getattr(self, how)
        self._member.later(self._random.randint(0, _USUAL_MS), partial(act, body))

    def _on_refused(self, body: commands.Refusal) -> None:
        if body.code == ErrorCode.STALE_MEMBER_EPOCH and self._is_busy:
            # An answer to a heartbeat that tells the epoch is on its way.
            self._member.later(_AGAIN_MS, self._on_failure)
        else:
            self._is_busy = False

    def _install(self, given: commands.PrepareAssignmentReply, owners: array[int], **fields: Any) -> None:
        member = self._member
        names = [each.member_id for each in given.assignable.members]
        command = member.build(
            commands.InstallAssignment,
            member_id=member.member_id,
            member_epoch=self._epoch(),
            group_epoch=given.group_epoch,
            owners=tuple(owners),
            said=tuple((name, 1, f"{given.group_epoch}".encode()) for name in self._random.sample(names, 1)),
        )
        member.ask(replace(command, **fields), self._on_installed, self._on_failure)

    def _on_installed(self, body: ReplyBody) -> None:
        if isinstance(body, commands.Refusal) and body.code == ErrorCode.STALE_MEMBER_EPOCH:
            self._on_refused(body)
        else:
            self._is_busy = False

    # How it goes.

    def _right(self, given: commands.PrepareAssignmentReply) -> None:
        self._install(given, even(given.assignable))

    def _whimsical(self, given: commands.PrepareAssignmentReply) -> None:
        self._install(given, legal(given.assignable, self._random))

    def _twice(self, given: commands.PrepareAssignmentReply) -> None:
        self._whimsical(given)
        self._right(given)

    def _failing(self, given: commands.PrepareAssignmentReply) -> None:
        self._install(given, array("i"), error=3)

    def _foreign(self, given: commands.PrepareAssignmentReply) -> None:
        self._install(given, foreign(given.assignable, self._random))

    def _missing(self, given: commands.PrepareAssignmentReply) -> None:
        self._install(given, even(given.assignable)[1:])

    def _too_many(self, given: commands.PrepareAssignmentReply) -> None:
        self._install(given, even(given.assignable) + array("i", [0]))

    def _of_another_epoch(self, given: commands.PrepareAssignmentReply) -> None:
        self._install(given, even(given.assignable), group_epoch=given.group_epoch - 1)

    def _to_nobody(self, given: commands.PrepareAssignmentReply) -> None:
        self._install(given, even(given.assignable), said=(("unknown", 1, b""),))

    def _hanging(self, given: commands.PrepareAssignmentReply) -> None:
        """Send no result until the coordinator asks this member again."""
        del given
        self._is_busy = False

    def _dying(self, given: commands.PrepareAssignmentReply) -> None:
        del given
        self._member.die()
