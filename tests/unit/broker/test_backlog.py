"""Connections that come all at once: they wait in the system's queue, and none is dropped."""

from __future__ import annotations

import resource
import selectors
import socket
import struct
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from kohort.broker.connections.sockets import listen_on
from kohort.broker.options.settings import BrokerSettings

AT_ONCE = 1_000
#: The system's limit of a queue, whatever a program asks for.
SYSTEM_LIMIT = Path("/proc/sys/net/core/somaxconn")
#: Offset in Linux' struct tcp_info of how often anything was sent again.
_TOTAL_RETRANSMISSIONS = 100

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="what the kernel did is asked of Linux")


@pytest.fixture
def many_files() -> Iterator[None]:
    before, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (before, most))


def connect_all(address: tuple[str, int], count: int, stack: ExitStack) -> list[socket.socket]:
    """Begin `count` connections without waiting for any."""
    connections = []
    for _ in range(count):
        connection = stack.enter_context(socket.socket())
        connection.setblocking(False)
        connection.connect_ex(address)
        connections.append(connection)
    return connections


def connected(connections: list[socket.socket], *, within_s: float) -> list[socket.socket]:
    """Those that are connected as soon as all are, or when the time is up."""
    deadline = time.monotonic() + within_s
    done = []
    with selectors.PollSelector() as selector:
        for connection in connections:
            selector.register(connection, selectors.EVENT_WRITE)
        while selector.get_map() and time.monotonic() < deadline:
            for key, _ in selector.select(deadline - time.monotonic()):
                selector.unregister(key.fileobj)
                assert isinstance(key.fileobj, socket.socket)
                if key.fileobj.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR) == 0:
                    done.append(key.fileobj)
    return done


def retransmissions(connection: socket.socket) -> int:
    info = connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 256)
    (count,) = struct.unpack_from("=I", info, _TOTAL_RETRANSMISSIONS)
    return int(count)


def test_a_thousand_connections_wait_without_a_broker_that_accepts(many_files: None) -> None:
    """A full queue drops what comes, and a dropped connection is asked for again after one, three, seven seconds."""
    settings = BrokerSettings.of(port=0)
    count = min(AT_ONCE, int(SYSTEM_LIMIT.read_text()))
    with ExitStack() as stack:
        listening = stack.enter_context(listen_on(settings))
        connections = connect_all(listening.getsockname(), count, stack)
        assert len(connected(connections, within_s=10)) == count
        assert sum(map(retransmissions, connections)) == 0


def test_a_shorter_queue_can_be_had(many_files: None) -> None:
    """That the test above can fail: with the former default, nine tenths of them would still be waiting."""
    settings = BrokerSettings.of({"socket.listen.backlog.size": 16}, port=0)
    with ExitStack() as stack:
        listening = stack.enter_context(listen_on(settings))
        connections = connect_all(listening.getsockname(), 100, stack)
        # Linux lets one more in than is asked for.
        assert len(connected(connections, within_s=0.2)) == 17
