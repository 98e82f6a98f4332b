"""The console as browsers and scripts ask for it: pages, JSON twins, events, and what it refuses."""

from __future__ import annotations

import http.client
import json
import re
import socket
import ssl
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import ExitStack, closing, contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from threading import Thread
from typing import Any, NamedTuple
from urllib.error import HTTPError
from urllib.parse import quote
from urllib.request import Request, urlopen

import pytest

import kohort
from kohort.broker.options.settings import BrokerSettings
from kohort.broker.server import serve as serve_broker
from kohort.ids import TopicPartition
from kohort.journal.explain.explanation import GroupRebalance
from kohort.testing.secured import secure
from support.waiting import until

for package in ("starlette", "uvicorn", "jinja2"):
    pytest.importorskip(package)

from kohort.console import access, serving  # noqa: E402
from kohort.console.serving import BrokerConsole, ConsoleServer, self_options  # noqa: E402
from kohort.console.swimlanes import draw_lanes, mark_rebalances  # noqa: E402

WAIT_S = 20.0
#: Where an answer is waited for between two pieces of bytes.
PAUSE = b"--pause--"
HOSTILE = 'a "quoted" </script><b>\n&' + "x" * 220


class Running(NamedTuple):
    """A console of a broker with the group `billing`, which has had two members."""

    port: int
    broker: kohort.Broker
    admin: kohort.Admin


def serve(options: dict[str, Any], **given: Any) -> ConsoleServer:
    bound = socket.create_server(("127.0.0.1", 0))
    server = ConsoleServer(options, bound, **given)
    server.start()
    return server


def stop(server: ConsoleServer) -> None:
    server.stop()
    server.join(WAIT_S)


def port_of(server: ConsoleServer) -> int:
    return int(server.bound.getsockname()[1])


@pytest.fixture(scope="module")
def running() -> Iterator[Running]:
    with kohort.Broker() as broker, kohort.Admin(bootstrap_servers=broker.bootstrap_servers) as admin:
        admin.create_topic("orders", 2)
        admin.alter_group_offsets(HOSTILE, {TopicPartition("orders", 0): 0})
        options = {"bootstrap_servers": broker.bootstrap_servers, "group_id": "billing"}
        with kohort.Consumer("orders", client_id="a", **options) as a:
            until(a.assignment, what="a has it all", step=lambda: a.poll(0.02))
            with kohort.Consumer("orders", client_id="b", **options) as b:

                def poll() -> None:
                    a.poll(0.02)
                    b.poll(0.02)

                until(b.assignment, what="shared", step=poll)
            until(lambda: is_at_rest(admin), what="at rest", step=lambda: a.poll(0.02))
            server = serve({"bootstrap.servers": broker.bootstrap_servers})
            try:
                # The first page of a slow machine says that the cluster is being read; a JSON twin waits.
                assert ask(port_of(server), "/groups.json").status == 200
                yield Running(port_of(server), broker, admin)
            finally:
                stop(server)


def is_at_rest(admin: kohort.Admin) -> bool:
    last = admin.explain_group("billing").last
    return last is not None and last.ended_ms is not None and "b left" in last.sentence


class Answer(NamedTuple):
    status: int
    headers: http.client.HTTPMessage
    text: str


def ask(port: int, path: str, method: str = "GET", body: str | None = None, **headers: str) -> Answer:
    with closing(http.client.HTTPConnection("127.0.0.1", port, timeout=WAIT_S)) as connection:
        connection.request(method, path, body, {name.replace("_", "-"): value for name, value in headers.items()})
        found = connection.getresponse()
        return Answer(found.status, found.headers, found.read().decode())


def test_every_page_has_a_json_twin(running: Running) -> None:
    """Requirement J3: who owns what, how far behind, and why."""
    port, _, _ = running
    page = ask(port, "/groups?sort=name&q=bill")
    assert page.status == 200 and ">billing</a>" in page.text and "script-src 'self'" in str(page.headers)
    groups = json.loads(ask(port, "/groups.json?q=bill").text)["groups"]
    found = [(each["id"], each["state"], each["members"], each["partitions"]) for each in groups]
    assert found == [("billing", "Stable", 1, 2)], "partitions without a committed offset count, too"
    group = json.loads(ask(port, "/group?id=billing", Accept="application/json").text)
    assert [(each["name"], each["owned"]) for each in group["members"]] == [("a", "orders:0-1")]
    assert "b left" in group["why"]["sentence"] and group["rebalances_per_hour"] == 3
    lanes = {each["name"]: each["spans"] for each in group["picture"]["lanes"]}
    owners = [[span["member"] for span in spans if not span["is_unread"]] for spans in lanes.values()]
    assert sorted(lanes) == ["orders-0", "orders-1"] and ["a", "b", "a"] in owners
    shown = ask(port, "/group?id=billing").text
    assert '<svg class="lanes"' in shown and "b left" in shown
    rebalance = json.loads(ask(port, group["why"]["href"], Accept="application/json").text)
    assert {each["member"]: each["after"] for each in rebalance["owners"]} == {"a": "orders:0-1", "b": "-"}
    assert {each["assignor"]: each["most"] for each in rebalance["what_if"]}.items() >= {
        "range": 2,
        "sticky": 2,
    }.items()
    assert "<h2>Phases</h2>" in ask(port, group["why"]["href"]).text
    partition = json.loads(ask(port, "/partition.json?group=billing&topic=orders&partition=1").text)
    assert partition["owners"][0]["member"] == "a" and partition["owners"][0]["ended_ms"] is None
    assert ask(port, "/partition?group=billing&topic=orders&partition=1").status == 200


def test_page_of_a_group_names_the_transaction_that_holds_it_back(running: Running) -> None:
    port, broker, admin = running
    admin.create_topic("payments", 1)
    admin.alter_group_offsets("ledger", {TopicPartition("payments", 0): 0})
    with kohort.Producer(bootstrap_servers=broker.bootstrap_servers, transactional_id="pay-1") as producer:
        producer.begin_transaction()
        producer.send("payments", b"one").result(WAIT_S)
        held = "payments:0 is held back from readers of committed records at offset 0 by pay-1 (producer 0): Ongoing"
        (sentence,) = json.loads(ask(port, "/group.json?id=ledger").text)["held_by"]
        assert sentence.startswith(held)
        assert held in ask(port, "/group?id=ledger").text
        producer.abort_transaction()


def test_records_are_found_by_offset_time_key_and_path(running: Running) -> None:
    port = running.port
    with kohort.Producer(bootstrap_servers=running.broker.bootstrap_servers) as producer:
        for number in range(30):
            value = json.dumps({"lines": [{"sku": f"<b>{number}"}]})
            sent = producer.send("orders", value, key=f"k{number % 3}", partition=1, timestamp_ms=1_000 * number)
        sent.result(WAIT_S)

    def found(query: str) -> list[tuple[int, str]]:
        page = json.loads(ask(port, f"/topic.json?name=orders&{query}").text)["records"]
        assert page["failure"] == "" and page["is_cut"] is False
        return [(each["offset"], each["value"]) for each in page["records"]]

    assert [offset for offset, _ in found("")] == list(range(10, 30))
    assert [offset for offset, _ in found("partition=1&offset=27")] == [27, 28, 29]
    assert [offset for offset, _ in found("time=28000")] == [28, 29]
    assert found("partition=1&key=k2&path=$.lines[0].sku")[0] == (2, "<b>2")
    text = ask(port, "/topic?name=orders").text
    assert "&lt;b&gt;29" in text and "<b>29" not in text
    assert ask(port, "/topic?name=nowhere").status == 404 and ask(port, "/topic?name=orders&time=soon").status == 400
    assert [each["name"] for each in json.loads(ask(port, "/topics.json?q=ORD").text)["topics"]] == ["orders"]
    assert "loop.longest.turn.ms" in ask(port, "/broker").text


def test_names_are_hostile_text(running: Running) -> None:
    """A group's id is its client's own: quotes, tags, line ends, 249 characters."""
    port, _, _ = running
    for path in ("/groups", f"/group?id={quote(HOSTILE)}"):
        text = ask(port, path).text
        assert "</script><b>" not in text.replace("</script>\n", "") and "&lt;/script&gt;&lt;b&gt;\\n" in text, path
    assert json.loads(ask(port, f"/group.json?id={quote(HOSTILE)}").text)["id"] == HOSTILE
    lane = {"name": '"><script>', "href": "/x?a=\"><b>", "spans": [
        {"member": "<i>", "from_ms": 0, "to_ms": 9, "said": "<u>&", "is_unread": False}]}  # fmt: skip
    drawn = draw_lanes({"from_ms": 0, "to_ms": 9, "members": ["<i>"], "lanes": [lane], "seams": [], "lags": []})
    assert not [tag for tag in ("<script", "<b>", "<i>", "<u>") if tag in drawn]


@pytest.mark.parametrize(
    ("path", "status"),
    [
        ("/group?id=nobody", 404),
        ("/group", 400),
        ("/rebalance?group=billing&number=x", 400),
        ("/rebalance?group=billing&number=99", 404),
        ("/partition?group=billing&topic=orders&partition=77", 404),
        ("/groups?page=0", 400),
        ("/groups?sort=%3Cb%3E", 400),
        ("/group?id=billing&from=99999999999999999999", 200),
        ("/nowhere", 404),
        ("/static/../app.py", 404),
    ],
)
def test_pages_that_there_are_not_say_so(running: Running, path: str, status: int) -> None:
    found = ask(running.port, path)
    assert found.status == status and "Traceback" not in found.text
    assert "Content-Security-Policy" in found.headers


@pytest.mark.parametrize(
    "headers",
    [
        {"Host": "evil.example:9080"},
        {"Host": "localhost.evil.example"},
        {"Sec_Fetch_Site": "cross-site", "Sec_Fetch_Mode": "cors"},
    ],
)
def test_other_pages_read_nothing(running: Running, headers: dict[str, str]) -> None:
    """DNS rebinding, and requests of pages of other sites."""
    found = ask(running.port, "/groups", **headers)
    assert found.status == 403 and "billing" not in found.text
    assert ask(running.port, "/groups", Host=f"localhost:{running.port}").status == 200


def test_a_form_of_another_page_is_refused(running: Running) -> None:
    host = f"127.0.0.1:{running.port}"
    foreign = ask(running.port, "/logout", "POST", "", Host=host, Origin="http://evil.example")
    assert (foreign.status, foreign.text) == (403, "the form is of another page\n")
    own = ask(running.port, "/logout", "POST", "form_token=x", Host=host, Origin=f"http://{host}")
    assert own.status == 403 and "another session" in own.text


def test_a_token_is_asked_for(running: Running) -> None:
    """Beyond loopback, or where one is given: by a form, by the address, or by a header."""
    server = serve({"bootstrap.servers": running.broker.bootstrap_servers}, token="s3cret")
    try:
        port = port_of(server)
        asked = ask(port, "/groups")
        assert (asked.status, asked.headers["Location"]) == (303, "/login")
        assert ask(port, "/groups.json").status == 401 and ask(port, "/events").status == 401
        assert ask(port, "/login").status == 200 and ask(port, "/static/console.css").status == 200
        assert ask(port, "/login", "POST", "token=wrong").status == 403
        for opened in (ask(port, "/login", "POST", "token=s3cret"), ask(port, "/groups?token=s3cret")):
            assert opened.status == 303 and "HttpOnly" in opened.headers["Set-Cookie"]
            cookie = opened.headers["Set-Cookie"].partition(";")[0]
            assert ask(port, "/groups", Cookie=cookie).status == 200
        assert ask(port, "/groups.json", Authorization="Bearer s3cret").status == 200
        assert ask(port, "/groups.json", Authorization="Bearer s3cre").status == 401
    finally:
        stop(server)


class Events:
    """A stream of events of a group, as a browser reads it."""

    def __init__(self, port: int, path: str, last: str = "") -> None:
        self._connection = http.client.HTTPConnection("127.0.0.1", port, timeout=WAIT_S)
        self._connection.request("GET", path, headers={"Last-Event-ID": last} if last else {})
        self._answer = self._connection.getresponse()

    def next_row(self) -> tuple[int, str]:
        """Wait for an event `row`: its id and its sentence."""
        found: dict[str, str] = {}
        while True:
            line = self._answer.readline().decode().rstrip("\n")
            if line:
                name, _, value = line.partition(": ")
                found[name] = value
            elif found.get("event") == "row":
                return int(found["id"]), json.loads(found["data"])["said"]
            else:
                found = {}

    def close(self) -> None:
        self._connection.close()


def test_events_follow_the_journal_and_resume(running: Running) -> None:
    """An id per row: a browser that comes again misses none, and none comes twice."""
    with closing(Events(running.port, "/events?group=billing")) as events:
        running.admin.alter_group_configs("billing", {"consumer.session.timeout.ms": 46000})
        first, said = events.next_row()
        while "configs changed" not in said:
            first, said = events.next_row()
    for value in (47000, 48000):
        running.admin.alter_group_configs("billing", {"consumer.session.timeout.ms": value})
    with closing(Events(running.port, "/events?group=billing", last=str(first))) as events:
        rows = [events.next_row()]
        while "48000" not in rows[-1][1]:
            rows.append(events.next_row())
    numbers = [number for number, _ in rows]
    assert numbers == sorted(set(numbers)) and numbers[0] > first
    assert sum("47000" in said for _, said in rows) == 1


@contextmanager
def broker_with_console(settings: BrokerSettings, **options: Any) -> Iterator[tuple[str, Any]]:
    """The address of the console of a broker on a thread, and the broker."""
    console, ready = BrokerConsole(settings, **options), Future[tuple[Any, Any]]()
    thread = Thread(
        target=serve_broker,
        args=(settings,),
        kwargs={"on_ready": lambda *running: ready.set_result(running), "http_maker": console.make},
        daemon=True,
    )
    thread.start()
    server, loop = ready.result(WAIT_S)
    try:
        yield console.url(), server
    finally:
        loop.call_soon_threadsafe(server.request_stop)
        thread.join(WAIT_S)
    console.join()
    assert not thread.is_alive()


def test_a_broker_serves_its_own_paths_beside_its_console() -> None:
    """`kohort up --http`: /metrics is made on the broker's loop, pages are asked for over the wire."""
    settings = BrokerSettings.of({"listeners": "PLAINTEXT://127.0.0.1:0", "http.listen": "127.0.0.1:0"})
    with broker_with_console(settings) as (url, server):
        port = int(url.rpartition(":")[2].strip("/"))
        assert server.addresses["http"] == ("127.0.0.1", port)
        assert "kohort_broker_connections" in ask(port, "/metrics").text
        assert [ask(port, path).text for path in ("/healthz", "/readyz")] == ["ok\n", "ok\n"]
        assert ask(port, "/metrics", "POST").status == 405 and ask(port, "/metrics", Host="evil.example").status == 403
        assert json.loads(ask(port, "/groups.json").text)["is_known"] is True


def test_a_console_shows_the_certificate_of_its_broker_and_asks_its_visitors_for_a_token(tmp_path: Path) -> None:
    """The only listener needs certificates of its clients; the console speaks HTTPS."""
    pytest.importorskip("cryptography")
    secured = secure("SSL", tmp_path)
    names = {"super.users": f"{secured.config['super.users']};User:CN=127.0.0.1", "http.listen": "127.0.0.1:0"}
    settings = BrokerSettings.of({**secured.config, **names})
    context = ssl.create_default_context(cafile=tmp_path / "ca.pem")
    with broker_with_console(settings, certificate=str(tmp_path / "server.pem")) as (url, _):
        base, _, token = url.partition("?token=")
        request = Request(f"{base}groups.json", headers={"Authorization": f"Bearer {token}"})
        with urlopen(request, context=context, timeout=WAIT_S) as answer:
            found = json.load(answer)
        with pytest.raises(HTTPError, match="401"):
            urlopen(f"{base}groups.json", context=context, timeout=WAIT_S)
    assert (found["failure"], found["is_known"]) == ("", True)


def test_a_console_in_a_broker_takes_the_listener_that_asks_least() -> None:
    config = {"listeners": "SASL_SSL://0.0.0.0:1,SASL_PLAINTEXT://127.0.0.1:2", "sasl.enabled.mechanisms": "PLAIN"}
    settings = BrokerSettings.of(config)
    options = self_options(settings, {"SASL_SSL": ("0.0.0.0", 1), "SASL_PLAINTEXT": ("127.0.0.1", 2)})
    assert options == {
        "bootstrap.servers": "127.0.0.1:2", "security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "PLAIN"
    }  # fmt: skip


def test_changes_are_shown_first_and_need_a_form_of_this_console(running: Running) -> None:
    """Without --http-changes there are none; with it a link only shows, and a form needs the session's token."""
    assert ask(running.port, "/change?kind=delete&group=batch").status == 404
    assert "/change" not in ask(running.port, "/group?id=billing").text
    admin, place = running.admin, TopicPartition("batches", 0)
    admin.create_topic("batches", 1)
    with kohort.Producer(bootstrap_servers=running.broker.bootstrap_servers) as producer:
        producer.send("batches", b"x").result(WAIT_S)
    admin.alter_group_offsets("batch", {place: 0})
    server = serve({"bootstrap.servers": running.broker.bootstrap_servers}, has_changes=True)
    try:
        port = port_of(server)
        assert "/change?kind=delete&amp;group=batch" in ask(port, "/group?id=batch").text
        shown = ask(port, "/change?kind=delete&group=batch").text
        assert "Nothing is changed yet." in shown and admin.list_group_offsets(["batch"])["batch"]
        token = re.findall(r'name="form_token" value="([^"]+)"', shown)[0]
        for fields in ("kind=delete&group=batch", "kind=delete&group=batch&form_token=x"):
            assert ask(port, "/change", "POST", fields).status == 403
        assert ask(port, "/change", "POST", "x" * 70_000).status == 413
        foreign = {"Origin": "http://evil.example"}
        assert ask(port, "/change", "POST", f"kind=delete&group=batch&form_token={token}", **foreign).status == 403
        assert admin.list_group_offsets(["batch"])["batch"]

        refused = ask(port, "/change", "POST", f"kind=reset&group=billing&to=earliest&form_token={token}")
        assert refused.status == 409 and "stop them first" in refused.text
        for fields in (
            "kind=config&group=batch&name=group.moves.paused&value=true",
            "kind=topic-config&topic=batches&name=retention.ms&value=7200000",
            "kind=reset&group=batch&to=latest",
        ):
            assert "What it would do" in ask(port, f"/change?{fields}").text
            assert "Done." in ask(port, "/change", "POST", f"{fields}&form_token={token}").text
        configs = {each.name: each.value for each in admin.describe_group_configs("batch")}
        assert configs["group.moves.paused"] == "true"
        assert admin.list_group_offsets(["batch"])["batch"][place].offset == 1
        assert "Done." in ask(port, "/change", "POST", f"kind=delete&group=batch&form_token={token}").text
        assert "batch" not in [each.group_id for each in admin.list_groups()]
        member = admin.describe_group("billing").members[0].member_id
        moved = ask(port, f"/change?kind=move&group=billing&topic=orders&partition=0&member={member}")
        assert "Nothing is changed yet." in moved.text
        assert "has no member" in ask(port, "/change?kind=remove&group=billing&member=nobody").text
        assert "a number from 0" in ask(port, "/change?kind=move&group=billing&topic=orders&partition=x&member=m").text
    finally:
        stop(server)


def test_each_visitor_sees_and_does_what_its_user_may() -> None:
    """The broker's own users: a page is read, and a change made, by the login of its visitor."""
    users = {"root": "wonder", "ann": "builder"}
    words = " ".join(f'user_{name}="{password}"' for name, password in users.items())
    config = {
        "listeners": "SASL_PLAINTEXT://127.0.0.1:0",
        "sasl.enabled.mechanisms": "PLAIN",
        "sasl.jaas.config": f"org.apache.kafka.common.security.plain.PlainLoginModule required {words};",
        "super.users": "User:root",
        "connection.failed.authentication.delay.ms": 0,
    }
    with kohort.Broker(config=config) as broker:
        options = {
            "bootstrap.servers": broker.bootstrap_servers, "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": "PLAIN",
        }  # fmt: skip
        own = {"sasl.username": "root", "sasl.password": users["root"]}
        with kohort.Admin({**options, **own}) as admin:
            admin.create_topic("orders", 1)
            for group in ("billing", "secret"):
                admin.alter_group_offsets(group, {TopicPartition("orders", 0): 0})
            of_ann = {"principal": "User:ann", "operation": "describe"}
            admin.create_acls([kohort.Acl(resource_type="group", name="billing", **of_ann)])
            server = serve(options, asks_for_users=True, has_changes=True)
            try:
                port, cookies = port_of(server), {}
                assert ask(port, "/login", "POST", "name=ann&password=wrong").status == 403
                for name, password in users.items():
                    opened = ask(port, "/login", "POST", f"name={name}&password={password}")
                    cookies[name] = opened.headers["Set-Cookie"].partition(";")[0]
                seen = {
                    name: [each["id"] for each in json.loads(ask(port, "/groups.json", Cookie=cookie).text)["groups"]]
                    for name, cookie in cookies.items()
                }
                assert seen == {"root": ["billing", "secret"], "ann": ["billing"]}
                assert ask(port, "/group?id=secret", Cookie=cookies["ann"]).status != 200
                answers = []
                for cookie in (cookies["ann"], cookies["root"]):
                    shown = ask(port, "/change?kind=config&group=billing&name=group.moves.paused", Cookie=cookie).text
                    (token,) = set(re.findall(r'name="form_token" value="([^"]+)"', shown))
                    fields = f"kind=delete&group=billing&form_token={token}"
                    answers.append(ask(port, "/change", "POST", fields, Cookie=cookie))
                assert [each.status for each in answers] == [409, 200] and "AUTHORIZATION_FAILED" in answers[0].text
                assert ask(port, "/logout", "POST", f"form_token={token}", Cookie=cookies["root"]).status == 303
                assert ask(port, "/groups.json", Cookie=cookies["root"]).status == 401
            finally:
                stop(server)


@pytest.mark.parametrize(
    ("sent", "answer"),
    [
        (b"GET /gro", b""),
        (b"\x00\x00\x00\x20\x00\x12\x00\x03", b"HTTP/1.1 400"),
        (b"GET / HTTP/1.1\r\nHost: localhost\r\nX: " + b"x" * 20_000, b"HTTP/1.1 400"),
        (b"GET /groups HTTP/1.0\r\nHost: localhost\r\n\r\n", b"HTTP/1.1 200"),
        (b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n" + PAUSE + b"GET /gro", b"HTTP/1.1 303"),
        (
            b"POST /login HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9\r\nConnection: close\r\n\r\nna",
            b"HTTP/1.1 403",
        ),
        (b"HEAD /events HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n", b"HTTP/1.1 405"),
    ],
    ids=[
        "half a request",
        "Kafka",
        "a long head",
        "HTTP/1.0",
        "half a second request",
        "half a form",
        "HEAD of events",
    ],
)
def test_requests_that_do_not_come_hold_no_place(
    running: Running, sent: bytes, answer: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each connection is closed by the console, after what could be answered."""
    monkeypatch.setattr(serving, "HEAD_SECONDS", 0.05)
    monkeypatch.setattr(access, "HEAD_SECONDS", 0.05)
    with socket.create_connection(("127.0.0.1", running.port), timeout=WAIT_S) as client:
        first, pause, second = sent.partition(PAUSE)
        client.sendall(first)
        found = client.recv(65536) if pause else b""
        client.sendall(second)
        try:
            while piece := client.recv(65536):
                found += piece
        except ConnectionResetError:
            pass
    assert found.startswith(answer) if answer else found == b""


def test_connections_that_ask_nothing_make_room_for_those_that_do(
    running: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The longest wait ends first; a probe of the broker's health is answered all the while."""
    monkeypatch.setattr(serving, "_FULL", 8)
    with ExitStack() as stack:
        address = ("127.0.0.1", running.port)
        hanging = [stack.enter_context(socket.create_connection(address, timeout=WAIT_S)) for _ in range(20)]
        for client in hanging[12:]:
            client.sendall(b"GET /gro")
        assert ask(running.port, "/groups").status == 200
        with suppress(ConnectionResetError):
            assert hanging[0].recv(1) == b""
        hanging[-1].sendall(b"ups HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert hanging[-1].recv(12) == b"HTTP/1.1 200"


def test_more_rebalances_than_ticks_are_drawn_as_their_density() -> None:
    """With their number: none is left out without a word."""
    rebalance = GroupRebalance(
        number=1, first_number=1, protocol="consumer", began_ms=0, computed_ms=0, ended_ms=0, overtaken_by=None,
        triggers=(), moves=(), unnamed=0, delays=(), sentence="the rebalance to epoch 1",
    )  # fmt: skip
    many = [replace(rebalance, began_ms=1_000 * number, ended_ms=1_000 * number + 70) for number in range(1_234)]
    bounds = {"from_ms": 0, "to_ms": 2_000_000}
    picture: dict[str, Any] = {**bounds, "members": [], "lanes": [], "lags": []}
    marked = mark_rebalances(many, lambda each: f"/rebalance?began={each.began_ms}", **bounds)
    assert marked["seams"] == [] and sum(bar["count"] for bar in marked["density"]) == 1_234
    drawn = draw_lanes({**picture, **marked})
    assert ">1,234</text>" in drawn and "the longest took 70 ms" in drawn and 'class="seam"' not in drawn
    zoomed = mark_rebalances(many, lambda _: "/rebalance", from_ms=0, to_ms=9_000)
    assert len(zoomed["seams"]) == 10 and zoomed["density"] == []


def test_a_picture_stays_bounded() -> None:
    """A group that rebalances all the time: what is narrower than a unit is seen when the picture is zoomed."""
    spans = [
        {"member": f"m{number}", "from_ms": number, "to_ms": number + 1, "said": "x" * 100, "is_unread": is_unread}
        for is_unread in (False, True)
        for number in range(20_000)
    ]
    lane = {"name": "orders-0", "href": "/partition", "spans": spans}
    picture = {"members": [], "lanes": [lane], "seams": [], "lags": [[each, each % 7] for each in range(20_000)]}
    whole = draw_lanes({"from_ms": 0, "to_ms": 20_000, **picture})
    zoomed = draw_lanes({"from_ms": 100, "to_ms": 110, **picture})
    assert len(whole) < 500_000 and whole.count('class="unread"') > 700
    assert zoomed.count('class="unread"') == 10 and ">m105</text>" in zoomed
