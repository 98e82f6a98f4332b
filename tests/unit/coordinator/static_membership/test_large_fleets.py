"""KIP-345's motivation: a fleet of 200 named members is restarted one after the other, 30 s each, and nothing moves.

The others heartbeat meanwhile, all in the 100 minutes that it takes. The whole state is looked at now and then.
"""

from __future__ import annotations

from collections import Counter
from typing import Final

import pytest

from kohort.coordinator.classic.state import RebalanceBegun
from support.dialogues.classic_fleet import MINUTE_MS, Fleet
from support.dialogues.mixed_dialogue import MixedDialogue

pytestmark = pytest.mark.large

NAMES: Final = tuple(f"m{number:03}" for number in range(200))
PARTITIONS: Final = 2 * len(NAMES)
AWAY_MS: Final = 30_000
SESSION_MS, BEAT_EVERY_MS = 5 * MINUTE_MS, 2 * MINUTE_MS
#: Steps from one look at the whole state to the next.
CHECK_EVERY: Final = 2_500


def test_a_kip_848_fleet_of_200_is_restarted_and_nothing_moves() -> None:
    """Each says that it goes for a while, or is killed: then its connection closes, and it has said nothing."""
    group = MixedDialogue(
        {"t": PARTITIONS},
        check_every=CHECK_EVERY,
        group_membership="static",
        group_consumer_session_timeout_ms=SESSION_MS,
        group_consumer_heartbeat_interval_ms=BEAT_EVERY_MS,
    )
    for name in NAMES:
        group.heartbeat(name, epoch=0, instance_id=name)
    group.alter_configs({"group.rebalance.token": "all are here"}).is_done()
    shares: dict[str, list[int]] = {}
    bearers = {name: name for name in NAMES}
    for _ in range(3):
        for name, member_id in bearers.items():
            member = group.member(member_id)
            shares[name] = [number for numbers in member.assigned.values() for number in numbers]
            group.heartbeat(member_id, epoch=member.member_epoch, owned=shares[name])
    epoch, now_ms = group.group.epoch, group.now_ms
    assert {len(share) for share in shares.values()} == {2}
    assert sorted(number for share in shares.values() for number in share) == list(range(PARTITIONS))
    group.told.clear()

    for number, name in enumerate(NAMES):
        if number % 2:
            group.heartbeat(name, epoch=-2, instance_id=name)
        else:
            group.disconnect(name)
        del bearers[name]
        group.advance(AWAY_MS)
        if (group.now_ms - now_ms) % BEAT_EVERY_MS == 0:
            for member_id in bearers.values():
                group.heartbeat(member_id, epoch=epoch).replies(epoch=epoch)
        bearers[name] = f"{name}-new"
        group.heartbeat(bearers[name], epoch=0, instance_id=name).replies(epoch=epoch, assigned=shares[name])

    assert group.now_ms - now_ms == len(NAMES) * AWAY_MS
    assert group.group.epoch == epoch
    assert group.holders() == {bearers[name]: {("t", number) for number in shares[name]} for name in NAMES}
    events = Counter(entry.event for entry in group.told)
    assert events["partitions_moved"] == events["epoch_bumped"] == 0
    assert (events["member_away"], events["member_offline"], events["member_back"]) == (100, 100, 200)
    group.check_log()


def test_a_classic_fleet_of_200_is_restarted_and_nothing_moves() -> None:
    """The one that leads is restarted like the others; members say nothing when they go, as stock ones do."""
    fleet = Fleet(partitions=PARTITIONS, session_ms=SESSION_MS, check_every=CHECK_EVERY)
    fleet.start(*NAMES)
    shares, generation = fleet.shares(), fleet.group.generation
    assert {len(share) for share in shares.values()} == {2}

    for name in NAMES:
        fleet.off(name)
        assert fleet.offline == [name]
        fleet.dialogue.advance(AWAY_MS)
        if (fleet.dialogue.now_ms - fleet.began_ms) % BEAT_EVERY_MS == 0:
            fleet.step()
        sailor = fleet.join(name)
        assert (sailor.generation, sailor.owned) == (generation, shares[name])

    assert fleet.rebalances == []
    assert fleet.shares() == shares
    assert [sailor.errors for sailor in fleet.living.values()] == [[]] * len(NAMES)
    assert not [record for record in fleet.dialogue.new_records() if isinstance(record, RebalanceBegun)]
    fleet.dialogue.check_log()
