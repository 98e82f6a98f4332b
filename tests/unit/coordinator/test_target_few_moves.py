"""One join into a large group looks at the members that give or take, and ends as the uniform assignor would."""

from __future__ import annotations

from array import array
from collections.abc import Mapping
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kohort.assign.interface import Assignable, AssignableMember
from kohort.assign.ownership import PartitionSpace, gather_owners
from kohort.assign.uniform import Uniform
from kohort.coordinator.consumer.assignment.balance import TargetBalance, build_balance, load_of, plan_targets
from kohort.coordinator.consumer.assignment.volatile import TargetBalanceKept
from kohort.coordinator.records.types import MemberTargetSet
from kohort.ids import TopicId
from support.dialogues.coordinator_dialogue import GroupDialogue, topic_id_of

Targets = dict[str, dict[TopicId, tuple[int, ...]]]


@st.composite
def groups(draw: st.DrawFn) -> tuple[list[tuple[TopicId, int]], list[str], Targets]:
    """Topics, members and targets that give each partition to one member at most."""
    counts = draw(st.lists(st.integers(0, 12), min_size=1, max_size=4))
    topics = [(topic_id_of(f"t{place}"), count) for place, count in enumerate(counts)]
    members = [f"m{number:02}" for number in range(draw(st.integers(1, 9)))]
    # Few owners of many partitions as well as many of few.
    owners = st.sampled_from([*members[: draw(st.integers(1, len(members)))], ""])
    held: dict[str, dict[TopicId, list[int]]] = {}
    for topic_id, count in topics:
        for partition in range(count):
            owner = draw(owners)
            if owner:
                held.setdefault(owner, {}).setdefault(topic_id, []).append(partition)
    targets = {member: {t: tuple(found) for t, found in topics_.items()} for member, topics_ in held.items()}
    return topics, members, targets


def assignable(
    topics: list[tuple[TopicId, int]], members: list[str], targets: Targets, max_moves: int, imbalance: int
) -> Assignable:
    space = PartitionSpace(topics)
    return Assignable(
        space=space,
        topic_names=tuple(f"t{place}" for place in range(len(topics))),
        members=tuple(AssignableMember(member_id=member) for member in members),
        subscribers=tuple(range(len(members)) for _ in topics),
        owner=gather_owners(space, [targets.get(member, {}) for member in members]),
        max_moves=max_moves,
        imbalance=imbalance,
    )


def moves(before: array[int], after: array[int]) -> int:
    """Partitions that went from one owner to another."""
    return sum(old >= 0 and old != new for old, new in zip(before, after, strict=True))


@given(groups(), st.sampled_from([-1, -1, 0, 1, 3]), st.sampled_from([0, 0, 1, 4]))
def test_loads_and_number_of_moves_are_those_of_the_uniform_assignor(
    group: tuple[list[tuple[TopicId, int]], list[str], Targets], max_moves: int, imbalance: int
) -> None:
    topics, members, targets = group
    balance = build_balance(members, targets, topics, 1)
    assert balance is not None
    # It plans whatever little share of the whole has to move; the whole is made large enough.
    patient = balance.copy()
    patient.total = 10_000  # type: ignore[misc]

    planned = plan_targets(patient, targets, max_moves=max_moves, imbalance=imbalance)

    assert planned is not None
    whole = assignable(topics, members, targets, max_moves, imbalance)
    full = Uniform().assign(whole)
    after = targets | planned
    owner = gather_owners(whole.space, [after.get(member, {}) for member in members])
    assert -1 not in owner
    assert sum(map(load_of, after.values())) == len(owner), "each partition once"
    loads = sorted(load_of(after.get(member, {})) for member in members)
    assert loads == sorted(full.count(number) for number in range(len(members)))
    assert moves(whole.owner, owner) == moves(whole.owner, full)
    assert all(planned[member] != targets.get(member, {}) for member in planned), "nobody is told what it knows"
    for target in planned.values():
        assert all(list(partitions) == sorted(set(partitions)) and partitions for partitions in target.values())
        assert list(target) == sorted(target, key=balance.rank.__getitem__)


@given(groups(), st.integers(0, 2**32))
def test_balance_follows_every_change_of_a_target(
    group: tuple[list[tuple[TopicId, int]], list[str], Targets], seed: int
) -> None:
    topics, members, targets = group
    random = Random(seed)
    kept = build_balance(members, targets, topics, 1)
    assert kept is not None
    first = kept.copy()
    before = first.as_value()
    for _ in range(5):
        member = random.choice(members)
        change = random.choice(["forget", "join", "some"])
        if change == "join":
            new = f"n{random.randint(0, 99_999):05}"
            members = [*members, new]
            kept.add_member(new)
            continue
        old = targets.get(member)
        left = {t: found[: random.randint(0, len(found))] for t, found in (old or {}).items()}
        target = {} if change == "forget" else {t: found for t, found in left.items() if found}
        assert kept.change_target(member, old, target)
        targets = targets | {member: target}
    built = build_balance(members, targets, topics, 1)
    assert built is not None
    assert kept.as_value() == built.as_value()
    assert first.as_value() == before, "a copy stays as it is"


def test_balance_knows_when_it_cannot_follow() -> None:
    balance = TargetBalance([(topic_id_of("t"), 3)], 1)
    balance.add_member("a")
    assert not balance.change_target("a", {}, {topic_id_of("u"): (0,)})
    assert not balance.change_target("stranger", {}, {topic_id_of("t"): (0,)})
    assert not balance.remove_member("stranger", None)
    assert build_balance(["a"], {"a": {topic_id_of("u"): (0,)}}, [(topic_id_of("t"), 3)], 1) is None
    assert build_balance(["a"], {"a": {topic_id_of("t"): (3,)}}, [(topic_id_of("t"), 3)], 1) is None


def large(count: int = 60, *, window_ms: int = 0, members: int = 10, **limits: int) -> GroupDialogue:
    """A group at rest whose balance is kept however small it is."""
    group = GroupDialogue(
        {"t": count // 2, "u": count - count // 2},
        incremental_from_partitions=1,
        group_consumer_assignment_window_ms=window_ms,
        **limits,
    )
    for number in range(members):
        join(group, f"m{number:02}")
    group.advance(ms=window_ms)
    group.settle()
    group.new_records()
    return group


def join(group: GroupDialogue, member_id: str) -> None:
    group.heartbeat(member_id, epoch=0, topics=["t", "u"])


def changed(group: GroupDialogue) -> set[str]:
    """Members that got another target since this was asked last."""
    return {record.member_id for record in group.new_records() if isinstance(record, MemberTargetSet)}


@pytest.mark.parametrize("window_ms", [0, 50])
def test_a_join_concerns_as_many_members_as_give_something(window_ms: int) -> None:
    """G7: an arrival moves only what it must."""
    group = large(window_ms=window_ms)
    join(group, "new")
    group.advance(ms=window_ms)
    records = group.new_records()
    targets = {record.member_id for record in records if isinstance(record, MemberTargetSet)}
    # Eleven members of 60 partitions have 5 or 6: five of the old ones give one each.
    assert len(targets) == 6
    assert "new" in targets
    assert group.group.balance is not None
    group.settle()
    assert sorted(map(len, group.holders().values())) == [5] * 6 + [6] * 5


@pytest.mark.parametrize("window_ms", [0, 50])
def test_a_departure_concerns_nobody_who_gives(window_ms: int) -> None:
    group = large(window_ms=window_ms)
    before = group.holders()
    group.leave("m03")
    group.advance(ms=window_ms)
    assert len(changed(group)) == 6
    group.settle()
    after = group.holders()
    assert all(after[member] >= held for member, held in before.items() if member != "m03")
    assert sorted(map(len, after.values())) == [6] * 3 + [7] * 6


def test_balance_is_given_up_where_it_says_nothing_and_made_again() -> None:
    group = large()
    join(group, "x")
    assert group.group.balance is not None
    group.heartbeat("x", epoch=0, topics=["t"])
    assert len(group.group.subscriptions) == 2
    join(group, "x")
    group.set_topics({"t": 31, "u": 30})
    assert group.group.balance is None
    group.fire_due()
    assert group.group.balance is not None
    group.set_topics({"t": 31})
    group.fire_due()
    assert group.group.balance is None
    group.settle()
    assert sorted(map(len, group.holders().values())) == [2] * 2 + [3] * 9


def test_small_group_keeps_none() -> None:
    group = GroupDialogue({"t": 40})
    group.heartbeat("a", epoch=0)
    group.heartbeat("b", epoch=0)
    assert not any(isinstance(record, TargetBalanceKept) for record in group.new_records())


@pytest.mark.large
@pytest.mark.parametrize("window_ms", [0, 50])
@pytest.mark.parametrize("seed", range(4))
def test_a_restart_changes_nothing_about_what_comes_of_a_change(seed: int, window_ms: int) -> None:
    """Fold is live: one broker keeps its balance, the other is started anew before each change."""

    def play(*, restarts: bool) -> list[Mapping[str, object]]:
        random = Random(seed)
        group = large(
            20, members=4, window_ms=window_ms, group_assignor_imbalance=seed % 2, group_assignor_max_moves=seed - 1
        )
        seen: list[Mapping[str, object]] = []
        for number in range(14):
            if restarts:
                group.restart()
            present = sorted(group.group.members)
            what = random.choice(["join", "join", "leave", "leave", "topics"])
            if what == "join" or len(present) < 3:
                join(group, f"{random.choice('abxyz')}{number:02}")
            elif what == "leave":
                group.leave(random.choice(present))
            else:
                group.set_topics({name: count + 3 for name, count in group.topic_counts.items()})
            group.advance(ms=50)
            group.settle()
            seen.append(dict(group.group.targets))
        return seen

    assert play(restarts=True) == play(restarts=False)
