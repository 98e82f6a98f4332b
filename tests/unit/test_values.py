"""Values: what a frozen dataclass promises, for a tenth of its price at import."""

from __future__ import annotations

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


def test_fields_go_by_name_and_have_their_defaults() -> None:
    """As they were declared."""
    start = Start(fence=Fence(1), offset=7)
    assert (start.fence, start.offset, start.is_paused, start.timestamp) == (1, 7, False, None)
    assert repr(start) == "Start(fence=1, offset=7, is_paused=False, timestamp=None)"
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


def test_values_are_taken_apart_by_match() -> None:
    """Every machine does it."""
    match Start(fence=Fence(4), offset=2):
        case Start(fence=fence, offset=2):
            assert fence == 4
        case _:
            pytest.fail("not matched")
