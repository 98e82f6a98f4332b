"""AlterReplicaLogDirs (key 34), KIP-113: move a broker's logs between its directories.

Version 1: throttled after the answer (KIP-219). Version 2: flexible (KIP-482).
"""

from kohort.wire.schema import INT16, INT32, STRING, Message, array, field, message


class AlterReplicaLogDirTopic(Message):
    """Partitions of one topic."""

    name: str = field(STRING)
    partitions: list[int] = field(array(INT32))


class AlterReplicaLogDir(Message):
    """A directory, and the partitions that are to be in it."""

    path: str = field(STRING)
    topics: list[AlterReplicaLogDirTopic] = field(array(AlterReplicaLogDirTopic))


@message(key=34, kind="request", versions="1-2", flexible="2+")
class AlterReplicaLogDirsRequest(Message):
    """Directories by their absolute paths at the broker."""

    dirs: list[AlterReplicaLogDir] = field(array(AlterReplicaLogDir))


class AlterReplicaLogDirPartitionResult(Message):
    """The result for one partition."""

    partition_index: int = field(INT32)
    error_code: int = field(INT16)


class AlterReplicaLogDirTopicResult(Message):
    """Answers for one topic."""

    topic_name: str = field(STRING)
    partitions: list[AlterReplicaLogDirPartitionResult] = field(array(AlterReplicaLogDirPartitionResult))


@message(key=34, kind="response", versions="1-2", flexible="2+")
class AlterReplicaLogDirsResponse(Message):
    """One answer per partition."""

    throttle_time_ms: int = field(INT32)
    results: list[AlterReplicaLogDirTopicResult] = field(array(AlterReplicaLogDirTopicResult))
