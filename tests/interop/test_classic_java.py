"""Apache Kafka's own Java consumer by the classic protocol: cooperative members, and a topic that grows under them."""

from __future__ import annotations

import pytest

from kohort import Admin
from kohort.broker.embedded import Broker
from support.peers.java_member import JavaMember
from support.waiting import until

pytestmark = [pytest.mark.interop, pytest.mark.apache]

COOPERATIVE = {
    "group_protocol": "classic",
    "partition_assignment_strategy": "org.apache.kafka.clients.consumer.CooperativeStickyAssignor",
    "heartbeat_interval_ms": "200",
    "session_timeout_ms": "10000",
    "metadata_max_age_ms": "500",
}


def partitions_of(line: str) -> set[str]:
    """What "held t-0 t-1" says."""
    return set(line.split()[1:])


def test_cooperative_java_members_share_a_topic_that_grows() -> None:
    """KIP-429: who gives up two of four partitions keeps the others all the while; then each gets of what is new."""
    with Broker() as broker, Admin(bootstrap_servers=broker.bootstrap_servers) as admin:
        admin.create_topic("t", partitions=4)
        address = broker.bootstrap_servers
        with JavaMember(address, **COOPERATIVE) as first:
            first.wait_for("held t-0 t-1 t-2 t-3")
            with JavaMember(address, **COOPERATIVE) as second:
                held = [partitions_of(first.wait_for("held")[-1])]
                until(lambda: len(held[-1]) == 2, what="two are left", step=lambda: held.append(held_next(first)))
                assert all(held[-1] < each for each in held[:-1]), "what stays is never given up"
                others = [set[str]()]
                until(lambda: len(others[-1]) == 2, what="two come", step=lambda: others.append(held_next(second)))
                assert held[-1] | others[-1] == {"t-0", "t-1", "t-2", "t-3"}
                admin.create_partitions("t", 6)
                until(lambda: len(held[-1]) == 3, what="the first grows", step=lambda: held.append(held_next(first)))
                until(lambda: len(others[-1]) == 3, what="so the second", step=lambda: others.append(held_next(second)))
                assert held[-1] | others[-1] == {f"t-{number}" for number in range(6)}


def held_next(member: JavaMember) -> set[str]:
    """What a member holds after the next change."""
    return partitions_of(member.wait_for("held")[-1])
