"""Static members of a classic group: an instance comes back, and as few as can be notice."""

from __future__ import annotations

import pytest

from kohort.coordinator.classic.subscriptions import leads_unaware
from kohort.coordinator.commands import LeavingMember
from kohort.coordinator.records.types import ClassicGroupStored
from kohort.coordinator.topics import TopicFacts, TopicImage
from kohort.errors import ErrorCode
from kohort.ids import TopicId
from kohort.wire.embedded import encode_assignment, encode_subscription

#: What the dialogue's members ask for unless they are told otherwise.
SESSION_MS, REBALANCE_MS = 10_000, 60_000
NOBODY = ErrorCode.UNKNOWN_MEMBER_ID
FENCED = ErrorCode.FENCED_INSTANCE_ID


def wants(*topics: str, name: str = "range", **more: object) -> tuple[tuple[str, bytes], ...]:
    """The protocols of a member that subscribes to these topics."""
    return ((name, encode_subscription(topics, **more)),)


@pytest.fixture
def stable(dialogue):
    """A Stable group at generation 2: "l-1" of instance "l" leads, "f-1" of instance "f" follows."""
    dialogue.join(fresh="l-1", instance_id="l", protocols=wants("t"))
    dialogue.join(fresh="f-1", instance_id="f", protocols=wants("t"))
    dialogue.join("l-1", instance_id="l", protocols=wants("t"))
    dialogue.sync("f-1", 2, instance_id="f")
    dialogue.sync("l-1", 2, {"l-1": b"L", "f-1": b"F"}, instance_id="l")
    assert dialogue.state == "Stable"
    return dialogue


def test_follower_comes_back_without_a_rebalance(stable):
    """KIP-345: the generation goes on, the assignment stays with the instance, the other member hears nothing."""
    written = len(stable.log)

    reply = stable.joined(
        stable.join(fresh="f-2", instance_id="f", protocols=wants("t"), requires_known_member_id=True)
    )

    assert (reply.generation_id, reply.member_id, reply.leader, reply.members) == (2, "f-2", "l-1", ())
    assert not reply.skip_assignment
    assert stable.state == "Stable"
    assert stable.heartbeat("l-1", 2, instance_id="l") == ErrorCode.NONE
    assert stable.assignment(stable.sync("f-2", 2, instance_id="f")) == b"F"
    assert stable.members == ["l-1", "f-2"]
    (stored,) = stable.log[written:]
    assert isinstance(stored, ClassicGroupStored)
    assert [(m.member_id, m.instance_id, m.assignment) for m in stored.members] == [
        ("l-1", "l", b"L"),
        ("f-2", "f", b"F"),
    ]


def test_leader_that_comes_back_has_missed_a_change_only_of_topics_that_are_known(dialogue):
    """A coordinator that has just begun knows no topics yet, and begins no rebalance because of that."""

    def known(partition_count):
        return TopicImage.of([TopicFacts(name="t", topic_id=TopicId(1), partition_count=partition_count)], version=1)

    dialogue.join(fresh="l-1", instance_id="l", protocols=wants("t"))
    dialogue.sync("l-1", 1, {"l-1": encode_assignment({"t": (0, 1)})}, instance_id="l")
    assert dialogue.state == "Stable"
    for image, is_missed in ((None, False), (TopicImage(), False), (known(2), False), (known(3), True)):
        assert leads_unaware(dialogue.group, "l-1", image) is is_missed
    assert not leads_unaware(dialogue.group, "f-1", known(3))


def test_new_id_of_an_instance_survives_a_restart(stable):
    stable.join(fresh="f-2", instance_id="f", protocols=wants("t"))
    stable.restart()
    assert stable.heartbeat("f-2", 2, instance_id="f") == ErrorCode.NONE
    assert stable.heartbeat("f-1", 2, instance_id="f") == FENCED


def test_leader_that_understands_is_told_to_lead_and_to_assign_nothing(stable):
    """KIP-814: JoinGroup 9 gets the members and SkipAssignment."""
    join = stable.join(fresh="l-2", instance_id="l", protocols=wants("t"), supports_skip_assignment=True)

    reply = stable.joined(join)
    assert (reply.generation_id, reply.member_id, reply.leader, reply.skip_assignment) == (2, "l-2", "l-2", True)
    assert [(m.member_id, m.instance_id) for m in reply.members] == [("l-2", "l"), ("f-1", "f")]
    assert stable.assignment(stable.sync("l-2", 2, {}, instance_id="l")) == b"L", "it assigns nothing and has its part"
    assert stable.heartbeat("f-1", 2, instance_id="f") == ErrorCode.NONE


def test_leader_that_does_not_understand_assigns_in_vain(stable):
    """Kafka tells it that its former id leads; then nobody looks whether topics change."""
    reply = stable.joined(stable.join(fresh="l-2", instance_id="l", protocols=wants("t")))

    assert (reply.leader, len(reply.members), reply.skip_assignment) == ("l-2", 2, False)
    assert stable.assignment(stable.sync("l-2", 2, {"l-2": b"F", "f-1": b"L"}, instance_id="l")) == b"L"
    assert stable.assignment(stable.sync("f-1", 2, {}, instance_id="f")) == b"F", "nobody asked for what it says"
    stable.join("l-2", instance_id="l", protocols=wants("t"))
    assert stable.state == "PreparingRebalance"


def test_follower_that_understands_skips_nothing(stable):
    join = stable.join(fresh="f-2", instance_id="f", protocols=wants("t"), supports_skip_assignment=True)
    reply = stable.joined(join)
    assert (reply.leader, reply.members, reply.skip_assignment) == ("l-1", (), False)


def test_what_a_member_owned_is_no_change_of_what_it_wants(stable):
    """A cooperative member says in its metadata what it owns, and a new process owns nothing."""
    owning = wants("t", owned_partitions={"t": (1,)}, generation_id=2)
    reply = stable.joined(stable.join(fresh="f-2", instance_id="f", protocols=owning))
    assert reply.generation_id == 2


def test_another_subscription_rebalances(stable):
    """KAFKA-12759: Kafka looks at the protocol's name alone, and the new topic stays without an owner."""
    join = stable.join(fresh="f-2", instance_id="f", protocols=wants("t", "u"))

    assert stable.is_parked(join)
    assert stable.heartbeat("l-1", 2, instance_id="l") == ErrorCode.REBALANCE_IN_PROGRESS
    leader = stable.joined(stable.join("l-1", instance_id="l", protocols=wants("t")))
    assert [m.metadata for m in leader.members] == [wants("t")[0][1], wants("t", "u")[0][1]]
    assert stable.joined(join).generation_id == 3


def test_another_protocol_rebalances(dialogue):
    both = (("range", b"t"), ("sticky", b"t"))
    dialogue.join(fresh="a", protocols=both)
    dialogue.join(fresh="i-1", instance_id="i", protocols=both)
    dialogue.join("a", protocols=both)
    for member_id in ("i-1", "a"):
        dialogue.sync(member_id, 2, {})

    join = dialogue.join(fresh="i-2", instance_id="i", protocols=(("sticky", b"t"),))

    assert dialogue.is_parked(join)
    assert dialogue.joined(dialogue.join("a", protocols=both)).protocol_name == "sticky"
    assert dialogue.joined(join).protocol_name == "sticky"


def test_sole_instance_may_come_back_with_another_protocol(dialogue):
    """Nobody else has to understand it; Kafka counts the member that it replaces, and refuses it."""
    dialogue.join(fresh="i-1", instance_id="i")
    dialogue.sync("i-1", 1, {})
    reply = dialogue.joined(dialogue.join(fresh="i-2", instance_id="i", protocols=(("sticky", b"t"),)))
    assert (reply.generation_id, reply.protocol_name) == (2, "sticky")


def test_metadata_of_other_protocol_types_is_not_read(dialogue):
    dialogue.join(fresh="i-1", instance_id="i", protocol_type="connect", protocols=(("v1", b"url a"),))
    dialogue.sync("i-1", 1, {})
    join = dialogue.join(fresh="i-2", instance_id="i", protocol_type="connect", protocols=(("v1", b"url b"),))
    assert dialogue.joined(join).generation_id == 1


def test_instance_that_comes_back_while_the_others_sync_starts_again(stable):
    """KAFKA-9801: the leader may be assigning to the former id at this moment."""
    stable.join("l-1", instance_id="l", protocols=wants("t"))
    stable.join("f-1", instance_id="f", protocols=wants("t"))
    waiting = stable.sync("f-1", 3, instance_id="f")

    join = stable.join(fresh="f-2", instance_id="f", protocols=wants("t"))

    assert stable.error(waiting) == FENCED
    assert stable.is_parked(join)
    assert stable.error(stable.sync("l-1", 3, {"f-1": b"F"}, instance_id="l")) == ErrorCode.REBALANCE_IN_PROGRESS
    stable.join("l-1", instance_id="l", protocols=wants("t"))
    assert stable.joined(join).generation_id == 4


def test_parked_join_of_a_replaced_instance_is_fenced(dialogue):
    dialogue.stable("a")
    older = dialogue.join(fresh="i-1", instance_id="i")

    younger = dialogue.join(fresh="i-2", instance_id="i")

    assert dialogue.error(older) == FENCED
    leader = dialogue.joined(dialogue.join("a"))
    assert [(m.member_id, m.instance_id) for m in leader.members] == [("a", None), ("i-2", "i")]
    assert dialogue.joined(younger).leader == "a"


def test_instance_that_comes_back_during_the_initial_delay_waits_with_the_others(make_dialogue):
    dialogue = make_dialogue(group_initial_rebalance_delay_ms=3_000)
    older = dialogue.join(fresh="i-1", instance_id="i")
    younger = dialogue.join(fresh="i-2", instance_id="i")
    assert dialogue.error(older) == FENCED
    dialogue.advance(3_000)
    assert dialogue.joined(younger).leader == "i-2"


def test_former_id_is_fenced_from_everything(stable):
    stable.join(fresh="f-2", instance_id="f", protocols=wants("t"))

    assert stable.error(stable.join("f-1", instance_id="f", protocols=wants("t"))) == FENCED
    assert stable.error(stable.sync("f-1", 2, instance_id="f")) == FENCED
    assert stable.heartbeat("f-1", 2, instance_id="f") == FENCED
    assert stable.commit("f-1", 2, instance_id="f") == FENCED
    assert stable.leave(LeavingMember(member_id="f-1", instance_id="f")) == [FENCED]
    assert stable.members == ["l-1", "f-2"]


def test_members_id_with_anothers_instance_is_fenced_and_with_an_unknown_one_unknown(stable):
    for instance_id, code in (("l", FENCED), ("nobody's", NOBODY)):
        assert stable.error(stable.join("f-1", instance_id=instance_id, protocols=wants("t"))) == code
        assert stable.error(stable.sync("f-1", 2, instance_id=instance_id)) == code
        assert stable.heartbeat("f-1", 2, instance_id=instance_id) == code
        assert stable.commit("f-1", 2, instance_id=instance_id) == code
        assert stable.leave(LeavingMember(member_id="f-1", instance_id=instance_id)) == [code]


def test_silent_instance_keeps_its_place_while_the_others_rebalance(dialogue):
    """On the join phase's end only dynamic members are given up; the session is what gives a static one up."""
    long = 10 * REBALANCE_MS
    dialogue.join(fresh="l")
    dialogue.join(fresh="f-1", instance_id="f", session_timeout_ms=long)
    dialogue.join("l")
    dialogue.sync("f-1", 2, instance_id="f")
    dialogue.sync("l", 2, {})
    join = dialogue.join("l")
    dialogue.advance(REBALANCE_MS)

    assert dialogue.joined(join).generation_id == 3
    assert dialogue.members == ["l", "f-1"]
    dialogue.sync("l", 3, {"l": b"L", "f-1": b"F"})
    assert dialogue.deadline("sync") is None, "who did not join is not waited for: Kafka gives it up here"
    assert dialogue.heartbeat("f-1", 2, instance_id="f") == ErrorCode.ILLEGAL_GENERATION

    back = dialogue.joined(dialogue.join(fresh="f-2", instance_id="f", session_timeout_ms=long))
    assert back.generation_id == 3
    assert dialogue.assignment(dialogue.sync("f-2", 3, instance_id="f")) == b"F"


def test_instance_that_does_not_come_back_is_given_up_when_its_session_ends(stable):
    """KIP-345: one rebalance, at the end of its session."""
    for _ in range(4):
        stable.advance(SESSION_MS // 5)
        assert stable.heartbeat("l-1", 2, instance_id="l") == ErrorCode.NONE
    stable.advance(SESSION_MS // 5)

    assert stable.heartbeat("l-1", 2, instance_id="l") == ErrorCode.REBALANCE_IN_PROGRESS
    assert stable.members == ["l-1"]


def test_leader_that_does_not_rejoin_hands_on_the_lead(dialogue):
    dialogue.join(fresh="i-1", instance_id="i", session_timeout_ms=10 * REBALANCE_MS)
    dialogue.sync("i-1", 1, {})

    join = dialogue.join(fresh="a")
    dialogue.advance(REBALANCE_MS)

    reply = dialogue.joined(join)
    assert (reply.leader, [m.member_id for m in reply.members]) == ("a", ["i-1", "a"])


def test_join_phase_goes_on_while_only_silent_instances_are_left(dialogue):
    """If nobody has rejoined there is nobody to lead; the phase is as long again."""
    dialogue.join(fresh="i-1", instance_id="i", session_timeout_ms=10 * REBALANCE_MS)
    dialogue.sync("i-1", 1, {})
    dialogue.join(fresh="a")
    dialogue.leave("a")
    dialogue.advance(2 * REBALANCE_MS)
    assert (dialogue.state, dialogue.group.generation) == ("PreparingRebalance", 1)
    assert dialogue.deadline("join") is not None

    assert dialogue.joined(dialogue.join(fresh="i-2", instance_id="i")).generation_id == 2


def test_administrator_removes_an_instance_by_its_name_alone(stable):
    """KIP-345: the member id is empty; the member learns of it, and the others share its part."""
    assert stable.leave(LeavingMember(member_id="", instance_id="f")) == [ErrorCode.NONE]

    assert stable.members == ["l-1"]
    assert stable.heartbeat("f-1", 2, instance_id="f") == NOBODY
    assert stable.heartbeat("l-1", 2, instance_id="l") == ErrorCode.REBALANCE_IN_PROGRESS


def test_batch_has_an_outcome_for_each_and_one_rebalance_for_all(stable):
    outcomes = stable.leave(
        LeavingMember(member_id="", instance_id="nobody's"),
        LeavingMember(member_id="f-1", instance_id="l"),
        LeavingMember(member_id="f-1", instance_id="f"),
        LeavingMember(member_id="f-1", instance_id="f"),
        LeavingMember(member_id="stranger"),
        LeavingMember(member_id=""),
    )
    assert outcomes == [NOBODY, FENCED, ErrorCode.NONE, NOBODY, NOBODY, NOBODY]
    assert stable.members == ["l-1"]


def test_instance_that_is_asked_for_again_before_it_synced_is_waited_for_under_its_new_id(stable):
    """Kafka goes on waiting for the id that is gone, and rebalances when the wait is over."""
    stable.join("l-1", instance_id="l", protocols=wants("t"))
    stable.join("f-1", instance_id="f", protocols=wants("t"))
    stable.sync("l-1", 3, {"l-1": b"L", "f-1": b"F"}, instance_id="l")
    assert stable.state == "Stable"
    stable.join(fresh="f-2", instance_id="f", protocols=wants("t"))
    assert stable.deadline("sync") is not None

    assert stable.assignment(stable.sync("f-2", 3, instance_id="f")) == b"F"

    assert stable.deadline("sync") is None


def test_session_of_the_former_id_means_nothing(stable):
    stable.advance(SESSION_MS - 1)
    stable.heartbeat("l-1", 2, instance_id="l")
    stable.join(fresh="f-2", instance_id="f", protocols=wants("t"))
    assert stable.deadline("session", "f-1") is None
    assert stable.deadline("session", "f-2") == SESSION_MS
    stable.advance(SESSION_MS - 1)
    assert stable.state == "Stable"


def test_too_much_metadata_leaves_the_instance_with_who_has_it(stable):
    huge = (("range", bytes(1 << 20)),)
    assert stable.error(stable.join(fresh="f-2", instance_id="f", protocols=huge)) == ErrorCode.INVALID_REQUEST
    assert stable.heartbeat("f-1", 2, instance_id="f") == ErrorCode.NONE


def test_bytes_that_nobody_can_read_are_no_reason_to_disturb_the_group(dialogue):
    dialogue.join(fresh="i-1", instance_id="i")
    dialogue.sync("i-1", 1, {})
    assert dialogue.joined(dialogue.join(fresh="i-2", instance_id="i", protocols=(("range", b"?"),))).generation_id == 1
