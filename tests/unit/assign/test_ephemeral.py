"""Members that come for seconds beside members that stay (requirement G7): what the stable ones are spared."""

from __future__ import annotations

from array import array
from random import Random

import pytest

from kohort.assign.assignors import built_in
from kohort.assign.interface import Assignable
from kohort.assign.kernels import count_moves
from kohort.assign.moves import kept_owners, spread_of
from support.builders.assignables import group_of, loads_of

PARTITIONS = 400
STABLE = [f"stable-{i}" for i in range(10)]


class Churn:
    """A group that is assigned anew after each change."""

    def __init__(self, assignor: str, team_topics: int) -> None:
        found = built_in(assignor)
        assert found is not None
        self._assignor = found
        self._topics = {f"t{i}": PARTITIONS // team_topics for i in range(team_topics)}
        self._members: list[str] = []
        self._has: dict[int, str] = {}
        #: Member -> partitions that it had to give away, over the whole life.
        self.revoked: dict[str, int] = {}
        #: Partitions that moved in the latest computation.
        self.moves = 0
        self.change(joined=STABLE)

    def change(self, *, joined: list[str] | None = None, gone: str = "") -> Assignable:
        self._members = sorted({*self._members, *(joined or [])} - {gone})
        numbers = {member: i for i, member in enumerate(self._members)}
        owner = [numbers.get(self._has.get(p, ""), -1) for p in range(PARTITIONS)]
        group = group_of(self._topics, {member: list(self._topics) for member in self._members}, owner=owner)
        after = self._assignor.assign(group)
        self.moves = count_moves(kept_owners(group), after)
        for old, new in zip(group.owner, after, strict=True):
            if old not in (-1, new):
                self.revoked[self._members[old]] = self.revoked.get(self._members[old], 0) + 1
        self._has = {p: self._members[member] for p, member in enumerate(after)}
        assert spread_of(loads_of(after, len(self._members))) <= 1
        return group

    def load(self, member: str) -> int:
        return loads_of(array("i", [member == owner for owner in self._has.values()]), 2)[1]


@pytest.mark.parametrize("assignor", ["uniform", "sticky"])
def test_whoever_leaves_interrupts_nobody_and_whoever_joins_takes_its_share_alone(assignor: str) -> None:
    """A hundred ephemeral members come one by one and vanish in any order."""
    churn = Churn(assignor, team_topics=4)
    ephemeral = [f"ephemeral-{i}" for i in range(100)]
    for i, member in enumerate(ephemeral):
        churn.change(joined=[member])
        assert churn.moves == PARTITIONS // (len(STABLE) + i + 1)
    for member in STABLE:
        assert churn.revoked[member] == PARTITIONS // len(STABLE) - churn.load(member), "gave and got back"
    Random(7).shuffle(ephemeral)
    for member in ephemeral:
        churn.change(gone=member)
        assert churn.moves == 0
    assert {churn.load(member) for member in STABLE} == {PARTITIONS // len(STABLE)}


def test_members_that_join_together_interrupt_once(assignor: str = "uniform") -> None:
    """One computation for a hundred members: every stable one gives what it has too much, and gets nothing new."""
    churn = Churn(assignor, team_topics=1)
    churn.change(joined=[f"ephemeral-{i}" for i in range(100)])
    assert {churn.revoked[member] for member in STABLE} <= {36, 37}
    churn.change()
    assert churn.moves == 0
