"""The durable state of a shard as one comparable value: a fold over its log gives the same.

Laws: state that a restart forgets is not in it.
Source: architecture rule 2: recovery is the same apply.
"""

from __future__ import annotations

from kohort.coordinator.classic.state import durable_view
from kohort.coordinator.model import ConsumerGroup, GroupsState


def digest_state(groups: GroupsState) -> dict[str, object]:
    """Return the whole durable state of `groups`."""
    views = {group_id: durable_view(group) for group_id, group in groups.classic.items()}
    return {
        "consumer": {group_id: _digest_group(group) for group_id, group in groups.consumer.items()},
        "classic": {group_id: view for group_id, view in views.items() if view is not None},
        "rebalances": {group_id: group.due for group_id, group in groups.classic.items() if group.due is not None},
        "offsets": {
            (group_id, topic, partition): committed
            for group_id, topics in groups.offsets.items()
            for topic, partitions in topics.items()
            for partition, committed in partitions.items()
        },
        "transactions": {
            producer_id: (transaction.producer_epoch, tuple(transaction.group_ids))
            for producer_id, transaction in groups.transactions.items()
        },
        "pending_offsets": {
            (group_id, *place): tuple(claims.items())
            for group_id, partitions in groups.pending_offsets.items()
            for place, claims in partitions.items()
        },
        "configs": {group_id: dict(configs) for group_id, configs in groups.configs.items()},
        # The time that the clock has counted, and not the time of day: a restart continues the count.
        "clocks": {
            group_id: (clock.noted_ms - clock.lost_ms, clock.window_opened_ms, dict(clock.offline))
            for group_id, clock in groups.clocks.items()
        },
    }


def _digest_group(group: ConsumerGroup) -> dict[str, object]:
    """Return the durable part of one KIP-848 group."""
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
    side = group.client_side
    if side is not None and not side.assignors and not side.said:
        side = None
    return {
        "epoch": group.epoch,
        "metadata_hash": group.metadata_hash,
        "target_epoch": group.target_epoch,
        "target_timestamp_ms": group.target_timestamp_ms,
        "targets": dict(group.targets),
        "regexes": dict(group.regexes),
        "submitted": dict(group.submitted),
        "published": {} if group.published is None else group.published.living(),
        "members": members,
        "client_side": {} if side is None else {"assignors": dict(side.assignors), "said": dict(side.said)},
    }
