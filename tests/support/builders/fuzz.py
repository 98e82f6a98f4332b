"""Bytes that nobody would write: valid ones that were changed, and what each of them may cost.

Laws: the same seed makes the same inputs. What took long is done again, and its calls are counted, which are the same
on every machine; what the process has grown by is done again, and its memory is measured. So nothing else costs more
than a look at two clocks.
Source: requirement B4 (bounded time and memory under hostile input).
"""

from __future__ import annotations

import resource
import sys
import time
import tracemalloc
from collections.abc import Callable, Sequence
from random import Random
from types import FrameType
from typing import Final

from support.depth import at_depth

#: How many inputs a test tries.
INPUTS: Final = at_depth(2_000, 1_000_000)
#: What one input may take: 50 ms on a slow machine.
MOST_CALLS: Final = 400_000
MOST_BYTES: Final = 10 << 20
#: Processor time after which the calls are counted.
LONG_SECONDS: Final = 0.015
#: By so much the process may grow before anybody looks why.
UNSEEN_KIB: Final = 512

#: What lengths and counts are tried with.
_NUMBERS: Final = (
    0,
    1,
    -1,
    2,
    0x7F,
    0x80,
    0xFF,
    0x7FFF,
    0x7FFFFFFF,
    -0x80000000,
    0x7FFFFFFFFFFFFFFF,
    -(1 << 63),
    65_536,
)
_LONGEST_RUN: Final = 4_096


class Mutator:
    """Changes bytes, a few places at a time."""

    def __init__(self, random: Random) -> None:
        self._random: Final = random
        self._ways: Final = (
            self._flip,
            self._flip,
            self._set,
            self._number,
            self._number,
            self._varint,
            self._drop,
            self._repeat,
            self._cut,
            self._splice,
        )

    def changed(self, valid: bytes, others: Sequence[bytes]) -> bytes:
        """`valid` with one to four changes; pieces of `others` may stand in it."""
        data = bytearray(valid)
        for _ in range(self._random.choice((1, 1, 1, 2, 3, 4))):
            if not data:
                break
            self._random.choice(self._ways)(data, others)
        return bytes(data)

    def _flip(self, data: bytearray, _: Sequence[bytes]) -> None:
        at = self._random.randrange(len(data) * 8)
        data[at >> 3] ^= 1 << (at & 7)

    def _set(self, data: bytearray, _: Sequence[bytes]) -> None:
        data[self._random.randrange(len(data))] = self._random.choice((0, 1, 0x7F, 0x80, 0xFF))

    def _number(self, data: bytearray, _: Sequence[bytes]) -> None:
        """A number of a fixed size, where lengths and counts may stand."""
        width = self._random.choice((1, 2, 4, 8))
        at = self._random.randrange(len(data))
        number = self._random.choice(_NUMBERS) & ((1 << 8 * width) - 1)
        data[at : at + width] = number.to_bytes(width)

    def _varint(self, data: bytearray, _: Sequence[bytes]) -> None:
        at = self._random.randrange(len(data))
        data[at : at + 1] = self._random.choice(
            (b"\xff\xff\xff\xff\x0f", b"\xff\xff\x7f", b"\x80\x80\x01", b"\xff" * 10)
        )

    def _drop(self, data: bytearray, _: Sequence[bytes]) -> None:
        at = self._random.randrange(len(data))
        del data[at : at + self._random.choice((1, 2, 4, 16))]

    def _repeat(self, data: bytearray, _: Sequence[bytes]) -> None:
        """A piece again and again."""
        at = self._random.randrange(len(data))
        piece = data[at : at + self._random.choice((1, 4, 16, 64))]
        data[at:at] = (piece * self._random.choice((1, 2, 10, 100)))[:_LONGEST_RUN]

    def _cut(self, data: bytearray, _: Sequence[bytes]) -> None:
        del data[self._random.randrange(len(data)) :]

    def _splice(self, data: bytearray, others: Sequence[bytes]) -> None:
        """A piece of something else."""
        other = self._random.choice(others)
        at, size = self._random.randrange(len(data)), self._random.choice((1, 4, 16, 64, 256))
        begin = self._random.randrange(len(other) or 1)
        data[at : at + self._random.choice((0, size))] = other[begin : begin + size]


class Bounds:
    """Holds each input to its time and memory."""

    def __init__(self) -> None:
        self._grown_to = _most_kib()
        self.slowest_seconds = 0.0
        self.looked = self.counted = 0

    def __str__(self) -> str:
        return (
            f"at most {self.slowest_seconds * 1000:.0f} ms each; "
            f"calls were counted {self.counted} times, memory was measured {self.looked} times"
        )

    def hold(self, act: Callable[[], object], again: Callable[[], object] | None = None) -> None:
        """Call `act`: AssertionError if it takes too much.

        `again` does the same once more, for a second look; `act` itself, if none is given.
        """
        again = again or act
        began = time.thread_time()
        act()
        seconds = time.thread_time() - began
        self.slowest_seconds = max(self.slowest_seconds, seconds)
        if seconds > LONG_SECONDS:
            self.counted += 1
            calls = _calls_of(again)
            assert calls <= MOST_CALLS, f"{calls} calls"
        grown_to = _most_kib()
        if grown_to > self._grown_to + UNSEEN_KIB:
            self.looked += 1
            tracemalloc.start()
            again()
            peak = tracemalloc.get_traced_memory()[1]
            tracemalloc.stop()
            assert peak <= MOST_BYTES, f"{peak >> 20} MiB of memory"
            self._grown_to = _most_kib()


def _calls_of(act: Callable[[], object]) -> int:
    calls = 0

    def count(frame: FrameType, event: str, argument: object) -> None:
        nonlocal calls
        del frame, argument
        calls += event in ("call", "c_call")

    sys.setprofile(count)
    try:
        act()
    finally:
        sys.setprofile(None)
    return calls


def _most_kib() -> int:
    """The most that this process has had in memory."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
