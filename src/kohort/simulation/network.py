"""A network between clients and one broker, which delays, loses and cuts, but keeps order.

Losses on TCP break the connection: its requests and responses in flight are lost, and the client notices at once,
a little later, or only by its own timeout. A repeated request therefore arrives on a new connection, and the broker may
get it twice.

Laws: a connection delivers messages in order, each at most once, and none after a break.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from random import Random
from typing import Literal, Protocol

from kohort.coordinator.commands import Command, ConsumerGroupHeartbeatReply, GroupCommand
from kohort.coordinator.decision import ReplyBody
from kohort.testing.clock import VirtualClock


@dataclass(frozen=True, slots=True, kw_only=True)
class NetworkQuality:
    """The quality of the network; times in milliseconds, chances per message.

    `usual_delay_ms`: longest delay of most messages. `long_delay_ms`: longest delay of the others.
    `loss`: chance that a message breaks its connection instead of arriving; half of the time neither end is notified.
    `late`: chance that requests in flight still arrive after their client has abandoned the connection.
    """

    usual_delay_ms: int = 10
    long_delay_ms: int = 10
    long_delay_chance: float = 0.0
    loss: float = 0.0
    late: float = 0.0

    def draw_delay_ms(self, random: Random) -> int:
        """Draw the delay of the next message."""
        if self.long_delay_chance and random.random() < self.long_delay_chance:
            return random.randint(self.usual_delay_ms, self.long_delay_ms)
        return random.randint(1, self.usual_delay_ms)

    def draw_loss(self, random: Random) -> Literal["", "silent", "broken"]:
        """Draw how the next message breaks its connection; empty if the message arrives."""
        if not self.loss or random.random() >= self.loss:
            return ""
        return "silent" if random.random() < 0.5 else "broken"


#: A network that does its work.
GOOD = NetworkQuality()


class Server(Protocol):
    """The server's end of a simulated connection."""

    def on_request(self, connection: Connection, command: Command) -> None:
        """Take a request that has arrived."""

    def on_gone(self, connection: Connection) -> None:
        """Note that a connection has ended; the end of a silent one is never seen."""


class Client(Protocol):
    """The client's end of a simulated connection."""

    name: str

    def on_reply(self, connection: Connection, body: ReplyBody, place: int) -> None:
        """Handle a reply; `place`: the number of earlier requests that have no response yet."""

    def on_broken(self, connection: Connection) -> None:
        """Handle the loss of the connection."""


class Connection:
    """A TCP connection as both ends see it."""

    def __init__(self, network: SimulatedNetwork, client: Client, number: int, software: str) -> None:
        self._network = network
        #: What the client's software calls itself (KIP-511); empty if it does not.
        self.software = software
        self.client = client
        #: Connections are numbered as they are opened.
        self.number = number
        #: Which process of the server is at the other end.
        self.server_life = network.server_life
        #: The client has given it up, and what it sent before is still on its way to the server.
        self.is_draining = False
        #: Whether it can deliver; a closed one never opens again.
        self.is_open = True
        #: It swallows everything, and neither end knows.
        self.is_silent = False
        #: When the latest message arrives, by direction: to the server, to the client.
        self._last_ms = [0, 0]

    def send(self, command: Command) -> None:
        """Send a request from the client to the server."""
        network = self._network
        if not network.passes(self):
            return
        network.deliver(self, self._arrival_ms(0), lambda: network.server.on_request(self, command), is_request=True)

    def send_back(self, body: ReplyBody, place: int = 0) -> None:
        """Send a reply to the client; `place`: the number of its earlier requests without a response."""
        network = self._network
        if not self.is_open or not network.passes(self):
            return
        network.deliver(self, self._arrival_ms(1), lambda: self.client.on_reply(self, body, place))

    def close(self) -> None:
        """Close the connection from the client's side.

        Responses in flight are lost; requests already sent may still arrive.
        """
        if self.is_open:
            self.is_open = False
            network = self._network
            late = network.quality.late
            self.is_draining = not self.is_silent and bool(late) and network.random.random() < late
            if not self.is_silent:
                network.clock.at(self._arrival_ms(0), self._end)

    def _end(self) -> None:
        """Handle the end of the connection, after all that was sent before."""
        if self.server_life == self._network.server_life:
            self._network.server.on_gone(self)

    def _arrival_ms(self, direction: int) -> int:
        network = self._network
        delay_ms = network.quality.draw_delay_ms(network.random)
        arrival_ms = max(network.clock.now_ms() + delay_ms, self._last_ms[direction])
        self._last_ms[direction] = arrival_ms
        return arrival_ms


class SimulatedNetwork:
    """The network of one server: all its connections."""

    def __init__(self, clock: VirtualClock, random: Random) -> None:
        self.clock = clock
        self.server: Server
        self.quality = GOOD
        self.is_server_up = True
        self.random = random
        self._open: list[Connection] = []
        self._opened = 0
        #: How often the server died.
        self.server_life = 0
        #: Clients that cannot reach the server at all.
        self._cut_off: dict[str, None] = {}

    def connect(self, client: Client, *, software: str = "") -> Connection | None:
        """Open a connection; `None` if no server is reachable."""
        if not self.is_server_up or client.name in self._cut_off:
            return None
        self._opened += 1
        connection = Connection(self, client, self._opened, software)
        self._open = [other for other in self._open if other.is_open]
        self._open.append(connection)
        return connection

    def cut_off(self, client_name: str) -> None:
        """Cut a client off from the server; its connections go silent."""
        self._cut_off[client_name] = None
        for connection in self._open:
            if connection.client.name == client_name:
                connection.is_silent = True

    def restore(self, client_name: str) -> None:
        """Let the client connect again."""
        self._cut_off.pop(client_name, None)

    def heal(self) -> None:
        """End every fault; connections that swallow messages are reset."""
        self.quality = GOOD
        self._cut_off.clear()
        for connection in [other for other in self._open if other.is_silent]:
            self.break_one(connection)

    def break_all(self) -> None:
        """Break every connection after the server's death; most clients notice soon."""
        self.server_life += 1
        for connection in [other for other in self._open if other.is_open]:
            self.break_one(connection)

    def break_one(self, connection: Connection) -> None:
        """Cut one connection; the client is notified after a while."""
        if not connection.is_open:
            return
        connection.is_open = False
        self.server.on_gone(connection)
        self.clock.after(self.random.randint(0, 200), lambda: connection.client.on_broken(connection))

    def passes(self, connection: Connection) -> bool:
        """Return whether a message gets through; its loss may end the connection."""
        if not connection.is_open or connection.is_silent:
            return False
        loss = self.quality.draw_loss(self.random)
        if loss == "silent":
            connection.is_silent = True
        elif loss:
            self.break_one(connection)
        return not loss

    def deliver(
        self, connection: Connection, arrival_ms: int, action: Callable[[], None], *, is_request: bool = False
    ) -> None:
        """Deliver a message, unless the connection has ended by then."""

        def arrive() -> None:
            is_same_server = connection.server_life == self.server_life
            passes = connection.is_open or (connection.is_draining and is_request and is_same_server)
            if passes and not connection.is_silent:
                action()

        self.clock.at(arrival_ms, arrive)


# A request of a simulated client that is under way.


@dataclass(slots=True, eq=False, kw_only=True)
class Exchange:
    """A request in flight, with the callbacks for its response and for a lost connection."""

    command: GroupCommand
    deliver: Callable[[ReplyBody], None]
    fail: Callable[[], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class NumberedReply(ConsumerGroupHeartbeatReply):
    """A heartbeat reply with a `number` that gives the order of the decisions (requirement H10)."""

    number: int
