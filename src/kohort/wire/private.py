"""The only registry of kohort's own numbers and names, in the protocol and in group logs.

Laws: an entry never gets another meaning and is never removed, only marked as obsolete; other clients and Apache Kafka
must be able to ignore every one of them. API keys are above 10,000, record types of `__consumer_offsets` from 20,000
on, tagged fields, which are declared with their messages, from 10,000 on, so that Kafka will hardly use these numbers.
kohort's API keys are announced only to clients that name their software "kohort".
Source: docs/reference/private-protocol.md describes the purpose of each entry, and kohort's own configs; tests compare
both.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Final

#: The lowest numbers that entries may have.
FIRST_API_KEY: Final = 10_001
FIRST_TAG: Final = 10_000
FIRST_RECORD_TYPE: Final = 20_000

#: The software name in ApiVersions (KIP-511) of clients to which kohort's own API keys are announced.
SOFTWARE_NAME: Final = "kohort"


class PrivateApiKey(IntEnum):
    """kohort's own APIs, whose messages are in `wire/messages/<name>.py`, as those of `ApiKey`."""

    GROUP_HISTORY = 10_001
    SUBMIT_MOVES = 10_002
    DESCRIBE_MOVES = 10_003
    DESCRIBE_BROKER = 10_004
    CONSUMER_GROUP_PREPARE_ASSIGNMENT = 10_005
    CONSUMER_GROUP_INSTALL_ASSIGNMENT = 10_006
    REVOKE_TOKENS = 10_007
    DESCRIBE_TOKENS = 10_008


#: API key → first and last version; every version is flexible.
API_VERSIONS: Final[dict[int, tuple[int, int]]] = {
    PrivateApiKey.GROUP_HISTORY: (0, 2),
    PrivateApiKey.SUBMIT_MOVES: (0, 0),
    PrivateApiKey.DESCRIBE_MOVES: (0, 0),
    PrivateApiKey.DESCRIBE_BROKER: (0, 0),
    PrivateApiKey.CONSUMER_GROUP_PREPARE_ASSIGNMENT: (0, 0),
    PrivateApiKey.CONSUMER_GROUP_INSTALL_ASSIGNMENT: (0, 0),
    PrivateApiKey.REVOKE_TOKENS: (0, 0),
    PrivateApiKey.DESCRIBE_TOKENS: (0, 0),
}
#: Type in the key of a record of `__consumer_offsets` → first part of the class names of its key and value.
RECORD_TYPES: Final[dict[int, str]] = {
    20_001: "GroupConfigs",
    20_002: "SubmittedMove",
    20_003: "OfflineMember",
    20_004: "StaticClock",
    20_005: "ClassicRebalance",
    20_006: "ClientAssignors",
    20_007: "ClientAssignment",
    20_008: "MemberMetadata",
}
#: First sentence of a config's documentation in DescribeConfigs if its value has no effect: not yet, or never. The
#: rest is the documentation as for values with an effect.
NOT_YET: Final = "not acted on yet"
NO_EFFECT: Final = "without effect here"


def idle_documentation(words: str, documentation: str) -> str:
    """Return the documentation of a config without effect; `words` is `NOT_YET` or `NO_EFFECT`."""
    return f"{words.capitalize()}. {documentation}"


def idle_words_in(documentation: str | None) -> str | None:
    """Return the first sentence if it says that a value has no effect (`NOT_YET`, `NO_EFFECT`), or `None`."""
    said = (documentation or "").partition(". ")[0].lower()
    return said if said in (NOT_YET, NO_EFFECT) else None
