"""DescribeLogDirs (key 35), KIP-113: a broker's log directories and the logs in them.

Version 2: flexible (KIP-482). Version 3: an error for all of it. Version 4: how large the volume is and what is left of
it (KIP-827). Version 5: whether a directory takes nothing new (KIP-1066).
"""

from kohort.wire.schema import BOOL, INT16, INT32, INT64, STRING, Message, array, field, message


class DescribableLogDirTopic(Message):
    """Partitions of one topic."""

    topic: str = field(STRING)
    partitions: list[int] = field(array(INT32))


@message(key=35, kind="request", versions="1-5", flexible="2+")
class DescribeLogDirsRequest(Message):
    """The partitions to describe; null means all."""

    topics: list[DescribableLogDirTopic] | None = field(array(DescribableLogDirTopic), nullable=0)


class DescribeLogDirsPartition(Message):
    """One log; a future one replaces the present one when it has caught up."""

    partition_index: int = field(INT32)
    partition_size: int = field(INT64)
    offset_lag: int = field(INT64)
    is_future_key: bool = field(BOOL)


class DescribeLogDirsTopic(Message):
    """Logs of one topic."""

    name: str = field(STRING)
    partitions: list[DescribeLogDirsPartition] = field(array(DescribeLogDirsPartition))


class DescribeLogDirsResult(Message):
    """One directory; sizes in bytes, -1 where they are not known."""

    error_code: int = field(INT16)
    log_dir: str = field(STRING)
    topics: list[DescribeLogDirsTopic] = field(array(DescribeLogDirsTopic))
    total_bytes: int = field(INT64, since=4, default=-1)
    usable_bytes: int = field(INT64, since=4, default=-1)
    is_cordoned: bool = field(BOOL, since=5)


@message(key=35, kind="response", versions="1-5", flexible="2+")
class DescribeLogDirsResponse(Message):
    """One answer per directory."""

    throttle_time_ms: int = field(INT32)
    error_code: int = field(INT16, since=3)
    results: list[DescribeLogDirsResult] = field(array(DescribeLogDirsResult))
