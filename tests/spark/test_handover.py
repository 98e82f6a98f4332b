"""Two real queries that share a group, each with a driver and a JVM of its own: what happens to them doubles nothing.

`make soak-spark` plays as many rounds as one likes, of seeds.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from support.apache_broker import ApacheKafka
from support.handover_driver import Driver
from support.handover_round import Plan, Round, build_plan
from support.handover_soak import SESSIONS, patient_broker, two_drivers
from support.spark_session import require_spark

# Virtual machines start and end meanwhile, on a machine that may be busy.
pytestmark = [pytest.mark.spark, pytest.mark.timeout(900)]

ROUNDS = (
    Plan(seed=1, events=("stop between triggers", "kill the reader", "drain")),
    Plan(seed=2, events=("kill all", "topic made anew"), told_by="location", protocol="classic"),
)


@pytest.fixture(scope="module")
def drivers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Driver, Driver]]:
    """One pair for all of these tests; one that is killed is started anew by whoever asks it next."""
    require_spark()
    with two_drivers(tmp_path_factory.mktemp("drivers")) as both:
        yield both


@pytest.mark.parametrize("plan", ROUNDS, ids=lambda plan: ", ".join(plan.events))
def test_each_record_is_read_once_whatever_becomes_of_a_query(
    plan: Plan, drivers: tuple[Driver, Driver], tmp_path: Path
) -> None:
    """P4: files named (query, batch id); nothing missing, nothing doubled."""
    with patient_broker(tmp_path) as broker:
        Round(plan, drivers, broker, tmp_path).run()


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
        Round(Plan(seed=3, events=("stop between triggers",)), drivers, Apache(broker), tmp_path).run()


def test_a_round_is_its_seed() -> None:
    """So that one that has failed can be played again."""
    assert build_plan(7) == build_plan(7)
    assert len({build_plan(seed).events[0] for seed in range(40)}) > 5
