"""The same as `client/admin/replica_calls.py`, awaited.

Made of it by `python tools/aio_admin.py`: change it there.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from kohort.client.admin.core import replicas as shapes
from kohort.client.admin.core import topics as topic_shapes
from kohort.client.admin.door import check, error_of
from kohort.client.admin.partly import Outcome
from kohort.client.admin.replica_calls import _PARTITIONS_PER_REQUEST, _TIMEOUT_MS
from kohort.client.admin.results.replicas import LeaderElection, PartitionReassignment
from kohort.client.aio.admin.door import AdminDoor
from kohort.client.aio.admin.partly import carry_out
from kohort.client.arguments import to_partitions
from kohort.errors import ErrorCode, KohortError
from kohort.ids import TopicPartition
from kohort.wire.messages.alter_partition_reassignments import AlterPartitionReassignmentsResponse
from kohort.wire.messages.elect_leaders import ElectLeadersResponse
from kohort.wire.messages.list_partition_reassignments import ListPartitionReassignmentsResponse
from kohort.wire.messages.metadata import MetadataResponse


class ReplicaCalls(AdminDoor):
    """Which brokers have partitions, and who of them leads."""

    async def elect_leaders(
        self, partitions: Iterable[TopicPartition] | None = None, *, unclean: bool = False
    ) -> list[LeaderElection]:
        """Let partitions be led by the first of their brokers, or by any that is alive.

        Args:
            partitions: `None`: all that are not led so already.
            unclean: where no broker in sync is alive any that is takes over; what it lacks of the log is lost.

        Returns:
            By topic and partition, also those that were led so already if they are named.

        Raises:
            UnknownTopicError: a partition is not there; nothing is changed.
            PartlyDoneError: some got no leader; `done` and `failed` say which. Of a single one it is its own error:
                BrokerError with PREFERRED_LEADER_NOT_AVAILABLE, ELIGIBLE_LEADERS_NOT_AVAILABLE, ...
            UnsupportedFeatureError: the broker holds no elections when it is asked to.
        """
        if partitions is None:
            outcome = Outcome[TopicPartition, LeaderElection]("electing leaders")
            for each, said in (await self._elect(None, unclean=unclean)).items():
                if isinstance(said, KohortError):
                    outcome.failed[each] = said
                else:
                    outcome.done[each] = said
        else:
            chosen = sorted(set(to_partitions(partitions)))
            if not chosen:
                return []
            await self._known(chosen)
            outcome = await carry_out(
                chosen,
                lambda part: self._elect(part, unclean=unclean),
                during="electing leaders",
                within_s=self._timeout_s,
                per_request=lambda _: 1 / _PARTITIONS_PER_REQUEST,
            )
        return [row for _, row in sorted(outcome.settle().items())]

    async def _elect(
        self, partitions: Sequence[TopicPartition] | None, *, unclean: bool
    ) -> dict[TopicPartition, LeaderElection | KohortError]:
        during = "electing leaders"
        response = await self._ask(
            shapes.elect_request(partitions, unclean=unclean, timeout_ms=_TIMEOUT_MS),
            ElectLeadersResponse,
            during=during,
            codes=lambda response: [response.error_code],
            # Before, there was one kind of election only.
            min_version=1 if unclean else None,
        )
        check(response.error_code, None, during)
        found: dict[TopicPartition, LeaderElection | KohortError] = {}
        for topic in response.replica_election_results:
            for row in topic.partition_result:
                is_needed = row.error_code != ErrorCode.ELECTION_NOT_NEEDED
                error = error_of(row.error_code, row.error_message, during) if is_needed else None
                found[TopicPartition(topic.topic, row.partition_id)] = error or LeaderElection(
                    topic=topic.topic, partition=row.partition_id, is_elected=is_needed
                )
        return found

    async def alter_partition_reassignments(
        self,
        replicas: Mapping[TopicPartition, Sequence[int] | None],
        *,
        allow_replication_factor_change: bool = True,
    ) -> None:
        """Give partitions to other brokers; `list_partition_reassignments` says what is on its way still.

        Args:
            replicas: of each partition the ids of its brokers, the preferred leader first; `None`: it stays where it
                was, and a reassignment that is under way is called off.
            allow_replication_factor_change: whether a partition may get more or fewer copies than it has.

        Raises:
            UnknownTopicError: a partition is not there; nothing is changed.
            PartlyDoneError: some are not reassigned; `done` and `failed` say which. Of a single one it is its own
                error: BrokerError with INVALID_REPLICA_ASSIGNMENT, NO_REASSIGNMENT_IN_PROGRESS, ...
            UnsupportedFeatureError: the broker moves no partitions between brokers.
        """
        wanted = shapes.to_reassignments(replicas)
        if not wanted:
            return
        await self._known(wanted)

        async def ask(chosen: Sequence[TopicPartition]) -> dict[TopicPartition, KohortError | None]:
            response = await self._ask(
                shapes.reassign_request(
                    {each: wanted[each] for each in chosen},
                    allow_replication_factor_change=allow_replication_factor_change,
                    timeout_ms=_TIMEOUT_MS,
                ),
                AlterPartitionReassignmentsResponse,
                during="reassigning partitions",
                codes=lambda response: [response.error_code],
                min_version=None if allow_replication_factor_change else 1,
            )
            check(response.error_code, response.error_message, "reassigning partitions")
            return {
                (each := TopicPartition(topic.name, row.partition_index)): error_of(
                    row.error_code, row.error_message, f"reassigning {each}"
                )
                for topic in response.responses
                for row in topic.partitions
            }

        (
            await carry_out(
                wanted,
                ask,
                during="reassigning partitions",
                within_s=self._timeout_s,
                per_request=lambda _: 1 / _PARTITIONS_PER_REQUEST,
            )
        ).settle()

    async def list_partition_reassignments(
        self, partitions: Iterable[TopicPartition] | None = None
    ) -> list[PartitionReassignment]:
        """The partitions that are on their way to other brokers, by topic and partition.

        Args:
            partitions: `None`: all; those that are not on their way are left out.
        """
        chosen = None if partitions is None else to_partitions(partitions)
        if chosen == ():
            return []
        response = await self._ask(
            shapes.list_request(chosen, timeout_ms=_TIMEOUT_MS),
            ListPartitionReassignmentsResponse,
            during="listing reassignments",
            codes=lambda response: [response.error_code],
        )
        check(response.error_code, response.error_message, "listing reassignments")
        return shapes.reassignments(response)

    async def _known(self, partitions: Iterable[TopicPartition]) -> MetadataResponse:
        """What leads them; `UnknownTopicError` if one of them is not there."""
        chosen = list(partitions)
        metadata = await self._metadata(sorted({each.topic for each in chosen}))
        for topic in metadata.topics:
            topic_shapes.check_topic(topic)
        shapes.check_partitions(chosen, metadata)
        return metadata
