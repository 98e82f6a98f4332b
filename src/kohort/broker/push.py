"""Whose heartbeats are held, and for how long: what each client was seen to bear.

Laws: a heartbeat is held for less than the interval that the previous answer on its connection told its member: some
clients take that for the time in which this answer has to be there. What a client calls itself (KIP-511) and whether
it was told an interval is known per connection, and goes with it.
Source: H1; the heartbeats of Java's and librdkafka's consumers.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from kohort.broker.memberconnections import MEMBERS_PER_CONNECTION
from kohort.broker.request import Peer, Request

#: Software names, or how they begin.
_BEARING: Final = ("apache-kafka-java", "librdkafka", "confluent-kafka-")
_LONGEST_MS: Final = 8_000
#: Between the end of a hold and the time at which its answer has to be there: a fifth of the interval, or this.
_MARGIN_MS: Final = 100
_MARGIN_PARTS: Final = 5


class Pushing:
    """What the broker's options make of it.

    Args:
        values: of the broker's options: group.push.*.
    """

    def __init__(self, values: Mapping[str, Any]) -> None:
        self._is_on: Final[bool] = values["group.push.enable"]
        self._others: Final = frozenset(values["group.push.clients"])

    def bears(self, request: Request) -> bool:
        """Whether the client of a request waits for the answer of a heartbeat without harm to itself."""
        if not self._is_on:
            return False
        name = request.connection.software
        if name.startswith(_BEARING) or "*" in self._others:
            return True
        return name in self._others

    def hold_ms(self, request: Request, group_id: str, member_id: str) -> int:
        """For how long the answer to a KIP-848 heartbeat may wait, ms; 0: not this one, -1: none of this client."""
        if not self.bears(request):
            return -1
        told_ms = request.connection.told_intervals.get((group_id, member_id), 0)
        return min(_LONGEST_MS, max(0, told_ms - max(_MARGIN_MS, told_ms // _MARGIN_PARTS)))

    def note_told(self, connection: Peer, group_id: str, member_id: str, interval_ms: int) -> None:
        """A member was told how often to heartbeat."""
        told = connection.told_intervals
        if self._is_on and (len(told) < MEMBERS_PER_CONNECTION or (group_id, member_id) in told):
            told[group_id, member_id] = interval_ms
