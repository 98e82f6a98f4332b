"""Static groups of unmodified clients, each member a process: S1-S4, KIP-345 as drafted.

All kinds of members by `make soak ONLY=static-groups`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from kohort import Admin, Broker
from support.depth import IS_SOAK
from support.peers.confluent_member import Member
from support.peers.kafka_tools import run_kafka_tool
from support.scenarios.static_groups import CONFIG, KINDS, LONG_MS, PARTITIONS, TOPIC, StaticGroup
from support.waiting import until

pytestmark = pytest.mark.interop

#: What `make test` runs: each protocol by librdkafka, and the two that speak classic only.
DAILY = ("librdkafka, consumer", "librdkafka, classic", "kafka-python", "aiokafka")

PROTOCOLS = ("consumer", "classic")

#: A fleet whose members nobody kills: longer than this process, which has all of them, may stand still.
FLEET_SESSION_MS = 10_000


def kinds(*daily: str) -> list[object]:
    """Those of `make test`, or all."""
    wanted = KINDS if IS_SOAK else daily or DAILY
    return [pytest.param(kind, marks=pytest.mark.apache if "Java" in kind else ()) for kind in wanted]


@pytest.fixture
def broker() -> Iterator[Broker]:
    with Broker(config=CONFIG) as broker:
        yield broker


@pytest.fixture
def admin(broker: Broker) -> Iterator[Admin]:
    with Admin(bootstrap_servers=broker.bootstrap_servers) as admin:
        admin.create_topic(TOPIC, PARTITIONS)
        yield admin


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


def be_static(admin: Admin) -> None:
    """The group "g", whether it is there or not."""
    admin.alter_group_configs(
        "g",
        {
            "group.membership": "static",
            "group.registration.timeout.ms": LONG_MS,
            "group.expansion.timeout.ms": LONG_MS,
        },
    )


@pytest.mark.parametrize("kind", kinds())
def test_a_static_group_from_its_first_member_to_its_way_back(
    kind: str, broker: Broker, admin: Admin, stack: ExitStack
) -> None:
    """Restarted, killed and doubled members, new ones, a rebalance by force, and sessions again."""
    group = StaticGroup(broker, admin, stack, kind)
    be_static(admin)
    one = group.start("one")
    group.wait(lambda: len(one.held) == PARTITIONS, "an empty group's first assignment waits for nobody")
    group.start("two")
    group.start("three")
    group.wait(lambda: group.named() == ["one", "three", "two"], "three members")
    first = group.rebalances()
    assert len(one.held) == PARTITIONS

    # -- forced: who waits is let in --
    admin.force_rebalance("g")
    group.wait_for_shares(["one", "two", "three"])
    assert group.rebalances() == first + 1
    shares, moves = {name: member.held for name, member in group.members.items()}, group.moves()

    # -- restarted, killed, doubled: nothing moves --
    one.close()
    one = group.start("one")
    group.wait(lambda: one.held == shares["one"], "its partitions after a restart")
    one.kill()
    group.wait(lambda: group.offline() == ["one"], "the killed member is offline")
    one = group.start("one")
    group.wait(lambda: one.held == shares["one"], "its partitions after it was killed")
    assert group.offline() == []
    younger = group.start("one", called="younger")
    group.wait(lambda: younger.held == shares["one"], "its partitions in a second process of its name")
    group.wait_for_fence(one)
    group.members["one"] = younger

    assert {name: group.members[name].held for name in shares} == shares
    assert group.moves() == moves

    # -- away for too long --
    admin.enable_static_membership("g", registration_timeout=1_000)
    before = group.rebalances()
    group.members["three"].kill()
    group.wait_for_shares(["one", "two"])
    assert group.rebalances() == before + 1

    # -- back: sessions count again, and nobody needs a name --
    admin.enable_dynamic_membership("g")
    group.members["two"].kill()
    group.start(None)
    group.wait_for_shares(["one", "nobody"])


@pytest.mark.parametrize("kind", kinds("librdkafka, consumer", "librdkafka, classic"))
def test_new_members_are_let_in_together(kind: str, broker: Broker, admin: Admin, stack: ExitStack) -> None:
    """One rebalance at the end of the expansion timeout, also of one that ends earlier than was said at first."""
    group = StaticGroup(broker, admin, stack, kind)
    be_static(admin)
    one = group.start("one")
    group.wait(lambda: len(one.held) == PARTITIONS, "everything")
    before = group.rebalances()
    group.start("two")
    group.start("three")
    group.wait(lambda: group.named() == ["one", "three", "two"], "three members")
    assert group.rebalances() == before
    admin.enable_static_membership("g", expansion_timeout=100)
    group.wait_for_shares(["one", "two", "three"])
    assert group.rebalances() == before + 1


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_fleet_is_restarted_one_after_the_other_and_nothing_moves(
    protocol: str, broker: Broker, admin: Admin, stack: ExitStack
) -> None:
    """K345's motivation."""
    names = [f"m{number:02}" for number in range(20 if IS_SOAK else 3)]
    group = StaticGroup(broker, admin, stack, f"librdkafka, {protocol}")
    be_static(admin)
    admin.alter_group_configs("g", {"consumer.session.timeout.ms": FLEET_SESSION_MS})
    admin.create_partitions(TOPIC, PARTITIONS * len(names))
    fleet = {name: start(broker, protocol, name) for name in names}

    def poll() -> None:
        for member in fleet.values():
            member.poll()

    def wait(happened: Callable[[], object], what: str) -> None:
        until(happened, what=what, step=poll)

    wait(lambda: group.is_there() and group.named() == names, "all are members")
    admin.force_rebalance("g")
    wait(lambda: all(len(member.owned) == PARTITIONS for member in fleet.values()), "all have a share")
    shares, moves, rebalances = {name: fleet[name].owned for name in names}, group.moves(), group.rebalances()
    for name in names:
        fleet.pop(name).consumer.close()
        wait(lambda name=name: group.offline() == [name], f"{name} is away")  # type: ignore[misc]
        fleet[name] = start(broker, protocol, name)
        wait(lambda name=name: fleet[name].owned == shares[name], f"{name} has what it had")  # type: ignore[misc]
    assert {name: member.owned for name, member in fleet.items()} == shares
    assert (group.moves(), group.rebalances()) == (moves, rebalances)
    assert [member.revoked for member in fleet.values()] == [[]] * len(names)
    for member in fleet.values():
        member.consumer.close()


def start(broker: Broker, protocol: str, name: str) -> Member:
    """A member in this process."""
    session = {"session.timeout.ms": FLEET_SESSION_MS} if protocol == "classic" else {}
    return Member(broker, protocol, **{"group.instance.id": name, **session}).subscribe(TOPIC)


def refusals_told() -> dict[str, str]:
    """Kind of member -> what it says without a name, as docs/explanation/static-groups.md has it."""
    text = (Path(__file__).resolve().parents[2] / "docs" / "explanation" / "static-groups.md").read_text()
    return dict(re.findall(r"^\| ([\w-]+(?:, \w+)?) \| `([^`]+)` \|$", text, re.MULTILINE))


def test_the_table_of_refusals_is_whole() -> None:
    assert refusals_told().keys() == KINDS.keys()


@pytest.mark.parametrize("kind", kinds(*refusals_told()))
def test_a_member_without_a_name_ends_with_its_first_requests(
    kind: str, broker: Broker, admin: Admin, stack: ExitStack
) -> None:
    """S2: with the first of at most three, and in the words of the document."""
    group = StaticGroup(broker, admin, stack, kind)
    be_static(admin)
    group.start(None)
    said = group.wait_for_error("nobody")
    assert refusals_told()[kind] in said
    assert 1 <= group.refusals() <= 3


@pytest.mark.apache
def test_stock_tools_make_a_group_static_force_it_and_take_it_back(
    broker: Broker, admin: Admin, stack: ExitStack
) -> None:
    """S3: `kafka-configs` alone, no call of ours."""

    def configure(*change: str) -> str:
        where = ("--bootstrap-server", broker.bootstrap_servers, "--entity-type", "groups", "--entity-name", "g")
        return run_kafka_tool("kafka.admin.ConfigCommand", *where, "--alter", *change)

    group = StaticGroup(broker, admin, stack, "librdkafka, consumer")
    timeouts = f"group.registration.timeout.ms={LONG_MS},group.expansion.timeout.ms={LONG_MS}"
    configure("--add-config", f"group.membership=static,{timeouts}")
    one = group.start("one")
    group.wait(lambda: len(one.held) == PARTITIONS, "everything")
    two = group.start("two")
    group.wait(lambda: group.named() == ["one", "two"], "two members")
    assert two.held == set()
    configure("--add-config", "group.rebalance.token=monday")
    group.wait_for_shares(["one", "two"])
    configure("--delete-config", "group.membership")
    two.kill()
    group.wait_for_shares(["one"])
    group.start(None)
    group.wait_for_shares(["one", "nobody"])
    with pytest.raises(RuntimeError, match="1 of the group's members have no"):
        configure("--add-config", "group.membership=static")
