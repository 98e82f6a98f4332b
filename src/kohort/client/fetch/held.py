"""One held partition and how far it has been handed out."""

from __future__ import annotations

from dataclasses import dataclass

from kohort.client.application_events import Fence, Watermarks
from kohort.client.records import Committable, OffsetAndMetadata


@dataclass(slots=True, kw_only=True, eq=False)
class Held:
    """A partition of the application's assignment."""

    fence: Fence
    #: Offset of the next record to hand out; `None` until the first data, unless the application has chosen it.
    position: int | None
    #: Leader epoch of the records before the position (KIP-320); -1 means unknown.
    leader_epoch: int = -1
    #: The timestamp that leads to the position, as in `Start`; `None`: the application has not given one.
    timestamp: int | None = None
    is_paused: bool = False
    #: First and end offset of its log; `None` before the first answer.
    watermarks: Watermarks | None = None

    def with_epoch(self, offset: int) -> Committable:
        """Return an offset with its leader epoch, if that is known."""
        if self.position != offset or self.leader_epoch < 0:
            return offset
        return OffsetAndMetadata(offset, "", self.leader_epoch)

    def end_offset(self, is_read_committed: bool) -> int | None:
        """Return the end offset for an isolation level, as the last fetch has said; `None`: none has yet."""
        if self.watermarks is None:
            return None
        end = self.watermarks.last_stable_offset if is_read_committed else self.watermarks.high_watermark
        return None if end < 0 else end

    def lag(self, is_read_committed: bool) -> int | None:
        """Return position to end in offsets; `None`: one of them is not known."""
        end, position = self.end_offset(is_read_committed), self.position
        return None if end is None or position is None else max(0, end - position)
