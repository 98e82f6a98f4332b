"""Whatever is asked in whatever order: the laws hold, every request is answered, the log gives the living state.

`GroupDialogue` checks the invariants, the fold over the log and the uniqueness of answers after every step.
"""

from __future__ import annotations

from collections.abc import Iterable
from random import Random
from typing import Any

import pytest

from kohort.coordinator import commands
from kohort.coordinator.classic import state as volatile
from kohort.coordinator.classic.apply import apply_classic
from kohort.coordinator.classic.state import TRANSITIONS, ClassicGroupState
from kohort.coordinator.commands import Command, CommitOffsets, GroupCommand, admin
from kohort.coordinator.consumer import describe
from kohort.coordinator.decision import TimerKey
from kohort.coordinator.records.types import ClassicGroupStored, MemberState, Record
from support.dialogues.coordinator_dialogue import GroupDialogue
from support.dialogues.good_client import Client, check_owners
from support.scenarios.chaos import MEMBERS, Chaos


@pytest.mark.large
@pytest.mark.parametrize("seed", range(50))
def test_laws_hold_after_every_step(seed: int) -> None:
    """Invariants, `fold(log) == state`, one answer per request; the seed is the name of a failure."""
    Chaos(seed).run(100)


@pytest.mark.parametrize("seed", range(30))
def test_laws_hold_after_every_step_of_a_static_group(seed: int) -> None:
    """Modes are switched, names doubled, brokers restarted in the middle of windows and registrations."""
    Chaos(seed, is_static=True).run(100)


class Listening(GroupDialogue):
    """Notes what was asked, and of which kind the group was then."""

    heard: set[tuple[type, str]]

    def _commit(self, *decided: Any) -> Any:
        stimulus, groups = decided[0], self.shard.groups
        consumer = groups.consumer.get("g")
        is_mixed = consumer is not None and any(member.classic for member in consumer.members.values())
        kind = "mixed" if is_mixed else "consumer" if consumer else "classic" if "g" in groups.classic else "none"
        self.heard.add((type(stimulus), kind))
        return super()._commit(*decided)


def every_command() -> set[type]:
    """What can be asked."""
    found = [kind for room in (commands, admin) for kind in vars(room).values()]
    return {kind for kind in found if isinstance(kind, type) and issubclass(kind, Command)} - {Command, GroupCommand}


@pytest.mark.large
def test_every_request_is_among_them_and_meets_every_kind_of_group() -> None:
    """The property says nothing about a request that nobody sends; a new one has to be added to `Chaos`."""
    heard: set[tuple[type, str]] = set()
    for seed in range(16):
        chaos = Chaos(seed)
        chaos.dialogue.__class__ = Listening
        assert isinstance(chaos.dialogue, Listening)
        chaos.dialogue.heard = heard
        chaos.run(150)
    assert {kind for kind, _ in heard} - {TimerKey} == every_command()
    of_members = {
        commands.ConsumerGroupHeartbeat,
        commands.JoinGroup,
        commands.SyncGroup,
        commands.Heartbeat,
        CommitOffsets,
    }
    wanted = {(kind, group) for kind in of_members for group in ("consumer", "classic", "mixed", "none")}
    assert wanted <= heard


class Watched(GroupDialogue):
    """Notes each step of the group "g" and of its members, and the states of a classic group record by record."""

    steps: list[tuple[str, str]]
    moves: list[tuple[str, str]]
    classic_moves: set[tuple[ClassicGroupState, ClassicGroupState]]

    def _commit(self, *decided: Any) -> Any:
        self._look_at_records(decided[-1].records)
        state, members = self._look()
        result = super()._commit(*decided)
        later, after = self._look()
        self.moves.append((state, later))
        nobody = describe.member_state(None)
        for member_id in members.keys() | after.keys():
            self.steps.append((members.get(member_id, nobody), after.get(member_id, nobody)))
        return result

    def _look_at_records(self, records: Iterable[Record]) -> None:
        living = {group_id: group.copy() for group_id, group in self.shard.groups.classic.items()}
        for record in records:
            if not isinstance(record, ClassicGroupStored) and type(record).__module__ != volatile.__name__:
                continue
            before = living.get("g")
            state = None if before is None else before.state
            apply_classic(living, record)
            after = living.get("g")
            if state is not None and after is not None and state is not after.state:
                self.classic_moves.add((state, after.state))

    def _look(self) -> tuple[str, dict[str, str]]:
        groups = self.shard.groups
        group = groups.consumer.get("g")
        members = {} if group is None else group.members
        found = {member_id: describe.member_state(member) for member_id, member in members.items()}
        return describe.group_state(groups, "g"), found


@pytest.mark.parametrize("seed", range(40))
def test_no_step_is_taken_that_the_tables_of_states_do_not_know(seed: int) -> None:
    """The tables are those that docs/explanation/two-protocols.md shows."""
    chaos = Chaos(seed)
    dialogue = chaos.dialogue
    dialogue.__class__ = Watched
    assert isinstance(dialogue, Watched)
    dialogue.steps, dialogue.moves, dialogue.classic_moves = [], [], set()
    chaos.run(60)
    assert dialogue.classic_moves <= TRANSITIONS.keys()
    assert set(dialogue.steps) <= describe.MEMBER_TRANSITIONS.keys()
    changed = {(before, after) for before, after in dialogue.moves if before != after}
    between_classic = {(describe.NO_GROUP, describe.CLASSIC), (describe.CLASSIC, describe.NO_GROUP)}
    assert changed <= describe.GROUP_TRANSITIONS.keys() | between_classic


@pytest.mark.large
@pytest.mark.parametrize("seed", range(40))
def test_no_partition_has_two_owners_and_the_group_comes_to_rest(seed: int) -> None:
    """NoDoubleClientAssignment and EventuallyConverges of the TLA+ model, with answers that get lost."""
    random = Random(seed)
    dialogue = GroupDialogue({"t": random.randint(1, 7)})
    clients = [Client(dialogue, name) for name in MEMBERS]
    alive = clients[:1]
    for _ in range(150):
        match random.random():
            case x if x < 0.03 and len(alive) < len(clients):
                alive.append(next(client for client in clients if client not in alive))
            case x if x < 0.05 and len(alive) > 1:
                gone = alive.pop(random.randrange(len(alive)))
                dialogue.leave(gone.name)
                gone.forget()
            case x if x < 0.06:
                dialogue.restart()
            case _:
                random.choice(alive).step(is_lost=random.random() < 0.15)
        check_owners(alive)
    for _ in range(12):
        for client in alive:
            client.step(is_lost=False)
            check_owners(alive)
    assert {member.state for member in dialogue.group.members.values()} == {MemberState.STABLE}
    owned = sorted(partition for client in alive for found in client.owned.values() for partition in found)
    assert owned == list(range(dialogue.topic_counts["t"]))
