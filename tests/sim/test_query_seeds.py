"""Seeds of the queries' world that broke a law once."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from kohort.errors import InvariantViolation
from kohort.simulation.queries.query_world import QueryWorld
from kohort.simulation.queries.streaming_query import GROUP, QueryPlan


def test_a_query_that_is_started_and_stopped_before_its_first_plan() -> None:
    """It left for good, and the batch that its last run had finished counted as one in doubt."""
    assert QueryWorld(414).run().records > 0


class MomentWorld(QueryWorld):
    """What can happen to a query: its reader dies with a batch open, and is back before the world looks again."""

    has_been_asked = False

    def names(self) -> set[str]:
        self.has_been_asked = True
        return super().names()

    async def end_a_session_for_a_moment(self) -> None:
        query = self.running[0]
        reader = query.reader
        if reader is None or reader.core is None or not reader.batch:
            return
        name = reader.core.name
        await query.kill("its reader")
        await self._unseen(lambda: name not in self.present())
        self.has_been_asked = False
        await self._unseen(lambda: self.has_been_asked)
        query.start()
        await self._unseen(lambda: name in self.present())

    async def _unseen(self, happened: Callable[[], bool]) -> None:
        """Let time pass until something happens, and do not look at the whole world meanwhile."""
        for _ in range(1_000):
            if happened():
                return
            await asyncio.sleep(0.05)
        raise AssertionError("it never happens")

    def present(self) -> set[str]:
        """Names of the group's members; nobody has asked for them."""
        groups = self._shard().groups
        group = groups.consumer.get(GROUP) or groups.classic.get(GROUP)
        return set() if group is None else set(group.instance_ids)


class ForgetfulWorld(MomentWorld):
    """A world that looks for ended sessions by itself only, and not when others ask for the names."""

    def names(self) -> set[str]:
        self.has_been_asked = True
        return self.present()

    def _look(self) -> None:
        super()._look()
        self._look_for_ended_sessions(self.present())


def test_a_session_that_has_ended_for_a_moment_only() -> None:
    """Its query is back before the world looks, but somebody else has asked for the names in between."""
    plan = QueryPlan(trigger_s=0.3, perturbed_s=3.0, weights={"end_a_session_for_a_moment": 1})
    assert MomentWorld(0, plan=plan).run().doubled > 0
    with pytest.raises(InvariantViolation, match=r"^NothingDoubled:"):
        ForgetfulWorld(0, plan=plan).run()
