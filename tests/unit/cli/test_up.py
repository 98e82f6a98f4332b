"""`kohort up`: what it takes from file and command line, and what it says."""

from __future__ import annotations

from argparse import Namespace
from pathlib import Path

import pytest

from kohort.broker.options.settings import BrokerSettings
from kohort.cli.main import build_parser, main
from kohort.cli.verbs.up import announcement, gather_config
from kohort.errors import ConfigError


def options(*words: str) -> Namespace:
    return build_parser(["up"]).parse_args(["up", *words])


#: Where the one listener listens.
HERE = {"PLAINTEXT": ("127.0.0.1", 9)}


def announced(
    addresses: dict[str, tuple[str, int]],
    config: dict[str, object] | None = None,
    *,
    data_dir: str | None = None,
    limit_bytes: int = 1 << 30,
) -> list[str]:
    """The lines of a broker whose listeners got these addresses."""
    listeners = BrokerSettings.of(config).listeners
    return announcement(listeners, addresses, data_dir=data_dir, limit_bytes=limit_bytes)


def test_the_command_line_wins_over_the_file(tmp_path: Path) -> None:
    file = tmp_path / "server.properties"
    file.write_text("num.partitions=3\nnode.id=7\n")
    config = gather_config(options("--config-file", str(file), "--config", "num.partitions=5"))
    assert config == {"num.partitions": "5", "node.id": "7"}


def test_a_toml_file_may_nest_names(tmp_path: Path) -> None:
    file = tmp_path / "broker.toml"
    file.write_text('num.partitions = 3\n[group.consumer]\n"heartbeat.interval.ms" = 500\n')
    assert gather_config(options("--config-file", str(file))) == {
        "num.partitions": 3,
        "group.consumer.heartbeat.interval.ms": 500,
    }


def test_in_memory_overrules_the_directory_of_a_file(tmp_path: Path) -> None:
    file = tmp_path / "server.properties"
    file.write_text(f"log.dirs={tmp_path}\nnode.id=7\n")
    assert gather_config(options("--in-memory", "--config-file", str(file))) == {"node.id": "7"}


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    missing = tmp_path / "missing.toml"
    with pytest.raises(ConfigError, match=r"missing\.toml cannot be read: No such file"):
        gather_config(options("--config-file", str(missing)))


def test_a_port_that_is_none_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["up", "--port", "70000"]) == 2
    assert capsys.readouterr().err == "kohort: --port 70000 is not a port: 0 to 65535 is expected\n"


@pytest.mark.parametrize(
    ("host", "ready", "bootstrap"),
    [
        ("127.0.0.1", "ready 127.0.0.1:9", "127.0.0.1:9"),
        ("0.0.0.0", "ready 0.0.0.0:9", "127.0.0.1:9"),
        ("::1", "ready [::1]:9", "[::1]:9"),
        ("::", "ready [::]:9", "[::1]:9"),
    ],
)
def test_the_announcement_ends_with_the_ready_line(host: str, ready: str, bootstrap: str) -> None:
    lines = announced({"PLAINTEXT": (host, 9)})
    assert len(lines) <= 8
    assert lines[-1] == ready
    assert [line for line in lines if line.startswith("ready ")] == [ready]
    assert sum(bootstrap in line for line in lines[1:-1]) == 2, "two snippets to copy"


def test_the_announcement_names_the_directory() -> None:
    assert "data in /data" in announced(HERE, data_dir="/data")[0]
    for limit_bytes, words in (
        (3 << 29, "data in memory (1.5 GiB at most)"),
        (64 << 20, "data in memory (64 MiB at most)"),
    ):
        assert words in announced(HERE, limit_bytes=limit_bytes)[0]


def test_what_clients_are_told_is_said_where_it_is_another_address() -> None:
    """An address that leads nowhere is seen before the first client meets it."""
    lines = announced(HERE, {"advertised.listeners": "PLAINTEXT://outside:443"})
    assert "  clients are told to connect to outside:443 (advertised.listeners)" in lines
    assert lines[-1] == "ready 127.0.0.1:9"
    assert "advertised" not in "".join(announced(HERE))


def test_listeners_of_the_command_line_win_over_the_file(tmp_path: Path) -> None:
    file = tmp_path / "server.properties"
    file.write_text("listeners=PLAINTEXT://:9092\n")
    words = ["--config-file", str(file), "--listen", "PLAINTEXT=127.0.0.1:1", "--listen", "SSL=[::1]:2"]
    assert gather_config(options(*words)) == {"listeners": "PLAINTEXT://127.0.0.1:1,SSL://[::1]:2"}
    assert gather_config(options("--allow-anonymous")) == {"allow.anonymous.beyond.loopback": True}


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--listen", "127.0.0.1:9092"], "--listen '127.0.0.1:9092' is no listener: NAME=HOST:PORT is expected"),
        (["--listen", "PLAINTEXT://127.0.0.1:9092"], "is no listener: NAME=HOST:PORT is expected"),
        (["--listen", "=127.0.0.1:9092"], "is no listener"),
        (["--listen", "A=127.0.0.1:1,B=127.0.0.1:2"], "is no listener"),
        (["--listen", "A=127.0.0.1:1"], "listeners has A, of which listener.security.protocol.map does not say"),
        (["--listen", "SSL=127.0.0.1:1", "--port", "9"], "--listen has a host and a port: leave out --host and --port"),
        (
            ["--listen", "SSL=127.0.0.1:1", "--host", "::1"],
            "--listen has a host and a port: leave out --host and --port",
        ),
        (["--host", "0.0.0.0", "--port", "0"], "listen on 127.0.0.1, or let everyone in with --allow-anonymous"),
    ],
)
def test_wrong_listener_is_one_sentence(words: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["up", *words]) in (1, 2)
    complaint = capsys.readouterr().err
    assert message in complaint
    assert complaint.count("\n") == 1


def test_password_among_the_arguments_is_warned_of_and_not_repeated(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["--config", "listener.name.a.plain.sasl.jaas.config=swordfish", "--config", "node.id=7"]
    gather_config(options(*words))
    complaint = capsys.readouterr().err
    assert "listener.name.a.plain.sasl.jaas.config: every user of this machine can see arguments" in complaint
    assert "swordfish" not in complaint and "node.id" not in complaint
    gather_config(options("--config", "node.id=7"))
    assert capsys.readouterr().err == ""


def test_each_listener_is_announced() -> None:
    config: dict[str, object] = {
        "listeners": "SASL_SSL://0.0.0.0:0,PLAINTEXT://127.0.0.1:0",
        "advertised.listeners": "SASL_SSL://outside:443",
        "sasl.enabled.mechanisms": "PLAIN",
    }
    lines = announced({"SASL_SSL": ("0.0.0.0", 7), "PLAINTEXT": ("127.0.0.1", 8)}, config)
    assert "  listener SASL_SSL (SASL_SSL) on 0.0.0.0:7" in lines
    assert "  listener PLAINTEXT (PLAINTEXT) on 127.0.0.1:8" in lines
    assert "  clients of SASL_SSL are told to connect to outside:443 (advertised.listeners)" in lines
    assert lines[-1] == "ready 0.0.0.0:7 PLAINTEXT=127.0.0.1:8"
    assert sum("SASL_SSL" in line for line in lines if "127.0.0.1:7" in line) == 2, "clients need the protocol"
