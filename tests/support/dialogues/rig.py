"""A client's driver on its thread, with a machine that does what a test says."""

from __future__ import annotations

import threading
from dataclasses import dataclass
from queue import Queue
from typing import Any

from kohort.client.core.actions import Action, Endpoint, Lane, Send
from kohort.client.core.requests import DeadlineReached, DriverEvent, RequestFailed, ResponseReceived
from kohort.client.core.thread import IoThread
from kohort.client.options import CONSUMER_OPTIONS, client_settings
from kohort.wire.schema import Message

WAIT_S = 10.0


@dataclass(frozen=True)
class Do:
    """Tells the machine of these tests what to return."""

    actions: tuple[Action, ...]


@dataclass(frozen=True)
class Break:
    """Makes the machine of these tests fail."""


class Puppet:
    """A machine that does what it is told and hands on what it hears."""

    def __init__(self) -> None:
        self.heard: Queue[DriverEvent] = Queue()
        self.deadline: int | None = None
        self.threads: set[int] = set()
        #: What it does when it hears something next.
        self.reaction: list[Action] = []

    def handle(self, event: Do | Break | DriverEvent, now_ms: int) -> list[Action]:
        self.threads.add(threading.get_ident())
        match event:
            case Do(actions=actions):
                return list(actions)
            case Break():
                raise AssertionError("scripted bug")
            case DeadlineReached():
                self.deadline = None
                self.heard.put(event)
                return []
            case _:
                self.heard.put(event)
                reaction, self.reaction = self.reaction, []
                return reaction

    def next_deadline(self) -> int | None:
        return self.deadline


class Rig:
    """A puppet on its I/O thread."""

    def __init__(self, **options: object) -> None:
        settings = client_settings(CONSUMER_OPTIONS.parse({"client_id": "rig", "reconnect_backoff_ms": 1, **options}))
        self.machine = Puppet()
        self.delivered: Queue[object] = Queue()
        self.crashed = threading.Event()
        self.thread: IoThread[Do | Break] = IoThread(
            self.machine, settings, deliver=self.delivered.put, what="rig", on_crash=lambda _: self.crashed.set()
        )
        self._token = 0

    def do(self, *actions: Action) -> None:
        self.thread.post(Do(actions))

    def send(
        self, to: Endpoint, request: Message, *, timeout_ms: int = 5_000, lane: Lane = Lane.CONTROL, **more: Any
    ) -> int:
        self._token += 1
        wanted = {"min_version": None, "max_version": None, "has_response": True, **more}
        self.do(Send(token=self._token, to=to, lane=lane, request=request, timeout_ms=timeout_ms, **wanted))
        return self._token

    def events(self, count: int) -> list[Any]:
        """The next events, in the order in which they came."""
        return [self.machine.heard.get(timeout=WAIT_S) for _ in range(count)]

    def response(self) -> ResponseReceived:
        event = self.machine.heard.get(timeout=WAIT_S)
        assert isinstance(event, ResponseReceived), event
        return event

    def failure(self) -> RequestFailed:
        event = self.machine.heard.get(timeout=WAIT_S)
        assert isinstance(event, RequestFailed), event
        return event
