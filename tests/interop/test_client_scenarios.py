"""Our consumer, producer and admin client against our own broker: the scenarios are those of Apache Kafka, too."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from kohort import Broker
from support.peers.lossy_proxy import LossyProxy
from support.ports import quiet_port
from support.scenarios.client_scenarios import BROKER_CONFIG
from support.scenarios.client_suite import ClientSuite

pytestmark = pytest.mark.interop


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    """One broker for the whole file, in a process of its own and on disk, so that it can be restarted."""
    directory = tmp_path_factory.mktemp("kohort")
    with Broker(data_dir=directory, port=quiet_port(), process=True, config=BROKER_CONFIG) as running:
        yield running


@pytest.fixture
def address(broker: Broker) -> str:
    """HOST:PORT of that broker."""
    return broker.bootstrap_servers


@pytest.fixture
def restart(broker: Broker) -> Callable[[], None]:
    """Stops that broker and starts it on its data."""

    def stop_and_start() -> None:
        broker.stop()
        broker.start()

    return stop_and_start


@pytest.fixture
def proxy() -> Iterator[LossyProxy]:
    """In front of the strict broker."""
    with LossyProxy() as made:
        yield made


@pytest.fixture
def strict_address(proxy: LossyProxy) -> Iterator[str]:
    """A broker that creates no topics by itself, behind the proxy."""
    config = {
        **BROKER_CONFIG,
        "auto.create.topics.enable": "false",
        "advertised.listeners": f"PLAINTEXT://127.0.0.1:{proxy.port}",
    }
    with Broker(config=config) as running:
        proxy.target_port = running.port
        yield running.bootstrap_servers


@pytest.fixture
def splitting(proxy: LossyProxy, strict_address: str) -> LossyProxy:
    """In front of the same broker."""
    del strict_address
    return proxy


class TestClientsOnOurBroker(ClientSuite):
    """Everything that our clients do anywhere."""
