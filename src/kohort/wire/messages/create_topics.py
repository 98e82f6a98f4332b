"""CreateTopics (key 19), KIP-4.

Version 2, the oldest since Kafka 4.0, has the check without creation, messages with errors and the throttle time.
Version 3: throttled after the answer (KIP-219). Version 4: partitions and replicas may be -1, the broker's default
(KIP-464). Version 5: flexible (KIP-482), and the response shows the topic's settings (KIP-525).
Version 6: THROTTLING_QUOTA_EXCEEDED (KIP-599). Version 7: the new topic's id (KIP-516).
"""

from kohort.wire.schema import BOOL, INT8, INT16, INT32, STRING, UUID, Message, array, field, message


class CreatableReplicaAssignment(Message):
    """The brokers for a partition, chosen by the client."""

    partition_index: int = field(INT32)
    broker_ids: list[int] = field(array(INT32))


class CreatableTopicConfig(Message):
    """A setting of the new topic."""

    name: str = field(STRING)
    value: str | None = field(STRING, nullable=0)


class CreatableTopic(Message):
    """A topic to create; partitions and replicas are -1 where the broker decides or `assignments` says."""

    name: str = field(STRING)
    num_partitions: int = field(INT32)
    replication_factor: int = field(INT16)
    assignments: list[CreatableReplicaAssignment] = field(array(CreatableReplicaAssignment))
    configs: list[CreatableTopicConfig] = field(array(CreatableTopicConfig))


@message(key=19, kind="request", versions="2-7", flexible="5+")
class CreateTopicsRequest(Message):
    """Topics to create, or only to check."""

    topics: list[CreatableTopic] = field(array(CreatableTopic))
    timeout_ms: int = field(INT32, default=60000)
    validate_only: bool = field(BOOL)


class CreatableTopicConfigs(Message):
    """A setting as it is in force; `config_source` is -1 where unknown."""

    name: str = field(STRING)
    value: str | None = field(STRING, nullable=0)
    read_only: bool = field(BOOL)
    config_source: int = field(INT8, default=-1)
    is_sensitive: bool = field(BOOL)


class CreatableTopicResult(Message):
    """The result for one topic; `topic_config_error_code` is set if its configs may not be shown."""

    name: str = field(STRING)
    topic_id: bytes = field(UUID, since=7)
    error_code: int = field(INT16)
    error_message: str | None = field(STRING, nullable=0)
    topic_config_error_code: int = field(INT16, since=5, tag=0)
    num_partitions: int = field(INT32, since=5, default=-1)
    replication_factor: int = field(INT16, since=5, default=-1)
    configs: list[CreatableTopicConfigs] | None = field(array(CreatableTopicConfigs), since=5, nullable=5)


@message(key=19, kind="response", versions="2-7", flexible="5+")
class CreateTopicsResponse(Message):
    """One result per topic of the request."""

    throttle_time_ms: int = field(INT32)
    topics: list[CreatableTopicResult] = field(array(CreatableTopicResult))
