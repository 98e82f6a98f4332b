"""Sequence numbers: where they end, and what a new identity forgets."""

from __future__ import annotations

from kohort.client.producer.core.idempotence import Identity
from kohort.ids import TopicPartition

ORDERS = TopicPartition("orders", 0)
HIGHEST = (1 << 31) - 1


def test_sequence_numbers_begin_anew_after_the_highest() -> None:
    """Of 31 bits on the wire; the broker counts on with 0, also in the middle of a batch."""
    identity = Identity(is_wanted=True)
    assert identity.number(ORDERS, HIGHEST) == 0
    assert identity.number(ORDERS, 3) == HIGHEST
    assert identity.number(ORDERS, 1) == 2


def test_new_identity_is_unknown_to_every_broker() -> None:
    """Numbers begin with 0, and a second batch waits until the first has been taken."""
    identity = Identity(is_wanted=True)
    identity.renew(7, 0)
    identity.number(ORDERS, 5)
    identity.acknowledge(ORDERS)
    identity.spoil()
    assert identity.may_pipeline(ORDERS) and not identity.is_ready

    identity.renew(8, 0)
    assert identity.is_ready and not identity.may_pipeline(ORDERS)
    assert identity.number(ORDERS, 1) == 0
