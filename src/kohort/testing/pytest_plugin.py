"""The pytest fixture `kohort_broker`: a broker in memory, ready in milliseconds, gone after the test."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from kohort.broker.embedded import Broker


@pytest.fixture
def kohort_broker_config() -> dict[str, object]:
    """Broker configs for `kohort_broker`, by Kafka's names; override this fixture to change them."""
    return {}


@pytest.fixture
def kohort_broker(kohort_broker_config: dict[str, object]) -> Iterator[Broker]:
    """A running broker of this test's own: `kohort_broker.bootstrap_servers` is its address."""
    from kohort.broker.embedded import Broker

    with Broker(config=kohort_broker_config) as broker:
        yield broker
