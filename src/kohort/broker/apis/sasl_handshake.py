"""SaslHandshake (key 17): the choice of a mechanism; refused, as by Apache Kafka, on a listener without logins.

Version 1: messages of the mechanism come in SaslAuthenticate (KIP-152); after version 0 they come without headers.
"""

from __future__ import annotations

from kohort.broker.context import BrokerContext, Request
from kohort.errors import ErrorCode
from kohort.wire.messages import sasl_handshake as wire


def handle(
    context: BrokerContext, request: Request, message: wire.SaslHandshakeRequest
) -> wire.SaslHandshakeResponse | None:
    """Begin a login, or a later one of the same connection (KIP-368)."""
    del context
    login = request.connection.login
    if login is None:
        return wire.SaslHandshakeResponse(error_code=ErrorCode.ILLEGAL_SASL_STATE, mechanisms=[])

    def answer(code: ErrorCode) -> None:
        # Kafka names the mechanisms where one of them could be chosen.
        names = [] if code is ErrorCode.ILLEGAL_SASL_STATE else login.mechanisms
        request.answer(wire.SaslHandshakeResponse(error_code=code, mechanisms=names))

    login.choose(message.mechanism, has_headers=request.version >= 1, answer=answer)
    return None
