"""SaslHandshake (key 17): refused, as by Apache Kafka's listeners without logins."""

from __future__ import annotations

from kohort.broker.connections.request import Request
from kohort.broker.context import BrokerContext
from kohort.errors import ErrorCode
from kohort.wire.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse


def handle(context: BrokerContext, request: Request, message: SaslHandshakeRequest) -> SaslHandshakeResponse:
    """Refuse the request; there is no mechanism to choose."""
    del context, request, message
    return SaslHandshakeResponse(error_code=ErrorCode.ILLEGAL_SASL_STATE, mechanisms=[])
