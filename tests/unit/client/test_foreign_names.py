"""Names of other clients' calls: an AttributeError that says what is so here, and nothing else."""

from __future__ import annotations

import inspect
import re

import aiokafka
import aiokafka.admin.client
import confluent_kafka
import confluent_kafka.admin
import kafka
import pytest

import kohort
import kohort.aio
from kohort.client.foreign_names import ADMINS, CONSUMERS, PRODUCERS, answering

KINDS = [
    (kohort.Consumer, CONSUMERS, (confluent_kafka.Consumer, kafka.KafkaConsumer, aiokafka.AIOKafkaConsumer)),
    (kohort.aio.Consumer, CONSUMERS, (confluent_kafka.Consumer, kafka.KafkaConsumer, aiokafka.AIOKafkaConsumer)),
    (kohort.Producer, PRODUCERS, (confluent_kafka.Producer, kafka.KafkaProducer, aiokafka.AIOKafkaProducer)),
    (kohort.aio.Producer, PRODUCERS, (confluent_kafka.Producer, kafka.KafkaProducer, aiokafka.AIOKafkaProducer)),
    (
        kohort.aio.Admin,
        ADMINS,
        (confluent_kafka.admin.AdminClient, kafka.KafkaAdminClient, aiokafka.admin.client.AIOKafkaAdminClient),
    ),
    (
        kohort.Admin,
        ADMINS,
        (confluent_kafka.admin.AdminClient, kafka.KafkaAdminClient, aiokafka.admin.client.AIOKafkaAdminClient),
    ),
]
EACH = [(kind, name) for kind, names, _ in KINDS for name in sorted(names)]


@pytest.mark.parametrize(("kind", "name"), EACH, ids=[f"{kind.__module__}-{name}" for kind, name in EACH])
def test_call_of_another_client_says_what_is_so_here(kind: type, name: str) -> None:
    thing = kind.__new__(kind)
    with pytest.raises(AttributeError, match=f"^'{kind.__name__}' object has no attribute '{name}'; here: "):
        getattr(thing, name)
    assert name not in dir(thing)


@pytest.mark.parametrize(("kind", "names", "theirs"), KINDS, ids=lambda each: getattr(each, "__module__", ""))
def test_every_name_is_one_of_theirs_and_what_is_called_instead_exists(
    kind: type, names: dict[str, str], theirs: tuple[type, ...]
) -> None:
    assert [name for name in names if not any(hasattr(each, name) for each in theirs)] == []
    for instead in names.values():
        for owner, call in re.findall(r"(Admin\.)?(\w+)\(", instead):
            found = inspect.getattr_static(kohort.Admin if owner else kind, call)
            assert inspect.isfunction(found), instead


def test_name_that_a_class_has_is_left_alone() -> None:
    @answering({"poll": "nothing of the kind"})
    class Own:
        def poll(self) -> int:
            return 7

    assert Own().poll() == 7
    assert "poll" in dir(Own())
