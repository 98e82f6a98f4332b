"""What a producer says of refusals that it repeats after, but that somebody has to do something about.

Laws: a line per cause, not per attempt nor per partition; and one when all that had that cause is stored again.
Source: Kafka's `delivery.timeout.ms`: for two minutes a full disk looks like a slow broker.
"""

from __future__ import annotations

from typing import Final

from kohort.client.requests import Requests
from kohort.errors import ErrorCode

#: Codes that seldom pass by themselves; the others are those of a cluster that is settling.
_WORTH_A_LINE: Final = frozenset(
    {
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
    }
)


class Complaints:
    """Keeps what was said.

    Args:
        delivery_timeout_ms: how long a refused record is sent again.
    """

    def __init__(self, requests: Requests, *, delivery_timeout_ms: int) -> None:
        self._requests = requests
        self.delivery_timeout_ms: Final = delivery_timeout_ms
        #: What was being done -> the code that it was refused with.
        self._open: dict[str, ErrorCode] = {}
        #: Each of these codes -> what a line was written about.
        self._said: dict[ErrorCode, str] = {}

    def on_refused(self, doing: str, code: ErrorCode, message: str | None) -> None:
        """The broker has refused what will be tried again."""
        if code in _WORTH_A_LINE:
            if code not in self._said:
                self._said[code] = doing
                reason = f"{message} ({code.name})" if message else code.name
                self._requests.warn(f"{doing}: {reason}, retrying for {self.delivery_timeout_ms / 1000:g} s")
            self._open[doing] = code

    def on_done(self, doing: str) -> None:
        """The broker has done what it had refused, or anything else."""
        if not self._open:
            return
        code = self._open.pop(doing, None)
        if code is not None and code not in self._open.values():
            self._requests.warn(f"{self._said.pop(code)}: works again")
