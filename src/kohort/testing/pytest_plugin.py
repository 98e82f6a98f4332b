"""The pytest fixtures `kohort_broker`, `kohort_cluster` and their options, in memory and ready in milliseconds."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from kohort.broker.embedded import Broker
    from kohort.testing.cluster import Cluster
    from kohort.testing.secured import Secured


@pytest.fixture
def kohort_broker_config() -> dict[str, object]:
    """Return broker configs for `kohort_broker`, by Kafka's names; override this fixture to change them.

    Members of a test rarely start at one moment, so that a group does not wait for more of them.
    """
    return {"group.initial.rebalance.delay.ms": 0}


@pytest.fixture
def kohort_security() -> str | None:
    """Return the security protocol of `kohort_broker` and `kohort_cluster`; override this fixture to change it.

    SSL, SASL_PLAINTEXT or SASL_SSL; `None`: no TLS and no login.
    """
    return None


@pytest.fixture
def kohort_secured(kohort_security: str | None, tmp_path_factory: pytest.TempPathFactory) -> Secured | None:
    """Make the certificates and the password that `kohort_security` needs."""
    if kohort_security is None:
        return None
    from kohort.testing.secured import secure

    return secure(kohort_security, tmp_path_factory.mktemp("kohort-tls"))


@pytest.fixture
def kohort_client_options(kohort_secured: Secured | None) -> dict[str, str]:
    """Return what clients of `kohort_broker` or `kohort_cluster` need besides `bootstrap.servers`, by Kafka's names."""
    return {} if kohort_secured is None else dict(kohort_secured.client_options)


@pytest.fixture
def kohort_broker(kohort_broker_config: dict[str, object], kohort_secured: Secured | None) -> Iterator[Broker]:
    """Start a broker for this test alone; `kohort_broker.bootstrap_servers` is its address."""
    from kohort.broker.embedded import Broker

    secured = {} if kohort_secured is None else kohort_secured.config
    with Broker(config={**secured, **kohort_broker_config}) as broker:
        yield broker


@pytest.fixture
def kohort_cluster_size() -> int:
    """Return the number of brokers of `kohort_cluster`; override this fixture to change it."""
    return 3


@pytest.fixture
def kohort_cluster(
    kohort_cluster_size: int, kohort_broker_config: dict[str, object], kohort_secured: Secured | None
) -> Iterator[Cluster]:
    """Start a cluster for this test alone; its leaders and coordinators can be moved."""
    from kohort.testing.cluster import Cluster

    secured = {} if kohort_secured is None else kohort_secured.config
    with Cluster(kohort_cluster_size, config={**secured, **kohort_broker_config}) as cluster:
        yield cluster
