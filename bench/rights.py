"""What it costs to look at rights: the same broker with 1,000 ACLs and without, produce and fetch, one connection.

The client is ANONYMOUS, whose right to the bench's topics is one ACL with a prefix among 999 others; with ACLs each
request asks for it. Peer: kohort without an authorizer, in the same run.
"""

from __future__ import annotations

from functools import partial
from typing import Final

import fetch
import produce
from pressure import Pressure, under_pressure
from report import Table
from servers import KohortServer
from topics import PAGE_CACHE

ACLS: Final = 1_000
PEER: Final = "without ACLs"
REACH: Final = ">= 0.97x"
PRODUCED: Final = (("one record", PAGE_CACHE, 1, REACH), ("64 KB", PAGE_CACHE, 1, REACH))
#: One connection reads 64 KB at a time.
FETCHED_BYTES: Final = 64 << 10
#: What no ACL is about everyone may do, so that the bench can begin; its topics are not among that.
LOOKED_AT: Final = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "allow.everyone.if.no.acl.found": "true",
}


def restrict(server: KohortServer) -> None:
    """Add ACLs about other topics and users, and one that lets the bench's client do everything with its topics."""
    import kohort

    def acl(number: int) -> kohort.Acl:
        kind = ("literal", "prefixed")[number % 2]
        user, topic = f"User:u{number % 100}", f"team-{number % 10}-topic-{number}"
        return kohort.Acl(resource_type="topic", name=topic, pattern_type=kind, principal=user, operation="read")

    own = [
        kohort.Acl(
            resource_type="topic", name=name, pattern_type="prefixed", principal="User:ANONYMOUS", operation="all"
        )
        for name in ("produce-", "fetch-")
    ]
    with kohort.Admin(bootstrap_servers=server.bootstrap_servers) as admin:
        admin.create_acls([*map(acl, range(ACLS - len(own))), *own])
        assert len(admin.describe_acls()) == ACLS


def measure(runs: int) -> list[Table]:
    with KohortServer(LOOKED_AT) as ours, KohortServer() as theirs:
        restrict(ours)
        servers = [ours, theirs]
        rows = produce.load(servers, PRODUCED, runs, peer=PEER)
        for server in servers:
            fetch.fill_partitions(server, 1)
        prepare = partial(fetch.readers, connections=1, size=FETCHED_BYTES)
        pressure = Pressure(
            what="fetch 64 KB, 1 connection", in_flight=fetch.IN_FLIGHT, reach=REACH, unit="MB/s", peer=PEER
        )
        rows.append(under_pressure(pressure, prepare, servers, runs))
    return [Table("rights", "Rights: 1,000 ACLs beside none", rows, [])]
