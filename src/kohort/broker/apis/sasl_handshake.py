"""SaslHandshake (key 17): no listener of this broker has logins: refused as by those of Apache Kafka."""

from __future__ import annotations

from kohort.broker.connections.request import Request
from kohort.broker.context import BrokerContext
from kohort.errors import ErrorCode
from kohort.wire.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse


def handle(context: BrokerContext, request: Request, message: SaslHandshakeRequest) -> SaslHandshakeResponse:
    """There is no mechanism to choose."""
    del context, request, message
    return SaslHandshakeResponse(error_code=ErrorCode.ILLEGAL_SASL_STATE, mechanisms=[])
