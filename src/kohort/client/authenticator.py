"""The login of one connection: its mechanism, its messages, and how long it lasts.

Laws: no other request is sent before the login is over, nor while it is renewed. After a refusal it is not tried again
on the same connection. No secret is in any text of it.
Source: KIP-152 (SaslAuthenticate), KIP-368 (sessions end, and are renewed on the same connection).
"""

from __future__ import annotations

from typing import Final

from kohort.errors import ErrorCode
from kohort.security.sasl import Exchange, ExchangeFailed
from kohort.wire.messages.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from kohort.wire.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse

#: A session is renewed after a percentage of it between these two, which each client draws.
FIRST_RENEWAL_PERCENT: Final = 85
LAST_RENEWAL_PERCENT: Final = 95
#: Shortest pause before a failed renewal is tried again.
LEAST_REPEAT_MS: Final = 10

Request = SaslHandshakeRequest | SaslAuthenticateRequest
Response = SaslHandshakeResponse | SaslAuthenticateResponse


class SignInRefused(Exception):
    """The broker refuses the login, or has failed to prove itself; the text says why and what to do."""


class SignIn:
    """One login.

    Args:
        mechanism: its name.
        exchange: its messages; used up by this.
    """

    def __init__(self, mechanism: str, exchange: Exchange) -> None:
        self._mechanism: Final = mechanism
        self._exchange: Final = exchange
        #: How long the session lasts from now, ms; 0: for ever. Known when `on_answer` has returned `None`.
        self.lifetime_ms = 0

    def start(self) -> Request:
        """Return the first request."""
        return SaslHandshakeRequest(mechanism=self._mechanism)

    def on_answer(self, answer: Response) -> Request | None:
        """Return the next request; `None`: the login has succeeded.

        Raises:
            SignInRefused: the broker refuses it, or is not who it says.
        """
        if isinstance(answer, SaslHandshakeResponse):
            self._check_handshake(answer)
            return SaslAuthenticateRequest(auth_bytes=self._exchange.first())
        code = ErrorCode.of(answer.error_code)
        if code is not ErrorCode.NONE:
            said = (answer.error_message or code.name).strip()[:500]
            raise SignInRefused(f"the broker does not let this client in by {self._mechanism}: {said}")
        try:
            reply = self._exchange.reply(bytes(answer.auth_bytes))
        except ExchangeFailed as why:
            raise SignInRefused(str(why)) from None
        if not self._exchange.is_done:
            return SaslAuthenticateRequest(auth_bytes=reply)
        self.lifetime_ms = max(0, answer.session_lifetime_ms)
        return None

    def _check_handshake(self, answer: SaslHandshakeResponse) -> None:
        code = ErrorCode.of(answer.error_code)
        if code is ErrorCode.UNSUPPORTED_SASL_MECHANISM:
            offered = ", ".join(answer.mechanisms[:20])[:500] or "none"
            raise SignInRefused(
                f"the broker does not offer {self._mechanism}, but {offered}: set sasl.mechanism to one"
            )
        if code is ErrorCode.ILLEGAL_SASL_STATE:
            raise SignInRefused("no login is wanted there: set security.protocol to PLAINTEXT or SSL, or name the port")
        if code is not ErrorCode.NONE:
            raise SignInRefused(f"the broker refuses the login: {code.name}")


def renewal_ms(lifetime_ms: int, draw: int) -> int:
    """Return when to renew a session of `lifetime_ms`; `draw`, any number, spreads the clients.

    >>> renewal_ms(1000, 0), renewal_ms(1000, 10)
    (850, 950)
    """
    percent = FIRST_RENEWAL_PERCENT + draw % (LAST_RENEWAL_PERCENT - FIRST_RENEWAL_PERCENT + 1)
    return lifetime_ms * percent // 100


def repeat_ms(left_ms: int) -> int | None:
    """Return the pause before a failed renewal is tried again, of a session that has `left_ms` left.

    `None`: no more; the broker ends the session, and the next connection logs in from the beginning.

    >>> repeat_ms(60_000), repeat_ms(1_000), repeat_ms(30)
    (15000, 250, None)
    """
    pause_ms = left_ms // 4
    return pause_ms if pause_ms >= LEAST_REPEAT_MS else None
