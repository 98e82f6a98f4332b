"""The broker's log lines on standard error: time, level, event.

Laws: one event is one line of `TIME LEVEL event=... key=value`; the time is UTC with milliseconds, as ISO 8601 writes
it. A program that has set up logging gets the lines like all others.
"""

from __future__ import annotations

import logging
import sys
import time

#: One event a line: UTC time, level, message.
_FORMAT = "%(asctime)s.%(msecs)03dZ %(levelname)s %(message)s"


def write_to_stderr() -> None:
    """Write warnings and errors of the broker to standard error, unless logging is set up."""
    package = logging.getLogger("kohort")
    if package.hasHandlers():
        return
    formatter = logging.Formatter(_FORMAT, datefmt="%Y-%m-%dT%H:%M:%S")
    formatter.converter = time.gmtime
    handler = logging.StreamHandler(sys.stderr)
    handler.setLevel(logging.WARNING)
    handler.setFormatter(formatter)
    package.addHandler(handler)
