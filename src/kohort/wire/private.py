"""The one registry of kohort's own numbers and names: on the wire, in group logs, among the configs.

Laws: an entry is never given another meaning and never taken out, only marked as past; stock clients and Apache Kafka
must be able to ignore every one of them. API keys are above 10,000, record types of `__consumer_offsets` from 20,000
on, tagged fields, which stand where their messages are declared, from 10,000 on, so that no number that Kafka may give
out is taken. API keys of ours are announced only to clients that name their software "kohort".
Source: docs/reference/private-protocol.md says what each entry is for; a test holds the two together.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Final

#: The lowest numbers that entries may have.
FIRST_API_KEY: Final = 10_001
FIRST_TAG: Final = 10_000
FIRST_RECORD_TYPE: Final = 20_000

#: The software name in ApiVersions (KIP-511) of clients that are told of kohort's own API keys.
SOFTWARE_NAME: Final = "kohort"


class PrivateApiKey(IntEnum):
    """kohort's own APIs; messages are found by the name, as those of `ApiKey`: `wire/messages/<name>.py`."""

    GROUP_HISTORY = 10_001
    SUBMIT_MOVES = 10_002
    DESCRIBE_MOVES = 10_003
    DESCRIBE_BROKER = 10_004
    CONSUMER_GROUP_PREPARE_ASSIGNMENT = 10_005
    CONSUMER_GROUP_INSTALL_ASSIGNMENT = 10_006


#: API key → first and last version; every version is flexible.
API_VERSIONS: Final[dict[int, tuple[int, int]]] = {
    PrivateApiKey.GROUP_HISTORY: (0, 1),
    PrivateApiKey.SUBMIT_MOVES: (0, 0),
    PrivateApiKey.DESCRIBE_MOVES: (0, 0),
    PrivateApiKey.DESCRIBE_BROKER: (0, 0),
    PrivateApiKey.CONSUMER_GROUP_PREPARE_ASSIGNMENT: (0, 0),
    PrivateApiKey.CONSUMER_GROUP_INSTALL_ASSIGNMENT: (0, 0),
}
#: Type in the key of a record of `__consumer_offsets` → first words of the names of its key and value.
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
#: First sentence of a config's documentation in DescribeConfigs where its value changes nothing: it will one day, or
#: it never has to. The rest is the documentation that other values have.
NOT_YET: Final = "not acted on yet"
NO_EFFECT: Final = "without effect here"
#: Configs of a group that Kafka does not have; the broker has an option of each name for all other groups, but for
#: those of `OF_GROUPS_ALONE`.
GROUP_CONFIGS: Final = (
    "group.disconnect.grace.ms",
    "group.assignor",
    "group.consumer.assignor.mismatch",
    "group.assignor.max.moves",
    "group.assignor.imbalance",
    "group.moves.per.second",
    "group.moves.burst",
    "group.moves.paused",
    "group.moves.order",
    "group.initial.rebalance.delay.ms",
    "group.membership",
    "group.registration.timeout.ms",
    "group.expansion.timeout.ms",
    "group.rebalance.token",
    "group.static.fallback",
)
#: Configs of groups that have no option of the broker.
OF_GROUPS_ALONE: Final = ("group.rebalance.token",)
#: Options of the broker that Kafka's does not have.
BROKER_CONFIGS: Final = (
    "auto.create.topics.per.minute",
    "cluster.id",
    "group.assignor",
    "group.assignor.imbalance",
    "group.assignor.max.moves",
    "group.consumer.assignment.window.max.ms",
    "group.consumer.assignment.window.ms",
    "group.consumer.assignor.mismatch",
    "group.consumer.assignor.timeout.ms",
    "group.consumer.rebalance.heartbeat.interval.ms",
    "group.disconnect.grace.ms",
    "group.expansion.timeout.ms",
    "group.heartbeat.rate.max",
    "group.max.expansion.timeout.ms",
    "group.max.registration.timeout.ms",
    "group.membership",
    "group.min.expansion.timeout.ms",
    "group.min.registration.timeout.ms",
    "group.moves.burst",
    "group.moves.order",
    "group.moves.paused",
    "group.moves.per.second",
    "group.push.clients",
    "group.push.enable",
    "group.push.join.hold.ms",
    "group.registration.timeout.ms",
    "group.static.fallback",
    "journal.ring.rows",
    "journal.topic.enable",
    "journal.topic.retention.bytes",
    "journal.topic.retention.ms",
    "log.scrub.bytes.per.second",
    "max.groups",
    "max.partitions",
    "max.topics",
    "memory.limit.bytes",
)
#: Options of every client that Kafka's do not have.
CLIENT_CONFIGS: Final = (
    "ssl.context",
    "ssl.ca.location",
    "ssl.certificate.location",
    "ssl.key.location",
    "ssl.crl.location",
    "enable.ssl.certificate.verification",
    "sasl.username",
    "sasl.password",
    "sasl.oauth.token.provider",
)
#: Options of consumers that Kafka's do not have; admins have none.
CONSUMER_CONFIGS: Final = (
    "fetch.buffer.bytes",
    "fetch.carries.membership",
    "revocation.timeout.policy",
    "consumer.timeout.ms",
    "group.local.assignors",
    "enable.auto.offset.store",
    "on.corrupt.records",
    "registration.timeout.ms",
    "expansion.timeout.ms",
    *CLIENT_CONFIGS,
)
#: Options of producers that Kafka's do not have.
PRODUCER_CONFIGS: Final = ("partitioner", *CLIENT_CONFIGS)


def idle_documentation(words: str, documentation: str) -> str:
    """Return the documentation of a config without effect; `words` is `NOT_YET` or `NO_EFFECT`."""
    return f"{words.capitalize()}. {documentation}"


def idle_words_in(documentation: str | None) -> str | None:
    """Return the words by which a documentation says that a value has no effect; `None` if it does not."""
    said = (documentation or "").partition(". ")[0].lower()
    return said if said in (NOT_YET, NO_EFFECT) else None
