"""Programs that end without closing their clients: what they sent arrives, the groups they were in hear of it.

Each program is a Python of its own, for the end of the interpreter is what is tested.
"""

from __future__ import annotations

import ctypes
import gc
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

import kohort
from kohort import TopicPartition
from kohort.testing.cluster import Cluster
from support.peers.cli import Finished, environment, run_python, started_python
from support.waiting import until

pytestmark = pytest.mark.interop

SEND = """
import atexit, os, sys, kohort
producer = kohort.Producer(bootstrap_servers={address!r})
for number in range(1000):
    producer.send({topic!r}, b"%d" % number)
{end}
"""
#: How a program ends -> (its last lines, its exit code, words on the error output).
ENDS = {
    "end of the file": ("", 0, ""),
    "sys.exit": ("sys.exit(3)", 3, ""),
    "exception": ("raise ValueError('mine')", 1, "ValueError: mine"),
    "interrupt": ("raise KeyboardInterrupt", -signal.SIGINT, "KeyboardInterrupt"),
    "forgotten": ("del producer", 0, ""),
    "fork": ("if os.fork() == 0: sys.exit(0)\nos.wait()", 0, ""),
    "thread": ("import threading; threading.Thread(target=producer.send, args=({topic!r}, b'last')).start()", 0, ""),
}


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    with kohort.Broker() as broker:
        yield broker.bootstrap_servers


def run(program: str, *options: str) -> Finished:
    return run_python([*options, "-c", program])


def stored(address: str, topic: str) -> int:
    with kohort.Consumer(bootstrap_servers=address) as consumer:
        return sum(consumer.end_offsets([TopicPartition(topic, 0)]).values())


@pytest.mark.parametrize("name", ENDS)
def test_what_was_sent_arrives_once_however_the_program_ends(address: str, name: str) -> None:
    end, code, words = ENDS[name]
    topic = name.replace(" ", "-")
    done = run(SEND.format(address=address, topic=topic, end=end.format(topic=topic)))
    assert done.code == code
    assert words in done.err
    assert "not stored" not in done.err
    assert stored(address, topic) == 1000 + (name == "thread")


def test_broker_may_be_given_by_name(address: str) -> None:
    """A loop looks names up in a thread, and an interpreter that ends starts none."""
    _, _, port = address.rpartition(":")
    done = run(SEND.format(address=f"localhost:{port}", topic="by-name", end=""))
    assert (done.code, done.err) == (0, "created topic by-name (1 partition)\n")
    assert stored(address, "by-name") == 1000


def test_broker_of_the_same_program_is_there_to_the_last(tmp_path: Path) -> None:
    start = f"import kohort\nbroker = kohort.Broker(data_dir={str(tmp_path)!r}).start()\n"
    program = start + SEND.format(address="ADDRESS", topic="own", end="").replace(
        "'ADDRESS'", "broker.bootstrap_servers"
    )
    done = run(program)
    assert (done.code, done.err) == (0, "created topic own (1 partition)\n")
    with kohort.Broker(data_dir=tmp_path) as broker:
        assert stored(broker.bootstrap_servers, "own") == 1000


def test_client_of_a_broker_that_is_younger_than_another_client_ends_before_it(address: str) -> None:
    program = f"""
import kohort
older = kohort.Producer(bootstrap_servers={address!r})
older.send("older", b"x").result(20)
broker = kohort.Broker().start()
""" + SEND.format(address="ADDRESS", topic="own", end="").replace("'ADDRESS'", "broker.bootstrap_servers")
    done = run(program)
    assert (done.code, done.err.splitlines()[1:]) == (0, ["created topic own (1 partition)"])


#: The process stays for a second after the interpreter has gone, as it may on a busy machine.
UNSTOPPED = """
import ctypes, logging, sys, kohort
from kohort.testing import Cluster
libc = ctypes.CDLL(None)
libc.on_exit(libc.sleep, None)
logging.basicConfig(level=logging.INFO, format="%(message)s")
broker = {start}
print(broker.bootstrap_servers.partition(",")[0], flush=True)
sys.stdin.readline()
{end}
print("ending", flush=True)
sys.exit(1)
"""


@pytest.mark.skipif(not hasattr(ctypes.CDLL(None), "on_exit"), reason="this C library has no on_exit")
@pytest.mark.parametrize("end", ["", "import os\nif os.fork() == 0: sys.exit(1)\nos.wait()"], ids=["alone", "forked"])
@pytest.mark.parametrize("start", ["kohort.Broker().start()", "Cluster(3).open()"])
def test_broker_that_nobody_stops_stops_with_the_program(start: str, end: str) -> None:
    """Its loop ran on while the interpreter went away, and whoever connected then ended the process by a SIGSEGV."""
    with subprocess.Popen(
        [sys.executable, "-c", UNSTOPPED.format(start=start, end=end)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment(),
    ) as program:
        assert program.stdin is not None and program.stdout is not None
        host, _, port = program.stdout.readline().strip().rpartition(":")
        # It rests by then.
        with kohort.Admin(bootstrap_servers=f"{host}:{port}") as admin:
            admin.list_topics()
        program.stdin.close()
        assert program.stdout.readline() == "ending\n"
        while program.poll() is None:
            with suppress(OSError, subprocess.TimeoutExpired):
                socket.create_connection((host, int(port)), timeout=1).close()
                program.wait(0.05)
        assert program.stderr is not None
        assert program.returncode == 1
        assert program.stderr.read().count("event=stopped") == 1, "cleanly, by the process that it is in"


def test_forgotten_close_is_a_resource_warning(address: str) -> None:
    """As Python has it for files: off by default, an option shows it."""
    program = SEND.format(address=address, topic="warned", end="")
    assert "ResourceWarning" not in run(program).err
    assert run(program, "-W", "default").err.count("ResourceWarning: a producer was not closed") == 1
    closed = SEND.format(address=address, topic="warned", end="producer.close()")
    assert "ResourceWarning" not in run(closed, "-W", "default").err


def test_what_no_broker_takes_is_counted() -> None:
    with socket.socket() as holder:
        holder.bind(("127.0.0.1", 0))
        nowhere = f"127.0.0.1:{holder.getsockname()[1]}"
        program = SEND.replace("{address!r}", "{address!r}, delivery_timeout_ms=500, request_timeout_ms=400")
        done = run(program.format(address=nowhere, topic="lost", end=""))
        unasked = "1000 records were not stored, and the program has not asked their futures: "
        why = f"topic lost could not be looked up within 500 ms: {nowhere}: Connection refused\n"
        assert done.err == unasked + why
        # One that was asked need not be told again.
        seen = run(program.format(address=nowhere, topic="lost", end="producer.send('lost').result()"))
        assert f"KohortTimeoutError: {why}{unasked}{why}" in seen.err


#: Says when the farewell has begun.
WATCH = """
import threading
def watch():
    while producer._io._retirement is None:
        threading.Event().wait(0.01)
    print("ending")
threading.Thread(target=watch, daemon=True).start()
"""


def test_ctrl_c_ends_the_farewell() -> None:
    """A broker that says nothing would hold up the program for seconds."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"127.0.0.1:{silent.getsockname()[1]}"
        with started_python("-c", SEND.format(address=address, topic="t", end=WATCH)) as program:
            program.wait_for_lines(1, start="ending")
            program.end(signal.SIGINT)
    assert program.complaints == [
        "1000 records were not stored, and the program has not asked their futures: "
        "the producer was closed before this record was acknowledged"
    ]


@pytest.mark.parametrize("protocol", ["consumer", "classic"])
@pytest.mark.parametrize("end", ["", "sys.exit(0)", "del consumer; time.sleep(0)", "raise SystemExit"])
def test_member_that_is_not_closed_leaves_its_group(address: str, protocol: str, end: str) -> None:
    """Otherwise its partitions would be nobody's for a session, 45 s."""
    with kohort.Admin(bootstrap_servers=address) as admin, kohort.Producer(bootstrap_servers=address) as producer:
        for number in range(3):
            producer.send("read", b"%d" % number).result(10)
        done = run(f"""
import sys, time, kohort
consumer = kohort.Consumer(
    bootstrap_servers={address!r}, group_id={protocol!r}, group_protocol={protocol!r}, auto_offset_reset="earliest"
)
consumer.subscribe(["read"], on_revoked=lambda *_: print("called"))
while not consumer.poll(1.0, max_records=1): pass
while not consumer.poll(1.0, max_records=1): pass
{end}
""")
        assert (done.code, done.out, done.err) == (0, "", "")
        assert admin.describe_group(protocol).members == ()


def drop_member(address: str, group: str, protocol: str, how: str) -> None:
    """A member that owns something, and that nobody knows any more when this returns."""
    consumer = kohort.Consumer(bootstrap_servers=address, group_id=group, group_protocol=protocol)
    known: list[object] = [consumer]
    if how == "in a cycle":
        known.append(known)
    callback = (lambda *_: known) if how == "known to its callback" else None
    consumer.subscribe(["dropped"], on_revoked=callback)
    until(consumer.assignment, what="assigned", step=lambda: consumer.poll(0.1))


@pytest.mark.parametrize("protocol", ["consumer", "classic"])
@pytest.mark.parametrize("how", ["by name", "in a cycle", "known to its callback"])
def test_consumer_that_is_dropped_leaves_while_the_program_goes_on(address: str, protocol: str, how: str) -> None:
    """It would heartbeat on, and hold its partitions for max.poll.interval.ms, five minutes."""
    group = f"dropped-{protocol}-{how}"
    with kohort.Admin(bootstrap_servers=address) as admin, kohort.Producer(bootstrap_servers=address) as producer:
        producer.send("dropped", b"one").result(10)
        with pytest.warns(ResourceWarning, match="a consumer was not closed: use it in a with statement"):
            drop_member(address, group, protocol, how)
            gc.collect()
        # In less than a session: nobody has thrown it out.
        until(
            lambda: not admin.describe_group(group).members,
            what="left",
            step=lambda: threading.Event().wait(0.05),
            seconds=30,
        )


@pytest.fixture(scope="module")
def three_brokers() -> Iterator[str]:
    with Cluster(3) as cluster:
        with kohort.Admin(bootstrap_servers=cluster.bootstrap_servers) as admin:
            for topic in ("dropped", "sent"):
                admin.create_topic(topic, 3)
        yield cluster.bootstrap_servers


@pytest.mark.parametrize("protocol", ["consumer", "classic"])
def test_consumer_that_is_dropped_leaves_with_three_brokers(three_brokers: str, protocol: str) -> None:
    """At default options: its coordinator is one broker, what it reads lies on all."""
    with kohort.Admin(bootstrap_servers=three_brokers) as admin:
        with pytest.warns(ResourceWarning, match="a consumer was not closed"):
            drop_member(three_brokers, protocol, protocol, "by name")
            gc.collect()
        until(
            lambda: not admin.describe_group(protocol).members,
            what="left",
            step=lambda: threading.Event().wait(0.05),
            seconds=30,
        )


def test_what_was_sent_arrives_on_three_brokers_when_the_program_ends(three_brokers: str) -> None:
    done = run(SEND.format(address=three_brokers, topic="sent", end=""))
    assert (done.code, done.err) == (0, "")
    with kohort.Consumer(bootstrap_servers=three_brokers) as consumer:
        assert sum(consumer.end_offsets([TopicPartition("sent", each) for each in range(3)]).values()) == 1000


def test_producer_that_is_dropped_sends_what_lingers(address: str) -> None:
    """While the program goes on, too."""
    producer = kohort.Producer(bootstrap_servers=address, linger_ms=3_600_000)
    future = producer.send("dropped-records", b"one")
    with pytest.warns(ResourceWarning, match="a producer was not closed"):
        del producer
        gc.collect()

    assert future.result(20).offset == 0
