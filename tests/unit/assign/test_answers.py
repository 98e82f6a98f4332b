"""What an assignor gives is looked at before it is used."""

from __future__ import annotations

from array import array

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kohort.assign.assignors import BUILT_IN, built_in
from kohort.assign.moves import find_fault
from support.builders.assignables import group_of, partitions_of

GROUP = group_of({"t": 2, "u": 1}, {"a": ["t", "u"], "b": ["t"]})


@pytest.mark.parametrize(
    ("answer", "fault"),
    [
        (array("i", [0, 1, 0]), ""),
        (None, "gave NoneType instead of array('i')"),
        ([0, 1, 0], "gave list instead of array('i')"),
        (array("q", [0, 1, 0]), "gave array('q') instead of array('i')"),
        (array("i", [0, 1]), "gave 2 owners for 3 partitions"),
        (array("i", [0, 1, 1]), "gave partition u-0 to member b, which does not want it"),
        (array("i", [0, -1, 0]), "left partition t-1 without an owner (number -1)"),
        (array("i", [0, 2, 0]), "left partition t-1 without an owner (number 2)"),
        (array("i", [0, -(2**31), 0]), "left partition t-1 without an owner (number -2147483648)"),
    ],
)
def test_fault(answer: object, fault: str) -> None:
    assert find_fault(GROUP, answer) == fault


@given(answer=st.lists(st.integers(-3, 4), min_size=3, max_size=3))
def test_no_fault_is_found_exactly_where_subscribers_own_everything(answer: list[int]) -> None:
    is_good = all(member in who for member, who in zip(answer, partitions_of(GROUP), strict=True))
    assert (find_fault(GROUP, array("i", answer)) == "") == is_good


@pytest.mark.parametrize("name", BUILT_IN)
def test_built_in_assignors_are_without_fault(name: str) -> None:
    assignor = built_in(name)
    assert assignor is not None
    assert find_fault(GROUP, assignor.assign(GROUP)) == ""
