"""What the journal is told: every rebalance with its trigger, every move with its partitions, and nothing else."""

from __future__ import annotations

from kohort.coordinator.commands import ConsumerGroupHeartbeat, LeavingMember
from kohort.coordinator.commands import LeaveGroup as Leave
from kohort.coordinator.journal_events.reporter import count_of
from kohort.errors import ErrorCode
from kohort.ids import CauseId, RequestToken
from kohort.journal.rows import TEXT_LIMIT, Entry, RowKind
from kohort.journal.words import PARTITIONS_SHOWN
from support.dialogues.coordinator_dialogue import GroupDialogue
from support.dialogues.mixed_dialogue import MixedDialogue


def events(entries: list[Entry]) -> list[str]:
    return [entry.event for entry in entries]


def find(entries: list[Entry], event: str) -> dict[str, str]:
    """The details of the only entry of that name."""
    (found,) = [entry for entry in entries if entry.event == event]
    return dict(found.details)


def new(group: GroupDialogue) -> list[Entry]:
    """What was told since the last call."""
    told, group.told = group.told, []
    return told


def test_join_tells_who_came_what_was_computed_and_what_was_given(group: GroupDialogue) -> None:
    group.heartbeat("a", epoch=0)

    told = new(group)

    assert events(told) == [
        "ConsumerGroupHeartbeat",
        "member_joined",
        "epoch_bumped",
        "target_computed",
        "assignment_changed",
        "group_at_rest",
    ]
    assert told[0].kind is RowKind.STIMULUS and told[0].member_id == "a"
    assert find(told, "member_joined")["topics"] == "t"
    assert find(told, "epoch_bumped") == {"epoch": "1", "trigger": "member joined"}
    assert find(told, "target_computed") == {"epoch": "1", "members_changed": "1"}
    assert find(told, "assignment_changed") == {"epoch": "1", "state": "STABLE", "gained": "t-0 t-1"}


def test_hand_over_tells_what_is_asked_back_and_what_is_released(group: GroupDialogue) -> None:
    group.heartbeat("a", epoch=0)
    group.heartbeat("b", epoch=0)
    new(group)

    group.heartbeat("a", epoch=1)
    assert find(new(group), "assignment_changed")["asked_back"] == "t-1"
    group.heartbeat("a", epoch=1, owned=[0])
    assert find(new(group), "assignment_changed")["released"] == "t-1"


def test_heartbeat_that_changes_nothing_is_only_counted(group: GroupDialogue) -> None:
    group.heartbeat("a", epoch=0)
    new(group)

    group.heartbeat("a", epoch=1)

    assert new(group) == []


def test_commits_are_only_counted(group: GroupDialogue) -> None:
    group.heartbeat("a", epoch=0)
    new(group)

    group.commit({0: 5}, member_id="a", epoch=1)

    assert group.committed() != {}
    assert new(group) == []


def test_silence_is_the_trigger_where_it_is(group: GroupDialogue) -> None:
    group.heartbeat("a", epoch=0)
    new(group)

    group.advance(group.settings.group_consumer_session_timeout_ms)

    told = new(group)
    assert find(told, "deadline_passed") == {"deadline": "session timeout"}
    assert find(told, "member_removed") == {"reason": "session timeout", "silent_ms": "45000", "session_ms": "45000"}
    assert find(told, "epoch_bumped")["trigger"] == "session timeout"
    assert find(told, "assignment_released")["released"] == "t-0 t-1"


def test_leaving_and_removal_are_told_apart_from_silence(group: GroupDialogue) -> None:
    for member in ("a", "b", "c"):
        group.heartbeat(member, epoch=0)
    new(group)

    group.leave("a")
    assert find(new(group), "member_removed")["reason"] == "member left"
    group.ask(
        Leave(
            cause=group.cause(),
            request=group.request(),
            group_id="g",
            members=(LeavingMember(member_id="b", reason="scaled in"), LeavingMember(member_id="c")),
        )
    )
    told = new(group)
    assert find(told, "LeaveGroup") == {"by": "administrator", "reason": "scaled in"}
    assert find(told, "epoch_bumped")["trigger"] == "removed by an administrator"


def test_change_of_topics_is_told_to_each_group_that_it_concerns(group: GroupDialogue) -> None:
    group.heartbeat("a", epoch=0)
    group.heartbeat("b", epoch=0, topics=["u"], group_id="other")
    new(group)

    group.set_topics({"t": 5})

    told = new(group)
    assert {entry.group_id for entry in told} == {"g"}
    assert find(told, "epoch_bumped")["trigger"] == "topics changed"


def test_refusal_is_a_decision_with_its_reason(group: GroupDialogue) -> None:
    group.heartbeat("stranger", epoch=3)

    (entry,) = new(group)

    assert (entry.kind, entry.event, entry.member_id) == (RowKind.DECISION, "refused", "stranger")
    details = dict(entry.details)
    assert details["error"] == ErrorCode.UNKNOWN_MEMBER_ID.name
    assert "rejoin" in details["why"]


def test_many_partitions_are_a_few_names_and_a_number() -> None:
    group = GroupDialogue({"t": PARTITIONS_SHOWN + 8})
    group.heartbeat("a", epoch=0)

    assert find(new(group), "assignment_changed")["gained"].endswith("t-31 and 8 more")


def test_a_long_list_of_partitions_ends_with_a_whole_name_and_the_number_of_the_rest() -> None:
    """The journal keeps 256 characters: cut there, orders-of-a-region-12 would read as orders-of-a-region-1."""
    name = "orders-of-a-region"
    group = GroupDialogue({name: 30})
    group.heartbeat("a", epoch=0, topics=[name])
    gained = find(new(group), "assignment_changed")["gained"]
    shown, _, more = gained.partition(" and ")
    assert len(gained) <= TEXT_LIMIT
    assert shown.split() == [f"{name}-{number}" for number in range(len(shown.split()))]
    assert more == f"{30 - len(shown.split())} more"


def test_rebalance_ends_with_the_row_that_the_group_is_at_rest() -> None:
    """Whom a new epoch leaves alone has no row, so that the rows of members do not say when all have their target."""
    group = GroupDialogue({"t": 3})
    group.stable(a=[0, 1], b=[2])
    new(group)
    group.heartbeat("c", epoch=0)
    assert "group_at_rest" not in events(new(group))
    group.heartbeat("a", epoch=2, owned=[0, 1])
    group.heartbeat("a", epoch=2, owned=[0])
    assert "group_at_rest" not in events(new(group))
    group.heartbeat("c", epoch=3)
    assert find(new(group), "group_at_rest")["epoch"] == "3"

    group.leave("c")
    assert "group_at_rest" not in events(new(group))
    group.settle()
    assert find(new(group), "group_at_rest")["epoch"] == "4"


def test_group_that_nobody_has_to_hear_of_is_at_rest_at_once() -> None:
    group = GroupDialogue({"t": 1})
    group.stable(a=[0])
    new(group)
    group.heartbeat("b", epoch=0)
    assert find(new(group), "group_at_rest")["epoch"] == "2"
    group.leave("b")
    group.leave("a")
    assert events(new(group))[-1] == "group_at_rest"


def test_offsets_that_are_deleted_are_one_entry(group: GroupDialogue) -> None:
    group.commit({0: 5, 1: 6})
    group.delete_offsets([0, 1])

    assert find(new(group), "offsets_forgotten") == {"partitions": "2"}


def test_classic_rebalance_from_the_first_join_to_rest(group: MixedDialogue) -> None:
    group.join(fresh="a-1")
    told = new(group)
    assert find(told, "rebalance_began")["trigger"] == "member joined"
    assert find(told, "generation_began") == {"generation": "1", "protocol": "range"}

    group.sync("a-1", 1, {"a-1": b"mine"})
    at_rest = find(new(group), "group_at_rest")
    assert (at_rest["state"], at_rest["generation"], at_rest["members"]) == ("Stable", "1", "1")


def test_static_member_that_goes_for_a_while_and_returns(group: GroupDialogue) -> None:
    group.heartbeat("a", epoch=0, instance_id="one")
    new(group)

    group.heartbeat("a", epoch=-2, instance_id="one")
    assert find(new(group), "member_away") == {"instance": "one", "held": "t-0 t-1"}
    group.heartbeat("b", epoch=0, instance_id="one")
    told = new(group)
    assert find(told, "member_removed") == {"instance": "one", "reason": "static member returned"}
    assert find(told, "assignment_changed")["gained"] == "t-0 t-1"


def test_static_member_of_a_classic_group_returns() -> None:
    group = MixedDialogue()
    group.join(fresh="a-1", instance_id="one")
    group.sync("a-1", 1, {"a-1": b"mine"})
    new(group)

    group.join(fresh="a-2", instance_id="one")

    told = new(group)
    assert find(told, "member_replaced") == {"instance": "one", "former": "a-1"}
    assert "rebalance_began" not in events(told)


def test_members_whose_group_changes_its_protocol_neither_come_nor_go() -> None:
    group = MixedDialogue({"t": 4})
    clients = group.classic_group(x=[0, 1], y=[2, 3])
    new(group)

    group.heartbeat("a", epoch=0)

    told = new(group)
    assert [entry.member_id for entry in told if entry.event == "member_kept"] == ["x", "y"]
    assert [entry.member_id for entry in told if entry.event == "member_joined"] == ["a"]
    held = [dict(entry.details).get("held") for entry in told if entry.event == "assignment_changed"]
    assert held == ["t-0 t-1", "t-2 t-3", None]

    group.settle_all(*clients.values())
    new(group)
    group.leave("a")

    told = new(group)
    assert [entry.member_id for entry in told if entry.event == "member_kept"] == ["x", "y"]
    assert [entry.member_id for entry in told if entry.event == "member_removed"] == ["a"]
    assert find(told, "group_converted") == {"to": "classic"}
    assert "group_at_rest" not in events(told)


def test_who_asks_for_the_wrong_kind_of_group_is_no_event() -> None:
    """Tools describe a group as one kind, and then as the other."""
    group = MixedDialogue()
    group.join(fresh="a-1")
    new(group)

    group.describe().is_refused(ErrorCode.GROUP_ID_NOT_FOUND)

    assert new(group) == []


def test_what_is_counted_has_a_name() -> None:
    group = GroupDialogue()
    group.heartbeat("a", epoch=0)
    command = ConsumerGroupHeartbeat(
        cause=CauseId(900),
        request=RequestToken(900),
        group_id="g",
        member_id="a",
        member_epoch=1,
        client_id="client-a",
        client_host="/127.0.0.1",
    )

    assert count_of(command, group.shard.handle(command, now_ms=group.now_ms)) == "heartbeats"


def test_assignor_of_the_users_own_is_told_of_when_it_is_asked_and_when_it_fails() -> None:
    """Who reads the history sees which assignor kept the group waiting, and why."""
    group = GroupDialogue({"t": 2}, group_consumer_assignors=("mine",), own_assignors=("mine",))
    group.heartbeat("a", epoch=0)
    order = find(new(group), "assignor_asked")
    assert order == {"assignor": "mine", "epoch": "2", "members": "1", "partitions": "2"}
    group.computed(error="ValueError: no idea")
    told = new(group)
    assert find(told, "TargetComputed") == {"outcome": "failed"}
    assert find(told, "assignor_failed") == {"assignor": "mine", "why": "ValueError: no idea", "failures": "1"}
    group.advance(ms=1_000)
    assert events(new(group)) == ["deadline_passed", "assignor_asked"]
    group.computed([0, 0])
    assert events(new(group)) == ["TargetComputed", "target_computed"]


def test_step_to_an_even_target_is_a_trigger_of_its_own() -> None:
    group = GroupDialogue({"t": 8}, group_assignor_max_moves=2)
    group.heartbeat("a", epoch=0)
    group.settle()
    group.heartbeat("b", epoch=0)
    group.settle()
    new(group)
    group.advance(ms=1_000)
    assert find(new(group), "epoch_bumped") == {"epoch": "3", "trigger": "next step to an even target"}


def test_changed_configs_are_told_with_what_they_are_now() -> None:
    group = GroupDialogue({"t": 2})
    group.alter_configs({"consumer.session.timeout.ms": "10000", "group.assignor.max.moves": "3"}).is_done()
    assert find(new(group), "configs_changed") == {
        "consumer.session.timeout.ms": "10000",
        "group.assignor.max.moves": "3",
    }
    group.alter_configs({"consumer.session.timeout.ms": None}).is_done()
    assert find(new(group), "configs_changed") == {"consumer.session.timeout.ms": "(default)"}
