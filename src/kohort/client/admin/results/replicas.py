"""What the admin client returns of leaders and copies of partitions."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaderElection:
    """One partition; `is_elected` is false where the right broker led it already."""

    topic: str
    partition: int
    is_elected: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionReassignment:
    """One partition on its way: who has a copy of it now, who is to get one, and whose is to go; ids of brokers."""

    topic: str
    partition: int
    replicas: tuple[int, ...]
    adding: tuple[int, ...]
    removing: tuple[int, ...]
