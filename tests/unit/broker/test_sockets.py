"""The sockets of listeners: all or none, and none by which strangers come in unasked."""

from __future__ import annotations

import os
import socket
from contextlib import ExitStack
from pathlib import Path

import pytest

from kohort.broker.connections.sockets import BrokerStartError, listen_on_all, refuse_strangers
from kohort.broker.embedded import Broker
from kohort.broker.options.settings import BrokerSettings
from kohort.errors import ConfigError
from kohort.wire.messages.api_versions import ApiVersionsRequest
from kohort.wire.registry import ApiKey
from support.dialogues.broker_wire import RawClient, encode_request
from support.waiting import PATIENCE_SECONDS

TWO = {
    "listeners": "IN://127.0.0.1:0,OUT://127.0.0.1:0",
    "listener.security.protocol.map": "IN:PLAINTEXT,OUT:PLAINTEXT",
}
LOGIN = {"sasl.enabled.mechanisms": "PLAIN"}


@pytest.mark.parametrize("address", ["10.0.0.7", "0.0.0.0", "::", "2001:db8::7", "::ffff:10.0.0.7", "192.168.0.1"])
@pytest.mark.parametrize(
    ("protocol", "auth", "lacking"),
    [
        ("PLAINTEXT", "none", "a login and TLS"),
        ("PLAINTEXT", "required", "a login and TLS"),
        ("SSL", "none", "a login"),
        ("SSL", "requested", "a login"),
        ("SSL", "required", None),
        ("SASL_PLAINTEXT", "none", "TLS"),
        ("SASL_SSL", "none", None),
    ],
)
def test_listener_that_strangers_reach_needs_a_login_and_tls(
    address: str, protocol: str, auth: str, lacking: str | None
) -> None:
    config = {"listeners": f"{protocol}://[{address}]:9092", "ssl.client.auth": auth, **LOGIN}
    (listener,) = BrokerSettings.of(config).listeners
    (allowed,) = BrokerSettings.of({**config, "allow.anonymous.beyond.loopback": "true"}).listeners
    refuse_strangers(allowed, address)
    for near in ("127.0.0.1", "127.9.9.9", "::1", "::ffff:127.0.0.1"):
        refuse_strangers(listener, near)
    if lacking is None:
        refuse_strangers(listener, address)
        return
    with pytest.raises(BrokerStartError) as raised:
        refuse_strangers(listener, address)
    told = str(raised.value)
    assert f"can be reached from other machines without {lacking}: secure it" in told
    assert all(way in told for way in ("SASL_SSL", "listen on 127.0.0.1", "--allow-anonymous")), "three ways out"
    assert "\n" not in told and told.count(". ") == 0, "one sentence"


@pytest.mark.parametrize("process", [False, True], ids=["thread", "process"])
def test_open_broker_does_not_start_and_leaves_its_directory_alone(process: bool, tmp_path: Path) -> None:
    data = tmp_path / "data"
    with pytest.raises(
        BrokerStartError, match=r"listener PLAINTEXT on 0\.0\.0\.0:0 can be reached from other machines"
    ):
        Broker(host="0.0.0.0", data_dir=data, process=process).start()
    assert not data.exists()


def test_name_counts_as_the_address_that_stands_behind_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """The name of this machine may be that of 127.0.1.1, or of the address that all others know."""
    (settings,) = [BrokerSettings.of({"listeners": "PLAINTEXT://broker.example:0"})]
    # The resolver of the system is not ours.
    monkeypatch.setattr(
        socket, "getaddrinfo", lambda *_, **__: [(socket.AF_INET, socket.SOCK_STREAM, 6, "", ("0.0.0.0", 0))]
    )
    with pytest.raises(BrokerStartError, match=r"listener PLAINTEXT on broker\.example:0 can be reached"):
        listen_on_all(settings)
    monkeypatch.setattr(
        socket, "getaddrinfo", lambda *_, **__: [(socket.AF_INET, socket.SOCK_STREAM, 6, "", ("127.0.1.1", 0))]
    )
    (bound,) = listen_on_all(settings)
    bound.close()


def test_all_are_bound_before_the_directory_is_opened_or_none_is(tmp_path: Path) -> None:
    data = tmp_path / "data"
    with socket.create_server(("127.0.0.1", 0)) as taken, socket.create_server(("127.0.0.1", 0)) as free:
        first, second = free.getsockname()[1], taken.getsockname()[1]
        free.close()
        protocols = {"listener.security.protocol.map": "A:PLAINTEXT,B:PLAINTEXT"}
        config = {"listeners": f"A://127.0.0.1:{first},B://127.0.0.1:{second}", **protocols}
        before = len(os.listdir("/proc/self/fd"))
        with pytest.raises(BrokerStartError, match=f"cannot listen on 127.0.0.1:{second}: the port is in use"):
            listen_on_all(BrokerSettings.of(config, data_dir=data))
        assert len(os.listdir("/proc/self/fd")) == before
        assert not data.exists()
        socket.create_server(("127.0.0.1", first)).close()


def test_certificate_that_cannot_be_loaded_is_found_before_the_directory_is_opened(tmp_path: Path) -> None:
    data = tmp_path / "data"
    config = {"listeners": "PLAINTEXT://127.0.0.1:0,SSL://127.0.0.1:0", "ssl.keystore.location": "/nowhere.pem"}
    with pytest.raises(ConfigError, match=r"listener SSL: ssl\.keystore\.location: /nowhere\.pem cannot be read"):
        Broker(config=config, data_dir=data).start()
    assert not data.exists()
    with pytest.raises(ConfigError, match=r"listener SSL: ssl\.keystore\.location is needed where TLS is spoken"):
        Broker(config={"listeners": "SSL://127.0.0.1:0"}).start()


def test_one_port_of_ipv4_and_ipv6_has_a_listener_each() -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    protocols = {"listener.security.protocol.map": "A:PLAINTEXT,B:PLAINTEXT", "allow.anonymous.beyond.loopback": True}
    bound = listen_on_all(BrokerSettings.of({"listeners": f"A://0.0.0.0:{port},B://[::]:{port}", **protocols}))
    assert [each.getsockname()[:2] for each in bound] == [("0.0.0.0", port), ("::", port)]
    for each in bound:
        each.close()


@pytest.mark.parametrize("process", [False, True], ids=["thread", "process"])
def test_each_listener_of_a_broker_has_an_address(process: bool) -> None:
    protocols = "listener.security.protocol.map"
    config = {"listeners": "A://127.0.0.1:0,B://[::1]:0", protocols: "A:PLAINTEXT,B:PLAINTEXT"}
    with Broker(config=config, process=process) as broker:
        assert broker.bootstrap_servers == broker.bootstrap_of("a") == f"127.0.0.1:{broker.port}"
        assert broker.bootstrap_of("B").startswith("[::1]:")
        for name in "AB":
            socket.create_connection(_address(broker.bootstrap_of(name)), 5).close()
        with RawClient(broker.port) as client:
            client.create_topic("t")
    for name in "AB":
        with pytest.raises(OSError):
            socket.create_connection(_address(broker.bootstrap_of(name)), 1).close()


def _address(text: str) -> tuple[str, int]:
    host, _, port = text.rpartition(":")
    return host.strip("[]"), int(port)


def test_password_of_a_broker_is_no_argument_of_its_process() -> None:
    config = {"ssl.key.password": "swordfish", "num.partitions": 3, "group.consumer.assignors": ["range", "uniform"]}
    with Broker(config=config, process=True) as broker:
        arguments = Path(f"/proc/{broker.process_id}/cmdline").read_bytes()
        environment = Path(f"/proc/{broker.process_id}/environ").read_bytes()
        assert b"swordfish" not in arguments + environment
        with RawClient(broker.port) as client:
            client.create_topic("t", partitions=-1)


class TestLimits:
    """Connections of a broker with two listeners, of which one is protected."""

    @staticmethod
    def at_work(broker: Broker, listener: str) -> RawClient:
        """A client that has had an answer."""
        client = RawClient(_address(broker.bootstrap_of(listener))[1])
        client.ask(ApiKey.API_VERSIONS, 0, ApiVersionsRequest())
        return client

    @staticmethod
    def is_refused(broker: Broker, listener: str, *, source: str = "127.0.0.1") -> bool:
        """Whether a client that asks for the versions is closed instead of answered."""
        address = _address(broker.bootstrap_of(listener))
        with socket.create_connection(address, PATIENCE_SECONDS, source_address=(source, 0)) as client:
            try:
                client.sendall(encode_request(ApiKey.API_VERSIONS, 0, ApiVersionsRequest()))
                return not client.recv(4)
            except ConnectionError:
                return True

    def test_listener_with_a_number_of_its_own_leaves_the_others_their_room(self) -> None:
        with Broker(config={**TWO, "listener.name.out.max.connections": 2}) as broker, ExitStack() as stack:
            for _ in range(2):
                stack.enter_context(self.at_work(broker, "OUT"))
            assert self.is_refused(broker, "OUT")
            for _ in range(3):
                stack.enter_context(self.at_work(broker, "IN"))

    def test_protected_listener_takes_a_place_of_another(self) -> None:
        config = {**TWO, "max.connections": 3, "inter.broker.listener.name": "in"}
        with Broker(config=config) as broker, ExitStack() as stack:
            outside = [stack.enter_context(self.at_work(broker, "OUT")) for _ in range(3)]
            assert self.is_refused(broker, "OUT")
            inside = stack.enter_context(self.at_work(broker, "IN"))
            assert outside[0].is_closed_by_broker()
            assert self.is_refused(broker, "OUT")
            for each in (inside, *outside[1:]):
                each.ask(ApiKey.API_VERSIONS, 0, ApiVersionsRequest())

    def test_address_has_a_number_of_its_own(self) -> None:
        """By name or address; a listener may have others."""
        config = {
            **TWO,
            "max.connections.per.ip": 1,
            "max.connections.per.ip.overrides": "127.0.0.9:0,localhost:2",
            "listener.name.in.max.connections.per.ip.overrides": "",
        }
        with Broker(config=config) as broker, ExitStack() as stack:
            assert self.is_refused(broker, "OUT", source="127.0.0.9")
            assert not self.is_refused(broker, "OUT", source="127.0.0.8")
            for _ in range(2):
                stack.enter_context(self.at_work(broker, "OUT"))
            assert self.is_refused(broker, "OUT")
            stack.enter_context(self.at_work(broker, "IN"))
            assert self.is_refused(broker, "IN")
            assert not self.is_refused(broker, "IN", source="127.0.0.9")

    def test_host_without_an_address_is_found_at_the_start(self) -> None:
        config = {"max.connections.per.ip.overrides": "..:5"}
        with pytest.raises(BrokerStartError, match=r"max\.connections\.per\.ip\.overrides has '\.\.', a host without"):
            Broker(config=config).start()
