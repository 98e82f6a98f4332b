"""Hypothesis strategies for wire messages, built from their declarations.

A generated message is in normal form for its version: fields that the version lacks hold their defaults, so that
decoding what was encoded gives an equal message.
"""

from __future__ import annotations

from functools import cache
from typing import Any, TypeVar

from hypothesis import strategies as st

from kohort.wire.private import FIRST_TAG
from kohort.wire.schema import Array, Field, Kind, Message, Scalar, schema_of
from support.builders.wire_messages import kafka_fields_of

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
