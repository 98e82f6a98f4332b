"""Each stock client, by each login, with TLS and without, at our broker and at Apache Kafka's.

`make soak ONLY=secured` tries all of it, with Java, franz-go and Apache Kafka; a sample of the cells is here every day,
and more of them are in `test_logins.py`, `test_oauth_broker.py` and `test_tls_listener.py`.
"""

from __future__ import annotations

import gc
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import nullcontext, suppress

import pytest

import kohort
from support.depth import IS_SOAK
from support.peers.other_languages import go_program
from support.peers.secured import SecuredBroker, SecuredKafka
from support.peers.secured_clients import KINDS, WAYS, Java, Way
from support.peers.secured_kohort import SecuredKohort
from support.peers.secured_steward import Steward
from support.waiting import until

pytestmark = [
    pytest.mark.interop,
    # Clients of Python that are refused leave their sockets behind.
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]

LIFETIME_MS = 1_500
#: The mechanisms whose sessions are short, with TLS around them.
SHORT = ("PLAIN", "SCRAM-SHA-512")
#: Every day the clients that need no process of their own, each at some of the ways in.
DAILY = ("kohort", "confluent-kafka", "kafka-python", "aiokafka")
APACHE = pytest.param("apache", marks=pytest.mark.apache)
CELLS = [
    pytest.param(kind, way, id=f"{kind}-{way[0]}-{way[1]}")
    for row, kind in enumerate(KINDS)
    for column, way in enumerate(WAYS)
    if IS_SOAK or (kind in DAILY and (row + column) % len(DAILY) == 0)
]


@pytest.fixture(scope="module", params=[APACHE, "kohort"] if IS_SOAK else ["kohort"])
def broker(request: pytest.FixtureRequest) -> Iterator[SecuredBroker]:
    """One with every listener."""
    listener = "listener.name.sasl_ssl"
    sessions: dict[str, object] = {
        **{f"{listener}.{each.lower()}.connections.max.reauth.ms": LIFETIME_MS for each in SHORT},
        "group.initial.rebalance.delay.ms": 0,
    }
    of_apache = {"ssl.allow.dn.changes": "true", "ssl.allow.san.changes": "true"}
    # Wrong passwords of all clients come from one address here.
    ours = {"sasl.failures.per.second.per.ip": 1_000, "connection.failed.authentication.delay.ms": 10}
    made = SecuredKafka({**sessions, **of_apache}) if request.param == "apache" else SecuredKohort(sessions | ours)
    with made:
        yield made


@pytest.fixture
def topic(broker: SecuredBroker, request: pytest.FixtureRequest) -> str:
    name = "".join(letter if letter.isalnum() else "-" for letter in request.node.name)
    with kohort.Admin(bootstrap_servers=broker.bootstrap("PLAINTEXT")) as admin:
        admin.create_topic(name, 1)
        until(lambda: name in {each.name for each in admin.list_topics()}, what="the broker has the topic")
    return name


@pytest.fixture(scope="module", autouse=True)
def _around() -> Iterator[None]:
    """Have the client of Go built before a test counts its time, and sockets collected while they are expected."""
    if IS_SOAK:
        with suppress(pytest.skip.Exception):
            go_program("secured")
    yield
    # What the log of a test has of its clients goes with the next test: the last one here refuses none.
    gc.collect()


@pytest.mark.parametrize(("kind", "way"), CELLS)
def test_client_writes_and_reads_as_a_member(
    broker: SecuredBroker, topic: str, kind: str, way: tuple[str, str]
) -> None:
    """In each protocol of groups that it speaks; the offset that it commits is its group's."""
    where = kohort.TopicPartition(topic, 0)
    for number, protocol in enumerate(KINDS[kind].protocols):
        if number:
            with kohort.Admin(bootstrap_servers=broker.bootstrap("PLAINTEXT")) as admin:
                until(lambda: _is_deleted(admin, topic), what="the group of the other protocol is gone")
        found = KINDS[kind].pass_on(Way(broker, *way), topic, protocol)
        assert found, protocol
        with kohort.Consumer(bootstrap_servers=broker.bootstrap("PLAINTEXT"), group_id=topic) as consumer:
            assert (consumer.committed([where])[where] or 0) > 0, protocol


def _is_deleted(admin: kohort.Admin, group: str) -> bool:
    try:
        admin.delete_groups([group])
    except kohort.errors.KohortError:
        return group not in [each.group_id for each in admin.list_groups()]
    return True


@pytest.mark.parametrize(("kind", "way"), [each for each in CELLS if each.values[1][0] != "certificate"])  # type: ignore[index]
def test_client_with_a_wrong_password_or_token_is_told(
    broker: SecuredBroker, topic: str, kind: str, way: tuple[str, str]
) -> None:
    """In whatever words it has; none of them are the password."""
    told = KINDS[kind].refused(Way(broker, *way).wrong(), topic)
    assert told
    assert "open-sesame" not in told
    print(f"{type(broker).__name__} {kind} {way[0]} {way[1]}: {told.strip().splitlines()[-1][:160]}")
    # aiokafka takes the refusal of a token for the end of its login. kafka-python tries on until its time is over, and
    # hears no reason of Apache Kafka's, which closes the connection first.
    is_silent = kind == "kafka-python" and isinstance(broker, SecuredKafka)
    if way[0] != "OAUTHBEARER" and not is_silent:
        assert "uthentication" in told, told


@pytest.mark.parametrize("mechanism", SHORT if IS_SOAK else SHORT[:1])
@pytest.mark.parametrize("kind", list(KINDS)[:5] if IS_SOAK else ["aiokafka"])
def test_session_that_ends_costs_no_record(broker: SecuredBroker, topic: str, kind: str, mechanism: str) -> None:
    """KIP-368; a client that does not know later logins connects anew."""
    way, client = Way(broker, mechanism, "SASL_SSL"), KINDS[kind]
    count, pause = 0, threading.Event()
    if isinstance(client, Java):
        count = 20
        assert "20 records sent" in client.send(way, topic, count=count, a_second=5)
    else:
        with client.sending(way, topic) as send:
            ends_s = time.monotonic() + 3 * LIFETIME_MS / 1000
            while time.monotonic() < ends_s:
                send()
                count += 1
                pause.wait(0.05)
    with kohort.Admin(bootstrap_servers=broker.bootstrap("PLAINTEXT")) as admin:
        assert admin.describe_topics([topic])[0].partitions[0].end_offset == count


#: Clients with a producer that stays.
STAYING = list(KINDS)[:4]


@pytest.mark.parametrize("kind", STAYING if IS_SOAK else ["aiokafka"])
def test_password_changes_meanwhile(broker: SecuredBroker, topic: str, kind: str) -> None:
    """The session that is open lasts until its end; then nothing is written until the old password is back."""
    steward = Steward(broker)
    steward.allow("bob", "first")
    way = Way(broker, "SCRAM-SHA-512", "SASL_SSL", "bob", "first")

    def is_written(send: Callable[[], None]) -> bool:
        try:
            send()
        except Exception as why:
            assert "first" not in str(why)
            return False
        return True

    until(lambda: not KINDS["kohort"].refused(way, topic), what="the broker knows bob")
    with KINDS[kind].sending(way, topic) as send:
        send()
        steward.allow("bob", "second")
        until(lambda: not is_written(send), what="its session is over", step=lambda: time.sleep(0.1))
        steward.allow("bob", "first")
        # A producer of kafka-python's that has heard the refusal fails for good.
        with KINDS[kind].sending(way, topic) if kind == "kafka-python" else nullcontext(send) as again:
            until(lambda: is_written(again), what="it is let in again", step=lambda: time.sleep(0.1))


@pytest.mark.parametrize("kind", STAYING if IS_SOAK else ["kafka-python"])
def test_certificate_of_the_listener_changes_meanwhile(broker: SecuredBroker, topic: str, kind: str) -> None:
    """One of the same authority: who is connected goes on, and so does a client that comes then."""
    steward, way = Steward(broker), Way(broker, "SCRAM-SHA-256", "SASL_SSL")
    # Apache Kafka is told for a listener, and the steward tells the one of certificates alone.
    if isinstance(broker, SecuredKafka):
        way = Way(broker, "certificate", "MTLS")._replace(listener="SSL")
    before = presented(way)
    with KINDS[kind].sending(way, topic) as send:
        send()
        steward.present(broker.certificates.store("127.0.0.1", "renewed.example"))
        until(lambda: presented(way) != before, what="the new certificate", step=lambda: time.sleep(0.05))
        send()
        with KINDS[kind].sending(way, topic) as late:
            late()
    with kohort.Admin(bootstrap_servers=broker.bootstrap("PLAINTEXT")) as admin:
        assert admin.describe_topics([topic])[0].partitions[0].end_offset == 3


def presented(way: Way) -> str:
    host, _, port = way.address.rpartition(":")
    return ssl.get_server_certificate((host, int(port)))
