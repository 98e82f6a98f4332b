"""Several questions behind one answer: requests that name many groups are answered when each of them is.

Source: DescribeGroups, DeleteGroups, ListGroups, OffsetFetch and ConsumerGroupDescribe, which are batched on the wire.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from kohort.coordinator.commands import ReplyBody


class Gather:
    """Collects one reply per question, in the order of the questions.

    >>> from kohort.coordinator.commands import Done
    >>> whole = Gather(2, lambda replies: print(len(replies)))
    >>> first, second = whole.slot(0), whole.slot(1)
    >>> second(Done())
    >>> first(Done())
    2
    """

    __slots__ = ("_left", "_on_complete", "_replies")

    def __init__(self, count: int, on_complete: Callable[[list[ReplyBody]], None]) -> None:
        assert count > 0, "an answer that waits for nothing is given at once"
        self._left = count
        self._on_complete: Final = on_complete
        self._replies: Final[list[ReplyBody | None]] = [None] * count

    def slot(self, index: int) -> Callable[[ReplyBody], None]:
        """Takes the reply to question `index`, once."""

        def take(reply: ReplyBody) -> None:
            assert self._replies[index] is None, "answered twice"
            self._replies[index] = reply
            self._left -= 1
            if self._left == 0:
                self._on_complete([each for each in self._replies if each is not None])

        return take
