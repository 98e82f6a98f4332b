"""The admin client's calls about a cluster: brokers, features, the metadata quorum, log directories, replicas.

Source: Kafka's Admin (describeCluster, describeFeatures, updateFeatures, describeMetadataQuorum, describeLogDirs,
describeReplicaLogDirs, alterReplicaLogDirs, electLeaders, alterPartitionReassignments, listPartitionReassignments).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Final, Literal, TypeVar

from kohort.base import VERSION
from kohort.client.admin.admin_machine import MovedError, Question
from kohort.client.admin.questions import Calls, Outcome, check, error_of, gone
from kohort.client.admin.results import cluster as results
from kohort.client.admin.results.cluster import TopicPartitionReplica
from kohort.client.arguments import to_partitions
from kohort.client.core.actions import Endpoint
from kohort.errors import BrokerError, ErrorCode, KohortError, UnsupportedFeatureError
from kohort.ids import TopicPartition
from kohort.wire.messages import (
    alter_partition_reassignments,
    alter_replica_log_dirs,
    api_versions,
    describe_broker,
    describe_cluster,
    describe_log_dirs,
    describe_quorum,
    elect_leaders,
    list_partition_reassignments,
    update_features,
)
from kohort.wire.private import SOFTWARE_NAME
from kohort.wire.schema import Message

R = TypeVar("R", bound=Message)
#: Part of a request that a partition takes: Apache Kafka's controller takes 10,000 records at once at most.
_PART: Final = 1 / 5_000


class ClusterCalls(Calls):
    """The calls about a cluster."""

    async def describe_cluster(
        self, *, include_fenced: bool = False, include_authorized_operations: bool = False
    ) -> results.ClusterDescription:
        """Describe the cluster: its id and brokers.

        Args:
            include_fenced: also return fenced brokers: registered, but stopped or not caught up.
            include_authorized_operations: also return the operations on the cluster that the caller may perform.

        Raises:
            UnsupportedFeatureError: `include_fenced` is set, and the broker cannot report fenced brokers.
        """
        request = describe_cluster.DescribeClusterRequest(
            include_cluster_authorized_operations=include_authorized_operations, include_fenced_brokers=include_fenced
        )
        lowest, during = 2 if include_fenced else None, "describing the cluster"
        response = await self._questions.ask_checked(
            Question(request, describe_cluster.DescribeClusterResponse, during=during, min_version=lowest)
        )
        return results.ClusterDescription.of(response)

    async def describe_features(self) -> results.FeaturesDescription:
        """Describe the feature levels of the cluster, and the levels that the responding broker supports.

        >>> import kohort
        >>> with kohort.Broker() as broker, kohort.Admin(bootstrap_servers=broker.bootstrap_servers) as admin:
        ...     [(each.name, each.version_level) for each in admin.describe_features().features]
        [('group.version', 1), ('transaction.version', 2)]
        """
        request = api_versions.ApiVersionsRequest(client_software_name=SOFTWARE_NAME, client_software_version=VERSION)
        response = await self._questions.ask_checked(
            Question(request, api_versions.ApiVersionsResponse, during="describing features", min_version=3)
        )
        return results.FeaturesDescription.of(response)

    async def update_features(
        self,
        levels: Mapping[str, int],
        *,
        downgrade: Literal["safe", "unsafe"] | None = None,
        validate_only: bool = False,
    ) -> None:
        """Change feature levels of the cluster, all of them or none.

        Args:
            levels: the new level of each feature; 0 disables it.
            downgrade: whether a level may be lowered: "safe" if no metadata is lost by it, "unsafe" in any case.
            validate_only: only check whether the change is possible.

        Raises:
            BrokerError: INVALID_UPDATE_VERSION, FEATURE_UPDATE_FAILED with the broker's reason; nothing is changed.
            UnsupportedFeatureError: the broker does not support UpdateFeatures.
        """
        during = "trying new levels of features" if validate_only else "updating features"
        response = await self._questions.ask_checked(
            Question(
                results.features_request(levels, downgrade=downgrade, validate_only=validate_only),
                update_features.UpdateFeaturesResponse,
                during=during,
                # Before, a trial could not be told from the change, nor one kind of lower level from the other.
                min_version=1,
            )
        )
        for row in response.results:
            check(row, f"{during}: {row.feature}")

    async def describe_broker(self) -> dict[str, str]:
        """Describe a kohort broker: its counts and limits, and the longest iteration of its event loop.

        Returns:
            Values by name, in reading order; docs/reference/cli.md explains each.

        Raises:
            UnsupportedFeatureError: the broker is not kohort's.

        >>> import kohort
        >>> with kohort.Broker() as broker, kohort.Admin(bootstrap_servers=broker.bootstrap_servers) as admin:
        ...     admin.describe_broker()["node.id"]
        '1'
        """
        request, expected = describe_broker.DescribeBrokerRequest(), describe_broker.DescribeBrokerResponse
        response = await self._questions.ask_checked(Question(request, expected, during="describing a broker"))
        return {fact.name: fact.value for fact in response.facts}

    async def describe_quorum(self) -> results.QuorumDescription:
        """Describe the KRaft quorum of the cluster's metadata, with the log end offset and lag of each replica.

        Raises:
            UnsupportedFeatureError: the cluster has no KRaft quorum.
        """
        during = "describing the quorum of the metadata"
        response = await self._ask(
            Question(
                results.quorum_request(),
                describe_quorum.DescribeQuorumResponse,
                during=during,
                codes=lambda response: [
                    response.error_code,
                    *(row.error_code for topic in response.topics for row in topic.partitions),
                ],
            )
        )
        check(response, during)
        rows = [row for topic in response.topics for row in topic.partitions]
        if not rows:
            raise KohortError(f"{during}: the broker has said nothing of it")
        row = rows[0]
        check(row, during)
        return results.QuorumDescription.of(row, response.nodes)

    async def describe_log_dirs(
        self, brokers: Iterable[int] | None = None, *, partitions: Iterable[TopicPartition] | None = None
    ) -> list[results.LogDirDescription]:
        """Describe the log directories of brokers and the logs in them, sorted by broker and path.

        Args:
            brokers: broker ids; `None` means all brokers of the cluster.
            partitions: return only the logs of these; `None` means all.

        Raises:
            BrokerError: BROKER_NOT_AVAILABLE: the cluster has no such broker now.
            PartlyDoneError: some of several brokers have failed; `done` and `failed` say which.
            UnsupportedFeatureError: the broker does not support DescribeLogDirs.
        """
        chosen = None if partitions is None else to_partitions(partitions)
        wanted = await self._addresses() if brokers is None else _ids(brokers)

        async def ask(part: Sequence[int]) -> dict[int, list[results.LogDirDescription] | KohortError]:
            there = await self._addresses()
            return {broker: await self._log_dirs_of(broker, there, chosen) for broker in part}

        done = await self._questions.do_all(sorted(wanted), ask, during="describing log directories")
        return [row for rows in done.values() for row in rows]

    async def _log_dirs_of(
        self, broker: int, there: Mapping[int, Endpoint], partitions: Sequence[TopicPartition] | None
    ) -> list[results.LogDirDescription] | KohortError:
        during = f"describing the log directories of broker {broker}"
        question = Question(
            results.log_dirs_request(partitions), describe_log_dirs.DescribeLogDirsResponse, during=during
        )
        response = await self._ask_broker(broker, there, question)
        if isinstance(response, KohortError):
            return response
        return error_of(response, during) or results.log_dirs(broker, response)

    async def describe_replica_log_dirs(
        self, replicas: Iterable[tuple[str, int, int] | TopicPartitionReplica]
    ) -> list[results.ReplicaLogDir]:
        """Describe the log directory of each replica, and the one it is moving to, in the order of `replicas`.

        Args:
            replicas: each a topic, a partition and a broker id: `("orders", 0, 1)`.

        Raises:
            BrokerError: BROKER_NOT_AVAILABLE: the cluster has no such broker now.
        """
        chosen = _replicas(replicas)
        if not chosen:
            return []
        partitions = {TopicPartition(each.topic, each.partition) for each in chosen}
        found = await self.describe_log_dirs({each.broker_id for each in chosen}, partitions=partitions)
        return results.replica_log_dirs(chosen, found)

    async def alter_replica_log_dirs(self, paths: Mapping[tuple[str, int, int] | TopicPartitionReplica, str]) -> None:
        """Start moves of replicas to other log directories; `describe_replica_log_dirs` shows their progress.

        Args:
            paths: (topic, partition, broker id) to the path on that broker: `{("orders", 0, 1): "/data2"}`.

        Raises:
            BrokerError: LOG_DIR_NOT_FOUND: the broker has no such directory; BROKER_NOT_AVAILABLE.
            PartlyDoneError: some moves were refused; `done` and `failed` say which.
        """
        if not isinstance(paths, Mapping) or not all(isinstance(path, str) for path in paths.values()):
            raise TypeError(f"paths cannot be {paths!r}: a mapping is expected, like {{('orders', 0, 1): '/data2'}}")
        wanted = {results.to_replica(each): path for each, path in paths.items()}

        async def ask(part: Sequence[TopicPartitionReplica]) -> dict[TopicPartitionReplica, KohortError | None]:
            there = await self._addresses()
            said: dict[TopicPartitionReplica, KohortError | None] = {}
            for broker in sorted({each.broker_id for each in part}):
                mine = {each: wanted[each] for each in part if each.broker_id == broker}
                said.update(await self._move_at(broker, there, mine))
            return said

        await self._questions.do_all(wanted, ask, during="moving copies to other directories")

    async def _move_at(
        self, broker: int, there: Mapping[int, Endpoint], wanted: Mapping[TopicPartitionReplica, str]
    ) -> dict[TopicPartitionReplica, KohortError | None]:
        during = f"moving copies to other directories of broker {broker}"
        question = Question(
            results.move_request(wanted), alter_replica_log_dirs.AlterReplicaLogDirsResponse, during=during
        )
        response = await self._ask_broker(broker, there, question)
        if isinstance(response, KohortError):
            return dict.fromkeys(wanted, response)
        return {
            each: error_of(row, during, text=f"{each}: {wanted[each]}")
            for topic in response.results
            for row in topic.partitions
            if (each := TopicPartitionReplica(topic.topic_name, row.partition_index, broker)) in wanted
        }

    async def _ask_broker(self, broker: int, there: Mapping[int, Endpoint], question: Question[R]) -> R | KohortError:
        """Ask one broker; return its error, but raise `UnsupportedFeatureError`, which concerns all brokers."""
        if broker not in there:
            text = f"the brokers now are {', '.join(map(str, sorted(there)))}"
            return BrokerError(ErrorCode.BROKER_NOT_AVAILABLE, text, during=f"looking for broker {broker}")
        try:
            return await self._ask(replace(question, target=there[broker]))
        except UnsupportedFeatureError:
            raise
        except MovedError as moved:
            # A broker that has left its address is looked up again.
            return gone(moved, question.during)
        except KohortError as why:
            return why

    async def _addresses(self) -> dict[int, Endpoint]:
        """Look up the addresses of the cluster's brokers, by broker id."""
        metadata = await self._questions.metadata(())
        return {row.node_id: Endpoint(row.host, row.port) for row in metadata.brokers}


def _ids(brokers: object) -> set[int]:
    if isinstance(brokers, str | bytes) or not isinstance(brokers, Iterable):
        raise TypeError(f"brokers cannot be {brokers!r}: a list of ids is expected, like [1, 2]")
    return {results.to_broker(each) for each in brokers}


def _replicas(replicas: object) -> list[TopicPartitionReplica]:
    if isinstance(replicas, str | bytes | tuple) or not isinstance(replicas, Iterable):
        raise TypeError(f"replicas cannot be {replicas!r}: a list is expected, like [('orders', 0, 1)]")
    return [results.to_replica(each) for each in replicas]


class ReplicaCalls(Calls):
    """The calls about leaders and replicas of partitions."""

    async def elect_leaders(
        self, partitions: Iterable[TopicPartition] | None = None, *, unclean: bool = False
    ) -> list[results.LeaderElection]:
        """Elect the preferred replica of each partition as leader; with `unclean`, any replica that is alive.

        Args:
            partitions: `None` means all partitions that need an election.
            unclean: if no in-sync replica is alive, elect one that is not in sync; the records it lacks are lost.

        Returns:
            Sorted by topic and partition. A named partition that needed no election is included.

        Raises:
            UnknownTopicError: a partition does not exist; nothing is changed.
            PartlyDoneError: some elections have failed; `done` and `failed` say which. For a single partition its own
                error is raised: BrokerError with PREFERRED_LEADER_NOT_AVAILABLE, ELIGIBLE_LEADERS_NOT_AVAILABLE, ...
            UnsupportedFeatureError: the broker does not support ElectLeaders.
        """
        during = "electing leaders"
        if partitions is None:
            done = Outcome.of(during, await self._elect(None, unclean=unclean)).settle()
        else:
            chosen = sorted(set(to_partitions(partitions)))
            if not chosen:
                return []
            await self._questions.metadata_of(chosen)

            async def ask(part: Sequence[TopicPartition]) -> dict[TopicPartition, results.LeaderElection | KohortError]:
                return await self._elect(part, unclean=unclean)

            done = await self._questions.do_all(chosen, ask, during=during, per_request=lambda _: _PART)
        return [row for _, row in sorted(done.items())]

    async def _elect(
        self, partitions: Sequence[TopicPartition] | None, *, unclean: bool
    ) -> dict[TopicPartition, results.LeaderElection | KohortError]:
        during = "electing leaders"
        response = await self._questions.ask_checked(
            Question(
                results.elect_request(partitions, unclean=unclean),
                elect_leaders.ElectLeadersResponse,
                during=during,
                # Before, there was one kind of election only.
                min_version=1 if unclean else None,
            )
        )
        found: dict[TopicPartition, results.LeaderElection | KohortError] = {}
        for topic in response.replica_election_results:
            for row in topic.partition_result:
                is_needed = row.error_code != ErrorCode.ELECTION_NOT_NEEDED
                error = error_of(row, during) if is_needed else None
                found[TopicPartition(topic.topic, row.partition_id)] = error or results.LeaderElection(
                    topic=topic.topic, partition=row.partition_id, is_elected=is_needed
                )
        return found

    async def alter_partition_reassignments(
        self, replicas: Mapping[TopicPartition, Sequence[int] | None], *, allow_replication_factor_change: bool = True
    ) -> None:
        """Start to move partitions to other brokers; `list_partition_reassignments` lists those in progress.

        Args:
            replicas: by partition, the broker ids of its replicas, the preferred leader first; `None` cancels the
                reassignment of the partition that is in progress.
            allow_replication_factor_change: whether the number of replicas may change.

        Raises:
            UnknownTopicError: a partition does not exist; nothing is changed.
            PartlyDoneError: some were refused; `done` and `failed` say which. For a single partition its own error is
                raised: BrokerError with INVALID_REPLICA_ASSIGNMENT, NO_REASSIGNMENT_IN_PROGRESS, ...
            UnsupportedFeatureError: the broker does not support AlterPartitionReassignments.
        """
        wanted = results.to_reassignments(replicas)
        if not wanted:
            return
        await self._questions.metadata_of(wanted)

        async def ask(chosen: Sequence[TopicPartition]) -> dict[TopicPartition, KohortError | None]:
            response = await self._questions.ask_checked(
                Question(
                    results.reassign_request(
                        {each: wanted[each] for each in chosen},
                        allow_replication_factor_change=allow_replication_factor_change,
                    ),
                    alter_partition_reassignments.AlterPartitionReassignmentsResponse,
                    during="reassigning partitions",
                    min_version=None if allow_replication_factor_change else 1,
                )
            )
            return {
                (each := TopicPartition(topic.name, row.partition_index)): error_of(row, f"reassigning {each}")
                for topic in response.responses
                for row in topic.partitions
            }

        await self._questions.do_all(wanted, ask, during="reassigning partitions", per_request=lambda _: _PART)

    async def list_partition_reassignments(
        self, partitions: Iterable[TopicPartition] | None = None
    ) -> list[results.PartitionReassignment]:
        """List the partition reassignments in progress, sorted by topic and partition.

        Args:
            partitions: only these; `None` means all.
        """
        chosen = None if partitions is None else to_partitions(partitions)
        if chosen == ():
            return []
        request = results.list_request(chosen)
        expected = list_partition_reassignments.ListPartitionReassignmentsResponse
        response = await self._questions.ask_checked(Question(request, expected, during="listing reassignments"))
        return results.reassignments(response)
