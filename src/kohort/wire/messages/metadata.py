"""Metadata (key 3): brokers, topics and the leaders of their partitions.

Version 0: an empty topic list means all topics. Version 1: null means all, empty means none; the response names racks,
the controller and internal topics (KIP-4). Version 2: cluster id (KIP-78). Version 3: throttle time (KIP-124).
Version 4: the client may forbid the creation of missing topics. Version 5: offline replicas (KIP-112).
Version 6: throttled after the answer (KIP-219). Version 7: leader epochs (KIP-320). Version 8: authorised operations
(KIP-430). Version 9: flexible (KIP-482). Version 10: topic ids (KIP-516), asked for by id only from version 12, where
the name may be null in both directions. Version 11: the cluster's operations move to DescribeCluster (KIP-700).
Version 13: an error code for the whole response, with which a broker tells the client to bootstrap anew (KIP-1102).
"""

from kohort.wire.schema import BOOL, INT16, INT32, STRING, UUID, Message, array, field, message

#: The value of fields of authorised operations that were not asked for.
OPERATIONS_NOT_REQUESTED = -2147483648


class MetadataRequestTopic(Message):
    """One topic asked for, by name or (from version 12 on) by id; the zero id stands for no id."""

    topic_id: bytes = field(UUID, since=10)
    name: str | None = field(STRING, nullable=10)


@message(key=3, kind="request", versions="0-13", flexible="9+")
class MetadataRequest(Message):
    """Topics to describe; None means all of them."""

    topics: list[MetadataRequestTopic] | None = field(array(MetadataRequestTopic), nullable=1)
    allow_auto_topic_creation: bool = field(BOOL, since=4, default=True)
    include_cluster_authorized_operations: bool = field(BOOL, since=8, until=10)
    include_topic_authorized_operations: bool = field(BOOL, since=8)


class MetadataResponseBroker(Message):
    """A broker and its address; `rack` None means that it has none."""

    node_id: int = field(INT32)
    host: str = field(STRING)
    port: int = field(INT32)
    rack: str | None = field(STRING, since=1, nullable=1, default=None)


class MetadataResponsePartition(Message):
    """Leader and replicas of one partition; `leader_id` is -1 while there is no leader."""

    error_code: int = field(INT16)
    partition_index: int = field(INT32)
    leader_id: int = field(INT32)
    leader_epoch: int = field(INT32, since=7, default=-1)
    replica_nodes: list[int] = field(array(INT32))
    isr_nodes: list[int] = field(array(INT32))
    offline_replicas: list[int] = field(array(INT32), since=5)


class MetadataResponseTopic(Message):
    """One topic; `name` is None if an unknown id was asked for."""

    error_code: int = field(INT16)
    name: str | None = field(STRING, nullable=12)
    topic_id: bytes = field(UUID, since=10)
    is_internal: bool = field(BOOL, since=1)
    partitions: list[MetadataResponsePartition] = field(array(MetadataResponsePartition))
    topic_authorized_operations: int = field(INT32, since=8, default=OPERATIONS_NOT_REQUESTED)


@message(key=3, kind="response", versions="0-13", flexible="9+")
class MetadataResponse(Message):
    """Brokers and topics; `controller_id` is -1 while no controller is known."""

    throttle_time_ms: int = field(INT32, since=3)
    brokers: list[MetadataResponseBroker] = field(array(MetadataResponseBroker))
    cluster_id: str | None = field(STRING, since=2, nullable=2, default=None)
    controller_id: int = field(INT32, since=1, default=-1)
    topics: list[MetadataResponseTopic] = field(array(MetadataResponseTopic))
    cluster_authorized_operations: int = field(INT32, since=8, until=10, default=OPERATIONS_NOT_REQUESTED)
    error_code: int = field(INT16, since=13)
