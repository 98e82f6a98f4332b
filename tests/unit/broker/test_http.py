"""`/metrics`, `/healthz` and `/readyz` of a broker, as scrapers, browsers and wrong clients ask for them."""

from __future__ import annotations

import json
import re
import socket
import struct
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

import kohort
from kohort.broker.http import HEAD_BYTES, MOST_CONNECTIONS
from kohort.broker.server import BrokerStartError
from kohort.client.admin.results.groups import MemberDescription
from kohort.errors import ConfigError
from support.waiting import until

prometheus = pytest.importorskip("prometheus_client.parser")
openmetrics = pytest.importorskip("prometheus_client.openmetrics.parser")

WAIT_S = 20.0
GROUP = 'bil"ling\n</script>'
OPEN_TYPE = "application/openmetrics-text; version=1.0.0"


@pytest.fixture(scope="module")
def broker() -> Iterator[kohort.Broker]:
    """One with a topic of 3 partitions of which a group has committed 2, and two members that have shared it."""
    with kohort.Broker(config={"http.listen": "127.0.0.1:0"}) as broker:
        address = broker.bootstrap_servers
        with kohort.Admin(bootstrap_servers=address) as admin, kohort.Producer(bootstrap_servers=address) as producer:
            admin.create_topic("orders", 3)
            for number in range(9):
                producer.send("orders", b"x", partition=number % 3).result(WAIT_S)
            options = {"bootstrap_servers": address, "group_id": GROUP, "enable_auto_commit": False}
            with (
                kohort.Consumer("orders", client_id="a", **options) as a,
                kohort.Consumer("orders", client_id="b", **options) as b,
            ):

                def poll() -> None:
                    a.poll(0.02)
                    b.poll(0.02)

                until(lambda: a.assignment() and b.assignment(), what="shared", step=poll)
                offsets = {kohort.TopicPartition("orders", 0): 3, kohort.TopicPartition("orders", 1): 1}
                for partition, offset in offsets.items():
                    (a if partition in a.assignment() else b).commit({partition: offset})
                yield broker


def ask(broker: kohort.Broker, request: bytes) -> tuple[int, dict[str, str], bytes]:
    """Send bytes; return the first answer: its status, its headers and its body."""
    host, port = broker.http_address.split(":")
    with socket.create_connection((host, int(port)), timeout=WAIT_S) as client, client.makefile("rb") as answer:
        client.sendall(request)
        return read(answer)


def read(answer: object) -> tuple[int, dict[str, str], bytes]:
    status = int(answer.readline().split()[1])  # type: ignore[attr-defined]
    headers = {}
    while line := answer.readline().decode().strip():  # type: ignore[attr-defined]
        name, _, value = line.partition(": ")
        headers[name] = value
    return status, headers, answer.read(int(headers["Content-Length"]))  # type: ignore[attr-defined]


def get(broker: kohort.Broker, path: str = "/metrics", **headers: str) -> tuple[int, dict[str, str], bytes]:
    lines = "".join(f"{name}: {value}\r\n" for name, value in {"Host": "localhost", **headers}.items())
    return ask(broker, f"GET {path} HTTP/1.1\r\n{lines}\r\n".encode())


def series(page: bytes, parser: object = prometheus) -> dict[tuple[str, frozenset[tuple[str, str]]], float]:
    families = parser.text_string_to_metric_families(page.decode())  # type: ignore[attr-defined]
    return {(row.name, frozenset(row.labels.items())): row.value for family in families for row in family.samples}


def test_page_says_what_admin_says(broker: kohort.Broker) -> None:
    status, headers, body = get(broker)
    assert (status, headers["Content-Type"]) == (200, "text/plain; version=0.0.4; charset=utf-8")
    found = series(body)
    with kohort.Admin(bootstrap_servers=broker.bootstrap_servers) as admin:
        offsets = admin.group_offsets(GROUP)
        described = admin.describe_group(GROUP)
    for each in offsets:
        labels = {"consumergroup": GROUP, "topic": each.topic, "partition": str(each.partition)}
        # Where nothing is committed there is no series, and never -1 (kafka_exporter's issue 28).
        assert found.get(("kafka_consumergroup_lag", frozenset(labels.items()))) == each.lag
        assert found.get(("kafka_consumergroup_current_offset", frozenset(labels.items()))) == each.committed
        del labels["consumergroup"]
        assert found["kafka_topic_partition_current_offset", frozenset(labels.items())] == each.end_offset
    assert {each.lag for each in offsets} == {0, 2, None}
    assert found["kafka_consumergroup_lag_sum", frozenset({"consumergroup": GROUP, "topic": "orders"}.items())] == 2
    assert found["kafka_consumergroup_members", frozenset({"consumergroup": GROUP}.items())] == 2
    heard = {labels: value for (name, labels), value in found.items() if name == "kohort_member_last_heard_seconds"}
    assert {dict(labels)["member"] for labels in heard} == {each.member_id for each in described.members}
    for member in described.members:
        assert (member.is_connected, member.overdue_ms) == (True, None)
        assert member.last_fetch_ms is not None
        assert member.last_heard_ms is not None
        assert member.session_left_ms is not None
        assert member.last_poll_ms is not None
        assert member.last_heard_ms + member.session_left_ms <= 45_000
    assert any(member.last_commit_ms is not None for member in described.members)
    assert all(0 <= value < 60 for value in heard.values())
    rebalances = sum(value for (name, _), value in found.items() if name == "kohort_group_rebalances_total")
    assert rebalances >= 1
    assert found["kohort_group_rebalance_seconds_count", frozenset({("phase", "whole")})] >= 1


@pytest.mark.parametrize("names", ["kafka-exporter", "kminion"])
def test_both_formats_and_both_families_are_read_by_prometheus_own_parsers(broker: kohort.Broker, names: str) -> None:
    path = f"/metrics?families={names}"
    plain, opened = get(broker, path)[2], get(broker, path, Accept=OPEN_TYPE)
    assert opened[1]["Content-Type"].startswith("application/openmetrics-text")
    assert series(plain).keys() - series(opened[2], openmetrics).keys() == set()
    types = [line for line in plain.decode().splitlines() if line.startswith("# TYPE")]
    assert len(types) == len(set(types)), "a family stands there twice"


def test_every_series_of_kminion_that_a_broker_can_have_is_there(broker: kohort.Broker) -> None:
    found = series(get(broker, "/metrics?families=kminion")[2])
    labels = {"group_id": GROUP, "topic_name": "orders"}
    assert found["kminion_kafka_consumer_group_topic_lag", frozenset(labels.items())] == 2
    assert found["kminion_kafka_consumer_group_topic_members", frozenset(labels.items())] == 2
    assert found["kminion_kafka_consumer_group_topic_assigned_partitions", frozenset(labels.items())] == 3
    assert found["kminion_kafka_consumer_group_offset_commits_total", frozenset({("group_id", GROUP)})] >= 2
    assert found["kminion_kafka_topic_high_water_mark_sum", frozenset({("topic_name", "orders")})] == 9
    assert get(broker, "/metrics?families=jmx")[0] == 400


def test_health_and_readiness(broker: kohort.Broker) -> None:
    assert get(broker, "/healthz")[::2] == (200, b"ok\n")
    assert get(broker, "/readyz")[::2] == (200, b"ok\n")
    status, _, body = get(broker, "/console")
    assert (status, body) == (404, b"there is no such page; there are: /metrics /healthz /readyz\n")


@pytest.mark.parametrize(
    ("request_", "status"),
    [
        (b"GET /healthz HTTP/1.0\r\n\r\n", 200),
        (b"HEAD /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n", 200),
        (b"GET http://localhost/healthz HTTP/1.1\r\nHost: [::1]:9\r\n\r\n", 200),
        (b"GET /healthz HTTP/1.1\r\n\r\n", 400),
        (b"GET /healthz HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n", 400),
        (b"GET /healthz HTTP/1.1\r\nHost : localhost\r\n\r\n", 400),
        (b"GET /healthz\r\n\r\n", 400),
        (b"GET http://[ HTTP/1.1\r\nHost: localhost\r\n\r\n", 400),
        (b"GET /healthz HTTP/1.1\r\nHost: evil.example\r\n\r\n", 403),
        (b"POST /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n", 405),
        (b"GET /metrics HTTP/1.1\r\nHost: localhost\r\nContent-Length: 7\r\n\r\n", 413),
        (b"GET /metrics HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n", 413),
        (b"GET /metrics HTTP/1.1\r\nHost: localhost\r\nX: " + b"a" * HEAD_BYTES, 431),
        # A frame of Kafka's, and the beginning of TLS.
        (struct.pack(">ihhih", 10, 18, 0, 1, -1), 400),
        (b"\x16\x03\x01\x02\x00", 400),
    ],
)
def test_request_has_its_answer(broker: kohort.Broker, request_: bytes, status: int) -> None:
    host, port = broker.http_address.split(":")
    with socket.create_connection((host, int(port)), timeout=WAIT_S) as client:
        client.sendall(request_)
        first = client.recv(4096)
        assert int(first.split()[1]) == status
        is_over = status != 200 or b"HTTP/1.0" in request_
        assert (b"Connection: close" in first) is is_over
        if request_.startswith(b"HEAD"):
            assert first.endswith(b"\r\n\r\n"), "the answer to HEAD has no body"
        if is_over:
            until_closed(client)


def until_closed(client: socket.socket) -> None:
    """Read to the end, which a reset is as well: bytes were left unread."""
    try:
        while client.recv(4096):
            pass
    except ConnectionError:
        pass


def test_header_of_a_megabyte_is_not_read_whole(broker: kohort.Broker) -> None:
    host, port = broker.http_address.split(":")
    with socket.create_connection((host, int(port)), timeout=WAIT_S) as client:
        with pytest.raises(ConnectionError):
            for _ in range(1_000):
                client.sendall(b"GET / HTTP/1.1\r\nX: " + b"a" * 65_536)
        until_closed(client)
    assert get(broker, "/healthz")[0] == 200


def test_connection_is_kept_and_takes_requests_that_were_sent_ahead(broker: kohort.Broker) -> None:
    host, port = broker.http_address.split(":")
    with socket.create_connection((host, int(port)), timeout=WAIT_S) as client, client.makefile("rb") as answer:
        client.sendall(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\nGET /readyz HTTP/1.0\r\n\r\n")
        assert read(answer)[::2] == (200, b"ok\n")
        assert read(answer)[1]["Connection"] == "close"


def test_scrapers_that_hang_give_way(broker: kohort.Broker) -> None:
    """Half a request, or none, keeps no place of a scraper that asks."""
    host, port = broker.http_address.split(":")
    hanging = [socket.create_connection((host, int(port)), timeout=WAIT_S) for _ in range(MOST_CONNECTIONS + 5)]
    try:
        for each in hanging[::2]:
            each.sendall(b"GET /metrics HTT")
        assert get(broker, "/healthz")[0] == 200
        until_closed(hanging[0])
    finally:
        for each in hanging:
            each.close()


def test_http_at_the_port_of_kafka_is_told_so(broker: kohort.Broker) -> None:
    with closing(socket.create_connection((broker.host, broker.port), timeout=WAIT_S)) as client:
        client.sendall(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert client.recv(4096).startswith(b"HTTP/1.1 400")
        until_closed(client)


def test_broker_in_a_process_says_where_and_one_without_http_has_none(tmp_path: Path) -> None:
    with kohort.Broker(process=True, data_dir=tmp_path, config={"http.listen": "127.0.0.1:0"}) as broker:
        page = get(broker)[2]
        assert series(page)["kohort_broker_disk_refuses", frozenset()] == 0
        assert series(page)["kohort_broker_sync_seconds_count", frozenset()] >= 0
    with kohort.Broker() as broker, pytest.raises(kohort.errors.StateError, match=r"http\.listen"):
        _ = broker.http_address


def test_address_that_strangers_reach_or_that_is_none_is_refused() -> None:
    with pytest.raises(BrokerStartError, match="can be reached from other machines"):
        kohort.Broker(config={"http.listen": "0.0.0.0:0"}).start()
    for wrong in ("9099", "localhost", "a:b:c"):
        with pytest.raises(ConfigError, match=r"http\.listen"):
            kohort.Broker(config={"http.listen": wrong})


def test_groups_beyond_the_limit_of_series_have_their_sums(monkeypatch: pytest.MonkeyPatch) -> None:
    from kohort.metrics import peers

    monkeypatch.setattr(peers, "PARTITION_SERIES", 500)
    with kohort.Broker(config={"http.listen": "127.0.0.1:0"}) as broker:
        with kohort.Admin(bootstrap_servers=broker.bootstrap_servers) as admin:
            admin.create_topic("orders", 10)
            for number in range(60):
                places = {kohort.TopicPartition("orders", partition): 0 for partition in range(10)}
                admin.alter_group_offsets(f"group-{number}", places)
        found = series(get(broker)[2])
    names = [name for name, _ in found]
    # Beyond the limit a group has only its sums (and a gauge says so).
    assert names.count("kafka_consumergroup_lag") == 500
    assert names.count("kafka_consumergroup_lag_sum") == 60
    assert found["kohort_metrics_summed_partitions", frozenset()] == 100


def test_dashboards_of_others_find_every_name_and_label_that_they_ask_for(broker: kohort.Broker) -> None:
    """The expressions of kafka_exporter's own dashboard and of Strimzi's, unedited."""
    found: dict[str, set[str]] = {}
    for name, labels in series(get(broker)[2]):
        found.setdefault(name, set()).update(dict(labels))
    dashboards = json.loads((Path(__file__).parents[2] / "support" / "dashboards_of_others.json").read_text())
    #: Labels that Prometheus gives to all series of a target.
    given = {"job", "instance", "namespace", "strimzi_io_cluster"}
    asked = [expression for expressions in dashboards.values() for expression in expressions]
    for expression in asked:
        names = re.findall(r"kafka_[a-z_]+", expression)
        labels = set(re.findall(r"(\w+)\s*(?:=~|!=|=)\s*[\"']", expression)) | {
            label.strip() for by in re.findall(r"by\s*\(([^)]*)\)", expression) for label in by.split(",")
        }
        assert names, expression
        for name in names:
            assert labels - given <= found.get(name, set()), expression
    assert len(asked) > 25


@pytest.mark.parametrize("protocol", ["consumer", "classic"])
def test_member_for_which_others_wait_is_told(broker: kohort.Broker, protocol: str) -> None:
    """A member that does not poll gives nothing up, though its heartbeats come."""
    address, topic = broker.bootstrap_servers, f"waited-{protocol}"
    options = {"bootstrap_servers": address, "group_id": topic, "group_protocol": protocol}
    with (
        kohort.Admin(bootstrap_servers=address) as admin,
        kohort.Consumer(client_id="slow", **options) as slow,
        kohort.Consumer(client_id="new", **options) as new,
    ):
        admin.create_topic(topic, 2)
        slow.subscribe([topic])

        def members() -> dict[str, MemberDescription]:
            return {each.client_id: each for each in admin.describe_group(topic).members}

        until(lambda: len(slow.assignment()) == 2, what="all", step=lambda: slow.poll(0.02))
        new.subscribe([topic])
        until(
            lambda: "slow" in members() and members()["slow"].overdue_ms is not None,
            what="waited for",
            step=lambda: new.poll(0.02),
        )
        found = members()
        assert (found["slow"].is_connected, found["new"].overdue_ms) == (True, None)
        assert found["slow"].last_heard_ms is not None
        labels = frozenset({"group": topic, "member": found["slow"].member_id, "client_id": "slow"}.items())
        assert series(get(broker)[2])["kohort_member_stuck", labels] == 0, "not for 10 s yet"

        def poll() -> None:
            slow.poll(0.02)
            new.poll(0.02)

        until(lambda: slow.assignment() and new.assignment(), what="shared", step=poll)
        assert members()["slow"].overdue_ms is None
