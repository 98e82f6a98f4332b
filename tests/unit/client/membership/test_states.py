"""The table of a member's states."""

from __future__ import annotations

import pytest

from kohort.client.consumer.membership.states import ACTIVE, TRANSITIONS, MemberState, Step
from kohort.errors import InvariantViolation
from support.dialogues.consumer_dialogue import ConsumerDialogue


def test_every_state_can_be_reached_and_left() -> None:
    """No state is a trap, none is dead."""
    reached, grown = {MemberState.UNSUBSCRIBED}, True
    while grown:
        new = {target for (source, _), target in TRANSITIONS.items() if source in reached} - reached
        reached, grown = reached | new, bool(new)

    assert reached == set(MemberState)
    assert {source for source, _ in TRANSITIONS} == set(MemberState)


@pytest.mark.parametrize("state", sorted(ACTIVE, key=lambda each: each.value))
def test_member_can_be_cut_off_and_refused_in_every_active_state(state: MemberState) -> None:
    """The coordinator may say so at any time."""
    assert TRANSITIONS[(state, Step.LOST)] is MemberState.FENCED
    assert TRANSITIONS[(state, Step.REFUSED)] is MemberState.FATAL


def test_revocation_has_no_short_cut() -> None:
    """CTR: PREPARE_REVOCATION, REVOKING_PARTITION, PARTITION_REVOKED, PREPARING_REBALANCE, in this order."""
    into = {target: {source for (source, _), each in TRANSITIONS.items() if each is target} for target in MemberState}

    assert into[MemberState.REVOKING_PARTITION] == {MemberState.PREPARE_REVOCATION}
    assert into[MemberState.PARTITION_REVOKED] == {MemberState.REVOKING_PARTITION}
    assert into[MemberState.PREPARING_REBALANCE] == {MemberState.PARTITION_REVOKED, MemberState.STABLE}


def test_step_that_is_not_in_the_table_is_a_bug() -> None:
    """Never a silent change of state."""
    member = ConsumerDialogue()
    member.subscribe()

    with pytest.raises(InvariantViolation, match="cannot take the step"):
        member.member._move(Step.CALLED)
