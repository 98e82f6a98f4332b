"""Arrays that kernels fill, and the pool of their memory."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kohort.records import row_kernels
from kohort.records.arrays import ArrayPool, blank, zeros
from kohort.records.kernel_form import plain_form


@pytest.mark.parametrize(("kind", "width"), [("q", 8), ("i", 4), ("B", 1)])
def test_arrays_have_their_kind_and_length(kind: str, width: int) -> None:
    pool = ArrayPool(limit_bytes=1 << 20)
    for made in (zeros(kind, 10), blank(kind, 10), pool.array(kind, 10), pool.array(kind, 50_000), blank(kind, 0)):
        assert (made.format, made.nbytes) == (kind, len(made) * width)
        assert not made.readonly
    assert zeros(kind, 10).tolist() == [0] * 10


def test_memory_is_not_handed_out_twice() -> None:
    """As long as anybody has a view of it, be it a part."""
    pool = ArrayPool(limit_bytes=1 << 20)
    first = pool.array("B", 100_000)
    part = first[10:20]
    memory = first.obj
    first.release()

    second = pool.array("B", 100_000)
    assert second.obj is not memory
    part.release()
    assert pool.array("B", 90_000).obj is memory


def test_memory_that_is_much_too_large_is_left_for_others() -> None:
    pool = ArrayPool(limit_bytes=1 << 20)
    large = pool.array("B", 500_000).obj

    assert pool.array("B", 100_000).obj is not large
    assert pool.array("B", 400_000).obj is large


def test_no_more_than_the_limit_is_kept() -> None:
    """What is lent lives on; what is not wanted any more is not remembered."""
    pool = ArrayPool(limit_bytes=300_000)
    held = [pool.array("B", 100_000) for _ in range(5)]
    memory = [view.obj for view in held]
    for number, view in enumerate(held):
        view[:] = bytes([number]) * 100_000

    assert [view[99_999] for view in held] == [0, 1, 2, 3, 4]
    del view, held
    again = [pool.array("B", 100_000) for _ in range(3)]
    assert sum(any(view.obj is each for each in memory) for view in again) == 2


@given(times=st.lists(st.integers(-(1 << 63), (1 << 63) - 1), max_size=20))
def test_times_become_microseconds_as_far_as_they_can(times: list[int]) -> None:
    """The compiled form and the plain one."""
    limit = ((1 << 63) - 1) // 1000
    good = next((row for row, time in enumerate(times) if abs(time) > limit), len(times))
    given_times = blank("q", len(times))
    for row, time in enumerate(times):
        given_times[row] = time
    for kernel in (row_kernels.to_microseconds, plain_form(row_kernels).to_microseconds):
        out = zeros("q", len(times))
        assert kernel(given_times, out) == good
        assert out.tolist()[:good] == [time * 1000 for time in times[:good]]
