"""The limits of a broker on its clients, one by one: the table of docs/reference/limits.md.

Laws: a default is read where it acts, so that the document cannot say another one; each limit names the test that
exceeds it.
Source: docs/reference/limits.md is made of this by `tools/docs.py`.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from kohort.broker import batch_validation, connection, listener, scheduling
from kohort.broker.access import authorization
from kohort.broker.apis.fetch import ABORTED_AT_ONCE
from kohort.broker.connections import idle_timeouts, request
from kohort.broker.connections.buffers import BASE_BYTES
from kohort.broker.fetch import fetchsessions, purgatory
from kohort.broker.limits import client_quotas, connection_quotas, connection_rates, memory, requests
from kohort.broker.options.settings import BROKER_OPTIONS
from kohort.broker.topics import acls
from kohort.coordinator.consumer.client_assignors import assignor_metadata as assignor_bounds
from kohort.storage.partitions import validation
from kohort.wire.decoder import VALUES_PER_ROW
from kohort.wire.primitives import TAGS_AT_MOST

_MEBI: Final = 1024 * 1024


class Limit(NamedTuple):
    """One limit."""

    bounds: str
    default: str
    #: The consequence beyond the limit.
    beyond: str
    #: FILE::TEST below tests/unit/broker, which exceeds it.
    test: str
    #: The broker's option that changes it, `None` if there is none.
    option: str | None = None
    #: Its name in the facts of a broker, without `limits.reached.`; `None` if it is not counted.
    counted: str | None = None


def _option(name: str) -> str:
    return f"{BROKER_OPTIONS.option(name).default:,}"


def _mebi(size: int) -> str:
    return f"{size // _MEBI} MiB"


#: The consequence that most limits share.
_CLOSED: Final = "the connection is closed, with the reason in the log"

#: All limits, in the order in which a connection meets them.
LIMITS: Final = (
    Limit(
        "connections of a broker",
        f"{_option('max.connections')}, and no more than there are descriptors for",
        "the oldest connection that has asked nothing yet gives way; otherwise the new one is closed",
        "test_admission.py::test_who_has_asked_nothing_gives_way_oldest_first",
        option="max.connections",
        counted="max.connections",
    ),
    Limit(
        "connections of addresses that are not at work yet",
        f"all but one in {connection_quotas.KEPT_PART}",
        "the same",
        "test_admission.py::test_the_last_tenth_is_for_addresses_that_are_at_work",
        counted="max.connections",
    ),
    Limit(
        "connections of one listener",
        "none; `listener.name.<name>.max.connections`",
        "the oldest of that listener that has asked nothing yet gives way; otherwise the new one is closed",
        "test_admission.py::test_listener_has_its_own_number_within_that_of_all",
        counted="max.connections",
    ),
    Limit(
        "connections beside those of the listener in `inter.broker.listener.name`",
        "as many as it leaves",
        "a newcomer of that listener takes the place of the one that was idle for longest",
        "test_admission.py::test_newcomer_of_the_protected_listener_takes_the_place_of_the_idlest_of_the_others",
        counted="max.connections",
    ),
    Limit(
        "connections of one address",
        _option("max.connections.per.ip"),
        "the new connection is closed",
        "test_admission.py::test_one_address_has_a_limit_of_its_own",
        option="max.connections.per.ip",
        counted="max.connections.per.ip",
    ),
    Limit(
        "connections a second of the broker, and of a listener",
        _option("max.connection.creation.rate"),
        "the connection is let in later, after one window at most, and those behind it with it",
        "test_listener.py::TestRate::test_connections_of_a_listener_come_in_later",
        option="max.connection.creation.rate",
        counted="max.connection.creation.rate",
    ),
    Limit(
        "connections a second of an address that has a quota of them",
        f"none; {connection_rates.MOST_ADDRESSES:,} addresses are remembered",
        "the connection is closed, after one window at most",
        "test_listener.py::TestRate::test_connections_of_an_address_are_closed_after_a_wait",
        counted="connection_creation_rate",
    ),
    Limit(
        "TLS handshakes that are begun and not done",
        _option("ssl.handshakes.max"),
        "further clients wait, and nothing is read of them",
        "test_tls_transport.py::test_handshakes_have_a_limit_and_one_for_an_address",
        option="ssl.handshakes.max",
    ),
    Limit(
        "those of one address",
        _option("ssl.handshakes.max.per.ip"),
        "the same; the newest of a crowd is next",
        "test_tls_transport.py::test_handshakes_have_a_limit_and_one_for_an_address",
        option="ssl.handshakes.max.per.ip",
    ),
    Limit(
        "time for a handshake",
        _option("ssl.handshake.timeout.ms"),
        _CLOSED,
        "test_tls_transport.py::test_handshake_has_its_time",
        option="ssl.handshake.timeout.ms",
    ),
    Limit(
        "time for a login",
        _option("sasl.login.timeout.ms"),
        "the connection is closed",
        "test_logins.py::test_login_that_takes_too_long_is_given_up",
        option="sasl.login.timeout.ms",
    ),
    Limit(
        "a request before the login",
        _option("sasl.server.max.receive.size"),
        "the connection is closed, the rest of it unread",
        "test_logins.py::test_long_frame_before_the_login_is_refused_unread",
        option="sasl.server.max.receive.size",
    ),
    Limit(
        "logins of an address that fail in a second",
        _option("sasl.failures.per.second.per.ip"),
        "further attempts of the address wait",
        "test_logins.py::test_sixth_failure_of_an_address_waits",
        option="sasl.failures.per.second.per.ip",
    ),
    Limit(
        "descriptors of connections and of files of the log",
        "four fifths together; with a data directory half of that each, unless connections need less",
        "fewer connections; files that were not used for long are closed",
        "test_descriptors.py::test_a_fifth_is_left_for_everything_else",
        counted="max.connections",
    ),
    Limit(
        "connections when the system has no descriptor left",
        f"none for {listener.PAUSE_SECONDS:.0f} s",
        "they wait, connected clients are served; the reason is in the log each time",
        "test_listener.py::test_who_cannot_be_let_in_waits_and_the_loop_rests",
        counted="descriptors",
    ),
    Limit(
        "silence of a new connection",
        f"{idle_timeouts.SILENCE_SECONDS:.0f} s",
        _CLOSED,
        "test_idle_timeouts.py::test_who_connects_says_something_within_five_seconds",
        counted="silence",
    ),
    Limit(
        "slowness of half a request, its header included",
        f"{idle_timeouts.LEAST_BYTES // 1024} KiB in {idle_timeouts.LOOK_SECONDS:.0f} s",
        f"{_CLOSED}, within twice that time",
        "test_idle_timeouts.py::test_half_a_request_comes_at_a_kilobyte_a_second",
        counted="slowness",
    ),
    Limit(
        "the same while others wait for memory",
        f"a part in {idle_timeouts.LEAST_PART} of the memory that it holds, in {idle_timeouts.SHORT_SECONDS:.0f} s",
        "the same",
        "test_idle_timeouts.py::test_who_fills_the_memory_is_as_fast_as_its_size_asks_while_others_wait",
        counted="slowness",
    ),
    Limit(
        "idleness of a connection",
        f"{_option('connections.max.idle.ms')} ms",
        _CLOSED,
        "test_connection.py::TestIdle::test_a_connection_that_nobody_uses_is_closed",
        option="connections.max.idle.ms",
        counted="connections.max.idle.ms",
    ),
    Limit(
        "bytes of a request with records or assignments",
        _mebi(BROKER_OPTIONS.option("socket.request.max.bytes").default),
        _CLOSED,
        "test_connection.py::test_hostile_bytes_close_their_connection_and_no_other",
        option="socket.request.max.bytes",
        counted="requests",
    ),
    Limit(
        "bytes of other requests",
        f"{_mebi(requests.MOST_ORDINARY_BYTES)}; of heartbeats and lists of names 64 KiB to 2 MiB",
        f"{_CLOSED}; above 16 MiB before the request is read",
        "test_greedy_requests.py::test_long_request_that_carries_no_records_is_refused_before_it_is_read",
        counted="requests",
    ),
    Limit(
        "bytes of requests that have not come whole, beyond 32 KiB of each connection",
        _mebi(BROKER_OPTIONS.option("queued.max.request.bytes").default),
        "nothing more is read of that request until others are done; one that has begun goes on",
        "test_idle_timeouts.py::test_three_that_fill_the_memory_keep_nobody_out_and_do_not_stay",
        option="queued.max.request.bytes",
        counted="queued.max.request.bytes",
    ),
    Limit(
        f"the part of it for requests above {_mebi(memory.SHORT_BYTES)}",
        f"all but one in {memory.KEPT_PART}",
        "the same",
        "test_bytebudget.py::test_long_requests_leave_room_for_short_ones",
        counted="queued.max.request.bytes",
    ),
    Limit(
        "bytes that one record batch unfolds to",
        _mebi(validation.LIMIT_BYTES),
        "`INVALID_RECORD`: nothing of the batch is stored",
        "test_batch_validation.py::test_batch_that_unfolds_to_nonsense_is_refused_beside_the_loop",
    ),
    Limit(
        "bytes of batches that wait to be looked into, as those that unfold to "
        f"{batch_validation.SHORT_BYTES // 1024} KiB",
        _mebi(batch_validation.WAITING_LIMIT_BYTES),
        "`REQUEST_TIMED_OUT`: a producer sends it again",
        "test_batch_validation.py::test_more_than_may_wait_is_to_be_sent_again",
    ),
    Limit(
        "rows of all arrays of one request",
        f"{requests.MOST_ROWS:,}; 2,000 to 10,000 where a row is more work",
        _CLOSED,
        "test_greedy_requests.py::test_too_many_rows_close_the_connection",
        counted="requests",
    ),
    Limit(
        "groups, members or coordinators' keys that one request names",
        f"{requests.MOST_NAMED:,}, each once",
        _CLOSED,
        "test_greedy_requests.py::test_group_that_is_asked_for_again_and_again_is_answered_once",
        counted="requests",
    ),
    Limit(
        "numbers, texts and tagged fields of one request",
        f"{VALUES_PER_ROW} for each row that it may have; {TAGS_AT_MOST} tagged fields in one place",
        _CLOSED,
        "test_worst_requests.py::test_one_that_is_longer_closes_its_connection",
        counted="requests",
    ),
    Limit(
        "partitions of one request about offsets",
        f"{requests.MOST_PARTITIONS:,}",
        _CLOSED,
        "test_greedy_requests.py::test_too_many_rows_close_the_connection",
        counted="requests",
    ),
    Limit(
        "topics of a broker",
        _option("max.topics"),
        "a further one is refused with POLICY_VIOLATION and a sentence",
        "test_topiclimits.py::TestLimits::test_topics_and_partitions_have_a_limit",
        option="max.topics",
        counted="max.topics",
    ),
    Limit(
        "partitions of all topics",
        _option("max.partitions"),
        "the same",
        "test_topiclimits.py::TestLimits::test_topics_and_partitions_have_a_limit",
        option="max.partitions",
        counted="max.partitions",
    ),
    Limit(
        "topics that come by being asked for",
        f"{_option('auto.create.topics.per.minute')} a minute",
        "the topic is refused with POLICY_VIOLATION",
        "test_topiclimits.py::TestLimits::test_topics_that_many_ask_for_are_refused_by_name",
        option="auto.create.topics.per.minute",
        counted="auto.create.topics.per.minute",
    ),
    Limit(
        "groups of a broker, those with offsets alone included",
        _option("max.groups"),
        "a join, first heartbeat or commit that would make a further one is refused with POLICY_VIOLATION",
        "test_group_limit.py::TestLimit::test_what_would_make_one_more_is_refused_and_the_others_go_on",
        option="max.groups",
        counted="max.groups",
    ),
    Limit(
        "transactional ids of a broker",
        _option("max.transactional.ids"),
        "InitProducerId of a further one is refused with POLICY_VIOLATION; an id expires after "
        "`transactional.id.expiration.ms`",
        "test_transactions_api.py::test_id_beyond_the_limit_is_refused_and_the_others_go_on",
        option="max.transactional.ids",
    ),
    Limit(
        "partitions of one transaction",
        _option("max.transaction.partitions"),
        "what adds more is refused with POLICY_VIOLATION, and the transaction stays as it is",
        "test_transactions_api.py::test_transaction_of_too_many_partitions_is_refused_whole",
        option="max.transaction.partitions",
    ),
    Limit(
        "requests of one transactional id that wait for markers",
        _option("max.transaction.waiting.requests"),
        "CONCURRENT_TRANSACTIONS at once, as Apache Kafka answers all of them",
        "test_transactions_api.py::test_request_beyond_those_that_may_wait_for_markers_is_refused_at_once",
        option="max.transaction.waiting.requests",
    ),
    Limit(
        "aborted transactions that one answer tells to a reader of committed records",
        f"{ABORTED_AT_ONCE:,}",
        "its records end before there are more",
        "test_transactions_api.py::test_answer_with_many_aborted_transactions_ends_before_they_are_too_many",
    ),
    Limit(
        "assignors that a member runs itself; their metadata, of a member and of a group",
        f"{assignor_bounds.MOST_ASSIGNORS}; {assignor_bounds.MOST_METADATA_BYTES // 1024} KiB; "
        f"{_mebi(assignor_bounds.MOST_METADATA_BYTES_OF_GROUP)}",
        "the heartbeat is refused with the field's error",
        "test_client_assignors_api.py::test_what_a_member_says_of_its_assignors_is_bounded",
    ),
    Limit(
        "unanswered requests of a connection",
        _option("queued.max.requests"),
        "nothing more is read of it until it has answers",
        "test_connection.py::test_reading_pauses_at_the_limit_of_unanswered_requests",
        option="queued.max.requests",
        counted="queued.max.requests",
    ),
    Limit(
        "those with answers that may be long: all but records, commits and what members say",
        f"{memory.MOST_LONG}, or {_mebi(request.MOST_KNOWN_BYTES)} of answers that wait for those in front",
        "the same",
        "test_connection.py::test_a_client_that_asks_very_often_and_does_not_read_is_read_ahead_a_little",
        counted="queued.max.requests",
    ),
    Limit(
        "requests of a connection before the others have their turn",
        f"{connection.BYTES_PER_TURN // connection.SHORT_COUNTS}, "
        f"{connection.BYTES_PER_TURN // connection.LONG_COUNTS} with answers that may be long, "
        f"or {connection.BYTES_PER_TURN // 1024} KiB",
        "the rest is carried out in the next turns",
        "test_longest_turns.py::test_nobody_waits_long_beside_heavy_work",
    ),
    Limit(
        f"requests of more than {scheduling.SHORT_BYTES // 1024} KiB, those with records aside, of all connections "
        "before a smaller request has its turn",
        f"one, or {scheduling.LONG_BYTES_PER_PASS // 1024} KiB of them",
        "the others wait, in the order in which they came",
        "test_fair_queue.py::test_long_requests_of_many_connections_wait_for_later_passes",
    ),
    Limit(
        "bytes of JoinGroup and SyncGroup requests that wait, of all connections",
        _mebi(BROKER_OPTIONS.option("queued.max.request.bytes").default),
        "the next member is told to ask again: COORDINATOR_LOAD_IN_PROGRESS, REBALANCE_IN_PROGRESS in SyncGroup",
        "test_parkedbytes.py::test_what_waits_for_its_groups_is_bounded_over_all_connections",
        option="queued.max.request.bytes",
        counted="parked",
    ),
    Limit(
        "those of one connection",
        f"a part in {memory.PART_OF_CONNECTION} of it",
        "nothing more is read of it until it has answers",
        "test_parkedbytes.py::test_a_connection_holds_a_part_of_it",
        counted="queued.max.requests",
    ),
    Limit(
        "bytes, time and changes of topics of a client that has a quota of them",
        f"none; {client_quotas.MOST_CLIENTS:,} clients are remembered, for an hour",
        "its answer says how long the client waits, and nothing is read of it for that time",
        "test_throttling.py::TestProduce::test_the_answer_leaves_at_once_and_the_connection_rests",
        counted="quotas",
    ),
    Limit(
        "entries of the access lists; bytes of their names, principals and hosts",
        f"{acls.MOST_ENTRIES:,}; {acls.MOST_BYTES >> 20} MiB",
        "further ones are refused with POLICY_VIOLATION",
        "test_authorization.py::test_what_all_entries_take_is_bounded",
    ),
    Limit(
        "decisions about resources that are kept for all principals together",
        f"{authorization.MOST_KEPT:,}, of names up to {authorization.LONGEST_KEPT} characters",
        "all are forgotten and made anew",
        "test_authorization.py::test_kept_decisions_are_bounded",
    ),
    Limit(
        "users, client ids and addresses with quotas; characters of such a name",
        f"{client_quotas.MOST_ENTITIES:,}; {client_quotas.LONGEST_NAME:,}",
        "a further one is refused with POLICY_VIOLATION, a longer name with INVALID_REQUEST",
        "test_client_quotas_api.py::test_the_entities_of_a_cluster_are_bounded",
    ),
    Limit(
        "fetch sessions (KIP-227)",
        _option("max.incremental.fetch.session.cache.slots"),
        "one that was not used for two minutes makes room; else fetches are answered in full",
        "test_fetching.py::test_sessions_have_so_many_slots",
        option="max.incremental.fetch.session.cache.slots",
    ),
    Limit(
        "partitions of one, and of all, of 60 bytes each",
        f"{fetchsessions.MOST_PARTITIONS:,}; {fetchsessions.MOST_IN_ALL:,}",
        "fetches are answered in full",
        "test_fetch_sessions.py::test_session_is_bounded",
    ),
    Limit(
        "partitions that all waiting fetches of a broker wait for",
        f"{purgatory.MOST_ROWS:,}",
        "the fetches that have waited longest are answered with what there is",
        "test_purgatory.py::test_what_all_fetches_wait_for_is_bounded_and_the_oldest_gives_way",
        counted="fetches",
    ),
    Limit(
        "answers that a client does not take",
        f"2 MiB, then none of its requests is carried out; {idle_timeouts.STALL_SECONDS:.0f} s",
        _CLOSED,
        "test_connection.py::test_a_client_that_does_not_read_holds_up_only_itself",
        counted="stall",
    ),
    Limit(
        "those of all clients together",
        f"{idle_timeouts.MOST_UNTAKEN_BYTES // _MEBI} MiB",
        f"the connections that hold most and take less than a part in {idle_timeouts.TAKEN_PART} of it in "
        f"{idle_timeouts.TAKING_SECONDS:.0f} s are closed, with the reason in the log",
        "test_idle_timeouts.py::test_who_takes_nothing_goes_when_all_together_hold_too_much",
        counted="untaken",
    ),
    Limit(
        "records in answers that are not sent",
        f"{_mebi(memory.HELD_BYTES)}, a part in {memory.ONE_OF} of what is left for each, or one batch",
        "from half of it on a connection has one long answer at a time, and its transport 64 KiB that are not taken",
        "test_fetching.py::test_answers_hold_a_bounded_share_of_memory",
    ),
)


def table() -> str:
    """Return the limits as a table of Markdown."""
    assert BASE_BYTES == 32 * 1024
    rows = ["| what | default | option | beyond it | counted as | test |", "| --- | --- | --- | --- | --- | --- |"]
    rows += [
        f"| {each.bounds} | {each.default} | {f'`{each.option}`' if each.option else ''} | {each.beyond} "
        f"| {f'`{each.counted}`' if each.counted else ''} | `{each.test}` |"
        for each in LIMITS
    ]
    return "\n".join(rows)
