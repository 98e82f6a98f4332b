"""Options of the three clients, and the pauses between attempts."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import kohort
from kohort.client.core.actions import Endpoint
from kohort.client.core.retry import Backoff
from kohort.client.option_kinds import endpoint_of
from kohort.client.options import ADMIN_OPTIONS, CONSUMER_OPTIONS, PRODUCER_OPTIONS, client_settings, consumer_settings
from kohort.errors import ConfigError, UnknownOptionError


@pytest.mark.parametrize("options", [CONSUMER_OPTIONS, PRODUCER_OPTIONS, ADMIN_OPTIONS], ids=lambda each: each.what)
def test_defaults_are_valid_values(options: object) -> None:
    """Nobody has to set anything."""
    for option in options:  # type: ignore[attr-defined]
        assert option.check(option.default) == option.default
        assert option.doc.endswith(".")


@pytest.mark.parametrize(
    ("text", "endpoints"),
    [
        ("127.0.0.1:9092", [Endpoint("127.0.0.1", 9092)]),
        ("a:1, b:2", [Endpoint("a", 1), Endpoint("b", 2)]),
        (["a:1", "[::1]:2"], [Endpoint("a", 1), Endpoint("::1", 2)]),
        ("PLAINTEXT://a:1", [Endpoint("a", 1)]),
        ("sasl_ssl://a:1", [Endpoint("a", 1)]),
    ],
)
def test_bootstrap_addresses(text: object, endpoints: list[Endpoint]) -> None:
    """As people write them."""
    servers = ADMIN_OPTIONS.parse({"bootstrap_servers": text})["bootstrap.servers"]
    assert [endpoint_of(server) for server in servers] == endpoints


@pytest.mark.parametrize("text", ["", "localhost", "a:0", "a:70000", "a:x", ":9092", "HTTP://a:1", []])
def test_address_that_cannot_be_is_refused_with_an_example(text: object) -> None:
    """One clear sentence."""
    with pytest.raises(ConfigError, match=r"bootstrap.servers cannot be"):
        CONSUMER_OPTIONS.parse({"bootstrap.servers": text})


@pytest.mark.parametrize("port", ["0", "65536", "99999", "9" * 5_000])
def test_port_that_is_out_of_range_is_called_so(port: str) -> None:
    with pytest.raises(ConfigError, match=f"the port of 'x:{port}' is out of range, 1 to 65535$"):
        CONSUMER_OPTIONS.parse({"bootstrap.servers": f"x:{port}"})


def test_misspelt_option_names_the_nearest() -> None:
    """Issue: nearest valid name."""
    with pytest.raises(UnknownOptionError, match="did you mean group_id"):
        CONSUMER_OPTIONS.parse({"groupid": "x"})


def test_every_unknown_option_is_told_at_once() -> None:
    """Who brings the options of another client mends them in one go."""
    with pytest.raises(UnknownOptionError) as refusal:
        CONSUMER_OPTIONS.gather({"groupid": "x", "fetch.wait.max.ms": 5, "client.id": "a", "linger.ms": 5}, {})
    assert str(refusal.value) == (
        "unknown consumer option groupid; did you mean group_id?; "
        "consumer option fetch.wait.max.ms is called fetch.max.wait.ms here; "
        "consumer option linger.ms is not needed here: it concerns producers"
    )


def test_other_unit_is_told_with_the_other_name() -> None:
    """The same number would be a thousandth of what was meant."""
    with pytest.raises(UnknownOptionError, match=r"is called fetch.buffer.bytes here, in bytes$"):
        CONSUMER_OPTIONS.gather({"queued.max.messages.kbytes": 65536}, {})


def test_no_codec_may_be_written_as_nothing() -> None:
    """As kafka-python and aiokafka have it."""
    assert PRODUCER_OPTIONS.parse({"compression.type": None})["compression.type"] == "none"


@pytest.mark.parametrize("client", [kohort.Consumer, kohort.Producer, kohort.Admin], ids=lambda each: each.__name__)
class TestWaysToGiveOptions:
    """confluent-kafka's mapping of dotted names, kafka-python's keywords, and both at once."""

    def test_a_mapping_and_keywords_are_one_set_of_options(self, client: Any) -> None:
        client({"bootstrap.servers": "127.0.0.1:1"}, client_id="mixed").close()
        client({"bootstrap_servers": "127.0.0.1:1", "client.id": "mixed"}).close()
        with pytest.raises(ConfigError, match=r"request.timeout.ms cannot be 'soon'"):
            client({"request.timeout.ms": "soon"})

    @pytest.mark.parametrize(
        ("config", "keywords", "spellings"),
        [
            ({"client.id": "a"}, {"client_id": "a"}, "client.id and client_id"),
            ({"client.id": "a", "client_id": "b"}, {}, "client.id and client_id"),
            ({"client_id": "a"}, {"client_id": "b"}, "client_id"),
        ],
    )
    def test_an_option_given_twice_is_refused(
        self, client: Any, config: dict[str, object], keywords: dict[str, object], spellings: str
    ) -> None:
        with pytest.raises(ConfigError) as refusal:
            client(config, **keywords)
        assert str(refusal.value) == f"client.id is given twice ({spellings}): leave one of the two out"

    @pytest.mark.parametrize("given", ["127.0.0.1:9092", ["127.0.0.1:9092"], 9092])
    def test_an_address_without_its_name_is_told_where_it_belongs(self, client: Any, given: object) -> None:
        with pytest.raises(ConfigError) as refusal:
            client(given)
        assert str(refusal.value) == (
            f"{given!r} is given without a name: options are written bootstrap_servers=..., "
            "or handed over as a mapping like {'bootstrap.servers': ...}"
        )

    def test_a_name_that_is_no_text_is_refused(self, client: Any) -> None:
        with pytest.raises(ConfigError, match=r"option 5 is not a name: text is expected"):
            client({5: "a"})


def test_acks_and_idempotence_contradict_each_other_however_they_are_spelt() -> None:
    """Left out, idempotence gives way to acks; asked for, it does not."""
    kohort.Producer({"acks": 1}).close()
    with pytest.raises(ConfigError, match=r"enable.idempotence needs acks=all"):
        kohort.Producer({"enable.idempotence": True}, acks=1)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"group_id": ""}, "group.id cannot be empty"),
        ({"group_protocol": "classic", "heartbeat_interval_ms": 45_000}, "heartbeat.interval.ms must be below"),
        (
            {"group_protocol": "classic", "group_remote_assignor": "uniform"},
            "choose with partition.assignment.strategy",
        ),
        ({"partition_assignment_strategy": "sticky"}, "range, roundrobin, cooperative-sticky"),
        ({"partition_assignment_strategy": []}, "range, roundrobin, cooperative-sticky"),
        ({"group_id": "g", "registration_timeout_ms": 1_000}, "group.instance.id .member.name. is needed, too"),
        ({"group_id": "g", "expansion_timeout_ms": 1_000}, "expansion.timeout.ms is about members with a name"),
        ({"group_id": "g", "member_name": "a", "expansion_timeout_ms": -1}, "at least 0 is expected"),
        ({"group_id": "g", "member_name": ""}, "group.instance.id cannot be empty"),
        ({"group_id": "g", "member_name": "a", "group_instance_id": "b"}, "given twice .member_name and"),
    ],
)
def test_contradictions_are_refused(options: dict[str, object], words: str) -> None:
    """Before anything is connected."""
    with pytest.raises(ConfigError, match=words):
        consumer_settings(CONSUMER_OPTIONS.parse(options))


def test_a_member_may_be_named_as_the_draft_of_static_membership_does() -> None:
    """S1: `member.name` is `group.instance.id` by another name."""
    settings = consumer_settings(CONSUMER_OPTIONS.parse({"group.id": "g", "member.name": "till-7"}))
    assert (settings.options["group_instance_id"], settings.registration_timeout_ms) == ("till-7", -1)


@given(seed=st.integers(0, 2**64), attempts=st.integers(0, 200))
def test_pauses_grow_to_a_limit_and_are_spread(seed: int, attempts: int) -> None:
    """KIP-580: doubled, within a fifth of the plan."""
    backoff = Backoff(base_ms=100, max_ms=1_000, seed=seed)

    plan = min(1_000, 100 * 2 ** min(attempts, 20))

    assert plan * 0.8 <= backoff.delay_ms(attempts) <= plan * 1.2


def test_clients_of_different_seeds_part() -> None:
    """So that they do not all come back at once."""
    assert len({Backoff(base_ms=100, max_ms=1_000, seed=seed).delay_ms(3) for seed in range(50)}) > 25


def test_settings_of_a_machine_lead_back_to_no_application_and_show_no_secret() -> None:
    """A machine that held a function of the application's could hold its own client: it would never be forgotten."""
    given = {
        "value_deserializer": bytes.decode,
        "sasl_password": "tulip",
        "sasl_username": "ann",
        "max_poll_records": 7,
    }
    values = CONSUMER_OPTIONS.parse({**given, "security_protocol": "SASL_PLAINTEXT", "sasl_mechanism": "SCRAM-SHA-256"})
    for settings in (client_settings(values), consumer_settings(values)):
        assert not [name for name, value in settings.options.items() if callable(value)]
        assert "tulip" not in repr(settings)
        with pytest.raises(TypeError):
            settings.options["client_id"] = "other"


def test_changed_settings_differ_in_what_was_changed_alone() -> None:
    settings = consumer_settings(CONSUMER_OPTIONS.parse({"max_poll_records": 7}))
    changed = settings.changed(fetch_min_bytes=9)
    assert (settings.options["fetch_min_bytes"], changed.options["fetch_min_bytes"]) == (1, 9)
    assert changed.changed(fetch_min_bytes=1) == settings
