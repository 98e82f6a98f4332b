"""The world of a seed: one broker, a network, groups of members, and the faults between them.

A run: members start. For a while faults occur. Then all faults end, and the groups must come to rest within bounded
time and stay at rest. Finally all members die, and timers must end every waiting request. Checkers run after each step.
A broken law raises `InvariantViolation` with the story (the event log) of its group.

Laws: a seed determines everything. Nothing reads a clock or another source of randomness, so failures reproduce.
Source: architecture rules 10 and 11; reliability: FoundationDB's and TigerBeetle's way of testing.
"""

from __future__ import annotations

import gc
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from random import Random
from typing import Any

from kohort.coordinator import commands
from kohort.coordinator.commands import admin as asked
from kohort.coordinator.consumer.assignment.batching_window import assignment_key
from kohort.coordinator.decision import ReplyBody
from kohort.coordinator.invariants import check_shared
from kohort.coordinator.settings import GroupSettings
from kohort.coordinator.shard import Shard
from kohort.errors import InvariantViolation
from kohort.ids import ZERO_TOPIC_ID
from kohort.simulation.broker import SimulatedBroker
from kohort.simulation.checkers import Checkers
from kohort.simulation.invariants.convergence import check_told, progress_of, why_not_at_rest
from kohort.simulation.members.classic import ClassicMember
from kohort.simulation.members.consumer import ConsumerMember, HeartbeatOptions
from kohort.simulation.members.process import NO_CAUSE, NO_REQUEST, MemberProcess, Wire
from kohort.simulation.network import Connection, SimulatedNetwork
from kohort.simulation.runtime import compact, fold
from kohort.simulation.scenario import PATTERNS, QUALITIES, GroupPlan, MemberProtocol, Scenario, draw_scenario
from kohort.simulation.topics import TOPIC_NAMES, SimulatedTopics
from kohort.simulation.trace import LawBroken, Story
from kohort.testing.clock import VirtualClock

#: After everything is healed a group is at rest within this time: a few rebalances that each wait for the dead.
REST_WITHIN_MS = 120_000
#: And stays at rest for as long as this.
REST_FOR_MS = 5_000
LOOK_EVERY_MS = 500
#: What a KIP-848 client calls itself; heartbeats of a client without such a name are never held.
SOFTWARE = ("librdkafka", "librdkafka", "apache-kafka-java", "kohort", "kohort", "")
MEMBERS_PER_WIRE = 4
#: What was under way when the world was healed has arrived by then, and may still have fenced a member.
SETTLE_MS = 8_000
#: After the last member died, every deadline has passed within this time.
SILENCE_WITHIN_MS = 900_000

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


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """Statistics of a run: numbers of events, and the virtual time."""

    seed: int
    scenario: Scenario
    steps: int
    answers: int
    virtual_ms: int
    #: From the end of the perturbations to rest, milliseconds.
    rest_after_ms: int

    @property
    def summary(self) -> str:
        """Format the statistics as text."""
        return (
            f"{self.steps} steps and {self.answers} answers, {self.virtual_ms / 1000:.1f} s of virtual time; "
            f"at rest {self.rest_after_ms / 1000:.1f} s after the end of the perturbations"
        )


class World:
    """The world of one seed.

    Args:
        seed: determines everything.
        scenario: a scenario to run instead of the one that the seed draws.
        build_shard: makes the broker's shards; tests plant bugs with it.
        broker_class: makes the broker around them; tests plant bugs with it, too.

    >>> World(seed=1).run().answers > 100
    True
    """

    def __init__(
        self,
        seed: int,
        *,
        scenario: Scenario | None = None,
        build_shard: Callable[[GroupSettings], Shard] = Shard,
        broker_class: type[SimulatedBroker] = SimulatedBroker,
    ) -> None:
        self.seed = seed
        self.random = Random(seed)
        #: What members publish and when, beside everything else that is drawn.
        self.publishing = Random(f"{seed} published")
        #: What members say beside their heartbeats and when, in the same way.
        self.updates = Random(f"{seed} words")
        self.plan = self.scenario = draw_scenario(self.random) if scenario is None else scenario
        self.clock = VirtualClock()
        self.story = Story(self.clock)
        self.topics = SimulatedTopics()
        self.members: dict[str, MemberProcess] = {}
        #: Nothing goes wrong any more, and what did has had its effects.
        self.is_at_peace = False
        self.network = SimulatedNetwork(self.clock, self.random)
        self.administrator = Administrator(self)
        self.checkers = Checkers(
            self.topics.label_of,
            self.members,
            home_of=lambda group_id: self.broker.home_of(group_id).index,
            now_ms=self.clock.now_ms,
            is_first_of_its_name=self.topics.is_first_of_its_name,
            is_by_administrator=self.administrator.has_asked,
            is_clean=self.scenario.is_clean,
        )
        self.on_begun: Callable[[str, str, int, int], None] = self.checkers.offsets.on_begun
        self.on_processed: Callable[[str, str, int, int], None] = self.checkers.offsets.on_processed
        self.broker: SimulatedBroker = broker_class(
            self.clock,
            self.network,
            self.story,
            self.checkers,
            random=self.random,
            settings=self.scenario.settings,
            options={
                "group.push.enable": self.scenario.is_pushing,
                "group.push.clients": (),
                "group.push.join.hold.ms": 1_000,
                "queued.max.requests": self.scenario.open_requests,
            },
            shard_count=self.scenario.shard_count,
            build_shard=build_shard,
        )
        self._faults = Faults(self)
        self._member_counts: dict[str, int] = {}

    def run(self) -> Report:
        """Run the world from beginning to end.

        Raises:
            InvariantViolation: a law was broken; the error has the story.
        """
        thresholds = gc.get_threshold()
        # Nearly all that a world makes is part of its story, which the collector need not look at again and again.
        gc.set_threshold(100_000, 5, 5)
        try:
            return self._play()
        except Exception as error:
            raise self._with_story(error) from error
        finally:
            gc.set_threshold(*thresholds)

    # What perturbations do.

    def create_topic(self, name: str, partition_count: int) -> None:
        """Create a topic."""
        self.topics.create(name, partition_count)
        facts = self.topics.image.by_name[name]
        self.story.topic_names[facts.topic_id] = self.topics.label_of(facts.topic_id)
        self.announce_topics(f"topic {self.topics.label_of(facts.topic_id)} has {partition_count} partitions")

    def announce_topics(self, what: str) -> None:
        """Tell the broker the present topics."""
        self.story.tell("world", what)
        self.broker.topics_changed(self.topics.image)

    def start_member(
        self,
        plan: GroupPlan,
        *,
        instance_id: str | None = None,
        protocol: MemberProtocol | None = None,
        is_static_allowed: bool = True,
    ) -> MemberProcess:
        """Start another process in a group; with an instance id, it succeeds earlier processes of that id."""
        number = self._member_counts[plan.group_id] = self._member_counts.get(plan.group_id, 0) + 1
        name = f"{plan.group_id}-{number}"
        topics, settings = self.draw_topics(), self.scenario.members
        if instance_id is None and is_static_allowed and self.random.random() < self.scenario.static_share:
            instance_id = f"{plan.group_id}-static-{number}"
        protocol = plan.draw_protocol(self.random) if protocol is None else protocol
        if protocol == "consumer":
            options = self._draw_options()
            member: MemberProcess = ConsumerMember(
                self,
                name,
                plan.group_id,
                topics=topics,
                settings=settings,
                instance_id=instance_id,
                options=options,
                wire=self._draw_wire(name, options),
            )
        else:
            member = ClassicMember(
                self,
                name,
                plan.group_id,
                topics=topics,
                settings=settings,
                is_cooperative=protocol == "cooperative",
                requires_known_member_id=self.random.random() < 0.8,
                instance_id=instance_id,
            )
        self.members[name] = member
        member.start()
        return member

    def start_member_later(self, delay_ms: int, plan: GroupPlan) -> None:
        """Start another process in a group after a delay."""

        def start() -> None:
            self.start_member(plan)

        self.clock.after(delay_ms, start)

    def has_younger_process(self, process: MemberProcess) -> bool:
        """Return whether a process with the same instance id started later."""
        return process.instance_id is not None and self._bearers(process)[-1] is not process

    def has_older_process(self, process: MemberProcess) -> bool:
        """Return whether a process with the same instance id started before."""
        return process.instance_id is not None and self._bearers(process)[0] is not process

    def _bearers(self, process: MemberProcess) -> list[MemberProcess]:
        mine = (process.group_id, process.instance_id)
        return [other for other in self.members.values() if (other.group_id, other.instance_id) == mine]

    def draw_topics(self) -> tuple[str, ...]:
        """Draw a member's topics: mostly the same as those of other members."""
        if self.scenario.same_topics:
            return self.scenario.same_topics
        if self.random.random() < 0.6:
            return ("t", "u")
        return tuple(sorted(self.random.sample(TOPIC_NAMES, self.random.randint(1, 3))))

    def draw_pattern(self) -> str | None:
        """Draw a KIP-848 member's topic pattern; `None`, most often: no pattern."""
        is_drawn = self.random.random() < self.scenario.pattern_share
        return self.random.choice(PATTERNS) if is_drawn else None

    def _draw_options(self) -> HeartbeatOptions:
        random, assignors = self.random, self.scenario.settings.group_consumer_assignors
        share = self.scenario.assignor_share
        return HeartbeatOptions(
            pattern=self.draw_pattern(),
            server_assignor=random.choice((None, None, None, *assignors)),
            proposed_interval_ms=random.choice((-1, -1, 300, 2_500)),
            runs_assignors=share > 0 and random.random() < share,
            watches_updates=self.updates.random() < self.scenario.update_share,
        )

    def _draw_wire(self, name: str, options: HeartbeatOptions) -> Wire:
        """Draw a process's connection: mostly its own, sometimes that of another process."""
        if self.random.random() < self.scenario.shared_share:
            wires = [p.wire for p in self.members.values() if isinstance(p, ConsumerMember) and p.is_alive]
            shared = [wire for wire in dict.fromkeys(wires) if len(wire.users) < MEMBERS_PER_WIRE]
            if shared:
                return self.random.choice(shared)
        software = self.random.choice(SOFTWARE)
        # Stock clients do not know of assignors of their own.
        return Wire(self.network, name, software="kohort" if software and options.runs_assignors else software)

    def restart_broker(self) -> None:
        """Restart the broker, and check that no member believes to own more than the log has.

        The broker's clock may have been set meanwhile, forward or back.
        """
        if self.scenario.clock_jumps_ms and self.random.random() < 0.5:
            self.broker.clock_offset_ms = self.random.randint(
                -self.scenario.clock_jumps_ms, self.scenario.clock_jumps_ms
            )
        self.broker.restart()
        for plan in self.scenario.groups:
            self.checkers.owners.check_owners(self.broker.home_of(plan.group_id).shard.groups, plan.group_id)

    def on_ownership_changed(self, process: MemberProcess) -> None:
        """Check the owners after a member's ownership has changed."""
        if self.broker.is_up:
            self.checkers.owners.check_owners(self.broker.home_of(process.group_id).shard.groups, process.group_id)

    # The run.

    def _play(self) -> Report:
        scenario = self.scenario
        self.network.quality = scenario.quality
        for name, count in scenario.topics.items():
            self.create_topic(name, count)
        for plan in scenario.groups:
            for _ in range(plan.member_count):
                self.start_member_later(self.random.randint(0, 3_000), plan)
        self._faults.begin()
        self.clock.run_until(self.clock.now_ms() + scenario.perturbed_ms)
        self._faults.heal()
        rest_after_ms = self._come_to_rest()
        self._stay_at_rest()
        self._fall_silent()
        self._check_logs()
        return Report(
            seed=self.seed,
            scenario=scenario,
            steps=self.checkers.steps,
            answers=self.broker.answered,
            virtual_ms=self.clock.now_ms() - self.clock.start_ms,
            rest_after_ms=rest_after_ms,
        )

    def _come_to_rest(self) -> int:
        begun_ms = self.clock.now_ms()
        self.clock.run_until(begun_ms + SETTLE_MS)
        self.is_at_peace = True
        while (unrest := self._unrest()) is not None:
            if self.clock.now_ms() - begun_ms > REST_WITHIN_MS:
                group_id, reason = unrest
                why = f"is not at rest {REST_WITHIN_MS} ms after everything was healed: {reason}"
                raise LawBroken("EventuallyConverges", why, group_id=group_id)
            self.clock.run_until(self.clock.now_ms() + LOOK_EVERY_MS)
        return self.clock.now_ms() - begun_ms

    def _stay_at_rest(self) -> None:
        before = {plan.group_id: self._progress(plan.group_id) for plan in self.scenario.groups}
        self.clock.run_until(self.clock.now_ms() + REST_FOR_MS)
        for group_id, progress in before.items():
            if self._progress(group_id) != progress:
                raise LawBroken("EventuallyConverges", "rebalanced although nothing happened", group_id=group_id)
        for plan in self.scenario.groups:
            living = [p for p in self.members.values() if p.group_id == plan.group_id and p.is_alive]
            check_told(self.broker.home_of(plan.group_id).shard.groups, plan.group_id, living)
        unrest = self._unrest()
        if unrest is not None:
            raise LawBroken("EventuallyConverges", f"did not stay at rest: {unrest[1]}", group_id=unrest[0])

    def _fall_silent(self) -> None:
        """Kill every member, and check that sessions end, groups become empty and no request stays open."""
        for process in self.members.values():
            if process.is_alive:
                process.die()
        self.clock.run_until(self.clock.now_ms() + SILENCE_WITHIN_MS)
        for plan in self.scenario.groups:
            reason = why_not_at_rest(self.broker.home_of(plan.group_id).shard.groups, plan.group_id, [], self.topics)
            if reason is not None:
                why = f"{reason}, although every session has ended"
                raise LawBroken("EventuallyConverges", why, group_id=plan.group_id)
        if self.broker.unanswered:
            command = self.broker.unanswered[0]
            raise LawBroken("AnsweredOnce", f"a request was never answered: {command}", group_id=command.group_id)
        armed = [home.shard.next_deadline() for home in self.broker.homes]
        if any(deadline is not None for deadline in armed):
            raise InvariantViolation("DeadlinesEnd: deadlines are left without a member")

    def _check_logs(self) -> None:
        for home in self.broker.homes:
            check_shared(home.shard.groups)
            entries, settings = home.disk.entries(), self.scenario.settings
            whole = fold(entries, settings).state_digest()
            if whole != home.shard.state_digest():
                raise InvariantViolation("FoldIsLivingState: the log does not give the living state in the end")
            if fold(compact(entries), settings).state_digest() != whole:
                raise InvariantViolation("FoldIsLivingState: the compacted log does not give what the whole one does")

    def _unrest(self) -> tuple[str, str] | None:
        for plan in self.scenario.groups:
            living = [p for p in self.members.values() if p.group_id == plan.group_id and p.is_alive]
            if any(process.is_leaving for process in living):
                return plan.group_id, "a member is still closing"
            shard = self.broker.home_of(plan.group_id).shard
            group = shard.groups.consumer.get(plan.group_id)
            is_computed = group is not None and group.computing is not None
            if is_computed or shard.timers.deadline(assignment_key(plan.group_id)) is not None:
                return plan.group_id, "an assignment is due"
            reason = why_not_at_rest(shard.groups, plan.group_id, living, self.topics)
            if reason is not None:
                return plan.group_id, reason
        return None

    def _progress(self, group_id: str) -> int:
        return progress_of(self.broker.home_of(group_id).shard.groups, group_id)

    def _with_story(self, error: Exception) -> InvariantViolation:
        law = error.law if isinstance(error, InvariantViolation) else f"{type(error).__name__}: {error}"
        detail = list(error.story) if isinstance(error, InvariantViolation) else []
        rows = self.story.of(getattr(error, "group_id", ""))
        return InvariantViolation(f"{law}\n  again with: make seed SEED={self.seed}", [*detail, *rows])


class Faults:
    """The source of faults, which draws one after the other until `heal`."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._random = world.random
        self._until_ms = 0
        self._is_healed = False
        weights = {name: weight for name, weight in world.scenario.weights.items() if weight}
        self._actions: list[Callable[[], None]] = [getattr(self, name) for name in weights]
        self._weights = list(weights.values())

    def begin(self) -> None:
        """Begin to cause faults, for the scenario's duration."""
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
        """Pick a member to stop or kill; the last one of a group only sometimes."""
        member = self._pick()
        if member is None:
            return None
        others = [o for o in self._world.members.values() if o.group_id == member.group_id and _is_at_work(o)]
        return member if len(others) > 1 or self._random.random() < 0.2 else None

    # Members.

    def join(self) -> None:
        plan = self._random.choice(self._world.scenario.groups)
        alive = [p for p in self._world.members.values() if p.group_id == plan.group_id and p.is_alive]
        if len(alive) < MEMBERS_AT_MOST:
            self._world.start_member(plan)

    def visit(self) -> None:
        """Start members that leave or die after a few seconds."""
        world, random = self._world, self._random
        plan = random.choice(world.scenario.groups)
        alive = [p for p in world.members.values() if p.group_id == plan.group_id and p.is_alive]
        for _ in range(min(random.randint(1, 4), VISITORS_AT_MOST - len(alive))):
            visitor = world.start_member(plan, instance_id=None, is_static_allowed=False)
            end = visitor.leave if random.random() < 0.5 else visitor.die
            self._later(random.randint(300, 5_000), partial(_end_visit, visitor, end))

    def leave(self) -> None:
        if (process := self._pick_to_go()) is not None:
            process.leave()

    def kill(self) -> None:
        if (process := self._pick_to_go()) is not None:
            process.die()

    def pause(self) -> None:
        """Pause a member for a time shorter or longer than its session."""
        if (process := self._pick()) is not None:
            process.pause()
            self._later(self._random.randint(500, 12_000), process.resume)

    def slow_callback(self) -> None:
        if (process := self._pick()) is not None:
            process.slow_callback_ms = self._random.randint(*SLOW_CALLBACK_MS)

    def ask_anew(self) -> None:
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
        """Replace a process by one with the other group protocol, in a group that is being migrated."""
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
        if (process := self._pick()) is not None and not process.is_starting:
            process.subscribe(self._world.draw_topics())

    # Network.

    def break_connection(self) -> None:
        if (process := self._pick()) is not None:
            self._world.story.tell("network", f"breaks the connection of {process.name}", group_id=process.group_id)
            process.wire.reset()

    def cut_off(self) -> None:
        if (process := self._pick()) is not None:
            self._world.story.tell("network", f"cuts {process.name} off", group_id=process.group_id)
            self._world.network.cut_off(process.wire.name)
            self._later(self._random.randint(500, 10_000), lambda: self._world.network.restore(process.wire.name))

    def change_network(self) -> None:
        self._world.network.quality = self._random.choice(QUALITIES)
        self._world.story.tell("network", "is now", self._world.network.quality)

    # Broker.

    def crash_broker(self) -> None:
        if self._world.broker.is_up:
            self._world.broker.crash()
            self._later(self._random.randint(50, 4_000), self._world.restart_broker)

    def stall_broker(self) -> None:
        self._world.broker.stall(self._random.randint(300, 8_000))

    def set_clock(self) -> None:
        most_ms = self._world.scenario.clock_jumps_ms
        self._world.broker.set_clock(self._random.randint(-most_ms, most_ms))

    def slow_disk(self) -> None:
        """Make syncs slow from now on, or fast again."""
        broker = self._world.broker
        broker.sync_ms = SLOW_SYNC_MS if broker.sync_ms == USUAL_SYNC_MS else USUAL_SYNC_MS
        self._world.story.tell("disk", f"syncs within {broker.sync_ms} ms")

    # Administrators.

    def administrate(self) -> None:
        world, random = self._world, self._random
        admin, group_id = world.administrator, random.choice(world.scenario.groups).group_id
        asks = admin.ask
        partitions = world.topics.partitions_of(TOPIC_NAMES)
        match random.randint(0, 7):
            case 0 if partitions:
                asks(
                    asked.DeleteOffsets, group_id, partitions=tuple(random.sample(partitions, min(2, len(partitions))))
                )
            case 1:
                asks(asked.DeleteGroup, group_id)
            case 2 if partitions:
                topic, partition = random.choice(partitions)
                admin.reset_offset(group_id, topic, partition, random.randint(0, 50))
            case 3 | 4:
                name, values = random.choice(GROUP_CONFIGS)
                asks(asked.AlterGroupConfigs, group_id, changes={name: random.choice(values)})
            case 5:
                process = self._pick()
                if process is not None:
                    member_id = "" if process.instance_id is not None else process.member_id
                    admin.remove_member(process.group_id, member_id=member_id, instance_id=process.instance_id)
            case 6 if partitions:
                process = self._pick()
                if process is not None:
                    places = random.sample(partitions, min(2, len(partitions)))
                    moves = tuple(
                        asked.AskedMove(topic=t, partition=p, to_member_id=process.member_id) for t, p in places
                    )
                    asks(asked.SubmitMoves, process.group_id, moves=moves)
            case _:
                for kind in (asked.DescribeMoves, asked.DescribeConsumerGroup, asked.DescribeClassicGroup):
                    asks(kind, group_id)

    def switch_mode(self) -> None:
        """Switch a group between static and dynamic, change its timeouts, or make it rebalance."""
        group_id = self._random.choice(self._world.scenario.groups).group_id
        name, values = self._random.choice(STATIC_CONFIGS)
        self._world.administrator.ask(asked.AlterGroupConfigs, group_id, changes={name: self._random.choice(values)})

    # Topics.

    def grow_topic(self) -> None:
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
        names = list(self._world.topics.image.by_name)
        if names:
            name = self._random.choice(names)
            self._world.topics.delete(name)
            self._world.announce_topics(f"topic {name} is deleted")

    def _later(self, delay_ms: int, action: Callable[[], object]) -> None:
        """Schedule the end of a fault, unless `heal` has ended it before."""

        def act() -> None:
            if not self._is_healed:
                action()

        self._world.clock.after(delay_ms, act)


def _is_at_work(member: MemberProcess) -> bool:
    return member.is_alive and not member.is_paused and not member.is_leaving


def _end_visit(visitor: MemberProcess, end: Callable[[], None]) -> None:
    """End a temporary member with `end`; kill it if it is paused.

    No effect on a member that is dead or leaving already.
    """
    if visitor.is_paused:
        visitor.die()
    elif visitor.is_alive and not visitor.is_leaving:
        end()


class Administrator:
    """An administrator that sends one request after the other."""

    name = "admin"

    def __init__(self, world: World) -> None:
        self._world = world
        self._connection: Connection | None = None
        #: The member to be removed, by each of its requests.
        self._removals: list[tuple[commands.LeavingMember, ...]] = []

    def has_asked(self, command: commands.LeaveGroup) -> bool:
        """Return whether the administrator sent this LeaveGroup."""
        return any(command.members is members for members in self._removals)

    def on_reply(self, connection: Connection, body: ReplyBody, place: int) -> None:
        """Ignore a reply; the story has it already."""

    def on_broken(self, connection: Connection) -> None:
        """Drop the connection; the next request opens another one."""
        self._connection = None

    def remove_member(self, group_id: str, *, member_id: str, instance_id: str | None) -> None:
        """Remove a member with a LeaveGroup."""
        leaving = (commands.LeavingMember(member_id=member_id, instance_id=instance_id),)
        self._removals.append(leaving)
        self.ask(commands.LeaveGroup, group_id, members=leaving, client_id=self.name)

    def reset_offset(self, group_id: str, topic: str, partition: int, offset: int) -> None:
        """Commit an offset without a member, as tools do; only a group without members accepts it."""
        wanted = (commands.OffsetToCommit(topic=topic, topic_id=ZERO_TOPIC_ID, partition=partition, offset=offset),)
        self.ask(commands.CommitOffsets, group_id, member_id="", generation_or_member_epoch=-1, offsets=wanted)

    def ask(self, kind: type[commands.GroupCommand], group_id: str, **fields: Any) -> None:
        """Send a request about a group."""
        if self._connection is None or not self._connection.is_open:
            self._connection = self._world.network.connect(self)
        if self._connection is not None:
            command = kind(cause=NO_CAUSE, request=NO_REQUEST, group_id=group_id, **fields)
            self._world.story.tell(self.name, "asks", command, group_id=group_id)
            self._connection.send(command)
