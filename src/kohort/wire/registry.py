"""The registry of APIs: message classes, headers and versions by (API key, version).

Laws: the versions of Kafka's APIs are those that Apache Kafka 4.3 serves, those of ours stand in `wire.private`; a
class is imported when it is first asked for.
Source: Apache Kafka's message definitions of 4.3; KIP-35 (negotiation), KIP-482 (flexible versions), KIP-511.
"""

from __future__ import annotations

from enum import IntEnum
from functools import cache
from importlib import import_module
from typing import Any, Final, NamedTuple

from kohort.wire.private import API_VERSIONS, PrivateApiKey
from kohort.wire.schema import INT16, INT32, STRING, Message, field, message


class ApiKey(IntEnum):
    """The APIs that kohort speaks, by Kafka's names and numbers."""

    PRODUCE = 0
    FETCH = 1
    LIST_OFFSETS = 2
    METADATA = 3
    OFFSET_COMMIT = 8
    OFFSET_FETCH = 9
    FIND_COORDINATOR = 10
    JOIN_GROUP = 11
    HEARTBEAT = 12
    LEAVE_GROUP = 13
    SYNC_GROUP = 14
    DESCRIBE_GROUPS = 15
    LIST_GROUPS = 16
    SASL_HANDSHAKE = 17
    API_VERSIONS = 18
    CREATE_TOPICS = 19
    DELETE_TOPICS = 20
    DELETE_RECORDS = 21
    INIT_PRODUCER_ID = 22
    OFFSET_FOR_LEADER_EPOCH = 23
    ADD_PARTITIONS_TO_TXN = 24
    ADD_OFFSETS_TO_TXN = 25
    END_TXN = 26
    WRITE_TXN_MARKERS = 27
    TXN_OFFSET_COMMIT = 28
    DESCRIBE_ACLS = 29
    CREATE_ACLS = 30
    DELETE_ACLS = 31
    DESCRIBE_CONFIGS = 32
    ALTER_CONFIGS = 33
    ALTER_REPLICA_LOG_DIRS = 34
    DESCRIBE_LOG_DIRS = 35
    SASL_AUTHENTICATE = 36
    CREATE_PARTITIONS = 37
    DELETE_GROUPS = 42
    ELECT_LEADERS = 43
    INCREMENTAL_ALTER_CONFIGS = 44
    ALTER_PARTITION_REASSIGNMENTS = 45
    LIST_PARTITION_REASSIGNMENTS = 46
    OFFSET_DELETE = 47
    DESCRIBE_CLIENT_QUOTAS = 48
    ALTER_CLIENT_QUOTAS = 49
    DESCRIBE_USER_SCRAM_CREDENTIALS = 50
    ALTER_USER_SCRAM_CREDENTIALS = 51
    DESCRIBE_QUORUM = 55
    UPDATE_FEATURES = 57
    DESCRIBE_CLUSTER = 60
    DESCRIBE_PRODUCERS = 61
    DESCRIBE_TRANSACTIONS = 65
    LIST_TRANSACTIONS = 66
    CONSUMER_GROUP_HEARTBEAT = 68
    CONSUMER_GROUP_DESCRIBE = 69
    LIST_CONFIG_RESOURCES = 74
    DESCRIBE_TOPIC_PARTITIONS = 75


class _Api(NamedTuple):
    first: int
    last: int
    #: First flexible version; one above every version where none is.
    flexible_since: int


#: Above every version: no version is flexible.
_NEVER: Final = 1 << 15
_APIS: Final[dict[int, _Api]] = {
    ApiKey.PRODUCE: _Api(3, 13, 9),
    ApiKey.FETCH: _Api(4, 18, 12),
    ApiKey.LIST_OFFSETS: _Api(1, 11, 6),
    ApiKey.METADATA: _Api(0, 13, 9),
    ApiKey.OFFSET_COMMIT: _Api(2, 10, 8),
    ApiKey.OFFSET_FETCH: _Api(1, 10, 6),
    ApiKey.FIND_COORDINATOR: _Api(0, 6, 3),
    ApiKey.JOIN_GROUP: _Api(0, 9, 6),
    ApiKey.HEARTBEAT: _Api(0, 4, 4),
    ApiKey.LEAVE_GROUP: _Api(0, 5, 4),
    ApiKey.SYNC_GROUP: _Api(0, 5, 4),
    ApiKey.DESCRIBE_GROUPS: _Api(0, 6, 5),
    ApiKey.LIST_GROUPS: _Api(0, 5, 3),
    ApiKey.SASL_HANDSHAKE: _Api(0, 1, _NEVER),
    ApiKey.API_VERSIONS: _Api(0, 4, 3),
    ApiKey.CREATE_TOPICS: _Api(2, 7, 5),
    ApiKey.DELETE_TOPICS: _Api(1, 6, 4),
    ApiKey.DELETE_RECORDS: _Api(0, 2, 2),
    ApiKey.INIT_PRODUCER_ID: _Api(0, 5, 2),
    ApiKey.OFFSET_FOR_LEADER_EPOCH: _Api(2, 4, 4),
    ApiKey.ADD_PARTITIONS_TO_TXN: _Api(0, 5, 3),
    ApiKey.ADD_OFFSETS_TO_TXN: _Api(0, 4, 3),
    ApiKey.END_TXN: _Api(0, 5, 3),
    ApiKey.WRITE_TXN_MARKERS: _Api(1, 2, 1),
    ApiKey.TXN_OFFSET_COMMIT: _Api(0, 5, 3),
    ApiKey.DESCRIBE_ACLS: _Api(1, 3, 2),
    ApiKey.CREATE_ACLS: _Api(1, 3, 2),
    ApiKey.DELETE_ACLS: _Api(1, 3, 2),
    ApiKey.DESCRIBE_CONFIGS: _Api(1, 4, 4),
    ApiKey.ALTER_CONFIGS: _Api(0, 2, 2),
    ApiKey.ALTER_REPLICA_LOG_DIRS: _Api(1, 2, 2),
    ApiKey.DESCRIBE_LOG_DIRS: _Api(1, 5, 2),
    ApiKey.SASL_AUTHENTICATE: _Api(0, 2, 2),
    ApiKey.CREATE_PARTITIONS: _Api(0, 3, 2),
    ApiKey.DELETE_GROUPS: _Api(0, 2, 2),
    ApiKey.ELECT_LEADERS: _Api(0, 2, 2),
    ApiKey.INCREMENTAL_ALTER_CONFIGS: _Api(0, 1, 1),
    ApiKey.ALTER_PARTITION_REASSIGNMENTS: _Api(0, 1, 0),
    ApiKey.LIST_PARTITION_REASSIGNMENTS: _Api(0, 0, 0),
    ApiKey.OFFSET_DELETE: _Api(0, 0, _NEVER),
    ApiKey.DESCRIBE_CLIENT_QUOTAS: _Api(0, 1, 1),
    ApiKey.ALTER_CLIENT_QUOTAS: _Api(0, 1, 1),
    ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS: _Api(0, 0, 0),
    ApiKey.ALTER_USER_SCRAM_CREDENTIALS: _Api(0, 0, 0),
    ApiKey.DESCRIBE_QUORUM: _Api(0, 2, 0),
    ApiKey.UPDATE_FEATURES: _Api(0, 2, 0),
    ApiKey.DESCRIBE_CLUSTER: _Api(0, 2, 0),
    ApiKey.DESCRIBE_PRODUCERS: _Api(0, 0, 0),
    ApiKey.DESCRIBE_TRANSACTIONS: _Api(0, 0, 0),
    ApiKey.LIST_TRANSACTIONS: _Api(0, 2, 0),
    ApiKey.CONSUMER_GROUP_HEARTBEAT: _Api(0, 1, 0),
    ApiKey.CONSUMER_GROUP_DESCRIBE: _Api(0, 1, 0),
    ApiKey.LIST_CONFIG_RESOURCES: _Api(0, 1, 0),
    ApiKey.DESCRIBE_TOPIC_PARTITIONS: _Api(0, 0, 0),
}

_APIS.update((key, _Api(first, last, 0)) for key, (first, last) in API_VERSIONS.items())

#: An API of Kafka's or of ours.
AnyApiKey = ApiKey | PrivateApiKey
#: API key -> API, Kafka's and kohort's own.
_KEYS: Final[dict[int, AnyApiKey]] = {int(key): key for key in (*ApiKey, *PrivateApiKey)}

#: First and last version of Kafka's APIs that kohort encodes and decodes. The announced ones may differ: see
#: `apis/api_versions.py`.
VERSIONS: Final[dict[ApiKey, tuple[int, int]]] = {key: (_APIS[key].first, _APIS[key].last) for key in ApiKey}
#: APIs that kohort's broker does not serve: those that its clients use with other brokers.
UNSERVED: Final[frozenset[int]] = frozenset({ApiKey.ALTER_REPLICA_LOG_DIRS, ApiKey.UPDATE_FEATURES})
#: The APIs that kohort's broker serves, with their versions.
SERVED: Final[dict[ApiKey, tuple[int, int]]] = {key: VERSIONS[key] for key in ApiKey if key not in UNSERVED}


def api_key_of(number: int) -> AnyApiKey | None:
    """Return the API with this number; `None` if it is unknown."""
    return _KEYS.get(number)


def versions_of(key: AnyApiKey) -> tuple[int, int]:
    """Return the first and last version of an API that kohort encodes and decodes."""
    return _APIS[key].first, _APIS[key].last


@cache
def request_class(key: AnyApiKey) -> type[Any]:
    """Return the class of an API's requests; its module is imported at the first call."""
    return _declared(key, "Request")


@cache
def response_class(key: AnyApiKey) -> type[Any]:
    """Return the class of an API's responses; its module is imported at the first call."""
    return _declared(key, "Response")


def _declared(key: AnyApiKey, suffix: str) -> type[Message]:
    known = _KEYS.get(key)
    if known is None:
        raise ValueError(f"{key} is no API of Kafka's or of ours")
    words = known.name.lower()
    module = import_module(f"kohort.wire.messages.{words}")
    found: type[Message] = getattr(module, "".join(word.capitalize() for word in words.split("_")) + suffix)
    return found


def is_flexible(key: AnyApiKey, version: int) -> bool:
    """Return whether the API's messages have compact lengths and tagged sections in `version`."""
    return version >= _APIS[key].flexible_since


def request_header_version(key: AnyApiKey, version: int) -> int:
    """Return the version of `RequestHeader` of such a request."""
    # Version 0 of the header has no client id; no API of today uses it.
    return 2 if version >= _APIS[key].flexible_since else 1


def response_header_version(key: AnyApiKey, version: int) -> int:
    """Return the version of `ResponseHeader` of such a response.

    Source: KIP-511: a client that asked for too new a version of ApiVersions must be able to read the response.
    """
    # KIP-511: the header of ApiVersions stays at 0, so that any client can read the refusal.
    return 1 if version >= _APIS[key].flexible_since and key != ApiKey.API_VERSIONS else 0


def negotiate(key: AnyApiKey, theirs_min: int, theirs_max: int, ours_max: int | None = None) -> int | None:
    """Return the newest version that both sides have; `None` if there is none.

    Args:
        key: the API.
        theirs_min: oldest version that the peer has.
        theirs_max: newest version that the peer has.
        ours_max: the newest version to use; `None` means the newest one that kohort has.
    """
    first, last = versions_of(key)
    if ours_max is not None:
        last = min(last, ours_max)
    agreed = min(last, theirs_max)
    return agreed if agreed >= max(first, theirs_min) else None


# The headers of requests and responses.
#
# Request header: version 1 has the client id, version 2 is flexible (KIP-482); Kafka 4.0 has removed version 0.
# Response header: version 1 is flexible. Responses of ApiVersions always have version 0, so that a client that asks for
# too new a version can read the response (KIP-511).
#
# The client id keeps its int16 length in version 2, because a server reads it before it knows the API.


@message(kind="header", versions="1-2", flexible="2+")
class RequestHeader(Message):
    """The API and version of a request, and the correlation id for its response."""

    request_api_key: int = field(INT16)
    request_api_version: int = field(INT16)
    correlation_id: int = field(INT32)
    client_id: str | None = field(STRING, nullable=1, compact=False)


@message(kind="header", versions="0-1", flexible="1+")
class ResponseHeader(Message):
    """The correlation id of the request to which the response belongs."""

    correlation_id: int = field(INT32)
