"""Planted mistakes in ownership at the leaders, each found by a law of the clients' world (H5).

The members are deaf: they let go of nothing by themselves, as clients do that count no session. Only leaders hold them
to what the coordinator has decided.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from kohort.broker.apis import fetch
from kohort.broker.context import BrokerContext
from kohort.broker.fetch.ownership import Fence, OwnershipTable
from kohort.broker.groups.ownership_messages import OwnershipMessages
from kohort.client.consumer.fetch.fetch_sender import FetchSender
from kohort.client.consumer.membership.member import Member
from kohort.errors import InvariantViolation
from kohort.simulation.clients.client_world import ClientWorld, MessageFaults
from kohort.simulation.clients.plan import Plan, PlannedGroup
from kohort.testing.ownership_links import Faults
from support.scenarios.finding_seeds import note_seed, seeds_to_play

SEEDS = 40
#: Words of membership are lost for longer than a session; nothing else is.
TORN = Plan(
    brokers=3,
    topics={"t": 3, "u": 2},
    groups=(PlannedGroup(group_id="blue", protocol="consumer", readers=2, auto_commit=True),),
    weights={"lose_coordinator": 2, "add_reader": 1},
    habits={"poll": 1},
    value_bytes=20,
    hold_share=0.0,
    perturbed_s=10.0,
    every_s=1.5,
)
#: The same, and messages to leaders are lost, late and repeated.
APART = replace(TORN, messages_fail=True)
#: The clock of the second broker, which hears nothing of owners, is behind: by less than a session without its lease,
#: and by more than a session.
SLOW, TOO_SLOW = replace(APART, behind_ms=1_400), replace(APART, behind_ms=6_000)
#: Members' grants are revoked.
REVOKED = replace(TORN, weights={"revoke_reader": 2, "add_reader": 1}, perturbed_s=6.0)


@pytest.fixture
def deaf(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """Members that do not let go when the coordinator is silent."""
    monkeypatch.setattr(Member, "_give_up_silence", lambda *_: False)
    return monkeypatch


def law_broken_in(world: ClientWorld) -> str | None:
    """The law that a world breaks; `None`: it ends without."""
    try:
        world.run()
    except InvariantViolation as broken:
        return broken.law.partition(":")[0]
    return None


def law_that_finds(plan: Plan) -> str:
    """The law that the first world that finds a bug is broken by."""
    for seed in seeds_to_play(SEEDS):
        law = law_broken_in(ClientWorld(seed, plan=plan))
        if law is not None:
            note_seed(seed)
            return law
    return "none"


def without_fences(table: OwnershipTable, change: Any, now_ms: int, *, original: Callable[..., None]) -> None:
    if change.is_open:
        original(table, change, now_ms)


def plant_unheard(patch: pytest.MonkeyPatch) -> None:
    """A leader acknowledges fences and does not keep them."""
    original = OwnershipTable.change
    patch.setattr(OwnershipTable, "change", lambda *args: without_fences(*args, original=original))


def plant_forgotten(patch: pytest.MonkeyPatch) -> None:
    """A fence is forgotten long before the last lease."""

    def forget(table: OwnershipTable, now_ms: int) -> None:
        for topic_id, partition, group_id in [
            (topic_id, partition, group_id)
            for topic_id, numbers in table._topics.items()
            for partition, groups in numbers.items()
            for group_id, fence in groups.items()
            if fence.until_ms - 1_000 > now_ms
        ]:
            table._remove(topic_id, partition, group_id)
            table.edition += 1

    patch.setattr(OwnershipTable, "forget", forget)


def plant_hasty(patch: pytest.MonkeyPatch) -> None:
    """Replies do not wait for leaders."""
    patch.setattr(OwnershipMessages, "owner_of", lambda *_: None)


def plant_untouched(patch: pytest.MonkeyPatch) -> None:
    """A leader takes a later epoch of its owner for an older one: what stays with a member is refused to it."""
    original = Fence.find_reason

    def find(fence: Fence, claim: Any, *where: Any) -> str | None:
        return (
            "planted"
            if fence.owner == claim.member_id and claim.epoch > fence.epoch
            else original(fence, claim, *where)
        )

    patch.setattr(Fence, "find_reason", find)


def cut_off_the_second(patch: pytest.MonkeyPatch) -> None:
    """One leader hears nothing of owners for the whole time, and members look at no lease."""

    def cut_off(faults: MessageFaults) -> None:
        if not faults._is_over:
            faults._world.brokers.ownership.faults[2] = Faults(delay_ms=0, lost=None, repeated=0)

    patch.setattr(MessageFaults, "_disturb", cut_off)
    patch.setattr(FetchSender, "_is_lapsed", False)


def plant_endless(patch: pytest.MonkeyPatch) -> None:
    """A leader that is cut off does not look at the end of a lease."""
    patch.setattr(fetch, "is_over", lambda *_: False)
    cut_off_the_second(patch)


def plant_kept(patch: pytest.MonkeyPatch) -> None:
    """A grant that was verified once is valid for ever."""
    patch.setattr(BrokerContext, "tokens_revoked", lambda _: None)


@pytest.mark.large
@pytest.mark.parametrize("plan", [TORN, APART, REVOKED], ids=["torn", "apart", "revoked"])
def test_leaders_hold_deaf_members_to_their_assignments(deaf: pytest.MonkeyPatch, plan: Plan) -> None:
    served = refused = 0
    for seed in range(4):
        world = ClientWorld(seed, plan=plan)
        assert law_broken_in(world) is None
        served, refused = served + world.reads.served, refused + world.reads.refused
    assert served > 100 and refused > 0


@pytest.mark.large
def test_leader_whose_clock_is_behind_holds_to_leases_as_well(deaf: pytest.MonkeyPatch) -> None:
    """docs/explanation/ownership.md says by how much; `slow` below is beyond it."""
    cut_off_the_second(deaf)
    for seed in range(3):
        assert law_broken_in(ClientWorld(seed, plan=SLOW)) is None


@pytest.mark.large
@pytest.mark.parametrize(
    ("plant", "plan", "law"),
    [
        (plant_unheard, TORN, "ReadByOwner"),
        (plant_forgotten, TORN, "ReadByOwner"),
        (plant_hasty, APART, "ToldAfterLeaders"),
        (plant_untouched, TORN, "OwnerIsServed"),
        (plant_endless, APART, "ReadByOwner"),
        (plant_kept, REVOKED, "RevokedIsRevoked"),
        (cut_off_the_second, TOO_SLOW, "ReadByOwner"),
    ],
    ids=["unheard", "forgotten", "hasty", "untouched", "endless", "kept", "slow"],
)
def test_mistake_is_found(
    deaf: pytest.MonkeyPatch, plant: Callable[[pytest.MonkeyPatch], None], plan: Plan, law: str
) -> None:
    plant(deaf)
    assert law_that_finds(plan) == law
