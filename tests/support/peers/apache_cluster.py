"""Several brokers of Apache Kafka 4.3 on loopback that make one cluster; the first one is its controller, too."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import ExitStack
from types import TracebackType
from typing import Self

from support.peers.apache_broker import ApacheKafka


class ApacheCluster:
    """A context manager; `brokers` are started and stopped singly as well.

    Args:
        count: how many brokers.
        properties: broker configs that all of them get.
    """

    def __init__(self, count: int, properties: Mapping[str, object] | None = None) -> None:
        first = ApacheKafka(properties, heap="512m")
        others = [
            ApacheKafka({**(properties or {}), **first.follower_properties(node_id=node)}, heap="512m")
            for node in range(2, count + 1)
        ]
        self.brokers = [first, *others]
        self._stack = ExitStack()

    @property
    def bootstrap_servers(self) -> str:
        """HOST:PORT of every broker."""
        return ",".join(broker.bootstrap_servers for broker in self.brokers)

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            for broker in self.brokers:
                stack.enter_context(broker)
            self._stack = stack.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._stack.close()
