"""SaslAuthenticate (key 36): refused, as by Apache Kafka's listeners without logins."""

from __future__ import annotations

from kohort.broker.context import BrokerContext, Request
from kohort.errors import ErrorCode
from kohort.wire.messages import sasl_authenticate as wire


def handle(
    context: BrokerContext, request: Request, message: wire.SaslAuthenticateRequest
) -> wire.SaslAuthenticateResponse:
    """Refuse the request without reading its token."""
    del context, request, message
    return wire.SaslAuthenticateResponse(
        error_code=ErrorCode.ILLEGAL_SASL_STATE, error_message="this listener has no logins", auth_bytes=b""
    )
