"""The admin client's calls about capability tokens: those in use at a broker, and those that are revoked.

Laws: a token itself is neither taken nor returned, only its ids: `kohort.capabilities` reads them from it.
Source: requirement H6; KIP-48 (describeDelegationToken, expireDelegationToken).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final, TypeVar

from kohort.client.admin.admin_machine import Question
from kohort.client.admin.questions import Calls, error_of
from kohort.client.arguments import to_several
from kohort.errors import BrokerError, ConfigError, ErrorCode, UnsupportedFeatureError
from kohort.wire.messages.describe_tokens import DescribeTokensRequest, DescribeTokensResponse
from kohort.wire.messages.revoke_tokens import RevocationToMake, RevokeTokensRequest, RevokeTokensResponse

#: In place of the end of a lease: there is none.
NO_END_MS: Final = (1 << 63) - 1
_KINDS: Final = ("id", "label")
#: How tokens begin; `kohort.capabilities` loads what an administrator without tokens does not need.
_PREFIX: Final = "kh1."
R = TypeVar("R", DescribeTokensResponse, RevokeTokensResponse)


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenInUse:
    """A token that clients of the broker are logged in with.

    Args:
        token_id: of the holder; its principal is `Token:` and this.
        label: its name for monitoring; `None`: it has none.
        chain: ids that end it when they are revoked, the first one's that of the token as it was minted.
        not_after_ms: the end of its lease, ms since 1970; `None`: it has none.
        connections: how many are open.
    """

    token_id: str
    label: str | None
    chain: tuple[str, ...]
    not_after_ms: int | None
    connections: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RevokedToken:
    """A revocation that is in force.

    Args:
        kind: "id": tokens with this id in their chain; "label": tokens with this label, or one behind it.
        name: the id or the label.
        revoked_ms: when it was revoked, ms since 1970.
        not_after_ms: when the last of the tokens' leases is over, and it may be forgotten; `None`: never.
    """

    kind: str
    name: str
    revoked_ms: int
    not_after_ms: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class TokensDescription:
    """The tokens of a broker by id, and its revocations in the order in which they were made."""

    in_use: tuple[TokenInUse, ...]
    revoked: tuple[RevokedToken, ...]


class TokenCalls(Calls):
    """The calls about capability tokens; only kohort's broker has them."""

    async def describe_tokens(self) -> TokensDescription:
        """Look up the tokens that clients of a broker are logged in with, and the revocations.

        Raises:
            AuthorizationError: it takes `describe` on the cluster.
            UnsupportedFeatureError: the broker is none of kohort's.
        """
        during = "looking up tokens"
        response = await self._ask_own(DescribeTokensRequest(), DescribeTokensResponse, during, operation="describe")
        return TokensDescription(
            in_use=tuple(
                TokenInUse(
                    token_id=row.token_id,
                    label=row.label,
                    chain=tuple(row.chain),
                    not_after_ms=_end_of(row.not_after_ms),
                    connections=row.connections,
                )
                for row in response.tokens
            ),
            revoked=tuple(
                RevokedToken(
                    kind=_KINDS[row.kind] if 0 <= row.kind < len(_KINDS) else str(row.kind),
                    name=row.name,
                    revoked_ms=row.revoked_ms,
                    not_after_ms=_end_of(row.not_after_ms),
                )
                for row in response.revocations
            ),
        )

    async def revoke_tokens(
        self, ids: Iterable[str] = (), *, labels: Iterable[str] = (), not_after: datetime | None = None
    ) -> None:
        """Revoke tokens: their connections end at once, with what waits for them there.

        Args:
            ids: an id ends each token that has it in its chain: the token itself and what was made of it.
            labels: a label ends each token with it, and with labels that were put behind it.
            not_after: when the last of their leases is over; then the revocation is forgotten. Without it, never.

        Raises:
            AuthorizationError: it takes `alter` on the cluster.
            BrokerError: INVALID_REQUEST: a name is no id and no label; POLICY_VIOLATION: too many are remembered.
            UnsupportedFeatureError: the broker is none of kohort's.
            ConfigError, TypeError: an argument cannot be one; nothing is revoked.
        """
        if not_after is not None and not_after.tzinfo is None:
            raise ConfigError("not_after has no time zone: datetime.now(UTC) + timedelta(hours=1) has one")
        end_ms = NO_END_MS if not_after is None else int(not_after.timestamp() * 1000)
        rows = [
            RevocationToMake(kind=kind, name=_to_name(each), not_after_ms=end_ms)
            for kind, names in enumerate((to_several(ids, "ids", "['AAAA...']"), to_several(labels, "labels", "['a']")))
            for each in names
        ]
        if not rows:
            raise ConfigError("nothing is named that is to be revoked: ids=['...'] or labels=['...']")
        await self._ask_own(
            RevokeTokensRequest(revocations=rows), RevokeTokensResponse, "revoking tokens", operation="alter"
        )

    async def _ask_own(
        self, request: DescribeTokensRequest | RevokeTokensRequest, expected: type[R], during: str, *, operation: str
    ) -> R:
        try:
            response = await self._ask(Question(request, expected, during=during))
        except BrokerError as why:
            if why.code is not ErrorCode.UNSUPPORTED_VERSION:
                raise
            text = f"only kohort's broker has capability tokens: {why.message}"
            raise UnsupportedFeatureError(why.code, text, during=during) from why
        error = error_of(response, during, operation=operation)
        if error is not None:
            raise error
        return response


def _to_name(value: object) -> str:
    if not isinstance(value, str):
        raise TypeError(f"an id and a label are text, not {type(value).__name__}")
    if value.startswith(_PREFIX):
        raise ConfigError("a token is revoked by one of its ids: only its id is sent; kohort token inspect shows it")
    return value


def _end_of(not_after_ms: int) -> int | None:
    return None if not_after_ms == NO_END_MS else not_after_ms


def show_end(not_after_ms: int | None) -> str:
    """Show the end of a lease.

    >>> show_end(0), show_end(None)
    ('1970-01-01T00:00:00Z', 'none')
    """
    if not_after_ms is None:
        return "none"
    try:
        return datetime.fromtimestamp(not_after_ms // 1000, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    except (ValueError, OverflowError, OSError):
        return str(not_after_ms)
