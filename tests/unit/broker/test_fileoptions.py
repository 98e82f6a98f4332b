"""Configuration files, above all those that were written for Apache Kafka."""

from __future__ import annotations

from pathlib import Path

import pytest

from kohort.broker.options.configfile import load_config_file
from kohort.broker.options.fileoptions import TakenFile, take_file
from kohort.broker.options.settings import BrokerSettings
from kohort.errors import ConfigError

#: What Apache Kafka 4.3 has in its config/server.properties.
APACHES = {
    "process.roles": "broker,controller",
    "node.id": "1",
    "controller.quorum.bootstrap.servers": "localhost:9093",
    "listeners": "PLAINTEXT://:9092,CONTROLLER://:9093",
    "inter.broker.listener.name": "PLAINTEXT",
    "advertised.listeners": "PLAINTEXT://localhost:9092,CONTROLLER://localhost:9093",
    "controller.listener.names": "CONTROLLER",
    "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,SSL:SSL,SASL_SSL:SASL_SSL",
    "num.network.threads": "3",
    "num.io.threads": "8",
    "socket.send.buffer.bytes": "102400",
    "socket.receive.buffer.bytes": "102400",
    "socket.request.max.bytes": "104857600",
    "log.dirs": "/tmp/kraft-combined-logs",
    "num.partitions": "1",
    "num.recovery.threads.per.data.dir": "1",
    "offsets.topic.replication.factor": "1",
    "share.coordinator.state.topic.replication.factor": "1",
    "share.coordinator.state.topic.min.isr": "1",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "log.retention.hours": "168",
    "log.segment.bytes": "1073741824",
    "log.retention.check.interval.ms": "300000",
}


def take(tmp_path: Path, *lines: str) -> TakenFile:
    file = tmp_path / "server.properties"
    file.write_text("\n".join(lines))
    return take_file(load_config_file(str(file)))


def test_apaches_own_file_starts_a_broker_and_says_what_it_passes_over(tmp_path: Path) -> None:
    taken = take(tmp_path, *(f"{name}={value}" for name, value in APACHES.items()))
    settings = BrokerSettings.of(taken.config)
    assert (settings.host, settings.port, settings.data_dir) == ("0.0.0.0", 9092, "/tmp/kraft-combined-logs")
    first = settings.listeners[0]
    assert (first.advertised_host, first.advertised_port) == ("localhost", 9092)
    passed_over = [name for names in taken.passed_over.values() for name in names]
    assert sorted([*taken.config, *passed_over]) == sorted(APACHES), "each is taken or named"
    remark = taken.remark
    assert remark is not None and "\n" not in remark
    told = remark.removeprefix(f"{tmp_path}/server.properties: ")
    assert "not needed here: process.roles, controller.quorum.bootstrap.servers, " in told


def test_file_of_our_own_options_is_taken_without_a_word(tmp_path: Path) -> None:
    taken = take(tmp_path, "num.partitions=3", "group.consumer.heartbeat.interval.ms=300")
    assert taken.config == {"num.partitions": "3", "group.consumer.heartbeat.interval.ms": "300"}
    assert taken.remark is None


def test_everything_that_is_wrong_is_told_at_once_with_its_line(tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as raised:
        take(
            tmp_path,
            "# the broker",
            "num.partition=3",
            "num.partitions=many",
            "log.retention.hours=1",
            "listeners=PLAINTEXT://:9092,\\",
            "  SSL://9093",
            "delegation.token.secret.key=geheim",
        )
    place = tmp_path / "server.properties"
    lines = str(raised.value).splitlines()
    assert [line.partition(": ")[0] for line in lines] == [f"{place}:{number}" for number in (2, 3, 5, 7)]
    assert lines[0].endswith("unknown broker option num.partition; did you mean num.partitions?")
    assert lines[1].endswith("num.partitions cannot be 'many': a whole number is expected")
    assert "listeners cannot be 'SSL://9093': NAME://HOST:PORT is expected" in lines[2]
    assert "delegation.token.secret.key is not served: there are no delegation tokens" in lines[3]
    assert "geheim" not in lines[3]


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        (
            "authorizer.class.name=org.apache.kafka.Authorizer",
            "StandardAuthorizer is expected, or nothing; no other classes of Java are loaded",
        ),
        ("listener.name.internal.sasl.kerberos.service.name=kafka", r"Kerberos \(GSSAPI\) is not spoken"),
        ("listener.name.internal.principal.builder.class=mine.Builder", "no classes of Java are loaded"),
        ("listener.name.internal.ssl.key.pasword=geheim", "did you mean listener.name.internal.ssl.key.password?"),
        ("listener.name.internal.max.connections=many", "max.connections cannot be 'many': a whole number is expected"),
        ("listener.name.internal.num.partitions=3", "num.partitions holds for all of them"),
        ("listener.security.protocol.map=INSIDE:TLS", "one of PLAINTEXT, SSL, SASL_PLAINTEXT, SASL_SSL is expected"),
        ("default.replication.factor=3", "at most 1 is expected"),
        ("min.insync.replicas=2", "at most 1 is expected"),
        ("offsets.topic.replication.factor=3", "at most 1 is expected"),
        ("config.providers=env", "a value is what stands in the file"),
        ("create.topic.policy.class.name=mine.Policy", "no classes of Java are loaded"),
        ("process.roles=controller", "this is the file of a controller alone"),
        ("sasl.enabled.mechanisms=GSSAPI", "one of PLAIN, SCRAM-SHA-256, SCRAM-SHA-512, OAUTHBEARER is expected"),
        ("port=9092", "broker option port is called listeners here"),
    ],
)
def test_file_is_refused_where_going_on_would_break_a_promise(tmp_path: Path, line: str, expected: str) -> None:
    with pytest.raises(ConfigError, match=expected):
        take(tmp_path, line)


def test_listeners_of_controllers_are_left_out_with_their_options(tmp_path: Path) -> None:
    taken = take(
        tmp_path,
        "listeners=INSIDE://127.0.0.1:7000,KRAFT://:7001",
        "listener.security.protocol.map=INSIDE:PLAINTEXT,KRAFT:SSL",
        "controller.listener.names=KRAFT",
        "listener.name.kraft.ssl.keystore.location=/keys/controller",
        "listener.name.inside.max.connections=9",
        "listener.name.inside.ssl.endpoint.identification.algorithm=",
    )
    assert taken.remark is not None and "listener.name.kraft.ssl.keystore.location" in taken.remark
    assert "listener.name.inside.ssl.endpoint.identification.algorithm" in taken.remark
    (inside,) = BrokerSettings.of(taken.config).listeners
    assert (inside.name, inside.host, inside.port) == ("INSIDE", "127.0.0.1", 7000)
    assert inside.values["max.connections"] == 9


def test_toml_file_is_looked_at_likewise(tmp_path: Path) -> None:
    file = tmp_path / "broker.toml"
    file.write_text('[num]\nio.threads = 8\npartition = 3\n[group.consumer]\nassignors = ["uniform"]\n')
    with pytest.raises(ConfigError) as raised:
        take_file(load_config_file(str(file)))
    assert str(raised.value) == f"{file}: unknown broker option num.partition; did you mean num.partitions?"
    file.write_text(file.read_text().replace("partition =", "partitions ="))
    taken = take_file(load_config_file(str(file)))
    assert taken.config == {"num.partitions": 3, "group.consumer.assignors": ["uniform"]}
    assert taken.remark == f"{file}: not needed here: num.io.threads"
