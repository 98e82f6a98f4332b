"""Protocols, assignors, static and dynamic members, and what may happen to a cluster, ours or Apache Kafka's.

Each run has every event at every place, in changing ways; `make matrix` has all of them.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from support.matrix import ApacheBroker, ApacheBrokers, Case, OurBroker, OurCluster, Place, members_go_on, opened
from support.mixed_scenarios import PYTHON_MEMBERS, java_member_shares, python_member_shares

#: librdkafka's members: see the scenarios that each broker has to pass.
JAVA_MODES = [("consumer", "uniform"), ("classic", "range"), ("classic", "cooperative-sticky")]
pytestmark = [pytest.mark.interop, pytest.mark.timeout(180)]


@pytest.fixture(scope="module")
def our_broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    with opened(lambda: OurBroker(tmp_path_factory.mktemp("matrix"))) as place:
        yield place


@pytest.fixture(scope="module")
def our_cluster() -> Iterator[Place]:
    with opened(OurCluster) as place:
        yield place


@pytest.fixture(scope="module")
def apache_broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    with opened(lambda: ApacheBroker(tmp_path_factory.mktemp("matrix"))) as place:
        yield place


@pytest.fixture(scope="module")
def apache_brokers() -> Iterator[Place]:
    with opened(ApacheBrokers) as place:
        yield place


@pytest.mark.parametrize("case", OurBroker.cases(), ids=str)
def test_members_go_on_at_our_broker(our_broker: Place, case: Case) -> None:
    """One broker, in a process, on disk."""
    members_go_on(our_broker, case)


@pytest.mark.parametrize("case", OurCluster.cases(), ids=str)
def test_members_go_on_at_our_cluster(our_cluster: Place, case: Case) -> None:
    """Three brokers: leaders and coordinators move."""
    members_go_on(our_cluster, case)


@pytest.mark.apache
@pytest.mark.parametrize("case", ApacheBroker.cases(), ids=str)
def test_members_go_on_at_apache_kafka(apache_broker: Place, case: Case) -> None:
    """One broker of Apache Kafka."""
    members_go_on(apache_broker, case)


@pytest.mark.apache
@pytest.mark.parametrize("case", ApacheBrokers.cases(), ids=str)
def test_members_go_on_at_several_brokers_of_apache_kafka(apache_brokers: Place, case: Case) -> None:
    """Three brokers of Apache Kafka: leaders and coordinators move."""
    members_go_on(apache_brokers, case)


@pytest.mark.parametrize("client", sorted(PYTHON_MEMBERS))
def test_python_clients_share_a_group_with_ours(our_broker: Place, client: str) -> None:
    """kafka-python, aiokafka."""
    python_member_shares(our_broker.bootstrap_servers, client)


@pytest.mark.apache
@pytest.mark.parametrize("client", sorted(PYTHON_MEMBERS))
def test_python_clients_share_a_group_with_ours_at_apache_kafka(apache_broker: Place, client: str) -> None:
    """kafka-python, aiokafka."""
    python_member_shares(apache_broker.bootstrap_servers, client)


@pytest.mark.parametrize(("protocol", "assignor"), JAVA_MODES)
def test_java_shares_a_group_with_ours(our_broker: Place, protocol: str, assignor: str) -> None:
    """Kafka's own consumer."""
    java_member_shares(our_broker.bootstrap_servers, protocol, assignor)


@pytest.mark.apache
@pytest.mark.parametrize(("protocol", "assignor"), JAVA_MODES)
def test_java_shares_a_group_with_ours_at_apache_kafka(apache_broker: Place, protocol: str, assignor: str) -> None:
    """Kafka's own consumer."""
    java_member_shares(apache_broker.bootstrap_servers, protocol, assignor)
