"""Who subscribes to each topic."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kohort.assign.subscribers import subscribers_by_topic


@pytest.mark.large
@given(subscriptions=st.lists(st.lists(st.sampled_from("abcdef"), unique=True).map(tuple), max_size=9))
def test_everybody_is_among_the_subscribers_of_what_it_wants(subscriptions: list[tuple[str, ...]]) -> None:
    found = subscribers_by_topic(subscriptions)
    assert {topic: list(members) for topic, members in found.items()} == {
        topic: [member for member, names in enumerate(subscriptions) if topic in names]
        for topic in {name for names in subscriptions for name in names}
    }
    for one in found.values():
        assert all(one is other for other in found.values() if list(one) == list(other))
