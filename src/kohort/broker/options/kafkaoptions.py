"""Options of Apache Kafka's broker that this broker does not have, each with the reason.

Laws: the error for such an option gives the reason, and never suggests a similar name of another meaning. In a file
that was written for Apache Kafka (`fileoptions.py`) these options are ignored, unless that would break a promise.
Source: every option of Apache Kafka 4.3's broker, held by a test; options of older brokers that files still have.
"""

from __future__ import annotations

from typing import Final

from kohort.base.options import Unserved, Verdict

#: Shorter names of the verdicts below.
_NEEDLESS: Final = Verdict.NOT_NEEDED
_LATER: Final = Verdict.NOT_YET
_REFUSED: Final = Verdict.REFUSED
_CALLED: Final = Verdict.CALLED

#: Options of clusters of several brokers.
_CLUSTER: Final = (
    Unserved(
        "process.roles controller.* metadata.* early.start.listeners initial.broker.registration.timeout.ms "
        "broker.heartbeat.interval.ms broker.session.timeout.ms",
        _NEEDLESS,
        "one process is broker and controller",
    ),
    Unserved("zookeeper.*", _NEEDLESS, "topics are kept in the data directory"),
    Unserved(
        "security.inter.broker.protocol control.plane.listener.name "
        "sasl.mechanism.inter.broker.protocol sasl.mechanism.controller.protocol",
        _NEEDLESS,
        "there is no other broker or controller to connect to",
    ),
    Unserved(
        "replica.* num.replica.* auto.leader.rebalance.enable leader.* follower.* replication.quota.* "
        "alter.log.dirs.* unclean.leader.election.enable broker.rack controlled.shutdown.* request.timeout.ms "
        "socket.connection.setup.* broker.id.generation.enable reserved.broker.max.id cordoned.log.dirs "
        "inter.broker.protocol.version",
        _NEEDLESS,
        "this cluster is one broker with one directory",
    ),
    Unserved("host.name port", _CALLED, "listeners"),
    Unserved("advertised.host.name advertised.port", _CALLED, "advertised.listeners"),
)
#: Options of threads, buffers and background work.
_MACHINERY: Final = (
    Unserved("num.network.threads num.io.threads background.threads", _NEEDLESS, "one loop serves every connection"),
    Unserved(
        "socket.send.buffer.bytes socket.receive.buffer.bytes", _NEEDLESS, "the system tunes the buffers of sockets"
    ),
    Unserved("num.recovery.threads.per.data.dir", _NEEDLESS, "a start reads one partition after the other"),
    Unserved(
        "group.coordinator.* offsets.load.buffer.size offsets.commit.timeout.ms offsets.topic.compression.codec",
        _NEEDLESS,
        "the coordinator works in the broker's loop, and serves both protocols of groups",
    ),
    Unserved(
        "fetch.purgatory.* producer.purgatory.* delete.records.purgatory.* share.fetch.purgatory.*",
        _NEEDLESS,
        "a waiting request is forgotten at once when the wait ends",
    ),
    Unserved(
        "log.flush.start.offset.checkpoint.interval.ms log.flush.scheduler.interval.ms log.dir.failure.timeout.ms",
        _NEEDLESS,
        "where a log begins is kept when it changes",
    ),
    Unserved("log.index.*", _NEEDLESS, "a topic's index.interval.bytes counts, and an index grows with its segment"),
    Unserved("log.preallocate", _NEEDLESS, "a file grows with what is written"),
    Unserved(
        "log.cleaner.enable log.cleaner.threads log.cleaner.io.*",
        _NEEDLESS,
        "what is to be compacted always is, by one thread",
    ),
    Unserved(
        "log.message.format.version log.message.downconversion.enable", _NEEDLESS, "Kafka 4.0 has taken it out, too"
    ),
    Unserved("confluent.*", _NEEDLESS, "it belongs to Confluent's distribution"),
)
#: Options of records and logs.
_RECORDS: Final = (
    Unserved("log.roll.jitter.*", _LATER, "segment.jitter.ms of a topic spreads its files"),
    Unserved("retention.ms", _CALLED, "log.retention.ms"),
    Unserved("retention.bytes", _CALLED, "log.retention.bytes"),
    Unserved("cleanup.policy", _CALLED, "log.cleanup.policy"),
    Unserved("segment.ms", _CALLED, "log.roll.ms"),
    Unserved("flush.ms", _CALLED, "log.flush.interval.ms"),
    Unserved("log.message.timestamp.difference.max.ms", _CALLED, "log.message.timestamp.before.max.ms"),
    Unserved("segment.bytes", _CALLED, "log.segment.bytes"),
    Unserved("max.message.bytes", _CALLED, "message.max.bytes"),
    Unserved("flush.messages", _CALLED, "log.flush.interval.messages"),
    Unserved("message.timestamp.type", _CALLED, "log.message.timestamp.type"),
    Unserved("remote.* log.local.*", _LATER, "there is no tiered storage"),
)
#: Options of features for clients.
_CLIENTS: Final = (
    Unserved("transaction.two.phase.commit.enable", _LATER, "a transaction is decided by its coordinator alone"),
    Unserved(
        "transaction.* transactional.* add.partitions.to.txn.*",
        _NEEDLESS,
        "the transaction coordinator works in the broker's loop, at once when something is due",
    ),
    Unserved("share.* group.share.*", _LATER, "there are no share groups"),
    Unserved("group.streams.*", _LATER, "there are no streams groups; Kafka Streams uses the classic protocol"),
    Unserved("quota.producer.default quota.consumer.default", _NEEDLESS, "Kafka 3.0 has taken it out, too"),
    Unserved(
        "metric.* metrics.* kafka.metrics.* telemetry.* auto.include.jmx.reporter",
        _LATER,
        "no metrics are published; kohort group describe and history tell how groups are",
    ),
    Unserved("config.providers*", _REFUSED, "a value is what stands in the file"),
)
#: Options of encryption, logins and rights.
_SECURITY: Final = (
    Unserved(
        "ssl.endpoint.identification.algorithm",
        _NEEDLESS,
        "a client checks the broker's name; a broker checks a client's certificate, not the host that it comes from",
    ),
    Unserved(
        "ssl.provider ssl.keymanager.algorithm ssl.trustmanager.algorithm ssl.secure.random.implementation",
        _NEEDLESS,
        "OpenSSL encrypts, and has nothing to choose here",
    ),
    Unserved(
        "ssl.allow.dn.changes ssl.allow.san.changes", _NEEDLESS, "a new certificate may have another name than the old"
    ),
    Unserved(
        "sasl.login.* sasl.oauthbearer.token.endpoint.url sasl.oauthbearer.client.* sasl.oauthbearer.assertion.* "
        "sasl.oauthbearer.scope sasl.oauthbearer.header.urlencode",
        _NEEDLESS,
        "it concerns a broker that logs in to another",
    ),
    Unserved("password.encoder.*", _NEEDLESS, "no password of the configuration is stored"),
    Unserved("sasl.kerberos.*", _REFUSED, "Kerberos (GSSAPI) is not spoken; SCRAM, PLAIN and OAUTHBEARER are"),
    Unserved("delegation.token.*", _REFUSED, "there are no delegation tokens; SCRAM users are made by kafka-configs"),
    Unserved(
        "create.topic.policy.class.name alter.config.policy.class.name principal.builder.class "
        "ssl.engine.factory.class security.providers client.quota.callback.class sasl.client.callback.handler.class "
        "sasl.server.callback.handler.class sasl.login.callback.handler.class sasl.login.class "
        "sasl.oauthbearer.jwt.retriever.class sasl.oauthbearer.jwt.validator.class",
        _REFUSED,
        "no classes of Java are loaded",
    ),
)

#: All options that only Apache Kafka has.
KAFKAS_OWN: Final = (*_CLUSTER, *_MACHINERY, *_RECORDS, *_CLIENTS, *_SECURITY)
