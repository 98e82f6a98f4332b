"""Requests and updates of a simulated member beside its heartbeats, as kohort's own client has them.

The member sends its state over a connection of its own, and is answered at once or when there is an update. Some
answers are lost. Now and then the member sends nothing for a while, like a client that fetches nothing.

Laws: updates are taken in the order in which they were decided. An update that comes while a list of owned partitions
is on its way waits for the answer to that list. A refusal only makes the member send everything by a heartbeat.
Source: requirement H10; `kohort.client.membership_updates`.
"""

from __future__ import annotations

from functools import partial
from random import Random
from typing import TYPE_CHECKING, Final

from kohort.coordinator.commands import groups as asked
from kohort.coordinator.commands.base import Refusal
from kohort.coordinator.commands.replies import ReplyBody
from kohort.errors import ErrorCode
from kohort.testing.members.exchange import Exchange, NumberedReply
from kohort.testing.members.process import NO_CAUSE, NO_REQUEST
from kohort.testing.members.wire import Wire

if TYPE_CHECKING:
    from kohort.testing.members.consumer import ConsumerMember

#: Between two words; so long a fetch waits; so long nothing is said; ms.
_SAYS_EVERY_MS: Final = (50, 900)
_WAITS_MS: Final = (200, 2_500)
_SILENT_MS: Final = (2_000, 12_000)
#: How often a word waits for no news, what was told is lost, and nothing is said for a while after that.
_LOOKS: Final = 0.4
_LOST: Final = 0.25


class Words:
    """The updates of one member.

    Args:
        random: of its own, so that nothing else that members do is another for it.
    """

    def __init__(self, member: ConsumerMember, random: Random) -> None:
        self._member: Final = member
        self._random: Final = random
        self._wire: Final = Wire(member.world.network, member.name)
        #: Rises with each failure: answers to earlier requests are ignored.
        self._era = 0
        #: Of what was taken last, by whichever way.
        self.number = 0
        #: The update that came while a list was on its way.
        self._heard: NumberedReply | None = None
        self._is_saying = False

    def say(self) -> None:
        """Send the member's state, and schedule the next time."""
        member = self._member
        delay_ms = self._random.randint(*_SAYS_EVERY_MS)
        if not self._is_saying and self._heard is None and member.is_sure:
            self._send(is_look=self._random.random() < _LOOKS)
        member.later(delay_ms, self.say)

    def forget(self) -> None:
        """Forget all updates: the process is no member any more, or has another coordinator."""
        self._era += 1
        self.number, self._heard = 0, None
        self.end()

    def end(self) -> None:
        """Close the connection for updates."""
        self._wire.hang_up()

    def takes(self, number: int) -> bool:
        """Whether an update's number is higher than all before; it is the latest from now on."""
        is_newer = number > self.number
        self.number = max(number, self.number)
        return is_newer

    def on_said(self) -> None:
        """Note an answered heartbeat; a list of owned partitions may have arrived with it."""
        heard, self._heard = self._heard, None
        if heard is not None:
            self._weigh(heard)

    def _send(self, *, is_look: bool) -> None:
        member, era = self._member, self._era
        command = asked.WatchMember(
            cause=NO_CAUSE,
            request=NO_REQUEST,
            group_id=member.group_id,
            member_id=member.member_id,
            member_epoch=member.member_epoch,
            assigned=member.by_id(member.target or set()),
            is_look=is_look,
        )

        def deliver(body: ReplyBody) -> None:
            self._is_saying = False
            member.later(0, partial(self._hear, body, command.member_epoch, era))

        def fail() -> None:
            self._is_saying = False

        exchange = Exchange(command=command, deliver=deliver, fail=fail)
        member.tell("says by a fetch", command)
        if self._wire.send(exchange):
            self._is_saying = True
            member.world.clock.after(self._random.randint(*_WAITS_MS), partial(self._expire, exchange))

    def _expire(self, exchange: Exchange) -> None:
        if self._wire.is_waiting(exchange):
            self._wire.hang_up()

    def _hear(self, body: ReplyBody, epoch: int, era: int) -> None:
        member = self._member
        if era != self._era or member.is_leaving:
            return
        if isinstance(body, Refusal):
            is_asked_about = body.code in (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_MEMBER_EPOCH)
            if is_asked_about and epoch == member.member_epoch:
                member.say_everything()
            return
        assert isinstance(body, NumberedReply), body
        if body.assignment is None:
            return
        if not member.world.is_at_peace and self._random.random() < _LOST:
            member.tell("does not hear what it is told by a fetch")
            self._is_saying = True
            member.later(self._random.randint(*_SILENT_MS), self._go_on)
            return
        self._weigh(body)

    def _go_on(self) -> None:
        self._is_saying = False

    def _weigh(self, body: NumberedReply) -> None:
        if body.number <= self.number:
            return
        if self._member.has_list_to_say:
            self._heard = body
        elif self.takes(body.number):
            self._member.take_news(body)
