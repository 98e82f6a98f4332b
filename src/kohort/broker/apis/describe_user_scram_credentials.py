"""DescribeUserScramCredentials (key 50), KIP-554: users' SCRAM mechanisms and rounds, and nothing of their keys."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence

from kohort.broker.chunked_responses import answer_rows
from kohort.broker.context import BrokerContext, Request
from kohort.errors import ErrorCode
from kohort.security.access_control import AclOperation, ResourceType
from kohort.security.scram import NUMBERS
from kohort.storage.catalog import ScramUser
from kohort.wire.messages import describe_user_scram_credentials as wire


def handle(context: BrokerContext, request: Request, message: wire.DescribeUserScramCredentialsRequest) -> None:
    """Answer for the named users, without names for all of them; a user that is named twice is refused."""
    if not request.rights.allows(AclOperation.DESCRIBE, ResourceType.CLUSTER):
        code, text = ErrorCode.CLUSTER_AUTHORIZATION_FAILED, "Cluster authorization failed."
        request.answer(wire.DescribeUserScramCredentialsResponse(error_code=code, error_message=text))
        return
    users: dict[str, list[ScramUser]] = {}
    for user in context.store.changes.catalog.scram_users.values():
        users.setdefault(user.name, []).append(user)
    # Apache Kafka takes an empty list for null.
    named = Counter(each.name for each in message.users or ())

    def rows_of(names: Sequence[str], done: Callable[[list[wire.DescribeUserScramCredentialsResult]], None]) -> None:
        done([_row(name, users.get(name), times=named[name]) for name in names])

    answer_rows(context, request, list(named or sorted(users)), rows_of, _response)


def _row(name: str, credentials: list[ScramUser] | None, *, times: int) -> wire.DescribeUserScramCredentialsResult:
    # Without an error its text is empty in Apache Kafka, not null.
    row = wire.DescribeUserScramCredentialsResult(user=name, error_message="")
    if times > 1:
        row.error_code = ErrorCode.DUPLICATE_RESOURCE
        row.error_message = f"Cannot describe SCRAM credentials for the same user twice in a single request: {name}"
    elif credentials is None:
        row.error_code = ErrorCode.RESOURCE_NOT_FOUND
        row.error_message = f"Attempt to describe a user credential that does not exist: {name}"
    else:
        infos = [(NUMBERS[each.mechanism], each.iterations) for each in credentials]
        row.credential_infos = [
            wire.CredentialInfo(mechanism=number, iterations=iterations) for number, iterations in sorted(infos)
        ]
    return row


def _response(rows: list[wire.DescribeUserScramCredentialsResult]) -> wire.DescribeUserScramCredentialsResponse:
    return wire.DescribeUserScramCredentialsResponse(error_message="", results=rows)
