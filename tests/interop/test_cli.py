"""Every verb of `kohort` as a user types it, in processes of their own, against a broker that `kohort up` started.

Source: README, "Use it".
"""

from __future__ import annotations

import json
import re
import shlex
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import kohort
from support.peers.cli import TIMEOUT_SECONDS, Finished, environment, run_kohort, started_kohort

pytestmark = pytest.mark.interop


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    with kohort.Broker(config={"group.consumer.heartbeat.interval.ms": 200}) as broker:
        yield broker.bootstrap_servers


def said(done: Finished) -> list[str]:
    """The lines of a command that worked, and did not complain."""
    assert (done.code, done.err) == (0, ""), done
    return done.out.splitlines()


def sent_to_new(done: Finished, partitions: int = 1) -> list[str]:
    """The lines of a `send` that worked, and made its topic."""
    assert done.code == 0, done
    assert re.fullmatch(
        rf"kohort: created topic \S+ \({partitions} partitions?\)\n(kohort: did you mean \S+\?\n)?", done.err
    )
    return done.out.splitlines()


def data(done: Finished) -> Any:
    """The one JSON document of a command that worked."""
    (line,) = said(done)
    return json.loads(line)


def start_of(line: str) -> list[str]:
    return line.split()


# ---- up


@pytest.mark.parametrize("signal_number", [signal.SIGINT, signal.SIGTERM])
def test_up_says_when_it_is_ready_and_stops_cleanly(signal_number: signal.Signals) -> None:
    with started_kohort("up", "--port", "0", "--in-memory") as broker:
        (ready,) = broker.wait_for_lines(1, start="ready ")
        address = ready.removeprefix("ready ")
        assert said(run_kohort("topic", "list", "--bootstrap", address)) == [
            "no topics yet; create one with: kohort topic create NAME"
        ]
        assert broker.end(signal_number) == 0
    assert broker.complaints == []
    assert len(broker.lines) <= 8
    assert broker.lines.count(f"ready {address}") == 1
    assert sum(line.startswith("ready") for line in broker.lines) == 1


def test_up_stops_while_clients_wait_for_records() -> None:
    with started_kohort("up", "--port", "0") as broker:
        address = broker.wait_for_lines(1, start="ready ")[0].removeprefix("ready ")
        said(run_kohort("topic", "create", "waiting", "--bootstrap", address))
        with kohort.Consumer(bootstrap_servers=address, group_id="waiters") as consumer:
            consumer.subscribe(["waiting"])
            while not consumer.assignment():
                consumer.poll(0.1)
            assert broker.end() == 0
    assert broker.complaints == []


def test_up_keeps_topics_and_records_in_its_directory(tmp_path: Path) -> None:
    directory = tmp_path / "data"
    for turn in range(2):
        with started_kohort("up", "--port", "0", "--data-dir", str(directory)) as broker:
            address = broker.wait_for_lines(1, start="ready ")[0].removeprefix("ready ")
            assert str(directory) in broker.lines[0]
            if turn == 0:
                sent_to_new(run_kohort("send", "kept", "--bootstrap", address, stdin="one\ntwo\n"))
            assert said(
                run_kohort("tail", "kept", "--from", "beginning", "--count", "2", "--bootstrap", address)
            ) == ["one", "two"]  # fmt: skip
            assert broker.end(signal.SIGTERM) == 0


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("server.properties", "# a comment\nnum.partitions=3\nlisteners=PLAINTEXT://127.0.0.1:0\nlog.dirs={data}\n"),
        ("broker.toml", 'listeners = "PLAINTEXT://127.0.0.1:0"\n[num]\npartitions = 3\n[log]\ndir = "{data}"\n'),
    ],
)
def test_up_reads_its_configs_from_a_file(tmp_path: Path, name: str, content: str) -> None:
    file = tmp_path / name
    file.write_text(content.format(data=tmp_path / "data"))
    with started_kohort("up", "--config-file", str(file), "--config", "auto.create.topics.enable=false") as broker:
        address = broker.wait_for_lines(1, start="ready ")[0].removeprefix("ready ")
        assert str(tmp_path / "data") in broker.lines[0]
        with kohort.Admin(bootstrap_servers=address) as admin:
            admin.create_topic("given", 2)
        refused = run_kohort("send", "made-by-sending", "--bootstrap", address, stdin="x\n")
        assert refused.code == 1
        assert refused.err.startswith("kohort: topic made-by-sending does not exist")
        assert broker.end() == 0
    assert (tmp_path / "data" / "given-1").is_dir()


def test_up_starts_from_a_file_of_apache_kafka_and_says_what_it_passed_over(tmp_path: Path) -> None:
    file = tmp_path / "server.properties"
    file.write_text(
        "process.roles=broker,controller\nlisteners=PLAINTEXT://127.0.0.1:0,CONTROLLER://:9093\n"
        f"controller.listener.names=CONTROLLER\nnum.io.threads=8\ngroup.share.max.groups=8\nlog.dirs={tmp_path}/data\n"
    )
    with started_kohort("up", "--config-file", str(file)) as broker:
        broker.wait_for_lines(1, start="ready 127.0.0.1:")
        assert broker.end() == 0
    assert broker.complaints == [
        f"kohort: {file}: not acted on yet: group.share.max.groups; "
        "not needed here: process.roles, controller.listener.names, num.io.threads"
    ]
    file.write_text("num.partition=3\n\nsasl.kerberos.service.name=kafka\n")
    refused = run_kohort("up", "--config-file", str(file))
    assert (refused.code, refused.out) == (2, "")
    first, second = refused.err.splitlines()
    assert first == f"kohort: {file}:1: unknown broker option num.partition; did you mean num.partitions?"
    assert second.startswith(f"{file}:3: broker option sasl.kerberos.service.name is not served: ")


def test_up_twice_says_that_it_runs_already(tmp_path: Path) -> None:
    place = ("--data-dir", str(tmp_path / "data"))
    with started_kohort("up", "--port", "0", *place) as broker:
        address = broker.wait_for_lines(1, start="ready ")[0].removeprefix("ready ")
        again = run_kohort("up", "--port", address.rpartition(":")[2], *place)
        assert (again.code, again.out) == (1, "")
        assert again.err == (
            f"kohort: cannot listen on {address}: kohort is already running (process {broker.process.pid}) "
            f"on {tmp_path / 'data'}; use that one, or stop it first\n"
        )


def test_up_creates_topics_with_the_partitions_of_its_config() -> None:
    with started_kohort("up", "--port", "0", "--config", "num.partitions=5") as broker:
        address = broker.wait_for_lines(1, start="ready ")[0].removeprefix("ready ")
        sent_to_new(run_kohort("send", "made", "--bootstrap", address, stdin="x\n"), partitions=5)
        (topic,) = data(run_kohort("topic", "list", "--json", "--bootstrap", address))
    assert topic["partition_count"] == 5


# ---- topic, send, tail


def test_topics_are_created_listed_described_and_deleted(address: str) -> None:
    broker = ("--bootstrap", address)
    create = run_kohort("topic", "create", "orders", "--partitions", "3", "--config", "preallocate=true", *broker)
    assert said(create) == ["created orders with 3 partitions; without effect here: preallocate"]
    header, row = said(run_kohort("topic", "list", *broker))
    assert start_of(header) == ["TOPIC", "PARTITIONS", "ID"]
    assert start_of(row)[:2] == ["orders", "3"]
    internal = [start_of(line)[0] for line in said(run_kohort("topic", "list", "--internal", *broker))]
    assert internal == ["TOPIC", "__consumer_offsets", "orders"]

    title, header, *rows = said(run_kohort("topic", "describe", "orders", *broker))
    assert title.startswith("orders  id ") and title.endswith("  preallocate=true (without effect here)")
    assert [start_of(line) for line in rows] == [[str(number), "1", "0", "0", "0", "0"] for number in range(3)]
    (described,) = data(run_kohort("topic", "describe", "orders", "--json", *broker))
    assert described["configs"] == {"preallocate": "true"}
    assert described["idle"] == {"preallocate": "without effect here"}
    assert [row["partition"] for row in described["partitions"]] == [0, 1, 2]

    again = run_kohort("topic", "create", "orders", *broker)
    assert (again.code, again.out) == (1, "")
    assert again.err.startswith("kohort: TOPIC_ALREADY_EXISTS")
    assert said(run_kohort("topic", "delete", "orders", *broker)) == ["deleted orders"]
    assert data(run_kohort("topic", "list", "--json", *broker)) == []


def test_configs_that_change_nothing_are_said_and_those_that_cannot_be_refused(address: str) -> None:
    broker = ("--bootstrap", address)
    configs = (
        "compression.type=gzip",
        "preallocate=true",
        "min.insync.replicas=2",
        "cleanup.policy=compact",
        "flush.messages=7",
    )
    words = [word for config in configs for word in ("--config", config)]
    assert said(run_kohort("topic", "create", "idle", *words, *broker)) == [
        "created idle with 1 partition; without effect here: min.insync.replicas, preallocate"
    ]
    refused = run_kohort("topic", "create", "typo", "--config", "cleanup.policy=compakt", *broker)
    assert (refused.code, refused.out) == (1, "")
    assert refused.err == (
        "kohort: INVALID_CONFIG while creating topic typo: "
        "cleanup.policy cannot be 'compakt': one of compact, delete is expected\n"
    )
    said(run_kohort("topic", "delete", "idle", *broker))


def test_topic_commands_speak_json(address: str) -> None:
    created = data(run_kohort("topic", "create", "json", "--json", "--bootstrap", address))
    assert created == {"topic": "json", "partitions": 1, "replication_factor": 1, "created": True, "idle": {}}
    deleted = data(run_kohort("topic", "delete", "json", "--json", "--bootstrap", address))
    assert deleted == {"deleted": ["json"]}


def test_lines_become_records_and_records_lines(address: str) -> None:
    broker = ("--bootstrap", address)
    lines = ["first", "", "ünïcode", "with\ttab", "last without newline"]
    sent = run_kohort("send", "plain", *broker, stdin="\n".join(lines))
    assert sent_to_new(sent) == ["sent 5 records to plain"]
    assert said(run_kohort("tail", "plain", "--from", "beginning", "--count", "5", *broker)) == lines


def test_keyed_lines_keep_their_keys(address: str) -> None:
    broker = ("--bootstrap", address)
    sent = run_kohort("send", "keyed", "--keyed", "--json", *broker, stdin="a\t1\nb\t2\na\t3\t4\n")
    (line,) = sent_to_new(sent)
    assert json.loads(line) == {"topic": "keyed", "sent": 3, "created": True}
    shown = run_kohort("tail", "keyed", "--from", "beginning", "--count", "3", "--keys", *broker)
    assert said(shown) == ["a\t1", "b\t2", "a\t3\t4"]
    rows = [
        json.loads(line)
        for line in said(run_kohort("tail", "keyed", "--from", "beginning", "--count", "3", "--json", *broker))
    ]
    assert [(row["offset"], row["key"], row["value"]) for row in rows] == [
        (0, "a", "1"),
        (1, "b", "2"),
        (2, "a", "3\t4"),
    ]
    assert all(row["topic"] == "keyed" and row["partition"] == 0 and row["headers"] == [] for row in rows)


def test_a_keyed_line_without_key_is_refused(address: str) -> None:
    refused = run_kohort("send", "keyless", "--keyed", "--bootstrap", address, stdin="a\t1\nb\n")
    assert (refused.code, refused.out) == (2, "")
    assert refused.err.splitlines() == [
        "kohort: created topic keyless (1 partition)",
        "kohort: line 2: no tab between key and value; 1 sent before it",
    ]


def test_tail_shows_what_comes_until_it_is_interrupted(address: str) -> None:
    sent_to_new(run_kohort("send", "live", "--bootstrap", address, stdin="before\n"))
    with started_kohort("tail", "live", "--from", "beginning", "--bootstrap", address) as tail:
        tail.wait_for_lines(1)
        said(run_kohort("send", "live", "--bootstrap", address, stdin="after\n"))
        assert tail.wait_for_lines(2) == ["before", "after"]
        assert tail.end() == 130, "128 + SIGINT, as shells expect it"
    assert tail.complaints == []


def test_tail_ends_quietly_when_its_reader_has_gone(address: str) -> None:
    # More than a pipe holds, so that writing goes on after `head` has what it wants.
    sent_to_new(run_kohort("send", "piped", "--bootstrap", address, stdin="x" * 99 + "\n" + ("y" * 99 + "\n") * 2000))
    tail = shlex.join([sys.executable, "-m", "kohort.cli.main", "tail", "piped", "--from", "beginning"])
    piped = subprocess.run(
        ["bash", "-o", "pipefail", "-c", f"{tail} --bootstrap {address} | head -n 1"],
        capture_output=True,
        text=True,
        timeout=TIMEOUT_SECONDS,
        check=False,
        env=environment(),
    )
    assert (piped.returncode, piped.stdout, piped.stderr) == (0, "x" * 99 + "\n", "")


def test_reading_leaves_no_group_behind(address: str) -> None:
    sent_to_new(run_kohort("send", "quiet", "--bootstrap", address, stdin="x\n"))
    said(run_kohort("tail", "quiet", "--from", "beginning", "--count", "1", "--bootstrap", address))
    assert data(run_kohort("group", "list", "--json", "--bootstrap", address)) == []


# ---- group


@pytest.fixture
def group(address: str) -> Iterator[kohort.Consumer]:
    """A member that has read two of three records of partition 0 and owns both partitions; its group is gone later."""
    with kohort.Admin(bootstrap_servers=address) as admin, kohort.Producer(bootstrap_servers=address) as producer:
        admin.create_topic("work", 2)
        for value in ("a", "b", "c"):
            producer.send("work", value, partition=0).result(10)
        member = kohort.Consumer(bootstrap_servers=address, group_id="workers", enable_auto_commit=False)
        try:
            member.subscribe(["work"])
            while len(member.assignment()) < 2:
                member.poll(0.1)
            member.commit({kohort.TopicPartition("work", 0): 2})
            yield member
        finally:
            member.close()
            if any(row.group_id == "workers" for row in admin.list_groups()):
                admin.delete_groups(["workers"])
            admin.delete_topics(["work"])


def test_groups_are_listed_described_and_deleted(address: str, group: kohort.Consumer) -> None:
    broker = ("--bootstrap", address)
    header, row = said(run_kohort("group", "list", *broker))
    assert start_of(header) == ["GROUP", "TYPE", "STATE", "MEMBERS", "LAG"]
    assert start_of(row) == ["workers", "consumer", "Stable", "1", "1"]
    header, row = said(run_kohort("group", "list", "--brief", *broker))
    assert (start_of(header), start_of(row)) == (["GROUP", "TYPE", "STATE"], ["workers", "consumer", "Stable"])

    described = said(run_kohort("group", "describe", "workers", *broker))
    title, header, member, _, ages_header, ages, blank, offsets_header, *offsets = described
    assert title.startswith("workers: consumer, Stable, assignor uniform, epoch ")
    assert start_of(header) == ["MEMBER", "CLIENT", "HOST", "EPOCH", "PARTITIONS"]
    assert start_of(member)[0] == group.member_id and start_of(member)[-1] == "work:0-1"
    assert start_of(ages_header) == ["MEMBER", "HEARD", "POLLED", "FETCHED", "COMMITTED", "SESSION", "LEFT"]
    assert start_of(ages)[0] == group.member_id and "-" not in start_of(ages)[1:]
    assert blank == ""
    assert start_of(offsets_header) == ["TOPIC", "PARTITION", "COMMITTED", "END", "LAG", "MEMBER"]
    assert [start_of(line) for line in offsets] == [
        ["work", "0", "2", "3", "1", group.member_id],
        ["work", "1", "-", "0", "-", group.member_id],
    ]

    refused = run_kohort("group", "delete", "workers", *broker)
    assert (refused.code, refused.out) == (1, "")
    assert refused.err == (
        "kohort: NON_EMPTY_GROUP while deleting group workers: it still has members; stop them first\n"
    )
    group.close()
    assert said(run_kohort("group", "delete", "workers", *broker)) == ["deleted workers"]
    assert said(run_kohort("group", "list", *broker)) == ["no groups yet"]


def test_group_commands_speak_json(address: str, group: kohort.Consumer) -> None:
    broker = ("--json", "--bootstrap", address)
    (row,) = data(run_kohort("group", "list", *broker))
    brief = {"group_id": "workers", "group_type": "consumer", "state": "Stable", "protocol_type": "consumer"}
    assert row == {**brief, "members": 1, "lag": 1}
    assert data(run_kohort("group", "list", "--brief", *broker)) == [brief]
    described = data(run_kohort("group", "describe", "workers", *broker))
    assert described["group"]["members"][0]["member_id"] == group.member_id
    assert described["group"]["members"][0]["assignment"] == [
        {"topic": "work", "partition": 0},
        {"topic": "work", "partition": 1},
    ]
    assert [(row["committed"], row["lag"]) for row in described["offsets"]] == [(2, 1), (None, None)]
    group.close()
    assert data(run_kohort("group", "delete", "workers", *broker)) == {"deleted": ["workers"]}


def test_a_group_is_configured(address: str) -> None:
    """Before it exists, too; without changes the configs are shown."""
    config = ("group", "config", "--bootstrap", address, "planned")
    header, *rows = said(run_kohort(*config, "group.assignor.imbalance=2", "consumer.session.timeout.ms=9000"))
    assert header.split() == ["NAME", "VALUE", "SET", "BY", "MEANING"]
    shown = {row.split()[0]: row.split()[1:3] for row in rows}
    assert shown["group.assignor.imbalance"] == ["2", "group"]
    assert shown["consumer.session.timeout.ms"] == ["9000", "group"]
    assert shown["consumer.heartbeat.interval.ms"] == ["200", "broker"]

    refused = run_kohort(*config, "consumer.session.timeout.ms=50")
    assert (refused.code, refused.out) == (1, "")
    assert "INVALID_CONFIG while altering the configs of group planned" in refused.err
    assert "100 to 1800000 is expected" in refused.err
    nameless = run_kohort(*config, "consumer.session.timeout.ms")
    assert (nameless.code, "is not NAME=VALUE" in nameless.err) == (2, True)

    run_kohort(*config, "group.assignor.imbalance=", "consumer.session.timeout.ms=")
    configs = data(run_kohort(*config, "--json"))
    assert {row["is_own"] for row in configs} == {False}
    assert {"name", "value", "is_own", "doc"} == set(configs[0])


def test_history_says_what_happened_and_why(address: str, group: kohort.Consumer) -> None:
    group.close()
    shown = said(run_kohort("group", "history", "workers", "--bootstrap", address))
    assert start_of(shown[0]) == ["TIME", "CAUSE", "WHAT", "HAPPENED"]
    text = "\n".join(shown)
    for words in (": member joined", " gains work:0-1 (epoch ", ": member left", "counted: "):
        assert words in text

    found = data(run_kohort("group", "history", "workers", "--json", "--bootstrap", address))
    assert found["is_complete"]
    joined = next(event for event in found["events"] if event["event"] == "member_joined")
    given = next(event for event in found["events"] if event["event"] == "assignment_changed")
    assert given["origin"] == joined["cause"]
    assert found["counts"]["commits"] >= 1


def test_why_says_what_led_to_what(address: str, group: kohort.Consumer) -> None:
    group.close()
    why = ("group", "why", "workers", "--bootstrap", address)
    last, phases = said(run_kohort(*why, "--last"))
    assert re.search(
        r" the rebalance to epoch \d+, because \S+ left: work:0-1 of \S+ have no owner any more; it took ", last
    )
    assert re.fullmatch(r" +gathered in \S+ ms, computed in \S+ ms, not taken yet", phases)
    assert said(run_kohort(*why)) == [last, phases, "the group has no members"]
    assert said(run_kohort(*why, "--now")) == ["the group has no members"]
    *_, owner = said(run_kohort(*why, "--partition", "work-1"))
    assert re.search(r"  (\S+) had work:1 for .*, until \1 left$", owner)
    found = data(run_kohort(*why, "--last", "--json"))
    assert (found["protocol"], found["triggers"][0]["trigger"]) == ("consumer", "member left")
    assert data(run_kohort(*why, "--rebalance", str(found["number"]), "--json")) == found
    for option, complaint in (
        (("--rebalance", "99"), r"kohort: the history of group workers has no rebalance 99: it has [0-9, -]+\n"),
        (("--partition", "work-9"), r"kohort: the history of group workers has no partition work-9: it has work:0-1\n"),
    ):
        refused = run_kohort(*why, *option)
        assert (refused.code, refused.out) == (1, "")
        assert re.fullmatch(complaint, refused.err)
    assert run_kohort(*why, "--partition", "work").code == 2


def test_history_of_a_group_that_is_gone_is_shown_to_who_asks_for_it(address: str, group: kohort.Consumer) -> None:
    broker = ("--bootstrap", address)
    group.close()
    said(run_kohort("group", "delete", "workers", *broker))
    refused = run_kohort("group", "history", "workers", *broker)
    assert (refused.code, refused.out) == (1, "")
    assert re.fullmatch(r"kohort: group workers was deleted at [0-9:.]+; --deleted shows its history\n", refused.err)
    shown = said(run_kohort("group", "history", "workers", "--deleted", *broker))
    assert any(line.endswith("  the group is gone") for line in shown[-3:])


def test_a_group_that_is_not_there_is_said_so(address: str) -> None:
    """Whatever was asked of it before: the refusals are in the journal, but no history."""
    for action in ("history", "why", "describe", "delete", "history"):
        refused = run_kohort("group", action, "nobody", "--bootstrap", address)
        assert (refused.code, refused.out) == (1, "")
        assert refused.err.count("\n") == 1
        assert "there is no group nobody" in refused.err


def test_broker_logs_as_much_as_it_is_asked_to() -> None:
    """KIP-412: the level counts for the next line, and what led to it is a line itself."""
    with started_kohort("up", "--port", "0", "--in-memory") as broker:
        bootstrap = ("-b", broker.wait_for_lines(1, start="ready ")[0].split()[1])
        name = "kohort.broker.connections"
        assert run_kohort("broker", "log-level", *bootstrap, f"{name}=debug").out.split() == [
            "LOGGER", "LEVEL", name, "DEBUG",
        ]  # fmt: skip
        run_kohort("topic", "list", *bootstrap)
        lines = broker.wait_for_complaints(3)
        assert f"WARNING event=log_level_changed logger={name} level=DEBUG" in lines[0]
        assert re.search(
            r"DEBUG event=connection_opened peer=127\.0\.0\.1:\d+ listener=PLAINTEXT$", "\n".join(lines), re.M
        )
        assert run_kohort("broker", "log-level", *bootstrap, f"{name}=", "root", "--json").out == (
            f'[{{"logger": "{name}", "level": "WARN"}}, {{"logger": "root", "level": "WARN"}}]\n'
        )
        wrong = run_kohort("broker", "log-level", *bootstrap, "root=loud")
        assert (wrong.code, "Valid log levels are DEBUG, ERROR, FATAL, INFO, TRACE, WARN" in wrong.err) == (1, True)
        unknown = run_kohort("broker", "log-level", *bootstrap, "nothing")
        assert (unknown.code, unknown.err) == (
            2, "kohort: the broker has no logger nothing: kohort broker log-level names all\n",
        )  # fmt: skip
        assert broker.end() == 0
