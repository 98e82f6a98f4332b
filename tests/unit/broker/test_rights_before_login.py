"""Every API key without a login, and with a wrong one: nothing is done, nothing is told."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from kohort import Admin
from kohort.broker.embedded import Broker
from kohort.errors import ErrorCode
from kohort.wire.registry import ApiKey
from support.dialogues.broker_wire import RawClient, make
from support.scenarios.needed_rights import HIDDEN, SEEN, requests_of, served_keys

OPEN = (ApiKey.API_VERSIONS, ApiKey.SASL_HANDSHAKE, ApiKey.SASL_AUTHENTICATE)
LOGIN = 'org.apache.kafka.common.security.plain.PlainLoginModule required user_alice="wonder";'


@pytest.fixture(scope="module")
def guarded() -> Iterator[Broker]:
    """A broker with a listener that wants a login, and one for the test alone that wants none."""
    config = {
        "listeners": "PLAINTEXT://127.0.0.1:0,SASL_PLAINTEXT://127.0.0.1:0",
        "sasl.enabled.mechanisms": "PLAIN",
        "listener.name.sasl_plaintext.plain.sasl.jaas.config": LOGIN,
        "super.users": "User:ANONYMOUS;User:alice",
        # The test fails to log in many times.
        "connection.failed.authentication.delay.ms": 0,
        "sasl.failures.per.second.per.ip": 1_000,
    }
    with Broker(config=config) as broker, RawClient(port_of(broker, "PLAINTEXT")) as root:
        for name in (SEEN, HIDDEN):
            root.create_topic(name, partitions=2)
            root.produce(name, b"x")
        yield broker


def port_of(broker: Broker, listener: str) -> int:
    return int(broker.bootstrap_of(listener).rpartition(":")[2])


def state_of(broker: Broker) -> object:
    with Admin(bootstrap_servers=broker.bootstrap_of("PLAINTEXT")) as admin:
        topics = sorted(map(repr, admin.list_topics()))
        groups = sorted(map(repr, admin.list_groups()))
        return topics, groups, admin.describe_acls(), admin.describe_user_scram_credentials()


def ids_of(broker: Broker) -> dict[str, bytes]:
    with RawClient(port_of(broker, "PLAINTEXT")) as root:
        answer = root.ask(ApiKey.METADATA, 13, make(ApiKey.METADATA, topics=[{"name": SEEN}, {"name": HIDDEN}]))
        return {row.name: row.topic_id for row in answer.topics}


@pytest.mark.parametrize("has_failed", [False, True], ids=["no login", "wrong login"])
def test_no_api_is_carried_out_before_a_login(guarded: Broker, has_failed: bool) -> None:
    """The connection is closed, without a byte of an answer."""
    ids, before = ids_of(guarded), state_of(guarded)
    for key in served_keys():
        if key in OPEN:
            continue
        version, request = list(requests_of(key, ids))[-1]
        with RawClient(port_of(guarded, "SASL_PLAINTEXT")) as client:
            if has_failed:
                client.ask(ApiKey.SASL_HANDSHAKE, 1, make(ApiKey.SASL_HANDSHAKE, mechanism="PLAIN"))
                wrong = make(ApiKey.SASL_AUTHENTICATE, auth_bytes=b"\0alice\0guessed")
                answer = client.ask(ApiKey.SASL_AUTHENTICATE, 1, wrong)
                assert answer.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
            try:
                client.send(key, version, request)
            except (BrokenPipeError, ConnectionResetError):
                # It was closed before that.
                continue
            assert client.is_closed_by_broker(), key
    assert state_of(guarded) == before
