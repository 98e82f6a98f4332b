"""Kafka consumer groups for Python and PySpark: a broker, a consumer and a Spark data source in one package.

>>> import kohort
>>> with kohort.Broker() as broker:
...     with kohort.Producer(bootstrap_servers=broker.bootstrap_servers) as producer:
...         _ = producer.send("orders", value=b"one").result(10)
...     broker.bootstrap_servers.startswith("127.0.0.1:")
True
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from kohort.base import VERSION, without_collections

if TYPE_CHECKING:
    from kohort.broker.embedded import Broker
    from kohort.client.admin.admin import Admin
    from kohort.client.admin.results.access import Acl, AclFilter
    from kohort.client.admin.results.quotas import ClientQuota
    from kohort.client.admin.results.topics import NewTopic
    from kohort.client.admin.results.users import ScramCredential
    from kohort.client.consumer.consumer import Consumer
    from kohort.client.producer.producer import Producer
    from kohort.client.records import (
        ConsumerRecord,
        GroupMetadata,
        OffsetAndMetadata,
        OffsetRange,
        Rebalance,
        RecordMetadata,
        SentMany,
    )
    from kohort.client.transform import transform, transform_arrow
    from kohort.ids import TopicPartition
    from kohort.metrics.registry import to_prometheus

__version__ = VERSION

__all__ = [
    "Broker",
    "Consumer",
    "Producer",
    "Admin",
    "Acl",
    "AclFilter",
    "ClientQuota",
    "ConsumerRecord",
    "GroupMetadata",
    "NewTopic",
    "OffsetAndMetadata",
    "OffsetRange",
    "Rebalance",
    "RecordMetadata",
    "ScramCredential",
    "SentMany",
    "TopicPartition",
    "capabilities",
    "errors",
    "metrics",
    "to_prometheus",
    "transform",
    "transform_arrow",
]

_MODULES = {
    "Broker": "kohort.broker.embedded",
    "Consumer": "kohort.client.consumer.consumer",
    "Producer": "kohort.client.producer.producer",
    "Acl": "kohort.client.admin.results.access",
    "AclFilter": "kohort.client.admin.results.access",
    "Admin": "kohort.client.admin.admin",
    "ClientQuota": "kohort.client.admin.results.quotas",
    "ConsumerRecord": "kohort.client.records",
    "GroupMetadata": "kohort.client.records",
    "NewTopic": "kohort.client.admin.results.topics",
    "OffsetAndMetadata": "kohort.client.records",
    "OffsetRange": "kohort.client.records",
    "Rebalance": "kohort.client.records",
    "RecordMetadata": "kohort.client.records",
    "ScramCredential": "kohort.client.admin.results.users",
    "SentMany": "kohort.client.records",
    "TopicPartition": "kohort.ids",
    "to_prometheus": "kohort.metrics.registry",
    "transform": "kohort.client.transform",
    "transform_arrow": "kohort.client.transform",
}


def __getattr__(name: str) -> Any:
    # Public names are loaded on first use: importing kohort alone must not load a broker or a client.
    if name in ("capabilities", "errors", "metrics"):
        return import_module(f"kohort.{name}")
    module = _MODULES.get(name)
    if module is None:
        raise AttributeError(f"module 'kohort' has no attribute {name!r}")
    with without_collections():
        found = globals()[name] = getattr(import_module(module), name)
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
