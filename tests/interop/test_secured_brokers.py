"""Our clients against brokers behind TLS and logins, Apache Kafka's and ours: every mechanism, sessions that end."""

from __future__ import annotations

import contextlib
import io
import logging
import re
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import kohort
from kohort.errors import AuthenticationError, BrokersUnreachableError
from support.peers.certificates import Certificates
from support.peers.cli import run_kohort
from support.peers.secured import (
    PASSWORD,
    USER,
    WAYS,
    SecuredBroker,
    SecuredKafka,
    login,
    options_of,
    quoted,
)
from support.peers.secured_kohort import SecuredKohort
from support.peers.secured_steward import Steward
from support.scenarios.admin_day import play_day
from support.waiting import until

pytestmark = pytest.mark.interop

ROOT = Path(__file__).resolve().parents[2]
LIFETIME_MS = 1_500
PATIENCE_S = 30.0
BOB = "bob"


@pytest.fixture(scope="module", params=[pytest.param("apache", marks=pytest.mark.apache), "kohort"])
def kafka(request: pytest.FixtureRequest) -> Iterator[SecuredBroker]:
    """Apache Kafka, and kohort's own broker; sessions are short, so that they end while a test looks."""
    listener = "listener.name.sasl_ssl"
    sessions: dict[str, object] = {
        **{f"{listener}.{each}.connections.max.reauth.ms": LIFETIME_MS for each in ("plain", "scram-sha-512")},
        # A token's own end is shorter.
        f"{listener}.oauthbearer.connections.max.reauth.ms": 3_600_000,
        "group.consumer.heartbeat.interval.ms": 200,
        "group.consumer.min.heartbeat.interval.ms": 100,
    }
    # What another authority has signed has another name.
    of_apache = {"ssl.allow.dn.changes": "true", "ssl.allow.san.changes": "true"}
    made = SecuredKohort(sessions) if request.param == "kohort" else SecuredKafka({**sessions, **of_apache})
    with made:
        yield made


@pytest.mark.parametrize("way", WAYS)
def test_group_writes_reads_and_commits_on_every_way(kafka: SecuredBroker, way: str) -> None:
    """As without: what a client of any kind does."""
    options, topic = options_of(kafka, way), f"way-{way.lower()}"
    with kohort.Admin(**options) as admin:
        admin.create_topic(topic, 2)
        with kohort.Producer(**options) as producer:
            for number in range(20):
                producer.send(topic, str(number))
        with kohort.Consumer(**options, group_id=topic, auto_offset_reset="earliest") as consumer:
            consumer.subscribe([topic])
            found: list[str] = []
            while len(found) < 20:
                found += [record.value.decode() for record in consumer.poll(5.0) if record.value is not None]
            consumer.commit()
            committed = consumer.committed([kohort.TopicPartition(topic, number) for number in range(2)])
        assert sorted(found, key=int) == [str(number) for number in range(20)]
        assert sum(offset or 0 for offset in committed.values()) == 20


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"])
def test_wrong_password_is_told_at_once(kafka: SecuredBroker, mechanism: str, caplog: pytest.LogCaptureFixture) -> None:
    """By every client, without the password in any text."""
    options = login(kafka, mechanism, sasl_password="open-sesame")
    with caplog.at_level(logging.DEBUG):
        with kohort.Admin(**options) as admin, pytest.raises(AuthenticationError) as told:
            admin.list_topics()
        with kohort.Consumer(**options, group_id="g") as consumer:
            consumer.subscribe(["t"])
            with pytest.raises(AuthenticationError):
                consumer.poll(10.0)
        with kohort.Producer(**options) as producer, pytest.raises(AuthenticationError):
            producer.send("t", b"x").result(10)
    assert f"by {mechanism}" in str(told.value)
    assert not told.value.retriable
    assert "open-sesame" not in str(told.value) + caplog.text + repr(told.value)


def test_wrong_door_is_told_by_what_is_behind_it(kafka: SecuredBroker) -> None:
    """What to set, for each pair of what is spoken and what is wanted."""
    said = {}
    for way, listener in [
        ("plain", "SSL"),
        ("plain", "SASL_PLAINTEXT"),
        ("SSL", "PLAINTEXT"),
        ("SSL", "SASL_SSL"),
        ("PLAIN", "SSL"),
    ]:
        options = {} if way == "plain" else options_of(kafka, way)
        with (
            kohort.Admin(**{**options, "bootstrap_servers": kafka.bootstrap(listener)}) as admin,
            pytest.raises(BrokersUnreachableError) as told,
        ):
            admin.list_topics()
        said[way, listener] = str(told.value)

    assert "it looks like TLS" in said["plain", "SSL"]
    assert "it may want a login" in said["plain", "SASL_PLAINTEXT"]
    assert "is TLS spoken there?" in said["SSL", "PLAINTEXT"]
    assert "it may want a login" in said["SSL", "SASL_SSL"]
    assert "no login is wanted there" in said["PLAIN", "SSL"]


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-512"])
def test_session_that_ends_costs_no_record_and_no_heartbeat(kafka: SecuredBroker, mechanism: str) -> None:
    """KIP-368: the broker closes a connection that is used beyond its session; none is, and nobody rejoins."""
    options, topic = login(kafka, mechanism), f"sessions-{mechanism.lower()}"
    with kohort.Admin(**options) as admin:
        admin.create_topic(topic, 1)
        with (
            kohort.Producer(**options) as producer,
            kohort.Consumer(**options, group_id=topic, auto_offset_reset="earliest") as consumer,
        ):
            consumer.subscribe([topic])
            members: set[str] = set()
            epochs: set[int] = set()
            count, found, ends_s = 0, 0, time.monotonic() + 3 * LIFETIME_MS / 1000
            while time.monotonic() < ends_s:
                producer.send(topic, b"more").result(10)
                count += 1
                found += len(consumer.poll(0.2))
                if consumer.assignment():
                    members.add(consumer.member_id)
                    epochs.add(consumer.group_epoch)
            while found < count:
                found += len(consumer.poll(5.0))
        assert found == count
        assert len(members) == len(epochs) == 1


def test_document_says_what_happens(kafka: SecuredBroker) -> None:
    """Its Python blocks, one after the other, print what stands behind them."""
    text = (ROOT / "docs" / "reference" / "security-client.md").read_text()
    for written, real in [
        ("kafka.example:9094", kafka.bootstrap("SASL_SSL")),
        ("kafka.example:9095", kafka.bootstrap("MTLS")),
        ('"ca.pem"', repr(str(kafka.certificates.ca))),
        ('"client.pem"', repr(str(kafka.certificates.client))),
        ('"wonder"', repr(PASSWORD)),
    ]:
        text = text.replace(written, real)
    names: dict[str, Any] = {"fetch_token": kafka.token}
    blocks = re.findall(r"```python\n(.*?)```\n\n```text\n(.*?)```", text, re.DOTALL)
    assert len(blocks) >= 5
    for code, expected in blocks:
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            exec(compile(code, "docs/reference/security-client.md", "exec"), names)
        assert printed.getvalue() == expected


def test_command_line_takes_the_file_of_kafkas_tools(kafka: SecuredBroker, tmp_path: Path) -> None:
    """What a verb needs to get in; what it says of a wrong password names the place, and not the password."""
    # In Java's properties a backslash stands twice.
    name, password = quoted(USER), quoted(PASSWORD).replace("\\", "\\\\")
    config = tmp_path / "client.properties"
    config.write_text(
        f"bootstrap.servers={kafka.bootstrap('SASL_SSL')}\n"
        "security.protocol=SASL_SSL\nsasl.mechanism=SCRAM-SHA-512\n"
        f"ssl.truststore.type=PEM\nssl.truststore.location={kafka.certificates.ca}\n"
        "sasl.jaas.config=org.apache.kafka.common.security.scram.ScramLoginModule required "
        f"username={name} password={password};\n"
    )
    assert run_kohort("topic", "create", "by-hand", "--command-config", str(config)).out == (
        "created by-hand with 1 partition\n"
    )
    sent = run_kohort("send", "by-hand", "--command-config", str(config), stdin="one\n")
    assert sent.out == "sent 1 record to by-hand\n"
    wrong = run_kohort(
        *("group", "list", "-b", kafka.bootstrap("SASL_PLAINTEXT"), "-X", "security.protocol=SASL_PLAINTEXT"),
        *("-X", "sasl.mechanism=PLAIN", "-X", f"sasl.username={USER}", "-X", "sasl.password=open-sesame"),
    )
    assert wrong.code == 1
    assert "does not let this client in by PLAIN" in wrong.err
    assert "open-sesame" not in wrong.err


def test_offsets_and_members_are_administered_as_at_our_brokers(kafka: SecuredBroker) -> None:
    play_day(options_of(kafka, "SSL"), "day")


def is_refused(call: Callable[[], object], says: str) -> bool:
    """Whether it ends because one of both sides does not believe the other, in these words."""
    try:
        call()
    except AuthenticationError as why:
        assert says in str(why)
        return True
    return False


def test_user_is_changed_and_removed_and_comes_back(kafka: SecuredBroker) -> None:
    """Sessions that are open last until they end; then every call says why, and all goes on when the user is back."""
    steward = Steward(kafka)
    steward.allow(BOB, "first")
    options = login(kafka, "SCRAM-SHA-512", sasl_username=BOB, sasl_password="first")
    topic, stored, found = "bobs", [], []

    def is_shut_out(call: Callable[[], object]) -> bool:
        return is_refused(call, "by SCRAM-SHA-512")

    with kohort.Admin(**options) as admin:
        until(lambda: not is_shut_out(lambda: admin.create_topic(topic, 1)), what="the user is known")
    with (
        kohort.Producer(**options) as producer,
        kohort.Consumer(**options, group_id=topic, auto_offset_reset="earliest") as consumer,
    ):
        consumer.subscribe([topic])

        def send() -> None:
            value = str(len(stored)).encode()
            producer.send(topic, value).result(PATIENCE_S)
            stored.append(value)

        def read() -> None:
            found.extend(record.value for record in consumer.poll(0.1))

        for change in (lambda: steward.allow(BOB, "second"), lambda: steward.forget(BOB)):
            until(lambda: not is_shut_out(send), what="a record is sent")
            until(lambda: not is_shut_out(read) and len(found) == len(stored), what="it is read")
            member = consumer.member_id
            change()
            until(lambda: is_shut_out(send), what="the producer is told")
            until(lambda: is_shut_out(read), what="the consumer is told")
            steward.allow(BOB, "first")
        until(lambda: not is_shut_out(send), what="the producer is let in")
        until(lambda: not is_shut_out(read) and len(found) >= len(stored), what="all is read")
        assert consumer.member_id == member
    assert found == stored


def test_token_ends_while_a_fetch_waits(kafka: SecuredBroker) -> None:
    """KIP-368: the broker answers the fetch beyond the end of the session, and the login behind it is in time."""
    made: list[int] = []

    def token() -> tuple[str, float]:
        made.append(1)
        return kafka.short_token()

    options = login(kafka, "OAUTHBEARER", sasl_oauth_token_provider=token)
    topic = "short-tokens"
    with kohort.Admin(**options) as admin:
        admin.create_topic(topic, 1)
    with (
        kohort.Consumer(**options, group_id=topic, auto_offset_reset="earliest", fetch_max_wait_ms=3_000) as consumer,
        kohort.Producer(**options) as producer,
    ):
        consumer.subscribe([topic])
        until(consumer.assignment, what="it has its partition", step=lambda: consumer.poll(0.1))
        epoch, member = consumer.group_epoch, consumer.member_id
        ends_s = time.monotonic() + 5.0
        while time.monotonic() < ends_s:
            assert list(consumer.poll(1.0)) == []
        opened = consumer.metrics()["connection-creation-total"]
        producer.send(topic, b"late").result(PATIENCE_S)
        found: list[bytes | None] = []
        until(
            lambda: found,
            what="the record is read",
            step=lambda: found.extend(record.value for record in consumer.poll(0.1)),
        )

        assert found == [b"late"]
        assert (consumer.group_epoch, consumer.member_id) == (epoch, member)
        assert consumer.metrics()["connection-creation-total"] == opened == consumer.metrics()["connection-count"]
    assert len(made) > 3


def test_certificate_of_a_listener_is_replaced(kafka: SecuredBroker, tmp_path: Path) -> None:
    """Who is connected goes on; who comes is told in a sentence, and let in when the old authority's is back."""
    steward, options = Steward(kafka), options_of(kafka, "SSL")
    topic, found = "certified", []

    def is_strange() -> bool:
        with kohort.Admin(**options) as late:
            return is_refused(late.list_topics, "set ssl.ca.location to its CA")

    with kohort.Admin(**options) as admin:
        admin.create_topic(topic, 1)
    with (
        kohort.Producer(**options) as producer,
        kohort.Consumer(**options, group_id=topic, auto_offset_reset="earliest") as consumer,
    ):
        consumer.subscribe([topic])

        def pass_on(value: bytes) -> None:
            producer.send(topic, value).result(PATIENCE_S)
            while found[-1:] != [value]:
                found.extend(record.value for record in consumer.poll(PATIENCE_S))

        pass_on(b"before")
        steward.present(Certificates(tmp_path).store("127.0.0.1"))
        until(is_strange, what="the broker is another one")
        pass_on(b"meanwhile")
        steward.present(kafka.certificates.store("127.0.0.1", "localhost"))
        until(lambda: not is_strange(), what="it is the old one")
        pass_on(b"after")
    assert found == [b"before", b"meanwhile", b"after"]
