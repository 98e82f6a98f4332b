"""The quota that holds for a client, and the wait of one that is beyond it.

Source: Apache Kafka's ClientQuotaManager; KIP-13, KIP-55, KIP-124, KIP-599.
"""

from __future__ import annotations

from itertools import combinations
from typing import Any

import pytest

from kohort.broker.limits import client_quotas
from kohort.broker.limits.client_quotas import ClientQuotas, Quota, QuotaLimits, user_of
from kohort.broker.limits.connection_rates import MOST_ADDRESSES, NO_LIMIT, Admission, ConnectionRates
from kohort.security.capabilities.capability import Rate
from kohort.storage.client_quotas import Quotas, entity_of

VALUES = {
    "quota.window.num": 11,
    "quota.window.size.seconds": 1,
    "controller.quota.window.num": 11,
    "controller.quota.window.size.seconds": 1,
    "max.connection.creation.rate": NO_LIMIT,
}
BYTES = Quota.PRODUCER_BYTE_RATE

#: The entities of Kafka's order, the most specific first, and the clients that share the use of each.
ORDER: list[tuple[dict[str, str | None], tuple[str, str]]] = [
    ({"user": "bob", "client-id": "app"}, ("bob", "app")),
    ({"user": "bob", "client-id": None}, ("bob", "app")),
    ({"user": "bob"}, ("bob", "")),
    ({"user": None, "client-id": "app"}, ("bob", "app")),
    ({"user": None, "client-id": None}, ("bob", "app")),
    ({"user": None}, ("bob", "")),
    ({"client-id": "app"}, ("", "app")),
    ({"client-id": None}, ("", "app")),
]


def quotas_of(*rows: tuple[dict[str, str | None], dict[str, float]]) -> Quotas:
    return {entity_of(parts): limits for parts, limits in rows}


def clients_with(*rows: tuple[dict[str, str | None], dict[str, float]], **values: int) -> ClientQuotas:
    options: dict[str, Any] = {**VALUES, **{name.replace("_", "."): value for name, value in values.items()}}
    return ClientQuotas(QuotaLimits(quotas_of(*rows)), options)


class TestPrecedence:
    @pytest.mark.parametrize(("first", "second"), combinations(range(len(ORDER)), 2))
    def test_the_more_specific_of_two_holds(self, first: int, second: int) -> None:
        rows = [(ORDER[place][0], {BYTES.value: float(place + 1)}) for place in (second, first)]
        found = QuotaLimits(quotas_of(*rows)).find(BYTES, "bob", "app")
        assert found is not None
        assert found.limit == first + 1
        assert (found.user, found.client_id) == ORDER[first][1]

    @pytest.mark.parametrize(("parts", "shares"), ORDER)
    def test_each_holds_alone(self, parts: dict[str, str | None], shares: tuple[str, str]) -> None:
        found = QuotaLimits(quotas_of((parts, {BYTES.value: 7.0}))).find(BYTES, "bob", "app")
        assert found == (7.0, *shares)

    @pytest.mark.parametrize("user", ["bob", "eve"])
    @pytest.mark.parametrize("client_id", ["app", "other", ""])
    def test_no_other_client_has_a_limit_of_a_name(self, user: str, client_id: str) -> None:
        limits = QuotaLimits(
            quotas_of(*((parts, {BYTES.value: 7.0}) for parts, _ in ORDER if None not in parts.values()))
        )
        found = limits.find(BYTES, user, client_id)
        assert (found is not None) == (user == "bob" or client_id == "app")

    def test_a_limit_of_another_kind_does_not_count(self) -> None:
        limits = QuotaLimits(
            quotas_of(({"user": "bob"}, {"consumer_byte_rate": 5.0}), ({"user": None}, {BYTES.value: 9.0}))
        )
        found = limits.find(BYTES, "bob", "app")
        assert found is not None
        assert found.limit == 9.0

    def test_a_client_without_a_name_has_the_default(self) -> None:
        """Kafka lets it go without; the default is that of all that have none."""
        assert (
            QuotaLimits(quotas_of(({"client-id": None}, {BYTES.value: 7.0}))).find(BYTES, "ANONYMOUS", "") is not None
        )

    def test_the_user_of_a_principal(self) -> None:
        assert user_of("User:CN=a:b,O=c") == "CN=a:b,O=c"
        assert user_of("User:ANONYMOUS") == "ANONYMOUS"


class TestRates:
    def test_a_client_beyond_its_rate_waits_as_in_kafka(self) -> None:
        clients = clients_with(({"client-id": "app"}, {BYTES.value: 1_000.0}))
        assert clients.take(BYTES, "bob", "app", 10_000, 0) == 0
        assert clients.take(BYTES, "eve", "app", 5_000, 0) == 5_000, "a limit of a client id is shared"
        assert clients.take(BYTES, "eve", "other", 1e9, 0) == 0

    def test_a_default_is_a_limit_for_each(self) -> None:
        clients = clients_with(({"user": None}, {BYTES.value: 1_000.0}))
        assert clients.take(BYTES, "bob", "a", 15_000, 0) == 5_000
        assert clients.take(BYTES, "bob", "b", 0, 0) == 5_000, "all of a user's clients share it"
        assert clients.take(BYTES, "eve", "a", 10_000, 0) == 0

    def test_time_for_requests_is_waited_for_one_window_at_most(self) -> None:
        clients = clients_with(({"user": None}, {"request_percentage": 1.0}), quota_window_size_seconds=2)
        assert clients.take(Quota.REQUEST_PERCENTAGE, "bob", "", 20.2, 0) == 200
        assert clients.take(Quota.REQUEST_PERCENTAGE, "bob", "", 1_000, 0) == 2_000

    def test_what_is_withheld_does_not_count_unless_nothing_else_does(self) -> None:
        """A batch that is alone above the limit would never leave: Kafka's clients wait for it for ever."""
        clients = clients_with(({"user": None}, {"consumer_byte_rate": 1_000.0}))
        quota = Quota.CONSUMER_BYTE_RATE
        assert clients.take(quota, "bob", "", 15_000, 0) == 5_000
        assert not clients.take_back_fetched("bob", "", (), amount=15_000, now_ms=0)
        assert clients.take(quota, "bob", "", 1_000, 100) == 5_900
        assert clients.take_back_fetched("bob", "", (), amount=1_000, now_ms=100)
        assert clients.take(quota, "bob", "", 0, 100) == 4_900

    def test_the_most_that_leaves_at_once(self) -> None:
        clients = clients_with(({"user": "bob"}, {"consumer_byte_rate": 1_000.0}), quota_window_num=4)
        assert clients.most_fetched("bob", "", ()) == 3_000
        assert clients.most_fetched("eve", "", ()) is None
        assert clients.most_fetched("eve", "", (Rate("link", 2_000), Rate("other", 500))) == 125

    def test_a_change_of_the_limit_counts_what_was_used_before(self) -> None:
        clients = clients_with(({"user": "bob"}, {BYTES.value: 1_000.0}))
        clients.take(BYTES, "bob", "", 10_000, 0)
        clients.limits.apply(quotas_of(({"user": "bob"}, {BYTES.value: 500.0})))
        assert clients.take(BYTES, "bob", "", 0, 0) == 10_000

    def test_nothing_is_measured_without_a_quota(self) -> None:
        clients = clients_with()
        assert not clients.is_on
        clients.limits.apply(quotas_of(({"ip": None}, {"connection_creation_rate": 5.0})))
        assert not clients.is_on
        clients.limits.apply(quotas_of(({"user": "bob"}, {BYTES.value: 1_000.0})))
        assert (clients.is_on, clients.is_timed) == (True, False)
        clients.limits.apply(quotas_of(({"user": "bob"}, {"request_percentage": 1.0})))
        assert (clients.is_on, clients.is_timed) == (True, True)
        clients.limits.apply({})
        assert (clients.is_on, clients.is_timed) == (False, False)


class TestTokens:
    def test_a_strict_client_is_refused_until_no_token_is_owed(self) -> None:
        """KIP-599: one change may take more than there is; the next is refused and costs nothing."""
        clients = clients_with(({"user": None}, {"controller_mutation_rate": 1.0}))
        take = clients.take_tokens
        assert take("bob", "", 5, 0, is_strict=True) == 0
        assert take("bob", "", 10, 0, is_strict=True) == 0
        assert take("bob", "", 1, 0, is_strict=True) == 4_000
        assert take("bob", "", 1, 3_999, is_strict=True) == 1
        assert take("bob", "", 1, 4_000, is_strict=True) == 0

    def test_a_client_that_does_not_know_of_it_waits(self) -> None:
        clients = clients_with(({"user": None}, {"controller_mutation_rate": 1.0}))
        take = clients.take_tokens
        assert take("bob", "", 15, 0, is_strict=False) == 4_000
        assert take("bob", "", 1, 0, is_strict=False) == 5_000
        assert take("eve", "", 11, 0, is_strict=False) == 0


class TestMemory:
    def test_clients_that_are_remembered_are_bounded(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(client_quotas, "MOST_CLIENTS", 100)
        clients = clients_with(({"client-id": None}, {BYTES.value: 1.0}))
        clients.take(BYTES, "", "first", 100, 0)
        for number in range(150):
            clients.take(BYTES, "", f"c{number}", 100, 0)
            assert clients.take(BYTES, "", "first", 0, 0) > 0, "a client that goes on is remembered"
        assert len(clients) == 100

    def test_a_client_that_was_silent_for_an_hour_is_forgotten(self) -> None:
        clients = clients_with(({"client-id": None}, {BYTES.value: 1.0}))
        for number in range(50):
            clients.take(BYTES, "", f"c{number}", 100, number)
        clients.take(BYTES, "", "late", 1, 3_600_024)
        assert len(clients) == 26

    def test_long_names_are_not_kept(self) -> None:
        clients = clients_with(({"client-id": None}, {BYTES.value: 1.0}))
        names = ["x" * 30_000 + end for end in "ab"]
        assert clients.take(BYTES, "", names[0], 100, 0) > 0
        assert clients.take(BYTES, "", names[1], 1, 0) == 0, "another client"
        clients.note_throttled(BYTES, "", names[0], 7, 0)
        (told,) = clients.most_throttled(10)
        assert len(told) < 200

    def test_clients_that_waited_longest_are_told_first(self) -> None:
        clients = clients_with(({"client-id": None}, {BYTES.value: 1.0}))
        for name, wait_ms in [("a", 10), ("b", 500), ("a", 20), ("c", 5)]:
            clients.note_throttled(BYTES, "", name, wait_ms, 0)
        assert clients.most_throttled(2) == [
            "producer_byte_rate(client-id='b'):1x:500ms",
            "producer_byte_rate(client-id='a'):2x:30ms",
        ]
        assert (clients.throttled[BYTES], clients.throttled_ms) == (4, 535)


class TestConnections:
    """KIP-612: of an address they are refused, of listener and broker they wait."""

    def rates(self, *rows: tuple[dict[str, str | None], dict[str, float]], **of_listener: int) -> ConnectionRates:
        listeners = {name: {"max.connection.creation.rate": limit} for name, limit in of_listener.items()}
        limit = listeners.pop("broker", {"max.connection.creation.rate": NO_LIMIT})
        return ConnectionRates(QuotaLimits(quotas_of(*rows)), VALUES | limit, listeners)

    def test_an_address_beyond_its_rate_is_refused_and_does_not_count(self) -> None:
        rates = self.rates(({"ip": "10.0.0.7"}, {"connection_creation_rate": 2.0}))
        assert [rates.admit("A", "10.0.0.7", 0) for _ in range(20)] == [Admission()] * 20
        # 21 in ten seconds: (2.1 - 2) / 2 * 10,000 ms.
        assert rates.admit("A", "10.0.0.7", 0) == Admission(500, is_refused=True)
        assert rates.admit("A", "10.0.0.7", 0) == Admission(500, is_refused=True)
        assert rates.admit("A", "10.0.0.8", 0) == Admission()
        assert rates.admit("A", "::ffff:10.0.0.7", 400) == Admission(100, is_refused=True)
        assert rates.admit("A", "10.0.0.7", 500) == Admission()
        assert rates.reached == {"connection_creation_rate": 3}

    def test_a_default_is_a_limit_for_each_address(self) -> None:
        rates = self.rates(
            ({"ip": None}, {"connection_creation_rate": 1.0}), ({"ip": "localhost"}, {"connection_creation_rate": 5.0})
        )
        admitted = {
            host: sum(not rates.admit("A", host, 0).is_refused for _ in range(60)) for host in ("127.0.0.1", "b")
        }
        assert admitted == {"127.0.0.1": 50, "b": 10}

    def test_a_listener_and_the_broker_let_them_wait_for_a_window_at_most(self) -> None:
        rates = self.rates(broker=10, A=1)
        assert [rates.admit("A", "a", 0).wait_ms for _ in range(12)] == [0] * 10 + [1_000] * 2
        assert [rates.admit("B", "a", 0).wait_ms for _ in range(89)] == [0] * 88 + [100]
        assert rates.reached == {"max.connection.creation.rate": 3}

    def test_addresses_are_bounded(self) -> None:
        rates = self.rates(({"ip": None}, {"connection_creation_rate": 1.0}))
        for number in range(MOST_ADDRESSES + 50):
            rates.admit("A", f"host{number}", 0)
        assert len(rates) == MOST_ADDRESSES

    def test_nothing_is_counted_without_a_limit(self) -> None:
        rates = self.rates(A=NO_LIMIT)
        assert not rates.is_on
        assert rates.admit("A", "a", 0) == Admission()
        assert len(rates) == 0
