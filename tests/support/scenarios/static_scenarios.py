"""What static members of our client must do against any broker."""

from __future__ import annotations

import pytest

from kohort import Consumer, TopicPartition
from kohort.errors import ErrorCode, FencedError
from support.scenarios.client_scenarios import fresh, new_topic, patient_options, send_values, wait_until


def static_member_returns_unnoticed(bootstrap: str, protocol: str) -> None:
    """S2, KIP-345: it closes and comes back within its session, finds its partitions, and nobody else notices."""
    options = patient_options(bootstrap, fresh("static"), protocol) | {"auto_offset_reset": "earliest"}
    told: list[str] = []
    with new_topic(bootstrap, "static", 4) as topic, Consumer(**options, group_instance_id="two") as other:
        other.subscribe(
            [topic],
            on_assigned=lambda _, gained: told.append(f"assigned {len(gained)}"),
            on_revoked=lambda _, given: told.append(f"revoked {len(given)}"),
        )
        first = Consumer(**options, group_instance_id="one")
        first.subscribe([topic])

        def is_shared() -> bool:
            first.poll(0.1)
            return len(first.assignment()) == len(other.assignment()) == 2

        wait_until(is_shared, "two partitions each", other)
        held = first.assignment()
        send_values(bootstrap, topic, [b"1", b"2"], partition=min(held).partition)
        wait_until(lambda: bool(first.poll(0.1)), "the first record", other)
        first.close()
        told.clear()
        epoch = other.group_epoch

        with Consumer(**options, group_instance_id="one") as again:
            again.subscribe([topic])
            wait_until(lambda: not again.poll(0.1) and again.assignment() == held, "its partitions again", other)
            assert again.committed([min(held)]) == {min(held): 2}
            assert told == []
            assert other.group_epoch == epoch


def younger_holder_of_a_name_fences_the_older(bootstrap: str) -> None:
    """KIP-345, classic: the older one hears of it, in `poll` and in `commit`."""
    options = patient_options(bootstrap, fresh("fenced"), "classic") | {"auto_offset_reset": "earliest"}
    with (
        new_topic(bootstrap, "fenced", 1) as topic,
        Consumer(**options, group_instance_id="one") as older,
        Consumer(**options, group_instance_id="one") as younger,
    ):
        older.subscribe([topic])
        wait_until(lambda: bool(older.assignment()), "an assignment", older)
        younger.subscribe([topic])
        wait_until(lambda: bool(younger.assignment()), "the assignment of that name", younger)

        with pytest.raises(FencedError) as refused:
            wait_until(lambda: False, "a refusal", older)

        assert refused.value.code is ErrorCode.FENCED_INSTANCE_ID
        younger.commit({TopicPartition(topic, 0): 0})
