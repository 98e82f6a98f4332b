"""The durable part of a KIP-848 group as one comparable value, for whoever holds a fold of the log against the living.

Source: architecture rule 3.
"""

from __future__ import annotations

from kohort.coordinator.model import ConsumerGroup


def digest_of(group: ConsumerGroup) -> dict[str, object]:
    """The durable part of one KIP-848 group."""
    members: dict[str, object] = {
        member.member_id: (
            member.instance_id,
            member.rack_id,
            member.client_id,
            member.client_host,
            member.subscribed_topic_names,
            member.subscribed_topic_regex,
            member.rebalance_timeout_ms,
            member.server_assignor,
            member.classic,
            member.member_epoch,
            member.previous_member_epoch,
            member.state,
            {topic_id: dict(grants) for topic_id, grants in member.assigned.items()},
            {topic_id: dict(grants) for topic_id, grants in member.pending_revocation.items()},
        )
        for member in group.members.values()
    }
    return {
        "epoch": group.epoch,
        "metadata_hash": group.metadata_hash,
        "target_epoch": group.target_epoch,
        "target_timestamp_ms": group.target_timestamp_ms,
        "targets": dict(group.targets),
        "regexes": dict(group.regexes),
        "members": members,
    }
