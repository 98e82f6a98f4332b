"""What groups answer, request by request, beside what Apache Kafka 4.3 answers: the same, or for a reason."""

from __future__ import annotations

import pytest

import kohort
from support.scenarios.group_scenarios import CONFIG, Answers, answers_of, answers_of_kafka, recorded_answers

_REJOIN = "a live member is never told GROUP_ID_NOT_FOUND or that nothing is committed, but to join again"
_ASSIGNOR = "KAFKA-20434: another choice of the assignor raises the epoch; what follows counts one more"
_TARGET = "KAFKA-20442: the target of an empty group is as new as its epoch"
_MOVED = "after a move up there is a target of the coordinator's own, whatever the leader had said: one epoch more"
_NAME = "KIP-345: who lost its name is told that, whatever else it says wrong"
_FULL = "a static member that comes back into a full group takes no place that was not its own"
_TYPE = "what is wrong with the group is said, and not that there is none"
_EPOCH = "an epoch that gives a member nothing new is neither written nor told"

#: Scenario -> step -> why it is answered otherwise here.
DIFFERENCES: dict[str, dict[str, str]] = {
    "form": {"epoch 1 of nobody in no group": _REJOIN, "leave of nobody in no group": _REJOIN},
    "members": {
        "previous epoch with what it has": "an answer that was lost is given again as a whole",
        "assignor of its choice": _ASSIGNOR,
        "gave up everything": _ASSIGNOR,
        "the other takes all": _ASSIGNOR,
        "empty": _TARGET,
        "epochs go on": _ASSIGNOR,
        "joins again under its id": _EPOCH,
        "the other's epoch": _EPOCH,
    },
    "odd": {"owned partitions that are not there": _EPOCH},
    "statics": {"former id commits": _NAME, "empty": _TARGET},
    "patterns": {"empty pattern alone": "a member that joins raises the epoch, whatever it subscribes to"},
    "classic": {
        "preparing": "what a member owns while others join is known to nobody but itself",
        "commit before the sync": "K848: a current member's commit is not stuck behind the barrier",
    },
    "classic_statics": {
        "empty instance id": "null means that there is none; an empty name would be one for all",
        "comes back in version 8": "a leader leads on, so that somebody looks for new topics; it assigns in vain",
    },
    "offsets": {
        "fetch of a member from no group": _REJOIN,
        "commit of a member to no group": _REJOIN,
        "fetched by a stranger": _REJOIN,
    },
    "full": {"fifth by a name in use": _FULL, "who comes back": _FULL},
    "downward": {
        "described": "the target follows a change at once, and not with the next heartbeat",
    },
    "upward": {
        "consumer joins": _MOVED,
        "classic member rejoins": _MOVED,
        "consumer gets its part": _MOVED,
        "both kinds": _MOVED,
        "join that is no subscription": "bytes of a client are no fault of the server",
        "group of another type": _TYPE,
        "leave of a consumer in a classic group": _REJOIN,
        "heartbeat of a consumer in a classic group": _REJOIN,
    },
}


@pytest.fixture(scope="module")
def ours() -> Answers:
    with kohort.Broker(config={**CONFIG, "group.consumer.assignment.window.ms": 0}) as broker:
        return answers_of(broker.bootstrap_servers)


def test_every_answer_is_kafkas_but_for_those_with_a_reason(ours: Answers) -> None:
    """Issue 4: Kafka's codes one for one."""
    kafkas = recorded_answers()
    assert ours.keys() == kafkas.keys()
    for scenario, steps in kafkas.items():
        assert ours[scenario].keys() == steps.keys()
        reasons = DIFFERENCES.get(scenario, {})
        differ = {
            step: (answer, ours[scenario][step]) for step, answer in steps.items() if answer != ours[scenario][step]
        }
        unexplained = {step: answers for step, answers in differ.items() if step not in reasons}
        assert not unexplained, f"{scenario}: (Kafka's answer, ours) {unexplained}"
        assert reasons.keys() == differ.keys(), f"{scenario}: a difference that is there no more"


def test_no_live_member_is_told_that_there_is_no_group(ours: Answers) -> None:
    """GROUP_ID_NOT_FOUND ends Java's and librdkafka's consumers; only those who describe or delete are told so."""
    asked = {step for steps in ours.values() for step, answer in steps.items() if "GROUP_ID_NOT_FOUND" in str(answer)}
    assert asked == {
        "nothing was made",
        "of another group's kind",
        "not empty",
        "gone",
        "described as the other kind",
        "deleted",
        "simple group described as the other kind",
        "offsets of no group deleted",
        "no longer described",
        "not a classic group",
        "classic again",
        "of another kind now",
        "delete of a group without a name",
        "description of a classic group without a name",
    }


@pytest.mark.interop
@pytest.mark.apache
def test_what_is_recorded_is_what_kafka_answers() -> None:
    assert answers_of_kafka() == recorded_answers()
