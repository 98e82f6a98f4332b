"""Options that Kafka or one of its clients has and we have not: each is answered with what is so instead.

That no option of Apache Kafka 4.3 is missing is asked of Apache Kafka itself, in tests/interop/test_option_defaults.py.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterable

import aiokafka
import kafka
import pytest

from kohort.base.options import OptionSet, Unserved, Verdict, as_keyword
from kohort.broker.options.kafkaoptions import KAFKAS_OWN
from kohort.broker.options.settings import BROKER_OPTIONS
from kohort.client.kafkaoptions import FOR_ADMINS, FOR_CONSUMERS, FOR_PRODUCERS
from kohort.client.options import ADMIN_OPTIONS, CONSUMER_OPTIONS, PRODUCER_OPTIONS
from kohort.errors import UnknownOptionError

TABLES = [
    (BROKER_OPTIONS, KAFKAS_OWN),
    (CONSUMER_OPTIONS, FOR_CONSUMERS),
    (PRODUCER_OPTIONS, FOR_PRODUCERS),
    (ADMIN_OPTIONS, FOR_ADMINS),
]

#: Options of librdkafka 2.16 that are not Kafka's as well.
LIBRDKAFKA = """
    builtin.features metadata.broker.list message.max.bytes message.copy.max.bytes receive.message.max.bytes
    max.in.flight topic.metadata.refresh.interval.ms topic.metadata.refresh.fast.interval.ms
    topic.metadata.refresh.fast.cnt topic.metadata.refresh.sparse topic.metadata.propagation.max.ms topic.blacklist
    debug socket.timeout.ms socket.blocking.max.ms socket.send.buffer.bytes socket.receive.buffer.bytes
    socket.keepalive.enable socket.nagle.disable socket.max.fails broker.address.ttl broker.address.family
    reconnect.backoff.jitter.ms statistics.interval.ms enabled_events error_cb throttle_cb stats_cb log_cb log_level
    log.queue log.thread.name enable.random.seed log.connection.close background_event_cb socket_cb connect_cb
    closesocket_cb open_cb resolve_cb opaque default_topic_conf internal.termination.signal api.version.request
    api.version.request.timeout.ms api.version.fallback.ms broker.version.fallback security.protocol
    ssl.curves.list ssl.sigalgs.list ssl.ca.location ssl.certificate.location enable.ssl.certificate.verification
    sasl.mechanisms sasl.username sasl.password enable.sasl.oauthbearer.unsecure.jwt oauth_cb plugin.library.paths
    interceptors client.dns.lookup enable.metrics.push metadata.recovery.strategy logger https.ca.location
"""
OF_CONSUMERS = """
    group.instance.id group.protocol.type coordinator.query.interval.ms auto.offset.store queued.min.messages
    queued.max.messages.kbytes fetch.wait.max.ms fetch.queue.backoff.ms fetch.message.max.bytes fetch.error.backoff.ms
    offset.store.method offset.store.path offset.store.sync.interval.ms consume_cb rebalance_cb offset_commit_cb
    on_commit enable.partition.eof auto.commit.enable consume.callback.max.messages
"""
OF_PRODUCERS = """
    transactional.id transaction.timeout.ms enable.gapless.guarantee queue.buffering.max.messages
    queue.buffering.max.kbytes queue.buffering.max.ms message.send.max.retries
    queue.buffering.backpressure.threshold compression.codec batch.num.messages delivery.report.only.error dr_cb
    dr_msg_cb on_delivery sticky.partitioning.linger.ms request.required.acks message.timeout.ms queuing.strategy
    produce.offset.report partitioner partitioner_cb msg_order_cmp compression.level
"""


def unexplained(options: OptionSet, names: Iterable[str]) -> set[str]:
    """Names that are neither options nor answered with a reason."""
    return {name for name in names if name not in options and options.unserved(name) is None}


def parameters_of(function: object) -> set[str]:
    return set(inspect.signature(function).parameters) - {"self"}  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("options", "names"),
    [
        (CONSUMER_OPTIONS, (LIBRDKAFKA + OF_CONSUMERS + OF_PRODUCERS).split()),
        (PRODUCER_OPTIONS, (LIBRDKAFKA + OF_CONSUMERS + OF_PRODUCERS).split()),
        (ADMIN_OPTIONS, (LIBRDKAFKA + OF_CONSUMERS + OF_PRODUCERS).split()),
        (CONSUMER_OPTIONS, kafka.KafkaConsumer.DEFAULT_CONFIG),
        (PRODUCER_OPTIONS, kafka.KafkaProducer.DEFAULT_CONFIG),
        (ADMIN_OPTIONS, kafka.KafkaAdminClient.DEFAULT_CONFIG),
        (CONSUMER_OPTIONS, parameters_of(aiokafka.AIOKafkaConsumer.__init__)),
        (PRODUCER_OPTIONS, parameters_of(aiokafka.AIOKafkaProducer.__init__)),
    ],
)
def test_every_option_of_another_client_is_known(options: OptionSet, names: Iterable[str]) -> None:
    assert unexplained(options, names) == set()


@pytest.mark.parametrize(
    ("options", "name", "message"),
    [
        (
            BROKER_OPTIONS,
            "transaction.two.phase.commit.enable",
            "broker option transaction.two.phase.commit.enable is not served yet: a transaction is decided by",
        ),
        (BROKER_OPTIONS, "transaction_two_phase_commit_enable", "is not served yet: a transaction is decided by"),
        (BROKER_OPTIONS, "num.io.threads", "broker option num.io.threads is not needed here: one loop"),
        (BROKER_OPTIONS, "sasl.kerberos.service.name", "is not served: Kerberos (GSSAPI) is not spoken"),
        (BROKER_OPTIONS, "ssl.provider", "is not needed here: OpenSSL encrypts"),
        (BROKER_OPTIONS, "advertised_port", "broker option advertised_port is called advertised_listeners here"),
        (CONSUMER_OPTIONS, "sasl_kerberos_keytab", "sasl_kerberos_keytab is not served yet: Kerberos is not spoken"),
        (CONSUMER_OPTIONS, "on_commit", "on_commit is not needed here: commit_async takes a callback"),
        (CONSUMER_OPTIONS, "fetch.wait.max.ms", "fetch.wait.max.ms is called fetch.max.wait.ms here"),
        (CONSUMER_OPTIONS, "fetch_wait_max_ms", "fetch_wait_max_ms is called fetch_max_wait_ms here"),
        (CONSUMER_OPTIONS, "linger.ms", "consumer option linger.ms is not needed here: it concerns producers"),
        (PRODUCER_OPTIONS, "group_id", "producer option group_id is not needed here: it concerns consumers"),
        (PRODUCER_OPTIONS, "transaction.two.phase.commit.enable", "is not served yet: a transaction is not prepared"),
        (CONSUMER_OPTIONS, "transactional_id", "is not needed here: it concerns producers"),
        (CONSUMER_OPTIONS, "group.instance.ids", "did you mean group.instance.id?"),
    ],
)
def test_option_of_elsewhere_is_answered_with_what_is_so_instead(options: OptionSet, name: str, message: str) -> None:
    """And never with the neighbour that means something else."""
    with pytest.raises(UnknownOptionError) as raised:
        options.option(name)
    assert message in str(raised.value)
    assert raised.value.why is None or raised.value.nearest is None


@pytest.mark.parametrize(("options", "rows"), TABLES, ids=lambda each: getattr(each, "what", ""))
def test_tables_do_not_contradict_the_options(options: OptionSet, rows: Iterable[Unserved]) -> None:
    """An option that is served is in no table by name, a new name exists, and no row is without one of its own."""
    seen: set[str] = set()
    for row in [row for row in rows if not row.why.startswith("it concerns")]:
        assert not [name for name in row.names.split() if name in options], row
        assert row.verdict is not Verdict.CALLED or row.why in options, row
        assert not seen & set(row.names.split()), row
        seen |= set(row.names.split())
    assert len({as_keyword(name) for name in seen}) == len(seen)
