"""The admin client's calls about users that log in by SCRAM.

Laws: no password is in a text, and none travels; a salt is drawn for each.
Source: Kafka's Admin (describeUserScramCredentials, alterUserScramCredentials); KIP-554.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from kohort.client.admin.admin_machine import Question
from kohort.client.admin.questions import Calls, Coded, error_of
from kohort.client.admin.results import users as results
from kohort.client.admin.results.users import ScramCredential, ScramLogin, UserScramCredential
from kohort.client.arguments import to_several
from kohort.errors import ErrorCode, KohortError
from kohort.wire.messages.alter_user_scram_credentials import AlterUserScramCredentialsResponse
from kohort.wire.messages.describe_user_scram_credentials import DescribeUserScramCredentialsResponse

_SALT_BYTES: Final = 32
#: Part of a request that a user takes; Apache Kafka changes no more than 10,000 at once.
_PART: Final = 1 / 5_000


class UserCalls(Calls):
    """The calls about logins by SCRAM."""

    async def describe_user_scram_credentials(self, users: Iterable[str] | None = None) -> list[UserScramCredential]:
        """Look up the mechanisms by which users can log in, by user; all users unless some are named.

        Raises:
            BrokerError: RESOURCE_NOT_FOUND: one of them has no password.
            AuthorizationError: it takes `describe` on the cluster.
            UnsupportedFeatureError: the broker keeps no users.
        """
        chosen = results.to_users(users)
        if chosen == []:
            return []
        during = "looking up the users of SCRAM"
        response = await self._ask(
            Question(
                results.describe_request(chosen),
                DescribeUserScramCredentialsResponse,
                during=during,
                codes=lambda response: [response.error_code, *(row.error_code for row in response.results)],
            )
        )
        errors = [error_of(response, during, operation="describe")]
        errors += [_error(row, during, operation="describe", user=row.user) for row in response.results]
        for error in errors:
            if error is not None:
                raise error
        return results.described(response)

    async def alter_user_scram_credentials(
        self,
        upsertions: Iterable[ScramCredential] = (),
        deletions: Iterable[tuple[str, str] | UserScramCredential] = (),
    ) -> None:
        """Set passwords, and take some away. Brokers heed it a little later.

        Connections of a user stay open with a new password. Those of a removed user end at kohort's broker, and stay
        until their session ends at Apache Kafka.

        Args:
            upsertions: passwords that are to count from now on.
            deletions: pairs of user and mechanism by which it is not to log in any more.

        Raises:
            PartlyDoneError: some of it was refused; of one alone it is the error itself.
            BrokerError: RESOURCE_NOT_FOUND: there is nothing to delete; UNACCEPTABLE_CREDENTIAL, ...
            AuthorizationError: it takes `alter` on the cluster.
            UnsupportedFeatureError: the broker keeps no users.
            ConfigError, TypeError: a credential cannot be one; nothing is changed.
        """
        during = "changing the users of SCRAM"
        asked = to_several(upsertions, "upsertions", "[kohort.ScramCredential(...)]")
        credentials = [results.to_credential(each) for each in asked]
        wanted = {results.login_of(each): each for each in credentials}
        gone = [
            results.to_deletion(each) for each in to_several(deletions, "deletions", "[('alice', 'SCRAM-SHA-512')]")
        ]
        results.check_once([*map(results.login_of, credentials), *gone])

        async def ask(part: Sequence[ScramLogin]) -> Mapping[ScramLogin, KohortError | None]:
            found: dict[ScramLogin, KohortError | None] = {}
            for mechanism in results.MECHANISMS:
                found |= await self._alter([each for each in part if each.mechanism == mechanism], wanted, during)
            return found

        if wanted or gone:
            logins = [*wanted, *gone]
            await self._questions.do_all(logins, ask, during=during, per_request=lambda _: _PART)

    async def _alter(
        self, logins: Sequence[ScramLogin], wanted: Mapping[ScramLogin, ScramCredential], during: str
    ) -> dict[ScramLogin, KohortError | None]:
        """Change logins of one mechanism: no broker changes a user twice by one request."""
        if not logins:
            return {}
        salted = [(wanted[each], secrets.token_bytes(_SALT_BYTES)) for each in logins if each in wanted]
        request = results.alter_request(salted, [each for each in logins if each not in wanted])
        response = await self._ask(Question(request, AlterUserScramCredentialsResponse, during=during))
        by_user = {row.user: row for row in response.results}
        return {
            each: _error(row, during, operation="alter", user=each.user)
            for each in logins
            if (row := by_user.get(each.user)) is not None
        }


def _error(said: Coded, during: str, *, operation: str, user: str) -> KohortError | None:
    is_missing = said.error_code == ErrorCode.RESOURCE_NOT_FOUND and user
    text = f"no user {user} logs in by it; kohort user list shows the users" if is_missing else None
    return error_of(said, during, text=text, operation=operation)
