"""kafka-python's consumer, used so that its own races do not decide about a test."""

from __future__ import annotations

import kafka


def subscribe(
    consumer: kafka.KafkaConsumer, topic: str, *, listener: kafka.ConsumerRebalanceListener | None = None
) -> None:
    """Subscribe to a topic that exists, and learn its partitions before the group is joined.

    kafka-python 3.0.12 asks for the partitions 100 ms after it was made. If it leads a group by then it has planned
    without them and joins again; and if a `poll` times out in the middle of such a second join, it never takes what
    the join brought, and owns nothing for good.
    """
    consumer.subscribe([topic], listener=listener)
    assert consumer.partitions_for_topic(topic), f"no topic {topic!r}"
