"""The admin client's calls about users that log in by SCRAM.

Laws: no password is in a text, and none travels; a salt is drawn for each.
Source: Kafka's Admin (describeUserScramCredentials, alterUserScramCredentials); KIP-554.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from kohort.client.admin.questions import Calls
from kohort.client.admin.results import users as shapes
from kohort.client.admin.results.users import ScramCredential, ScramLogin, UserScramCredential
from kohort.client.arguments import to_several
from kohort.errors import KohortError
from kohort.wire.messages.alter_user_scram_credentials import AlterUserScramCredentialsResponse
from kohort.wire.messages.describe_user_scram_credentials import DescribeUserScramCredentialsResponse

_SALT_BYTES: Final = 32
#: Which part of a request a user takes; Apache Kafka changes no more than 10,000 at once.
_PART: Final = 1 / 5_000


class UserCalls(Calls):
    """Who can log in by SCRAM."""

    async def describe_user_scram_credentials(self, users: Iterable[str] | None = None) -> list[UserScramCredential]:
        """The mechanisms by which users can log in, by user; all users unless some are named.

        Raises:
            BrokerError: RESOURCE_NOT_FOUND: one of them has no password.
            AuthorizationError: it takes `describe` on the cluster.
            UnsupportedFeatureError: the broker keeps no users, as kohort's own.
        """
        chosen = shapes.to_users(users)
        if chosen is not None:
            chosen = list(dict.fromkeys(chosen))
            if not chosen:
                return []
        during = "looking up the users of SCRAM"
        response = await self._questions.ask(
            shapes.describe_request(chosen),
            DescribeUserScramCredentialsResponse,
            during=during,
            codes=lambda response: [response.error_code, *(row.error_code for row in response.results)],
        )
        errors = [shapes.error_of(response.error_code, response.error_message, during, operation="describe")]
        errors += [
            shapes.error_of(row.error_code, row.error_message, during, operation="describe", user=row.user)
            for row in response.results
        ]
        for error in errors:
            if error is not None:
                raise error
        return shapes.described(response)

    async def alter_user_scram_credentials(
        self,
        upsertions: Iterable[ScramCredential] = (),
        deletions: Iterable[tuple[str, str] | UserScramCredential] = (),
    ) -> None:
        """Set passwords, and take some away. Brokers heed it a little later; who is logged in stays so.

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
        credentials = [shapes.to_credential(each) for each in asked]
        wanted = {shapes.login_of(each): each for each in credentials}
        gone = [shapes.to_deletion(each) for each in to_several(deletions, "deletions", "[('alice', 'SCRAM-SHA-512')]")]
        shapes.check_once([*map(shapes.login_of, credentials), *gone])

        async def ask(part: Sequence[ScramLogin]) -> Mapping[ScramLogin, KohortError | None]:
            found: dict[ScramLogin, KohortError | None] = {}
            for mechanism in shapes.MECHANISMS:
                found |= await self._alter([each for each in part if each.mechanism == mechanism], wanted, during)
            return found

        if wanted or gone:
            logins = [*wanted, *gone]
            await self._questions.do_all(logins, ask, during=during, per_request=lambda _: _PART)

    async def _alter(
        self, logins: Sequence[ScramLogin], wanted: Mapping[ScramLogin, ScramCredential], during: str
    ) -> dict[ScramLogin, KohortError | None]:
        """Of one mechanism: no broker changes a user twice by one request."""
        if not logins:
            return {}
        salted = [(wanted[each], secrets.token_bytes(_SALT_BYTES)) for each in logins if each in wanted]
        response = await self._questions.ask(
            shapes.alter_request(salted, [each for each in logins if each not in wanted]),
            AlterUserScramCredentialsResponse,
            during=during,
        )
        by_user = {row.user: row for row in response.results}
        return {
            each: shapes.error_of(row.error_code, row.error_message, during, operation="alter", user=each.user)
            for each in logins
            if (row := by_user.get(each.user)) is not None
        }
