"""Columns of byte strings and headers, in the layout of Arrow's types, without Arrow.

Laws: a column owns its memory; bytes objects are made only for the rows that are asked for.
Source: the Arrow columnar format, variable-size binary layout.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import TypeAlias

Headers: TypeAlias = tuple[tuple[str, bytes | None], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class BinaryColumn:
    """n byte strings behind each other, in the layout of Arrow's binary type."""

    #: int32[n + 1]: string i is data[offsets[i] : offsets[i + 1]].
    offsets: memoryview
    #: uint8
    data: memoryview
    #: One bit per row, lowest first, set where there is a string; `None` if no row is null.
    validity: memoryview | None
    null_count: int

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def to_list(self, start: int = 0, stop: int | None = None) -> list[bytes | None]:
        """Return the rows [start, stop) as bytes, `None` where null."""
        offsets = self.offsets[start : len(self) + 1 if stop is None else stop + 1].tolist()
        if len(offsets) < 2:
            return []
        base = offsets[0]
        data = bytes(self.data[base : offsets[-1]])
        values: list[bytes | None] = [data[begin - base : end - base] for begin, end in pairwise(offsets)]
        if self.validity is not None:
            bitmap = self.validity
            for row in range(len(values)):
                if not bitmap[start + row >> 3] >> (start + row & 7) & 1:
                    values[row] = None
        return values


@dataclass(frozen=True, slots=True, kw_only=True)
class HeaderColumn:
    """The headers of n records."""

    #: int32[n + 1]: record i has the headers [row_offsets[i], row_offsets[i + 1]).
    row_offsets: memoryview
    #: Never null; UTF-8 as far as the producer kept to it.
    keys: BinaryColumn
    values: BinaryColumn

    def to_list(self, start: int = 0, stop: int | None = None) -> list[Headers]:
        """Return the headers of the rows [start, stop); malformed names are repaired as Java does."""
        last = len(self.row_offsets) - 1 if stop is None else stop
        bounds = self.row_offsets[start : last + 1].tolist()
        if len(bounds) < 2:
            return []
        first = bounds[0]
        names = self.keys.to_list(first, bounds[-1])
        texts = [(name or b"").decode("utf-8", "replace") for name in names]
        headers = tuple(zip(texts, self.values.to_list(first, bounds[-1]), strict=True))
        return [headers[begin - first : end - first] for begin, end in pairwise(bounds)]
