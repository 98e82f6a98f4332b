"""Small requests over one connection, 20 in flight: ApiVersions and a settled ConsumerGroupHeartbeat.

Peer: Apache Kafka 4.3.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any
from uuid import uuid4

from generator import Line
from kohort.wire.messages.api_versions import ApiVersionsRequest
from kohort.wire.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from kohort.wire.registry import ApiKey
from load import RawConnection, frame, place_of_error
from pressure import Prepared, Pressure, under_pressure
from readiness import until, wait_for_coordinators
from report import Table
from servers import start_both
from topics import create_topic

IN_FLIGHT = 20


@contextmanager
def api_versions(server: Any) -> Iterator[Prepared]:
    """One connection that asks for the versions."""
    connection = RawConnection(server.port)
    request = ApiVersionsRequest(client_software_name="bench", client_software_version="1")
    answer = connection.ask(ApiKey.API_VERSIONS, 3, request)
    place = place_of_error(ApiKey.API_VERSIONS, 3, answer, answer)
    yield Prepared([Line(connection.descriptor, [frame(ApiKey.API_VERSIONS, 3, request)])], place)
    connection.close()


@contextmanager
def settled_heartbeat(server: Any) -> Iterator[Prepared]:
    """One connection with the heartbeat that a group of one sends once it has its partitions."""
    connection = RawConnection(server.port)
    request = settle_alone(connection)
    answer = connection.ask(ApiKey.CONSUMER_GROUP_HEARTBEAT, 1, request)
    assert answer.error_code == 0, answer
    place = place_of_error(ApiKey.CONSUMER_GROUP_HEARTBEAT, 1, answer, answer)
    yield Prepared([Line(connection.descriptor, [frame(ApiKey.CONSUMER_GROUP_HEARTBEAT, 1, request)])], place)
    connection.close()


def settle_alone(connection: RawConnection) -> ConsumerGroupHeartbeatRequest:
    """Join a group of one and return the heartbeat that it sends from then on."""
    group = f"bench-{uuid4().hex[:8]}"
    create_topic(connection, group, 4)
    wait_for_coordinators(connection, [group])
    member = str(uuid4())
    join = ConsumerGroupHeartbeatRequest(
        group_id=group,
        member_id=member,
        member_epoch=0,
        rebalance_timeout_ms=60_000,
        subscribed_topic_names=[group],
        topic_partitions=[],
    )
    answers = []

    def is_assigned() -> bool:
        answers.append(connection.ask(ApiKey.CONSUMER_GROUP_HEARTBEAT, 1, join))
        return bool(answers[-1].assignment and answers[-1].assignment.topic_partitions)

    until(is_assigned)
    answer = answers[-1]
    epoch = answer.member_epoch
    owned = ConsumerGroupHeartbeatRequest(
        group_id=group,
        member_id=member,
        member_epoch=epoch,
        rebalance_timeout_ms=60_000,
        subscribed_topic_names=[group],
        topic_partitions=answer.assignment.topic_partitions,
    )
    assert connection.ask(ApiKey.CONSUMER_GROUP_HEARTBEAT, 1, owned).error_code == 0
    return ConsumerGroupHeartbeatRequest(
        group_id=group, member_id=member, member_epoch=epoch, rebalance_timeout_ms=-1, topic_partitions=None
    )


def measure(runs: int) -> list[Table]:
    with ExitStack() as stack:
        servers, left_out = start_both(stack)
        rows = [
            under_pressure(Pressure(what=what, in_flight=IN_FLIGHT, reach=reach), prepare, servers, runs)
            for what, reach, prepare in (
                ("ApiVersions", ">= 2x", api_versions),
                ("ConsumerGroupHeartbeat", ">= 1.3x", settled_heartbeat),
            )
        ]
    return [Table("requests", "Small requests", rows, left_out)]
