"""The pytest fixtures `kohort_broker` and `kohort_cluster`, in memory and ready in milliseconds."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from kohort.broker.embedded import Broker
    from kohort.testing.cluster import Cluster


@pytest.fixture
def kohort_broker_config() -> dict[str, object]:
    """Return broker configs for `kohort_broker`, by Kafka's names; override this fixture to change them.

    Members of a test rarely start at one moment, so that a group does not wait for more of them.
    """
    return {"group.initial.rebalance.delay.ms": 0}


@pytest.fixture
def kohort_broker(kohort_broker_config: dict[str, object]) -> Iterator[Broker]:
    """Start a broker for this test alone; `kohort_broker.bootstrap_servers` is its address."""
    from kohort.broker.embedded import Broker

    with Broker(config=kohort_broker_config) as broker:
        yield broker


@pytest.fixture
def kohort_cluster_size() -> int:
    """Return the number of brokers of `kohort_cluster`; override this fixture to change it."""
    return 3


@pytest.fixture
def kohort_cluster(kohort_cluster_size: int, kohort_broker_config: dict[str, object]) -> Iterator[Cluster]:
    """Start a cluster for this test alone; its leaders and coordinators can be moved."""
    from kohort.testing.cluster import Cluster

    with Cluster(kohort_cluster_size, config=kohort_broker_config) as cluster:
        yield cluster
