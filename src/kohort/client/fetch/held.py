"""A partition that the application holds: how far it has been handed out."""

from __future__ import annotations

from dataclasses import dataclass

from kohort.client.exchange import Fence, Watermarks
from kohort.client.records import Committable, OffsetAndMetadata


@dataclass(slots=True, kw_only=True, eq=False)
class Held:
    """A partition of the application's assignment."""

    fence: Fence
    #: Next offset to hand out; `None` until the first data, unless the application chose it.
    position: int | None
    #: Leader epoch of what lies before the position (KIP-320); -1 means unknown.
    leader_epoch: int = -1
    #: Where the position is to be found, as in `Start`; `None` where the application has not said.
    timestamp: int | None = None
    is_paused: bool = False
    #: Beginning and end of its log; `None` before the first answer.
    watermarks: Watermarks | None = None

    def with_epoch(self, offset: int) -> Committable:
        """An offset with the leader epoch that belongs to it, if that is known."""
        if self.position != offset or self.leader_epoch < 0:
            return offset
        return OffsetAndMetadata(offset, "", self.leader_epoch)

    def end_offset(self, is_read_committed: bool) -> int | None:
        """Where a reader's log ends, as the last fetch has said; `None` if that is not known yet."""
        if self.watermarks is None:
            return None
        end = self.watermarks.last_stable_offset if is_read_committed else self.watermarks.high_watermark
        return None if end < 0 else end

    def lag(self, is_read_committed: bool) -> int | None:
        """Offsets between what was handed out and the end; `None` where one of them is not known."""
        end, position = self.end_offset(is_read_committed), self.position
        return None if end is None or position is None else max(0, end - position)
