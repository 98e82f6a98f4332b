"""What capability tokens cost: verified anew, kept and asked about a row, minted, narrowed.

No broker takes part, and processor time is counted. Peer of what is verified and minted: PyJWT with HS256 and four
claims, where it is installed, which cannot be narrowed without its key.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from typing import Any, Final

from kohort import capabilities
from kohort.security.access_control import AclOperation, ResourceType
from report import NO_PEER, Row, Table, alternate, compare, warmed

PEER: Final = "PyJWT, HS256"
ROUNDS: Final = 2_000
NOW_MS: Final = 1_800_000_000_000
SECRET: Final = bytes(range(32))
KEYS: Final = capabilities.RootKeys.of(SECRET)
TOKEN_ID: Final = bytes(16)
CAVEATS: Final = (
    capabilities.operations("read", "commit"),
    capabilities.topics("orders"),
    capabilities.groups("billing"),
    capabilities.not_after(NOW_MS + 60_000),
)
GRANT: Final = (
    capabilities.groups("billing"),
    capabilities.member("m-1"),
    capabilities.epoch(7),
    capabilities.partitions({bytes(16): range(0, 20_000, 2)}),
    capabilities.operations("read", "commit"),
    capabilities.not_after(NOW_MS + 60_000),
)
CLAIMS: Final = {"scope": "read commit", "topic": "orders", "group": "billing", "exp": NOW_MS // 1000 + 10**9}


def measure(runs: int) -> list[Table]:
    """Microseconds of each, the mean of a run."""
    token = capabilities.mint(KEYS, *CAVEATS, token_id=TOKEN_ID)
    grant = capabilities.mint(KEYS, *GRANT, token_id=TOKEN_ID)
    rows = [
        row("verified anew, 4 caveats", partial(capabilities.verify, token, KEYS), runs, "<= 100 µs", peer=read_jwt()),
        row("verified anew, 10,000 partitions", partial(capabilities.verify, grant, KEYS), runs, ""),
        row("kept, asked about a row", kept(token), runs, "<= 2 µs"),
        row(
            "minted, 4 caveats",
            lambda: capabilities.mint(KEYS, *CAVEATS, token_id=TOKEN_ID),
            runs,
            "",
            peer=write_jwt(),
        ),
        row("attenuated by one", partial(capabilities.attenuate, token, capabilities.label("a")), runs, ""),
    ]
    left_out = [] if read_jwt() else [f"{PEER}: not installed"]
    return [Table("tokens", "Capability tokens", rows, left_out)]


def row(what: str, call: Callable[[], Any], runs: int, reach: str, *, peer: Callable[[], Any] | None = None) -> Row:
    """Build one row; less is better."""
    ours, theirs = alternate(runs, partial(microseconds, call), None if peer is None else partial(microseconds, peer))
    return compare(
        what,
        ours,
        theirs,
        unit="µs",
        reach=reach,
        peer_name=PEER if peer else NO_PEER,
        how=f"{warmed(runs)}, {ROUNDS:,} calls each, processor time",
        less_is_better=True,
    )


def microseconds(call: Callable[[], Any]) -> float:
    """Return the processor time of a call, the mean of many."""
    began = time.thread_time()
    for _ in range(ROUNDS):
        call()
    return (time.thread_time() - began) / ROUNDS * 1e6


def kept(token: str) -> Callable[[], Any]:
    """Return the question that each row of a fetch asks: a text from the wire, what was kept of it, one refusal."""
    verified = {token: capabilities.verify(token, KEYS)}
    wire = token.encode()

    def ask() -> None:
        capability = verified[wire.decode()]
        refusal = capability.refusal(
            operation=AclOperation.READ, resource_type=ResourceType.TOPIC, name="orders", partition=3, now_ms=NOW_MS
        )
        assert refusal is None

    return ask


def read_jwt() -> Callable[[], Any] | None:
    """Return a verification of the peer's; `None` without it."""
    try:
        import jwt
    except ImportError:
        return None
    signed = jwt.encode(CLAIMS, SECRET, algorithm="HS256")
    return partial(jwt.decode, signed, SECRET, algorithms=["HS256"])


def write_jwt() -> Callable[[], Any] | None:
    """Return a signature of the peer's; `None` without it."""
    try:
        import jwt
    except ImportError:
        return None
    return partial(jwt.encode, CLAIMS, SECRET, algorithm="HS256")
