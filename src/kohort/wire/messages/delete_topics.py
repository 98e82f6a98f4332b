"""DeleteTopics (key 20), KIP-4.

Version 1, the oldest since Kafka 4.0, has the throttle time. Version 2: throttled after the answer (KIP-219).
Version 3: TOPIC_DELETION_DISABLED (KIP-322). Version 4: flexible (KIP-482). Version 5: error messages and
THROTTLING_QUOTA_EXCEEDED (KIP-599). Version 6: topics by name or id in a list of structures; the plain list of names
is gone from here on (KIP-516).
"""

from kohort.wire.schema import INT16, INT32, STRING, UUID, Message, array, field, message


class DeleteTopicState(Message):
    """A topic to delete: by name, or by id where the name is None."""

    name: str | None = field(STRING, nullable=0, default=None)
    topic_id: bytes = field(UUID)


@message(key=20, kind="request", versions="1-6", flexible="4+")
class DeleteTopicsRequest(Message):
    """Topics to delete: up to version 5 in `topic_names`, after it in `topics`."""

    topics: list[DeleteTopicState] = field(array(DeleteTopicState), since=6)
    topic_names: list[str] = field(array(STRING), until=5)
    timeout_ms: int = field(INT32)


class DeletableTopicResult(Message):
    """The result for one topic; `name` is None if an unknown id was asked for."""

    name: str | None = field(STRING, nullable=6)
    topic_id: bytes = field(UUID, since=6)
    error_code: int = field(INT16)
    error_message: str | None = field(STRING, since=5, nullable=5, default=None)


@message(key=20, kind="response", versions="1-6", flexible="4+")
class DeleteTopicsResponse(Message):
    """One result per topic of the request."""

    throttle_time_ms: int = field(INT32)
    responses: list[DeletableTopicResult] = field(array(DeletableTopicResult))
