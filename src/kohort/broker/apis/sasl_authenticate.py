"""SaslAuthenticate (key 36): a message of the mechanism; refused, as by Apache Kafka, on a listener without logins.

Version 1: how long the login holds (KIP-368).
"""

from __future__ import annotations

from kohort.broker.context import BrokerContext, Request
from kohort.errors import ErrorCode
from kohort.wire.messages import sasl_authenticate as wire


def handle(
    context: BrokerContext, request: Request, message: wire.SaslAuthenticateRequest
) -> wire.SaslAuthenticateResponse | None:
    """Have the login look at the client's message."""
    del context
    login = request.connection.login
    if login is None:
        return wire.SaslAuthenticateResponse(
            error_code=ErrorCode.ILLEGAL_SASL_STATE, error_message="this listener has no logins", auth_bytes=b""
        )

    def answer(code: ErrorCode, text: str | None, data: bytes, lifetime_ms: int) -> None:
        # Without an error its text is empty in Apache Kafka, not null.
        request.answer(
            wire.SaslAuthenticateResponse(
                error_code=code, error_message=text or "", auth_bytes=data, session_lifetime_ms=lifetime_ms
            )
        )

    login.speak(message.auth_bytes, answer)
    return None
