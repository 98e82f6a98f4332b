"""The input of a verb: a file, or the standard input for `-`."""

from __future__ import annotations

import sys
from pathlib import Path

from kohort.errors import ConfigError


def input_name(path: str) -> str:
    """Return the name of an input for messages."""
    return "the standard input" if path == "-" else path


def read_input(path: str, most_bytes: int, *, remark: str = "") -> bytes:
    """Read the whole input; `remark` ends the sentence about one that is too long.

    Raises:
        ConfigError: it is longer than that.
        OSError: it cannot be opened.
    """
    if path == "-":
        data = sys.stdin.buffer.read(most_bytes + 1)
    else:
        with Path(path).open("rb") as file:
            data = file.read(most_bytes + 1)
    if len(data) > most_bytes:
        raise ConfigError(f"{input_name(path)} is longer than {most_bytes} bytes{remark}")
    return data
