"""Topics that are deleted, and made again, under what is committed and read of them."""

from __future__ import annotations

import pytest

from kohort.client.consumer.application_events import (
    AsynchronousCommitAsked,
    CallbackKind,
    CommitAsked,
    CommitEnded,
    PartitionsAssigned,
    Polled,
    Remade,
    Sought,
    Start,
)
from kohort.client.core.actions import Complete, Deliver, Fail
from kohort.client.records import OffsetAndMetadata
from kohort.errors import ErrorCode, FencedError, PartlyDoneError, UnknownTopicError
from kohort.ids import ZERO_TOPIC_ID, TopicPartition
from kohort.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from kohort.wire.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopics,
)
from support.dialogues.consumer_dialogue import ORDERS, ConsumerDialogue, batch, orders, read_commit
from support.dialogues.protocol_dialogue import MODES, at_rest, build

NEW = b"again".ljust(16, b".")
PAID = TopicPartition("paid", 0)
PAID_ID = b"paid".ljust(16, b".")
P0, P1 = orders(0, 1)


def build_reader(**options: object) -> ConsumerDialogue:
    """A consumer that reads orders-0 and paid-0 by its own choice."""
    consumer = ConsumerDialogue(**options)
    consumer.topics["paid"] = (PAID_ID, 1)
    consumer.take(PartitionsAssigned(starts={each: Start(fence=consumer.new_fence(), offset=0) for each in (P0, PAID)}))
    consumer.settle()
    return consumer


def commit(consumer: ConsumerDialogue, offsets: dict[TopicPartition, int], ticket: str = "commit") -> None:
    consumer.take(CommitAsked(offsets=offsets, ticket=ticket, deadline_ms=consumer.now_ms + 30_000))
    consumer.settle()


def answer_commit(
    consumer: ConsumerDialogue, codes: dict[TopicPartition, ErrorCode] | None = None, *, version: int = 10
) -> None:
    """Answer the open commit as a broker does by ids, or by names up to version 9; what is not named is stored."""
    request = consumer.expect(OffsetCommitRequest)
    topics = [
        OffsetCommitResponseTopic(
            name="" if version == 10 else topic.name,
            topic_id=topic.topic_id if version == 10 else ZERO_TOPIC_ID,
            partitions=[
                OffsetCommitResponsePartition(
                    partition_index=each.partition_index,
                    error_code=(codes or {}).get(TopicPartition(topic.name, each.partition_index), ErrorCode.NONE),
                )
                for each in topic.partitions
            ],
        )
        for topic in request.topics
    ]
    consumer.answer(request, OffsetCommitResponse(topics=topics), version=version)
    consumer.settle()


def error_of(consumer: ConsumerDialogue, ticket: str = "commit") -> Exception:
    ended = consumer.ended(ticket)
    assert isinstance(ended, Fail)
    return ended.error


def test_offsets_go_by_the_id_of_the_topic_that_was_read() -> None:
    """OffsetCommit 10; the name is there for brokers that know no better."""
    consumer = build_reader()
    commit(consumer, {P0: 5, PAID: 6})

    (send,) = consumer.find(OffsetCommitRequest)

    assert {(topic.name, topic.topic_id) for topic in send.request.topics} == {("orders", ORDERS), ("paid", PAID_ID)}  # type: ignore[attr-defined]
    assert send.max_version is None


def test_offset_without_an_id_goes_by_name_in_a_request_of_its_own() -> None:
    """One topic that was never seen does not take the ids from the others."""
    consumer = build_reader()
    never = TopicPartition("never", 0)
    commit(consumer, {never: 1, P0: 5})
    assert consumer.commits() == {P0: 5}
    answer_commit(consumer)

    (send,) = consumer.find(OffsetCommitRequest)

    assert (consumer.commits(), send.max_version) == ({never: 1}, 9)


def test_topic_that_was_never_there_is_an_error_after_a_moment() -> None:
    """It may be new, and known to the coordinator next; a misspelt one is not waited for until the call's end."""
    consumer = build_reader()
    commit(consumer, {TopicPartition("never", 0): 1})
    for _ in range(20):
        if consumer.find(OffsetCommitRequest):
            consumer.accept_commit(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        consumer.advance(100)

    error = error_of(consumer)

    assert isinstance(error, UnknownTopicError) and not error.was_deleted


def test_what_can_be_stored_is_stored_and_the_error_says_so() -> None:
    """One of two topics is gone."""
    consumer = build_reader()
    del consumer.topics["paid"]
    commit(consumer, {P0: 5, PAID: 6})
    answer_commit(consumer, {PAID: ErrorCode.UNKNOWN_TOPIC_ID})

    error = error_of(consumer)

    assert isinstance(error, PartlyDoneError)
    assert error.done == {P0: OffsetAndMetadata(5)}
    gone = error.failed[PAID]
    assert isinstance(gone, UnknownTopicError) and gone.was_deleted
    (line,) = [line for line in consumer.warnings() if "offsets of group" in line]
    assert line.startswith("offsets of group billing are dropped: topic paid was deleted")


def test_refusal_of_a_topic_that_is_there_waits_by_itself() -> None:
    """The coordinator has not heard of it yet: later commits of others pass, one of the same partition does not."""
    consumer = build_reader()
    commit(consumer, {P0: 5, PAID: 6}, "both")
    answer_commit(consumer, {PAID: ErrorCode.UNKNOWN_TOPIC_ID})
    commit(consumer, {PAID: 7}, "behind")
    commit(consumer, {P0: 8}, "beside")
    assert consumer.commits() == {P0: 8}
    answer_commit(consumer)
    assert isinstance(consumer.ended("beside"), Complete)
    consumer.advance(1_000)

    assert consumer.commits() == {PAID: 6}
    answer_commit(consumer)
    assert consumer.commits() == {PAID: 7}
    assert isinstance(consumer.ended("both"), Complete)


def test_error_of_the_whole_is_one_error() -> None:
    """The member was removed, whatever the partition."""
    consumer = ConsumerDialogue()
    consumer.stable(0, 1)
    commit(consumer, {P0: 5, P1: 6})
    consumer.accept_commit(ErrorCode.UNKNOWN_MEMBER_ID)

    assert isinstance(error_of(consumer), FencedError)


@pytest.mark.parametrize(
    ("version", "code"), [(10, ErrorCode.UNKNOWN_TOPIC_ID), (9, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)]
)
def test_offset_is_not_tried_at_the_successor_of_its_topic(version: int, code: ErrorCode) -> None:
    """The broker that refuses it is asked again only while nothing says that the topic is gone; by names, too."""
    consumer = build_reader()
    commit(consumer, {PAID: 6})
    consumer.topics["paid"] = (NEW, 1)
    answer_commit(consumer, {PAID: code}, version=version)
    consumer.advance(5_000)

    assert isinstance(error_of(consumer), UnknownTopicError)
    assert len(consumer.sent(OffsetCommitRequest)) == 1


def test_automatic_commit_of_a_topic_that_is_gone_is_one_line_and_goes_on() -> None:
    """What is read of others is committed in time."""
    consumer = build_reader(auto_commit_interval_ms=1_000)
    del consumer.topics["paid"]
    for round_ in range(1, 4):
        consumer.take(Polled(consumed={P0: round_, PAID: round_}))
        consumer.advance(1_000)
        answer_commit(consumer, {PAID: ErrorCode.UNKNOWN_TOPIC_ID})

    assert [read_commit(send.request).get(P0) for send in consumer.sent(OffsetCommitRequest)] == [1, 2, 3]  # type: ignore[arg-type]
    assert len([line for line in consumer.warnings() if "group billing" in line]) == 1


@pytest.mark.parametrize("mode", MODES)
def test_nothing_read_since_the_last_commit_means_no_commit_at_a_revocation(mode: str) -> None:
    """The application says what it has done of what it gives up; it is committed already."""
    member = build(mode, auto_commit_interval_ms=1_000)
    at_rest(member, 0, 1)
    member.poll(p0=3)
    member.advance(1_000)
    member.accept_commit()
    member.close()
    member.acknowledge(CallbackKind.REVOKED, 0, 1, consumed={0: 3})

    assert member.find(OffsetCommitRequest) == []
    assert len(member.sent(OffsetCommitRequest)) == 1


def test_callbacks_of_asynchronous_commits_keep_their_order() -> None:
    """One that ends later is not overtaken by one behind it."""
    consumer = build_reader()
    for offsets, name in (({PAID: 6}, "first"), ({P0: 5}, "second")):
        consumer.take(AsynchronousCommitAsked(offsets=offsets, callback=name, deadline_ms=consumer.now_ms + 30_000))
        consumer.settle()
    answer_commit(consumer, {PAID: ErrorCode.UNKNOWN_TOPIC_ID})
    answer_commit(consumer)
    assert ended(consumer) == []
    consumer.advance(1_000)
    answer_commit(consumer)

    assert ended(consumer) == ["first", "second"]


def ended(consumer: ConsumerDialogue) -> list[object]:
    items = [each.item for each in consumer.actions if isinstance(each, Deliver)]
    return [item.callback for item in items if isinstance(item, CommitEnded)]


# -- reading ----------------------------------------------------------------------------------------------------------


def test_reading_begins_anew_in_a_topic_that_was_made_again() -> None:
    """Where the group or the option says; what was chosen for the old one counts no more."""
    consumer = build_reader()
    consumer.serve({0: batch(0, 10)})
    assert consumer.fetching() == {P0: 10, PAID: 0}
    consumer.topics["orders"] = (NEW, 1)
    consumer.serve(errors={0: ErrorCode.UNKNOWN_TOPIC_ID})
    consumer.advance(1_000)

    assert consumer.fetching() == {P0: 0, PAID: 0}
    (asked,) = consumer.sent(OffsetFetchRequest)
    assert [topic.topic_id for topic in asked.request.groups[0].topics or ()] == [NEW]  # type: ignore[attr-defined]
    assert [line for line in consumer.warnings() if "made again" in line] == [
        "topic orders was deleted and made again: it is read anew"
    ]


def test_seek_that_did_not_know_of_the_new_topic_does_not_lead_into_it() -> None:
    """The application's side hears of it once more, under the fence of that seek."""
    consumer = build_reader()
    fence, told = consumer.new_fence(), list[Remade]()
    consumer.on_remade = told.append  # type: ignore[method-assign]
    consumer.topics["orders"] = (NEW, 1)
    consumer.serve(errors={0: ErrorCode.UNKNOWN_TOPIC_ID})
    consumer.advance(1_000)
    consumer.take(Sought(partition=P0, fence=fence, offset=7))

    assert [each.fence for each in told][1:] == [fence]
    assert P0 not in consumer.fetching()


def test_member_waits_for_the_group_to_give_it_the_new_topic() -> None:
    """KIP-848: partitions are given by the topic's id; nothing is read of another one meanwhile."""
    member = ConsumerDialogue()
    member.stable(0)
    member.topics["orders"] = (NEW, 1)
    member.serve(errors={0: ErrorCode.UNKNOWN_TOPIC_ID})
    member.advance(1_000)
    assert member.fetching() == {}
    member.advance(5_000)
    member.reply(epoch=2, assigned={NEW: [0]})
    member.acknowledge(CallbackKind.REVOKED, 0, consumed={0: 10})
    member.reply(epoch=2, assigned={NEW: [0]})
    member.acknowledge(CallbackKind.ASSIGNED, 0)

    assert member.fetching() == {P0: 0}
    assert member.sent(OffsetCommitRequest) == []


def test_committed_offset_of_a_topic_that_the_coordinator_does_not_know_yet_holds_up_no_other() -> None:
    """OffsetFetch 10: UNKNOWN_TOPIC_ID stands at the partition."""
    consumer = ConsumerDialogue()
    consumer.topics["paid"] = (PAID_ID, 1)
    consumer.by_hand.add(OffsetFetchRequest)
    consumer.take(PartitionsAssigned(starts={each: Start(fence=consumer.new_fence()) for each in (P0, PAID)}))
    consumer.settle()
    answer_fetch(consumer, {P0: 7, PAID: ErrorCode.UNKNOWN_TOPIC_ID})
    assert consumer.fetching() == {P0: 7}
    consumer.advance(1_000)
    answer_fetch(consumer, {PAID: 9})

    assert consumer.fetching() == {P0: 7, PAID: 9}


def answer_fetch(consumer: ConsumerDialogue, found: dict[TopicPartition, int | ErrorCode]) -> None:
    request = consumer.expect(OffsetFetchRequest)
    topics = []
    for topic in request.groups[0].topics or ():
        rows = []
        for index in topic.partition_indexes:
            what = found[TopicPartition(topic.name, index)]
            is_error = isinstance(what, ErrorCode)
            rows.append(
                OffsetFetchResponsePartitions(
                    partition_index=index, committed_offset=-1 if is_error else what, error_code=what if is_error else 0
                )
            )
        topics.append(OffsetFetchResponseTopics(topic_id=topic.topic_id, partitions=rows))
    assert len(found) == sum(len(topic.partitions) for topic in topics)
    group = OffsetFetchResponseGroup(group_id="billing", topics=topics)
    consumer.answer(request, OffsetFetchResponse(groups=[group]), version=10)
    consumer.settle()
