"""What the admin client returns of a cluster: brokers, features, the metadata's quorum, log directories."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerDescription:
    """One broker; a fenced one is registered, but leads nothing and is not up to date."""

    broker_id: int
    host: str
    port: int
    rack: str | None
    is_fenced: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterDescription:
    """The brokers by their ids.

    `authorized_operations`: what the caller may do with the cluster, named as in access control lists ("describe",
    "alter_configs", ...); `None` if that was not asked.
    """

    cluster_id: str
    controller_id: int
    brokers: tuple[BrokerDescription, ...]
    authorized_operations: tuple[str, ...] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class FeatureDescription:
    """One feature: the levels that the asked broker could run, and the one that the cluster runs, 0 where it is off."""

    name: str
    min_version: int
    max_version: int
    version_level: int


@dataclass(frozen=True, slots=True, kw_only=True)
class FeaturesDescription:
    """Features by name; the epoch grows with every change of levels, -1 where the broker does not know it."""

    epoch: int
    features: tuple[FeatureDescription, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class QuorumReplica:
    """One that keeps the cluster's metadata.

    `lag` is how many records it is behind the leader; times are in milliseconds since 1970, `None` where they are not
    known; `directory_id` is in Kafka's base64 form.
    """

    replica_id: int
    directory_id: str
    log_end_offset: int
    lag: int
    last_fetch_ms: int | None
    last_caught_up_ms: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class QuorumDescription:
    """Who keeps the cluster's metadata: voters, and observers, which only follow.

    `listeners`: of each controller "NAME://HOST:PORT", where the cluster tells it.
    """

    leader_id: int
    leader_epoch: int
    high_watermark: int
    voters: tuple[QuorumReplica, ...]
    observers: tuple[QuorumReplica, ...]
    listeners: dict[int, tuple[str, ...]]


@dataclass(frozen=True, slots=True, kw_only=True)
class LogDescription:
    """One log in a directory; a future one takes the place of the present one when its lag, in records, is 0."""

    topic: str
    partition: int
    size_bytes: int
    offset_lag: int
    is_future: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class LogDirDescription:
    """One directory of a broker with its logs by topic and partition.

    `error`: why it cannot be used, such as "KAFKA_STORAGE_ERROR"; `None`: it can. `total_bytes` and `usable_bytes` are
    those of its volume, `None` where the broker does not tell. A cordoned directory is given nothing new.
    """

    broker_id: int
    path: str
    error: str | None
    total_bytes: int | None
    usable_bytes: int | None
    is_cordoned: bool
    logs: tuple[LogDescription, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaLogDir:
    """Where a broker keeps a copy of a partition, and where it is on its way to; lags in records.

    `None` as path: the broker has no copy, or moves none.
    """

    topic: str
    partition: int
    broker_id: int
    path: str | None
    offset_lag: int
    future_path: str | None
    future_offset_lag: int
