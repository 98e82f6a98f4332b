"""The work of a classic group's leader: compute the assignment, and watch the topics meanwhile.

Laws: nothing is computed before the metadata of every subscribed topic of the group are known. The leader joins again,
once, when a topic no longer has as many partitions as it has computed with. A topic that the leader may not see at
present counts as unchanged.
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
    """The leader's part of one member; empty while the member follows."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        #: The answer to JoinGroup, until the assignment can be computed; `None` for a follower.
        self.open: JoinGroupResponse | None = None
        #: The subscribed topics of all members; empty for a follower.
        self.topics: Set[str] = frozenset()
        #: topic -> number of partitions with which this member has computed; empty for a follower.
        self._counted: Mapping[str, int] = {}

    def stop(self) -> None:
        """Stop leading: another member leads, or the generation has ended."""
        self.open, self.topics, self._counted = None, frozenset(), {}

    def has_changed(self) -> bool:
        """Return whether the topics have other numbers of partitions than the assignment was computed with."""
        return bool(self._counted) and self._counted != self._count(self._counted.keys())

    def compute(self) -> Assignment | None:
        """Compute the assignment of all members, empty if the former one stands; `None`: a topic is unknown.

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
