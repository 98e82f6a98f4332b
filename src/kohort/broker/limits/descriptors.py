"""The shares of connections and log files in the file descriptors of the process.

Laws: connections and files of logs together leave a fifth of the descriptors for everything else; neither can take
the other's share, so that clients do not end a broker whose log has to open a file.
Source: the JVM raises its soft limit to the hard one as it starts (MaxFDLimit).
"""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from typing import Final

try:
    import resource
except ImportError:  # A system without limits of this kind.
    resource = None  # type: ignore[assignment]

#: The number of descriptors where the system tells no limit.
_ANY: Final = 1 << 20
#: No broker needs more files of its log open at a time.
MOST_FILES: Final = 16_384


@dataclass(frozen=True, slots=True, kw_only=True)
class Shares:
    """The numbers of connections and files that a broker may have open."""

    connections: int
    files: int


def raise_limit() -> None:
    """Raise the soft limit of descriptors to the hard one, in a process that is a broker's own."""
    if resource is None:
        return
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    # macOS refuses a soft limit without end.
    with contextlib.suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def shares(most_connections: int, *, has_files: bool) -> Shares:
    """Divide this process's descriptors: half for connections, unless these need less or no files exist."""
    return divide(_soft_limit(), most_connections, has_files=has_files)


def divide(descriptors: int, most_connections: int, *, has_files: bool) -> Shares:
    """Divide descriptors between connections and files, see `shares`.

    >>> divide(1024, 10_000, has_files=True)
    Shares(connections=409, files=410)
    >>> divide(1024, 100, has_files=True)
    Shares(connections=100, files=719)
    """
    # A fifth is left for sockets in transition, pipes, libraries and files outside the log.
    usable = descriptors * 4 // 5
    connections = max(1, min(most_connections, usable // 2 if has_files else usable))
    return Shares(connections=connections, files=max(1, min(MOST_FILES, usable - connections)))


def _soft_limit() -> int:
    if resource is None:
        return _ANY
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return _ANY if soft == resource.RLIM_INFINITY else min(soft, _ANY)
