"""What the admin client returns of topics."""

from __future__ import annotations

from dataclasses import dataclass

from kohort.durability_window import LossWindow


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicListing:
    """One topic; `topic_id` in Kafka's base64 form."""

    name: str
    topic_id: str
    partition_count: int
    is_internal: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionDescription:
    """One partition; `leader` is a broker id, -1 while there is none; offsets are what a reader may see."""

    partition: int
    leader: int
    leader_epoch: int
    replicas: tuple[int, ...]
    in_sync: tuple[int, ...]
    begin_offset: int
    end_offset: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicDescription:
    """One topic with its partitions in order and its configs (those that differ from the broker's defaults).

    `idle`: which of these the broker takes but does not act on, and its words for it ("not acted on yet").
    `authorized_operations`: what the caller may do with it ("describe", "write", ...), where that was asked for.
    `loss_window`: what a power cut may take of records that acks=all was answered for; `None`: nothing, or the broker
    does not say.
    """

    name: str
    topic_id: str
    is_internal: bool
    partitions: tuple[PartitionDescription, ...]
    configs: dict[str, str]
    idle: dict[str, str]
    authorized_operations: tuple[str, ...] | None = None
    loss_window: LossWindow | None = None

    @property
    def copies(self) -> int:
        """How many brokers have each partition."""
        return max((len(row.replicas) for row in self.partitions), default=0)


@dataclass(frozen=True, slots=True, kw_only=True)
class CreatedTopic:
    """A topic that was made, or with `validate_only` would be.

    `topic_id`: in Kafka's base64 form, `None` where nothing was made or the broker says none. `partition_count` and
    `replication_factor`: as the cluster has settled them; `None` from brokers that do not say. `idle`: those of its
    configs that the broker takes but does not act on, and its words for it ("not acted on yet").
    """

    name: str
    topic_id: str | None
    partition_count: int | None
    replication_factor: int | None
    idle: dict[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class ListedOffset:
    """What a partition has at a time, or at one of its ends.

    `offset`: `None` where no record is as young. `timestamp`: of the record there, milliseconds since 1970; `None` for
    the ends. `leader_epoch`: in which it was written; `None` where the broker does not say.
    """

    offset: int | None
    timestamp: int | None
    leader_epoch: int | None
