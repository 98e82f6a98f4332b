"""The admin client's calls about a cluster: brokers, features, the metadata's quorum, log directories.

Source: Kafka's Admin (describeCluster, describeFeatures, updateFeatures, describeMetadataQuorum, describeLogDirs,
describeReplicaLogDirs, alterReplicaLogDirs).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final, Literal

from kohort.base import VERSION
from kohort.client.admin.admin_machine import MovedError
from kohort.client.admin.questions import Calls, Outcome, carry_out, check, error_of
from kohort.client.admin.results import cluster as shapes
from kohort.client.admin.results.cluster import (
    ClusterDescription,
    FeaturesDescription,
    LeaderElection,
    LogDirDescription,
    PartitionReassignment,
    QuorumDescription,
    ReplicaLogDir,
    TopicPartitionReplica,
)
from kohort.client.arguments import to_partitions
from kohort.client.core.actions import Endpoint
from kohort.errors import BrokerError, ErrorCode, KohortError, UnsupportedFeatureError
from kohort.ids import TopicPartition
from kohort.wire.messages.alter_partition_reassignments import AlterPartitionReassignmentsResponse
from kohort.wire.messages.alter_replica_log_dirs import AlterReplicaLogDirsResponse
from kohort.wire.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from kohort.wire.messages.describe_broker import DescribeBrokerRequest, DescribeBrokerResponse
from kohort.wire.messages.describe_cluster import DescribeClusterRequest, DescribeClusterResponse
from kohort.wire.messages.describe_log_dirs import DescribeLogDirsResponse
from kohort.wire.messages.describe_quorum import DescribeQuorumResponse
from kohort.wire.messages.elect_leaders import ElectLeadersResponse
from kohort.wire.messages.list_partition_reassignments import ListPartitionReassignmentsResponse
from kohort.wire.messages.update_features import UpdateFeaturesResponse
from kohort.wire.private import SOFTWARE_NAME

#: How long a broker may take for one request, milliseconds.
_TIMEOUT_MS: Final = 30_000


class ClusterCalls(Calls):
    """What a cluster is made of."""

    async def describe_cluster(
        self, *, include_fenced: bool = False, include_authorized_operations: bool = False
    ) -> ClusterDescription:
        """The cluster's id and brokers.

        Args:
            include_fenced: also brokers that are registered, but not up to date: those that are stopped.
            include_authorized_operations: also what the caller may do with the cluster.

        Raises:
            UnsupportedFeatureError: the broker knows nothing of fenced ones.
        """
        response = await self._questions.ask_checked(
            DescribeClusterRequest(
                include_cluster_authorized_operations=include_authorized_operations,
                include_fenced_brokers=include_fenced,
            ),
            DescribeClusterResponse,
            during="describing the cluster",
            min_version=2 if include_fenced else None,
        )
        return shapes.cluster(response)

    async def describe_features(self) -> FeaturesDescription:
        """The features of the cluster, and the levels of them that the broker which was asked could run.

        >>> import kohort
        >>> with kohort.Broker() as broker, kohort.Admin(bootstrap_servers=broker.bootstrap_servers) as admin:
        ...     [(each.name, each.version_level) for each in admin.describe_features().features]
        [('group.version', 1)]
        """
        response = await self._questions.ask_checked(
            ApiVersionsRequest(client_software_name=SOFTWARE_NAME, client_software_version=VERSION),
            ApiVersionsResponse,
            during="describing features",
            min_version=3,
        )
        return shapes.features(response)

    async def update_features(
        self,
        levels: Mapping[str, int],
        *,
        downgrade: Literal["safe", "unsafe"] | None = None,
        validate_only: bool = False,
    ) -> None:
        """Switch features of the cluster to other levels, all of them or none.

        Args:
            levels: the new level of each feature; 0 switches it off.
            downgrade: whether a level may be lower than before: "safe" if nothing is lost by it, "unsafe" in any case.
            validate_only: only say whether it could be done.

        Raises:
            BrokerError: INVALID_UPDATE_VERSION, FEATURE_UPDATE_FAILED with the broker's reason; nothing is changed.
            UnsupportedFeatureError: the broker has no features that could be changed.
        """
        during = "trying new levels of features" if validate_only else "updating features"
        response = await self._questions.ask_checked(
            shapes.features_request(levels, downgrade=downgrade, validate_only=validate_only, timeout_ms=_TIMEOUT_MS),
            UpdateFeaturesResponse,
            during=during,
            # Before, a trial could not be told from the change, nor one kind of lower level from the other.
            min_version=1,
        )
        for row in response.results:
            check(row.error_code, row.error_message, f"{during}: {row.feature}")

    async def describe_broker(self) -> dict[str, str]:
        """How a broker of kohort's is doing: what it has, and the longest time for which it answered nobody.

        Returns:
            Facts by name, in an order to be read; docs/reference/cli.md says what they are.

        Raises:
            UnsupportedFeatureError: the broker is not one of kohort's.

        >>> import kohort
        >>> with kohort.Broker() as broker, kohort.Admin(bootstrap_servers=broker.bootstrap_servers) as admin:
        ...     admin.describe_broker()["node.id"]
        '1'
        """
        response = await self._questions.ask_checked(
            DescribeBrokerRequest(), DescribeBrokerResponse, during="describing a broker"
        )
        return {fact.name: fact.value for fact in response.facts}

    async def describe_quorum(self) -> QuorumDescription:
        """Who keeps the cluster's metadata, and how far each has come.

        Raises:
            UnsupportedFeatureError: the cluster's metadata is kept in another way.
        """
        during = "describing the quorum of the metadata"
        response = await self._questions.ask(
            shapes.quorum_request(),
            DescribeQuorumResponse,
            during=during,
            codes=lambda response: [
                response.error_code,
                *(row.error_code for topic in response.topics for row in topic.partitions),
            ],
        )
        check(response.error_code, response.error_message, during)
        rows = [row for topic in response.topics for row in topic.partitions]
        if not rows:
            raise KohortError(f"{during}: the broker has said nothing of it")
        row = rows[0]
        check(row.error_code, row.error_message, during)
        listeners = {
            node.node_id: tuple(f"{each.name}://{each.host}:{each.port}" for each in node.listeners)
            for node in response.nodes
        }
        return shapes.quorum(row, listeners)

    async def describe_log_dirs(
        self, brokers: Iterable[int] | None = None, *, partitions: Iterable[TopicPartition] | None = None
    ) -> list[LogDirDescription]:
        """The log directories of brokers, by broker and path, with what is in them.

        Args:
            brokers: ids; `None`: all that are there.
            partitions: only their logs are told; `None`: all.

        Raises:
            BrokerError: BROKER_NOT_AVAILABLE: there is no such broker now.
            PartlyDoneError: of several brokers some did not tell; `done` and `failed` say which.
            UnsupportedFeatureError: the broker keeps its files to itself.
        """
        chosen = None if partitions is None else to_partitions(partitions)
        wanted = await self._addresses() if brokers is None else _ids(brokers)

        async def ask(part: Sequence[int]) -> dict[int, list[LogDirDescription] | KohortError]:
            there = await self._addresses()
            said: dict[int, list[LogDirDescription] | KohortError] = {}
            for broker in part:
                said[broker] = await self._log_dirs_of(broker, there, chosen)
            return said

        done = await self._questions.do_all(sorted(wanted), ask, during="describing log directories")
        return [row for rows in done.values() for row in rows]

    async def _log_dirs_of(
        self, broker: int, there: Mapping[int, Endpoint], partitions: Sequence[TopicPartition] | None
    ) -> list[LogDirDescription] | KohortError:
        if broker not in there:
            return _absent(broker, there)
        during = f"describing the log directories of broker {broker}"
        try:
            response = await self._questions.ask(
                shapes.log_dirs_request(partitions),
                DescribeLogDirsResponse,
                target=there[broker],
                during=during,
            )
        except KohortError as why:
            return _of_broker(why, during)
        return error_of(response.error_code, None, during) or shapes.log_dirs(broker, response)

    async def describe_replica_log_dirs(
        self, replicas: Iterable[tuple[str, int, int] | TopicPartitionReplica]
    ) -> list[ReplicaLogDir]:
        """In which directories copies of partitions are, and where they are on their way to, in the order asked.

        Args:
            replicas: each a topic, a partition and the id of a broker: `("orders", 0, 1)`.

        Raises:
            BrokerError: BROKER_NOT_AVAILABLE: there is no such broker now.
        """
        chosen = _replicas(replicas)
        if not chosen:
            return []
        partitions = {TopicPartition(each.topic, each.partition) for each in chosen}
        found = await self.describe_log_dirs({each.broker_id for each in chosen}, partitions=partitions)
        return shapes.replica_log_dirs(chosen, found)

    async def alter_replica_log_dirs(self, paths: Mapping[tuple[str, int, int] | TopicPartitionReplica, str]) -> None:
        """Have brokers move copies of partitions to other directories; `describe_replica_log_dirs` says how far it is.

        Args:
            paths: of each topic, partition and broker the directory by its path there: `{("orders", 0, 1): "/data2"}`.

        Raises:
            BrokerError: LOG_DIR_NOT_FOUND: the broker has no such directory; BROKER_NOT_AVAILABLE.
            PartlyDoneError: some are not moved; `done` and `failed` say which.
        """
        if not isinstance(paths, Mapping) or not all(isinstance(path, str) for path in paths.values()):
            raise TypeError(f"paths cannot be {paths!r}: a mapping is expected, like {{('orders', 0, 1): '/data2'}}")
        wanted = {shapes.to_replica(each): path for each, path in paths.items()}

        async def ask(part: Sequence[TopicPartitionReplica]) -> dict[TopicPartitionReplica, KohortError | None]:
            there = await self._addresses()
            said: dict[TopicPartitionReplica, KohortError | None] = {}
            for broker in sorted({each.broker_id for each in part}):
                mine = {each: wanted[each] for each in part if each.broker_id == broker}
                said.update(await self._move_at(broker, there, mine))
            return said

        await self._questions.do_all(
            wanted,
            ask,
            during="moving copies to other directories",
        )

    async def _move_at(
        self, broker: int, there: Mapping[int, Endpoint], wanted: Mapping[TopicPartitionReplica, str]
    ) -> dict[TopicPartitionReplica, KohortError | None]:
        if broker not in there:
            return dict.fromkeys(wanted, _absent(broker, there))
        during = f"moving copies to other directories of broker {broker}"
        try:
            response = await self._questions.ask(
                shapes.move_request(wanted),
                AlterReplicaLogDirsResponse,
                target=there[broker],
                during=during,
            )
        except KohortError as why:
            return dict.fromkeys(wanted, _of_broker(why, during))
        return {
            each: error_of(row.error_code, f"{each}: {wanted[each]}", during)
            for topic in response.results
            for row in topic.partitions
            if (each := TopicPartitionReplica(topic.topic_name, row.partition_index, broker)) in wanted
        }

    async def _addresses(self) -> dict[int, Endpoint]:
        """Where the brokers listen that are there now."""
        metadata = await self._questions.metadata(())
        return {row.node_id: Endpoint(row.host, row.port) for row in metadata.brokers}


def _absent(broker: int, there: Iterable[int]) -> BrokerError:
    known = ", ".join(map(str, sorted(there)))
    return BrokerError(
        ErrorCode.BROKER_NOT_AVAILABLE, f"the brokers now are {known}", during=f"looking for broker {broker}"
    )


def _of_broker(why: KohortError, during: str) -> KohortError:
    """What one broker's error is for what was asked of it; that it can never be asked so is an error of the call."""
    if isinstance(why, UnsupportedFeatureError):
        raise why
    # Whoever is not at its address any more is looked up again.
    return BrokerError(ErrorCode.NETWORK_EXCEPTION, str(why.why), during=during) if isinstance(why, MovedError) else why


def _ids(brokers: object) -> set[int]:
    if isinstance(brokers, str | bytes) or not isinstance(brokers, Iterable):
        raise TypeError(f"brokers cannot be {brokers!r}: a list of ids is expected, like [1, 2]")
    return {shapes.to_broker(each) for each in brokers}


def _replicas(replicas: object) -> list[TopicPartitionReplica]:
    if isinstance(replicas, str | bytes | tuple) or not isinstance(replicas, Iterable):
        raise TypeError(f"replicas cannot be {replicas!r}: a list is expected, like [('orders', 0, 1)]")
    return [shapes.to_replica(each) for each in replicas]


# The admin client's calls about the leaders and the copies of partitions.
#
# Source: Kafka's Admin (electLeaders, alterPartitionReassignments, listPartitionReassignments).

#: How long a broker may take for one request, milliseconds.
#: What one request may ask for: Apache Kafka takes 10,000 records of its controller at most.
_PARTITIONS_PER_REQUEST: Final = 5_000


class ReplicaCalls(Calls):
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
        response = await self._questions.ask_checked(
            shapes.elect_request(partitions, unclean=unclean, timeout_ms=_TIMEOUT_MS),
            ElectLeadersResponse,
            during=during,
            # Before, there was one kind of election only.
            min_version=1 if unclean else None,
        )
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
            response = await self._questions.ask_checked(
                shapes.reassign_request(
                    {each: wanted[each] for each in chosen},
                    allow_replication_factor_change=allow_replication_factor_change,
                    timeout_ms=_TIMEOUT_MS,
                ),
                AlterPartitionReassignmentsResponse,
                during="reassigning partitions",
                min_version=None if allow_replication_factor_change else 1,
            )
            return {
                (each := TopicPartition(topic.name, row.partition_index)): error_of(
                    row.error_code, row.error_message, f"reassigning {each}"
                )
                for topic in response.responses
                for row in topic.partitions
            }

        await self._questions.do_all(
            wanted,
            ask,
            during="reassigning partitions",
            per_request=lambda _: 1 / _PARTITIONS_PER_REQUEST,
        )

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
        response = await self._questions.ask_checked(
            shapes.list_request(chosen, timeout_ms=_TIMEOUT_MS),
            ListPartitionReassignmentsResponse,
            during="listing reassignments",
        )
        return shapes.reassignments(response)
