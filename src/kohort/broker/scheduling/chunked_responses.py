"""Answers with many rows, made a few rows in each turn of the loop.

Laws: rows stand in the order in which they were asked for; no turn looks up or encodes more than `ROWS_PER_TURN` of
them; a connection that closes in between ends the work. The rows are the last field of the answer, and nothing else in
it depends on them.
Source: architecture rule 18: 20 ms.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final, Generic, TypeVar

from kohort.broker.scheduling.encodedrows import EncodedRows
from kohort.broker.scheduling.gather import Gather

if TYPE_CHECKING:
    from kohort.broker.connections.request import Request
    from kohort.broker.groups.coordination import Coordination
    from kohort.coordinator.commands.base import GroupCommand
    from kohort.coordinator.commands.replies import ReplyBody
    from kohort.wire.schema import Message

#: A described topic with all its configs takes 0.1 ms, a described group a quarter of that.
ROWS_PER_TURN: Final = 50

Asked = TypeVar("Asked")
Reply = TypeVar("Reply")
Row = TypeVar("Row")
#: Makes the rows of a part of the request, and hands them on, now or later.
RowsOf = Callable[[Sequence[Asked], Callable[[list[Row]], None]], None]


def rows_at_once(row_of: Callable[[Asked], Row]) -> RowsOf[Asked, Row]:
    """Return a source of rows that are looked up at once."""
    return lambda asked, done: done([row_of(each) for each in asked])


def rows_asked_for(
    ask: Callable[[Asked, Callable[[Reply], None]], None], row_of: Callable[[Asked, Reply], Row]
) -> RowsOf[Asked, Row]:
    """Return a source of rows for which `ask` gets the replies, now or later."""

    def rows_of(asked: Sequence[Asked], done: Callable[[list[Row]], None]) -> None:
        def complete(replies: list[Reply]) -> None:
            done([row_of(each, reply) for each, reply in zip(asked, replies, strict=True)])

        whole = Gather(len(asked), complete)
        for index, each in enumerate(asked):
            ask(each, whole.slot(index))

    return rows_of


def rows_of_coordinators(
    runtime: Coordination, command_of: Callable[[Asked], GroupCommand], row_of: Callable[[Asked, ReplyBody], Row]
) -> RowsOf[Asked, Row]:
    """Return a source of rows for which the groups' coordinators are asked."""
    return rows_asked_for(lambda each, take: runtime.ask(command_of(each), take), row_of)


def answer_rows(
    call_soon: Callable[[Callable[[], None]], object],
    request: Request,
    asked: Sequence[Asked],
    rows_of: RowsOf[Asked, Row],
    response_of: Callable[[list[Row]], Message],
) -> None:
    """Answer `request` with a row for each of `asked`.

    Args:
        call_soon: of the loop.
        request: is not answered yet.
        asked: anything, in the order of the rows.
        rows_of: makes rows of a part of `asked`, which is never empty.
        response_of: the answer with these rows.
    """
    if not asked:
        request.answer(response_of([]))
    elif len(asked) <= ROWS_PER_TURN:
        # Most requests: nothing is put together.
        def answer(rows: list[Row]) -> None:
            if request.is_open:
                request.answer(response_of(rows))

        rows_of(asked, answer)
    else:
        _Parts(call_soon, request, asked, rows_of, response_of).go_on()


class _Parts(Generic[Asked, Row]):
    """An answer that is made in several turns."""

    def __init__(
        self,
        call_soon: Callable[[Callable[[], None]], object],
        request: Request,
        asked: Sequence[Asked],
        rows_of: RowsOf[Asked, Row],
        response_of: Callable[[list[Row]], Message],
    ) -> None:
        self._call_soon: Final = call_soon
        self._request: Final = request
        self._asked: Final = asked
        self._rows_of: Final = rows_of
        self._rows: Final = EncodedRows(request.route, response_of)

    def go_on(self) -> None:
        """Ask for the next rows."""
        if self._request.is_open:
            done = self._rows.count
            self._rows_of(self._asked[done : done + ROWS_PER_TURN], self._take)

    def _take(self, rows: list[Row]) -> None:
        self._rows.add(rows)
        self._call_soon(self.go_on if self._rows.count < len(self._asked) else self._finish)

    def _finish(self) -> None:
        if self._request.is_open:
            self._request.answer(self._rows.body())
