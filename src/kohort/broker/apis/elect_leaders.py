"""ElectLeaders (key 43): elect the leaders of partitions; here the preferred replica always leads.

Version 1: an error for all of it.
Source: Apache Kafka's answer where the preferred replica leads already: ELECTION_NOT_NEEDED, in its words.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from kohort.broker.context import BrokerContext, Request
from kohort.broker.limits.requests import MOST_LED, check_rows
from kohort.errors import ErrorCode
from kohort.security.access_control import AclOperation, ResourceType
from kohort.wire.messages import elect_leaders as wire


def handle(context: BrokerContext, request: Request, message: wire.ElectLeadersRequest) -> wire.ElectLeadersResponse:
    """Answer ELECTION_NOT_NEEDED for each named partition; if all are asked for, name none."""
    rows = message.topic_partitions or ()
    check_rows(sum(len(row.partitions) for row in rows), MOST_LED, "partitions")
    asked: dict[str, dict[int, None]] = {}
    for row in rows:
        asked.setdefault(row.topic, {}).update(dict.fromkeys(row.partitions))
    if not request.rights.allows(AclOperation.ALTER, ResourceType.CLUSTER):
        return _denied(asked)
    return wire.ElectLeadersResponse(
        error_code=ErrorCode.NONE,
        replica_election_results=[
            wire.ReplicaElectionResult(
                topic=name, partition_result=[_answer(context, name, number) for number in numbers]
            )
            for name, numbers in asked.items()
        ],
    )


def _denied(asked: Mapping[str, Iterable[int]]) -> wire.ElectLeadersResponse:
    """Refuse the request, and each of its partitions as well, as Apache Kafka does."""
    code, text = ErrorCode.CLUSTER_AUTHORIZATION_FAILED, "Cluster authorization failed."
    rows = [
        wire.ReplicaElectionResult(
            topic=name,
            partition_result=[
                wire.PartitionResult(partition_id=number, error_code=code, error_message=text) for number in numbers
            ],
        )
        for name, numbers in asked.items()
    ]
    return wire.ElectLeadersResponse(error_code=code, replica_election_results=rows)


def _answer(context: BrokerContext, name: str, number: int) -> wire.PartitionResult:
    cluster = context.cluster
    if cluster.partition(cluster.topic(name), number) is None:
        code, text = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"No such topic as {name}"
        if cluster.topic(name) is not None:
            text = f"No such partition as {name}-{number}"
    else:
        code, text = ErrorCode.ELECTION_NOT_NEEDED, "Leader election not needed for topic partition."
    return wire.PartitionResult(partition_id=number, error_code=code, error_message=text)
