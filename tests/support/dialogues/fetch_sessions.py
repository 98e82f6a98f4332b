"""A broker that keeps fetch sessions (KIP-227), as far as one consumer's dialogue needs it."""

from __future__ import annotations

from collections.abc import Mapping

from kohort.errors import ErrorCode
from kohort.wire.messages.fetch import FetchableTopicResponse, FetchRequest, FetchResponse, PartitionData
from support.dialogues.consumer_dialogue import ORDERS, ConsumerDialogue

SESSION_ID = 4711


class SessionBroker:
    """Answers the open long fetch of a dialogue within a session: only partitions with records or errors travel."""

    def __init__(self, consumer: ConsumerDialogue) -> None:
        self._consumer = consumer

    def request(self) -> FetchRequest:
        """The open fetch that waits."""
        self._consumer.settle()
        found = [send.request for send in self._consumer.find(FetchRequest)]
        (request,) = [each for each in found if isinstance(each, FetchRequest) and each.max_wait_ms > 0]
        return request

    def serve(
        self,
        records: Mapping[int, bytes],
        *,
        errors: Mapping[int, ErrorCode] | None = None,
        session_id: int = SESSION_ID,
    ) -> FetchRequest:
        """Answer it; returns the request."""
        request = self.request()
        data = [
            PartitionData(
                partition_index=index,
                error_code=(errors or {}).get(index, ErrorCode.NONE),
                high_watermark=-1,
                records=memoryview(records.get(index, b"")),
            )
            for index in sorted({*records, *(errors or {})})
        ]
        topics = [FetchableTopicResponse(topic_id=ORDERS, partitions=data)] if data else []
        self._consumer.answer(request, FetchResponse(session_id=session_id, responses=topics), version=17)
        return request

    def refuse(self, code: ErrorCode) -> FetchRequest:
        """Refuse it as a whole; returns the request."""
        request = self.request()
        self._consumer.answer(request, FetchResponse(error_code=code), version=17)
        return request
