"""The headers of requests and responses.

Request header: version 1 has the client id, version 2 is flexible (KIP-482); version 0 is gone since Kafka 4.0.
Response header: version 1 is flexible. ApiVersions is always answered with version 0, so that a client that asks for
too new a version can read the answer (KIP-511).

The client id keeps its int16 length in version 2, because a server reads it before it knows the API.
"""

from __future__ import annotations

from kohort.wire.schema import INT16, INT32, STRING, Message, field, message


@message(kind="header", versions="1-2", flexible="2+")
class RequestHeader(Message):
    """The API and version of a request, and the correlation id for its answer."""

    request_api_key: int = field(INT16)
    request_api_version: int = field(INT16)
    correlation_id: int = field(INT32)
    client_id: str | None = field(STRING, nullable=1, compact=False)


@message(kind="header", versions="0-1", flexible="1+")
class ResponseHeader(Message):
    """The correlation id of the request that is answered."""

    correlation_id: int = field(INT32)
