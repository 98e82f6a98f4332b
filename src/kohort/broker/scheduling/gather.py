"""The collection of several replies for one answer, for requests that name many groups or topics.

Source: DescribeGroups, DeleteGroups, ListGroups, OffsetFetch, ConsumerGroupDescribe, CreateTopics, CreatePartitions
and DeleteTopics, which are batched on the wire.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Generic, TypeVar

Reply = TypeVar("Reply")


class Gather(Generic[Reply]):
    """Collects one reply per question, in the order of the questions.

    >>> whole: Gather[str] = Gather(2, print)
    >>> first, second = whole.slot(0), whole.slot(1)
    >>> second("b")
    >>> first("a")
    ['a', 'b']
    """

    __slots__ = ("_left", "_on_complete", "_replies")

    def __init__(self, count: int, on_complete: Callable[[list[Reply]], None]) -> None:
        assert count > 0, "an answer that waits for nothing is given at once"
        self._left = count
        self._on_complete: Final = on_complete
        self._replies: Final[list[Reply | None]] = [None] * count

    def slot(self, index: int) -> Callable[[Reply], None]:
        """Return the function that takes the reply to question `index`, once."""

        def take(reply: Reply) -> None:
            assert self._replies[index] is None, "answered twice"
            self._replies[index] = reply
            self._left -= 1
            if self._left == 0:
                self._on_complete([each for each in self._replies if each is not None])

        return take
