"""The limits of one request, in bytes and in rows (array elements).

Laws: a request with too many bytes, or with more rows than any client needs, closes its connection. All other requests
would have to wait for it otherwise.
Source: requirement B4 (bounded memory under hostile input).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from kohort.errors import RemoteProtocolError
from kohort.wire.codec import bounded_decoder
from kohort.wire.private import PrivateApiKey
from kohort.wire.registry import AnyApiKey, ApiKey, request_class

#: (buffer, position) -> (request, position behind it).
Decoder = Callable[[Any, int], tuple[Any, int]]

#: Longest request, in bytes, without records or a leader's assignments for a whole group. A decoded request may take
#: fifty times as much memory.
MOST_ORDINARY_BYTES: Final = 16 * 1024 * 1024
#: Longest request of an API whose rows are many small ones, in bytes.
MOST_BYTES_OF: Final[dict[AnyApiKey, int]] = {
    ApiKey.API_VERSIONS: 64 * 1024,
    ApiKey.LIST_GROUPS: 64 * 1024,
    ApiKey.LIST_TRANSACTIONS: 64 * 1024,
    ApiKey.DESCRIBE_TRANSACTIONS: 1024 * 1024,
    ApiKey.LIST_CONFIG_RESOURCES: 64 * 1024,
    ApiKey.FIND_COORDINATOR: 1024 * 1024,
    ApiKey.DESCRIBE_GROUPS: 1024 * 1024,
    ApiKey.CONSUMER_GROUP_DESCRIBE: 1024 * 1024,
    ApiKey.DELETE_GROUPS: 1024 * 1024,
    ApiKey.CONSUMER_GROUP_HEARTBEAT: 2 * 1024 * 1024,
    ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS: 1024 * 1024,
    ApiKey.ALTER_USER_SCRAM_CREDENTIALS: 1024 * 1024,
    PrivateApiKey.SUBMIT_MOVES: 2 * 1024 * 1024,
}
#: Rows of all arrays of one request together, by default: partitions of a commit, members of a group.
MOST_ROWS: Final = 25_000
#: API -> rows of one request, if processing a row takes more work than decoding it, or a request needs more rows.
MOST_ROWS_OF: Final[dict[AnyApiKey, int]] = {
    ApiKey.PRODUCE: 10_000,
    ApiKey.JOIN_GROUP: 2_000,
    # Partitions are plain numbers here, and too many of them are refused with an error code of the protocol.
    ApiKey.CONSUMER_GROUP_HEARTBEAT: 50_000,
    ApiKey.LEAVE_GROUP: 10_000,
    # Apache Kafka accepts 10,000 records at once: as many topics if each has one partition.
    ApiKey.CREATE_TOPICS: 5_000,
    ApiKey.DELETE_TOPICS: 10_000,
    ApiKey.CREATE_PARTITIONS: 5_000,
    # Apache Kafka changes 10,000 entries at once; up to 12,000 are refused with its error code.
    ApiKey.CREATE_ACLS: 12_000,
    ApiKey.DELETE_ACLS: 12_000,
    ApiKey.DESCRIBE_CONFIGS: 10_000,
    ApiKey.ALTER_CONFIGS: 10_000,
    ApiKey.INCREMENTAL_ALTER_CONFIGS: 10_000,
    # Apache Kafka changes no more limits at once.
    ApiKey.ALTER_CLIENT_QUOTAS: 10_000,
    ApiKey.ALTER_PARTITION_REASSIGNMENTS: 10_000,
    ApiKey.DESCRIBE_QUORUM: 2_000,
    # Two hashes are made for each.
    ApiKey.ALTER_USER_SCRAM_CREDENTIALS: 1_000,
}
#: APIs with records or with assignments of a whole group.
_LONG_REQUESTS: Final = frozenset({ApiKey.PRODUCE, ApiKey.SYNC_GROUP})
#: Groups or members that one request may name.
MOST_NAMED: Final = 20_000
#: Partitions that one request about offsets may name; Kafka's coordinator writes half as many in one batch of its log.
MOST_PARTITIONS: Final = 20_000
#: Topics that a fetch may name without a partition, which no client does.
MOST_EMPTY: Final = 5_000
#: The most partitions that one ElectLeaders or WriteTxnMarkers request may name: each is work for its leader.
MOST_LED: Final = 5_000


def check_length(api_key: int, size: int) -> None:
    """Raise `RemoteProtocolError` if a request of an API has too many bytes.

    >>> check_length(ApiKey.PRODUCE, 50 << 20)
    >>> check_length(ApiKey.LIST_GROUPS, 50 << 20)
    Traceback (most recent call last):
    kohort.errors.RemoteProtocolError: 52428800 bytes of a request of API 16; 16777216 are allowed
    """
    if size > MOST_ORDINARY_BYTES and api_key not in _LONG_REQUESTS:
        raise RemoteProtocolError(f"{size} bytes of a request of API {api_key}; {MOST_ORDINARY_BYTES} are allowed")


def bounded_decode(api_key: AnyApiKey, version: int) -> Decoder:
    """Return the decoder of an API's requests, which enforces the API's limits of rows and bytes."""
    decode = bounded_decoder(request_class(api_key), version, MOST_ROWS_OF.get(api_key, MOST_ROWS))
    most = MOST_BYTES_OF.get(api_key)
    if most is None:
        return decode

    def decode_bounded(frame: memoryview, position: int) -> tuple[Any, int]:
        if len(frame) > most:
            raise RemoteProtocolError(f"{len(frame)} bytes of a request of API {api_key:d}; {most} are allowed")
        return decode(frame, position)

    return decode_bounded


def check_rows(count: int, most: int, what: str) -> None:
    """Raise `RemoteProtocolError` if `count` is above `most`; the message names the rows as `what`."""
    if count > most:
        raise RemoteProtocolError(f"a request with {count} {what}; {most} are allowed")
