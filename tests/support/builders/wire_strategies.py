"""Random wire messages, built from their declarations: by Hypothesis, or from a seed alone where many are compared.

A generated message is in normal form for its version: fields that the version lacks hold their defaults, so that
decoding what was encoded gives an equal message.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from functools import cache
from random import Random
from typing import Any, Final, TypeVar

from hypothesis import strategies as st

from kohort.wire.private import FIRST_TAG
from kohort.wire.schema import Array, Field, Kind, Message, Scalar, schema_of
from support.builders.wire_messages import kafka_fields_of
from support.depth import SEED

T = TypeVar("T", bound=Message)

TEXT_SIZE = 20
ELEMENTS = 3
#: Floats without NaN, which is not equal to itself.
_SCALARS: dict[str, st.SearchStrategy[Any]] = {
    "bool": st.booleans(),
    # Nor infinity: JSON, in which they are told to Java, has neither.
    "float64": st.floats(allow_nan=False, allow_infinity=False),
    "uuid": st.binary(min_size=16, max_size=16),
    "bytes": st.binary(max_size=TEXT_SIZE),
    "records": st.binary(max_size=TEXT_SIZE),
    "string": st.text(st.characters(exclude_categories=["Cs"]), max_size=TEXT_SIZE),
}


def message_strategy(
    cls: type[T], version: int, *, unknown_tags: bool = False, max_elements: int = ELEMENTS
) -> st.SearchStrategy[T]:
    """Messages of `cls` as `version` can carry them.

    Args:
        cls: a message class.
        version: one that its declaration covers.
        unknown_tags: also draw tagged fields that no declaration knows (numbers from 1000 on).
        max_elements: the longest array.
    """
    return _strategy(cls, version, unknown_tags, max_elements)


@cache
def _strategy(cls: type[Any], version: int, unknown_tags: bool, max_elements: int) -> st.SearchStrategy[Any]:
    """Build it once: what a strategy finds out about itself takes longer than an example."""
    return _Builder(version, schema_of(cls).is_flexible(version), unknown_tags, max_elements).struct(cls)


class _Builder:
    def __init__(self, version: int, flexible: bool, unknown_tags: bool, max_elements: int) -> None:
        self.version = version
        self.flexible = flexible
        self.unknown_tags = unknown_tags
        self.max_elements = max_elements

    def struct(self, cls: type[Any]) -> st.SearchStrategy[Any]:
        fields = {each.name: self.field(each) for each in kafka_fields_of(cls) if self.travels(each)}
        if not (self.flexible and self.unknown_tags):
            return st.builds(cls, **fields)
        tags = st.none() | st.dictionaries(
            st.integers(1_000, FIRST_TAG - 1) | st.integers(90_000, 100_000),
            st.binary(max_size=5),
            min_size=1,
            max_size=2,
        )
        return st.builds(_with_tags, st.builds(cls, **fields), tags)

    def travels(self, each: Field) -> bool:
        return each.is_in(self.version) and (self.flexible or not each.is_tagged(self.version))

    def field(self, each: Field) -> st.SearchStrategy[Any]:
        values = self.value(each.kind)
        return st.none() | values if each.is_nullable(self.version) else values

    def value(self, kind: Kind) -> st.SearchStrategy[Any]:
        if isinstance(kind, Array):
            return st.lists(self.value(kind.element), max_size=self.max_elements)
        if isinstance(kind, Scalar):
            return _SCALARS[kind.name] if kind.name in _SCALARS else _integers(kind)
        return self.struct(kind)


def _integers(kind: Scalar) -> st.SearchStrategy[int]:
    bits = kind.size * 8
    if kind.name.startswith("u"):
        return st.integers(0, (1 << bits) - 1)
    return st.integers(-(1 << bits - 1), (1 << bits - 1) - 1)


def _with_tags(message: Any, tags: dict[int, bytes] | None) -> Any:
    message.unknown_tags = tags
    return message


# The same from a seed alone: a message that is drawn by Hypothesis costs more than all that a comparison does with it.

#: First and last code points of what texts are drawn from; surrogates have no bytes. The lengths of UTF-8 all occur.
_CHARACTERS: Final = ((0, 0x7F), (0x80, 0x7FF), (0x800, 0xD7FF), (0xE000, 0xFFFF), (0x10000, sys.maxunicode))
#: A text or bytes of this length, whose own length takes two bytes in a compact field; and how often it is drawn.
_LONG: Final = 130
_LONG_CHANCE: Final = 0.05


def drawn_messages(cls: type[T], version: int, *, count: int, max_elements: int = ELEMENTS) -> Iterator[T]:
    """Yield messages of `cls` as `version` can carry them: the untouched one, then the same `count` in every run."""
    yield cls()
    draw = _Draw(Random(f"{SEED} {cls.__name__} {version}"), version, schema_of(cls).is_flexible(version), max_elements)
    for _ in range(count):
        yield draw.struct(cls)


class _Draw:
    def __init__(self, random: Random, version: int, flexible: bool, max_elements: int) -> None:
        self.random = random
        self.version = version
        self.flexible = flexible
        self.max_elements = max_elements

    def struct(self, cls: type[Any]) -> Any:
        return cls(**{
            each.name: self.field(each)
            for each in kafka_fields_of(cls)
            if each.is_in(self.version) and (self.flexible or not each.is_tagged(self.version))
        })  # fmt: skip

    def field(self, each: Field) -> Any:
        if each.is_nullable(self.version) and self.random.random() < 0.3:
            return None
        # What a tagged field holds unless it is set is not written; a long draw would hardly ever hit it.
        if each.is_tagged(self.version) and self.random.random() < 0.3:
            return each.make_default()
        return self.value(each.kind)

    def value(self, kind: Kind) -> Any:
        if isinstance(kind, Array):
            return [self.value(kind.element) for _ in range(self.random.randint(0, self.max_elements))]
        return self.scalar(kind) if isinstance(kind, Scalar) else self.struct(kind)

    def scalar(self, kind: Scalar) -> Any:
        random = self.random
        match kind.name:
            case "bool":
                return random.random() < 0.5
            case "float64":
                return random.choice((0.0, -1.0, 5e-324, sys.float_info.max, random.uniform(-1e9, 1e9)))
            case "uuid":
                return random.choice((bytes(16), random.randbytes(16), random.randbytes(16)))
            case "bytes" | "records":
                return random.randbytes(self._length())
            case "string":
                return "".join(chr(random.randint(*random.choice(_CHARACTERS))) for _ in range(self._length()))
        return self._integer(kind.size * 8, is_signed=not kind.name.startswith("u"))

    def _length(self) -> int:
        return _LONG if self.random.random() < _LONG_CHANCE else self.random.randint(0, TEXT_SIZE)

    def _integer(self, bits: int, *, is_signed: bool) -> int:
        """Draw a limit as often as a number between them, small ones as often as large ones."""
        least, most = (-(1 << bits - 1), (1 << bits - 1) - 1) if is_signed else (0, (1 << bits) - 1)
        small = self.random.getrandbits(self.random.randint(1, bits - is_signed))
        return self.random.choice((least, most, 0, small, small, -1 - small if is_signed else small))
