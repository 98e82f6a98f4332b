"""Options of moves: the pace of partitions between members of a KIP-848 group; Kafka has none."""

from __future__ import annotations

from typing import Final

from kohort.config import Option, parse_bool, parse_float, parse_int, parse_str
from kohort.coordinator.settings import MOST_MOVES_AT_ONCE, MOST_MOVES_PER_SECOND, MOVE_ORDERS

#: All options of moves.
MOVE_OPTIONS: Final = [
    Option(
        name="group.moves.per.second",
        parse=parse_float,
        default=0.0,
        minimum=0,
        maximum=MOST_MOVES_PER_SECOND,
        doc="Most partitions that begin to move from one member of a KIP-848 group to another in a second; "
        "0: all at once (not in Kafka).",
    ),
    Option(
        name="group.moves.burst",
        parse=parse_int,
        default=1,
        minimum=1,
        maximum=MOST_MOVES_AT_ONCE,
        doc="How many of them may begin together after a time without any (not in Kafka).",
    ),
    Option(
        name="group.moves.paused",
        parse=parse_bool,
        default=False,
        doc="Whether none of them begins; what nobody owns is given out all the same (not in Kafka).",
    ),
    Option(
        name="group.moves.order",
        parse=parse_str,
        default="name",
        choices=MOVE_ORDERS,
        doc="Which of those that wait begins next: by topic and partition (name), that with most records that the "
        "group has not committed (lag), or that with most bytes (size) (not in Kafka).",
    ),
]
