"""Faults of a world: members come, go and stall; the broker dies; topics change; networks fail.

Laws: every perturbation can be healed, and `heal` heals all of them.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Protocol

from kohort.coordinator import commands
from kohort.coordinator.commands import CommitOffsets, GroupCommand, LeavingMember, OffsetToCommit
from kohort.coordinator.commands import admin as asked
from kohort.coordinator.decision import ReplyBody
from kohort.ids import ZERO_TOPIC_ID
from kohort.simulation.members.consumer import ConsumerMember
from kohort.simulation.members.process import NO_CAUSE, NO_REQUEST, MemberProcess, MemberWorld
from kohort.simulation.network import Connection
from kohort.simulation.scenario import QUALITIES, GroupPlan, MemberProtocol
from kohort.simulation.topics import TOPIC_NAMES

#: A group does not get more members than this.
MEMBERS_AT_MOST = 6
#: And not more than this if some of them are about to go.
VISITORS_AT_MOST = 12
#: A topic does not get more partitions than this.
PARTITIONS_AT_MOST = 8
#: How long a callback takes that outlasts the rebalance timeout, or nearly does.
SLOW_CALLBACK_MS = (4_000, 12_000)
#: What an administrator sets of a group: config -> values.
GROUP_CONFIGS: tuple[tuple[str, tuple[str | None, ...]], ...] = (
    ("consumer.session.timeout.ms", (None, "4000", "9000")),
    ("consumer.heartbeat.interval.ms", (None, "500", "2000")),
    ("consumer.assignment.interval.ms", (None, "0", "1500")),
    ("group.moves.per.second", (None, "0", "2", "20")),
)
#: Those of static groups; a token may be any text.
STATIC_CONFIGS: tuple[tuple[str, tuple[str | None, ...]], ...] = (
    ("group.membership", ("static", "dynamic")),
    ("group.registration.timeout.ms", (None, "6000", "12000")),
    ("group.expansion.timeout.ms", (None, "1000", "5000")),
    ("group.rebalance.token", ("1", "2", "3")),
    ("group.static.fallback", ("admin", "join")),
)
USUAL_SYNC_MS = 5
SLOW_SYNC_MS = 1_500


class PerturbedWorld(MemberWorld, Protocol):
    """The world around members, as its faults see it."""

    #: Name -> process, dead ones included.
    members: dict[str, MemberProcess]
    #: Sends requests that no member sends.
    administrator: Administrator

    def start_member(
        self,
        plan: GroupPlan,
        *,
        instance_id: str | None = None,
        protocol: MemberProtocol | None = None,
        is_static_allowed: bool = True,
    ) -> MemberProcess:
        """Start another process in a group; an instance id makes it follow former processes of that id."""

    def draw_topics(self) -> tuple[str, ...]:
        """Draw the topics of a subscription."""

    def create_topic(self, name: str, partition_count: int) -> None:
        """Create a topic."""

    def announce_topics(self, what: str) -> None:
        """Tell the broker the present topics."""

    def restart_broker(self) -> None:
        """Start the broker again."""


class Perturbations:
    """The source of faults, which draws the next one until it is told to stop."""

    def __init__(self, world: PerturbedWorld) -> None:
        self._world = world
        self._random = world.random
        self._until_ms = 0
        self._is_healed = False
        weights = {name: weight for name, weight in world.scenario.weights.items() if weight}
        self._actions: list[Callable[[], None]] = [getattr(self, name) for name in weights]
        self._weights = list(weights.values())

    def begin(self) -> None:
        """Begin to cause faults, for as long as the scenario says."""
        self._until_ms = self._world.clock.now_ms() + self._world.scenario.perturbed_ms
        self._plan_next()

    def heal(self) -> None:
        """End every fault; a dead process stays dead."""
        world = self._world
        self._is_healed = True
        world.story.tell("world", "is healed")
        world.network.heal()
        world.broker.sync_ms = USUAL_SYNC_MS
        world.broker.assignors.heal()
        for process in world.members.values():
            process.slow_callback_ms = 0
            if process.is_alive and world.has_younger_process(process):
                process.die()
            process.resume()
        world.broker.go_on()
        if not world.broker.is_up:
            world.restart_broker()

    def _plan_next(self) -> None:
        delay_ms = self._random.randint(*self._world.scenario.pause_between_ms)
        if self._actions and self._world.clock.now_ms() + delay_ms < self._until_ms:
            self._world.clock.after(delay_ms, self._perturb)

    def _perturb(self) -> None:
        self._random.choices(self._actions, self._weights)[0]()
        for plan in self._world.scenario.groups:
            # An empty group tests nothing; it stays empty only for a moment.
            if not any(member.group_id == plan.group_id and member.is_alive for member in self._world.members.values()):
                self._world.start_member(plan)
        self._plan_next()

    def _pick(self) -> MemberProcess | None:
        """Pick a working member."""
        members = [member for member in self._world.members.values() if _is_at_work(member)]
        return self._random.choice(members) if members else None

    def _pick_to_go(self) -> MemberProcess | None:
        """Pick a member that may go; the last one of a group only sometimes."""
        member = self._pick()
        if member is None:
            return None
        others = [o for o in self._world.members.values() if o.group_id == member.group_id and _is_at_work(o)]
        return member if len(others) > 1 or self._random.random() < 0.2 else None

    # Members.

    def join(self) -> None:
        """Start another member of a group."""
        plan = self._random.choice(self._world.scenario.groups)
        alive = [p for p in self._world.members.values() if p.group_id == plan.group_id and p.is_alive]
        if len(alive) < MEMBERS_AT_MOST:
            self._world.start_member(plan)

    def visit(self) -> None:
        """Start members that stay a few seconds, then close or vanish without a word."""
        world, random = self._world, self._random
        plan = random.choice(world.scenario.groups)
        alive = [p for p in world.members.values() if p.group_id == plan.group_id and p.is_alive]
        for _ in range(min(random.randint(1, 4), VISITORS_AT_MOST - len(alive))):
            visitor = world.start_member(plan, instance_id=None, is_static_allowed=False)
            end = visitor.leave if random.random() < 0.5 else visitor.die
            self._later(random.randint(300, 5_000), partial(_end_visit, visitor, end))

    def leave(self) -> None:
        """Close a member."""
        if (process := self._pick_to_go()) is not None:
            process.leave()

    def kill(self) -> None:
        """Kill a member."""
        if (process := self._pick_to_go()) is not None:
            process.die()

    def pause(self) -> None:
        """Pause a member for a time shorter or longer than its session."""
        if (process := self._pick()) is not None:
            process.pause()
            self._later(self._random.randint(500, 12_000), process.resume)

    def slow_callback(self) -> None:
        """Make the next callback of a member slow."""
        if (process := self._pick()) is not None:
            process.slow_callback_ms = self._random.randint(*SLOW_CALLBACK_MS)

    def ask_anew(self) -> None:
        """Make a member ask for a new assignment."""
        process = self._pick()
        if isinstance(process, ConsumerMember):
            process.ask_anew()

    def bounce(self) -> None:
        """Replace a static member's process after it closed, after it died, or while it hangs."""
        world = self._world
        process = self._pick()
        if process is None or process.instance_id is None or world.has_younger_process(process):
            return
        how, instance_id = self._random.choice(("closes", "dies", "hangs")), process.instance_id
        if how == "closes":
            process.leave()
        elif how == "dies":
            process.die()
        else:
            process.pause()
            resumed_ms = self._random.randint(2_000, 20_000)
            self._later(resumed_ms, process.resume)
            # The supervisor ends the process once it sees that it goes on.
            self._later(resumed_ms + 1_500, process.die)
        plan = next(plan for plan in world.scenario.groups if plan.group_id == process.group_id)
        self._later(self._random.randint(0, 8_000), lambda: world.start_member(plan, instance_id=instance_id))

    def roll(self) -> None:
        """Replace a process by one that speaks the other protocol, in a group that is migrated."""
        process = self._pick()
        plan = next(
            (plan for plan in self._world.scenario.groups if process and plan.group_id == process.group_id), None
        )
        if process is None or plan is None or len(plan.protocols) < 2 or self._world.has_younger_process(process):
            return
        process.leave()
        protocol = plan.protocols[1] if isinstance(process, ConsumerMember) else plan.protocols[0]
        instance_id = process.instance_id
        delay_ms = self._random.randint(0, 4_000)
        self._later(delay_ms, lambda: self._world.start_member(plan, instance_id=instance_id, protocol=protocol))

    def subscribe(self) -> None:
        """Change the subscription of a member."""
        if (process := self._pick()) is not None and not process.is_starting:
            process.subscribe(self._world.draw_topics())

    # Network.

    def break_connection(self) -> None:
        """Reset a connection."""
        if (process := self._pick()) is not None:
            self._world.story.tell("network", f"breaks the connection of {process.name}", group_id=process.group_id)
            process.wire.reset()

    def cut_off(self) -> None:
        """Cut a member off from the broker for a while."""
        if (process := self._pick()) is not None:
            self._world.story.tell("network", f"cuts {process.name} off", group_id=process.group_id)
            self._world.network.cut_off(process.wire.name)
            self._later(self._random.randint(500, 10_000), lambda: self._world.network.restore(process.wire.name))

    def change_network(self) -> None:
        """Make the network better or worse."""
        self._world.network.quality = self._random.choice(QUALITIES)
        self._world.story.tell("network", "is now", self._world.network.quality)

    # Broker.

    def crash_broker(self) -> None:
        """Crash the broker process and restart it."""
        if self._world.broker.is_up:
            self._world.broker.crash()
            self._later(self._random.randint(50, 4_000), self._world.restart_broker)

    def stall_broker(self) -> None:
        """Stall the broker process."""
        self._world.broker.stall(self._random.randint(300, 8_000))

    def set_clock(self) -> None:
        """Set the machine's clock forward or back."""
        most_ms = self._world.scenario.clock_jumps_ms
        self._world.broker.set_clock(self._random.randint(-most_ms, most_ms))

    def slow_disk(self) -> None:
        """Make syncs slow from now on, or fast again."""
        broker = self._world.broker
        broker.sync_ms = SLOW_SYNC_MS if broker.sync_ms == USUAL_SYNC_MS else USUAL_SYNC_MS
        self._world.story.tell("disk", f"syncs within {broker.sync_ms} ms")

    # Administrators.

    def administrate(self) -> None:
        """Send a random administrative request about a group."""
        world, random = self._world, self._random
        admin, group_id = world.administrator, random.choice(world.scenario.groups).group_id
        partitions = world.topics.partitions_of(TOPIC_NAMES)
        match random.randint(0, 7):
            case 0 if partitions:
                admin.delete_offsets(group_id, tuple(random.sample(partitions, min(2, len(partitions)))))
            case 1:
                admin.delete_group(group_id)
            case 2 if partitions:
                topic, partition = random.choice(partitions)
                admin.reset_offset(group_id, topic, partition, random.randint(0, 50))
            case 3 | 4:
                name, values = random.choice(GROUP_CONFIGS)
                admin.alter_configs(group_id, {name: random.choice(values)})
            case 5:
                process = self._pick()
                if process is not None:
                    member_id = "" if process.instance_id is not None else process.member_id
                    admin.remove_member(process.group_id, member_id=member_id, instance_id=process.instance_id)
            case 6 if partitions:
                process = self._pick()
                if process is not None:
                    places = random.sample(partitions, min(2, len(partitions)))
                    admin.submit_moves(process.group_id, [(*place, process.member_id) for place in places])
            case _:
                admin.describe(group_id)

    def switch_mode(self) -> None:
        """Switch a group between static and dynamic, change its timeouts, or make it rebalance."""
        group_id = self._random.choice(self._world.scenario.groups).group_id
        name, values = self._random.choice(STATIC_CONFIGS)
        self._world.administrator.alter_configs(group_id, {name: self._random.choice(values)})

    # Topics.

    def grow_topic(self) -> None:
        """Add partitions to a topic."""
        names = list(self._world.topics.image.by_name)
        if names:
            name = self._random.choice(names)
            count = self._world.topics.image.by_name[name].partition_count + self._random.randint(1, 2)
            if count <= PARTITIONS_AT_MOST:
                self._world.topics.grow(name, count)
                self._world.announce_topics(f"topic {name} grows to {count} partitions")

    def create_topic(self) -> None:
        """Create a topic, perhaps one that was deleted before."""
        names = [name for name in TOPIC_NAMES if name not in self._world.topics.image.by_name]
        if names:
            self._world.create_topic(self._random.choice(names), self._random.randint(1, 4))

    def delete_topic(self) -> None:
        """Delete a topic."""
        names = list(self._world.topics.image.by_name)
        if names:
            name = self._random.choice(names)
            self._world.topics.delete(name)
            self._world.announce_topics(f"topic {name} is deleted")

    def _later(self, delay_ms: int, action: Callable[[], object]) -> None:
        """Schedule the end of a fault; `heal` ends all that are still on before."""

        def act() -> None:
            if not self._is_healed:
                action()

        self._world.clock.after(delay_ms, act)


def _is_at_work(member: MemberProcess) -> bool:
    return member.is_alive and not member.is_paused and not member.is_leaving


def _end_visit(visitor: MemberProcess, end: Callable[[], None]) -> None:
    """End a visiting member; one that stands still dies.

    A member that is dead or leaving already is left as it is.
    """
    if visitor.is_paused:
        visitor.die()
    elif visitor.is_alive and not visitor.is_leaving:
        end()


class Administrator:
    """An administrator that sends one request after the other."""

    name = "admin"

    def __init__(self, world: MemberWorld) -> None:
        self._world = world
        self._connection: Connection | None = None
        #: The member to be removed, by each of its requests.
        self._removals: list[tuple[LeavingMember, ...]] = []

    def has_asked(self, command: commands.LeaveGroup) -> bool:
        """Whether the administrator has sent a request; the broker has numbered it since."""
        return any(command.members is members for members in self._removals)

    def on_reply(self, connection: Connection, body: ReplyBody, place: int) -> None:
        """Ignore a reply: the story has it already."""

    def on_broken(self, connection: Connection) -> None:
        """Drop the connection; the next request opens another one."""
        self._connection = None

    def delete_offsets(self, group_id: str, partitions: tuple[tuple[str, int], ...]) -> None:
        """Send OffsetDelete."""
        self._ask(asked.DeleteOffsets(cause=NO_CAUSE, request=NO_REQUEST, group_id=group_id, partitions=partitions))

    def delete_group(self, group_id: str) -> None:
        """Send DeleteGroups."""
        self._ask(asked.DeleteGroup(cause=NO_CAUSE, request=NO_REQUEST, group_id=group_id))

    def remove_member(self, group_id: str, *, member_id: str, instance_id: str | None) -> None:
        """Send LeaveGroup in the name of a member."""
        leaving = LeavingMember(member_id=member_id, instance_id=instance_id)
        self._removals.append((leaving,))
        self._ask(
            commands.LeaveGroup(
                cause=NO_CAUSE,
                request=NO_REQUEST,
                group_id=group_id,
                members=self._removals[-1],
                client_id=self.name,
            )
        )

    def alter_configs(self, group_id: str, changes: dict[str, str | None]) -> None:
        """Send IncrementalAlterConfigs of a group."""
        self._ask(asked.AlterGroupConfigs(cause=NO_CAUSE, request=NO_REQUEST, group_id=group_id, changes=changes))

    def submit_moves(self, group_id: str, moves: list[tuple[str, int, str]]) -> None:
        """Submit moves of partitions to members: topic, partition and member id of each."""
        wanted = tuple(asked.AskedMove(topic=topic, partition=each, to_member_id=to) for topic, each, to in moves)
        self._ask(asked.SubmitMoves(cause=NO_CAUSE, request=NO_REQUEST, group_id=group_id, moves=wanted))

    def reset_offset(self, group_id: str, topic: str, partition: int, offset: int) -> None:
        """Commit an offset without a member, as tools do; only a group without members accepts it."""
        wanted = OffsetToCommit(topic=topic, topic_id=ZERO_TOPIC_ID, partition=partition, offset=offset)
        self._ask(
            CommitOffsets(
                cause=NO_CAUSE,
                request=NO_REQUEST,
                group_id=group_id,
                member_id="",
                generation_or_member_epoch=-1,
                offsets=(wanted,),
            )
        )

    def describe(self, group_id: str) -> None:
        """Describe a group by every API: ConsumerGroupDescribe, DescribeGroups, and the moves under way."""
        self._ask(asked.DescribeMoves(cause=NO_CAUSE, request=NO_REQUEST, group_id=group_id))
        self._ask(asked.DescribeConsumerGroup(cause=NO_CAUSE, request=NO_REQUEST, group_id=group_id))
        self._ask(asked.DescribeClassicGroup(cause=NO_CAUSE, request=NO_REQUEST, group_id=group_id))

    def _ask(self, command: GroupCommand) -> None:
        if self._connection is None or not self._connection.is_open:
            self._connection = self._world.network.connect(self)
        if self._connection is not None:
            self._world.story.tell(self.name, "asks", command, group_id=command.group_id)
            self._connection.send(command)
