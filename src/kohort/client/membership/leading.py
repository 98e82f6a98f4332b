"""What the leader of a classic group does for everybody: compute who reads what, and watch the topics meanwhile.

Laws: nothing is computed before the cluster's picture has an answer for every topic that anybody subscribes to; a
leader whose picture no longer has as many partitions as it computed with is told so, once. A topic that the leader may
not see at present has as many as before.
Source: Kafka's JoinGroup and SyncGroup; KIP-814 (a static leader that returns computes nothing, but watches).
"""

from __future__ import annotations

from collections.abc import Mapping, Set
from typing import TYPE_CHECKING

from kohort.client.cluster import Cluster
from kohort.wire.embedded import decode_subscription
from kohort.wire.messages.join_group import JoinGroupResponse

if TYPE_CHECKING:
    from kohort.client.membership.client_assignor import Assignment


class Leading:
    """The leader's part of one member."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        #: What JoinGroup said, until the assignment can be computed; `None` for a follower.
        self.open: JoinGroupResponse | None = None
        #: What all members together subscribe to; empty for a follower.
        self.topics: Set[str] = frozenset()
        #: topic -> number of partitions with which this member has computed; empty for a follower.
        self._counted: Mapping[str, int] = {}

    def stop(self) -> None:
        """Another one leads, or nobody."""
        self.open, self.topics, self._counted = None, frozenset(), {}

    def has_changed(self) -> bool:
        """Whether what was computed no longer fits the topics."""
        return bool(self._counted) and self._counted != self._count(self._counted.keys())

    def compute(self) -> Assignment | None:
        """The assignment of everybody, empty if it stands; `None` while a topic is unknown.

        Raises:
            ProtocolError: a member's subscription cannot be read.
        """
        # Only leaders pay for the assignors.
        from kohort.client.membership.client_assignor import GroupMember, assign

        response = self.open
        assert response is not None
        members = [
            GroupMember(
                member_id=each.member_id,
                instance_id=each.group_instance_id,
                subscription=decode_subscription(each.metadata),
            )
            for each in response.members
        ]
        self.topics = frozenset(topic for member in members for topic in member.subscription.topics)
        if any(topic not in self._cluster.topics for topic in self.topics):
            return None
        self.open = None
        self._counted = self._count(self.topics)
        return {} if response.skip_assignment else assign(response.protocol_name or "", members, self._counted)

    def _count(self, topics: Set[str]) -> dict[str, int]:
        return {
            topic: self._counted.get(topic, 0)
            if self._cluster.is_hidden(topic)
            else len(self._cluster.partitions_of(topic))
            for topic in sorted(topics)
        }
