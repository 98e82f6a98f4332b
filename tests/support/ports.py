"""Ports for brokers whose port has to be known before they listen, or kept while they are away."""

from __future__ import annotations

import random
import socket

#: Below the range from which Linux gives ports by itself (`ip_local_port_range`), to listeners and to every client.
_QUIET = (20_000, 30_000)
#: Those that this process was given: a broker draws several before it listens.
_given: set[int] = set()


def quiet_port() -> int:
    """A free port that the system gives to nobody by itself.

    One of its own range may be a client's by the time a broker listens there, which of Apache Kafka's takes seconds;
    and a client that knocks at such a port while nobody listens may be connected to itself.
    """
    chance = random.Random()
    while True:
        port = chance.randrange(*_QUIET)
        if port in _given:
            continue
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            _given.add(port)
            return port
