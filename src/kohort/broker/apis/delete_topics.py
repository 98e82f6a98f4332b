"""DeleteTopics (key 20).

Version 5: messages with the errors. Version 6: topics may be named by id (KIP-516).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

from kohort.broker.access.rights import Rights
from kohort.broker.chunked_responses import Gather
from kohort.broker.context import BrokerContext, Request
from kohort.broker.topics.topic_operations import Outcome, Wanted, ask_within, code_of
from kohort.errors import ErrorCode
from kohort.ids import ZERO_TOPIC_ID
from kohort.security.access_control import AclOperation, ResourceType
from kohort.storage.topics import Topic
from kohort.wire.messages import delete_topics as wire


def handle(
    context: BrokerContext, request: Request, message: wire.DeleteTopicsRequest
) -> wire.DeleteTopicsResponse | None:
    """Delete each topic independently; a refused one does not hold up the others."""
    if request.version >= 6:
        asked = [(topic.name, topic.topic_id) for topic in message.topics]
    else:
        asked = [(name, ZERO_TOPIC_ID) for name in message.topic_names]
    if not asked:
        return wire.DeleteTopicsResponse(responses=[])
    # The right to delete the cluster is that to delete each topic, as for Apache Kafka's controller.
    is_free = request.rights.allows(AclOperation.DELETE, ResourceType.CLUSTER)
    counts = Counter(asked)
    once = list(counts)

    def complete(rows: list[wire.DeletableTopicResult]) -> None:
        if request.is_open:
            request.answer(wire.DeleteTopicsResponse(responses=rows))

    whole = Gather(len(once), complete)
    wanted = []
    for index, each in enumerate(once):
        answer = whole.slot(index)
        found = _find(context, *each, is_only=counts[each] == 1)
        if not is_free and counts[each] == 1:
            found = _denied(request.rights, *each, found) or found
        if isinstance(found, Topic):
            wanted.append(_deletion(context, request, found, answer))
        else:
            answer(found)
    work, on_refusal = context.cluster.work, context.disk_full.refused
    ask_within(context.loop, work, wanted, timeout_ms=message.timeout_ms, on_refusal=on_refusal)
    return None


def _find(
    context: BrokerContext, name: str | None, topic_id: bytes, *, is_only: bool
) -> Topic | wire.DeletableTopicResult:
    """Return the topic that the request names, or the refusal if there is none."""
    if not is_only:
        return _refuse(name, topic_id, ErrorCode.INVALID_REQUEST, "the topic is named twice in the request")
    if (name is None) == (topic_id == ZERO_TOPIC_ID):
        return _refuse(name, topic_id, ErrorCode.INVALID_REQUEST, "a topic is named either by name or by id")
    topic, missing = context.cluster.find(name or "", topic_id)
    return topic or _refuse(name, topic_id, missing, "there is no such topic")


def _denied(
    rights: Rights, name: str | None, topic_id: bytes, found: Topic | wire.DeletableTopicResult
) -> wire.DeletableTopicResult | None:
    """Return the refusal of a topic that the client may not delete; `None`: it may, or the request is at fault."""
    if (name is None) == (topic_id == ZERO_TOPIC_ID):
        return None
    kind = ResourceType.TOPIC
    if isinstance(found, Topic):
        may_describe = rights.allows(AclOperation.DESCRIBE, kind, found.name)
        # A name has to be describable, too: else its refusal would tell whether there is such a topic.
        if rights.allows(AclOperation.DELETE, kind, found.name) and (may_describe or name is None):
            return None
        # By its id, a topic that may not be described keeps its name to itself.
        name = found.name if name is None and may_describe else name
    elif name is None or rights.allows(AclOperation.DESCRIBE, kind, name):
        # That there is none is no secret: an id means nothing, and the name may be described.
        return None
    return _refuse(name, topic_id, ErrorCode.TOPIC_AUTHORIZATION_FAILED, "Topic authorization failed.")


def _deletion(
    context: BrokerContext, request: Request, topic: Topic, answer: Callable[[wire.DeletableTopicResult], None]
) -> Wanted:
    def check() -> None:
        request.take_mutations(len(topic.partitions))

    def done(why: Outcome) -> None:
        if why is None:
            answer(wire.DeletableTopicResult(name=topic.name, topic_id=topic.topic_id, error_code=ErrorCode.NONE))
        else:
            answer(_refuse(topic.name, topic.topic_id, code_of(why), str(why)))

    return context.cluster.deletion(topic, check, done)


def _refuse(name: str | None, topic_id: bytes, code: ErrorCode, text: str) -> wire.DeletableTopicResult:
    return wire.DeletableTopicResult(name=name, topic_id=topic_id, error_code=code, error_message=text)
