"""A request that its client sends again and again, word for word: a settled member's heartbeat.

What was read of it once need not be read again, and its answer is there. A connection keeps its last heartbeat that
names no partitions, whatever came of it; a read that brings this one, but for its correlation id, and nothing else is
answered by `Renew`.

Laws: a repeat is carried out and answered exactly as if it were read anew, or not at all, and then it is read anew.
Whether the answer still holds is asked each time: nothing has to be told that a repeat is kept. One is kept of a
connection, of at most `LONGEST_REPEAT_BYTES`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

#: Longer ones are not kept: an ordinary heartbeat has about 120 bytes.
LONGEST_REPEAT_BYTES: Final = 1024
#: Where the correlation id stands in a request with its length in front, behind the API; and where in an answer.
_ID_AT: Final = 8
_ID_END: Final = 12
_ANSWER_ID_AT: Final = 4
_ANSWER_ID_END: Final = 8

#: Carries the request out once more: the body of the answer, `None` if it has to be read anew. The same object is the
#: same body.
Renew = Callable[[], bytes | None]
#: Appends a whole answer with that correlation id and body to a buffer.
AppendFrame = Callable[[bytearray, int, bytes], None]


class Repeat:
    """One request of a connection, without its correlation id, and what answers it."""

    __slots__ = ("_answer_head", "_answer_tail", "_append_frame", "_body", "_head", "_renew", "_tail", "size")

    def __init__(self, frame: memoryview, append_frame: AppendFrame, renew: Renew) -> None:
        """`frame`: the request without its length."""
        #: Of the request with its length, bytes.
        self.size: Final = len(frame) + 4
        self._head: Final = len(frame).to_bytes(4) + frame[: _ID_AT - 4]
        self._tail: Final = bytes(frame[_ID_END - 4 :])
        self._append_frame: Final = append_frame
        self._renew: Final = renew
        #: The body of the last answer, and what stands around its correlation id.
        self._body: bytes | None = None
        self._answer_head = b""
        self._answer_tail = b""

    def answer(self, received: memoryview) -> bytes | None:
        """The whole answer if the first `size` bytes that were received are this request, and it need not be read."""
        if received[_ID_END : self.size] != self._tail or received[:_ID_AT] != self._head:
            return None
        body = self._renew()
        if body is None:
            return None
        if body is not self._body:
            self._body = body
            whole = bytearray()
            self._append_frame(whole, 0, body)
            self._answer_head, self._answer_tail = bytes(whole[:_ANSWER_ID_AT]), bytes(whole[_ANSWER_ID_END:])
        return b"".join((self._answer_head, received[_ID_AT:_ID_END], self._answer_tail))
