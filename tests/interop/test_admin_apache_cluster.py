"""What an administrator does with three brokers of Apache Kafka 4.3 by commands, and while one of them is away.

`make soak ONLY=administered`; the calls themselves are tried by `test_client_apache_cluster.py`.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import kohort
from support.peers.apache_cluster import ApacheCluster
from support.scenarios import cluster_day
from support.scenarios.matrix import ApacheBrokers, opened

pytestmark = [pytest.mark.interop, pytest.mark.apache]


@pytest.fixture(scope="module")
def cluster() -> Iterator[ApacheCluster]:
    with opened(ApacheBrokers) as made:
        yield made.cluster


def test_commands_show_what_they_would_do_and_do_it(cluster: ApacheCluster) -> None:
    with kohort.Admin(bootstrap_servers=cluster.bootstrap_servers) as admin:
        cluster_day.administer_by_commands(cluster, admin)


def test_broker_that_is_away_leads_nothing_until_it_is_back_and_elected(cluster: ApacheCluster) -> None:
    cluster_day.lose_a_broker(cluster)
