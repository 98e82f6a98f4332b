"""Messages of any kind with values that no client would send."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import Any

from kohort.records.batch import build_batch
from kohort.wire.embedded import encode_subscription
from kohort.wire.schema import Array, Kind, Scalar, fields_of, schema_of

TEXTS = (
    "work",
    "g",
    "classic",
    "member-1",
    "uniform",
    "range",
    "consumer",
    "__consumer_offsets",
    "",
    "no such",
    "ä\x00",
)
NUMBERS = (*(0, 1, -1) * 3, 2, 3, -2, 100, 500, 1 << 15, (1 << 31) - 1, -(1 << 31), (1 << 63) - 1, -(1 << 63))
BLOBS = (b"", b"\x00", bytes(range(20)), bytes(2_000), encode_subscription(["work"]))
#: Mostly few, now and then more than any loop over them was tried with.
SIZES = (*(0, 1, 1, 1, 2, 3) * 12, 10, 10, 50, 300)
#: Of one message, in all its arrays.
ELEMENTS = 600


class Generator:
    """Messages with values that something may be known by more often than chance would have it."""

    def __init__(self, random: Random, topic_ids: Sequence[bytes]) -> None:
        self._random = random
        self._topic_ids = (*topic_ids, bytes(16), bytes(range(16)))
        self._batch = build_batch([(None, b"v", 0, ())])
        #: Elements that this message may still have.
        self._left = 0

    def message(self, cls: type[Any], version: int) -> Any:
        self._left = ELEMENTS
        return self._struct(cls, version, schema_of(cls).is_flexible(version))

    def _struct(self, cls: type[Any], version: int, flexible: bool) -> Any:
        values: dict[str, Any] = {}
        for each in fields_of(cls):
            if not each.is_in(version) or (each.is_tagged(version) and not flexible):
                continue
            chance = self._random.random()
            if each.is_nullable(version) and chance < 0.25:
                values[each.name] = None
            elif chance < 0.9:
                values[each.name] = self._value(each.kind, version, flexible)
        return cls(**values)

    def _value(self, kind: Kind, version: int, flexible: bool) -> Any:
        if isinstance(kind, Array):
            size = min(self._random.choice(SIZES), self._left)
            self._left -= size
            return [self._value(kind.element, version, flexible) for _ in range(size)]
        if isinstance(kind, Scalar):
            return self._scalar(kind)
        return self._struct(kind, version, flexible)

    def _scalar(self, kind: Scalar) -> Any:
        choice = self._random.choice
        match kind.name:
            case "bool":
                return choice((True, False))
            case "string":
                return choice(TEXTS)
            case "uuid":
                return choice(self._topic_ids)
            case "bytes":
                return choice(BLOBS)
            case "records":
                return choice((*BLOBS, self._batch))
            case "float64":
                return 0.5
        unsigned = kind.name.startswith("u")
        bits = kind.size * 8 - (not unsigned)
        number = choice((*NUMBERS, self._random.getrandbits(bits)))
        return min(max(number, 0 if unsigned else -(1 << bits)), (1 << bits) - 1)
