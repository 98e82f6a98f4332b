"""Answers with many rows, made a few rows in each turn of the loop.

Laws: rows stand in the order in which they were asked for; no turn looks up or encodes more than `ROWS_PER_TURN` of
them; a connection that closes in between ends the work. The rows are the last field of the answer, and nothing else in
it depends on them.
Source: architecture rule 18: 20 ms.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final, Generic, TypeVar

from kohort.broker.access.rights import Rights
from kohort.broker.connections.request import Framing
from kohort.broker.context import BrokerContext, Request
from kohort.broker.limits.requests import MOST_NAMED, check_rows
from kohort.broker.topics.configs import Resource
from kohort.coordinator.commands import Command, GroupCommand, Refusal
from kohort.errors import ErrorCode
from kohort.security.access_control import CLUSTER_NAME, AclOperation, ResourceType
from kohort.wire.codec import encode
from kohort.wire.primitives import encode_uvarint
from kohort.wire.schema import Message

#: A described topic with all its configs takes 0.1 ms, a described group a quarter of that.
ROWS_PER_TURN: Final = 50

#: In place of the reply of a group on which the client may not do what it asks for.
GROUP_DENIED: Final = Refusal(code=ErrorCode.GROUP_AUTHORIZATION_FAILED, message="Group authorization failed.")

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


def denied_configs(rights: Rights, operation: AclOperation, kind: int, name: str) -> Refusal | None:
    """Return the refusal of a resource with configs on which the client may not do this; `None`: it may."""
    match kind:
        case Resource.TOPIC:
            resource, code = ResourceType.TOPIC, ErrorCode.TOPIC_AUTHORIZATION_FAILED
        case Resource.GROUP:
            resource, code = ResourceType.GROUP, ErrorCode.GROUP_AUTHORIZATION_FAILED
        # Brokers and their loggers; an unknown kind is refused without a right, too.
        case _:
            resource, code, name = ResourceType.CLUSTER, ErrorCode.CLUSTER_AUTHORIZATION_FAILED, CLUSTER_NAME
    if rights.allows(operation, resource, name):
        return None
    return Refusal(code=code, message=f"{resource.name.capitalize()} authorization failed.")


def answer_groups(
    context: BrokerContext,
    request: Request,
    group_ids: Sequence[str],
    command: Callable[..., GroupCommand],
    row_of: Callable[[str, Any], Row],
    *,
    response_of: Callable[[list[Row]], Message],
    needs: AclOperation = AclOperation.DESCRIBE,
) -> None:
    """Answer `request` with a row for each named group, of the reply of its coordinator to `command`.

    A group on which the client may not do what it `needs` is refused here, and no coordinator is asked.
    """
    # A group that is named twice is answered once: repeated large groups would be more than any client can take.
    once, runtime = list(dict.fromkeys(group_ids)), context.runtime
    check_rows(len(once), MOST_NAMED, "groups")

    rights = request.rights

    def ask(group_id: str, take: Callable[[Any], None]) -> None:
        if not rights.allows(needs, ResourceType.GROUP, group_id):
            take(GROUP_DENIED)
            return
        token = runtime.next_token()
        runtime.ask(command(cause=token, request=token, group_id=group_id, principal=request.principal), take)

    answer_rows(context, request, once, rows_asked_for(ask, row_of), response_of)


def ask_shards(context: BrokerContext, command: Callable[..., Command], complete: Callable[[list[Any]], None]) -> None:
    """Ask every shard, one in each turn of the loop, and call `complete` with the replies of all."""
    runtime = context.runtime
    whole = Gather(runtime.shard_count, complete)

    def ask(index: int) -> None:
        token = runtime.next_token()
        runtime.ask_shard(index, token, command(cause=token, request=token), whole.slot(index))
        if index + 1 < runtime.shard_count:
            context.loop.call_soon(ask, index + 1)

    ask(0)


def answer_rows(
    context: BrokerContext,
    request: Request,
    asked: Sequence[Asked],
    rows_of: RowsOf[Asked, Row],
    response_of: Callable[[list[Row]], Message],
) -> None:
    """Answer `request` with a row for each of `asked`; `rows_of` is called with parts that are never empty."""
    if not asked:
        request.answer(response_of([]))
    elif len(asked) <= ROWS_PER_TURN:
        # Most requests: nothing is put together.
        def answer(rows: list[Row]) -> None:
            if request.is_open:
                request.answer(response_of(rows))

        rows_of(asked, answer)
    else:
        _Parts(context.loop.call_soon, request, asked, rows_of, response_of).go_on()


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


# The body of an answer of many rows, encoded a few rows at a time.
#
# Laws: the bytes are those of the whole answer encoded at once. Nothing in it but the number of rows depends on the
# rows, and what stands behind them is as long in each answer of a version.
# Source: architecture rule 18: 20 ms.


class EncodedRows(Generic[Row]):
    """The encoded part of an answer."""

    def __init__(self, route: Framing, response_of: Callable[[list[Row]], Message], *, behind: int = 0) -> None:
        """Begin the answer.

        `response_of` builds the answer with given rows; `behind`: bytes between its rows and the tags at its end.
        """
        self._version: Final = route.version
        self._response_of: Final = response_of
        self._is_flexible: Final = route.is_flexible
        self._behind: Final = behind + self._is_flexible
        empty = encode(response_of([]), self._version)
        end = len(empty) - self._behind
        #: The bytes before the number of rows, and those behind the rows.
        self._head: Final = empty[: end - (1 if self._is_flexible else 4)]
        self._tail: Final = empty[end:]
        self._rows: Final = bytearray()
        self.count = 0

    def add(self, rows: list[Row]) -> None:
        """Encode the next rows."""
        self.add_of(encode(self._response_of(rows), self._version), len(rows))

    def add_of(self, body: bytes, count: int) -> None:
        """Take over the rows of an encoded answer that has so many."""
        begin = len(self._head) + len(self._number(count))
        self._rows.extend(memoryview(body)[begin : len(body) - self._behind])
        self.count += count

    def body(self) -> bytes:
        """Return the body of the whole answer."""
        return b"".join((self._head, self._number(self.count), self._rows, self._tail))

    def _number(self, count: int) -> bytes:
        return encode_uvarint(count + 1) if self._is_flexible else count.to_bytes(4)


# The collection of several replies for one answer, for requests that name many groups or topics.
#
# Source: DescribeGroups, DeleteGroups, ListGroups, OffsetFetch, ConsumerGroupDescribe, CreateTopics, CreatePartitions
# and DeleteTopics, which are batched on the wire.


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
