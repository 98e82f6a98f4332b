"""The command line for hands that know kcat, rpk and kaf, and for the mistakes of a first hour.

Source: issue 8, deliveries 5 and 6.
"""

from __future__ import annotations

import json
import os
import pty
import re
import shlex
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

import kohort
from support.peers.cli import TIMEOUT_SECONDS, Finished, environment, run_kohort, run_python, started_kohort
from support.ports import quiet_port

pytestmark = pytest.mark.interop
KOHORT = shlex.join([sys.executable, "-m", "kohort.cli.main"])


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    """A broker with a topic "flow": four partitions, the values 0 to 9 in partition 0, 10 to 14 in partition 1."""
    with kohort.Broker() as broker:
        with (
            kohort.Admin(bootstrap_servers=broker.bootstrap_servers) as admin,
            kohort.Producer(bootstrap_servers=broker.bootstrap_servers) as producer,
        ):
            admin.create_topic("flow", 4)
            for number in range(15):
                producer.send("flow", str(number), f"k{number}", partition=number // 10).result(10)
            producer.send("flow", b"a\xff", "ü", partition=3).result(10)
        yield broker.bootstrap_servers


def run(line: str, address: str, *, stdin: str | bytes = "", **env: str) -> Finished:
    """A command line with its broker from the environment."""
    return run_kohort(*shlex.split(line), stdin=stdin, env={"KOHORT_BOOTSTRAP": address, **env})


def in_shell(line: str, address: str, **env: str) -> Finished:
    """A line of a shell in which `kohort` is ours."""
    done = subprocess.run(
        ["bash", "-c", line.replace("kohort", KOHORT)],
        capture_output=True,
        text=True,
        timeout=TIMEOUT_SECONDS,
        check=False,
        env=environment({"KOHORT_BOOTSTRAP": address, **env}),
        stdin=subprocess.DEVNULL,
    )
    return Finished(code=done.returncode, out=done.stdout, err=done.stderr)


@pytest.mark.parametrize(
    "line",
    [
        "tail flow -p 1 -e",
        "send flow -p 2",
        "group list --json",
        "log describe .",
        "completion bash",
        "tail flow -p 7",
        "-V",
    ],
)
def test_forked_command_is_as_one_that_is_started(line: str, address: str) -> None:
    """Most tests fork their commands: imports and the entry point are seen here."""
    started = run_python(["-m", "kohort.cli.main", *shlex.split(line)], env={"KOHORT_BOOTSTRAP": address})
    assert run(line, address) == started
    assert started.out or started.err


# ---- what to read


@pytest.mark.parametrize(
    ("words", "values"),
    [
        ("-p 1 -e", [10, 11, 12, 13, 14]),
        ("-p 1 -e --from earliest", [10, 11, 12, 13, 14]),
        ("-p 0,1 -o -2 -e", [8, 9, 13, 14]),
        ("-p 0-1 --from 4 --exit", [4, 5, 6, 7, 8, 9, 14]),
        ("-p 0 --from 10 -e", []),
        ("-p 0 --from latest -e", []),
        ("-p 2 -e", []),
        ("-p 0 -p 1 -e -n 3 --from -1", [9, 14]),
        ("-p 0 --from-beginning -c 2", [0, 1]),
    ],
)
def test_tail_reads_what_it_was_asked_for(words: str, values: list[int], address: str) -> None:
    done = run(f"tail flow {words}", address)
    assert (done.code, done.err) == (0, "")
    assert sorted(map(int, done.out.split())) == values


def test_tail_says_that_it_was_asked_for_what_is_not_there_yet(address: str) -> None:
    done = run("tail flow -p 0 --from 99 -e", address)
    assert (done.code, done.out) == (0, "")
    assert done.err == "kohort: offset 99 is beyond the end, which is at 10\n"


def test_tail_ends_at_what_was_there_when_it_began(address: str) -> None:
    """Records that come while it reads are for the next time; behind a transaction's marker it ends as well."""
    done = run("tail flow --exit -p 3 --json", address)
    (row,) = map(json.loads, done.out.splitlines())
    assert row["value"] == {"base64": "Yf8="}
    assert (row["key"], row["offset"]) == ("ü", 0)


def test_tail_waits_for_an_offset_that_is_not_there_yet(address: str) -> None:
    with started_kohort("tail", "ahead", "--from", "2", "-n", "1", "-b", address) as tail:
        # It is told that there is no such topic.
        assert tail.wait() == 1
    with kohort.Admin(bootstrap_servers=address) as admin:
        admin.create_topic("ahead")
    with started_kohort("tail", "ahead", "--from", "2", "-n", "1", "-b", address) as tail:
        for value in ("zero", "one", "two"):
            run(f"send ahead --key {value}", address, stdin=value)
        assert tail.wait_for_lines(1) == ["two"]
        assert tail.wait() == 0


def test_tail_says_what_it_does_not_show(address: str) -> None:
    run("send noted", address, stdin="1\n2\n3\n")
    with started_kohort("tail", "noted", "-b", address) as tail:
        # What it says first is said from its place.
        tail.wait_for_complaints(1)
        run("send noted", address, stdin="new\n")
        assert tail.wait_for_lines(1) == ["new"]
        tail.end()
    assert tail.complaints == ["kohort: starts at the end; 3 older records: --from beginning"]
    assert tail.lines == ["new"]


def test_a_partition_that_is_not_there_is_refused(address: str) -> None:
    done = run("tail flow -p 1,7", address)
    assert (done.code, done.err) == (2, "kohort: flow has no partition 7: it has 4, counted from 0\n")
    done = run("send flow -p 9", address, stdin="x\n")
    assert done.code == 2
    assert "flow has partitions 0 to 3, there is no 9" in done.err


# ---- what to send


def test_send_takes_partition_key_headers_and_codec(address: str) -> None:
    with kohort.Admin(bootstrap_servers=address) as admin:
        admin.create_topic("shaped", 3)
    done = run("send shaped -p 2 -k id -H a=1 --header b:2 -z zstd", address, stdin="x\n\ny\n")
    assert (done.code, done.out, done.err) == (0, "sent 3 records to shaped\n", "")
    done = run("send shaped -p 2 -K :: -Z", address, stdin="k1::v1\nk2::\n")
    assert (done.code, done.err) == (0, "")
    done = run("tail shaped -e -f '%p %k=%s (%S) [%h]\\n'", address)
    assert done.out.splitlines() == [
        "2 id=x (1) [a=1,b=2]",
        "2 id= (0) [a=1,b=2]",
        "2 id=y (1) [a=1,b=2]",
        "2 k1=v1 (2) []",
        "2 k2=null (-1) []",
    ]


@pytest.mark.parametrize("codec", ["gzip", "snappy", "lz4", "zstd"])
def test_send_compresses(codec: str, address: str) -> None:
    run(f"send codec-{codec} -z {codec}", address, stdin="y" * 5000)
    assert run(f"tail codec-{codec} -e", address).out == "y" * 5000 + "\n"


# ---- mistakes


def test_a_misspelt_topic_is_answered_with_the_nearest(address: str) -> None:
    for line in ("tail folw", "topic describe flwo", "topic delete flows"):
        done = run(line, address)
        assert (done.code, done.out) == (1, "")
        assert done.err == f"kohort: topic {line.split()[-1]} does not exist; did you mean flow?\n"
    done = run("tail xyzzy", address)
    assert (done.code, "did you mean" in done.err) == (1, False)
    done = run("topic delete utterly-else", address)
    assert (done.code, done.err) == (1, "kohort: topic utterly-else does not exist; kohort topic list shows all\n")


def test_a_topic_that_is_made_by_sending_is_said(address: str) -> None:
    done = run("send floww", address, stdin="x\n")
    assert (done.code, done.out) == (0, "sent 1 record to floww\n")
    assert done.err == "kohort: created topic floww (1 partition)\nkohort: did you mean flow?\n"
    again = run("send floww --json", address, stdin="x\n")
    assert (json.loads(again.out), again.err) == ({"topic": "floww", "sent": 1, "created": False}, "")
    run("topic delete floww", address)


def test_a_group_that_is_nearly_there_is_named(address: str) -> None:
    with kohort.Consumer(bootstrap_servers=address, group_id="billing") as consumer:
        consumer.commit({kohort.TopicPartition("flow", 0): 4, kohort.TopicPartition("flow", 1): 5})
    for action in ("describe", "history", "delete"):
        done = run(f"group {action} biling", address)
        assert (done.code, done.err) == (1, "kohort: there is no group biling; did you mean billing?\n")
    (header, row) = run("group list", address).out.splitlines()
    assert row.split() == ["billing", "classic", "Empty", "0", "6"]
    assert header.split()[-2:] == ["MEMBERS", "LAG"]


def test_a_line_that_cannot_be_sent_is_numbered(address: str) -> None:
    done = run("send lines", address, stdin="one\n" + "x" * 2_000_000 + "\nthree\n")
    assert (done.code, done.out) == (1, "")
    assert "kohort: line 2: MESSAGE_TOO_LARGE" in done.err
    assert done.err.endswith("; 1 sent before it\n")
    assert run("tail lines -e", address).out == "one\n"


def test_an_address_that_refuses_says_what_to_do(address: str) -> None:
    for line in ("topic list", "send t", "tail t", "group list", "group history g"):
        done = run(f"{line} -b 127.0.0.1:1", address, stdin="x\n")
        assert (done.code, done.out) == (1, "")
        assert done.err == (
            "kohort: no broker can be reached: 127.0.0.1:1 (Connection refused); "
            "check --bootstrap, or start one: kohort up --port 1\n"
        )
    done = run("topic list", "127.0.0.1:1")
    assert "check --bootstrap (from KOHORT_BOOTSTRAP), or start one: " in done.err


@pytest.mark.parametrize("columns", [80, 160])
def test_a_history_is_read_at_a_glance(columns: int, address: str) -> None:
    """One event, one sentence, which at 80 columns may take a second line: how many do grows with the ids of causes."""
    topics = ["shop.orders", "shop.returns"]
    group = f"glance-{columns}"
    with kohort.Admin(bootstrap_servers=address) as admin:
        for topic in set(topics) - {row.name for row in admin.list_topics()}:
            admin.create_topic(topic, 4)
    for protocol in ("consumer", "classic"):
        members = [
            kohort.Consumer(bootstrap_servers=address, group_id=group, group_protocol=protocol) for _ in range(2)
        ]
        for member in members:
            member.subscribe(topics)
        while not all(member.assignment() for member in members):
            for member in members:
                member.poll(0.05)
        for member in members:
            member.close()
    events = json.loads(run(f"group history {group} --json", address).out)["events"]
    lines = on_terminal(["group", "history", group, "-b", address], columns=columns)
    assert max(map(len, lines)) <= columns
    # The heading, what CAUSE means and what is counted are beside the events.
    assert len(lines) <= len(events) * {80: 1.6, 160: 1.0}[columns] + 3
    assert not any(event["member_id"] and event["member_id"] in line for event in events for line in lines)
    assert any("kohort/" in line for line in lines)


def on_terminal(words: list[str], *, columns: int) -> list[str]:
    """The lines that a command writes to a terminal of so many columns."""
    leader, follower = pty.openpty()
    with subprocess.Popen(
        [*shlex.split(KOHORT), *words],
        stdout=follower,
        stderr=follower,
        stdin=follower,
        env=environment({"TERM": "xterm", "COLUMNS": str(columns)}),
    ) as process:
        os.close(follower)
        shown = b""
        with suppress(OSError):  # a terminal that nobody writes to any more reads as an error
            while piece := os.read(leader, 65536):
                shown += piece
        os.close(leader)
        assert process.wait(TIMEOUT_SECONDS) == 0
    plain = re.sub(r"\x1b\[[0-9;]*m", "", shown.decode())
    return [line.rstrip() for line in plain.splitlines()]


# ---- how it ends


def test_interrupted_send_says_what_it_sent(address: str) -> None:
    with kohort.Admin(bootstrap_servers=address) as admin:
        admin.create_topic("interrupted")
    line = f"(echo one; echo two; sleep 60) | {KOHORT} send interrupted -b {address}"
    with subprocess.Popen(
        # Who was started in the background ignores SIGINT, and so would this.
        ["env", "--default-signal=INT", "bash", "-c", line],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as shell:
        # Both lines have been sent when somebody can read them.
        with started_kohort("tail", "interrupted", "--from", "0", "-n", "2", "-b", address) as tail:
            assert tail.wait_for_lines(2) == ["one", "two"]
        os.killpg(shell.pid, signal.SIGINT)
        out, err = shell.communicate(timeout=TIMEOUT_SECONDS)
    assert (shell.returncode, out, err) == (130, "sent 2 records to interrupted\n", "")


@pytest.mark.parametrize(
    "line",
    ["topic list >&-", "tail flow -e >&-", "group list >&-", "--help >&-", "topic list >&- 2>&- <&-", "send flow <&-"],
)
def test_a_stream_that_was_closed_is_no_mistake(line: str, address: str) -> None:
    done = in_shell(f"kohort {line}", address)
    assert (done.code, done.err) == (0, "")


@pytest.mark.parametrize("line", ["topic list", "tail flow -e", "group list --json", "--help", "completion bash", ""])
def test_an_output_that_is_full_is_one_sentence(line: str, address: str) -> None:
    done = in_shell(f"kohort {line} >/dev/full", address)
    assert (done.code, done.err) == (1, "kohort: cannot write the output: no space left on device\n")


def test_a_terminal_without_our_characters_gets_escapes(address: str) -> None:
    shown = run("tail flow -p 3 -e --keys", address, PYTHONIOENCODING="ascii")
    assert (shown.code, shown.out, shown.err) == (0, "\\xfc\ta\\xff\n", "")
    rows = run("tail flow -p 3 -e --json", address, PYTHONIOENCODING="ascii")
    assert rows.out.isascii()
    assert json.loads(rows.out)["key"] == "ü"
    named = run("topic describe käse", address, PYTHONIOENCODING="ascii")
    assert (named.code, "k\\xe4se" in named.err) == (1, True)
    plain = in_shell("kohort tail flow -p 3 -e --keys", address, LC_ALL="C", PYTHONUTF8="0", PYTHONCOERCECLOCALE="0")
    assert (plain.code, plain.out) == (0, "\\xfc\ta\\xff\n")


def test_tail_goes_on_when_the_broker_comes_back(tmp_path: Path) -> None:
    """Trouble is told once, and its end, in the voice of the command line and never in the output."""
    with kohort.Broker(data_dir=tmp_path / "data", port=quiet_port()) as broker:
        address = broker.bootstrap_servers
        run("send back", address, stdin="before\n")
        with started_kohort("tail", "back", "--from", "beginning", "-b", address) as tail:
            tail.wait_for_lines(1)
            broker.stop()
            tail.wait_for_complaints(1)
            with kohort.Broker(data_dir=tmp_path / "data", port=int(address.rpartition(":")[2])):
                run("send back", address, stdin="after\n")
                assert tail.wait_for_lines(2) == ["before", "after"]
                assert tail.end() == 130
    assert tail.complaints == [
        f"kohort: broker {address} cannot be reached (Connection refused); retrying",
        f"kohort: broker {address}: connected again",
    ]
