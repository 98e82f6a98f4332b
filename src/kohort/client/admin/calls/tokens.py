"""The admin client's calls about capability tokens: those in use at a broker, and those that are revoked.

Laws: no call accepts or returns a token itself, only ids, which `kohort.capabilities` reads from a token.
Source: requirement H6; KIP-48 (describeDelegationToken, expireDelegationToken).
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Final, TypeVar

from kohort.base.values import value
from kohort.client.admin.admin_machine import Question
from kohort.client.admin.questions import Calls, error_of
from kohort.client.arguments import to_several
from kohort.errors import BrokerError, ConfigError, ErrorCode, UnsupportedFeatureError
from kohort.wire.messages.describe_tokens import DescribeTokensRequest, DescribeTokensResponse
from kohort.wire.messages.revoke_tokens import RevocationToMake, RevokeTokensRequest, RevokeTokensResponse

#: Stands for a lease that has no end.
NO_END_MS: Final = (1 << 63) - 1
_KINDS: Final = ("id", "label")
#: How tokens begin; `kohort.capabilities` loads what an administrator without tokens does not need.
_PREFIX: Final = "kh1."
R = TypeVar("R", DescribeTokensResponse, RevokeTokensResponse)


@value
class TokenInUse:
    """A token with which clients of the broker are logged in.

    Args:
        token_id: id of the token; the principal of its clients is `Token:` followed by this id.
        label: name for monitoring; `None` means none.
        chain: ids whose revocation ends the token; the first is that of the minted token it was derived from.
        not_after_ms: the end of its lease, ms since 1970; `None` means no end.
        connections: number of open connections.
    """

    token_id: str
    label: str | None
    chain: tuple[str, ...]
    not_after_ms: int | None
    connections: int


@value
class RevokedToken:
    """A revocation in force.

    Args:
        kind: "id": of tokens with this id in their chain; "label": of tokens with this label, or one that extends it.
        name: the id or the label.
        revoked_ms: time of the revocation, ms since 1970.
        not_after_ms: when the last of the tokens' leases ends and the revocation is dropped; `None` means never.
    """

    kind: str
    name: str
    revoked_ms: int
    not_after_ms: int | None


@value
class TokensDescription:
    """The tokens in use at a broker, by id, and its revocations, oldest first."""

    in_use: tuple[TokenInUse, ...]
    revoked: tuple[RevokedToken, ...]


class TokenCalls(Calls):
    """The calls about capability tokens, which only kohort's broker has."""

    async def describe_tokens(self) -> TokensDescription:
        """Return the tokens with which clients are logged in at a broker, and the revocations in force.

        Raises:
            AuthorizationError: the caller lacks `describe` on the cluster.
            UnsupportedFeatureError: the broker is not kohort's.
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
        """Revoke tokens: the broker closes their connections at once, and drops the requests that wait there.

        Args:
            ids: an id revokes each token with this id in its chain: the token itself and those derived from it.
            labels: a label revokes each token with this label, or with a label that extends it.
            not_after: when the last of their leases ends, so that the broker may drop the revocation. `None`: never.

        Raises:
            AuthorizationError: the caller lacks `alter` on the cluster.
            BrokerError: INVALID_REQUEST: a name is neither id nor label; POLICY_VIOLATION: too many revocations.
            UnsupportedFeatureError: the broker is not kohort's.
            ConfigError, TypeError: an argument is invalid; nothing is revoked.
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
    """Return the end of a lease as text.

    >>> show_end(0), show_end(None)
    ('1970-01-01T00:00:00Z', 'none')
    """
    if not_after_ms is None:
        return "none"
    try:
        return datetime.fromtimestamp(not_after_ms // 1000, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    except (ValueError, OverflowError, OSError):
        return str(not_after_ms)
