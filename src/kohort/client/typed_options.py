"""The clients' options as keyword arguments, for editors and for those who check types; nothing of it runs.

Made by `python tools/typed_options.py > src/kohort/client/typed_options.py` from the tables in `options.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from ssl import SSLContext
from typing import Any, Literal, TypedDict

from kohort.assign.interface import Assignor


class SharedOptions(TypedDict, total=False):
    """Options of every client."""

    bootstrap_servers: str | Sequence[str]
    """host:port of brokers to start from (Kafka: no default)."""
    client_id: str
    """Name of this client in the broker's logs (Kafka: empty)."""
    request_timeout_ms: int
    """How long an answer may take."""
    retry_backoff_ms: int
    """First pause before a retry."""
    retry_backoff_max_ms: int
    """Longest pause before a retry."""
    reconnect_backoff_ms: int
    """First pause before connecting again."""
    reconnect_backoff_max_ms: int
    """Longest pause before connecting again."""
    socket_connection_setup_timeout_ms: int
    """How long connecting may take."""
    metadata_max_age_ms: int
    """Longest time between two looks at the cluster."""
    receive_buffer_bytes: int
    """SO_RCVBUF; -1 leaves it to the system, which tunes it (Kafka: 64 KiB, producer 32 KiB)."""
    send_buffer_bytes: int
    """SO_SNDBUF; -1 leaves it to the system (Kafka: 128 KiB)."""
    security_protocol: Literal["PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"]
    """How brokers are spoken to: with TLS (SSL), with a login (SASL_), with both (SASL_SSL)."""
    ssl_context: SSLContext | None
    """An ssl.SSLContext in place of all other ssl options (kafka-python's, not Kafka's)."""
    ssl_ca_location: str | None
    """Certificates to believe: a file, a folder, or the PEM itself; none: those of the system (in Kafka
    ssl.truststore.location)."""
    ssl_ca_pem: str | None
    """The same as ssl_ca_location."""
    ssl_truststore_location: str | None
    """The same as ssl_ca_location."""
    ssl_truststore_certificates: str | None
    """The same as ssl_ca_location."""
    ssl_cafile: str | None
    """The same as ssl_ca_location."""
    ssl_certificate_location: str | None
    """This client's certificate, its chain behind it: a file, or the PEM itself (in Kafka ssl.keystore.location)."""
    ssl_certificate_pem: str | None
    """The same as ssl_certificate_location."""
    ssl_keystore_location: str | None
    """The same as ssl_certificate_location."""
    ssl_keystore_certificate_chain: str | None
    """The same as ssl_certificate_location."""
    ssl_certfile: str | None
    """The same as ssl_certificate_location."""
    ssl_key_location: str | None
    """The key of this client's certificate: a file, or the PEM itself; none: it stands in the certificate's file
    (in Kafka ssl.keystore.key)."""
    ssl_key_pem: str | None
    """The same as ssl_key_location."""
    ssl_keystore_key: str | None
    """The same as ssl_key_location."""
    ssl_keyfile: str | None
    """The same as ssl_key_location."""
    ssl_key_password: str | None
    """What opens an encrypted key."""
    ssl_password: str | None
    """The same as ssl_key_password."""
    ssl_keystore_password: str | None
    """The same as ssl_key_password."""
    ssl_crl_location: str | None
    """A file of revoked certificates, PEM (librdkafka's, not Kafka's)."""
    ssl_crlfile: str | None
    """The same as ssl_crl_location."""
    ssl_cipher_suites: str | None
    """Ciphers of TLS 1.2 in OpenSSL's words (in Kafka Java's)."""
    ssl_ciphers: str | None
    """The same as ssl_cipher_suites."""
    ssl_endpoint_identification_algorithm: str | bool
    """Whether a broker's certificate has to name it: https, or none."""
    ssl_check_hostname: str | bool
    """The same as ssl_endpoint_identification_algorithm."""
    enable_ssl_certificate_verification: bool
    """Off believes every certificate, so that anybody may read along (librdkafka's, not Kafka's)."""
    ssl_truststore_type: Literal["PEM"]
    """What ssl.truststore.location holds; keytool and openssl turn other stores into PEM (Kafka: JKS)."""
    ssl_keystore_type: Literal["PEM"]
    """What ssl.keystore.location holds; likewise (Kafka: JKS)."""
    sasl_mechanism: Literal["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER"] | None
    """How the login is proven (Kafka: GSSAPI, which is not spoken)."""
    sasl_mechanisms: Literal["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER"] | None
    """The same as sasl_mechanism."""
    sasl_username: str | None
    """Name of the user (in Kafka within sasl.jaas.config)."""
    sasl_plain_username: str | None
    """The same as sasl_username."""
    sasl_password: str | None
    """Password of the user (in Kafka within sasl.jaas.config)."""
    sasl_plain_password: str | None
    """The same as sasl_password."""
    sasl_jaas_config: str | None
    """Name and password as Java's clients are given them, of PLAIN or SCRAM."""
    sasl_oauth_token_provider: Callable[[], Any] | object | None
    """A function that returns a token of OAUTHBEARER: text, or a pair with the time at which it ends, seconds
    since 1970; called in a thread of its own. Or its name, module:function (in Kafka a class)."""
    oauth_cb: Callable[[], Any] | object | None
    """The same as sasl_oauth_token_provider."""


class AdminOptions(SharedOptions, total=False):
    """Options of admin clients."""

    default_api_timeout_ms: int
    """Limit of calls without a timeout."""


class ConsumerOptions(SharedOptions, total=False):
    """Options of consumers."""

    default_api_timeout_ms: int
    """Limit of calls without a timeout."""
    group_id: str | None
    """Group to join or to commit for; none means neither."""
    group_instance_id: str | None
    """Name of a static member: it keeps its partitions while it restarts within its session, and does not leave
    the group when it closes."""
    member_name: str | None
    """The same as group_instance_id."""
    registration_timeout_ms: int | None
    """How long the group keeps what a member with a name has that is offline. With this option or the next one,
    the first member that joins a group without members makes it a static one; later ones change nothing (in
    Kafka no option: its brokers skip both)."""
    expansion_timeout_ms: int | None
    """How long members that are new to a static group are gathered before they get something, all at once (in
    Kafka no option)."""
    group_protocol: Literal["consumer", "classic"]
    """Protocol of membership; consumer (KIP-848) falls back to classic where the broker lacks it (Kafka: classic)."""
    group_remote_assignor: str | None
    """Assignor of the coordinator (consumer protocol)."""
    group_local_assignors: Assignor | Sequence[Assignor]
    """Assignors that this member runs for its group, objects in order of preference (consumer protocol, a kohort
    broker; Kafka has it in KIP-848's draft only); used is the one that all members have."""
    partition_assignment_strategy: str | Sequence[str]
    """Assignors in order of preference (classic protocol; in Kafka classes): range, roundrobin, cooperative-
    sticky; with the last one alone, members keep what does not move while the group rebalances."""
    session_timeout_ms: int
    """A coordinator silent for so long, or for the group's session if that is shorter, is given up; classic: so is
    a member."""
    heartbeat_interval_ms: int | None
    """Pause between heartbeats; classic: 3000 by default (as in Kafka); consumer: by default what the broker says,
    otherwise proposed to a kohort broker, whose answer counts."""
    max_poll_interval_ms: int
    """Longest time between two polls, and for a revocation, before the member leaves."""
    revocation_timeout_policy: Literal["retry_then_leave", "leave", "retry"]
    """What to do when a revocation callback takes longer than max.poll.interval.ms (in Kafka no option)."""
    fetch_carries_membership: bool
    """Hear of moves by fetches as well, from kohort brokers (not in Kafka)."""
    enable_auto_commit: bool
    """Commit what the application has processed."""
    enable_auto_offset_store: bool
    """What poll has returned counts as processed when it is called again; off: what store_offsets was given
    (librdkafka's option, not Kafka's)."""
    auto_commit_interval_ms: int
    """Pause between two automatic commits."""
    auto_offset_reset: Literal["earliest", "latest", "none"]
    """Where to start without a committed offset, or when it is out of range."""
    isolation_level: Literal["read_uncommitted", "read_committed"]
    """Whether to wait for transactions to end, and leave out aborted ones."""
    max_poll_records: int
    """Most records that one poll returns."""
    consumer_timeout_ms: int
    """Iterating a consumer ends after so long without a record (kafka-python's, not Kafka's; -1: never)."""
    fetch_min_bytes: int
    """Bytes that the broker waits for."""
    fetch_max_bytes: int
    """Most bytes of one fetch."""
    fetch_max_wait_ms: int
    """How long the broker waits for fetch.min.bytes."""
    max_partition_fetch_bytes: int
    """Most bytes of one partition in one fetch (Kafka: 1 MiB)."""
    fetch_buffer_bytes: int
    """Most bytes fetched ahead of the application (in Kafka no option); 0: only hold partitions."""
    check_crcs: bool
    """Check the checksum of every batch."""
    key_deserializer: Callable[[Any], Any] | None
    """A function that is given the bytes of each key (Kafka: a class)."""
    value_deserializer: Callable[[Any], Any] | None
    """A function that is given the bytes of each value (Kafka: a class)."""
    on_corrupt_records: Literal["stop", "skip"]
    """Damaged records: stop raises, skip logs (Kafka: stop)."""
    client_rack: str
    """Rack of this client."""
    allow_auto_create_topics: bool
    """Let the broker create a topic that is asked for."""


class ProducerOptions(SharedOptions, total=False):
    """Options of producers."""

    acks: Literal["all", "-1", "0", "1", -1, 0, 1]
    """Copies that must hold a record."""
    enable_idempotence: bool
    """No record twice, none out of order."""
    linger_ms: int
    """How long a batch waits for more records."""
    batch_size: int
    """Bytes at which a batch is sent at once; while its leader is busy it goes on filling, up to max.request.size."""
    compression_type: Literal["none", "gzip", "snappy", "lz4", "zstd"]
    """Codec of batches."""
    max_in_flight_requests_per_connection: int
    """Requests sent ahead of answers; at most 5 with idempotence."""
    delivery_timeout_ms: int
    """How long a record may take in all."""
    buffer_memory: int
    """Bytes that wait to be sent."""
    max_request_size: int
    """Most bytes of one request."""
    max_block_ms: int
    """How long send waits for room, 0 means not at all; partitions_for for an answer."""
    retries: int
    """Attempts within delivery.timeout.ms."""
    partitioner: str | Callable[[str, bytes | None, int], int]
    """Which partition a record goes to that names none: murmur2_random, Kafka's own way (murmur2 of the key;
    without one batch.size bytes to each partition in turn); librdkafka's murmur2, consistent,
    consistent_random, fnv1a, fnv1a_random and random; round_robin; or a function of topic, key and number of
    partitions, called in the background (in Kafka partitioner.class)."""
    key_serializer: Callable[[Any], Any] | None
    """A function that makes bytes of a key (Kafka: a class)."""
    value_serializer: Callable[[Any], Any] | None
    """A function that makes bytes of a value (Kafka: a class)."""
    compression_gzip_level: int
    """Level of gzip; -1 is its usual one, 6."""
    compression_lz4_level: int
    """Level of lz4; 9 is the fast way, all others the thorough one, as in Kafka."""
    compression_zstd_level: int
    """Level of zstd."""
