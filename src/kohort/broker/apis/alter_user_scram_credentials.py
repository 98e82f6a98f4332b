"""AlterUserScramCredentials (key 51), KIP-554: set and remove users' SCRAM credentials.

A removed user's connections end at once; a user whose password is changed stays logged in, as in Apache Kafka, until
its session ends.
"""

from __future__ import annotations

from typing import Final

from kohort.broker.context import BrokerContext, Request
from kohort.broker.topics.topic_operations import Outcome, Wanted, code_of
from kohort.errors import ErrorCode, Refused
from kohort.security.access_control import AclOperation, ResourceType
from kohort.security.sasl_server import LoginFailed, decoded_name
from kohort.security.scram import LEAST_ITERATIONS, NUMBERS
from kohort.security.scram_server import MOST_STORED_ITERATIONS, ScramCredential
from kohort.storage.catalog import ScramUser
from kohort.storage.topics import TopicPlan
from kohort.wire.messages import alter_user_scram_credentials as wire

#: Changes of users wait for each other.
CONCERN: Final = "/users"
#: Credentials of a broker, whose users stand in memory and in the catalog.
MOST_USERS: Final = 20_000
_LONGEST_SALT: Final = 1_024
_LONGEST_SALTED: Final = 1_024

_NAMES: Final = {number: name for name, number in NUMBERS.items()}

_Change = wire.ScramCredentialDeletion | wire.ScramCredentialUpsertion


def handle(context: BrokerContext, request: Request, message: wire.AlterUserScramCredentialsRequest) -> None:
    """Change the credentials of each user or refuse the user; all accepted changes are made together."""
    refused: dict[str, Refused] = {}
    changes: dict[str, _Change] = {}
    asked: list[_Change] = [*message.deletions, *message.upsertions]
    if not request.rights.allows(AclOperation.ALTER, ResourceType.CLUSTER):
        denied = Refused(ErrorCode.CLUSTER_AUTHORIZATION_FAILED, "Cluster authorization failed.")
        results = [_row(name, denied) for name in dict.fromkeys(change.name for change in asked)]
        request.answer(wire.AlterUserScramCredentialsResponse(results=results))
        return

    def plan() -> TopicPlan:
        known = context.store.changes.catalog.scram_users
        for change in asked:
            if change.name in refused:
                continue
            try:
                # Apache Kafka takes one change of a user in a request, whatever their mechanisms are.
                if changes.pop(change.name, None) is not None:
                    text = "A user credential cannot be altered twice in the same request"
                    raise Refused(ErrorCode.DUPLICATE_RESOURCE, text)
                _check(change)
                if isinstance(change, wire.ScramCredentialDeletion) and _key(change) not in known:
                    text = "Attempt to delete a user credential that does not exist"
                    raise Refused(ErrorCode.RESOURCE_NOT_FOUND, text)
                changes[change.name] = change
            except Refused as why:
                refused[change.name] = why
        users = [_user(each) for each in changes.values() if isinstance(each, wire.ScramCredentialUpsertion)]
        gone = [_key(each) for each in changes.values() if isinstance(each, wire.ScramCredentialDeletion)]
        if len(known.keys() | {user.key for user in users}) - len(gone) > MOST_USERS:
            raise Refused(ErrorCode.POLICY_VIOLATION, f"a broker has {MOST_USERS} SCRAM credentials at most")
        return context.store.changes.plan_scram_users(users, gone)

    def done(why: Outcome) -> None:
        rows = [_row(name, why) for name in changes]
        rows += [_row(name, reason) for name, reason in refused.items()]
        request.answer(wire.AlterUserScramCredentialsResponse(results=rows))

    context.cluster.work.ask([Wanted(CONCERN, plan, done)])


def _key(change: _Change) -> tuple[str, str]:
    return change.name, _NAMES[change.mechanism]


def _check(change: _Change) -> None:
    """Refuse a change in Apache Kafka's order and words, and credentials by which no user could log in."""
    if not change.name:
        raise Refused(ErrorCode.UNACCEPTABLE_CREDENTIAL, "Username must not be empty")
    if change.mechanism not in _NAMES:
        raise Refused(ErrorCode.UNSUPPORTED_SASL_MECHANISM, "Unknown SCRAM mechanism")
    if isinstance(change, wire.ScramCredentialDeletion):
        return
    if change.iterations < LEAST_ITERATIONS:
        raise Refused(ErrorCode.UNACCEPTABLE_CREDENTIAL, "Too few iterations")
    if change.iterations > MOST_STORED_ITERATIONS:
        raise Refused(ErrorCode.UNACCEPTABLE_CREDENTIAL, "Too many iterations")
    try:
        decoded_name(change.name.encode())
    except LoginFailed as why:
        raise Refused(ErrorCode.UNACCEPTABLE_CREDENTIAL, str(why).removeprefix("Authentication failed: ")) from None
    if not 0 < len(change.salt) <= _LONGEST_SALT or not 0 < len(change.salted_password) <= _LONGEST_SALTED:
        text = f"a salt has 1 to {_LONGEST_SALT} bytes, and a salted password 1 to {_LONGEST_SALTED}"
        raise Refused(ErrorCode.UNACCEPTABLE_CREDENTIAL, text)


def _user(change: wire.ScramCredentialUpsertion) -> ScramUser:
    name, mechanism = _key(change)
    found = ScramCredential.of(mechanism, change.salted_password, salt=change.salt, iterations=change.iterations)
    return ScramUser(
        name=name,
        mechanism=mechanism,
        iterations=found.iterations,
        salt=found.salt,
        stored_key=found.stored_key,
        server_key=found.server_key,
    )


def _row(name: str, why: Outcome) -> wire.AlterUserScramCredentialsResult:
    code = ErrorCode.NONE if why is None else code_of(why)
    return wire.AlterUserScramCredentialsResult(
        user=name, error_code=code, error_message=None if why is None else str(why)
    )
