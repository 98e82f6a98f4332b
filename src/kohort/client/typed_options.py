"""The options of the clients, each declared once: Kafka's names, types, limits and defaults.

Type checkers see the fields as the clients' keyword arguments and settings. Each field is annotated with the option
that checks its value. The `OptionSet`s of `options.py`, the settings and docs/reference/options.md are read from here.

Laws: nothing imports this module before the first client is made.
Source: Apache Kafka's consumer, producer and admin configurations, KIP-345 and its draft (registration.timeout.ms,
expansion.timeout.ms, member.name); security.protocol, ssl.* (PEM, KIP-651) and sasl.*, and what librdkafka and
kafka-python call them. Where a default differs, its doc says so.
"""

# Without `from __future__ import annotations`: the annotations of a compiled module take a fifth of the time of texts.

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypedDict

from kohort.base.options import Spelling, parse_list
from kohort.client import securityoptions as security
from kohort.client.local_assignors import parse_assignors
from kohort.client.option_kinds import (
    INT32_MAX,
    Protocol,
    function,
    number,
    parse_codec,
    parse_servers,
    parsed,
    secret,
    switch,
    text,
)
from kohort.client.producer.core.partitioner import DEFAULT_PARTITIONER, parse_partitioner

if TYPE_CHECKING:
    from ssl import SSLContext

    from kohort.assign.interface import Assignor


class SharedOptions(TypedDict, total=False):
    """Options of every client."""

    bootstrap_servers: Annotated[
        str | Sequence[str],
        parsed(parse_servers, ["127.0.0.1:9092"], "Bootstrap brokers, host:port (Kafka: no default)."),
    ]
    client_id: Annotated[str, text("kohort", "Name of this client in the broker's logs (Kafka: empty).")]
    request_timeout_ms: Annotated[int, number(30_000, "How long a response may take.", minimum=1)]
    retry_backoff_ms: Annotated[int, number(100, "First pause before a retry.")]
    retry_backoff_max_ms: Annotated[int, number(1_000, "Longest pause before a retry.")]
    reconnect_backoff_ms: Annotated[int, number(50, "First pause before connecting again.")]
    reconnect_backoff_max_ms: Annotated[int, number(1_000, "Longest pause before connecting again.")]
    socket_connection_setup_timeout_ms: Annotated[int, number(10_000, "How long connecting may take.", minimum=1)]
    metadata_max_age_ms: Annotated[int, number(300_000, "Longest age of cluster metadata.", minimum=1)]
    receive_buffer_bytes: Annotated[
        int,
        number(
            -1, "SO_RCVBUF; -1 leaves it to the system, which tunes it (Kafka: 64 KiB, producer 32 KiB).", minimum=-1
        ),
    ]
    send_buffer_bytes: Annotated[int, number(-1, "SO_SNDBUF; -1 leaves it to the system (Kafka: 128 KiB).", minimum=-1)]
    security_protocol: Annotated[
        Protocol,
        parsed(
            security.parse_upper,
            "PLAINTEXT",
            "Protocol of connections: with TLS (SSL), with a login (SASL_PLAINTEXT), with both (SASL_SSL).",
        ),
    ]
    ssl_context: Annotated[
        "SSLContext | None",
        parsed(
            security.parse_context,
            None,
            "An ssl.SSLContext instead of all other ssl options (kafka-python's option, not Kafka's).",
        ),
    ]
    ssl_ca_location: Annotated[
        str | None,
        text(
            None,
            "Trusted CA certificates: a file, a directory, or the PEM text itself; none: those of the system (in "
            "Kafka ssl.truststore.location).",
        ),
    ]
    ssl_ca_pem: Annotated[str | None, Spelling(of="ssl.ca.location")]
    ssl_truststore_location: Annotated[str | None, Spelling(of="ssl.ca.location")]
    ssl_truststore_certificates: Annotated[str | None, Spelling(of="ssl.ca.location")]
    ssl_cafile: Annotated[str | None, Spelling(of="ssl.ca.location")]
    ssl_certificate_location: Annotated[
        str | None,
        text(
            None,
            "This client's certificate, followed by its chain: a file, or the PEM text itself (in Kafka "
            "ssl.keystore.location).",
        ),
    ]
    ssl_certificate_pem: Annotated[str | None, Spelling(of="ssl.certificate.location")]
    ssl_keystore_location: Annotated[str | None, Spelling(of="ssl.certificate.location")]
    ssl_keystore_certificate_chain: Annotated[str | None, Spelling(of="ssl.certificate.location")]
    ssl_certfile: Annotated[str | None, Spelling(of="ssl.certificate.location")]
    ssl_key_location: Annotated[
        str | None,
        secret(
            "Private key of this client's certificate: a file, or the PEM text itself; none: it is in the "
            "certificate's file (in Kafka ssl.keystore.key)."
        ),
    ]
    ssl_key_pem: Annotated[str | None, Spelling(of="ssl.key.location")]
    ssl_keystore_key: Annotated[str | None, Spelling(of="ssl.key.location")]
    ssl_keyfile: Annotated[str | None, Spelling(of="ssl.key.location")]
    ssl_key_password: Annotated[str | None, secret("Password of an encrypted private key.")]
    ssl_password: Annotated[str | None, Spelling(of="ssl.key.password")]
    ssl_keystore_password: Annotated[str | None, Spelling(of="ssl.key.password")]
    ssl_crl_location: Annotated[
        str | None, text(None, "A file of revoked certificates, PEM (librdkafka's option, not Kafka's).")
    ]
    ssl_crlfile: Annotated[str | None, Spelling(of="ssl.crl.location")]
    ssl_cipher_suites: Annotated[str | None, text(None, "Ciphers of TLS 1.2, OpenSSL's names (Kafka: Java's).")]
    ssl_ciphers: Annotated[str | None, Spelling(of="ssl.cipher.suites")]
    ssl_endpoint_identification_algorithm: Annotated[
        str | bool,
        parsed(
            security.parse_identification, "https", "Check the host name in a broker's certificate: https, or none."
        ),
    ]
    ssl_check_hostname: Annotated[str | bool, Spelling(of="ssl.endpoint.identification.algorithm")]
    enable_ssl_certificate_verification: Annotated[
        bool, switch(True, "Off accepts any certificate, which is insecure (librdkafka's option, not Kafka's).")
    ]
    ssl_truststore_type: Annotated[
        Literal["PEM"],
        text("PEM", "Format of ssl.truststore.location; keytool and openssl convert others to PEM (Kafka: JKS)."),
    ]
    ssl_keystore_type: Annotated[Literal["PEM"], text("PEM", "Format of ssl.keystore.location (Kafka: JKS).")]
    sasl_mechanism: Annotated[
        security.Mechanism | None,
        parsed(security.parse_mechanism, None, "Mechanism of the SASL login (Kafka: GSSAPI, which is not supported)."),
    ]
    sasl_mechanisms: Annotated[security.Mechanism | None, Spelling(of="sasl.mechanism")]
    sasl_username: Annotated[str | None, text(None, "User name of the login (in Kafka within sasl.jaas.config).")]
    sasl_plain_username: Annotated[str | None, Spelling(of="sasl.username")]
    sasl_password: Annotated[str | None, secret("Password of the user (in Kafka within sasl.jaas.config).")]
    sasl_plain_password: Annotated[str | None, Spelling(of="sasl.password")]
    sasl_jaas_config: Annotated[
        str | None, secret("User name and password in the format of Java clients, for PLAIN or SCRAM.")
    ]
    sasl_oauth_token_provider: Annotated[
        Callable[[], Any] | object | None,
        parsed(
            security.parse_provider,
            None,
            "A function that returns a token for OAUTHBEARER: text, or a pair of text and expiry time, seconds since "
            "1970; called in a thread of its own. Or its name, module:function (in Kafka a class).",
        ),
    ]
    oauth_cb: Annotated[Callable[[], Any] | object | None, Spelling(of="sasl.oauth.token.provider")]


class CallOptions(TypedDict, total=False):
    """The limit of calls; a producer has `max.block.ms` and `delivery.timeout.ms` instead."""

    default_api_timeout_ms: Annotated[int, number(60_000, "Timeout of calls that have no timeout argument.", minimum=1)]


class AdminOptions(SharedOptions, CallOptions, total=False):
    """Options of admin clients."""


class ReaderOptions(SharedOptions, CallOptions, total=False):
    """Options of consumers that Spark's source takes as well."""

    group_id: Annotated[str | None, text(None, "Group to join or to commit for; without it the consumer does neither.")]
    group_instance_id: Annotated[
        str | None,
        text(
            None,
            "Name of a static member: it keeps its partitions if it restarts within its session timeout, and does "
            "not leave the group when it closes.",
        ),
    ]
    member_name: Annotated[str | None, Spelling(of="group.instance.id")]
    registration_timeout_ms: Annotated[
        int | None,
        number(
            None,
            "How long a static group keeps the partitions of an offline member. With this option or the next one, "
            "the first member that joins an empty group makes it static; later members change nothing (in Kafka no "
            "option: its brokers ignore both).",
        ),
    ]
    expansion_timeout_ms: Annotated[
        int | None,
        number(
            None,
            "How long a static group waits for more new members before one rebalance assigns partitions to all of "
            "them (in Kafka no option).",
        ),
    ]
    group_protocol: Annotated[
        Literal["consumer", "classic"],
        text(
            "consumer",
            "Group protocol; consumer (KIP-848) falls back to classic if the broker does not support it (Kafka: "
            "classic).",
        ),
    ]
    group_remote_assignor: Annotated[str | None, text(None, "The coordinator's assignor to use (consumer protocol).")]
    partition_assignment_strategy: Annotated[
        str | Sequence[str],
        parsed(
            parse_list,
            ["range", "cooperative-sticky"],
            "Assignors in order of preference (classic protocol; in Kafka classes): range, roundrobin, "
            "cooperative-sticky; with the last alone, members keep partitions that do not move in a rebalance.",
        ),
    ]
    session_timeout_ms: Annotated[
        int,
        number(
            45_000,
            "A coordinator that does not respond for so long, or for the group's session timeout if that is shorter, "
            "counts as lost; classic: the session timeout of this member, too.",
            minimum=1,
        ),
    ]
    heartbeat_interval_ms: Annotated[
        int | None,
        number(
            None,
            "Pause between heartbeats; classic: 3000 by default (as in Kafka); consumer: the broker's interval by "
            "default; a value is proposed to a kohort broker, which decides.",
            minimum=1,
        ),
    ]
    revocation_timeout_policy: Annotated[
        Literal["retry_then_leave", "leave", "retry"],
        text(
            "retry_then_leave",
            "Action when a revocation callback takes longer than max.poll.interval.ms (in Kafka no option).",
        ),
    ]
    fetch_carries_membership: Annotated[
        bool, switch(True, "Get assignment changes by fetches, too, from kohort brokers (not in Kafka).")
    ]
    isolation_level: Annotated[
        Literal["read_uncommitted", "read_committed"],
        text("read_uncommitted", "read_committed waits for transactions to end, and skips aborted ones."),
    ]
    fetch_min_bytes: Annotated[int, number(1, "Least bytes of a fetch response that the broker waits for.")]
    fetch_max_bytes: Annotated[int, number(50 * 1024 * 1024, "Most bytes of one fetch response.", minimum=1)]
    fetch_max_wait_ms: Annotated[
        int, number(500, "How long the broker waits for fetch.min.bytes; kohort's up to 4 s without new data.")
    ]
    max_partition_fetch_bytes: Annotated[
        int, number(4 * 1024 * 1024, "Most bytes of one partition in one fetch response (Kafka: 1 MiB).", minimum=1)
    ]
    check_crcs: Annotated[bool, switch(True, "Check the CRC of every batch.")]
    on_corrupt_records: Annotated[
        Literal["stop", "skip"], text("stop", "Corrupt records: stop raises an error, skip logs (Kafka: stop).")
    ]
    client_rack: Annotated[str, text("", "Rack of this client.")]


class ConsumerOptions(ReaderOptions, total=False):
    """Options of consumers."""

    group_local_assignors: Annotated[
        "Assignor | Sequence[Assignor]",
        parsed(
            parse_assignors,
            (),
            "Assignors that this member can run for its group, as objects in order of preference (consumer protocol, "
            "a kohort broker; in Kafka only KIP-848's draft). The group uses one that all members have.",
        ),
    ]
    max_poll_interval_ms: Annotated[
        int,
        number(300_000, "Longest time between two polls, and of a revocation, before the member leaves.", minimum=1),
    ]
    enable_auto_commit: Annotated[bool, switch(True, "Commit processed offsets automatically.")]
    enable_auto_offset_store: Annotated[
        bool,
        switch(
            True,
            "Records that poll has returned count as processed at the next call; off: only offsets given to "
            "store_offsets count (librdkafka's option, not Kafka's).",
        ),
    ]
    auto_commit_interval_ms: Annotated[int, number(5_000, "Pause between two automatic commits.", minimum=1)]
    auto_offset_reset: Annotated[
        Literal["earliest", "latest", "none"],
        text("latest", "Where to start reading if there is no committed offset, or if it is out of range."),
    ]
    max_poll_records: Annotated[int, number(500, "Most records that one poll returns.", minimum=1)]
    consumer_timeout_ms: Annotated[
        int,
        number(
            -1,
            "Iteration ends after so long without a record; -1: never (kafka-python's option, not Kafka's).",
            minimum=-1,
        ),
    ]
    fetch_buffer_bytes: Annotated[
        int,
        number(
            64 * 1024 * 1024,
            "Most bytes fetched ahead of the application; 0: own partitions but fetch nothing (in Kafka no option).",
            maximum=2**40,
        ),
    ]
    key_deserializer: Annotated[
        Callable[[Any], Any] | None, function("A function that converts the bytes of each key (Kafka: a class).")
    ]
    value_deserializer: Annotated[
        Callable[[Any], Any] | None, function("A function that converts the bytes of each value (Kafka: a class).")
    ]
    allow_auto_create_topics: Annotated[bool, switch(True, "Let the broker create a topic that does not exist.")]


class WriterOptions(SharedOptions, total=False):
    """Options of producers that Spark's sink takes as well."""

    acks: Annotated[Literal["all", "-1", "0", "1", -1, 0, 1], text("all", "Replicas that must store a record.")]
    enable_idempotence: Annotated[bool, switch(True, "Retries never duplicate or reorder records.")]
    linger_ms: Annotated[int, number(5, "How long a batch waits for more records.")]
    batch_size: Annotated[
        int,
        number(
            16_384,
            "Bytes at which a batch is sent without linger; while its leader is busy it is filled further, up to "
            "max.request.size.",
        ),
    ]
    compression_type: Annotated[
        Literal["none", "gzip", "snappy", "lz4", "zstd"], parsed(parse_codec, "none", "Compression of batches.")
    ]
    max_in_flight_requests_per_connection: Annotated[
        int, number(5, "Requests without a response per connection; at most 5 with idempotence.", minimum=1)
    ]
    delivery_timeout_ms: Annotated[int, number(120_000, "Longest time from send to acknowledgement.", minimum=1)]
    buffer_memory: Annotated[int, number(32 * 1024 * 1024, "Most unacknowledged bytes.", minimum=1, maximum=2**40)]
    max_request_size: Annotated[int, number(1_048_576, "Most bytes of one request.", minimum=1)]
    max_block_ms: Annotated[
        int, number(60_000, "How long send waits for buffer space (0: not at all), and partitions_for for a response.")
    ]
    retries: Annotated[int, number(INT32_MAX, "Attempts within delivery.timeout.ms.")]
    compression_gzip_level: Annotated[int, number(-1, "Level of gzip; -1 is its default, 6.", minimum=-1, maximum=9)]
    compression_lz4_level: Annotated[
        int,
        number(9, "Level of lz4; 9 is the fast one, all others compress harder, as in Kafka.", minimum=1, maximum=17),
    ]
    compression_zstd_level: Annotated[int, number(3, "Level of zstd.", minimum=-131_072, maximum=22)]


class ProducerOptions(WriterOptions, total=False):
    """Options of producers."""

    partitioner: Annotated[
        str | Callable[[str, bytes | None, int], int],
        parsed(
            parse_partitioner,
            DEFAULT_PARTITIONER,
            "Chooses the partition of a record that names none: murmur2_random, Kafka's default (murmur2 of the key; "
            "without a key batch.size bytes to each partition in turn); librdkafka's murmur2, consistent, "
            "consistent_random, fnv1a, fnv1a_random and random; round_robin; or a function of topic, key and number "
            "of partitions, called in the background (in Kafka partitioner.class).",
        ),
    ]
    transactional_id: Annotated[
        str | None,
        text(None, "Name under which the producer writes in transactions; a new one of that name fences the old one."),
    ]
    transaction_timeout_ms: Annotated[
        int, number(60_000, "Longest time of a transaction, after which the broker aborts it.", minimum=1)
    ]
    key_serializer: Annotated[
        Callable[[Any], Any] | None, function("A function that converts a key to bytes (Kafka: a class).")
    ]
    value_serializer: Annotated[
        Callable[[Any], Any] | None, function("A function that converts a value to bytes (Kafka: a class).")
    ]
