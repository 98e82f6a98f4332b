"""Options of held heartbeats: for which clients, and how long a join may wait; Kafka has none."""

from __future__ import annotations

from typing import Final

from kohort.config import Option, parse_bool, parse_int, parse_list

#: All options of held heartbeats.
PUSH_OPTIONS: Final = [
    Option(
        name="group.push.enable",
        parse=parse_bool,
        default=True,
        doc="Whether a heartbeat without news is answered when there is some, for clients that bear it (not in Kafka).",
    ),
    Option(
        name="group.push.join.hold.ms",
        parse=parse_int,
        default=1_000,
        doc="How long a member that joins may wait for its first answer, so that its share is in it; 0: not at all "
        "(not in Kafka).",
        minimum=0,
        maximum=10_000,
    ),
    Option(
        name="group.push.clients",
        parse=parse_list,
        default=[],
        doc="Software names of further clients whose heartbeats may be held, beside those that were tried; "
        "*: all (not in Kafka).",
    ),
]
