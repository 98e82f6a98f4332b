"""The three standard streams as a command line needs them: always there, never a traceback.

Laws: a stream that was closed (`>&-`) is a sink; a character that the terminal's encoding lacks is written as an
escape; what cannot be written is an `OutputError`, which nothing else raises.
"""

from __future__ import annotations

import io
import os
import sys
from typing import Any, Final

#: Name in `sys` -> how it is opened; in the order of their numbers, so that each gets its own.
_STREAMS: Final = {"stdin": "r", "stdout": "w", "stderr": "w"}


class OutputError(OSError):
    """The standard output takes no more: full, gone, or never writable."""

    def __str__(self) -> str:
        return f"cannot write the output: {(self.strerror or 'unknown reason').lower()}"


class _Output(io.FileIO):
    """The standard output, which says of itself that it failed."""

    def write(self, data: Any, /) -> int:
        try:
            return super().write(data)
        except OSError as why:
            raise OutputError(why.errno, why.strerror) from why


def prepare_streams() -> None:
    """Make all three usable; for a process of our own only."""
    out = sys.stdout
    for name, mode in _STREAMS.items():
        if getattr(sys, name) is None:
            # For the rest of the process.
            setattr(sys, name, open(os.devnull, mode))  # noqa: SIM115
    if isinstance(out, io.TextIOWrapper):
        sys.stdout = io.TextIOWrapper(
            io.BufferedWriter(_Output(out.fileno(), "wb", closefd=False)),
            encoding=out.encoding,
            errors="backslashreplace",
            # Where Python was asked not to buffer, whole lines are buffered: no program reads less.
            line_buffering=out.line_buffering or out.write_through,
        )


def abandon_output() -> None:
    """Discard the buffered output."""
    # Python would write it at its end, and complain once more.
    sink = os.open(os.devnull, os.O_WRONLY)
    os.dup2(sink, sys.stdout.fileno())
    os.close(sink)
