"""SaslHandshake (key 17): refused, as by Apache Kafka's listeners without logins."""

from __future__ import annotations

from kohort.broker.context import BrokerContext, Request
from kohort.errors import ErrorCode
from kohort.wire.messages import sasl_handshake as wire


def handle(context: BrokerContext, request: Request, message: wire.SaslHandshakeRequest) -> wire.SaslHandshakeResponse:
    """Refuse the request; there is no mechanism to choose."""
    del context, request, message
    return wire.SaslHandshakeResponse(error_code=ErrorCode.ILLEGAL_SASL_STATE, mechanisms=[])
