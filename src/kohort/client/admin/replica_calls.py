"""The admin client's calls about the leaders and the copies of partitions.

Source: Kafka's Admin (electLeaders, alterPartitionReassignments, listPartitionReassignments).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from kohort.client.admin.partial_results import Outcome, carry_out
from kohort.client.admin.questions import Questions, check, error_of
from kohort.client.admin.requests import replicas as shapes
from kohort.client.admin.results.replicas import LeaderElection, PartitionReassignment
from kohort.client.arguments import to_partitions
from kohort.errors import ErrorCode, KohortError
from kohort.ids import TopicPartition
from kohort.wire.messages.alter_partition_reassignments import AlterPartitionReassignmentsResponse
from kohort.wire.messages.elect_leaders import ElectLeadersResponse
from kohort.wire.messages.list_partition_reassignments import ListPartitionReassignmentsResponse

#: How long a broker may take for one request, milliseconds.
_TIMEOUT_MS: Final = 30_000
#: What one request may ask for: Apache Kafka takes 10,000 records of its controller at most.
_PARTITIONS_PER_REQUEST: Final = 5_000


class ReplicaCalls:
    """Which brokers have partitions, and who of them leads."""

    def __init__(self, questions: Questions) -> None:
        self._questions = questions

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
            await self._questions.metadata_of(chosen)
            outcome = await carry_out(
                chosen,
                lambda part: self._elect(part, unclean=unclean),
                during="electing leaders",
                within_s=self._questions.timeout_s,
                per_request=lambda _: 1 / _PARTITIONS_PER_REQUEST,
            )
        return [row for _, row in sorted(outcome.settle().items())]

    async def _elect(
        self, partitions: Sequence[TopicPartition] | None, *, unclean: bool
    ) -> dict[TopicPartition, LeaderElection | KohortError]:
        during = "electing leaders"
        response = await self._questions.ask(
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
        await self._questions.metadata_of(wanted)

        async def ask(chosen: Sequence[TopicPartition]) -> dict[TopicPartition, KohortError | None]:
            response = await self._questions.ask(
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
                within_s=self._questions.timeout_s,
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
        response = await self._questions.ask(
            shapes.list_request(chosen, timeout_ms=_TIMEOUT_MS),
            ListPartitionReassignmentsResponse,
            during="listing reassignments",
            codes=lambda response: [response.error_code],
        )
        check(response.error_code, response.error_message, "listing reassignments")
        return shapes.reassignments(response)
