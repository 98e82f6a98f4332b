"""DescribeLogDirs (key 35): what every partition takes in the one directory of this broker.

Versions 1 to 5 are served. Version 3: an error for all of it. Version 4: the size of the volume (KIP-827), which a
broker that keeps everything in memory does not tell. A partition that there is not, or that is offline, has no
row, as in Apache Kafka.
"""

from __future__ import annotations

from kohort.broker.connections.request import Request
from kohort.broker.context import BrokerContext
from kohort.errors import ErrorCode
from kohort.wire.messages.describe_log_dirs import (
    DescribeLogDirsPartition,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
    DescribeLogDirsResult,
    DescribeLogDirsTopic,
)


def handle(context: BrokerContext, request: Request, message: DescribeLogDirsRequest) -> DescribeLogDirsResponse:
    """The present sizes; what is asked for twice is told once."""
    del request
    topics = context.cluster.topics
    if message.topics is None:
        wanted = {name: list(range(len(topic.partitions))) for name, topic in topics.items()}
    else:
        asked: dict[str, set[int]] = {}
        for row in message.topics:
            asked.setdefault(row.topic, set()).update(row.partitions)
        wanted = {
            name: [number for number in range(len(topics[name].partitions)) if number in numbers]
            for name, numbers in asked.items()
            if name in topics
        }
    total_bytes, usable_bytes = context.store.fs.space(context.store.directory)
    result = DescribeLogDirsResult(
        error_code=ErrorCode.NONE,
        log_dir=context.store.directory,
        topics=[
            DescribeLogDirsTopic(
                name=name,
                partitions=[
                    DescribeLogDirsPartition(
                        partition_index=number, partition_size=topics[name].partitions[number].size_bytes
                    )
                    for number in numbers
                    if not topics[name].partitions[number].offline
                ],
            )
            for name, numbers in wanted.items()
        ],
        total_bytes=total_bytes,
        usable_bytes=usable_bytes,
    )
    return DescribeLogDirsResponse(error_code=ErrorCode.NONE, results=[result])
