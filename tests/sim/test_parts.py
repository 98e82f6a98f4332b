"""The parts of a world do what they say: clock, network, broker, leader, story."""

from __future__ import annotations

import doctest
from random import Random
from types import ModuleType

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import kohort.testing
from kohort.coordinator.commands.admin import ListGroups, ListGroupsReply
from kohort.coordinator.decision import ReplyBody
from kohort.ids import CauseId, RequestToken
from kohort.simulation import seed, topics
from kohort.simulation.members.classic import plan_cooperative, plan_eager
from kohort.simulation.network import Connection
from kohort.simulation.scenario import GroupPlan, Scenario
from kohort.testing import NetworkQuality, SimulatedNetwork, Story, VirtualClock, World, clock
from kohort.wire.embedded import Subscription

COMMAND = ListGroups(cause=CauseId(1), request=RequestToken(1))


@pytest.mark.parametrize("module", [clock, topics, kohort.testing], ids=lambda module: module.__name__)
def test_examples_in_the_documentation_are_true(module: ModuleType) -> None:
    results = doctest.testmod(module)
    assert results.attempted > 0
    assert results.failed == 0


class Ends:
    """Both ends of a network, which note what arrives."""

    def __init__(self, *, quality: NetworkQuality) -> None:
        self.name = "client"
        self.clock = VirtualClock()
        self.network = SimulatedNetwork(self.clock, Random(5))
        self.network.quality = quality
        self.network.server = self
        self.requests: list[ListGroups] = []
        self.replies: list[ReplyBody] = []
        self.told: list[str] = []

    def on_request(self, connection: Connection, command: ListGroups) -> None:
        self.requests.append(command)
        connection.send_back(ListGroupsReply(groups=()))

    def on_gone(self, connection: Connection) -> None:
        self.told.append("gone")

    def on_reply(self, connection: Connection, body: ReplyBody, place: int) -> None:
        self.replies.append(body)

    def on_broken(self, connection: Connection) -> None:
        self.told.append("client")


def test_connection_keeps_its_order_whatever_the_delays() -> None:
    ends = Ends(quality=NetworkQuality(usual_delay_ms=5, long_delay_ms=2_000, long_delay_chance=0.5))
    connection = ends.network.connect(ends)
    assert connection is not None
    sent = [ListGroups(cause=CauseId(i), request=RequestToken(i)) for i in range(50)]
    for command in sent:
        connection.send(command)
        ends.clock.run_until(ends.clock.now_ms() + 10)
    ends.clock.run_until(ends.clock.now_ms() + 10_000)

    assert ends.requests == sent
    assert len(ends.replies) == 50


def test_nothing_arrives_after_a_connection_broke() -> None:
    ends = Ends(quality=NetworkQuality(usual_delay_ms=100))
    connection = ends.network.connect(ends)
    assert connection is not None
    connection.send(COMMAND)

    ends.network.break_one(connection)
    connection.send(COMMAND)
    ends.clock.run_until(ends.clock.now_ms() + 1_000)

    assert not ends.requests
    assert ends.told == ["gone", "client"]


def test_client_that_is_cut_off_hears_nothing_and_cannot_connect() -> None:
    ends = Ends(quality=NetworkQuality())
    connection = ends.network.connect(ends)
    assert connection is not None

    ends.network.cut_off(ends.name)
    connection.send(COMMAND)
    ends.clock.run_until(ends.clock.now_ms() + 1_000)
    assert not ends.requests
    assert not ends.told, "nobody says so"
    assert ends.network.connect(ends) is None

    ends.network.heal()
    ends.clock.run_until(ends.clock.now_ms() + 1_000)
    assert ends.told == ["gone", "client"]
    assert ends.network.connect(ends) is not None


def test_lossy_network_loses_connections_of_both_kinds() -> None:
    ends = Ends(quality=NetworkQuality(loss=0.2))
    silent = broken = 0
    for _ in range(200):
        connection = ends.network.connect(ends)
        assert connection is not None
        connection.send(COMMAND)
        ends.clock.run_until(ends.clock.now_ms() + 500)
        silent += connection.is_silent
        broken += not connection.is_open
    assert silent > 10
    assert broken > 10
    assert 0 < len(ends.replies) < 200 - 20


def quiet_world(*, members: int = 2, kind: str = "consumer") -> World:
    """One group that nothing happens to."""
    plan = GroupPlan(group_id="g", kind=kind, member_count=members)  # type: ignore[arg-type]
    return World(1, scenario=Scenario(groups=(plan,), topics={"t": 4, "u": 2}, weights={}, perturbed_ms=5_000))


@pytest.mark.parametrize("kind", ["consumer", "eager", "cooperative"])
def test_group_that_nothing_happens_to_is_at_rest_at_once(kind: str) -> None:
    assert quiet_world(kind=kind, members=3).run().rest_after_ms <= 8_500


def test_crash_takes_only_what_was_not_synced() -> None:
    world = quiet_world()
    world.create_topic("t", 4)
    world.broker.sync_ms = 60_000
    for _ in range(2):
        world.start_member(world.scenario.groups[0])
    world.clock.run_until(world.clock.now_ms() + 2_000)
    log = world.broker.home_of("g").disk
    assert log.high_watermark == 0
    assert log.log_end_offset > 1
    log.high_watermark = 1
    first = log.batches[0]

    world.broker.crash()
    world.restart_broker()

    assert log.batches[0] == first
    assert world.broker.home_of("g").disk.high_watermark == log.log_end_offset, (
        "what is found after a restart is on disk"
    )


def test_answers_wait_for_the_disk() -> None:
    world = quiet_world()
    world.create_topic("t", 4)
    world.broker.sync_ms = 0
    world.start_member(world.scenario.groups[0])
    world.clock.run_until(world.clock.now_ms() + 1_000)
    answered = world.broker.answered
    assert answered > 0
    world.broker.sync_ms = 60_000
    world.start_member(world.scenario.groups[0])
    world.clock.run_until(world.clock.now_ms() + 50)
    assert world.broker.unanswered


def test_story_is_about_one_group_and_says_what_matters() -> None:
    story = Story(VirtualClock())
    story.topic_names[b"0123456789abcdef"] = "t"
    story.tell("a", "owns", {b"0123456789abcdef": (1, 2)}, group_id="g")
    story.tell("b", "does something else", group_id="h")
    story.tell("broker", "dies")

    assert story.of("g") == ["    0.000 s  a            owns {t: [1, 2]}", "    0.000 s  broker       dies"]
    assert len(story.of()) == 3
    assert len(story.of(last=1)) == 1


def test_verbose_seed_tells_the_story(capsys: pytest.CaptureFixture[str]) -> None:
    assert seed.main(["2", "--verbose"]) == 0
    out = capsys.readouterr().out
    assert "now owns also" in out
    assert out.splitlines()[-1].startswith("seed 2: every law held")


partitions = st.sets(st.tuples(st.sampled_from(("t", "u")), st.integers(0, 5)), max_size=12)


@st.composite
def groups(draw: st.DrawFn) -> dict[str, Subscription]:
    """Members with topics and what they own; owned partitions are disjoint within a generation."""
    names = draw(st.lists(st.sampled_from("abcde"), min_size=1, unique=True))
    free = draw(st.permutations([(topic, number) for topic in ("t", "u") for number in range(6)]))
    members: dict[str, Subscription] = {}
    for name in names:
        count = draw(st.integers(0, 4))
        mine, free = free[:count], free[count:]
        owned = {topic: tuple(number for other, number in mine if other == topic) for topic in ("t", "u")}
        topics_wanted = draw(st.sampled_from((("t",), ("u",), ("t", "u"))))
        members[name] = Subscription(topics=topics_wanted, owned_partitions=owned, generation_id=3)
    return members


@settings(max_examples=100)
@given(members=groups(), wanted=partitions)
def test_plans_are_legal(members: dict[str, Subscription], wanted: set[tuple[str, int]]) -> None:
    """Nobody gets what another owns or has; everything else is given to somebody who wants it."""
    shared = sorted(wanted)
    owners = {
        (topic, number): name
        for name, subscription in members.items()
        for topic, numbers in subscription.owned_partitions.items()
        for number in numbers
    }
    subscribed = {topic for subscription in members.values() for topic in subscription.topics}
    for build in (plan_eager, plan_cooperative):
        plan = build(members, shared)
        given_to = {partition: name for name, found in plan.items() for partition in found}
        assert sum(map(len, plan.values())) == len(given_to), "given twice"
        assert all(partition[0] in members[name].topics for partition, name in given_to.items())
        missing = {partition for partition in shared if partition[0] in subscribed} - given_to.keys()
        if build is plan_eager:
            assert not missing
        else:
            assert all(owners.get(partition, name) == name for partition, name in given_to.items())
            assert missing <= owners.keys(), "only what moves is left out"
