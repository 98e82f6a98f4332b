"""Queries without a JVM that share a group, and what the group says of them."""

from __future__ import annotations

from typing import Any

import kohort
from kohort import TopicPartition
from support.dialogues.spark_query import Place, Query, Start
from support.waiting import until


def committed(admin: kohort.Admin, group: str) -> dict[int, int | None]:
    return {row.partition: row.committed for row in admin.group_offsets(group)}


def of_group(name: str, **more: object) -> dict[str, Any]:
    return {"subscribe": name, "kafka__group__id": f"{name}-g", "startingOffsets": "earliest", **more}


def total(*queries: Query) -> list[Place]:
    """What all of them have written, in order; what was written twice is there twice."""
    return sorted(
        place
        for checkpoint in {id(each.checkpoint): each.checkpoint for each in queries}.values()
        for place in checkpoint.sink
    )


def share(start: Start, admin: kohort.Admin, name: str, **more: object) -> tuple[Query, Query]:
    """Two queries with a partition each, of two, and nothing open."""
    first, second = start(**of_group(name, **more)), start(**of_group(name, **more))

    def both() -> None:
        first.trigger()
        second.trigger()

    def is_shared() -> bool:
        return [len(each.assignment) for each in admin.describe_group(f"{name}-g").members] == [1, 1]

    both()
    until(is_shared, what="one partition each", step=both)
    both()
    return first, second


def owned(admin: kohort.Admin, name: str, query: Query) -> set[TopicPartition]:
    """What the group has given to it."""
    members = admin.describe_group(f"{name}-g").members
    return {partition for each in members if each.instance_id == query.name for partition in each.assignment}
