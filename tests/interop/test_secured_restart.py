"""Kill -9 behind each answer about rights, users and limits: all of it holds afterwards, and clients come back.

The directory is one that the first version of kohort wrote.
Source: requirement B3 (what was answered is durable); KIP-140, KIP-554, KIP-546.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import confluent_kafka
import pytest

import kohort
from kohort import Acl, ClientQuota, ScramCredential
from kohort.errors import AuthenticationError, AuthorizationError
from support.peers.restarts import MortalBroker, wait_until

pytestmark = pytest.mark.interop

OLD = Path(__file__).parents[1] / "data" / "data-directory-v1"
CONFIG = {
    "listeners": "SASL_PLAINTEXT://127.0.0.1:0",
    "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-512",
    "listener.name.sasl_plaintext.plain.sasl.jaas.config": "org.apache.kafka.common.security.plain.PlainLoginModule "
    'required user_root="root-secret";',
    "super.users": "User:root",
    "sasl.failures.per.second.per.ip": 1_000,
    "connection.failed.authentication.delay.ms": 1,
}
#: What is in the old directory: 25 records in a partition of this topic.
TOPIC, RECORDS = "orders", 25
ACLS = [
    Acl(resource_type="topic", name=TOPIC, principal="User:alice", operation="read"),
    Acl(resource_type="topic", name=TOPIC, principal="User:alice", operation="write"),
    Acl(resource_type="group", name="g", pattern_type="prefixed", principal="User:alice", operation="read"),
    Acl(resource_type="topic", name=TOPIC, principal="User:alice", operation="delete", permission="deny"),
]
QUOTA = ClientQuota(entity={"user": "alice", "client-id": None}, values={"producer_byte_rate": 1e6})
ALICE = ScramCredential(user="alice", password="wonder", iterations=4096)


def options(broker: MortalBroker, user: str) -> dict[str, Any]:
    mechanism, password = ("PLAIN", "root-secret") if user == "root" else ("SCRAM-SHA-512", "wonder")
    return {
        "bootstrap.servers": broker.address,
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": mechanism,
        "sasl.username": user,
        "sasl.password": password,
        "reconnect.backoff.max.ms": 200,
    }


def read_once(broker: MortalBroker) -> str:
    """How a client of alice's ends that is new."""
    try:
        with kohort.Consumer(options(broker, "alice"), group_id="g-new", auto_offset_reset="earliest") as consumer:
            consumer.assign([kohort.TopicPartition(TOPIC, 0)])
            return f"{len(consumer.poll(20.0)) > 0}"
    except AuthenticationError:
        return "no such user"
    except AuthorizationError:
        return "no right"


def test_all_that_was_answered_is_there_after_a_crash(tmp_path: Path) -> None:
    directory = tmp_path / "data"
    shutil.copytree(OLD, directory)
    with MortalBroker(directory, CONFIG) as broker, kohort.Admin(options(broker, "root")) as root:

        def crash_behind(change: Callable[[], object]) -> None:
            """It has answered, and is killed before it does anything else."""
            change()
            broker.kill()
            broker.revive()

        assert read_once(broker) == "no such user"
        crash_behind(lambda: root.alter_user_scram_credentials([ALICE]))
        assert [each.user for each in root.describe_user_scram_credentials()] == ["alice"]
        assert read_once(broker) == "no right"
        crash_behind(lambda: root.create_acls(ACLS))
        assert sorted(map(str, root.describe_acls())) == sorted(map(str, ACLS))
        assert read_once(broker) == "True"
        crash_behind(lambda: root.alter_client_quotas([QUOTA]))
        assert [str(each) for each in root.describe_client_quotas()] == [str(QUOTA)]
        go_on_over_a_crash(broker)

        taken: list[Callable[[], object]] = [
            lambda: root.delete_acls([ACLS[0]]),
            lambda: root.alter_user_scram_credentials(deletions=[("alice", "SCRAM-SHA-512")]),
        ]
        root.alter_client_quotas([ClientQuota(entity=QUOTA.entity, values={"producer_byte_rate": None})])
        for take, told in zip(taken, ("no right", "no such user"), strict=True):
            crash_behind(take)
            assert read_once(broker) == told
        assert root.describe_client_quotas() == []
        assert sorted(map(str, root.describe_acls())) == sorted(map(str, ACLS[1:]))


def go_on_over_a_crash(broker: MortalBroker) -> None:
    """Clients that have logged in before, ours and librdkafka, log in again by themselves; nothing is lost."""
    found: list[bytes] = []
    errors: list[str] = []
    # One of those partitions of the old log of groups that hold a coordinator's records, not a test's bytes.
    group = {"group.id": "go", "auto.offset.reset": "latest", "group.protocol": "consumer"}
    heard = {"error_cb": lambda error: errors.append(error.str())}
    consumer = confluent_kafka.Consumer({**options(broker, "alice"), **group, **heard})
    consumer.subscribe([TOPIC])

    def read() -> bool:
        message = consumer.poll(0.1)
        if message is not None and message.error() is None:
            found.append(message.value())
        return bool(consumer.assignment())

    wait_until(read, "the member has its partitions")
    with kohort.Producer(options(broker, "alice")) as producer:
        for number in range(2):
            sent = producer.send(TOPIC, b"life %d" % number, partition=0)
            if number:
                broker.kill()
                broker.revive()
            sent.result(40)
            # It begins at the end, which may be behind a record that was sent before it looked.
            wait_until(lambda: (read() and found) or _send(producer), "it reads again")
            found.clear()
    consumer.close()
    assert not [each for each in errors if "uthentication" in each], errors


def _send(producer: kohort.Producer) -> bool:
    producer.send(TOPIC, b"more", partition=0).result(40)
    return False
