"""The connection of a process to the coordinator, used by one member or several.

Laws: a connection of which an answer does not come in its time is given up, with all requests that are open on it.
A client that does not match answers by the numbers of their requests gets them in order (AnswersInOrder).
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Final

from kohort.coordinator.commands.replies import ReplyBody
from kohort.testing.members.exchange import Exchange
from kohort.testing.network import Connection, SimulatedNetwork
from kohort.testing.trace import LawBroken

if TYPE_CHECKING:
    from kohort.testing.members.process import MemberProcess

#: Finds the request of an answer by its number.
MATCHING: Final = "librdkafka"


class Wire:
    """The connection that the members of one process share.

    Args:
        software: what the client calls itself (KIP-511); empty if it does not.
    """

    def __init__(self, network: SimulatedNetwork, name: str, *, software: str = "") -> None:
        self.name = name
        self.software = software
        #: The members that use the wire.
        self.users: list[MemberProcess] = []
        self._network = network
        self._connection: Connection | None = None
        self._exchanges: deque[Exchange] = deque()

    def send(self, exchange: Exchange) -> bool:
        """Send a request, over a new connection if there is none; `False` if no broker answers."""
        if self._connection is None:
            self._connection = self._network.connect(self, software=self.software)
        if self._connection is None:
            return False
        self._exchanges.append(exchange)
        self._connection.send(exchange.command)
        return True

    def is_waiting(self, exchange: Exchange) -> bool:
        """Whether the answer is still missing."""
        return exchange in self._exchanges

    def on_reply(self, connection: Connection, body: ReplyBody, place: int) -> None:
        """Take the answer of a request, the oldest one or any other."""
        if connection is not self._connection:
            return
        if place and self.software != MATCHING:
            raise LawBroken("AnswersInOrder", f"{self.name} takes an answer for another", group_id="")
        exchange = self._exchanges[place]
        del self._exchanges[place]
        exchange.deliver(body)

    def on_broken(self, connection: Connection) -> None:
        """Handle a connection that the network reports as gone."""
        if connection is self._connection:
            self.hang_up()

    def hang_up(self) -> None:
        """Close the connection; its open requests get no answer."""
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()
        failed, self._exchanges = self._exchanges, deque()
        for exchange in failed:
            exchange.fail()

    def end_of(self, user: MemberProcess) -> None:
        """Note the end of a member; the last one closes the connection."""
        if not any(other.is_alive for other in self.users if other is not user):
            self.hang_up()

    def reset(self) -> None:
        """Reset the connection."""
        if self._connection is not None:
            self._network.break_one(self._connection)
