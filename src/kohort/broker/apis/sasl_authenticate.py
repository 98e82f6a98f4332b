"""SaslAuthenticate (key 36): refused, as by Apache Kafka's listeners without logins."""

from __future__ import annotations

from kohort.broker.connections.request import Request
from kohort.broker.context import BrokerContext
from kohort.errors import ErrorCode
from kohort.wire.messages.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse


def handle(context: BrokerContext, request: Request, message: SaslAuthenticateRequest) -> SaslAuthenticateResponse:
    """Refuse the request without reading its token."""
    del context, request, message
    return SaslAuthenticateResponse(
        error_code=ErrorCode.ILLEGAL_SASL_STATE, error_message="this listener has no logins", auth_bytes=b""
    )
