"""The body of an answer of many rows, encoded a few rows at a time.

Laws: the bytes are those of the whole answer encoded at once. Nothing in it but the number of rows depends on the rows,
and what stands behind them is as long in each answer of a version.
Source: architecture rule 18: 20 ms.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final, Generic, TypeVar

from kohort.wire.codec import encode
from kohort.wire.primitives import encode_uvarint

if TYPE_CHECKING:
    from kohort.broker.connections.request import Framing
    from kohort.wire.schema import Message

Row = TypeVar("Row")


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
        body = encode(self._response_of(rows), self._version)
        begin = len(self._head) + len(self._number(len(rows)))
        self._rows.extend(memoryview(body)[begin : len(body) - self._behind])
        self.count += len(rows)

    def body(self) -> bytes:
        """Return the body of the whole answer."""
        return b"".join((self._head, self._number(self.count), self._rows, self._tail))

    def _number(self, count: int) -> bytes:
        return encode_uvarint(count + 1) if self._is_flexible else count.to_bytes(4)
