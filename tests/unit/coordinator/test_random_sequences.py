"""Whatever is asked in whatever order: the laws hold, every request is answered, the log gives the living state.

`GroupDialogue` checks the invariants, the fold over the log and the uniqueness of answers after every step.
"""

from __future__ import annotations

from collections.abc import Iterable
from random import Random
from typing import Any

import pytest

from kohort.coordinator import commands as asked
from kohort.coordinator.classic import volatile
from kohort.coordinator.classic.apply import apply_classic
from kohort.coordinator.classic.state import TRANSITIONS, ClassicGroupState
from kohort.coordinator.consumer import states
from kohort.coordinator.consumer.static import decide_connection_gone
from kohort.coordinator.decision import Decision
from kohort.coordinator.records import ClassicGroupStored, MemberState, Record
from kohort.coordinator.settings import MIGRATION_POLICIES
from kohort.errors import ErrorCode
from kohort.ids import TopicId
from kohort.wire import embedded
from support.coordinator_dialogue import GroupDialogue
from support.good_client import Client, check_owners

TOPICS = ("t", "u", "v")
MEMBERS = ("a", "b", "c", "d")
CLASSIC = ("x", "y")
#: Two processes bear one name, one has its own.
INSTANCES = {"a": "one", "b": "one", "c": "two", "d": None}


class Chaos:
    """Sends one random thing after the other; half of it makes sense."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.dialogue = GroupDialogue(
            {"t": 3, "u": 2},
            group_consumer_session_timeout_ms=1_000,
            group_consumer_heartbeat_interval_ms=100,
            group_min_session_timeout_ms=100,
            group_consumer_max_size=3,
            group_consumer_migration_policy=self.random.choice([*MIGRATION_POLICIES, "bidirectional", "bidirectional"]),
            group_consumer_assignment_interval_ms=self.random.choice([0, 0, 300]),
        )
        self.dialogue.rebalance_timeout_ms = 500
        self.steps = (
            [self.heartbeat] * 12
            + [self.commit] * 3
            + [self.join] * 5
            + [self.sync] * 3
            + [self.classic_heartbeat] * 4
            + [self.classic_leave]
            + [self.fetch, self.advance, self.advance, self.leave, self.lose_connection, self.look, self.delete]
            + [self.topics, self.restart]
        )

    def run(self, count: int) -> None:
        for _ in range(count):
            self.random.choice(self.steps)()

    def known(self, member_id: str) -> tuple[int, int, dict[TopicId, tuple[int, ...]], dict[TopicId, tuple[int, ...]]]:
        """Epoch, previous epoch, assigned and everything held."""
        group = self.dialogue.shard.groups.consumer.get("g")
        member = None if group is None else group.members.get(member_id)
        if member is None:
            return 0, 0, {}, {}
        assigned = {topic_id: tuple(sorted(grants)) for topic_id, grants in member.assigned.items()}
        held = {topic_id: set(grants) for topic_id, grants in member.assigned.items()}
        for topic_id, grants in member.pending_revocation.items():
            held.setdefault(topic_id, set()).update(grants)
        everything = {topic_id: tuple(sorted(partitions)) for topic_id, partitions in held.items()}
        return member.member_epoch, member.previous_member_epoch, assigned, everything

    def heartbeat(self) -> None:
        member_id = self.random.choice(MEMBERS)
        epoch, previous, assigned, held = self.known(member_id)
        said = self.random.choices([epoch, 0, previous, epoch + 1, -2], [10, 3, 2, 1, 1])[0]
        some = {topic_id: found[: self.random.randint(0, len(found))] for topic_id, found in held.items()}
        owned = self.random.choices([None, assigned, held, some, {}], [4, 4, 2, 2, 1])[0]
        topics = None
        if said == 0 or self.random.random() < 0.1:
            topics = tuple(self.random.sample(TOPICS, self.random.randint(0, 3)))
        regex = None
        if self.random.random() < (0.3 if said == 0 else 0.1):
            regex = self.random.choice(["", "[tu]", "u|v", ".*", "("])
        answer = self.dialogue.ask(
            asked.ConsumerGroupHeartbeat(
                cause=self.dialogue.cause(),
                request=self.dialogue.request(),
                group_id="g",
                member_id=member_id,
                member_epoch=said,
                subscribed_topic_regex=regex,
                client_id="c",
                client_host="h",
                rebalance_timeout_ms=500 if said == 0 else -1,
                subscribed_topic_names=topics,
                topic_partitions={} if said == 0 else owned,
                instance_id=self.random.choices([None, INSTANCES[member_id], "one"], [3, 6, 1])[0],
            )
        )
        assert not answer.is_parked
        if isinstance(answer.body, asked.Refusal):
            assert said == 0 or answer.body.code != ErrorCode.GROUP_ID_NOT_FOUND

    def commit(self) -> None:
        member_id = self.random.choice((*MEMBERS, ""))
        epoch, previous, _, _ = self.known(member_id)
        said = self.random.choice([epoch, epoch, previous, -1, epoch + 1])
        wanted = [(self.random.choice(TOPICS), self.random.randint(0, 3)) for _ in range(2)]
        holders = {name: self.holder(*name) for name in wanted}
        answer = self.dialogue.commit(
            {name: self.random.randint(0, 99) for name in wanted}, member_id=member_id, epoch=said
        )
        assert not answer.is_parked
        group = self.dialogue.shard.groups.consumer.get("g")
        if isinstance(answer.body, asked.CommitOffsetsReply) and group is not None and group.members:
            for holder, error in zip(holders.values(), answer.body.errors, strict=False):
                assert error != ErrorCode.NONE or holder in (None, member_id)

    def holder(self, topic: str, partition: int) -> str | None:
        group = self.dialogue.shard.groups.consumer.get("g")
        return None if group is None else group.holders.get(self.dialogue.topic_id(topic), {}).get(partition)

    def classic_ids(self) -> list[str]:
        """Members that speak the classic protocol, whatever kind of group they are in."""
        groups = self.dialogue.shard.groups
        classic, consumer = groups.classic.get("g"), groups.consumer.get("g")
        found = [] if classic is None else list(classic.members)
        if consumer is not None:
            found += [member.member_id for member in consumer.members.values() if member.classic is not None]
        return found

    def classic_member(self) -> tuple[str, int]:
        """Somebody to speak for, mostly a member, and a generation, mostly its own or the one before."""
        groups = self.dialogue.shard.groups
        member_id = self.random.choice([*self.classic_ids() * 3, *CLASSIC, *MEMBERS])
        if "g" in groups.classic:
            known = groups.classic["g"].generation
        else:
            known = self.known(member_id)[0]
        return member_id, known + self.random.choices([0, -1, 1], [10, 2, 1])[0]

    def join(self) -> None:
        member_id, generation = self.classic_member()
        held = self.known(member_id)[3]
        names = {self.dialogue.topic_id(name): name for name in TOPICS}
        owned = {names[topic_id]: found for topic_id, found in held.items() if topic_id in names}
        if self.random.random() < 0.5:
            owned = {name: found[: self.random.randint(0, len(found))] for name, found in owned.items()}
        blob = embedded.encode_subscription(
            self.random.sample(TOPICS, self.random.randint(0, 3)),
            owned_partitions=owned,
            generation_id=self.random.choice([generation, -1]),
            version=self.random.randint(0, 3),
        )
        protocols = [("range", blob), ("cooperative-sticky", blob), ("other", b"?")]
        self.dialogue.ask(
            asked.JoinGroup(
                cause=self.dialogue.cause(),
                request=self.dialogue.request(),
                group_id="g",
                member_id=self.random.choice([member_id, member_id, ""]),
                fresh_member_id=f"x{self.dialogue.cause()}",
                client_id="c",
                client_host="h",
                session_timeout_ms=1_000,
                rebalance_timeout_ms=500,
                protocol_type="consumer",
                protocols=tuple(
                    protocols[: self.random.randint(1, 2)] if self.random.random() < 0.95 else protocols[2:]
                ),
                instance_id=self.random.choices([None, "one"], [8, 1])[0],
                requires_known_member_id=self.random.random() < 0.3,
            )
        )

    def sync(self) -> None:
        member_id, generation = self.classic_member()
        image = self.dialogue.shard.groups.image.by_name
        everything = [(name, number) for name, facts in image.items() for number in range(facts.partition_count)]
        shares: dict[str, dict[str, list[int]]] = {name: {} for name in self.classic_ids()}
        for name, number in everything if shares else ():
            owner = self.random.choice([*shares, ""])
            shares.get(owner, {}).setdefault(name, []).append(number)
        blobs = {name: embedded.encode_assignment(share) for name, share in shares.items()}
        if self.random.random() < 0.1:
            blobs = dict.fromkeys(blobs, b"?")
        self.dialogue.ask(
            asked.SyncGroup(
                cause=self.dialogue.cause(),
                request=self.dialogue.request(),
                group_id="g",
                generation_id=generation,
                member_id=member_id,
                assignments=blobs,
            )
        )

    def classic_heartbeat(self) -> None:
        member_id, generation = self.classic_member()
        answer = self.dialogue.ask(
            asked.Heartbeat(
                cause=self.dialogue.cause(),
                request=self.dialogue.request(),
                group_id="g",
                generation_id=generation,
                member_id=member_id,
            )
        )
        assert not answer.is_parked
        assert answer.body != asked.Refusal(code=ErrorCode.GROUP_ID_NOT_FOUND)

    def classic_leave(self) -> None:
        name = self.random.choice((*CLASSIC, *MEMBERS, *self.classic_ids()))
        members = (asked.LeavingMember(member_id=name), asked.LeavingMember(member_id="", instance_id="one"))
        answer = self.dialogue.ask(
            asked.LeaveGroup(
                cause=self.dialogue.cause(),
                request=self.dialogue.request(),
                group_id="g",
                members=members[: self.random.randint(1, 2)],
            )
        )
        assert not answer.is_parked

    def fetch(self) -> None:
        member_id = self.random.choice(MEMBERS)
        self.dialogue.fetch_offsets(self.random.choice([None, [0, 1], [("u", 9)]]))
        self.dialogue.fetch_offsets([0], member_id=member_id, member_epoch=self.known(member_id)[0])

    def lose_connection(self) -> None:
        group = self.dialogue.shard.groups.consumer.get("g")
        records = [] if group is None else decide_connection_gone(group, self.random.choice(MEMBERS))
        self.dialogue.shard.commit(Decision(tuple(records)), now_ms=self.dialogue.now_ms)

    def advance(self) -> None:
        self.dialogue.advance(ms=self.random.choice([1, 50, 200, 400, 1_500]))

    def leave(self) -> None:
        self.dialogue.leave(self.random.choice(MEMBERS))

    def look(self) -> None:
        self.dialogue.list_groups()
        assert not self.dialogue.describe().is_parked
        assert not self.dialogue.describe_classic().is_parked

    def delete(self) -> None:
        if self.random.random() < 0.5:
            self.dialogue.delete_group()
        else:
            self.dialogue.delete_offsets([0, 1, ("u", 0)])

    def topics(self) -> None:
        counts = {name: self.random.randint(1, 4) for name in TOPICS if self.random.random() < 0.7}
        now = self.dialogue.topic_counts
        self.dialogue.set_topics({name: max(count, now.get(name, 0)) for name, count in counts.items()})

    def restart(self) -> None:
        self.dialogue.restart(topics_first=self.random.random() < 0.5)


@pytest.mark.parametrize("seed", range(50))
def test_laws_hold_after_every_step(seed: int) -> None:
    """Invariants, `fold(log) == state`, one answer per request; the seed is the name of a failure."""
    Chaos(seed).run(100)


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
        nobody = states.member_state(None)
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
        found = {member_id: states.member_state(member) for member_id, member in members.items()}
        return states.group_state(groups, "g"), found


@pytest.mark.parametrize("seed", range(40))
def test_no_step_is_taken_that_the_tables_of_states_do_not_know(seed: int) -> None:
    """The tables are those that docs/groups.md shows."""
    chaos = Chaos(seed)
    dialogue = chaos.dialogue
    dialogue.__class__ = Watched
    assert isinstance(dialogue, Watched)
    dialogue.steps, dialogue.moves, dialogue.classic_moves = [], [], set()
    chaos.run(60)
    assert dialogue.classic_moves <= TRANSITIONS.keys()
    assert set(dialogue.steps) <= states.MEMBER_TRANSITIONS.keys()
    changed = {(before, after) for before, after in dialogue.moves if before != after}
    between_classic = {(states.NO_GROUP, states.CLASSIC), (states.CLASSIC, states.NO_GROUP)}
    assert changed <= states.GROUP_TRANSITIONS.keys() | between_classic


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
