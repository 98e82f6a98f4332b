"""The admin client's calls about users and their SCRAM passwords.

Laws: no password is shown in a text or sent to a broker: only its salted form is. Each gets a random salt.
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
#: Share of one request for each user; Apache Kafka changes no more than 10,000 at once.
_PART: Final = 1 / 5_000


class UserCalls(Calls):
    """The calls about SCRAM credentials."""

    async def describe_user_scram_credentials(self, users: Iterable[str] | None = None) -> list[UserScramCredential]:
        """Return the SCRAM mechanisms with which users can log in, by user; of all users unless some are named.

        Raises:
            BrokerError: RESOURCE_NOT_FOUND: a named user has no SCRAM password.
            AuthorizationError: the caller lacks `describe` on the cluster.
            UnsupportedFeatureError: the broker does not store SCRAM credentials.
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
        """Set and delete SCRAM passwords. Brokers apply the changes a moment later.

        A new password does not close open connections. After a deletion, kohort's broker closes the user's
        connections; Apache Kafka keeps them until their session ends.

        Args:
            upsertions: passwords to add or replace.
            deletions: pairs of a user and the mechanism to delete.

        Raises:
            PartlyDoneError: some changes were refused; for a single one its own error is raised.
            BrokerError: RESOURCE_NOT_FOUND: there is nothing to delete; UNACCEPTABLE_CREDENTIAL, ...
            AuthorizationError: the caller lacks `alter` on the cluster.
            UnsupportedFeatureError: the broker does not store SCRAM credentials.
            ConfigError, TypeError: a credential is invalid; nothing is changed.
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
        """Change the passwords of one mechanism: a request may name a user only once."""
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
