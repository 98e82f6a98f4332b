"""Three brokers behind TLS, logins and rights: leaders move, a broker is killed and comes back, rights are taken away.

Stock clients are let in, and go on as they do at brokers without security.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import confluent_kafka
import pytest

import kohort
from kohort import Acl, ScramCredential
from kohort.errors import AuthorizationError
from kohort.testing import Cluster
from kohort.testing.secured import Secured, secure
from support.waiting import PATIENCE_SECONDS, until

pytestmark = pytest.mark.interop

PARTITIONS = 3
PASSWORD = "wonder"
#: What a client of alice's needs; nothing else is hers.
READ, WRITE = (
    Acl(resource_type="topic", name="t-", pattern_type="prefixed", principal="User:alice", operation=each)
    for each in ("read", "write")
)
GROUP = Acl(resource_type="group", name="*", principal="User:alice", operation="read")


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Secured:
    return secure("SASL_SSL", tmp_path_factory.mktemp("certificates"))


@pytest.fixture(scope="module")
def cluster(secured: Secured) -> Iterator[Cluster]:
    more = {
        "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-512",
        "group.consumer.heartbeat.interval.ms": 200,
        "group.initial.rebalance.delay.ms": 0,
    }
    with Cluster(3, config={**secured.config, **more}) as made:
        yield made


@pytest.fixture
def root(cluster: Cluster, secured: Secured) -> Iterator[kohort.Admin]:
    with kohort.Admin({"bootstrap.servers": cluster.bootstrap_servers, **secured.client_options}) as admin:
        admin.alter_user_scram_credentials([ScramCredential(user="alice", password=PASSWORD, iterations=4096)])
        admin.create_acls([READ, WRITE, GROUP])
        yield admin


def options(cluster: Cluster, secured: Secured) -> dict[str, Any]:
    """Alice's, as every client takes them."""
    login = {"sasl.mechanism": "SCRAM-SHA-512", "sasl.username": "alice", "sasl.password": PASSWORD}
    return {"bootstrap.servers": cluster.bootstrap_servers, **secured.client_options, **login}


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_clients_go_on_while_brokers_come_and_go(
    cluster: Cluster, root: kohort.Admin, secured: Secured, protocol: str
) -> None:
    """librdkafka's: every record once, over leaders that move and a coordinator that is killed and is back."""
    topic = f"t-{protocol}"
    root.create_topic(topic, PARTITIONS)
    errors: list[str] = []
    common = {
        **options(cluster, secured),
        "error_cb": lambda error: errors.append(error.str()),
        "reconnect.backoff.max.ms": 200,
    }
    group = {"group.id": topic, "group.protocol": protocol, "auto.offset.reset": "earliest"}
    producer = confluent_kafka.Producer({**common, "enable.idempotence": True})
    consumer = confluent_kafka.Consumer({**common, **group})
    consumer.subscribe([topic])
    sent: list[bytes] = []
    found: list[bytes | None] = []

    def pass_on() -> None:
        """Send some, and read all of it."""
        for _ in range(2 * PARTITIONS):
            sent.append(b"%d" % len(sent))
            producer.produce(topic, sent[-1], partition=len(sent) % PARTITIONS)
        assert producer.flush(PATIENCE_SECONDS) == 0
        until(
            lambda: len(found) >= len(sent),
            what=lambda: f"{len(found)} of {len(sent)} are read: {errors[-3:]}",
            step=lambda: found.extend(each.value() for each in consumer.consume(100, 0.2) if each.error() is None),
        )

    pass_on()
    for number in range(PARTITIONS):
        leader = cluster.leader(topic, number)
        assert leader is not None
        cluster.move_leader(topic, number, leader % 3 + 1)
    pass_on()
    coordinator = cluster.coordinator(topic)
    assert coordinator is not None
    cluster.kill(coordinator)
    pass_on()
    cluster.start(coordinator)
    cluster.move_coordinator(topic, coordinator)
    pass_on()
    consumer.close()
    assert sorted(map(int, filter(None, found))) == list(range(len(sent)))
    # librdkafka tells of a coordinator whose address it does not have yet as of a wrong name in TLS, and goes on.
    assert not [each for each in errors if "uthentication" in each], errors


def test_right_that_is_taken_away_is_gone_at_each_broker(
    cluster: Cluster, root: kohort.Admin, secured: Secured
) -> None:
    """Whichever broker the administrator has asked; what else a client may is as it was."""
    topic = "t-rights"
    root.create_topic(topic, PARTITIONS)
    own = options(cluster, secured)
    with kohort.Producer(own) as producer, kohort.Consumer(own, auto_offset_reset="earliest") as consumer:
        places = [kohort.TopicPartition(topic, number) for number in range(PARTITIONS)]
        consumer.assign(places)
        for place in places:
            producer.send(topic, b"x", partition=place.partition).result(PATIENCE_SECONDS)
        found: list[Any] = []
        until(lambda: len(found) == PARTITIONS, what="all is read", step=lambda: found.extend(consumer.poll(0.2)))

        root.delete_acls([WRITE])
        for place in places:
            with pytest.raises(AuthorizationError):
                producer.send(topic, b"x", partition=place.partition).result(PATIENCE_SECONDS)
        assert list(consumer.poll(0.2)) == []

        root.delete_acls([READ])
        for place in places:
            # Each partition has another leader.
            with kohort.Consumer(own, auto_offset_reset="earliest") as other, pytest.raises(AuthorizationError):
                other.assign([place])
                other.poll(PATIENCE_SECONDS)
        with pytest.raises(AuthorizationError):
            until(lambda: False, what="the consumer is told", step=lambda: consumer.poll(0.5))


def test_user_that_is_removed_is_out_at_each_broker(cluster: Cluster, root: kohort.Admin, secured: Secured) -> None:
    """Its connections end, and it does not come in again."""
    own = options(cluster, secured)
    addresses = cluster.bootstrap_servers.split(",")
    admins = [kohort.Admin({**own, "bootstrap.servers": each}) for each in addresses]
    try:
        for admin in admins:
            admin.list_topics()
        root.alter_user_scram_credentials(deletions=[("alice", "SCRAM-SHA-512")])
        for admin in admins:
            with pytest.raises(kohort.errors.AuthenticationError):
                until(lambda: False, what="it is out", step=admin.list_topics)
    finally:
        for admin in admins:
            admin.close()
