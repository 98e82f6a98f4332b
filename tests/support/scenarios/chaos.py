"""Random requests of every kind about one group; half of them make sense.

The dialogue checks the invariants, the fold over the log and the uniqueness of answers after every step.
"""

from __future__ import annotations

from dataclasses import dataclass
from random import Random
from typing import Any

from kohort.coordinator import commands
from kohort.coordinator.commands import ClientAssignor, CommitOffsetsReply, Refusal
from kohort.coordinator.commands.admin import ListGroupConfigs
from kohort.coordinator.settings import MIGRATION_POLICIES
from kohort.errors import ErrorCode
from kohort.ids import TopicId
from kohort.wire import embedded
from support.dialogues.coordinator_dialogue import GroupDialogue
from support.dialogues.moves import statuses, submit

TOPICS = ("t", "u", "v")
MEMBERS = ("a", "b", "c", "d")
CLASSIC = ("x", "y")
#: Two processes bear one name, one has its own.
INSTANCES = {"a": "one", "b": "one", "c": "two", "d": None}


#: What makes groups static.
STATIC: dict[str, Any] = {
    "group_membership": "static",
    "group_registration_timeout_ms": 1_800,
    "group_expansion_timeout_ms": 600,
}

#: Assignors that members run themselves.
MINE = ClientAssignor("mine", 0, 2, 0, 1, b"a lot")
THEIRS = ClientAssignor("theirs", 1, 1, 1, 1, b"")


@dataclass(frozen=True)
class PartialSight:
    """A member that may see some of the topics."""

    names: frozenset[str]
    edition: int = 0

    def sees(self, topic: str) -> bool:
        """Implement `Sight.sees`."""
        return topic in self.names


class Chaos:
    """Sends one random thing after the other; half of it makes sense.

    Args:
        has_transactions: with them the dialogue's log is batches, and no longer keys and values.
        is_static: the group is static, until somebody switches it.
    """

    def __init__(self, seed: int, *, has_transactions: bool = True, is_static: bool = False) -> None:
        self.random = Random(seed)
        #: What members may see is drawn apart from what they do.
        self.sights = Random(seed)
        self.dialogue = GroupDialogue(
            {"t": 3, "u": 2},
            group_consumer_session_timeout_ms=1_000,
            group_consumer_heartbeat_interval_ms=100,
            group_min_session_timeout_ms=100,
            group_consumer_max_size=3,
            group_consumer_migration_policy=self.random.choice([*MIGRATION_POLICIES, "bidirectional", "bidirectional"]),
            group_consumer_assignment_interval_ms=self.random.choice([0, 0, 300]),
            group_disconnect_grace_ms=self.random.choice([-1, 0, 300]),
            group_assignor_max_moves=self.random.choice([-1, -1, 1]),
            group_liveness=self.random.choice(["heartbeat", "fetch", "fetch"]),
            group_moves_per_second=self.random.choice([0.0, 0.0, 4.0]),
            group_moves_order="lag",
            group_consumer_assignors=self.random.choice([("uniform", "range"), ("own", "sticky"), ("range", "own")]),
            own_assignors=("own",),
            incremental_from_partitions=self.random.choice([1, 500]),
            **(STATIC if is_static else {}),
        )
        #: The names of classic members, and how many bear them.
        self.classic_names: tuple[list[str | None], list[int]] = ([None, "one"], [8, 1])
        self.dialogue.rebalance_timeout_ms = 500
        self.steps = (
            [self.heartbeat] * 12
            + [self.commit] * 3
            + [self.join] * 5
            + [self.sync] * 3
            + [self.classic_heartbeat] * 4
            + [self.classic_leave]
            + [self.fetch, self.advance, self.advance, self.leave, self.lose_connection, self.look, self.delete]
            + [self.topics, self.restart, self.configs, self.expire, self.switch]
            + [self.compute, self.compute, self.compute, self.watch, self.watch, self.tell_news, self.fetched]
            + ([self.transact, self.transact, self.complete] if has_transactions else [])
        )
        if is_static:
            self.classic_names = (["x", "y", "one", None], [6, 6, 2, 1])
            self.steps += [self.static, self.static, self.restart]
        #: What members say of assignors that they run themselves; in many a group nobody does.
        self.client_assignors: tuple[tuple[ClientAssignor, ...] | None, ...] = (None,)
        if self.random.random() < 0.5:
            self.client_assignors = (None, None, (MINE,), (MINE, THEIRS), (THEIRS, MINE._replace(metadata=b"new")), ())
            self.steps += [self.assign] * 5

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
            commands.ConsumerGroupHeartbeat(
                cause=self.dialogue.cause(),
                request=self.dialogue.request(),
                group_id="g",
                member_id=member_id,
                member_epoch=said,
                subscribed_topic_regex=regex,
                client_id="c",
                client_host="h",
                rebalance_timeout_ms=500 if said == 0 else -1,
                server_assignor=self.random.choice([None, None, None, "own", "sticky", "nonsense"]),
                proposed_heartbeat_interval_ms=self.random.choice([-1, -1, 200]),
                subscribed_topic_names=topics,
                topic_partitions={} if said == 0 else owned,
                instance_id=self.random.choices([None, INSTANCES[member_id], "one"], [3, 6, 1])[0],
                client_assignors=self._assignors(is_join=said == 0),
            )
        )
        assert not answer.is_parked
        if isinstance(answer.body, Refusal):
            assert said == 0 or answer.body.code != ErrorCode.GROUP_ID_NOT_FOUND
        elif regex and self.sights.random() < 0.5:
            # Of a member that may not see all, the broker says so behind its heartbeat.
            names = self.sights.sample(TOPICS, self.sights.randint(0, len(TOPICS)))
            self.dialogue.pattern_sent(regex, PartialSight(frozenset(names)))

    def _assignors(self, *, is_join: bool) -> tuple[ClientAssignor, ...] | None:
        if len(self.client_assignors) == 1 or (not is_join and self.random.random() < 0.8):
            return None
        weights = [1, 1, 6, 6, 3, 1] if is_join else [1] * 6
        return self.random.choices(self.client_assignors, weights)[0]

    def assign(self) -> None:
        """A member computes the target: mostly the one that was asked, mostly rightly."""
        group = self.dialogue.shard.groups.consumer.get("g")
        order = None if group is None else group.computing
        is_asked = order is not None and order.member_id and self.random.random() < 0.9
        member_id = order.member_id if order is not None and is_asked else self.random.choice(MEMBERS)
        epoch = self.known(member_id)[0] + self.random.choices([0, -1, 1], [10, 1, 1])[0]
        if order is None or not order.is_prepared or self.random.random() < 0.2:
            self.dialogue.prepare(member_id, epoch=epoch)
            return
        owners = [
            self.random.choice(subscribers)
            for count, subscribers in zip(order.assignable.space.counts, order.assignable.subscribers, strict=True)
            for _ in range(count)
        ]
        match self.random.randint(0, 9):
            case 0:
                owners = [self.random.randint(-1, len(order.assignable.members)) for _ in owners]
            case 1:
                owners = owners[1:]
        self.dialogue.install(
            member_id,
            owners,
            epoch=epoch,
            group_epoch=order.epoch + self.random.choices([0, -1, 1], [10, 1, 1])[0],
            error=self.random.choices([0, 3], [10, 1])[0],
            said=tuple((name, 1, b"!") for name in self.random.sample((*MEMBERS, "nobody"), self.random.randint(0, 2))),
        )

    def commit(self) -> None:
        member_id = self.random.choice((*MEMBERS, ""))
        epoch, previous, assigned, held = self.known(member_id)
        said = self.random.choice([epoch, epoch, previous, -1, epoch + 1])
        released = self.random.choice([None, None, assigned, held, {TopicId(b"?" * 16): (0,)}])
        wanted = [(self.random.choice(TOPICS), self.random.randint(0, 3)) for _ in range(2)]
        holders = {name: self.holder(*name) for name in wanted}
        answer = self.dialogue.commit(
            {name: self.random.randint(0, 99) for name in wanted}, member_id=member_id, epoch=said, released=released
        )
        assert not answer.is_parked
        group = self.dialogue.shard.groups.consumer.get("g")
        if isinstance(answer.body, CommitOffsetsReply) and group is not None and group.members:
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
            commands.JoinGroup(
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
                instance_id=self.random.choices(*self.classic_names)[0],
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
            commands.SyncGroup(
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
            commands.Heartbeat(
                cause=self.dialogue.cause(),
                request=self.dialogue.request(),
                group_id="g",
                generation_id=generation,
                member_id=member_id,
            )
        )
        assert not answer.is_parked
        assert answer.body != Refusal(code=ErrorCode.GROUP_ID_NOT_FOUND)

    def classic_leave(self) -> None:
        name = self.random.choice((*CLASSIC, *MEMBERS, *self.classic_ids()))
        members = (commands.LeavingMember(member_id=name), commands.LeavingMember(member_id="", instance_id="one"))
        answer = self.dialogue.ask(
            commands.LeaveGroup(
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

    def watch(self) -> None:
        member_id = self.random.choice([*MEMBERS, *self.classic_ids()])
        epoch, previous, assigned, held = self.known(member_id)
        said = self.random.choices([epoch, previous, epoch + 1, 1], [10, 4, 1, 1])[0]
        knows = self.random.choices([assigned, held, {}], [4, 1, 1])[0]
        self.dialogue.ask(
            commands.WatchMember(
                cause=self.dialogue.cause(),
                request=self.dialogue.request(),
                group_id=self.dialogue.group_id,
                member_id=member_id,
                member_epoch=said,
                assigned=knows,
                is_look=self.random.random() < 0.3,
            )
        )

    def fetched(self) -> None:
        member_id = self.random.choice([*MEMBERS, *CLASSIC, *self.classic_ids()])
        epoch = self.random.choice([-1, self.known(member_id)[0], 1])
        self.dialogue.hear_fetch(member_id, epoch=epoch, is_over=self.random.random() < 0.3)

    def tell_news(self) -> None:
        self.dialogue.tell_news()

    def lose_connection(self) -> None:
        group = self.dialogue.shard.groups.consumer.get("g")
        here = () if group is None else tuple(group.members)
        member_id = self.random.choice([*MEMBERS, *CLASSIC, *self.classic_ids(), *here, *here])
        self.dialogue.disconnect(member_id)
        if self.random.random() < 0.7:
            # It has another connection for its fetches.
            self.dialogue.hear_fetch(member_id)

    def configs(self) -> None:
        """Of the group, some of them wrong."""
        name, values = self.random.choice(
            [
                ("consumer.session.timeout.ms", (None, "700", "2000", "-1")),
                ("consumer.heartbeat.interval.ms", (None, "60", "x")),
                ("consumer.assignment.interval.ms", (None, "0", "250")),
                ("group.assignor.max.moves", (None, "1", "-1")),
                ("group.moves.per.second", (None, "0", "2", "100")),
                ("group.moves.paused", (None, "true", "false")),
                ("nonsense", ("1",)),
            ]
        )
        self.dialogue.alter_configs({name: self.random.choice(values)}, validate_only=self.random.random() < 0.2)
        self.dialogue.configs()
        self.dialogue.ask(ListGroupConfigs(cause=self.dialogue.cause(), request=self.dialogue.request()))

    def static(self) -> None:
        """What concerns static groups, mostly one again."""
        name, values = self.random.choice(
            [
                ("group.membership", (None, "static", "static", "dynamic")),
                ("group.registration.timeout.ms", (None, "700", "3000", "1")),
                ("group.expansion.timeout.ms", (None, "300", "2000")),
                ("group.rebalance.token", ("1", "2", None)),
                ("group.static.fallback", ("admin", "join")),
            ]
        )
        self.dialogue.alter_configs({name: self.random.choice(values)})

    def switch(self) -> None:
        """Partitions given to members by hand, of which some are not there."""
        wanted = [(self.random.choice(TOPICS), self.random.randint(0, 4)) for _ in range(self.random.randint(1, 4))]
        moves = [(topic, partition, self.random.choice((*MEMBERS, "nobody"))) for topic, partition in wanted]
        moves += [
            (topic, partition, member_id) for topic, partition in wanted[:1] for member_id in self.classic_ids()[:1]
        ]
        answer = submit(self.dialogue, moves, validate_only=self.random.random() < 0.1)
        assert not answer.is_parked
        if "g" in self.dialogue.shard.groups.consumer:
            statuses(self.dialogue)

    def transact(self) -> None:
        """TxnOffsetCommit, by somebody or nobody."""
        member_id = self.random.choice([*MEMBERS, *self.classic_ids(), "", ""])
        epoch = self.known(member_id)[0] if member_id and "g" in self.dialogue.shard.groups.consumer else -1
        answer = self.dialogue.commit_in_transaction(
            {(self.random.choice(TOPICS), self.random.randint(0, 3)): self.random.randint(0, 99)},
            producer=self.random.choice([7, 8]),
            member_id=member_id,
            epoch=self.random.choice([epoch, epoch, epoch + 1]),
        )
        assert not answer.is_parked

    def complete(self) -> None:
        answer = self.dialogue.complete(self.random.choice([7, 8]), is_commit=self.random.random() < 0.6)
        assert not answer.is_parked

    def expire(self) -> None:
        self.dialogue.expire_offsets()

    def compute(self) -> None:
        """The user's own assignor answers, if it was asked: rightly, wrongly, or not at all."""
        if not self.dialogue.computations:
            return
        group = self.dialogue.computations[0].assignable
        owner = [
            self.random.choice(subscribers)
            for count, subscribers in zip(group.space.counts, group.subscribers, strict=True)
            for _ in range(count)
        ]
        match self.random.randint(0, 4):
            case 0:
                self.dialogue.computed(error="it failed")
            case 1:
                self.dialogue.computed([self.random.randint(-1, len(group.members)) for _ in owner])
            case _:
                self.dialogue.computed(owner)

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
