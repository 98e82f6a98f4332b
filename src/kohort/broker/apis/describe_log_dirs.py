"""DescribeLogDirs (key 35): the size of every partition in this broker's one log directory.

Version 3: an error for all of it. Version 4: the size of the volume (KIP-827), which a broker that keeps everything in
memory does not tell. A partition that there is not, or that is offline, has no row, as in Apache Kafka.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial
from typing import Final

from kohort.broker.chunked_responses import EncodedRows
from kohort.broker.context import BrokerContext, Request
from kohort.errors import ErrorCode
from kohort.security.access_control import AclOperation, ResourceType
from kohort.storage.topics import Topic
from kohort.wire.messages import describe_log_dirs as wire

#: Topics and partitions of an answer that are described in one turn of the loop, or little more.
ROWS_AT_ONCE: Final = 2_000


def handle(context: BrokerContext, request: Request, message: wire.DescribeLogDirsRequest) -> None:
    """Answer with the present sizes; a partition that is named twice is described once."""
    if not request.rights.allows(AclOperation.DESCRIBE, ResourceType.CLUSTER):
        # Before version 3 there is no field for the error: the answer is empty, as Apache Kafka's.
        request.answer(wire.DescribeLogDirsResponse(error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED))
        return
    topics = context.cluster.topics
    if message.topics is None:
        wanted: dict[str, set[int] | None] = dict.fromkeys(topics)
    else:
        asked: dict[str, set[int]] = {}
        for row in message.topics:
            asked.setdefault(row.topic, set()).update(row.partitions)
        wanted = {name: numbers for name, numbers in asked.items() if name in topics}
    context.cooperative_work.run(_steps(context, request, wanted))


def _steps(context: BrokerContext, request: Request, wanted: Mapping[str, set[int] | None]) -> Iterator[None]:
    """Describe the requested partitions, a few topics in a turn of the loop, and answer."""
    # The sizes of the volume, whether it is cordoned, and the tags of the directory.
    behind = 16 * (request.version >= 4) + (request.version >= 5) + (request.version >= 2)
    space = context.store.fs.space(context.store.directory)
    encoded = EncodedRows(request.route, partial(respond, context.store.directory, space), behind=behind)
    rows: list[wire.DescribeLogDirsTopic] = []
    done = 0
    for name, numbers in wanted.items():
        topic = context.cluster.topic(name)
        if topic is None:
            # It was deleted meanwhile.
            continue
        rows.append(_describe(topic, numbers))
        done += 1 + len(topic.partitions)
        if done >= ROWS_AT_ONCE:
            encoded.add(rows)
            rows, done = [], 0
            yield
            if not request.is_open:
                return
    encoded.add(rows)
    if request.is_open:
        request.answer(encoded.body())


def _describe(topic: Topic, numbers: set[int] | None) -> wire.DescribeLogDirsTopic:
    """Describe the online logs of a topic with these partition numbers, all of them for `None`."""
    return wire.DescribeLogDirsTopic(
        name=topic.name,
        partitions=[
            wire.DescribeLogDirsPartition(partition_index=number, partition_size=log.size_bytes)
            for number, log in enumerate(topic.partitions)
            if not log.offline and (numbers is None or number in numbers)
        ],
    )


def respond(
    directory: str, space: tuple[int, int], topics: list[wire.DescribeLogDirsTopic]
) -> wire.DescribeLogDirsResponse:
    """Build the answer with these topics; `space` is the volume's (total, usable) bytes."""
    total_bytes, usable_bytes = space
    result = wire.DescribeLogDirsResult(
        error_code=ErrorCode.NONE, log_dir=directory, topics=topics, total_bytes=total_bytes, usable_bytes=usable_bytes
    )
    return wire.DescribeLogDirsResponse(error_code=ErrorCode.NONE, results=[result])
