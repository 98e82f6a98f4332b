"""A member by target assignment: the coordinator says which partitions it shall have.

Laws: the target is kept as the coordinator has sent it, whole. It is compared with the owned partitions whenever one
of the two changes, so a topic whose name is not known yet is taken later and never forgotten (KAFKA-16198).
Source: KIP-848.
"""

from __future__ import annotations

from abc import ABC
from collections.abc import Mapping

from kohort.client.membership.member import Member
from kohort.ids import TopicId, TopicPartition


class ReconcilingMember(Member, ABC):
    """A member that revokes and takes partitions until it has its target assignment."""

    #: topic id -> partitions of the target assignment; `None` before the first one.
    _target: Mapping[TopicId, tuple[int, ...]] | None = None
    #: topic -> id by which its partitions were assigned.
    _ids: dict[str, TopicId]
    #: Generation of the cluster's metadata with which the target was last compared.
    _seen_generation: int = -1

    @property
    def topic_ids(self) -> Mapping[str, TopicId]:
        """See `Member.topic_ids`."""
        return self._ids

    def _reconcile(self, now_ms: int) -> None:
        """Compare the target with the owned partitions: first give up the surplus, then take the rest."""
        self._seen_generation = self._cluster.generation
        if self._target is None:
            return
        surplus = {partition for partition in self.owned if not self._may_keep(partition)}
        if surplus:
            self._begin_revocation(surplus, now_ms)
            return
        gained: set[TopicPartition] = set()
        for topic_id, partitions in self._target.items():
            name = self._cluster.topic_name(topic_id)
            if name is None:
                self._cluster.refresh_soon(now_ms)
                continue
            new = {TopicPartition(name, partition) for partition in partitions} - self.owned
            if new:
                self._ids[name] = topic_id
                gained |= new
        self._gain(gained, now_ms)

    def _may_keep(self, partition: TopicPartition) -> bool:
        # By the id under which it was given: the name may belong to a younger topic, or to none, by now.
        assert self._target is not None
        return partition.partition in self._target.get(self._ids[partition.topic], ())
