"""A broker from Python: in a thread, in a process, and what keeps it from starting."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import pytest

from kohort.broker import embedded
from kohort.broker.embedded import Broker
from kohort.broker.server import BrokerStartError
from kohort.errors import ConfigError, KohortError, StateError, StorageError, UnknownOptionError
from kohort.records.batch import iterate_records
from kohort.wire.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from kohort.wire.messages.metadata import MetadataRequest
from kohort.wire.registry import ApiKey
from support.dialogues.broker_wire import RawClient, batch_of, fetch_request, produce_request
from support.ports import quiet_port

pytestmark = pytest.mark.process

JOIN = ConsumerGroupHeartbeatRequest(
    group_id="g",
    member_id="m",
    member_epoch=0,
    rebalance_timeout_ms=1000,
    subscribed_topic_names=["t"],
    topic_partitions=[],
)
SOURCE = str(Path(embedded.__file__).parents[2])


def values_in(client: RawClient, topic: str = "t") -> list[bytes | None]:
    answer = client.ask(ApiKey.FETCH, 11, fetch_request(topic))
    return [record.value for record in iterate_records(answer.responses[0].partitions[0].records or b"")]


@pytest.mark.parametrize("process", [False, True])
def test_a_broker_is_there_for_as_long_as_the_block(process: bool) -> None:
    with Broker(process=process) as broker:
        assert broker.bootstrap_servers == f"127.0.0.1:{broker.port}"
        assert (broker.process_id is not None) == process
        with RawClient(broker.port) as client:
            client.create_topic("t")
            assert client.produce("t", b"x").error_code == 0
    with pytest.raises(OSError):
        socket.create_connection(("127.0.0.1", broker.port), 1).close()


@pytest.mark.parametrize(("host", "warnings"), [("127.0.0.1", 0), ("localhost", 0), ("0.0.0.0", 1)])
def test_broker_that_others_can_reach_says_so_once(host: str, warnings: int, caplog: pytest.LogCaptureFixture) -> None:
    """There is no login; nothing said that the network may do everything."""
    allowed = {"allow.anonymous.beyond.loopback": True}
    with Broker(host=host, config=allowed) as broker, RawClient(broker.port) as client:
        client.create_topic("t")
    told = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    assert [
        f"event=open_to_network address={host}:{broker.port} listener=PLAINTEXT reason='without a login and TLS" in line
        for line in told
    ] == [True] * warnings


def test_ctrl_c_is_for_the_program_that_the_broker_belongs_to() -> None:
    """A terminal sends it to both; the broker would be gone before the program has closed its clients."""
    with Broker(process=True) as broker, RawClient(broker.port) as client:
        assert broker.process_id is not None
        os.kill(broker.process_id, signal.SIGINT)
        client.create_topic("t")
        assert client.produce("t", b"x").error_code == 0


@pytest.mark.parametrize("process", [False, True])
def test_data_survives_a_stop(tmp_path: Path, process: bool) -> None:
    for number in range(2):
        with Broker(data_dir=tmp_path, process=process) as broker, RawClient(broker.port) as client:
            if number == 0:
                client.create_topic("t")
            client.produce("t", b"%d" % number)
            assert values_in(client) == [b"0", b"1"][: number + 1]


def test_what_was_acknowledged_survives_a_kill(tmp_path: Path) -> None:
    with Broker(data_dir=tmp_path, process=True) as broker, RawClient(broker.port) as client:
        client.create_topic("t")
        for number in range(200):
            client.send(ApiKey.PRODUCE, 9, produce_request("t", batch_of(b"%d" % number)))
        acknowledged = 0
        for _ in range(100):
            client.receive(ApiKey.PRODUCE, 9)
            acknowledged += 1
        broker.kill()
    with Broker(data_dir=tmp_path) as broker, RawClient(broker.port) as client:
        found = values_in(client)
        assert len(found) >= acknowledged
        assert found == [b"%d" % number for number in range(len(found))]


@pytest.mark.parametrize("process", [False, True])
def test_a_port_in_use_is_named(process: bool) -> None:
    with Broker() as first:
        with pytest.raises(BrokerStartError) as raised:
            Broker(port=first.port, process=process).start()
        assert f"cannot listen on 127.0.0.1:{first.port}: the port is in use" in str(raised.value)
        with RawClient(first.port) as client:
            assert client.ask(ApiKey.METADATA, 1, MetadataRequest(topics=[])).brokers


def test_a_port_in_use_by_the_broker_of_the_same_directory_is_said_to_run_already(tmp_path: Path) -> None:
    """`kohort up` twice."""
    with Broker(data_dir=tmp_path, process=True) as first:
        with pytest.raises(BrokerStartError) as raised:
            Broker(port=first.port, data_dir=tmp_path).start()
        assert str(raised.value) == (
            f"cannot listen on 127.0.0.1:{first.port}: kohort is already running (process {first.process_id}) "
            f"on {tmp_path}; use that one, or stop it first"
        )
        with pytest.raises(BrokerStartError, match="the port is in use; stop the program that holds it"):
            Broker(port=first.port, data_dir=tmp_path / "other").start()
        assert not (tmp_path / "other").exists(), "nothing was made for a broker that cannot start"


@pytest.mark.parametrize("process", [False, True])
def test_a_directory_that_another_broker_holds_is_named(tmp_path: Path, process: bool) -> None:
    with Broker(data_dir=tmp_path, process=True):
        with pytest.raises(KohortError) as raised:
            Broker(data_dir=tmp_path, process=process).start()
        assert str(tmp_path) in str(raised.value)
    with Broker(data_dir=tmp_path):
        pass


def test_a_directory_that_is_not_ours_is_refused_and_left_alone(tmp_path: Path) -> None:
    (tmp_path / "thesis.txt").write_text("years of work")
    with pytest.raises(StorageError) as raised:
        Broker(data_dir=tmp_path).start()
    assert str(tmp_path) in str(raised.value)
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.txt"]


def test_a_failed_start_leaves_the_port_free(tmp_path: Path) -> None:
    (tmp_path / "thesis.txt").write_text("years of work")
    port = quiet_port()
    with pytest.raises(StorageError):
        Broker(data_dir=tmp_path, port=port).start()
    with Broker(port=port) as broker:
        assert broker.port == port


@pytest.mark.parametrize("host", ["no.such.host.invalid", "203.0.113.1"])
def test_an_address_that_is_not_here_is_named(host: str) -> None:
    with pytest.raises(BrokerStartError, match=f"cannot listen on {host}:0"):
        Broker(host=host).start()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"port": "x"}, "port cannot be 'x': a whole number is expected"),
        ({"port": 1.5}, "port cannot be 1.5: a whole number is expected"),
        ({"port": True}, "port cannot be True: a whole number is expected"),
        ({"port": -1}, "port cannot be -1: at least 0 is expected"),
        ({"host": 5}, "host cannot be 5: an address or a name is expected"),
        ({"host": ""}, "host cannot be '': an address or a name is expected"),
        ({"data_dir": 5}, "data_dir cannot be 5: a path is expected"),
        ({"data_dir": ""}, "data_dir cannot be '': a path is expected"),
        ({"data_dir": b"data"}, "data_dir cannot be b'data': a path is expected"),
        ({"data_dir": "a\0b"}, "data_dir cannot be 'a\\x00b': a path is expected"),
        ({"process": "yes"}, "process cannot be 'yes': True or False is expected"),
        (
            {"config": "num.partitions=3"},
            "config cannot be 'num.partitions=3': a mapping of names to values is expected",
        ),
        (
            {"config": ["num.partitions"]},
            "config cannot be ['num.partitions']: a mapping of names to values is expected",
        ),
    ],
)
def test_an_argument_of_the_wrong_kind_is_one_sentence(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError) as raised:
        Broker(**arguments)
    assert str(raised.value) == message


@pytest.mark.parametrize("process", [False, True])
def test_listeners_of_the_config_are_where_it_listens(process: bool) -> None:
    port = quiet_port()
    config = {"listeners": f"PLAINTEXT://localhost:{port}"}
    with Broker(config=config, process=process) as broker:
        assert broker.bootstrap_servers == f"localhost:{port}"
    with Broker(config=config, process=process, port=0, host="127.0.0.1") as broker:
        assert broker.host == "127.0.0.1" and broker.port != port, "arguments win"


def test_a_port_may_be_text() -> None:
    """As it comes from an environment variable."""
    with Broker(port="0") as broker:  # type: ignore[arg-type]
        assert broker.port > 0


def test_a_cluster_id_that_is_not_the_directorys_is_refused(tmp_path: Path) -> None:
    with Broker(data_dir=tmp_path, config={"cluster.id": "first"}):
        pass
    with Broker(data_dir=tmp_path, config={"cluster.id": "first"}):
        pass
    with pytest.raises(StorageError, match=r"belongs to cluster\.id first, not second; leave cluster\.id out"):
        Broker(data_dir=tmp_path, config={"cluster.id": "second"}).start()


def test_configs_are_checked_before_anything_starts() -> None:
    with pytest.raises(UnknownOptionError, match=r"did you mean num\.partitions"):
        Broker(config={"num.partition": 3})
    with pytest.raises(ConfigError, match="port cannot be"):
        Broker(port=99_999)


@pytest.mark.parametrize("process", [False, True])
def test_configs_reach_the_broker(process: bool) -> None:
    with Broker(process=process, config={"num_partitions": 3}) as broker, RawClient(broker.port) as client:
        client.create_topic("t", partitions=-1)
        assert client.produce("t", b"x", partition=2).error_code == 0


def test_misuse_is_told() -> None:
    broker = Broker()
    with pytest.raises(StateError, match="was not started"):
        _ = broker.port
    broker.stop()
    with broker:
        with pytest.raises(StateError, match="is running already"):
            broker.start()
        with pytest.raises(StateError, match="process=True"):
            broker.kill()
    broker.stop()


def test_a_broker_can_be_started_again(tmp_path: Path) -> None:
    broker = Broker(data_dir=tmp_path)
    for _ in range(2):
        with broker:
            assert broker.port > 0


@pytest.mark.parametrize(
    ("process", "name"), [(False, "http_listen"), pytest.param(True, "http.listen", marks=pytest.mark.process)]
)
def test_free_ports_are_the_same_when_it_is_started_again(process: bool, name: str) -> None:
    """Clients and scrapers look for it there."""
    broker = Broker(process=process, config={name: "127.0.0.1:0"})
    found = set()
    for _ in range(2):
        with broker:
            found.add((broker.bootstrap_servers, broker.http_address))
            with urlopen(f"http://{broker.http_address}/healthz", timeout=20) as answer:
                assert answer.status == 200
    assert len(found) == 1


def test_one_of_many_threads_starts_it() -> None:
    """The others hear that it runs; no second broker is left that nobody stops."""
    before = set(threading.enumerate())
    broker = Broker()
    told: list[str] = []

    def start() -> None:
        try:
            broker.start()
        except StateError as why:
            told.append(str(why))

    threads = [threading.Thread(target=start) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    broker.stop()
    assert told == ["this broker is running already"] * 7
    assert set(threading.enumerate()) == before


def test_a_child_that_is_forked_keeps_nothing_of_a_broker(tmp_path: Path) -> None:
    """It is served while it runs; then clients hear the end of their connections, and ports and directory are free."""
    code = (
        "import os, socket, sys\n"
        "from kohort.broker.embedded import Broker\n"
        "protocols = {'listener.security.protocol.map': 'A:PLAINTEXT,B:PLAINTEXT'}\n"
        "ports = {'listeners': 'A://127.0.0.1:0,B://127.0.0.2:0', **protocols}\n"
        "broker = Broker(data_dir=sys.argv[1], config=ports).start()\n"
        "client = socket.create_connection((broker.host, broker.port), 10)\n"
        "versions = b'\\0\\0\\0\\x0a\\0\\x12\\0\\0\\0\\0\\0\\1\\xff\\xff'\n"
        "client.sendall(versions)\n"
        "assert client.recv(4096)\n"
        "asked, asks = os.pipe()\n"
        "if not os.fork():\n"
        "    os.close(asks)\n"
        "    os.read(asked, 1)\n"
        "    os._exit(0)\n"
        "if not os.fork():\n"
        "    sys.exit()\n"
        "os.wait()\n"
        "client.sendall(versions)\n"
        "assert client.recv(4096)\n"
        "broker.stop()\n"
        "assert client.recv(1) == b''\n"
        "ports['listeners'] = ','.join(f'{name}://{broker.bootstrap_of(name)}' for name in 'AB')\n"
        "Broker(data_dir=sys.argv[1], config=ports).start().stop()\n"
        "print('free')\n"
    )
    program = subprocess.run(
        [sys.executable, "-W", "ignore::DeprecationWarning", "-c", code, str(tmp_path)],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": SOURCE},
        timeout=60,
        check=False,
    )
    assert (program.returncode, program.stdout) == (0, "free\n"), program.stderr


def test_a_stop_ends_every_thread_of_the_broker(tmp_path: Path) -> None:
    before = set(threading.enumerate())
    with Broker(data_dir=tmp_path) as broker, RawClient(broker.port) as client:
        client.create_topic("t")
        client.produce("t", b"x")
    assert set(threading.enumerate()) == before


def test_a_stop_answers_the_fetches_that_wait() -> None:
    with Broker() as broker:
        client = RawClient(broker.port)
        client.create_topic("t")
        client.send(ApiKey.FETCH, 11, fetch_request("t", max_wait_ms=60_000))
        # The answer to what was sent behind it on another connection tells that the fetch was read, too.
        with RawClient(broker.port) as other:
            other.ask(ApiKey.METADATA, 1, MetadataRequest(topics=[]))
    with client:
        _, answer = client.receive(ApiKey.FETCH, 11)
        assert answer.responses[0].partitions[0].error_code == 0
        assert client.is_closed_by_broker()


def test_a_process_ends_with_the_one_that_started_it() -> None:
    code = (
        "from kohort.broker.embedded import Broker; import os, signal\n"
        "broker = Broker(process=True).start()\n"
        "print(broker.port, flush=True)\n"
        "os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    # The broker has inherited the error pipe: this returns when both processes are gone.
    parent = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": SOURCE},
        timeout=30,
        check=False,
    )
    assert parent.returncode == -signal.SIGKILL
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", int(parent.stdout)), 10).close()


def test_sigterm_stops_a_process_cleanly(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "kohort.broker", "--port", "0", "--data-dir", str(tmp_path)]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, text=True, env={**os.environ, "PYTHONPATH": SOURCE}
    ) as child:
        assert child.stdout is not None
        assert child.stdout.readline().startswith("ready 127.0.0.1:")
        child.send_signal(signal.SIGTERM)
        assert child.wait(20) == 0


def test_a_broker_whose_disk_fails_says_so_and_ends_with_74(tmp_path: Path) -> None:
    """A sync that failed leaves the disk's content unknown; nothing may be acknowledged after it."""
    code = (
        "import sys\n"
        "from kohort.storage.files import fs\n"
        "from kohort.broker.embedded import serve_in_foreground\n"
        "def fail(self): raise fs.SyncFailedError('cannot make a file durable: disk on fire')\n"
        "def ready(addresses):\n"
        "    fs.DiskFile.sync = fail\n"
        "    print(addresses['PLAINTEXT'][1], flush=True)\n"
        f"sys.exit(serve_in_foreground(data_dir={str(tmp_path / 'data')!r}, port=0, on_ready=ready))\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": SOURCE},
    ) as child:
        assert child.stdout is not None and child.stderr is not None
        port = int(child.stdout.readline())
        with RawClient(port) as client:
            # A member that joins is a record in the coordinator's log.
            client.send(ApiKey.CONSUMER_GROUP_HEARTBEAT, 1, JOIN)
            assert client.is_closed_by_broker()
        assert child.wait(20) == 74
        assert "disk on fire" in child.stderr.read()


@pytest.mark.parametrize("gone", [".", ".lock"])
def test_a_broker_whose_directory_or_lock_has_gone_ends_with_74(tmp_path: Path, gone: str) -> None:
    """What it writes has no name any more, or another one may write beside it."""
    data = tmp_path / "data"
    command = [sys.executable, "-m", "kohort.broker", "--port", "0", "--data-dir", str(data)]
    command += ["--config", "log.flush.offset.checkpoint.interval.ms=100"]
    with subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": SOURCE},
    ) as child:
        assert child.stdout is not None and child.stderr is not None
        assert child.stdout.readline().startswith("ready 127.0.0.1:")
        (data / gone).rename(tmp_path / "away")
        assert child.wait(20) == 74
        assert "was removed or moved away while it was in use" in child.stderr.read()
