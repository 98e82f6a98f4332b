"""Where a default of ours is not Kafka's, the option's sentence says so: held against Apache Kafka 4.3 itself."""

from __future__ import annotations

import html
import re
from collections.abc import Collection

import pytest

from kohort.base.options import Option, OptionSet
from kohort.broker.options.settings import BROKER_OPTIONS
from kohort.client.options import ADMIN_OPTIONS, CONSUMER_OPTIONS, PRODUCER_OPTIONS
from support.builders import own_configs
from support.peers.kafka_tools import run_kafka_tool

pytestmark = [pytest.mark.interop, pytest.mark.apache]

#: Kafka's options that its page leaves out: internal ones, and those of its authorizer.
KAFKAS_INTERNAL = {
    "allow.everyone.if.no.acl.found",
    "group.consumer.assignor.offload.enable",
    "producer.id.expiration.check.interval.ms",
    "super.users",
}
#: Empty in a configuration, whatever the documents call it.
NOTHING = ("", "null", '""')


def defaults_of(config_class: str) -> dict[str, str]:
    """name -> default, from the page of documentation that each of Kafka's config classes prints."""
    page = run_kafka_tool(config_class)
    rows = re.findall(r'<a id="([^"]+)".*?<th>Default:</th><td>(.*?)</td>', page, re.DOTALL)
    # A number of bytes or milliseconds is followed by a friendlier form in brackets.
    return {name.rpartition("_")[2]: re.sub(r" \(.*\)$", "", html.unescape(value)) for name, value in rows}


def as_text(option: Option) -> str:
    """Our default as Kafka writes it."""
    value = option.default
    if value is None:
        return "null"
    if isinstance(value, bool):
        return str(value).lower()
    return ",".join(value) if isinstance(value, list) else str(value)


@pytest.mark.parametrize(
    ("options", "config_class", "ours"),
    [
        (BROKER_OPTIONS, "kafka.server.KafkaConfig", own_configs.BROKER_CONFIGS),
        (CONSUMER_OPTIONS, "org.apache.kafka.clients.consumer.ConsumerConfig", own_configs.CONSUMER_CONFIGS),
        (PRODUCER_OPTIONS, "org.apache.kafka.clients.producer.ProducerConfig", own_configs.PRODUCER_CONFIGS),
        (ADMIN_OPTIONS, "org.apache.kafka.clients.admin.AdminClientConfig", own_configs.CLIENT_CONFIGS),
    ],
    ids=["broker", "consumer", "producer", "admin"],
)
def test_other_default_than_kafka_is_told(options: OptionSet, config_class: str, ours: Collection[str]) -> None:
    """An option that Kafka does not have, or with another default there, names Kafka in its sentence.

    The former are registered as kohort's own. One that only Kafka has is answered with what is so instead.
    """
    kafka = defaults_of(config_class)
    assert len(kafka) > 20, "the page was not understood"
    differing = {
        option.name: (as_text(option), kafka.get(option.name))
        for option in options
        if as_text(option) != kafka.get(option.name)
        and not (as_text(option) in NOTHING and kafka.get(option.name) in NOTHING)
    }
    unexplained = {name for name in kafka if name not in options and options.unserved(name) is None}
    assert unexplained == set(), "who asks for one of these is to be told what is so instead"
    assert {name: both for name, both in differing.items() if "Kafka" not in options.option(name).doc} == {}
    assert {option.name for option in options} - kafka.keys() - KAFKAS_INTERNAL == set(ours)
