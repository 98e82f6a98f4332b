"""The driver and its thread against a broker on a real socket: versions, order, timeouts, ends."""

from __future__ import annotations

import os
import socket
import threading
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any

import pytest

from kohort.client.core.actions import Complete, Deliver, Disconnect, Endpoint, Fail, Lane, Send, Stop
from kohort.client.core.requests import DeadlineReached, Failure, RequestFailed, ResponseReceived
from kohort.errors import KohortTimeoutError, StateError
from kohort.wire.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from kohort.wire.messages.metadata import MetadataRequest, MetadataResponse
from kohort.wire.registry import VERSIONS, ApiKey
from kohort.wire.schema import Message
from support.dialogues.rig import WAIT_S, Break, Do, Rig
from support.dialogues.scripted_broker import ScriptedBroker, frame
from support.ports import quiet_port


@pytest.fixture
def rig() -> Any:
    made = Rig()
    yield made
    made.thread.stop()


def echo(api: ApiKey, version: int, request: Message) -> Message:
    """Answers a heartbeat with its generation as the throttle time, and metadata with nothing."""
    if isinstance(request, HeartbeatRequest):
        return HeartbeatResponse(throttle_time_ms=request.generation_id)
    return MetadataResponse(cluster_id=f"v{version}")


def test_versions_are_agreed_and_answers_keep_their_order(rig: Rig) -> None:
    """Pipelined requests of one connection: each answer finds its request."""
    with ScriptedBroker(echo) as broker:
        tokens = [rig.send(broker.endpoint, HeartbeatRequest(group_id="g", generation_id=n)) for n in range(20)]
        answers = [rig.response() for _ in tokens]

    assert [answer.token for answer in answers] == tokens
    assert [answer.message.throttle_time_ms for answer in answers] == list(range(20))  # type: ignore[attr-defined]
    assert {answer.version for answer in answers} == {VERSIONS[ApiKey.HEARTBEAT][1]}
    assert broker.client_ids == {"rig"}
    assert broker.connection_count == 1


def test_version_is_bounded_by_the_request(rig: Rig) -> None:
    """`max_version`, for requests that a later version cannot carry."""
    with ScriptedBroker(echo) as broker:
        rig.send(broker.endpoint, MetadataRequest(topics=[]), max_version=7)

        assert rig.response().version == 7


def test_old_broker_steps_api_versions_down(rig: Rig) -> None:
    """KIP-511: a broker that does not know the version answers in version 0 and says what it knows."""
    with ScriptedBroker(echo, newest_api_versions=1) as broker:
        rig.send(broker.endpoint, HeartbeatRequest(group_id="g"))
        rig.response()

        asked = [version for _, api, version, _ in broker.requests if api is ApiKey.API_VERSIONS]
        assert asked == [3, 1]


def test_missing_api_is_told_without_a_request(rig: Rig) -> None:
    """So that a machine can fall back; other requests of the connection go on."""
    versions = {ApiKey.API_VERSIONS: (0, 4), ApiKey.METADATA: (0, 4)}
    with ScriptedBroker(echo, versions=versions) as broker:
        rig.send(broker.endpoint, HeartbeatRequest(group_id="g"))
        rig.send(broker.endpoint, MetadataRequest(topics=[]))
        rig.send(broker.endpoint, MetadataRequest(topics=[]), min_version=5)

        ends: dict[int, Any] = {event.token: event for event in rig.events(3)}

        assert (ends[1].failure, ends[3].failure) == (Failure.UNSUPPORTED, Failure.UNSUPPORTED)
        assert ends[2].version == 4


def test_value_that_cannot_be_encoded_fails_alone(rig: Rig) -> None:
    """A bug of one request must not cost the connection."""
    with ScriptedBroker(echo) as broker:
        rig.send(broker.endpoint, HeartbeatRequest(group_id="g", generation_id=1 << 40))
        rig.send(broker.endpoint, HeartbeatRequest(group_id="g", generation_id=3))

        assert rig.failure().failure is Failure.UNENCODABLE
        assert rig.response().message == HeartbeatResponse(throttle_time_ms=3)


def test_lanes_are_connections_of_their_own(rig: Rig) -> None:
    """A fetch that waits must not hold up a heartbeat."""

    def handler(api: ApiKey, version: int, request: Message) -> Message | None:
        return None if isinstance(request, MetadataRequest) else echo(api, version, request)

    with ScriptedBroker(handler) as broker:
        rig.send(broker.endpoint, MetadataRequest(topics=[]), lane=Lane.FETCH)
        rig.send(broker.endpoint, HeartbeatRequest(group_id="g"), lane=Lane.COORDINATOR)

        assert isinstance(rig.response().message, HeartbeatResponse)
        assert broker.connection_count == 2


def test_refused_connection_names_the_reason(rig: Rig) -> None:
    """At once, and once per request."""
    with ScriptedBroker(echo) as broker:
        nowhere = broker.endpoint
    rig.send(nowhere, HeartbeatRequest(group_id="g"))

    failed = rig.failure()

    assert (failed.failure, failed.detail) == (Failure.UNREACHABLE, "Connection refused")


def test_broker_that_is_down_is_logged_once_and_once_more_when_it_is_back(caplog: pytest.LogCaptureFixture) -> None:
    """However often, and over however many connections, it is tried."""
    rig = Rig(reconnect_backoff_max_ms=1)
    with ScriptedBroker(echo, port=quiet_port()) as broker:
        address = broker.endpoint
        rig.send(address, HeartbeatRequest(group_id="g"))
        rig.response()
    for _ in range(9):
        for lane in Lane:
            rig.send(address, HeartbeatRequest(group_id="g"), lane=lane)
            rig.failure()
    assert messages(caplog) == [f"broker {address} cannot be reached (Connection refused); retrying"]

    caplog.clear()
    with ScriptedBroker(echo, port=address.port):
        for lane in Lane:
            rig.send(address, HeartbeatRequest(group_id="g"), lane=lane)
            rig.response()
        rig.thread.stop()

    assert messages(caplog) == [f"broker {address}: connected again"]


def test_short_absence_is_not_worth_a_line(rig: Rig, caplog: pytest.LogCaptureFixture) -> None:
    """A broker that restarts."""
    with ScriptedBroker(echo, port=quiet_port()) as broker:
        address = broker.endpoint
    for _ in range(3):
        rig.send(address, HeartbeatRequest(group_id="g"))
        rig.failure()
    with ScriptedBroker(echo, port=address.port):
        rig.send(address, HeartbeatRequest(group_id="g"))
        rig.response()

    assert messages(caplog) == []


def messages(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records]


@pytest.mark.parametrize(
    ("said", "heard"),
    [
        (b"HTTP/1.1 400 Bad Request\r\n\r\n", "it looks like HTTP"),
        (bytes.fromhex("15030100020228"), "it looks like TLS"),
        (b"SSH-2.0-OpenSSH_9.2\r\n", "bytes that do not follow the protocol: a frame of 1397966893 bytes"),
        (b"", "the broker closed the connection"),
        (None, "none within 0.2 s, is it HTTP or TLS?"),
    ],
    ids=["web server", "TLS", "SSH", "hangs up", "says nothing"],
)
def test_port_of_another_service_is_told_from_a_broker(said: bytes | None, heard: str) -> None:
    """Nothing of the request was sent, and the reason is not the address."""
    rig = Rig(request_timeout_ms=200)
    with socket.create_server(("127.0.0.1", 0)) as server:
        over = threading.Event()

        def serve() -> None:
            connection = server.accept()[0]
            with connection:
                connection.recv(1000)
                if said is None:
                    over.wait(WAIT_S)
                else:
                    connection.sendall(said)

        thread = threading.Thread(target=serve)
        thread.start()
        rig.send(Endpoint(*server.getsockname()), HeartbeatRequest(group_id="g"))
        failed = rig.failure()
        over.set()
        thread.join(WAIT_S)
    rig.thread.stop()

    assert failed.failure is Failure.NO_BROKER
    assert failed.detail.startswith(f"connected, but no Kafka answer: {heard}")


def test_unknown_host_is_unreachable(rig: Rig) -> None:
    """A name that does not resolve."""
    rig.send(Endpoint("no-such-host.invalid", 9092), HeartbeatRequest(group_id="g"))

    assert rig.failure().failure is Failure.UNREACHABLE


@pytest.mark.parametrize(
    "endpoint",
    [Endpoint("127.0.0.1", 70_000), Endpoint("127.0.0.1", -1), Endpoint("x" * 70, 9092), Endpoint("a\0b", 9092)],
    ids=["port too large", "port below 0", "name too long", "no name"],
)
def test_address_that_is_none_is_unreachable(rig: Rig, endpoint: Endpoint) -> None:
    """A broker may name such a one; each attempt ends, not only the first."""
    for _ in range(2):
        rig.send(endpoint, HeartbeatRequest(group_id="g"), timeout_ms=3_600_000)

        failed = rig.failure()
        assert failed.failure is Failure.UNREACHABLE
        assert failed.detail


def test_connection_is_opened_again_when_it_is_needed(rig: Rig) -> None:
    """A broker that restarts."""
    with ScriptedBroker(echo) as broker:
        rig.send(broker.endpoint, HeartbeatRequest(group_id="g"))
        rig.response()
        broker.drop_connections()
        answered = 0
        # The first one may meet the broken connection before its end is noticed.
        for _ in range(3):
            rig.send(broker.endpoint, HeartbeatRequest(group_id="g"))
            answered += isinstance(rig.machine.heard.get(timeout=WAIT_S), ResponseReceived)

        assert answered >= 2
        assert broker.connection_count >= 2


def test_everything_in_flight_fails_with_the_connection(rig: Rig) -> None:
    """Each request ends in exactly one event."""
    with ScriptedBroker(lambda *_: None) as broker:
        tokens = {rig.send(broker.endpoint, HeartbeatRequest(group_id="g")) for _ in range(3)}
        while len(broker.requests) < 4:
            threading.Event().wait(0.01)
        broker.drop_connections()

        failed = [rig.failure() for _ in tokens]

    assert {each.token for each in failed} == tokens
    assert {each.failure for each in failed} == {Failure.DISCONNECTED}


def test_silent_broker_times_out(rig: Rig) -> None:
    """request.timeout.ms: the connection is given up, since answers come in order."""
    with ScriptedBroker(lambda *_: None) as broker:
        rig.send(broker.endpoint, HeartbeatRequest(group_id="g"), timeout_ms=60)

        assert rig.failure().failure is Failure.TIMED_OUT


def test_answer_out_of_order_ends_the_connection(rig: Rig) -> None:
    """A wrong correlation id means that nothing that follows can be trusted."""

    def handler(api: ApiKey, version: int, request: Message) -> bytes:
        return frame(api, version, HeartbeatResponse(), 4711)

    with ScriptedBroker(handler) as broker:
        rig.send(broker.endpoint, HeartbeatRequest(group_id="g"))

        failed = rig.failure()

    assert failed.failure is Failure.DISCONNECTED
    assert "4711" in failed.detail


@pytest.mark.parametrize("garbage", [b"\x00\x00\x00\x05\x00\x00\x00\x02\xff", b"\x7f\xff\xff\xff", b"\xff\xff\xff\xff"])
def test_garbage_ends_the_connection_and_nothing_else(rig: Rig, garbage: bytes) -> None:
    """The request fails; the client goes on."""
    with ScriptedBroker(lambda *_: garbage) as broker:
        rig.send(broker.endpoint, HeartbeatRequest(group_id="g"))

        assert rig.failure().failure is Failure.DISCONNECTED
        assert rig.thread.is_running


def test_request_after_a_disconnect_goes_over_the_next_connection(rig: Rig) -> None:
    """What was under way fails, what comes after does not wait for it."""
    with ScriptedBroker(lambda api, *rest: None if api is ApiKey.METADATA else echo(api, *rest)) as broker:
        rig.send(broker.endpoint, HeartbeatRequest(group_id="g"))
        rig.response()
        parked = rig.send(broker.endpoint, MetadataRequest(topics=[]))
        rig.do(
            Disconnect(to=broker.endpoint, lane=Lane.CONTROL),
            Send(
                token=99,
                to=broker.endpoint,
                lane=Lane.CONTROL,
                request=HeartbeatRequest(group_id="g"),
                min_version=None,
                max_version=None,
                timeout_ms=5_000,
                has_response=True,
            ),
        )

        ends = {event.token: event for event in rig.events(2)}

    assert isinstance(ends[parked], RequestFailed)
    assert isinstance(ends[99], ResponseReceived)


def test_request_without_an_answer_counts_as_done_when_sent(rig: Rig) -> None:
    """Produce with acks=0."""
    with ScriptedBroker(lambda *_: None) as broker:
        request = HeartbeatRequest(group_id="g")
        rig.send(broker.endpoint, request, has_response=False)

        assert rig.response().message is request


def test_what_waited_for_the_connection_goes_first(rig: Rig) -> None:
    """acks=0: sending the first is what makes the machine send more, which must not overtake what is queued."""

    def request(number: int, *, has_response: bool) -> Send:
        return Send(
            token=number,
            to=broker.endpoint,
            lane=Lane.PRODUCE,
            request=HeartbeatRequest(group_id="g", generation_id=number),
            timeout_ms=5_000,
            min_version=None,
            max_version=None,
            has_response=has_response,
        )

    arrived: list[int] = []

    def answer(_: ApiKey, __: int, asked: Message) -> Message | None:
        assert isinstance(asked, HeartbeatRequest)
        arrived.append(asked.generation_id)
        return HeartbeatResponse() if asked.generation_id == 4 else None

    with ScriptedBroker(answer) as broker:
        rig.machine.reaction = [request(4, has_response=True)]
        rig.do(*(request(number, has_response=False) for number in (1, 2, 3)))
        assert [event.token for event in rig.events(4)] == [1, 2, 3, 4]
        assert arrived == [1, 2, 3, 4]


def test_deadlines_are_kept(rig: Rig) -> None:
    """`next_deadline` is asked after every event."""
    rig.machine.deadline = rig.thread.now_ms() + 20
    rig.do()

    assert isinstance(rig.machine.heard.get(timeout=WAIT_S), DeadlineReached)


def test_tickets_end_on_the_thread_that_waits(rig: Rig) -> None:
    """`call` returns the value or raises the error."""
    assert rig.thread.call(lambda ticket: Do((Complete(ticket=ticket, value=7),)), 5) == 7
    with pytest.raises(StateError, match="no"):
        rig.thread.call(lambda ticket: Do((Fail(ticket=ticket, error=StateError("no")),)), 5)
    with pytest.raises(KohortTimeoutError, match="within"):
        rig.thread.call(lambda _: Do(()), 0.02)
    assert threading.get_ident() not in rig.machine.threads


def test_ticket_may_fail_with_a_timeout_of_its_own(rig: Rig) -> None:
    """It is not mistaken for the wait's."""
    with pytest.raises(KohortTimeoutError, match="of the machine"):
        rig.thread.call(lambda ticket: Do((Fail(ticket=ticket, error=KohortTimeoutError("of the machine")),)), 5)


def test_ticket_that_was_given_up_may_still_end(rig: Rig) -> None:
    """Nobody listens; nothing breaks."""
    ticket: Future[object] = Future()
    ticket.cancel()
    rig.do(Complete(ticket=ticket, value=1), Deliver(item="after"))

    assert rig.delivered.get(timeout=WAIT_S) == "after"


def test_stop_ends_the_thread(rig: Rig) -> None:
    """The machine says when; later posts are refused."""
    rig.do(Stop())

    assert rig.thread.join(WAIT_S)
    with pytest.raises(StateError, match="closed"):
        rig.do()


@pytest.mark.logs_bugs
def test_bug_in_a_machine_stops_the_client_and_its_callers(rig: Rig, caplog: pytest.LogCaptureFixture) -> None:
    """Nobody waits for ever for a thread that is gone."""
    ticket: Future[object] = Future()
    rig.do()
    rig.thread.post(Break())

    assert rig.crashed.wait(WAIT_S)
    with pytest.raises(StateError, match="internal error"):
        rig.thread.wait(ticket, 60)
    assert "machine failed" in caplog.text


def test_tickets_end_with_the_driver(rig: Rig) -> None:
    """Those of a machine that stops without ending them, and those that come too late for it."""
    held, late = Future[object](), Future[object]()

    @dataclass(frozen=True)
    class Asked(Do):
        ticket: Future[object]

    rig.thread.post(Asked(actions=(), ticket=held))
    rig.thread.post(Asked(actions=(Stop(),), ticket=late))

    for ticket in (held, late):
        with pytest.raises(StateError, match="this rig is closed"):
            ticket.result(WAIT_S)


def test_fork_is_refused(rig: Rig) -> None:
    """A thread does not survive a fork."""
    rig.do()
    rig.thread._pid = os.getpid() + 1
    with pytest.raises(StateError, match="after a fork"):
        rig.do()
    rig.thread._pid = os.getpid()
