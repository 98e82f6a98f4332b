"""How long an address gets, by what is known of it."""

from __future__ import annotations

from kohort.client.core.actions import Endpoint
from kohort.client.core.driver import Addresses
from kohort.client.options import ADMIN_OPTIONS, client_settings

BOOTSTRAP, NAMED = Endpoint("127.0.0.1", 9092), Endpoint("10.0.0.1", 9092)


def reach(**options: object) -> Addresses:
    return Addresses(client_settings(ADMIN_OPTIONS.parse({"bootstrap_servers": str(BOOTSTRAP), **options})))


def test_only_the_first_attempt_at_an_address_that_was_merely_named_is_short() -> None:
    """socket.connection.setup.timeout.ms is for addresses that somebody has reason to believe in."""
    here = reach(socket_connection_setup_timeout_ms=10_000)
    assert here.connect_timeout_ms(BOOTSTRAP, 0) == 10_000
    assert [here.connect_timeout_ms(NAMED, failures) for failures in (0, 1)] == [3_000, 10_000]

    here.on_ready(NAMED)

    assert here.connect_timeout_ms(NAMED, 0) == 10_000
    assert reach(socket_connection_setup_timeout_ms=500).connect_timeout_ms(NAMED, 0) == 500


def test_slow_broker_gets_more_time_with_each_attempt() -> None:
    """5 s tell a person soon; a broker that needs more is reached all the same."""
    here = reach(request_timeout_ms=30_000)
    assert [here.first_answer_timeout_ms(failures) for failures in (0, 1, 2, 3, 50)] == [
        5_000, 10_000, 20_000, 30_000, 30_000,
    ]  # fmt: skip
