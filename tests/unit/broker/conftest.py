"""A broker in this process, and connections to it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from kohort.broker.embedded import Broker
from support.dialogues.broker_wire import RawClient


@pytest.fixture
def broker_config() -> dict[str, object]:
    """Broker configs; a test module may override them. Targets are computed at once: answers are as on paper."""
    return {"group.consumer.assignment.window.ms": 0, "group.initial.rebalance.delay.ms": 0}


@pytest.fixture
def broker(broker_config: dict[str, object]) -> Iterator[Broker]:
    """A broker in memory."""
    with Broker(config=broker_config) as broker:
        yield broker


@pytest.fixture
def client(broker: Broker) -> Iterator[RawClient]:
    """A connection to it."""
    with RawClient(broker.port) as client:
        yield client
