"""What a consumer that subscribes to a pattern must do against any broker."""

from __future__ import annotations

from kohort import Admin, Consumer
from support.scenarios.client_scenarios import fresh, group_options, poll_until, send_values, wait_until


def topics_that_match_are_read(bootstrap: str, protocol: str) -> None:
    """G6: those that are there, those that are made later, and no others; names in their place end it."""
    prefix = fresh("patterned")
    options = group_options(bootstrap, fresh("readers"), protocol)
    with (
        Admin(bootstrap_servers=bootstrap) as admin,
        Consumer(**options, auto_offset_reset="earliest", metadata_max_age_ms=500) as consumer,
    ):
        admin.create_topic(f"{prefix}-a", 2)
        admin.create_topic(f"not-{prefix}-a", 1)
        consumer.subscribe(pattern=f"{prefix}-[a-c]")
        wait_until(lambda: len(consumer.assignment()) == 2, "the topic that is there", consumer)
        assert consumer.subscription() == {f"{prefix}-a"}

        admin.create_topic(f"{prefix}-b", 1)
        wait_until(lambda: consumer.subscription() == {f"{prefix}-a", f"{prefix}-b"}, "the one that is new", consumer)
        for topic in (f"{prefix}-a", f"{prefix}-b", f"not-{prefix}-a"):
            send_values(bootstrap, topic, [topic.encode()])
        assert {record.topic for record in poll_until(consumer, 2)} == {f"{prefix}-a", f"{prefix}-b"}

        consumer.subscribe([f"not-{prefix}-a"])
        assert [record.topic for record in poll_until(consumer, 1)] == [f"not-{prefix}-a"]
        assert consumer.subscription() == {f"not-{prefix}-a"}
