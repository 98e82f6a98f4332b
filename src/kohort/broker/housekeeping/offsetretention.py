"""The periodic expiration of offsets that groups no longer need, a few groups at a time.

Laws: one step looks at so many groups, and the next one waits until what it forgot is durable and the loop has served
its sockets: a broker with a million offsets answers as ever meanwhile. What is forgotten the coordinator decides.
Source: Kafka's offsets.retention.check.interval.ms; architecture rule 18.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from typing import Final

from kohort.broker.groups.runtime import Runtime
from kohort.coordinator.commands.base import Refusal
from kohort.coordinator.commands.offsets import ExpireOffsets, ExpireOffsetsReply
from kohort.coordinator.commands.replies import ReplyBody
from kohort.ids import CauseId

log = logging.getLogger("kohort.broker")

#: Groups that one step looks at.
GROUPS_AT_ONCE: Final = 64


class OffsetRetention:
    """Expires offsets of the groups of every shard, round after round."""

    def __init__(self, loop: asyncio.AbstractEventLoop, runtime: Runtime, *, interval_ms: int) -> None:
        self._loop: Final = loop
        self._runtime: Final = runtime
        self._interval: Final = interval_ms / 1000
        #: (shard, groups) of the round that are still to be looked at.
        self._left: deque[tuple[int, list[str]]] = deque()
        #: The shard whose groups are being looked at.
        self._index = 0
        self._expired = 0
        self._removed = 0
        self._timer: asyncio.TimerHandle | None = None

    def start(self) -> None:
        """Begin the first round after one interval, when the start of the broker is over."""
        self._timer = self._loop.call_later(self._interval, self._begin)

    def stop(self) -> None:
        """Take no further step."""
        self._left.clear()
        if self._timer is not None:
            self._timer.cancel()

    def _begin(self) -> None:
        self._expired = self._removed = 0
        self._left.extend((index, self._runtime.group_ids(index)) for index in range(self._runtime.shard_count))
        self._step()

    def _step(self) -> None:
        while self._left and not self._left[0][1]:
            self._left.popleft()
        if not self._left:
            self._finish()
            return
        self._index, group_ids = self._left[0]
        step = tuple(group_ids[-GROUPS_AT_ONCE:])
        del group_ids[-GROUPS_AT_ONCE:]
        token = self._runtime.next_token()
        command = ExpireOffsets(cause=CauseId(token), request=token, group_ids=step)
        self._runtime.ask_shard(self._index, token, command, self._on_reply)

    def _on_reply(self, reply: ReplyBody) -> None:
        if isinstance(reply, Refusal):
            # The disk takes nothing: old offsets will still be old in the next round.
            self._left.clear()
            self._finish()
            return
        assert isinstance(reply, ExpireOffsetsReply)
        self._expired += reply.expired
        self._removed += reply.removed
        if self._left:
            self._left[0][1].extend(reply.unfinished)
            # The loop serves its sockets between two steps.
            self._timer = self._loop.call_later(0, self._step)

    def _finish(self) -> None:
        if self._expired or self._removed:
            log.info("event=offsets_expired offsets=%d groups=%d", self._expired, self._removed)
        self.start()
