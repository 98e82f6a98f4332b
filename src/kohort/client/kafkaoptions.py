"""Options of Kafka's clients that kohort's lack, with what to do instead.

Laws: the error for one of them says why, and never names the nearest option, which means something else.
Source: every option of Apache Kafka 4.3's clients, kafka-python 3.0, aiokafka 0.14 and librdkafka 2.16 with its Python
package confluent-kafka; held by a test.
"""

from __future__ import annotations

from typing import Final

from kohort.base.options import Unserved, Verdict

_NEEDLESS: Final = Verdict.NOT_NEEDED
_LATER: Final = Verdict.NOT_YET
_CALLED: Final = Verdict.CALLED

_CONNECTIONS: Final = (
    Unserved(
        "ssl.protocol ssl.enabled.protocols ssl.provider ssl.curves.list ssl.sigalgs.list ssl.engine.* ssl.engines.* "
        "ssl.providers ssl.keymanager.algorithm ssl.trustmanager.algorithm ssl.secure.random.implementation "
        "ssl.ca.certificate.stores ssl.crypto.*",
        _NEEDLESS,
        "Python's ssl module chooses; give an ssl.SSLContext as ssl.context to choose yourself",
    ),
    Unserved("ssl.truststore.password", _NEEDLESS, "certificates in PEM are no secret"),
    Unserved("ssl.certificate", _CALLED, "ssl.certificate.location"),
    Unserved("ssl.key", _CALLED, "ssl.key.location"),
    Unserved("ssl.ca", _CALLED, "ssl.ca.location"),
    Unserved("security.providers", _NEEDLESS, "it names Java classes"),
    Unserved("sasl.kerberos.*", _LATER, "Kerberos is not spoken: use SCRAM-SHA-512, PLAIN or OAUTHBEARER"),
    Unserved(
        "sasl.oauthbearer.* oauthbearer.* enable.sasl.oauthbearer.unsecure.jwt sasl.oauth.* sasl.oauth.config "
        "sasl.login.* sasl.client.callback.handler.class https.*",
        _LATER,
        "give a function that returns a token as sasl.oauth.token.provider",
    ),
    Unserved("proxy.url socks5.proxy", _LATER, "connections are made without a proxy"),
    Unserved("metadata.broker.list", _CALLED, "bootstrap.servers"),
    Unserved("bootstrap.controllers", _NEEDLESS, "brokers answer everything; name them in bootstrap.servers"),
    Unserved("socket.timeout.ms", _CALLED, "request.timeout.ms"),
    Unserved("socket.send.buffer.bytes", _CALLED, "send.buffer.bytes"),
    Unserved("socket.receive.buffer.bytes", _CALLED, "receive.buffer.bytes"),
    Unserved(
        "socket.connection.setup.timeout.max.ms", _NEEDLESS, "every attempt may take socket.connection.setup.timeout.ms"
    ),
    Unserved("topic.metadata.refresh.interval.ms", _CALLED, "metadata.max.age.ms"),
    Unserved(
        "topic.metadata.* topic.blacklist coordinator.query.interval.ms metadata.max.idle.ms",
        _NEEDLESS,
        "topics and coordinators are looked up when they are needed, and again when they have moved",
    ),
    Unserved("metadata.recovery.*", _NEEDLESS, "bootstrap.servers are asked whenever no other broker answers"),
    Unserved(
        "client.dns.lookup broker.address.* socket.nagle.disable socket.max.fails "
        "socket.blocking.max.ms socket.options selector reconnect.backoff.jitter.ms",
        _NEEDLESS,
        "every address of a name is tried, and a connection that is lost is made again",
    ),
    Unserved("socket.keepalive.enable", _NEEDLESS, "request.timeout.ms and heartbeats notice a broker that is gone"),
    Unserved("connections.max.idle.ms", _LATER, "connections stay open as long as the client"),
    Unserved(
        "api.version* broker.version.fallback builtin.features", _NEEDLESS, "versions are agreed with each broker"
    ),
    Unserved("receive.message.max.bytes", _NEEDLESS, "an answer may be as long as what was asked for"),
)
_PROGRAM: Final = (
    Unserved(
        "metric.* metrics.* enable.metrics.push statistics.interval.ms stats.cb",
        _LATER,
        "the client publishes no metrics; its metrics() tells them",
    ),
    Unserved(
        "log.level log.cb log.queue log.* logger debug", _NEEDLESS, "it logs as kohort.client to Python's logging"
    ),
    Unserved("interceptor.classes interceptors plugin.library.paths", _LATER, "wrap the calls instead"),
    Unserved("config.providers*", _NEEDLESS, "a value is what you give; read it from where it is kept"),
    Unserved("error.cb throttle.cb", _NEEDLESS, "calls raise what went wrong, and the rest is logged"),
    Unserved(
        "loop kafka.client opaque enabled.events background.event.cb socket.cb connect.cb closesocket.cb open.cb "
        "resolve.cb internal.termination.signal enable.random.seed default.topic.conf* default.topic.config",
        _NEEDLESS,
        "the client has a thread of its own, and the calls are the way to it",
    ),
    Unserved("transaction.*", _LATER, "a transaction is not prepared for the commit of another system (KIP-939)"),
)
_BOOTSTRAP: Final = (Unserved("bootstrap.timeout.ms", _CALLED, "default.api.timeout.ms"),)
_CONSUMER: Final = (
    *_BOOTSTRAP,
    Unserved("rebalance.timeout.ms", _CALLED, "max.poll.interval.ms"),
    Unserved("enable.partition.eof", _LATER, "compare position() with end_offsets()"),
    Unserved("auto.offset.store", _CALLED, "enable.auto.offset.store"),
    Unserved("offset.store.*", _NEEDLESS, "offsets are kept by the group; keep them yourself with assign and seek"),
    Unserved("auto.commit.enable", _CALLED, "enable.auto.commit"),
    Unserved("offset.commit.cb on.commit default.offset.commit.callback", _NEEDLESS, "commit_async takes a callback"),
    Unserved("rebalance.cb", _NEEDLESS, "subscribe takes on_assigned, on_revoked and on_lost"),
    Unserved("consume.cb consume.callback.max.messages", _NEEDLESS, "poll returns records"),
    Unserved("topics", _NEEDLESS, "call subscribe"),
    Unserved("exclude.internal.topics", _NEEDLESS, "a topic is read if it is named"),
    Unserved("group.protocol.type", _NEEDLESS, "it is always consumer"),
    Unserved("queued.max.messages.kbytes", _CALLED, "fetch.buffer.bytes"),
    Unserved("queued.min.messages", _NEEDLESS, "fetch.buffer.bytes bounds what is fetched ahead"),
    Unserved("fetch.wait.max.ms", _CALLED, "fetch.max.wait.ms"),
    Unserved("fetch.message.max.bytes", _CALLED, "max.partition.fetch.bytes"),
    Unserved("fetch.error.backoff.ms fetch.queue.backoff.ms", _CALLED, "retry.backoff.ms"),
    Unserved("enable.incremental.fetch.sessions", _NEEDLESS, "every Fetch names its partitions"),
    Unserved("share.*", _LATER, "there are no share groups"),
)
_PRODUCER: Final = (
    Unserved(
        "default.api.timeout.ms bootstrap.timeout.ms",
        _NEEDLESS,
        "max.block.ms bounds send and delivery.timeout.ms a record; flush and close take a timeout",
    ),
    Unserved("partitioner.class", _CALLED, "partitioner"),
    Unserved(
        "partitioner.* sticky.partitioning.linger.ms msg.order.cmp",
        _LATER,
        "partitioner chooses a rule, or is a function of yours",
    ),
    Unserved("compression.codec", _CALLED, "compression.type"),
    Unserved(
        "compression.level compression.*",
        _NEEDLESS,
        "each codec has an option for its level: compression.gzip.level, compression.lz4.level, compression.zstd.level",
    ),
    Unserved("queue.buffering.max.ms", _CALLED, "linger.ms"),
    Unserved("queue.buffering.max.kbytes", _CALLED, "buffer.memory"),
    Unserved("queue.buffering.*", _NEEDLESS, "buffer.memory bounds what waits"),
    Unserved("max.batch.size", _CALLED, "batch.size"),
    Unserved("batch.num.messages", _NEEDLESS, "batch.size bounds a batch"),
    Unserved("message.max.bytes", _CALLED, "max.request.size"),
    Unserved("message.copy.max.bytes queuing.strategy produce.offset.report", _NEEDLESS, "the client decides"),
    Unserved("message.send.max.retries", _CALLED, "retries"),
    Unserved("message.timeout.ms", _CALLED, "delivery.timeout.ms"),
    Unserved("request.required.acks", _CALLED, "acks"),
    Unserved("max.in.flight", _CALLED, "max.in.flight.requests.per.connection"),
    Unserved(
        "on.delivery delivery.report.only.error dr.cb dr.msg.cb",
        _NEEDLESS,
        "send and produce take on_delivery, and send returns a future",
    ),
    Unserved("enable.gapless.guarantee", _NEEDLESS, "enable.idempotence keeps the order"),
    Unserved("allow.auto.create.topics", _LATER, "the broker's auto.create.topics.enable decides"),
)


def _concerning(whom: str, rows: tuple[Unserved, ...], *, but_for: tuple[Unserved, ...] = ()) -> tuple[Unserved, ...]:
    """Return the options of other clients as needless here, except for those with an answer of their own."""
    answered = {name for row in but_for for name in row.names.split()}
    left = " ".join(name for row in rows for name in row.names.split() if name not in answered)
    return (Unserved(left, _NEEDLESS, f"it concerns {whom}"),)


#: For consumers, for producers, and for administration clients, which have none of their own.
FOR_CONSUMERS: Final = (*_CONNECTIONS, *_PROGRAM, *_CONSUMER, *_concerning("producers", _PRODUCER, but_for=_CONSUMER))
FOR_PRODUCERS: Final = (*_CONNECTIONS, *_PROGRAM, *_PRODUCER, *_concerning("consumers", _CONSUMER, but_for=_PRODUCER))
FOR_ADMINS: Final = (
    *_CONNECTIONS,
    *_PROGRAM,
    *_BOOTSTRAP,
    *_concerning("producers", _PRODUCER, but_for=_BOOTSTRAP),
    *_concerning("consumers", _CONSUMER, but_for=_PRODUCER),
)
