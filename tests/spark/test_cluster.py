"""P6: the file that runs on one machine runs on a standalone cluster, against both brokers, and outlives an executor.

`make soak ONLY=cluster` runs these: each takes six virtual machines, which `make test` has no time for.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import kohort
from support.peers.apache_broker import ApacheKafka
from support.peers.spark_cluster import StandaloneCluster
from support.peers.spark_session import require_spark

pytestmark = [pytest.mark.spark, pytest.mark.timeout(900)]

JOB = Path(__file__).resolve().parents[2] / "examples" / "spark_batches.py"
RECORDS = 4_000


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StandaloneCluster]:
    """One for all of these tests."""
    require_spark()
    with StandaloneCluster(tmp_path_factory.mktemp("cluster")) as running:
        yield running


@pytest.fixture(params=["kohort", pytest.param("apache", marks=pytest.mark.apache)])
def address(request: pytest.FixtureRequest) -> Iterator[str]:
    """Of our broker, then of Apache Kafka, each with the orders."""
    with kohort.Broker() if request.param == "kohort" else ApacheKafka(heap="512m") as broker:
        with kohort.Admin(bootstrap_servers=broker.bootstrap_servers) as admin:
            admin.create_topic("orders", 4)
        with kohort.Producer(bootstrap_servers=broker.bootstrap_servers) as producer:
            for partition in range(4):
                values = [b"%d" % number for number in range(partition, RECORDS, 4)]
                producer.send_many("orders", values, partition=partition).result(60)
        yield broker.bootstrap_servers


def test_same_file_runs_on_a_cluster_and_outlives_a_killed_executor(
    cluster: StandaloneCluster, address: str, tmp_path: Path
) -> None:
    """Tasks of the executor are done again by the other one, and by the one that the master starts instead."""
    job = cluster.submit(JOB, address, str(tmp_path))
    job.until("batch 2 is written")
    cluster.kill_executor()
    lines = job.wait()
    assert lines[-1] == f"{RECORDS} rows, {RECORDS} different ones"
    assert f"batch {RECORDS // 400 - 1} is written" in lines
