"""Invariants of committed offsets that hold after every step; each raises `InvariantViolation`.

The simulation and the tests call them; the broker does not.
"""

from __future__ import annotations

from kohort.coordinator.model import GroupsState
from kohort.errors import InvariantViolation


def check_offsets(groups: GroupsState, group_id: str) -> None:
    """TypeOK of a group's offsets: no empty mapping, and pending offsets only of open transactions."""
    topics = groups.offsets.get(group_id)
    if topics is not None and (not topics or not all(topics.values())):
        raise InvariantViolation(f"TypeOK: group {group_id} has an empty mapping of offsets")
    pending = groups.pending_offsets.get(group_id)
    if pending is not None and (not pending or not all(pending.values())):
        raise InvariantViolation(f"TypeOK: group {group_id} has an empty mapping of pending offsets")
    for (topic, partition), claims in (pending or {}).items():
        for producer_id, commit in claims.items():
            transaction = groups.transactions.get(producer_id)
            if transaction is None or group_id not in transaction.group_ids:
                raise InvariantViolation(
                    f"TypeOK: group {group_id} waits for producer {producer_id} on {topic}-{partition}, and no "
                    "transaction of that producer is open"
                )
            if commit is not None and (commit.group_id, commit.topic, commit.partition) != (group_id, topic, partition):
                raise InvariantViolation(f"TypeOK: what is pending on {topic}-{partition} is of another partition")
