"""Values: what a frozen dataclass promises, for a tenth of its price at import."""

from __future__ import annotations

import pickle
from copy import copy
from dataclasses import KW_ONLY, field, replace

import pytest

from kohort.base.values import value
from kohort.client.consumer.application_events import Fence, Start
from kohort.client.core.requests import DeadlineReached


@value
class Other:
    fence: Fence
    offset: int | None = None
    is_paused: bool = False
    timestamp: int | None = None


class Holder:
    @value
    class Inner:
        number: int


class Doubled(Holder.Inner):
    """No value itself, with a constructor of its own."""

    def __init__(self, number: int) -> None:
        super().__init__(number=number * 2)


def test_subclass_keeps_its_own_constructor() -> None:
    assert [Doubled(3).number, Doubled(4).number] == [6, 8]
    assert Holder.Inner(number=3).number == 3


def test_values_are_copied_and_pickled_wherever_they_are_declared() -> None:
    inner = Holder.Inner(number=3)
    assert copy(inner) == pickle.loads(pickle.dumps(inner)) == inner.__replace__(number=3) == inner


def test_fields_go_by_name_and_have_their_defaults() -> None:
    """As they were declared."""
    start = Start(fence=Fence(1), offset=7)
    assert (start.fence, start.offset, start.is_paused, start.timestamp) == (1, 7, False, None)
    assert repr(Other(fence=Fence(1), offset=7)) == "Other(fence=1, offset=7, is_paused=False, timestamp=None)"
    assert repr(DeadlineReached()) == "DeadlineReached()"


def test_values_are_equal_by_kind_and_fields() -> None:
    """Two kinds with the same fields are not the same thing."""
    start = Start(fence=Fence(1), offset=7)
    assert start == Start(offset=7, fence=Fence(1))
    assert hash(start) == hash(Start(offset=7, fence=Fence(1)))
    assert start != Start(fence=Fence(1))
    assert start != Other(fence=Fence(1), offset=7)
    assert DeadlineReached() == DeadlineReached()


@pytest.mark.parametrize("wrong", [{}, {"fence": 1, "ofset": 2}])
def test_a_field_that_is_missing_or_unknown_is_refused(wrong: dict[str, int]) -> None:
    """By the first instance, which compiles the constructor, and by every later one."""
    for _ in range(2):
        with pytest.raises(TypeError, match=r"fence|ofset"):
            Other(**wrong)  # type: ignore[arg-type]


def test_nothing_but_fields_fits_in() -> None:
    """Slots: a misspelled name is an error, and an instance is small."""
    assert not hasattr(Start(fence=Fence(1)), "__dict__")
    with pytest.raises(AttributeError):
        Start(fence=Fence(1)).ofset = 3  # type: ignore[attr-defined]


@value(kw_only=False, frozen=False)
class Tally:
    name: str
    secret: str = field(default="", repr=False)
    _: KW_ONLY
    counts: list[int] = field(default_factory=list)
    seen_ms: int = field(default=0, compare=False)
    length: int = field(init=False, compare=False)

    def __post_init__(self) -> None:
        self.length = len(self.name)


def test_fields_are_described_as_those_of_dataclasses() -> None:
    """By position before `KW_ONLY`, made anew for each instance, hidden, left out of comparisons, made of others."""
    one, other = Tally("a", "s", seen_ms=3), Tally("a", secret="s")
    one.counts.append(1)
    assert (one.counts, other.counts, one.length) == ([1], [], 1)
    assert repr(one) == "Tally(name='a', counts=[1], seen_ms=3, length=1)"
    other.counts = [1]
    assert one == other and replace(one, name="b") == Tally("b", "s", counts=[1])
    with pytest.raises(TypeError):
        Tally("a", "s", [])  # type: ignore[misc]
    with pytest.raises(TypeError, match="unhashable"):
        hash(one)
    match one:
        case Tally("a", secret):
            assert secret == "s"
        case _:
            pytest.fail("not matched")


def test_values_are_taken_apart_by_match() -> None:
    """Every machine does it."""
    match Start(fence=Fence(4), offset=2):
        case Start(fence=fence, offset=2):
            assert fence == 4
        case _:
            pytest.fail("not matched")
