"""A proxy in front of one broker that loses answers: the request has arrived, the connection breaks, nobody knows; or
that loses what a client says of its membership, or is told of it, and passes everything else.

The broker has to advertise the proxy's port, so that clients come back through it.
"""

from __future__ import annotations

import socket
import struct
import threading
from contextlib import suppress
from typing import Final, Self

from kohort.simulation.clients.network import MEMBERSHIP
from kohort.wire.registry import ApiKey

REQUESTS: Final = "requests"
ANSWERS: Final = "answers"


class LossyProxy:
    """Passes bytes on between clients and 127.0.0.1:`target_port`, until it is told to lose something.

    Args:
        port: where it listens; 0 takes a free one.
    """

    def __init__(self, *, port: int = 0, target_port: int = 0) -> None:
        self.target_port = target_port
        self._listener = socket.create_server(("127.0.0.1", port))
        self.port: int = self._listener.getsockname()[1]
        self._lock = threading.Lock()
        #: API -> how many connections are still to be broken at its answer.
        self._planned: dict[int, int] = {}
        self.lost = 0
        #: Client ids of members of which no word of their membership arrives.
        self.unheard: set[str] = set()
        #: Client ids of members by whose connections nothing passes from their next word of membership on -> which way.
        self.stalled: dict[str, str] = {}
        self._open: set[socket.socket] = set()
        self._threads: list[threading.Thread] = [threading.Thread(target=self._accept, daemon=True)]
        self._threads[0].start()

    def lose_answers(self, api: ApiKey, times: int) -> None:
        """Break the next connections that carry such a request, when its answer comes."""
        with self._lock:
            self._planned[api] = times

    def restore(self) -> None:
        """Every word arrives from now on; what has lost some breaks, and with it all else."""
        self.unheard.clear()
        self.stalled.clear()
        for each in list(self._open):
            _close(each)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for each in list(self._open):
            _close(each)
        for thread in self._threads:
            thread.join(10)

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            try:
                broker = socket.create_connection(("127.0.0.1", self.target_port))
            except OSError:
                client.close()
                continue
            self._open |= {client, broker}
            is_doomed, is_mute = threading.Event(), threading.Event()
            for pump in (self._pass_requests, self._pass_answers):
                thread = threading.Thread(target=pump, args=(client, broker, is_doomed, is_mute), daemon=True)
                self._threads.append(thread)
                thread.start()

    def _pass_requests(
        self, client: socket.socket, broker: socket.socket, is_doomed: threading.Event, is_mute: threading.Event
    ) -> None:
        is_deaf = False
        with suppress(OSError), client.makefile("rb") as stream:
            while len(head := stream.read(6)) == 6:
                length, api = struct.unpack(">ih", head)
                rest = stream.read(length - 2)
                lost = self.stalled.get(_client_id(rest)) if api in MEMBERSHIP else None
                is_deaf = is_deaf or lost == REQUESTS
                if lost == ANSWERS:
                    is_mute.set()
                if is_deaf or (api in MEMBERSHIP and _client_id(rest) in self.unheard):
                    continue
                if self._is_chosen(api):
                    is_doomed.set()
                broker.sendall(head + rest)
        _close(broker)

    def _pass_answers(
        self, client: socket.socket, broker: socket.socket, is_doomed: threading.Event, is_mute: threading.Event
    ) -> None:
        with suppress(OSError):
            while data := broker.recv(1 << 16):
                if is_doomed.is_set():
                    break
                if not is_mute.is_set():
                    client.sendall(data)
        _close(client)
        _close(broker)

    def _is_chosen(self, api: int) -> bool:
        with self._lock:
            if not self._planned.get(api):
                return False
            self._planned[api] -= 1
            self.lost += 1
            return True


def _client_id(rest: bytes) -> str:
    """Of a request, behind its API."""
    (length,) = struct.unpack_from(">h", rest, 6)
    return rest[8 : 8 + max(length, 0)].decode()


def _close(end: socket.socket) -> None:
    with suppress(OSError):
        end.shutdown(socket.SHUT_RDWR)
    end.close()
