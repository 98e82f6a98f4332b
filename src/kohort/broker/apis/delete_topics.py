"""DeleteTopics (key 20).

Versions 1 to 6 are served. Version 5: messages with the errors. Version 6: topics may be named by id (KIP-516).
"""

from __future__ import annotations

from collections import Counter

from kohort.broker.context import BrokerContext
from kohort.broker.request import Request
from kohort.errors import ErrorCode, Refused, StorageError
from kohort.ids import ZERO_TOPIC_ID
from kohort.wire.messages.delete_topics import DeletableTopicResult, DeleteTopicsRequest, DeleteTopicsResponse


def handle(context: BrokerContext, request: Request, message: DeleteTopicsRequest) -> DeleteTopicsResponse:
    """Delete each topic on its own; one that is refused does not hold up the others."""
    if request.version >= 6:
        asked = [(topic.name, topic.topic_id) for topic in message.topics]
    else:
        asked = [(name, ZERO_TOPIC_ID) for name in message.topic_names]
    counts = Counter(asked)
    with context.cluster.as_one_change():
        rows = [_answer(context, *each, is_only=counts[each] == 1) for each in asked]
    return DeleteTopicsResponse(responses=rows)


def _answer(context: BrokerContext, name: str | None, topic_id: bytes, *, is_only: bool) -> DeletableTopicResult:
    cluster = context.cluster
    if not is_only:
        return _refuse(name, topic_id, ErrorCode.INVALID_REQUEST, "the topic is named twice in the request")
    if (name is None) == (topic_id == ZERO_TOPIC_ID):
        return _refuse(name, topic_id, ErrorCode.INVALID_REQUEST, "a topic is named either by name or by id")
    topic, missing = cluster.find(name or "", topic_id)
    if topic is None:
        return _refuse(name, topic_id, missing, "there is no such topic")
    topic_id = topic.topic_id
    try:
        cluster.delete_topic(topic.name)
    except Refused as refused:
        return _refuse(topic.name, topic_id, refused.code, str(refused))
    except StorageError as why:
        return _refuse(topic.name, topic_id, ErrorCode.KAFKA_STORAGE_ERROR, str(why))
    return DeletableTopicResult(name=topic.name, topic_id=topic_id, error_code=ErrorCode.NONE)


def _refuse(name: str | None, topic_id: bytes, code: ErrorCode, text: str) -> DeletableTopicResult:
    return DeletableTopicResult(name=name, topic_id=topic_id, error_code=code, error_message=text)
