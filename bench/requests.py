"""Small requests over one connection, 20 in flight: ApiVersions and a settled ConsumerGroupHeartbeat.

Peer: Apache Kafka 4.3.
"""

from __future__ import annotations

from contextlib import ExitStack
from uuid import uuid4

from kohort.wire.messages.api_versions import ApiVersionsRequest
from kohort.wire.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from kohort.wire.registry import ApiKey
from load import RawConnection, frame
from readiness import until, wait_for_coordinators
from report import Row, alternate, compare, show
from servers import start_both
from topics import create_topic

COUNT = 40_000
IN_FLIGHT = 20


def api_versions() -> bytes:
    request = ApiVersionsRequest(client_software_name="bench", client_software_version="1")
    return frame(ApiKey.API_VERSIONS, 3, request)


def settled_heartbeat(connection: RawConnection) -> bytes:
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
    settled = ConsumerGroupHeartbeatRequest(
        group_id=group, member_id=member, member_epoch=epoch, rebalance_timeout_ms=-1, topic_partitions=None
    )
    return frame(ApiKey.CONSUMER_GROUP_HEARTBEAT, 1, settled)


def rate(connection: RawConnection, request: bytes) -> float:
    seconds, _ = connection.run([request] * COUNT, in_flight=IN_FLIGHT)
    return COUNT / seconds


def main(runs: int) -> None:
    rows: list[Row] = []
    with ExitStack() as stack:
        mine, peer, left_out = start_both(stack)
        connections = [RawConnection(server.port) for server in (mine, peer) if server]
        for what, reach, prepare in (
            ("ApiVersions", ">= 2x", lambda _: api_versions()),
            ("ConsumerGroupHeartbeat", ">= 1.3x", settled_heartbeat),
        ):
            requests = [prepare(connection) for connection in connections]
            ours, peers = alternate(
                runs,
                lambda requests=requests: rate(connections[0], requests[0]),
                (lambda requests=requests: rate(connections[1], requests[1])) if peer else None,
            )
            rows.append(compare(what, ours, peers, unit="req/s", reach=reach, peer_name="Apache Kafka 4.3"))
    show("Small requests", rows, left_out=left_out)
