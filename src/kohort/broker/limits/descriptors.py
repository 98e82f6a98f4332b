"""How many connections and files a broker may have open, of the descriptors that the system lets it have.

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

#: Where the system tells no limit.
_ANY: Final = 1 << 20
#: No broker needs more files of its log open at a time.
MOST_FILES: Final = 16_384


@dataclass(frozen=True, slots=True, kw_only=True)
class Shares:
    """What a broker may have open."""

    connections: int
    files: int


def raise_limit() -> None:
    """Let this process have as many descriptors as it may; for processes that are a broker's own."""
    if resource is None:
        return
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    # macOS refuses a soft limit without end.
    with contextlib.suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def shares(most_connections: int, *, has_files: bool) -> Shares:
    """The descriptors of this process, divided: half for connections, unless they need less, or there are no files."""
    return divide(_soft_limit(), most_connections, has_files=has_files)


def divide(descriptors: int, most_connections: int, *, has_files: bool) -> Shares:
    """See `shares`.

    >>> divide(1024, 10_000, has_files=True)
    Shares(connections=409, files=410)
    >>> divide(1024, 100, has_files=True)
    Shares(connections=100, files=719)
    """
    usable = descriptors * 4 // 5
    connections = max(1, min(most_connections, usable // 2 if has_files else usable))
    return Shares(connections=connections, files=max(1, min(MOST_FILES, usable - connections)))


def _soft_limit() -> int:
    if resource is None:
        return _ANY
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return _ANY if soft == resource.RLIM_INFINITY else min(soft, _ANY)
