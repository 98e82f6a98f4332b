"""An assignor of the user's own in a real broker, found by its entry point, for our members and for librdkafka's.

Source: requirement G5; issue 4 (any assignor of the user's through entry points; bad input: one that raises, takes a
minute); KIP-848 (`group.remote.assignor`).
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

import kohort
from support.builders.assignor_package import AssignorPackage, is_gone, wait_until_gone
from support.peers.confluent_member import Member, settle
from support.peers.our_member import OurMember
from support.peers.restarts import MortalBroker
from support.waiting import until

pytestmark = pytest.mark.interop

PARTITIONS = 4
QUICK = {"group.consumer.heartbeat.interval.ms": 200, "group.consumer.min.heartbeat.interval.ms": 100}
ASSIGNORS = {"group.consumer.assignors": "uniform,first,moody"}


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AssignorPackage:
    return AssignorPackage(tmp_path / "installed", monkeypatch)


@pytest.fixture
def start(package: AssignorPackage) -> Iterator[Callable[..., kohort.Broker]]:
    """Starts a broker that offers the package's assignors, with topic "t"."""
    del package
    with ExitStack() as stack:

        def start(**config: object) -> kohort.Broker:
            dotted = {name.replace("_", "."): value for name, value in config.items()}
            broker = stack.enter_context(kohort.Broker(config={**QUICK, **ASSIGNORS, **dotted}))
            with kohort.Admin(bootstrap_servers=broker.bootstrap_servers) as admin:
                admin.create_topic("t", PARTITIONS)
            return broker

        yield start


def events(broker: kohort.Broker, group_id: str = "g") -> list[tuple[str, dict[str, str]]]:
    """The group's history: what happened, and its details."""
    with kohort.Admin(bootstrap_servers=broker.bootstrap_servers) as admin:
        return [(row.event, dict(row.details)) for row in admin.group_history(group_id).events]


def failures(broker: kohort.Broker) -> list[str]:
    return [details["why"] for event, details in events(broker) if event == "assignor_failed"]


def poll_until(happened: Callable[[], bool], *members: Member | OurMember, what: str) -> None:
    until(happened, what=what, step=lambda: [member.poll() for member in members])


def test_members_of_both_clients_get_what_it_says(start: Callable[..., kohort.Broker]) -> None:
    """Kafka's `group.remote.assignor`: most votes win; kohort's own assignors would share evenly."""
    broker = start()
    vote = {"group.remote.assignor": "first"}
    with (
        OurMember(broker.bootstrap_servers, group_remote_assignor="first") as ours,
        Member(broker, "consumer", **vote) as theirs,
    ):
        settle(ours, theirs, owned=[0, PARTITIONS])
    ((_, asked), *_) = [row for row in events(broker) if row[0] == "assignor_asked"]
    assert asked["assignor"] == "first" and asked["partitions"] == str(PARTITIONS)


@pytest.mark.parametrize("mood", ["raises", "stranger", "list"])
def test_group_keeps_its_target_while_the_assignor_fails_and_goes_on_when_it_works(
    start: Callable[..., kohort.Broker], package: AssignorPackage, caplog: pytest.LogCaptureFixture, mood: str
) -> None:
    """Log and history name the assignor and what is wrong with it; nobody loses what it has."""
    caplog.set_level(logging.INFO, logger="kohort.broker")
    broker = start()
    with OurMember(broker.bootstrap_servers, group_remote_assignor="moody") as ours:
        poll_until(lambda: len(ours.owned) == PARTITIONS, ours, what="the first member has everything")
        package.is_in(mood)
        with Member(broker, "consumer", **{"group.remote.assignor": "moody"}) as theirs:
            poll_until(lambda: len(failures(broker)) >= 1, ours, theirs, what="the assignor fails")
            assert (len(ours.owned), len(theirs.owned)) == (PARTITIONS, 0)
            package.is_in("good")
            settle(ours, theirs, owned=[2, 2])
    logged = [record.getMessage() for record in caplog.records]
    assert any(line.startswith("event=assignor_failed assignor=moody group='g' failures=1 why=") for line in logged)
    assert "event=assignor_recovered assignor=moody group='g'" in logged


def test_broker_serves_everybody_else_while_an_assignor_takes_a_minute(
    start: Callable[..., kohort.Broker], package: AssignorPackage
) -> None:
    """And stops when it is told to, with the assignor's process: who waited for that one would outlast the test."""
    broker = start(group_consumer_assignor_timeout_ms=600_000)
    package.is_in("asleep")
    with OurMember(broker.bootstrap_servers, group_remote_assignor="moody") as waits:
        poll_until(lambda: package.process_id is not None, waits, what="the assignor is asked")
        with kohort.Producer(bootstrap_servers=broker.bootstrap_servers) as producer:
            producer.send("t", value=b"v", partition=0).result(30)
        with OurMember(broker.bootstrap_servers, "another", group_remote_assignor="uniform") as other:
            poll_until(lambda: len(other.owned) == PARTITIONS, other, what="another group has its target")
        with OurMember(broker.bootstrap_servers, "third", group_remote_assignor="first") as third:
            poll_until(lambda: len(third.owned) == PARTITIONS, third, what="another assignor does not wait for it")
        assert not waits.owned and not failures(broker)
    process_id = package.process_id
    assert process_id is not None and not is_gone(process_id)
    broker.stop()
    wait_until_gone(process_id)


def test_group_is_told_that_its_assignor_took_too_long(
    start: Callable[..., kohort.Broker], package: AssignorPackage
) -> None:
    broker = start(group_consumer_assignor_timeout_ms=300)
    package.is_in("asleep")
    with OurMember(broker.bootstrap_servers, group_remote_assignor="moody") as member:
        poll_until(lambda: bool(failures(broker)), member, what="the assignor fails")
        assert failures(broker)[0] == "it took longer than 300 ms"
        package.is_in("good")
        poll_until(lambda: len(member.owned) == PARTITIONS, member, what="it is asked again")


def test_broker_killed_in_the_middle_leaves_no_process_and_begins_anew(
    package: AssignorPackage, tmp_path: Path
) -> None:
    """Even one that never lets the interpreter go is ended by its own alarm."""
    config = {**ASSIGNORS, "group.consumer.assignor.timeout.ms": 1_500}
    with MortalBroker(tmp_path / "data", config) as broker:
        with kohort.Admin(bootstrap_servers=broker.address) as admin:
            admin.create_topic("t", PARTITIONS)
        package.is_in("busy")
        with OurMember(broker.address, group_remote_assignor="moody") as member:
            poll_until(lambda: package.process_id is not None, member, what="the assignor is asked")
            process_id = package.process_id
            assert process_id is not None
            broker.kill()
            package.is_in("good")
            wait_until_gone(process_id)
            broker.revive()
            poll_until(lambda: len(member.owned) == PARTITIONS, member, what="the target is computed")


def test_assignor_runs_in_the_broker_itself_if_it_shall(
    start: Callable[..., kohort.Broker], package: AssignorPackage
) -> None:
    """`group.consumer.assignor.offload.enable=false`, as in Kafka; what it raises and breaks hurts no group."""
    broker = start(group_consumer_assignor_offload_enable=False)
    package.is_in("raises")
    with OurMember(broker.bootstrap_servers, group_remote_assignor="moody") as member:
        poll_until(lambda: failures(broker)[:1] == ["ValueError: no idea"], member, what="it fails")
        package.is_in("scribbles")
        poll_until(lambda: len(member.owned) == PARTITIONS, member, what="it works")
        assert package.process_id == os.getpid()


def test_name_that_the_broker_does_not_offer_is_refused(start: Callable[..., kohort.Broker]) -> None:
    """UNSUPPORTED_ASSIGNOR, also for one that is installed but not allowed."""
    broker = start()
    with (
        pytest.raises(kohort.errors.KohortError, match=r"UNSUPPORTED_ASSIGNOR.*uniform, first, moody"),
        OurMember(broker.bootstrap_servers, group_remote_assignor="disguised") as member,
    ):
        poll_until(lambda: False, member, what="the member is refused")
