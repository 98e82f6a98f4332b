"""`kohort top`: its screen, its text and its lines of JSON, over a broker that goes away and an Apache Kafka."""

from __future__ import annotations

import json
import os
import pty
import re
import select
import termios
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import pytest

import kohort
from kohort import testing
from kohort.ids import TopicPartition
from kohort.metrics.cluster import STUCK_MS
from support.peers.cli import TIMEOUT_SECONDS, environment, forks_of, run_kohort, started_kohort
from support.peers.forked_commands import ForkedProcess
from support.ports import quiet_port
from support.waiting import until


@pytest.fixture(scope="module")
def broker() -> Iterator[kohort.Broker]:
    """One with the group `billing`, of a member that does not poll and one that waits for it, and an idle group."""
    with testing.Broker() as broker, kohort.Admin(bootstrap_servers=broker.bootstrap_servers) as admin:
        admin.create_topic("orders", 2)
        admin.alter_group_offsets("archive [bold]\x1b[2J", {TopicPartition("orders", 0): 0})
        options = {"bootstrap_servers": broker.bootstrap_servers, "group_id": "billing"}
        with (
            kohort.Consumer("orders", client_id="slow", **options) as slow,
            kohort.Producer(bootstrap_servers=broker.bootstrap_servers) as producer,
            kohort.Consumer(client_id="new", **options) as new,
        ):
            producer.send("orders", b"x", partition=0).result(TIMEOUT_SECONDS)
            until(lambda: len(slow.assignment()) == 2, what="all", step=lambda: slow.poll(0.02))
            new.subscribe(["orders"])
            until(
                lambda: any(each.overdue_ms is not None for each in admin.describe_group("billing").members),
                what="waited for",
                step=lambda: new.poll(0.02),
            )
            # What takes longer than a page waits for is waited for.
            broker.faults.delay("OffsetFetch", 0.6)
            early = run_kohort("top", "--once", "-b", broker.bootstrap_servers)
            assert (early.code, "billing" in early.out, "STUCK" in early.out) == (0, True, False)
            broker.faults.clear()
            broker.clock.advance(STUCK_MS / 1000)
            yield broker


def test_one_look_is_text_with_members_and_reasons(broker: kohort.Broker) -> None:
    done = run_kohort("top", "--once", "--group", "BILL", "-b", broker.bootstrap_servers)
    assert (done.code, done.err) == (0, "")
    title, columns, row, _, head, _, first, *rest = done.out.splitlines()
    assert title.endswith("1 of 2 groups by seconds")
    assert columns.split() == ["GROUP", "STATE", "MEMBERS", "LAG", "BEHIND", "CHANGES/H"]
    assert row.split()[:5] == ["billing", "Reconciling,", "1", "STUCK", "2"]
    assert head.startswith("billing: consumer, Reconciling, epoch ")
    assert first.split()[0] == "slow" and "orders:0-1" in first
    assert any(line.startswith("STUCK: slow: ") and "give up orders:" in line for line in rest)
    assert any("because new joined" in line for line in rest)
    assert any("not given up by slow yet" in line for line in rest)


def test_top_describe_and_metrics_call_the_same_member_stuck(broker: kohort.Broker) -> None:
    """A hand-over has its time; from then on all of them say so."""
    described = run_kohort("group", "describe", "billing", "-b", broker.bootstrap_servers).out
    (line,) = [line for line in described.splitlines() if line.startswith("STUCK: ")]
    assert "has not given up orders:" in line
    families = run_kohort("metrics", "-b", broker.bootstrap_servers).out
    stuck = [line for line in families.splitlines() if line.startswith("kohort_member_stuck{")]
    assert sorted(("slow" in each, each[-2:]) for each in stuck) == [(False, " 0"), (True, " 1")]


def test_lines_of_json_have_the_values_of_the_console(broker: kohort.Broker) -> None:
    with started_kohort("top", "--json", "--sort", "name", "-b", broker.bootstrap_servers) as running:
        found = [json.loads(line) for line in running.wait_for_lines(2)[:2]]
        assert running.end() == 130
    assert found[0]["time_ms"] < found[1]["time_ms"]
    assert [each["id"] for each in found[1]["groups"]] == ["archive [bold]\x1b[2J", "billing"]
    assert (found[1]["group"]["id"], found[1]["group"]["lag"]) == ("archive [bold]\x1b[2J", 1)


class Screen(NamedTuple):
    """A terminal with `kohort top` on it."""

    process: ForkedProcess
    leader: int

    def until(self, *parts: str) -> str:
        """Read until one screen has all parts; return it as text."""
        shown = b""
        deadline = time.monotonic() + TIMEOUT_SECONDS
        while select.select([self.leader], [], [], max(0.0, deadline - time.monotonic()))[0]:
            shown += os.read(self.leader, 65536)
            text = re.sub(rb"\x1b\[[0-9;?]*[a-zA-Z]", b"", shown.rpartition(b"\x1b[H")[2]).decode(errors="replace")
            if all(part in text for part in parts):
                return text
        raise AssertionError(f"{parts} expected: {shown!r}")

    def press(self, keys: bytes) -> None:
        """Press keys."""
        os.write(self.leader, keys)


@contextmanager
def screen(address: str) -> Iterator[Screen]:
    leader, follower = pty.openpty()
    termios.tcsetwinsize(follower, (30, 110))
    before, whole = termios.tcgetattr(follower), environment({"TERM": "xterm"})
    theirs = [os.dup(follower) for _ in range(3)]
    process = forks_of(whole).start(("top", "-b", address), environment=whole, descriptors=theirs)
    try:
        with process:
            try:
                yield Screen(process, leader)
            finally:
                process.kill()
        assert termios.tcgetattr(follower) == before, "the terminal is as it was"
    finally:
        os.close(follower)
        os.close(leader)


def test_keys_choose_a_group_sort_and_end_it(broker: kohort.Broker) -> None:
    with screen(broker.bootstrap_servers) as shown:
        # Names are the clients' own text, and nothing of them moves the cursor.
        assert "STUCK: slow" not in shown.until("2 of 2 groups by seconds", r"archive [bold]\x1b[2J: classic, Empty")
        shown.press(b"s")
        shown.until("2 of 2 groups by lag")
        shown.press(b"j")
        shown.until("STUCK: slow")
        shown.press(b"\x1b[A")
        shown.until(r"archive [bold]\x1b[2J: classic, Empty")
        shown.press(b"q")
        assert shown.process.wait(TIMEOUT_SECONDS) == 0


def test_broker_that_goes_away_is_told_and_waited_for(tmp_path: Path) -> None:
    """`q` ends it at any time; the client's own complaints do not run through the screen."""
    broker = kohort.Broker(data_dir=tmp_path)
    with broker, kohort.Admin(bootstrap_servers=broker.bootstrap_servers) as admin:
        admin.create_topic("orders", 1)
        admin.alter_group_offsets("billing", {TopicPartition("orders", 0): 0})
    broker.start()
    with screen(broker.bootstrap_servers) as shown:
        shown.until("billing: classic, Empty")
        broker.stop()
        shown.until("no response since ", "billing: classic, Empty")
        with broker:
            assert "no answer" not in shown.until("q ends", "billing: classic, Empty")
        shown.press(b"q")
        assert shown.process.wait(TIMEOUT_SECONDS) == 0


@pytest.mark.parametrize("words", ["--interval 1s", "--interval soon", "--sort age", "--group", "--follow"])
def test_wrong_words_are_answered_with_a_sentence(words: str) -> None:
    done = run_kohort("top", *words.split())
    assert (done.code, done.out, done.err.count("\n")) == (2, "", 1)


def test_cluster_that_is_not_there_is_told_at_once() -> None:
    done = run_kohort("top", "-b", f"127.0.0.1:{quiet_port()}", "-X", "default.api.timeout.ms=500")
    assert (done.code, done.out) == (1, "")
    assert "no broker can be reached" in done.err
