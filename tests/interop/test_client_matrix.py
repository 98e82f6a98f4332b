"""Protocols, assignors, static and dynamic members, and what may happen to a cluster of ours; our neighbours in groups.

Each run has some fields of the matrix, in which every two things meet; `make soak ONLY=matrix` has all
of them. What happens to Apache Kafka is in `test_client_apache` and `test_client_apache_cluster`.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from support.scenarios.matrix import Case, OurBroker, OurCluster, Place, cases, members_go_on, opened
from support.scenarios.mixed_scenarios import java_member_shares, neighbours, python_member_shares

pytestmark = [pytest.mark.interop, pytest.mark.timeout(180)]


@pytest.fixture(scope="module")
def our_broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    with opened(lambda: OurBroker(tmp_path_factory.mktemp("matrix"))) as place:
        yield place


@pytest.fixture(scope="module")
def our_cluster() -> Iterator[Place]:
    with opened(OurCluster) as place:
        yield place


@pytest.mark.parametrize("case", cases(OurBroker), ids=str)
def test_members_go_on_at_our_broker(our_broker: Place, case: Case) -> None:
    """One broker, in a process, on disk."""
    members_go_on(our_broker, case)


@pytest.mark.parametrize("case", cases(OurCluster), ids=str)
def test_members_go_on_at_our_cluster(our_cluster: Place, case: Case) -> None:
    """Three brokers: leaders and coordinators move."""
    members_go_on(our_cluster, case)


@pytest.mark.parametrize("client", neighbours("python", "ours"))
def test_python_clients_share_a_group_with_ours(our_broker: Place, client: str) -> None:
    """kafka-python, aiokafka."""
    python_member_shares(our_broker.bootstrap_servers, client)


@pytest.mark.apache
@pytest.mark.parametrize("assignor", neighbours("java", "ours"))
def test_java_shares_a_group_with_ours(our_broker: Place, assignor: str) -> None:
    """Kafka's own consumer."""
    java_member_shares(our_broker.bootstrap_servers, assignor)
