"""Two real queries that share a group, each with a driver and a JVM of its own: what happens to them doubles nothing.

`make soak ONLY=queries` plays as many rounds as one likes, of seeds.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from support.peers.apache_broker import ApacheKafka
from support.peers.handover_driver import Driver
from support.peers.restarts import MortalBroker
from support.peers.spark_session import require_spark
from support.scenarios.handover_round import EVENTS, Plan, Round, build_plan
from support.scenarios.handover_soak import SESSIONS, patient_broker, two_drivers

# Virtual machines start and end meanwhile, on a machine that may be busy.
pytestmark = [pytest.mark.spark, pytest.mark.timeout(900)]

AT_APACHE = Plan(seed=5, events=("stop between triggers",), is_at_once=True)
#: Together with it all that can happen; seeds that act within a batch, and let the broker be away for long. Each round
#: starts two queries, and each end of a Java takes the start of another: few rounds, in which much happens.
ROUNDS = (
    Plan(
        seed=62,
        events=("stop", "drain", "kill the reader", "terminate the driver", "broker away"),
        told_by="listener",
        is_at_once=True,
    ),
    Plan(seed=3, events=("topic grown", "topic made anew"), told_by="location", protocol="classic", is_at_once=True),
    # Last, because nobody starts that driver again.
    Plan(seed=16, events=("kill Java",), is_patient=False, is_at_once=True, ends_by="kill all"),
)


@pytest.fixture(scope="module")
def drivers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Driver, Driver]]:
    """One pair for all of these tests; one that is killed is started anew by whoever asks it next."""
    require_spark()
    with two_drivers(tmp_path_factory.mktemp("drivers")) as both:
        yield both


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MortalBroker]:
    """One for all rounds that are played at ours."""
    with patient_broker(tmp_path_factory.mktemp("broker")) as running:
        yield running


class Apache:
    """Apache Kafka, as a round takes a broker."""

    def __init__(self, broker: ApacheKafka) -> None:
        self._broker = broker
        self.address = broker.bootstrap_servers

    def kill(self) -> None:
        self._broker.stop(kill=True)

    def revive(self) -> None:
        self._broker.start()


@pytest.mark.apache
def test_each_record_is_read_once_at_an_apache_kafka(drivers: tuple[Driver, Driver], tmp_path: Path) -> None:
    """Its coordinator holds the partitions of a query that is away, as ours does."""
    with ApacheKafka(SESSIONS, heap="512m") as broker:
        Round(AT_APACHE, drivers, Apache(broker), tmp_path).run()


@pytest.mark.parametrize("plan", ROUNDS, ids=lambda plan: ", ".join([*plan.events, plan.ends_by]))
def test_each_record_is_read_once_whatever_becomes_of_a_query(
    plan: Plan, drivers: tuple[Driver, Driver], broker: MortalBroker, tmp_path: Path
) -> None:
    """P4: files named (query, batch id); nothing missing, nothing doubled."""
    Round(plan, drivers, broker, tmp_path).run()


def test_a_round_is_its_seed() -> None:
    """So that one that has failed can be played again."""
    assert build_plan(7) == build_plan(7)
    assert len({build_plan(seed).events[0] for seed in range(40)}) > 5


def test_the_rounds_show_every_event() -> None:
    """What the soak chooses from."""
    shown = {event for plan in (AT_APACHE, *ROUNDS) for event in (*plan.events, plan.ends_by)}
    assert shown == EVENTS.keys()
