"""The names of configs that kohort has and Kafka does not, as docs/reference/private-protocol.md lists them."""

from __future__ import annotations

from typing import Final

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
    "group.ownership.enforce",
    "group.ownership.refusal",
    "group.ownership.lease.ms",
    "group.liveness",
    "group.static.fallback",
)
#: Configs of groups that have no option of the broker.
OF_GROUPS_ALONE: Final = ("group.rebalance.token",)
#: Configs of a topic that Kafka does not have.
TOPIC_CONFIGS: Final = ("kohort.read.members.only",)
#: Options of the broker that Kafka's does not have.
BROKER_CONFIGS: Final = (
    "allow.anonymous.beyond.loopback",
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
    "group.liveness",
    "group.ownership.enforce",
    "group.ownership.lease.ms",
    "group.ownership.refusal",
    "group.push.clients",
    "group.push.enable",
    "group.push.join.hold.ms",
    "group.registration.timeout.ms",
    "group.static.fallback",
    "http.listen",
    "journal.ring.rows",
    "journal.topic.enable",
    "journal.topic.retention.bytes",
    "journal.topic.retention.ms",
    "log.scrub.bytes.per.second",
    "max.groups",
    "max.partitions",
    "max.topics",
    "max.transaction.partitions",
    "max.transaction.waiting.requests",
    "max.transactional.ids",
    "memory.limit.bytes",
    "sasl.capability.tokens.enable",
    "sasl.failures.per.second.per.ip",
    "sasl.login.timeout.ms",
    "sasl.oauthbearer.required.scope",
    "sasl.plain.users.file",
    "ssl.handshake.timeout.ms",
    "ssl.handshakes.max",
    "ssl.handshakes.max.per.ip",
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
