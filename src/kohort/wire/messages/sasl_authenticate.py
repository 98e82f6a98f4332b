"""SaslAuthenticate (key 36): one message of the mechanism's own conversation (KIP-152).

Version 1: how long the session lasts (KIP-368). Version 2: flexible (KIP-482).
"""

from kohort.wire.schema import BYTES, INT16, INT64, STRING, Message, field, message


@message(key=36, kind="request", versions="0-2", flexible="2+")
class SaslAuthenticateRequest(Message):
    """The client's token of the mechanism; it is secret, and not shown."""

    auth_bytes: bytes = field(BYTES)

    def __repr__(self) -> str:
        return f"SaslAuthenticateRequest(<{len(self.auth_bytes)} bytes>)"


@message(key=36, kind="response", versions="0-2", flexible="2+")
class SaslAuthenticateResponse(Message):
    """The broker's token; a new login is due after `session_lifetime_ms`, 0: never."""

    error_code: int = field(INT16)
    error_message: str | None = field(STRING, nullable=0)
    auth_bytes: bytes = field(BYTES)
    session_lifetime_ms: int = field(INT64, since=1)
