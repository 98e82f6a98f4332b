"""SaslHandshake (key 17): the mechanism by which a client logs in.

Version 1: what follows travels in SaslAuthenticate (KIP-152); in version 0 it followed without headers.
"""

from kohort.wire.schema import INT16, STRING, Message, array, field, message


@message(key=17, kind="request", versions="0-1", flexible="none")
class SaslHandshakeRequest(Message):
    """The mechanism that the client has chosen."""

    mechanism: str = field(STRING)


@message(key=17, kind="response", versions="0-1", flexible="none")
class SaslHandshakeResponse(Message):
    """The result; `mechanisms` are those that the listener offers."""

    error_code: int = field(INT16)
    mechanisms: list[str] = field(array(STRING))
