"""Common behaviour of simulated members of every protocol: connect, process, commit, pause, die.

A member processes the partitions that it owns, from the committed offset on, and commits its progress. Requests use one
connection, one at a time except for commits. A connection without a response in time is closed.

Laws: a partition is in `owned` from its assignment until the member has revoked it. A dead process owns nothing;
a paused one keeps its state.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from random import Random
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeVar

from kohort.coordinator import commands
from kohort.coordinator.decision import ReplyBody
from kohort.errors import ErrorCode
from kohort.ids import ZERO_TOPIC_ID, CauseId, RequestToken, TopicId
from kohort.simulation.network import Connection, Exchange, SimulatedNetwork
from kohort.simulation.topics import name_of
from kohort.simulation.trace import LawBroken

if TYPE_CHECKING:
    from kohort.simulation.broker import SimulatedBroker
    from kohort.simulation.scenario import MemberSettings, Scenario
    from kohort.simulation.topics import SimulatedTopics
    from kohort.simulation.trace import Story
    from kohort.testing.clock import VirtualClock


C = TypeVar("C", bound=commands.GroupCommand)
#: What a member asks before the broker gives it a number.
NO_CAUSE = CauseId(0)
NO_REQUEST = RequestToken(CauseId(0))
#: How often a request whose connection broke is sent again as it was.
RESEND_CHANCE = 0.3
#: A partition as its owner calls it: by the topic's name or label (`SimulatedTopics`), and number.
Owned = tuple[str, int]


class MemberWorld(Protocol):
    """The world around a member, as its process sees it."""

    random: Random
    #: What members publish and when, beside everything else that is drawn.
    publishing: Random
    #: What members say beside their heartbeats and when, in the same way.
    updates: Random
    scenario: Scenario
    clock: VirtualClock
    story: Story
    topics: SimulatedTopics
    network: SimulatedNetwork
    broker: SimulatedBroker
    #: Nothing goes wrong any more, and what did has had its effects.
    is_at_peace: bool
    #: Check the offset (group id, topic, partition, offset) at which a member begins, and the next one when it has
    #: processed records.
    on_begun: Callable[[str, str, int, int], None]
    on_processed: Callable[[str, str, int, int], None]

    def has_younger_process(self, process: MemberProcess) -> bool:
        """Return whether a later process has the same instance id."""

    def has_older_process(self, process: MemberProcess) -> bool:
        """Return whether an earlier process with the same instance id is still alive."""

    def draw_pattern(self) -> str | None:
        """Draw the pattern of a subscription; `None` for a subscription by names."""

    def on_ownership_changed(self, process: MemberProcess) -> None:
        """Check the owners after a member's ownership has changed."""


class MemberProcess:
    """The process around a group member; subclasses speak the protocol."""

    def __init__(
        self,
        world: MemberWorld,
        name: str,
        group_id: str,
        *,
        topics: tuple[str, ...],
        settings: MemberSettings,
        instance_id: str | None = None,
        wire: Wire | None = None,
    ) -> None:
        #: The name that it shares with the processes that follow it; `None` is a dynamic member.
        self.instance_id = instance_id
        self.world = world
        self.name = name
        self.group_id = group_id
        self.topics = topics
        self.settings = settings
        self.random: Random = world.random
        #: The id that the coordinator knows it by; empty before the first answer of a classic coordinator.
        self.member_id = ""
        #: Partitions that the application may work on, and those that it is just giving up.
        self.owned: set[Owned] = set()
        #: Partition -> the next offset to process, for partitions whose committed offset is known.
        self.positions: dict[Owned, int] = {}
        #: How many partitions it had to give up.
        self.given_up = 0
        self.is_alive = False
        self.is_starting = False
        self.is_paused = False
        #: It has said, or is saying, that it leaves; nothing else is begun.
        self.is_leaving = False
        #: The next callback takes this long, 0 as usual.
        self.slow_callback_ms = 0
        #: By what it speaks to its coordinator.
        self.wire = Wire(world.network, name) if wire is None else wire
        self.wire.users.append(self)
        #: Number of this life; actions planned in an earlier one are dropped.
        self._life = 0
        #: Events that came in while the process was paused.
        self._missed: list[Callable[[], None]] = []

    # Life.

    def start(self) -> None:
        """Start the process."""
        self.is_alive, self.is_starting = True, False
        self.tell("starts", self.topics)
        self.later(self.settings.process_interval_ms, self._process)
        self.later(self.settings.commit_interval_ms, self._commit_regularly)
        self.join()

    def join(self) -> None:
        """Join the group."""
        raise NotImplementedError

    def leave(self) -> None:
        """Leave the group cleanly, then end."""
        raise NotImplementedError

    def die(self) -> None:
        """Kill the process, as by SIGKILL."""
        self.tell("is killed")
        self.end()

    def end(self) -> None:
        """End the process: drop its scheduled actions and its partitions."""
        self.is_alive = False
        self.is_paused = False
        self._missed = []
        self._life += 1
        self._set_owned(set())
        self.wire.end_of(self)

    def pause(self) -> None:
        """Pause the process, as by SIGSTOP."""
        self.tell("stands still")
        self.is_paused = True

    def resume(self) -> None:
        """Resume the process, which now handles expired timers and responses that have arrived."""
        if not self.is_paused:
            return
        self.tell("goes on")
        self.is_paused = False
        missed, self._missed = self._missed, []
        for action in missed:
            self._act(action)

    # Plans.

    def later(self, delay_ms: int, action: Callable[[], None]) -> None:
        """Run an action later, unless the process was restarted; a paused process runs it when resumed."""
        life = self._life

        def act() -> None:
            if self._life == life:
                self._act(action)

        self.world.clock.after(delay_ms, act)

    def _act(self, action: Callable[[], None]) -> None:
        if self.is_paused:
            self._missed.append(action)
        elif self.is_alive:
            action()

    def draw_callback_ms(self) -> int:
        """Draw the length of the application's next callback."""
        if self.slow_callback_ms:
            slow_ms, self.slow_callback_ms = self.slow_callback_ms, 0
            return slow_ms
        return self.random.randint(0, self.settings.callback_ms)

    def on_instance_fenced(self) -> None:
        """Handle FENCED_INSTANCE_ID: another process has this one's instance id.

        This process ends if the other one is younger; otherwise it is started again.
        """
        self.tell("is replaced")
        if self.world.has_younger_process(self):
            self.end()
            return
        if not self.world.has_older_process(self) and not self.world.broker.server_life:
            # A crash may take the member id that was told last, and leave the one before.
            raise LawBroken(
                "NoFatalAnswer", f"{self.name} is fenced, and no other took its name", group_id=self.group_id
            )
        self.start_again()

    def start_again(self) -> None:
        """Restart the process after a second, unless it is told to close before."""
        self.end()
        self.is_alive = self.is_starting = True
        self.later(1_000, lambda: self.end() if self.is_leaving else self.start())

    # Talking to the coordinator.

    def build(self, kind: type[C], **fields: Any) -> C:
        """Build a request about this member's group; the broker assigns its number."""
        return kind(cause=NO_CAUSE, request=NO_REQUEST, group_id=self.group_id, **fields)

    def ask(
        self,
        command: commands.GroupCommand,
        on_reply: Callable[[ReplyBody], None],
        on_failure: Callable[[], None],
        *,
        timeout_ms: int | None = None,
    ) -> None:
        """Send a request; exactly one of the two callbacks is called, unless the process ends."""
        self._send(command, on_reply, on_failure, timeout_ms or self.settings.request_timeout_ms)

    def _send(
        self,
        command: commands.GroupCommand,
        on_reply: Callable[[ReplyBody], None],
        on_failure: Callable[[], None],
        timeout_ms: int,
    ) -> None:
        life = self._life

        def deliver(body: ReplyBody) -> None:
            if self._life == life:
                self._act(lambda: on_reply(body) if self._life == life else None)

        def fail() -> None:
            if self._life == life and self.is_alive:
                is_sent_again = self.may_send_again(command) and self.random.random() < RESEND_CHANCE
                then = again if is_sent_again else on_failure
                self.later(self.random.randint(1, self.settings.retry_backoff_ms), then)

        def again() -> None:
            # Meanwhile the client may have thought of something newer.
            if self.may_send_again(command):
                self._send(command, on_reply, on_failure, timeout_ms)
            else:
                on_failure()

        def expire() -> None:
            if self.wire.is_waiting(exchange):
                self.on_timeout(command)
                self.wire.hang_up()

        exchange = Exchange(command=command, deliver=deliver, fail=fail)
        self.tell("sends", command)
        if self.wire.send(exchange):
            self.later(timeout_ms, expire)
        else:
            self.later(self.settings.retry_backoff_ms, on_failure)

    def on_timeout(self, command: commands.GroupCommand) -> None:
        """Handle a request that got no response in time."""
        self.tell("waits no longer for an answer")
        if self.world.is_at_peace and isinstance(command, commands.ConsumerGroupHeartbeat):
            why = f"{self.name} gives its connection up, since a heartbeat is not answered in the time that it has"
            raise LawBroken("HoldsEndInTime", why, group_id=self.group_id)

    def subscribe(self, topics: tuple[str, ...]) -> None:
        """Subscribe to other topics."""
        raise NotImplementedError

    def may_send_again(self, command: commands.GroupCommand) -> bool:
        """Return whether a client may repeat this request unchanged, so that the coordinator gets it twice.

        A commit may not be repeated: there may be a newer one by then.
        """
        return not isinstance(command, commands.CommitOffsets)

    # Owning partitions.

    def gain(self, partitions: set[Owned]) -> None:
        """Add newly assigned partitions, and fetch their committed offsets."""
        if not partitions:
            return
        self.tell("now owns also", partitions)
        self._set_owned(self.owned | partitions)
        self._look_up(sorted(partitions))

    def give_up(self, partitions: set[Owned]) -> None:
        """Drop revoked partitions, with which the application has finished."""
        if partitions & self.owned:
            self.tell("no longer owns", partitions & self.owned)
            self.given_up += len(partitions & self.owned)
            self._set_owned(self.owned - partitions)

    def lose_all(self) -> None:
        """Drop every partition of a fenced member."""
        self._forget_callbacks()
        self.give_up(set(self.owned))

    def _forget_callbacks(self) -> None:
        """Forget running callbacks, whose partitions are lost; subclasses implement this."""

    def _set_owned(self, owned: set[Owned]) -> None:
        self.owned = owned
        self.positions = {found: offset for found, offset in self.positions.items() if found in owned}
        self.world.on_ownership_changed(self)

    def _look_up(self, partitions: list[Owned]) -> None:
        command = self.build_fetch(tuple((name_of(label), number) for label, number in partitions))

        def on_reply(body: ReplyBody) -> None:
            if isinstance(body, commands.FetchOffsetsReply):
                for wanted, found in zip(partitions, body.offsets, strict=True):
                    if wanted in self.owned and wanted not in self.positions:
                        self.positions[wanted] = max(found.offset, 0)
                        self._tell_checkers(self.world.on_begun, wanted)
                return
            # A member whose epoch is not current is told so; it learns the rest by its heartbeat.
            again()

        def again() -> None:
            left = [found for found in partitions if found in self.owned and found not in self.positions]
            if left and not self.is_leaving:
                self.later(self.settings.retry_backoff_ms * 5, lambda: self._look_up(left))

        self.ask(command, on_reply, again, timeout_ms=self.patience_ms())

    def patience_ms(self) -> int:
        """Return the timeout of an OffsetCommit or OffsetFetch, ms; its response may queue behind others."""
        return self.settings.request_timeout_ms

    def build_fetch(self, partitions: tuple[tuple[str, int], ...]) -> commands.FetchOffsets:
        """Build an OffsetFetch in this member's name, by topic name."""
        raise NotImplementedError

    def build_commit(self, offsets: tuple[commands.OffsetToCommit, ...]) -> commands.CommitOffsets:
        """Build an OffsetCommit in this member's name."""
        raise NotImplementedError

    def on_commit_refused(self, code: ErrorCode) -> None:
        """Handle a commit refused as a whole; subclasses may rejoin."""

    def _process(self) -> None:
        for partition in sorted(self.positions):
            self.positions[partition] += self.random.randint(0, 5)
            self._tell_checkers(self.world.on_processed, partition)
        self.later(self.settings.process_interval_ms, self._process)

    def _tell_checkers(self, law: Callable[[str, str, int, int], None], partition: Owned) -> None:
        """Report a partition to the checkers, unless its topic may have been re-created since the commit."""
        if self.world.topics.is_first_of_its_name(partition[0]):
            law(self.group_id, *partition, self.positions[partition])

    def _commit_regularly(self) -> None:
        if not self.is_leaving:
            self.commit(self.owned)
        self.later(self.settings.commit_interval_ms, self._commit_regularly)

    def commit(self, partitions: set[Owned]) -> None:
        """Commit the positions of some partitions without waiting for the response."""
        offsets = tuple(
            commands.OffsetToCommit(
                topic=name_of(label),
                topic_id=self.topic_id_of(label),
                partition=number,
                offset=self.positions[label, number],
            )
            for label, number in sorted(partitions & self.positions.keys())
        )
        if not offsets or not self.is_valid:
            return

        def on_reply(body: ReplyBody) -> None:
            if isinstance(body, commands.Refusal):
                self.on_commit_refused(body.code)

        self.ask(self.build_commit(offsets), on_reply, lambda: None, timeout_ms=self.patience_ms())

    @property
    def is_valid(self) -> bool:
        """Whether the member has an epoch or generation, so that its ownership counts and it may commit."""
        raise NotImplementedError

    @property
    def wanted_topics(self) -> tuple[str, ...]:
        """Return the names of all subscribed topics, by name or by pattern."""
        return self.topics

    def on_fatal(self, code: ErrorCode) -> None:
        """Handle an error that is fatal for a stock client.

        Only members of groups whose custom assignors keep failing may get one.
        """
        is_own = bool(self.world.scenario.settings.own_assignors)
        if code != ErrorCode.UNKNOWN_SERVER_ERROR or not is_own:
            raise LawBroken("NoFatalAnswer", f"{self.name} gets {code.name}", group_id=self.group_id)
        self.start_again()

    #: The last generation of which a classic member knows its assignment, -1 for none.
    synced_generation = -1
    #: Whether it tells topics of the same name apart.
    knows_topic_ids = True

    def topic_id_of(self, label: str) -> TopicId:
        """Return the topic id to commit with; zero where the protocol only has names."""
        return ZERO_TOPIC_ID

    def tell(self, what: str, *about: object) -> None:
        """Add an event to the story."""
        self.world.story.tell(self.name, what, *about, group_id=self.group_id)


# The connection of a process to the coordinator, used by one member or several.
#
# Laws: a connection of which an answer does not come in its time is given up, with all requests that are open on it.
# A client that does not match answers by the numbers of their requests gets them in order (AnswersInOrder).

#: Finds the request of an answer by its number.
MATCHING: Final = "librdkafka"


class Wire:
    """The connection that the members of one process share.

    Args:
        software: the client's software name (KIP-511); empty if it sends none.
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
        """Send a request, over a new connection if there is none; `False` if no broker is reachable."""
        if self._connection is None:
            self._connection = self._network.connect(self, software=self.software)
        if self._connection is None:
            return False
        self._exchanges.append(exchange)
        self._connection.send(exchange.command)
        return True

    def is_waiting(self, exchange: Exchange) -> bool:
        """Return whether a request has no response yet."""
        return exchange in self._exchanges

    def on_reply(self, connection: Connection, body: ReplyBody, place: int) -> None:
        """Handle the response to a request, which need not be the oldest one."""
        if connection is not self._connection:
            return
        if place and self.software != MATCHING:
            raise LawBroken("AnswersInOrder", f"{self.name} takes an answer for another")
        exchange = self._exchanges[place]
        del self._exchanges[place]
        exchange.deliver(body)

    def on_broken(self, connection: Connection) -> None:
        """Handle the end of the connection, as the network reports it."""
        if connection is self._connection:
            self.hang_up()

    def hang_up(self) -> None:
        """Close the connection; its open requests get no response."""
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()
        failed, self._exchanges = self._exchanges, deque()
        for exchange in failed:
            exchange.fail()

    def end_of(self, user: MemberProcess) -> None:
        """Note the end of a member; after the last one, close the connection."""
        if not any(other.is_alive for other in self.users if other is not user):
            self.hang_up()

    def reset(self) -> None:
        """Reset the connection."""
        if self._connection is not None:
            self._network.break_one(self._connection)
