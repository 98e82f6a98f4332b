"""A broker process in virtual time: sockets, the broker's runtime, late syncs, crashes and stalls.

If the process dies, unsynced batches may be lost, from some batch on.

Laws: each request gets at most one response, each connection in the order of its requests. A crash loses everything
except the log. A request on an older connection than the latest one used by its member is dropped: no client waits
for its response, and it could undo newer requests.
Source: architecture rules 2 to 4 and 17.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import fields, replace
from functools import partial
from random import Random
from typing import Any, Final

from kohort.broker.access.logins import Login
from kohort.broker.access.rights import EVERYTHING
from kohort.broker.connections.buffers import WRITE_AT_BYTES
from kohort.broker.connections.heartbeats import HeldHeartbeats
from kohort.broker.connections.request import Buffer, ReplyQueue, Request, SlotState
from kohort.broker.groups.delayed_heartbeats import DelayedHeartbeat, DelayedHeartbeats
from kohort.broker.options.listeners import ListenerSettings
from kohort.coordinator import commands
from kohort.coordinator.decision import ReplyBody
from kohort.coordinator.settings import GroupSettings
from kohort.coordinator.shard import Shard
from kohort.coordinator.topics import TopicImage
from kohort.ids import CauseId, RequestToken, coordinator_partition
from kohort.security.access_control import ANONYMOUS
from kohort.simulation import runtime
from kohort.simulation.assignors import SimulatedAssignors
from kohort.simulation.network import Connection, NumberedReply, SimulatedNetwork
from kohort.simulation.trace import LawBroken, Story
from kohort.testing.clock import VirtualClock
from kohort.wire.registry import AnyApiKey, ApiKey

# The story has the events that the runtime logs.
logging.getLogger("kohort.broker").addHandler(logging.NullHandler())

#: Requests that show which connection of a member is the latest.
_SIGNS_OF_LIFE: Final = (
    commands.ConsumerGroupHeartbeat,
    commands.JoinGroup,
    commands.SyncGroup,
    commands.Heartbeat,
    commands.CommitOffsets,
)


class SimulatedBroker:
    """A simulated broker: one process, and its successors after crashes.

    `options`: broker options that its sockets need: `group.push.*` and `queued.max.requests`. `build_shard`: makes the
    shards; tests plant bugs with it.
    """

    #: The runtime of each process; a planted bug gives its own.
    runtime_class = runtime.SimulatedRuntime

    def __init__(
        self,
        clock: VirtualClock,
        network: SimulatedNetwork,
        story: Story,
        observer: runtime.Observer,
        *,
        random: Random,
        settings: GroupSettings,
        options: Mapping[str, Any],
        shard_count: int,
        build_shard: Callable[[GroupSettings], Shard] = Shard,
    ) -> None:
        self.is_up = False
        self.sync_ms = 5
        #: Whether requests on a member's older connections are dropped; a test shows what happens without.
        self.guards_old_connections = True
        #: Offset of this process's clock from the world's; a new process may find another one.
        self.clock_offset_ms = 0
        #: (group, "member" or "instance", its id) -> number of the connection that it was heard on last.
        self._heard_on: dict[tuple[str, str, str], int] = {}
        #: (group id, member id) -> number of the connection by which it says what it knows, and its word that waits.
        self._watches: dict[tuple[str, str], tuple[int, commands.WatchMember]] = {}
        #: How many answers to heartbeats and words were decided, by all processes.
        self._told = 0
        self._clock = clock
        self._network = network
        self._story = story
        self._observer = observer
        self._random = random
        self._settings = settings
        self._options = options
        self._build_shard = build_shard
        self._image = TopicImage()
        self._pushing = DelayedHeartbeats(options, clock)
        self._logs = [runtime.SimulatedLog() for _ in range(shard_count)]
        self._sockets: dict[Connection, Socket] = {}
        #: How many processes there were before.
        self.server_life = 0
        #: Those of the user's own.
        self.assignors = SimulatedAssignors(clock, random)
        #: How many answers have left processes that are gone.
        self._answered_before = 0
        self._last_number = 0
        self._loop: runtime.SimulatedLoop
        self._own_clock: runtime.ProcessClock
        self.runtime: runtime.SimulatedRuntime
        network.server = self
        self._begin()

    # What arrives.

    def on_request(self, connection: Connection, command: commands.Command) -> None:
        """Read a request that has arrived."""
        # While the loop stands still a request stays unread.
        self._loop.run(self._read, connection, command)

    def on_gone(self, connection: Connection) -> None:
        """Forget a closed connection and its open requests, and tell the coordinators of its members."""
        self._loop.run(self._forget, connection)

    def topics_changed(self, image: TopicImage) -> None:
        """Set the present topics."""
        self._image = image
        self._loop.run(self.runtime.topics_changed, image)

    def home_of(self, group_id: str) -> runtime.Home:
        """Return the shard that coordinates a group."""
        return self.homes[coordinator_partition(group_id, len(self.homes))]

    @property
    def homes(self) -> list[runtime.Home]:
        """Every shard of this process."""
        return self.runtime.homes

    @property
    def answered(self) -> int:
        """Count the responses sent so far, by all processes."""
        return self._answered_before + self.runtime.answered

    @property
    def unanswered(self) -> list[commands.GroupCommand]:
        """Return the requests that have no response so far."""
        return list(self.runtime.open.values())

    # What goes wrong.

    def crash(self) -> None:
        """Kill the broker process: memory is lost, and so is a random part of the data not yet synced."""
        lost = 0
        for log in self._logs:
            kept = self._random.randint(log.high_watermark, log.log_end_offset)
            lost += log.log_end_offset - kept
            del log.batches[kept:]
            log.high_watermark, log.is_syncing = kept, False
        self._story.tell("broker", f"dies; {lost} batches that were not synced are lost")
        self.is_up = False
        self._network.is_server_up = False
        self._loop.is_dead = True
        self.runtime.stop()
        self._last_number = self.runtime.last_number
        self._answered_before = self.answered
        self.server_life += 1
        self._sockets.clear()
        self._heard_on.clear()
        self._watches.clear()
        self._network.break_all()

    def restart(self) -> None:
        """Start a new process, which reads the logs."""
        assert not self.is_up
        self._network.is_server_up = True
        self._begin()
        self._story.tell("broker", "is back", [log.log_end_offset for log in self._logs])

    def stall(self, for_ms: int) -> None:
        """Stall the loop, as a long garbage collection or a suspended machine does."""
        if not self.is_up or self._loop.is_stalled:
            return
        self._story.tell("broker", f"stands still for {for_ms} ms")
        self._loop.is_stalled = True
        loop = self._loop
        self._clock.after(for_ms, lambda: self.go_on() if self._loop is loop else None)

    def set_clock(self, offset_ms: int) -> None:
        """Set the machine's clock, as an operator or a suspended machine does."""
        self._story.tell("broker", f"has a clock that was set by {offset_ms - self.clock_offset_ms} ms")
        self.clock_offset_ms = offset_ms
        if self.is_up:
            self._own_clock.set(offset_ms)

    def go_on(self) -> None:
        """End a stall; without one this does nothing."""
        if self._loop.is_stalled:
            self._story.tell("broker", "goes on")
            self._observer.on_go_on()
            self._loop.go_on()

    # What it does.

    def _begin(self) -> None:
        """Start a process."""
        self.is_up = True
        self._loop = runtime.SimulatedLoop(self._clock)
        self._own_clock = runtime.ProcessClock(self._clock, self.clock_offset_ms)
        self.runtime = self.runtime_class(
            self._loop,
            self._own_clock,
            runtime.SimulatedDisk(self._clock, self._random, self._loop, most_ms=lambda: self.sync_ms),
            observer=self._observer,
            story=self._story,
            assignors=self.assignors,
        )
        self.runtime.count_from(self._last_number)
        self.runtime.begin(self._logs, self._settings, self._image, self._build_shard)

    def _is_from_before(self, connection: Connection, command: commands.Command) -> bool:
        """Return whether a request is late: its member has used a newer connection since."""
        if not isinstance(command, _SIGNS_OF_LIFE):
            return False
        ids = (("member", command.member_id), ("instance", command.instance_id))
        known = [(command.group_id, kind, found) for kind, found in ids if found]
        if self.guards_old_connections and any(connection.number < self._heard_on.get(who, 0) for who in known):
            self._story.tell("broker", f"drops what {connection.client.name} sent on an older connection:", command)
            # Answers come in the order of the requests: one that is never answered ends the connection.
            self._network.break_one(connection)
            return True
        for who in known:
            self._heard_on[who] = max(connection.number, self._heard_on.get(who, 0))
        return False

    def _read(self, connection: Connection, command: commands.Command) -> None:
        if not connection.is_open and not connection.is_draining:
            return
        socket = self._sockets.get(connection)
        if socket is None:
            limit = self._options["queued.max.requests"]
            socket = Socket(connection, self._loop, open_limit=limit, on_request=self._carry_out)
            self._sockets[connection] = socket
        socket.receive(command)

    def _forget(self, connection: Connection) -> None:
        socket = self._sockets.pop(connection, None)
        heard = [
            (who[0], who[2]) for who, by in self._heard_on.items() if who[1] == "member" and by == connection.number
        ]
        if socket is not None:
            # The connection of a first join that waits is known only by the request.
            parked = (self.runtime.open.get(RequestToken(CauseId(number))) for number in socket.awaited)
            joins = (each for each in parked if isinstance(each, commands.JoinGroup))
            heard += [(each.group_id, each.member_id or each.fresh_member_id) for each in joins]
            socket.close()
        for key, (number, watch) in list(self._watches.items()):
            if number == connection.number:
                del self._watches[key]
                self.runtime.abandon(watch)
        for group_id, member_id in dict.fromkeys(heard):
            self.runtime.member_disconnected(group_id, member_id)

    def _carry_out(self, socket: Socket, command: commands.Command) -> None:
        """Carry out a request as the broker's APIs do."""
        assert isinstance(command, commands.GroupCommand)
        if self._is_from_before(socket.connection, command):
            return
        token = self.runtime.next_token()
        request = socket.open_request(token, getattr(command, "client_id", None) or "")
        more: dict[str, Any] = {}
        if isinstance(command, commands.JoinGroup):
            # A request that comes twice founds two members: the broker makes the ids.
            more = {"fresh_member_id": f"{command.client_id}-{token}"}
        elif isinstance(command, commands.ConsumerGroupHeartbeat):
            member = command.group_id, command.member_id
            session_ms = self.runtime.session_timeout_ms(command.group_id)
            is_join = command.member_epoch == 0
            more = self._pushing.terms(request, member, is_join=is_join, session_ms=session_ms)._asdict()
        elif isinstance(command, commands.Heartbeat):
            counts_requests = self._pushing.counts_requests(request.connection)
            more = {"hold_ms": self._pushing.classic_hold_ms(request), "counts_requests": counts_requests}
        numbered = replace(command, request=token, cause=CauseId(token), **more)
        if isinstance(numbered, commands.WatchMember) and not self._may_watch(socket, numbered):
            return
        name = socket.connection.client.name
        self._story.tell("broker", f"reads from {name}:", numbered, group_id=numbered.group_id)
        if isinstance(numbered, commands.WatchMember) and not numbered.is_look:
            self.runtime.hear_fetch(numbered)
        self.runtime.take_in(numbered)
        if isinstance(numbered, commands.AnyHeartbeat) and numbered.hold_ms >= 0:
            beat = DelayedHeartbeat(self._pushing, self.runtime, request.connection, numbered)
            self._pushing.attach(request, beat)
        self.runtime.answer(request, numbered, partial(self._translate, numbered))
        socket.add(request)

    def _may_watch(self, socket: Socket, command: commands.WatchMember) -> bool:
        """Return whether a watch is current: not from an older connection of the same member."""
        key, number = (command.group_id, command.member_id), socket.number
        former = self._watches.get(key)
        # The youngest connection that names the member whose fetches it carries counts.
        if former is not None and former[0] > number:
            self._network.break_one(socket.connection)
            return False
        if former is not None:
            self.runtime.abandon(former[1])
        self._watches[key] = number, command
        return True

    def _translate(self, command: commands.GroupCommand, request: Request, body: ReplyBody) -> Any:
        if isinstance(body, commands.ConsumerGroupHeartbeatReply) and body.member_epoch >= 0:
            interval_ms = body.heartbeat_interval_ms
            if not isinstance(command, commands.WatchMember):
                session_ms = self.runtime.session_timeout_ms(command.group_id)
                member = command.group_id, body.member_id
                self._pushing.note_told(request.connection, member, interval_ms, session_ms)
            self._told += 1
            return NumberedReply(**{each.name: getattr(body, each.name) for each in fields(body)}, number=self._told)
        return body


# The broker's end of a simulated connection: its held requests, answer order and unread input.
#
# The queue of answers and the holds are the broker's own; what stands in for bytes is the number of each request.
#
# Laws: answers leave in the order of their requests, but for heartbeats of clients that take them in any
# (AnswersInOrder). An answer that is ready waits behind no heartbeat that is held, and at most half of what a
# connection may have open is held (HeldInNobodysWay).
# Source: `kohort.broker.connection`; requirement H1.

_NUMBER_BYTES: Final = 8


class SimulatedRoute:
    """The route of a response: the frame is just the request's number, and the response is kept."""

    # A member's heartbeat stands for every command here: nothing looks at the API beside quotas, which a world has not.
    api_key: AnyApiKey = ApiKey.CONSUMER_GROUP_HEARTBEAT
    version = 1
    is_long = False
    is_flexible = True

    def __init__(self) -> None:
        #: Number of a request -> its answer, until that leaves.
        self.answers: dict[int, ReplyBody] = {}

    def frame(self, correlation_id: int, body: Any) -> list[Buffer]:
        """Keep the coordinator's reply, which is not encoded, and frame its number; see `Framing.frame`."""
        self.answers[correlation_id] = body
        return [correlation_id.to_bytes(_NUMBER_BYTES)]


class Socket:
    """The broker's end of a connection, as a `kohort.broker.connections.request.Peer`.

    `open_limit`: `queued.max.requests`. `on_request`: carries out what was read.
    """

    def __init__(
        self,
        connection: Connection,
        loop: runtime.SimulatedLoop,
        *,
        open_limit: int,
        on_request: Callable[[Socket, commands.Command], None],
    ) -> None:
        self.connection: Final = connection
        self.number = connection.number
        self.peer_host, self.local_host = "10.0.0.1", "10.0.0.2"
        self.listener = ListenerSettings(name="PLAINTEXT", host="10.0.0.2", port=9092)
        self.principal, self.rights = ANONYMOUS, EVERYTHING
        self.login: Login | None = None
        self.software = connection.software
        self.told_intervals: dict[tuple[str, str], int] = {}
        self.cuts: dict[tuple[str, str], int] = {}
        self._loop: Final = loop
        self._on_request: Final = on_request
        self._route: Final = SimulatedRoute()
        self._replies: Final = ReplyQueue(open_limit)
        self._holds: Final = HeldHeartbeats(self._replies)
        #: Those that were read and are not answered, in their order.
        self._open: Final[deque[Request]] = deque()
        self._unread: Final[deque[commands.Command]] = deque()
        self._has_turn = self._is_reading = self._is_closed = False

    def receive(self, command: commands.Command) -> None:
        """Queue a request, which is read once the connection has fewer open requests than the limit."""
        self._unread.append(command)
        self._pump()

    def open_request(self, number: int, client_id: str) -> Request:
        """Create the request object whose response is filled in later."""
        return Request(self, self._route, number, client_id)

    @property
    def awaited(self) -> list[int]:
        """Return the numbers of the requests that have no response so far."""
        return [request.correlation_id for request in self._open if request.is_open]

    def add(self, request: Request) -> None:
        """Add a request that is carried out, whose response is ready or follows."""
        self._replies.add(request)
        self._open.append(request)
        if request.heartbeat is not None and request.is_open:
            self._holds.add(request)

    def on_reply(self) -> None:
        """Send the responses that are ready; see `Connection.on_reply`."""
        if self._is_reading:
            return
        if not self._has_turn:
            self._has_turn = True
            self._loop.call_soon(self._take_turn)
        self._holds.release_overtaken()

    def mute(self, wait_ms: int) -> None:
        """Raise an error: no client of a world has a quota."""
        raise AssertionError(f"a client was to wait {wait_ms} ms")

    def close(self) -> None:
        """Close the broker's end and drop its unsent responses."""
        self._is_closed = True
        self._unread.clear()
        self._open.clear()
        self._replies.abandon()

    def _take_turn(self) -> None:
        self._has_turn = False
        self._pump()

    def _pump(self) -> None:
        """Read requests up to the limit of open ones, then write ready responses; see `Connection._pump`."""
        if self._is_reading:
            return
        self._is_reading = True
        while self._unread and not self._replies.is_full:
            self._on_request(self, self._unread.popleft())
        self._is_reading = False
        self._holds.release_overtaken()
        self._check_holds()
        while parts := self._replies.take(WRITE_AT_BYTES):
            for part in parts:
                # The network may break with each.
                if not self._is_closed:
                    self._write(int.from_bytes(part))
        if self._unread and not self._replies.is_full:
            self._loop.call_soon(self._take_turn)

    def _write(self, number: int) -> None:
        place = next(at for at, request in enumerate(self._open) if request.correlation_id == number)
        ordered = next((each for each in self._open if not each.is_unordered), None)
        if ordered is not None and not self._open[place].is_unordered and ordered.correlation_id != number:
            why = f"{number} is answered, and {ordered.correlation_id} was asked first"
            raise LawBroken("AnswersInOrder", why)
        del self._open[place]
        self.connection.send_back(self._route.answers.pop(number), place)

    def _check_holds(self) -> None:
        is_behind = False
        held = 0
        for request in reversed(self._open):
            if request.is_open and request.heartbeat is not None:
                held += 1
                if is_behind and not request.is_unordered:
                    why = f"{request.correlation_id} is held, and what was asked behind it is ready"
                    raise LawBroken("HeldInNobodysWay", why)
            is_behind = is_behind or request.state is SlotState.READY
        if held > self._replies.limit // 2:
            why = f"{held} requests of one connection are held, of {self._replies.limit} that it may have open"
            raise LawBroken("HeldInNobodysWay", why)
