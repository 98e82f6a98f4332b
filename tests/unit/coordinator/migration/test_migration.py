"""Groups whose members are replaced one by one by members of the other protocol, up and down."""

from __future__ import annotations

import pytest

from kohort.coordinator import commands
from kohort.coordinator.commands import ClassicMemberFacts
from kohort.coordinator.commands.admin import DescribeClassicGroupReply, DescribeConsumerGroupReply
from kohort.coordinator.records.types import (
    ClassicGroupForgotten,
    ClassicGroupStored,
    ConsumerGroupEpochSet,
    ConsumerGroupForgotten,
    ConsumerMemberForgotten,
    ConsumerMemberSubscribed,
    CurrentAssignmentForgotten,
    CurrentAssignmentSet,
    MemberState,
    MemberTargetForgotten,
    MemberTargetSet,
    Record,
    TargetAssignmentEpochForgotten,
    TargetAssignmentEpochSet,
    VolatileRecord,
)
from kohort.errors import ErrorCode
from kohort.wire import embedded
from support.dialogues.coordinator_dialogue import Answer, topic_id_of
from support.dialogues.mixed_dialogue import ClassicClient, MixedDialogue, assignment, subscription

T = topic_id_of("t")


@pytest.fixture
def mixed() -> MixedDialogue:
    """Nobody is in the group; topic "t" has four partitions."""
    return MixedDialogue({"t": 4})


def of_policy(policy: str, **limits: int) -> MixedDialogue:
    return MixedDialogue({"t": 4}, group_consumer_migration_policy=policy, **limits)


def upgraded(mixed: MixedDialogue, **members: list[int]) -> dict[str, ClassicClient]:
    """A mixed group at rest: classic members that owned that, and "a" of the consumer protocol."""
    clients = mixed.classic_group(**members)
    mixed.heartbeat("a", epoch=0)
    mixed.settle_all(*clients.values())
    mixed.new_records()
    return clients


def durable(records: list[Record]) -> list[Record]:
    return [record for record in records if not isinstance(record, VolatileRecord)]


def type_of(mixed: MixedDialogue) -> str:
    ((_, _, _, group_type),) = mixed.list_groups()
    return group_type


def held(mixed: MixedDialogue) -> dict[str, set[int]]:
    return {name: {partition for _, partition in found} for name, found in mixed.holders().items()}


def joined(answer: Answer) -> commands.JoinGroupReply:
    reply: commands.JoinGroupReply = answer.body_as(commands.JoinGroupReply)
    assert reply.error == ErrorCode.NONE
    return reply


# Up.


def test_upgrade_writes_one_batch_and_moves_nothing_that_balance_leaves(mixed: MixedDialogue) -> None:
    """Issue: records 5 with ClassicMemberMetadata, 3, 6, 7, 8 and the tombstone of 2."""
    clients = mixed.classic_group(x=[0, 1], y=[2, 3])
    generation = clients["x"].generation
    mixed.heartbeat("a", epoch=0).replies(epoch=generation + 2, assigned=[])

    records = durable(mixed.new_records())
    assert records[0] == ClassicGroupForgotten(group_id="g")
    assert [type(record) for record in records[:8]] == [
        ClassicGroupForgotten,
        ConsumerGroupEpochSet,
        ConsumerMemberSubscribed,
        ConsumerMemberSubscribed,
        MemberTargetSet,
        MemberTargetSet,
        TargetAssignmentEpochSet,
        CurrentAssignmentSet,
    ]
    of_x = next(record for record in records if isinstance(record, ConsumerMemberSubscribed))
    assert of_x == ConsumerMemberSubscribed(
        group_id="g",
        member_id="x",
        instance_id=None,
        rack_id=None,
        client_id="client-x",
        client_host="/127.0.0.1",
        subscribed_topic_names=("t",),
        subscribed_topic_regex=None,
        rebalance_timeout_ms=60_000,
        server_assignor=None,
        classic=ClassicMemberFacts(session_timeout_ms=10_000, protocols=(("range", subscription(generation=1)),)),
    )
    assert (
        CurrentAssignmentSet(
            group_id="g",
            member_id="y",
            member_epoch=generation,
            previous_member_epoch=generation,
            state=MemberState.STABLE,
            assigned={T: {2: generation, 3: generation}},
            pending_revocation={},
        )
        in records
    )
    assert held(mixed) == {"x": {0, 1}, "y": {2, 3}, "a": set()}
    assert type_of(mixed) == "consumer"

    mixed.settle_all(*clients.values())
    assert sorted(map(len, held(mixed).values())) == [1, 1, 2]
    kept = {name: set(client.partitions) for name, client in clients.items()}
    assert kept["x"] <= {0, 1}
    assert kept["y"] <= {2, 3}
    assert len(kept["x"]) + len(kept["y"]) == 3


def test_a_member_without_a_move_never_rejoins(mixed: MixedDialogue) -> None:
    """Unlike Kafka's, which makes every classic member rejoin with each group epoch: an eager one stops for that."""
    clients = mixed.classic_group(x=[0, 1], y=[2, 3])
    mixed.heartbeat("a", epoch=0)
    mixed.heartbeat("b", epoch=0)
    mixed.settle_all(*clients.values())
    assert sorted(map(len, held(mixed).values())) == [1, 1, 1, 1]
    before = {name: (client.generation, client.partitions) for name, client in clients.items()}
    mixed.new_records()

    # Somebody comes and goes who gets nothing.
    for round_ in range(3):
        mixed.heartbeat(f"c{round_}", epoch=0).replies(epoch=mixed.group.epoch, assigned=[])
        for client in clients.values():
            assert client.beat() == ErrorCode.NONE
        assert not mixed.group.behind
        mixed.leave(f"c{round_}")
    for client in clients.values():
        assert client.beat() == ErrorCode.NONE
        assert client.commit({client.partitions[0]: 7}).errors() == (ErrorCode.NONE,)
    assert {name: (client.generation, client.partitions) for name, client in clients.items()} == before
    mixed.restart()
    for client in clients.values():
        assert client.beat() == ErrorCode.NONE
    assert mixed.group.members.keys() == {"x", "y", "a", "b"}


@pytest.mark.parametrize(
    ("policy", "is_moved"), [("bidirectional", True), ("upgrade", True), ("downgrade", False), ("disabled", False)]
)
def test_policy_says_whether_a_classic_group_is_moved_up(policy: str, is_moved: bool) -> None:
    mixed = of_policy(policy)
    client = mixed.classic_group(x=[0, 1, 2, 3])["x"]
    answer = mixed.heartbeat("a", epoch=0)
    if is_moved:
        answer.replies(epoch=client.generation + 2, assigned=[])
        assert type_of(mixed) == "consumer"
        return
    answer.is_refused(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, saying=f"group.consumer.migration.policy is {policy}")
    assert mixed.new_records() == []
    assert type_of(mixed) == "classic"
    assert client.beat() == ErrorCode.NONE


def test_a_group_of_another_protocol_type_is_not_moved(mixed: MixedDialogue) -> None:
    mixed.join(fresh="w", protocols=[("default", b"worker")], protocol_type="connect")
    mixed.new_records()
    mixed.heartbeat("a", epoch=0).is_refused(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, saying="of the type connect")
    assert mixed.new_records() == []


def test_a_group_that_is_too_large_is_not_moved() -> None:
    mixed = MixedDialogue({"t": 4}, group_consumer_max_size=1)
    mixed.classic_group(x=[0, 1], y=[2, 3])
    mixed.heartbeat("a", epoch=0).is_refused(
        ErrorCode.INCONSISTENT_GROUP_PROTOCOL, saying="2 members, and group.consumer.max.size is 1"
    )
    assert type_of(mixed) == "classic"


@pytest.mark.parametrize(
    ("blobs", "saying"),
    [
        ({"x": b"\0\3 nonsense"}, "assignment of its member x cannot be read"),
        ({"x": assignment([0], user_data=b"\1")}, "keeps data of its own"),
        ({"x": assignment([0, 1]), "y": assignment([1])}, "one partition to both x and y"),
    ],
)
def test_what_a_custom_assignor_said_is_not_guessed(mixed: MixedDialogue, blobs: dict[str, bytes], saying: str) -> None:
    """Kafka's rule for user data; a partition with two owners is ours: no KIP-848 group ever has that."""
    x, y = mixed.client("x"), mixed.client("y")
    x.send_join()
    y.send_join()
    x.receive_join()
    x.send_join()
    x.receive_join()
    y.receive_join()
    mixed.sync("x", x.generation, assignments=blobs)
    mixed.new_records()
    mixed.heartbeat("a", epoch=0).is_refused(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, saying=saying)
    assert mixed.new_records() == []
    assert x.beat() == ErrorCode.NONE


@pytest.mark.parametrize("name", ["sticky", "cooperative-sticky"])
def test_data_of_a_sticky_assignor_is_no_obstacle(mixed: MixedDialogue, name: str) -> None:
    """librdkafka's cooperative-sticky repeats the assignment there; Kafka refuses to move its groups."""
    x = mixed.client("x", protocol=name)
    x.send_join()
    x.receive_join()
    x.send_sync({"x": assignment([0, 1, 2, 3], user_data=b"what I had")})
    mixed.heartbeat("a", epoch=0)
    assert held(mixed)["x"] == {0, 1, 2, 3}


def test_a_subscription_that_cannot_be_read_is_not_guessed(mixed: MixedDialogue) -> None:
    mixed.join(fresh="x", protocols=[("range", b"\0")])
    mixed.heartbeat("a", epoch=0).is_refused(
        ErrorCode.INCONSISTENT_GROUP_PROTOCOL, saying="subscription of its member x"
    )


def test_a_subscription_that_is_too_large_is_not_moved(mixed: MixedDialogue) -> None:
    """A classic member's topics are bounded by its bytes alone; in a KIP-848 group they are by their number, too."""
    mixed.join(fresh="x", protocols=[("range", subscription([f"topic-{number}" for number in range(10_001)]))])
    mixed.heartbeat("a", epoch=0).is_refused(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, saying="10001 topics")
    assert mixed.shard.groups.classic.keys() == {"g"}


def test_topics_that_are_gone_are_nobodys(mixed: MixedDialogue) -> None:
    clients = mixed.rebalance(mixed.client("x", topics=["t", "u"]), shares={"x": {"t": [0, 1, 2, 3, 99], "u": [0]}})
    mixed.heartbeat("a", epoch=0)
    mixed.settle_all(*clients.values())
    assert sorted(map(len, held(mixed).values())) == [2, 2]


def test_a_parked_join_is_answered_with_the_generation_it_is_in(mixed: MixedDialogue) -> None:
    """aiokafka's client ends on REBALANCE_IN_PROGRESS for a JoinGroup, which is what Kafka says here."""
    clients = mixed.classic_group(x=[0, 1], y=[2, 3])
    generation = clients["x"].generation
    z = mixed.client("z")
    assert z.send_join().is_parked
    assert clients["x"].send_join().is_parked
    mixed.heartbeat("a", epoch=0)
    for client in (z, clients["x"]):
        reply = client.receive_join()
        assert (reply.generation_id, reply.leader, reply.members) == (generation, "", ())
    mixed.settle_all(z, *clients.values())
    assert sorted(map(len, held(mixed).values())) == [1, 1, 1, 1]
    assert {tuple(client.partitions) for client in (z, *clients.values())} == {
        tuple(sorted(held(mixed)[name])) for name in ("x", "y", "z")
    }


def test_a_parked_sync_is_told_to_rejoin(mixed: MixedDialogue) -> None:
    clients = mixed.classic_group(x=[0, 1], y=[2, 3])
    z = mixed.client("z")
    for client in (z, *clients.values()):
        client.send_join()
    for client in (z, *clients.values()):
        client.receive_join()
    waiting = z.send_sync()
    assert waiting.is_parked
    mixed.heartbeat("a", epoch=0)
    assert waiting.body_as(commands.SyncGroupReply).error == ErrorCode.REBALANCE_IN_PROGRESS
    # Until the leader had spoken, everybody owned what the generation before gave it.
    assert held(mixed) == {"x": {0, 1}, "y": {2, 3}, "z": set(), "a": set()}
    z.receive_sync(waiting)
    # The leader does not know yet; what it says is taken for a question.
    assert clients["x"].receive_sync(clients["x"].send_sync({"x": [0, 1, 2, 3]})) == {"t": (0, 1)}
    mixed.settle_all(z, *clients.values())
    assert sorted(map(len, held(mixed).values())) == [1, 1, 1, 1]


def test_upgrade_between_the_two_rounds_of_a_cooperative_rebalance(mixed: MixedDialogue) -> None:
    """Found by simulation: what a leader took and gave to nobody yet may still be at work with who had it (KIP-429)."""
    x = mixed.classic_group(x=[0, 1, 2, 3])["x"]
    y = mixed.client("y")
    y.send_join()
    x.send_join()
    y.receive_join()
    x.receive_join()
    told = x.send_sync({"x": [0, 1], "y": []})
    y.receive_sync(y.send_sync())
    mixed.heartbeat("a", epoch=0)
    mixed.settle_consumers()
    assert y.beat() == ErrorCode.NONE
    assert mixed.group.holders[T] == dict.fromkeys(range(4), "x")
    assert held(mixed) == {"x": {0, 1}, "y": set(), "a": set()}

    x.receive_sync(told)
    mixed.settle_all(x, y)
    assert sorted(map(len, held(mixed).values())) == [1, 1, 2]


def test_upgrade_believes_the_younger_of_two_that_say_they_own_a_partition(mixed: MixedDialogue) -> None:
    """KIP-792: who was away for a generation does not know that another has it now."""
    blobs = {"x": subscription(owned=[0, 1], generation=3), "y": subscription(owned=[1, 2], generation=4)}
    for name, blob in blobs.items():
        mixed.join(fresh=name, protocols=[("cooperative-sticky", blob)])
    mixed.heartbeat("a", epoch=0)
    assert mixed.group.holders[T] == {0: "x", 1: "y", 2: "y", 3: "a"}


def test_a_group_in_its_first_rebalance_is_moved(mixed: MixedDialogue) -> None:
    """Its generation is 0, and an epoch starts at 1 (KAFKA-20268)."""
    mixed = MixedDialogue({"t": 4}, group_initial_rebalance_delay_ms=3_000)
    x = mixed.client("x")
    assert x.send_join().is_parked
    mixed.heartbeat("a", epoch=0)
    assert x.receive_join().generation_id == 1
    mixed.settle_all(x)
    assert sorted(map(len, held(mixed).values())) == [2, 2]
    mixed.advance(ms=9_000)
    assert mixed.group.members.keys() == {"x", "a"}


def test_id_that_was_handed_out_before_the_move_is_good_after_it(mixed: MixedDialogue) -> None:
    clients = mixed.classic_group(x=[0, 1, 2, 3])
    answer = mixed.join(fresh="z", requires_known_member_id=True)
    assert answer.body_as(commands.JoinGroupReply).error == ErrorCode.MEMBER_ID_REQUIRED
    mixed.heartbeat("a", epoch=0)
    z = mixed.client("z", member_id="z")
    z.rejoin()
    mixed.settle_all(z, *clients.values())
    assert sorted(map(len, held(mixed).values())) == [1, 1, 2]


def test_a_member_moves_the_group_up_under_its_own_id(mixed: MixedDialogue) -> None:
    """Found by a random sequence: the target that counts is the one of the consumer protocol."""
    mixed.classic_group(x=[0])
    mixed.heartbeat("x", epoch=0).replies(epoch=2, assigned=[0, 1, 2, 3])
    assert mixed.member("x").classic is None


# A mixed group.


def test_classic_member_that_joins_gets_its_share_at_once(mixed: MixedDialogue) -> None:
    """Answered at once: the generation is the epoch, nobody leads, and the protocol is the member's first."""
    mixed.stable(a=[0, 1, 2, 3])
    x = mixed.client("x")
    x.send_join()
    reply = x.receive_join()
    assert reply == commands.JoinGroupReply(
        error=ErrorCode.NONE,
        generation_id=2,
        protocol_type="consumer",
        protocol_name="range",
        leader="",
        member_id="x",
        members=(),
    )
    assert x.receive_sync(x.send_sync()) == {}
    assert x.beat() == ErrorCode.NONE  # a has not given anything up
    mixed.settle_consumers()
    mixed.settle_consumers()
    assert x.beat() == ErrorCode.REBALANCE_IN_PROGRESS
    assert len(x.rejoin()) == 2
    assert x.beat() == ErrorCode.NONE
    assert mixed.member("x").state == MemberState.STABLE


def test_a_new_classic_member_does_not_wait_for_the_window() -> None:
    """It asks again only with its next heartbeat, some seconds later."""
    mixed = MixedDialogue({"t": 4}, group_consumer_assignment_window_ms=50)
    mixed.heartbeat("a", epoch=0)
    mixed.advance(ms=60)
    mixed.settle_consumers()
    mixed.leave("a")
    mixed.heartbeat("b", epoch=0)
    x = mixed.client("x")
    assert len(x.rejoin()) == 2


def test_eager_member_gives_up_everything_and_gets_back_what_stays(mixed: MixedDialogue) -> None:
    """An eager member's JoinGroup lists nothing, which releases what moves at once: one round."""
    clients = mixed.rebalance(mixed.client("x", is_eager=True, version=0), shares={"x": [0, 1, 2, 3]})
    x = clients["x"]
    mixed.heartbeat("a", epoch=0)
    assert x.beat() == ErrorCode.REBALANCE_IN_PROGRESS
    assert len(x.rejoin()) == 2
    assert mixed.member("x").state == MemberState.STABLE
    mixed.settle_consumers()
    assert sorted(map(len, held(mixed).values())) == [2, 2]
    assert x.beat() == ErrorCode.NONE


def test_cooperative_member_gives_up_only_what_moves(mixed: MixedDialogue) -> None:
    """KIP-429: owned partitions of the JoinGroup acknowledge what is not among them."""
    x = mixed.classic_group(x=[0, 1, 2, 3])["x"]
    generation = x.generation
    mixed.heartbeat("a", epoch=0)
    assert x.beat() == ErrorCode.REBALANCE_IN_PROGRESS
    x.send_join()
    # It still owns everything: its epoch waits, and what moves is not given to anybody.
    assert x.receive_join().generation_id == generation
    assert mixed.member("x").state == MemberState.UNREVOKED_PARTITIONS
    mixed.settle_consumers()
    assert held(mixed)["a"] == set()
    assert len(x.receive_sync(x.send_sync())["t"]) == 2
    assert x.beat() == ErrorCode.REBALANCE_IN_PROGRESS
    assert len(x.rejoin()) == 2
    assert x.generation == mixed.group.epoch
    mixed.settle_consumers()
    assert sorted(map(len, held(mixed).values())) == [2, 2]


def test_owned_partitions_of_an_older_generation_release_nothing_younger(mixed: MixedDialogue) -> None:
    """KIP-792: a JoinGroup that was long on its way must not release what its member has got since."""
    x = upgraded(mixed, x=[0, 1, 2, 3])["x"]
    mixed.heartbeat("b", epoch=0)
    mixed.settle_all(x)
    kept = x.partitions
    old = subscription(owned=x.owned, generation=x.generation)
    mixed.leave("a")
    mixed.settle_all(x)
    gained = set(x.partitions) - set(kept)
    assert gained
    mixed.heartbeat("c", epoch=0)
    # The late request says that the member is without what it has gained.
    mixed.join(x.member_id, protocols=[("range", old)])
    assert mixed.member("x").state == MemberState.UNREVOKED_PARTITIONS
    mixed.settle_consumers()
    assert not gained & held(mixed)["c"]


def test_member_waits_for_all_that_is_to_come_once_it_knows_its_target() -> None:
    mixed = MixedDialogue({"t": 6})
    mixed.stable(a=[0, 1, 2, 3, 4, 5])
    mixed.heartbeat("b", epoch=0)
    mixed.settle_consumers()
    mixed.settle_consumers()
    mixed.settle_consumers()
    assert sorted(map(len, held(mixed).values())) == [3, 3]
    x = mixed.client("x")
    assert x.rejoin() == []
    owners = {name: mixed.member(name) for name in ("a", "b")}
    for name, member in owners.items():
        # Told to give up one partition; the epoch stays until it has.
        mixed.heartbeat(name, epoch=member.member_epoch)
    mixed.heartbeat("a", epoch=owners["a"].member_epoch, owned={"t": sorted(owners["a"].assigned[T])})
    assert x.beat() == ErrorCode.NONE
    mixed.heartbeat("b", epoch=owners["b"].member_epoch, owned={"t": sorted(owners["b"].assigned[T])})
    assert x.beat() == ErrorCode.REBALANCE_IN_PROGRESS
    assert len(x.rejoin()) == 2


def test_sync_is_answered_in_the_version_of_the_subscription(mixed: MixedDialogue) -> None:
    for version in (0, 1, 2, 3):
        x = mixed.client(f"x{version}", version=version)
        x.send_join()
        mixed.heartbeat("a", epoch=0)
        if x.waiting is not None:
            x.receive_join()
        reply = x.send_sync().body_as(commands.SyncGroupReply)
        assert reply.assignment[:2] == bytes([0, version])


def test_sync_checks_member_generation_and_protocol(mixed: MixedDialogue) -> None:
    mixed.stable(a=[0, 1, 2, 3])
    x = mixed.client("x")
    x.rejoin()
    mixed.sync("nobody", 2).is_refused(ErrorCode.UNKNOWN_MEMBER_ID)
    mixed.sync("a", 2).is_refused(ErrorCode.UNKNOWN_MEMBER_ID)
    mixed.sync("x", x.generation + 1).is_refused(ErrorCode.ILLEGAL_GENERATION)
    mixed.sync("x", -1).is_refused(ErrorCode.ILLEGAL_GENERATION)
    mixed.sync("x", x.generation, protocol_type="connect").is_refused(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
    mixed.sync("x", x.generation, protocol_name="sticky").is_refused(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
    mixed.sync("x", x.generation, protocol_type="consumer", protocol_name="range").body_as(commands.SyncGroupReply)


def test_heartbeat_checks_member_and_generation(mixed: MixedDialogue) -> None:
    x = upgraded(mixed, x=[0, 1, 2, 3])["x"]
    assert mixed.beat("nobody", 1) == ErrorCode.UNKNOWN_MEMBER_ID
    assert mixed.beat("a", mixed.group.epoch) == ErrorCode.UNKNOWN_MEMBER_ID
    assert mixed.beat("x", x.generation + 1) == ErrorCode.ILLEGAL_GENERATION
    assert mixed.beat("x", -1) == ErrorCode.ILLEGAL_GENERATION


def test_consumer_heartbeat_in_the_name_of_a_classic_member_is_fenced(mixed: MixedDialogue) -> None:
    x = upgraded(mixed, x=[0, 1, 2, 3])["x"]
    mixed.heartbeat("x", epoch=x.generation).is_refused(ErrorCode.FENCED_MEMBER_EPOCH, saying="classic protocol")
    mixed.heartbeat("y", epoch=x.generation).is_refused(ErrorCode.UNKNOWN_MEMBER_ID)


def test_id_is_required_of_dynamic_members_that_understand_that(mixed: MixedDialogue) -> None:
    """KIP-394; nothing is remembered, so a restart does not make the id a stranger's."""
    mixed.stable(a=[0, 1, 2, 3])
    reply = mixed.join(fresh="x", requires_known_member_id=True).body_as(commands.JoinGroupReply)
    assert (reply.error, reply.member_id) == (ErrorCode.MEMBER_ID_REQUIRED, "x")
    assert mixed.new_records() == []
    mixed.restart()
    assert joined(mixed.join("x", requires_known_member_id=True)).member_id == "x"
    assert joined(mixed.join(fresh="s", instance_id="one", requires_known_member_id=True)).member_id == "s"


def test_member_that_was_removed_does_not_come_back_with_what_it_owned(mixed: MixedDialogue) -> None:
    """Kafka lets it in; its client would go on with partitions that others have by now."""
    x = upgraded(mixed, x=[0, 1, 2, 3])["x"]
    mixed.heartbeat("b", epoch=0)
    mixed.advance(ms=10_001)
    assert "x" not in mixed.group.members
    x.send_join().is_refused(ErrorCode.UNKNOWN_MEMBER_ID)
    x.owned = {}
    x.rejoin()


def test_protocols_are_common_to_all_classic_members(mixed: MixedDialogue) -> None:
    """So that the group can become classic again at any time."""
    upgraded(mixed, x=[0, 1, 2, 3])
    mixed.new_records()
    mixed.join(fresh="y", protocols=[("roundrobin", subscription())]).is_refused(
        ErrorCode.INCONSISTENT_GROUP_PROTOCOL, saying="no protocol in common with roundrobin"
    )
    mixed.join(fresh="y", protocol_type="connect").is_refused(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
    mixed.join(fresh="y", protocols=[]).is_refused(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
    mixed.join(fresh="y", protocols=[("range", b"\0")]).is_refused(
        ErrorCode.INCONSISTENT_GROUP_PROTOCOL, saying="not one of a consumer"
    )
    assert mixed.new_records() == []
    # The only classic member may change its mind.
    joined(mixed.join("x", protocols=[("roundrobin", subscription())]))


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"session_timeout_ms": 5}, ErrorCode.INVALID_SESSION_TIMEOUT),
        ({"instance_id": ""}, ErrorCode.INVALID_REQUEST),
        ({"protocols": [("range", b"x" * (1 << 20))]}, ErrorCode.INVALID_REQUEST),
        ({"protocols": [("range", subscription(["t" * 250]))]}, ErrorCode.INVALID_REQUEST),
        ({"protocols": [("range", subscription([f"t{i}" for i in range(10_001)]))]}, ErrorCode.INVALID_REQUEST),
        ({"protocols": [("range", subscription(owned=range(200_001)))]}, ErrorCode.INVALID_REQUEST),
        ({"member_id": "a"}, ErrorCode.UNKNOWN_MEMBER_ID),
        ({"member_id": "x", "instance_id": "one"}, ErrorCode.UNKNOWN_MEMBER_ID),
    ],
)
def test_what_is_malformed_changes_nothing(mixed: MixedDialogue, fields: dict[str, object], code: ErrorCode) -> None:
    mixed.stable(a=[0, 1, 2, 3])
    mixed.join(**fields).is_refused(code)  # type: ignore[arg-type]
    assert mixed.new_records() == []


def test_group_is_full() -> None:
    mixed = MixedDialogue({"t": 4}, group_consumer_max_size=1)
    mixed.heartbeat("a", epoch=0)
    mixed.join(fresh="x").is_refused(ErrorCode.GROUP_MAX_SIZE_REACHED)


def test_rack_of_the_subscription_is_the_members(mixed: MixedDialogue) -> None:
    """KIP-881."""
    mixed.stable(a=[0, 1, 2, 3])
    joined(mixed.join(fresh="x", protocols=[("range", subscription(rack_id="r1"))]))
    assert mixed.member("x").rack_id == "r1"


def test_classic_member_lives_by_its_own_session_timeout(mixed: MixedDialogue) -> None:
    mixed.stable(a=[0, 1, 2, 3])
    x = mixed.client("x")
    x.rejoin()
    for _ in range(3):
        mixed.advance(ms=9_000)
        x.beat()
        mixed.settle_consumers()
    mixed.advance(ms=9_000)
    assert x.commit({}).errors() == ()
    mixed.advance(ms=9_000)
    assert "x" in mixed.group.members
    mixed.advance(ms=1_001)
    assert "x" not in mixed.group.members
    assert x.beat() == ErrorCode.UNKNOWN_MEMBER_ID


def test_classic_member_that_is_heard_of_again_has_its_whole_session() -> None:
    mixed = MixedDialogue({"t": 4}, group_disconnect_grace_ms=500)
    x = upgraded(mixed, x=[0, 1, 2, 3])["x"]
    for say in (x.beat, lambda: x.receive_sync(x.send_sync())):
        mixed.disconnect("x")
        mixed.advance(ms=400)
        say()
        mixed.advance(ms=5_000)
        mixed.settle_consumers()
        assert "x" in mixed.group.members
    mixed.disconnect("x")
    mixed.advance(ms=501)
    assert "x" not in mixed.group.members


def test_session_of_a_classic_member_is_not_the_groups(mixed: MixedDialogue) -> None:
    """A config of the group changes the sessions of those who did not ask for one of their own."""
    x = upgraded(mixed, x=[0, 1, 2, 3])["x"]
    deadline_ms = mixed.shard.timers.deadline(mixed.member("x").session_key)
    mixed.alter_configs({"consumer.session.timeout.ms": "6000"})
    assert mixed.shard.timers.deadline(mixed.member("x").session_key) == deadline_ms
    assert x.beat() == ErrorCode.NONE


def test_member_that_does_not_rejoin_in_time_is_removed(mixed: MixedDialogue) -> None:
    """Going on with heartbeats does not prolong it."""
    x = upgraded(mixed, x=[0, 1, 2, 3])["x"]
    mixed.heartbeat("b", epoch=0)
    assert x.beat() == ErrorCode.REBALANCE_IN_PROGRESS
    for _ in range(9):
        mixed.advance(ms=6_000)
        mixed.settle_consumers()
        assert x.beat() == ErrorCode.REBALANCE_IN_PROGRESS
    mixed.advance(ms=6_001)
    assert x.beat() == ErrorCode.UNKNOWN_MEMBER_ID


def test_member_that_does_not_ask_for_its_assignment_is_removed(mixed: MixedDialogue) -> None:
    mixed.stable(a=[0, 1, 2, 3])
    x = mixed.client("x")
    x.send_join()
    x.receive_join()
    for _ in range(9):
        mixed.advance(ms=6_000)
        mixed.settle_consumers()
        x.beat()
    mixed.advance(ms=6_001)
    assert "x" not in mixed.group.members


def test_member_that_does_not_give_up_in_time_is_removed(mixed: MixedDialogue) -> None:
    """The rebalance timer of any member that has something to give up."""
    x = upgraded(mixed, x=[0, 1, 2, 3])["x"]
    mixed.heartbeat("b", epoch=0)
    x.beat()
    x.rejoin()
    for _ in range(10):
        mixed.advance(ms=6_001)
        mixed.settle_consumers()
        x.beat()
    assert "x" not in mixed.group.members


def test_commits_follow_the_generation_and_who_holds_the_partition(mixed: MixedDialogue) -> None:
    x = upgraded(mixed, x=[0, 1, 2, 3])["x"]
    mine = x.partitions[0]
    others = next(iter(held(mixed)["a"]))
    assert x.commit({mine: 5}).errors() == (ErrorCode.NONE,)
    # ILLEGAL_GENERATION would make its client throw everything away.
    assert x.commit({others: 5, mine: 6}).errors() == (ErrorCode.REBALANCE_IN_PROGRESS, ErrorCode.NONE)
    for generation in (-1, x.generation + 1):
        mixed.commit({mine: 9}, member_id="x", epoch=generation).is_refused(ErrorCode.ILLEGAL_GENERATION)
    mixed.commit({mine: 9}, member_id="", epoch=-1).is_refused(ErrorCode.UNKNOWN_MEMBER_ID)
    assert mixed.committed([mine, others]) == {mine: 6, others: -1}


def test_generations_that_a_member_was_never_told_are_not_its_own(mixed: MixedDialogue) -> None:
    """0 is no generation of anybody, and a new member has none but its latest."""
    mixed.stable(a=[0, 1, 2, 3])
    x = mixed.client("x")
    x.rejoin()
    for generation in (0, x.generation + 1):
        assert mixed.beat("x", generation) == ErrorCode.ILLEGAL_GENERATION
        mixed.sync("x", generation).is_refused(ErrorCode.ILLEGAL_GENERATION)
        mixed.commit({0: 9}, member_id="x", epoch=generation).is_refused(ErrorCode.ILLEGAL_GENERATION)


def test_late_commit_of_a_classic_member_does_not_count_for_what_it_has_got_since(mixed: MixedDialogue) -> None:
    """KIP-1251 for classic members, too: what others committed for a partition in between is not overwritten."""
    x = upgraded(mixed, x=[0, 1, 2, 3])["x"]
    mine, others = x.partitions[0], next(iter(held(mixed)["a"]))
    before = x.generation
    mixed.commit({others: 100}, member_id="a", epoch=mixed.member("a").member_epoch)
    mixed.heartbeat("b", epoch=0, topics=["u"])
    mixed.heartbeat("a", epoch=mixed.member("a").member_epoch, topics=["u"], owned={})
    while others not in x.partitions:
        x.step()
    assert x.generation > before
    late = mixed.commit({others: 5, mine: 6}, member_id="x", epoch=before, is_member_epoch_aware=False)
    assert late.errors() == (ErrorCode.REBALANCE_IN_PROGRESS, ErrorCode.NONE)
    assert mixed.committed([mine, others]) == {mine: 6, others: 100}
    never_told = mixed.commit({mine: 7}, member_id="x", epoch=0, is_member_epoch_aware=False)
    never_told.is_refused(ErrorCode.ILLEGAL_GENERATION)


def test_late_commit_does_not_count_for_what_was_given_up_before_the_group_became_classic(mixed: MixedDialogue) -> None:
    """A clean hand-over loses no commit, and none that was long on its way overwrites a younger one."""
    x = upgraded(mixed, x=[0, 1, 2, 3])["x"]
    mine, others, before = x.partitions[0], next(iter(held(mixed)["a"])), x.generation
    mixed.heartbeat("b", epoch=0)
    mixed.settle_all(x)
    mixed.commit({others: 100}, member_id="a", epoch=mixed.member("a").member_epoch)
    mixed.leave("b")
    mixed.leave("a")
    assert mixed.shard.groups.classic["g"].generation > before
    late = mixed.commit({others: 5, mine: 6}, member_id="x", epoch=before, is_member_epoch_aware=False)
    assert late.errors() == (ErrorCode.REBALANCE_IN_PROGRESS, ErrorCode.NONE)
    assert mixed.committed([mine, others]) == {mine: 6, others: 100}


def test_both_kinds_are_told_apart_in_descriptions(mixed: MixedDialogue) -> None:
    """ConsumerGroupDescribe v1: 0 is classic, 1 speaks the consumer protocol."""
    upgraded(mixed, x=[0, 1, 2, 3])
    described = mixed.describe().body_as(DescribeConsumerGroupReply)
    assert {member.member_id: member.member_type for member in described.members} == {"a": 1, "x": 0}
    assert described.state == "Stable"
    assert mixed.list_groups() == [("g", "consumer", "Stable", "consumer")]
    dead = mixed.describe_classic().body_as(DescribeClassicGroupReply)
    assert (dead.error, dead.state) == (ErrorCode.GROUP_ID_NOT_FOUND, "Dead")


@pytest.mark.parametrize("topics_first", [False, True])
def test_mixed_group_goes_on_after_a_restart(mixed: MixedDialogue, topics_first: bool) -> None:
    """Classic members have their own session timeouts again, nobody rejoins."""
    x = upgraded(mixed, x=[0, 1, 2, 3])["x"]
    before = held(mixed)
    mixed.restart(topics_first=topics_first)
    mixed.new_records()
    assert held(mixed) == before
    mixed.advance(ms=9_999)
    assert x.beat() == ErrorCode.NONE
    assert durable(mixed.new_records()) == []
    mixed.settle_consumers()
    assert x.commit({x.partitions[0]: 1}).errors() == (ErrorCode.NONE,)
    mixed.advance(ms=10_001)
    assert "x" not in mixed.group.members


def test_restart_between_telling_and_rejoining(mixed: MixedDialogue) -> None:
    x = upgraded(mixed, x=[0, 1, 2, 3])["x"]
    mixed.heartbeat("b", epoch=0)
    x.beat()
    mixed.restart()
    mixed.settle_all(x)
    assert sorted(map(len, held(mixed).values())) == [1, 1, 2]
    x.send_join()
    mixed.restart()
    mixed.settle_all(x)
    assert sorted(map(len, held(mixed).values())) == [1, 1, 2]


def test_topic_that_grows_reaches_classic_members(mixed: MixedDialogue) -> None:
    x = upgraded(mixed, x=[0, 1, 2, 3])["x"]
    mixed.set_topics({"t": 8})
    mixed.settle_all(x)
    assert len(x.partitions) == 4


# Static members.


def test_static_classic_member_takes_the_place_of_its_predecessor(mixed: MixedDialogue) -> None:
    """KIP-345: a restarted process gets its partitions back, and the other one is fenced."""
    first = mixed.client("x1", instance_id="one")
    mixed.rebalance(first, shares={"x1": [0, 1, 2, 3]})
    mixed.heartbeat("a", epoch=0)
    mixed.settle_all(first)
    epoch = mixed.group.epoch
    second = mixed.client("x2", instance_id="one")
    assert second.rejoin() == first.partitions
    assert mixed.group.epoch == epoch
    assert mixed.group.members.keys() == {"x2", "a"}
    assert first.beat() == ErrorCode.FENCED_INSTANCE_ID
    first.send_join().is_refused(ErrorCode.FENCED_INSTANCE_ID)
    first.send_sync().is_refused(ErrorCode.FENCED_INSTANCE_ID)
    first.commit({first.partitions[0]: 1}).is_refused(ErrorCode.FENCED_INSTANCE_ID)
    assert second.beat() == ErrorCode.NONE


def test_consumer_member_takes_the_place_of_a_static_classic_one(mixed: MixedDialogue) -> None:
    """Rolling a static member up: no wait for its session, nothing moves."""
    first, y = mixed.client("x1", instance_id="one"), mixed.client("y", instance_id="two")
    mixed.rebalance(first, y, shares={"x1": [0, 1], "y": [2, 3]})
    mixed.heartbeat("x2", epoch=0, instance_id="one")
    mixed.settle_all(y)
    assert held(mixed) == {"x2": {0, 1}, "y": {2, 3}}
    assert mixed.member("x2").classic is None
    assert first.beat() == ErrorCode.FENCED_INSTANCE_ID
    assert y.beat() == ErrorCode.NONE


def test_partitions_that_the_leader_forgot_are_given_out_though_nobody_new_came(mixed: MixedDialogue) -> None:
    """What a leader gave is not a target; found by a random sequence."""
    first, y = mixed.client("x1", instance_id="one"), mixed.client("y", instance_id="two")
    mixed.rebalance(first, y, shares={"x1": [0], "y": [2, 3]})
    mixed.heartbeat("x2", epoch=0, instance_id="one").replies(epoch=2, assigned=[0])
    mixed.settle_all(y)
    assert held(mixed) == {"x2": {0, 1}, "y": {2, 3}}


def test_classic_member_takes_the_place_of_a_static_consumer_one(mixed: MixedDialogue) -> None:
    """Rolling a static member down while others stay."""
    mixed.heartbeat("a1", epoch=0, instance_id="one")
    mixed.heartbeat("b", epoch=0, instance_id="two")
    mixed.settle_consumers()
    mixed.settle_consumers()
    mine = held(mixed)["a1"]
    a2 = mixed.client("a2", instance_id="one")
    assert set(a2.rejoin()) == mine
    assert mixed.member("a2").classic is not None
    mixed.heartbeat("a1", epoch=mixed.group.epoch, instance_id="one").is_refused(ErrorCode.FENCED_INSTANCE_ID)
    assert a2.beat() == ErrorCode.NONE


def test_last_consumer_member_replaced_by_a_static_classic_one(mixed: MixedDialogue) -> None:
    first, y = mixed.client("x1", instance_id="one"), mixed.client("y", instance_id="two")
    mixed.rebalance(first, y, shares={"x1": [0, 1], "y": [2, 3]})
    mixed.heartbeat("x2", epoch=0, instance_id="one")
    mixed.settle_all(y)
    mixed.new_records()
    third = mixed.client("x3", instance_id="one")
    assert third.send_join().is_parked
    assert type_of(mixed) == "classic"
    assert y.beat() == ErrorCode.REBALANCE_IN_PROGRESS
    y.send_join()
    y.receive_join()
    third.receive_join()
    assert {y.generation, third.generation} == {mixed.shard.groups.classic["g"].generation}
    assert y.is_leader != third.is_leader


def test_only_consumer_member_replaced_by_a_static_classic_one(mixed: MixedDialogue) -> None:
    mixed.heartbeat("a", epoch=0, instance_id="one")
    mixed.new_records()
    x = mixed.client("x", instance_id="one")
    x.send_join()
    assert x.receive_join().leader == "x"
    assert type_of(mixed) == "classic"
    mixed.restart()


@pytest.mark.parametrize("policy", ["upgrade", "bidirectional"])
def test_replacement_where_the_group_must_not_move_down(policy: str) -> None:
    """A policy or a size that forbids it leaves a KIP-848 group of classic members."""
    mixed = of_policy(policy, group_max_size=1)
    mixed.heartbeat("a", epoch=0, instance_id="one")
    mixed.heartbeat("b", epoch=0, instance_id="two")
    mixed.settle_consumers()
    mixed.settle_consumers()
    x, y = mixed.client("x", instance_id="one"), mixed.client("y", instance_id="two")
    x.rejoin()
    y.rejoin()
    mixed.settle_all(x, y)
    assert type_of(mixed) == "consumer"
    assert sorted([*x.partitions, *y.partitions]) == [0, 1, 2, 3]


# Down.


def test_downgrade_writes_one_batch_and_starts_a_rebalance(mixed: MixedDialogue) -> None:
    clients = upgraded(mixed, x=[0, 1], y=[2, 3])
    epoch = mixed.group.epoch
    shares = {name: list(client.partitions) for name, client in clients.items()}
    mixed.leave("a")
    records = durable(mixed.new_records())
    gone = [
        kind(group_id="g", member_id=member_id)
        for member_id in ("a", "x", "y")
        for kind in (CurrentAssignmentForgotten, MemberTargetForgotten, ConsumerMemberForgotten)
    ]
    assert records[:-1] == [
        *gone,
        TargetAssignmentEpochForgotten(group_id="g"),
        ConsumerGroupForgotten(group_id="g"),
    ]
    stored = records[-1]
    assert isinstance(stored, ClassicGroupStored)
    assert (stored.protocol_type, stored.protocol_name, stored.generation) == ("consumer", "range", epoch)
    assert {
        member.member_id: list(embedded.decode_assignment(member.assignment).partitions["t"])
        for member in stored.members
    } == shares
    assert mixed.list_groups() == [("g", "consumer", "PreparingRebalance", "classic")]
    # What members do not know yet does not cost them a commit.
    for client in clients.values():
        assert client.commit({client.partitions[0]: 3}).errors() == (ErrorCode.NONE,)
        assert client.beat() == ErrorCode.REBALANCE_IN_PROGRESS
    for client in clients.values():
        client.send_join()
    for client in clients.values():
        assert client.receive_join().generation_id == epoch + 1
    assert [client.is_leader for client in clients.values()].count(True) == 1


def test_members_have_their_own_timeouts_after_a_downgrade(mixed: MixedDialogue) -> None:
    """The session that each asked for, 10 s, and its time to rejoin, 60 s."""
    clients = upgraded(mixed, x=[0], y=[1], z=[2, 3])
    x, y, _ = clients.values()
    mixed.leave("a")
    waiting = x.send_join()
    for _ in range(6):
        mixed.advance(ms=9_000)
        assert y.beat() == ErrorCode.REBALANCE_IN_PROGRESS
    assert mixed.shard.groups.classic["g"].members.keys() == {"x", "y"}, "z was silent for its session"
    assert waiting.is_parked
    mixed.advance(ms=6_000)
    assert mixed.shard.groups.classic["g"].members.keys() == {"x"}, "y was alive, and did not rejoin in time"
    assert x.receive_join().leader == "x"


def test_downgrade_when_the_last_consumer_member_is_silent() -> None:
    mixed = MixedDialogue({"t": 4}, group_consumer_session_timeout_ms=8_000)
    x = upgraded(mixed, x=[0, 1, 2, 3])["x"]
    mixed.advance(ms=7_000)
    x.beat()
    mixed.advance(ms=1_001)
    assert type_of(mixed) == "classic"
    assert x.beat() == ErrorCode.REBALANCE_IN_PROGRESS


def test_downgrade_when_an_administrator_removes_the_last_consumer_member(mixed: MixedDialogue) -> None:
    x = upgraded(mixed, x=[0, 1, 2, 3])["x"]
    assert mixed.leave_group("a", "nobody") == [ErrorCode.NONE, ErrorCode.UNKNOWN_MEMBER_ID]
    assert type_of(mixed) == "classic"
    assert x.beat() == ErrorCode.REBALANCE_IN_PROGRESS


def test_group_that_loses_its_last_member_is_an_empty_consumer_group(mixed: MixedDialogue) -> None:
    upgraded(mixed, x=[0, 1, 2, 3])
    assert mixed.leave_group("a", "x") == [ErrorCode.NONE, ErrorCode.NONE]
    assert mixed.list_groups() == [("g", "consumer", "Empty", "consumer")]


def test_classic_member_leaves_a_mixed_group(mixed: MixedDialogue) -> None:
    upgraded(mixed, x=[0, 1, 2, 3])
    assert mixed.leave_group("x") == [ErrorCode.NONE]
    mixed.settle_consumers()
    assert held(mixed) == {"a": {0, 1, 2, 3}}
    mixed.advance(ms=60_001)


@pytest.mark.parametrize(
    ("policy", "is_moved"), [("bidirectional", True), ("downgrade", True), ("upgrade", False), ("disabled", False)]
)
def test_policy_says_whether_a_group_is_moved_down(policy: str, is_moved: bool) -> None:
    """Under a policy that forbids it, classic members stay in a KIP-848 group, and go on."""
    mixed = of_policy("bidirectional")
    x = upgraded(mixed, x=[0, 1, 2, 3])["x"]
    after = of_policy(policy)
    after.log, after.now_ms = mixed.log, mixed.now_ms
    after.restart()
    x.dialogue = after
    after.leave("a")
    assert type_of(after) == ("classic" if is_moved else "consumer")
    assert x.beat() == ErrorCode.REBALANCE_IN_PROGRESS
    if policy == "upgrade":
        after.settle_all(x)
        assert x.partitions == [0, 1, 2, 3]


def test_a_group_larger_than_a_classic_one_may_be_stays() -> None:
    mixed = MixedDialogue({"t": 4}, group_max_size=1)
    mixed.heartbeat("a", epoch=0)
    clients = [mixed.client("x"), mixed.client("y")]
    for client in clients:
        client.rejoin()
    mixed.settle_all(*clients)
    mixed.leave("a")
    assert type_of(mixed) == "consumer"
    mixed.settle_all(*clients)
    assert sorted(map(len, held(mixed).values())) == [2, 2]
    # The next one that goes makes it small enough.
    mixed.leave_group("y")
    assert type_of(mixed) == "classic"


@pytest.mark.parametrize("policy", ["upgrade", "downgrade", "bidirectional"])
def test_classic_member_joins_a_consumer_group_under_every_policy_but_disabled(policy: str) -> None:
    """KAFKA-20640 concerns "disabled" alone: in an upgrade classic members come back after a crash."""
    mixed = of_policy(policy)
    mixed.stable(a=[0, 1, 2, 3])
    joined(mixed.join(fresh="x"))


def test_disabled_policy_refuses_classic_members_of_a_consumer_group() -> None:
    """KAFKA-20640: such a group would stay mixed for good."""
    mixed = of_policy("disabled")
    mixed.stable(a=[0, 1, 2, 3])
    mixed.join(fresh="x").is_refused(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, saying="group.protocol=consumer")
    assert mixed.new_records() == []


@pytest.mark.parametrize("policy", ["bidirectional", "upgrade", "downgrade", "disabled"])
def test_empty_groups_change_their_kind_under_every_policy(policy: str) -> None:
    mixed = of_policy(policy)
    mixed.classic_group(x=[0, 1, 2, 3])
    mixed.leave_group("x")
    mixed.stable(a=[0, 1, 2, 3])
    mixed.leave("a")
    mixed.classic_group(y=[0, 1, 2, 3])
    assert type_of(mixed) == "classic"


def test_restart_after_a_downgrade_shares_out_what_the_others_held(mixed: MixedDialogue) -> None:
    """A follower that only comes back would find a Stable group with partitions that nobody reads."""
    clients = upgraded(mixed, x=[0, 1], y=[2, 3])
    mixed.leave("a")
    mixed.restart()
    assert mixed.list_groups() == [("g", "consumer", "PreparingRebalance", "classic")]
    for client in clients.values():
        assert client.commit({client.partitions[0]: 3}).errors() == (ErrorCode.NONE,)
        assert client.beat() == ErrorCode.REBALANCE_IN_PROGRESS
    mixed.rebalance(*clients.values(), shares={"x": [0, 1], "y": [2, 3]})
    mixed.restart()
    assert mixed.list_groups() == [("g", "consumer", "Stable", "classic")]


def test_down_and_up_again_before_the_rebalance_is_over(mixed: MixedDialogue) -> None:
    clients = upgraded(mixed, x=[0, 1], y=[2, 3])
    owned = {name: set(client.partitions) for name, client in clients.items()}
    mixed.leave("a")
    clients["x"].send_join()
    mixed.heartbeat("b", epoch=0)
    clients["x"].receive_join()
    assert {name: found for name, found in held(mixed).items() if name != "b"} == owned
    assert clients["y"].commit({clients["y"].partitions[0]: 3}).errors() == (ErrorCode.NONE,)
    mixed.settle_all(*clients.values())
    assert sorted(map(len, held(mixed).values())) == [1, 1, 2]


def test_every_protocol_of_the_members_counts_in_the_vote_after_a_downgrade(mixed: MixedDialogue) -> None:
    """The record of a classic group keeps one protocol of each member; the living group keeps them all."""
    mixed.stable(a=[0, 1, 2, 3])
    both = [("cooperative-sticky", subscription()), ("range", subscription())]
    joined(mixed.join(fresh="x", protocols=both))
    mixed.leave("a")
    y = mixed.client("y", protocol="range")
    assert y.send_join().is_parked
    mixed.join("x", protocols=both)
    assert y.receive_join().protocol_name == "range"


@pytest.mark.parametrize("is_eager", [True, False])
@pytest.mark.parametrize("window_ms", [0, 50])
def test_rolling_there_and_back_again_never_gives_two_owners(is_eager: bool, window_ms: int) -> None:
    """`GroupDialogue` checks the owners after every step; in the end everybody has its share."""
    mixed = MixedDialogue({"t": 7}, group_consumer_assignment_window_ms=window_ms)
    names = ["x", "y", "z"]
    clients = {name: mixed.client(name, is_eager=is_eager) for name in names}
    mixed.rebalance(*clients.values(), shares={"x": [0, 1, 2], "y": [3, 4], "z": [5, 6]})

    def settle() -> None:
        for _ in range(4):
            mixed.advance(ms=100)
            if "g" in mixed.shard.groups.consumer:
                mixed.settle_all(*clients.values())

    for name in names:
        mixed.heartbeat(f"new-{name}", epoch=0)
        settle()
        assert mixed.leave_group(clients.pop(name).member_id) == [ErrorCode.NONE]
        settle()
        assert sorted(map(len, held(mixed).values())) == [2, 2, 3]
    for name in names:
        clients[name] = mixed.client(f"old-{name}", is_eager=is_eager)
        clients[name].rejoin()
        settle()
        mixed.leave(f"new-{name}")
        settle()
    assert type_of(mixed) == "classic"
    mixed.rebalance(*clients.values(), shares={"old-x": [0, 1, 2], "old-y": [3, 4], "old-z": [5, 6]})
    assert mixed.list_groups() == [("g", "consumer", "Stable", "classic")]
