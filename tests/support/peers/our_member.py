"""Members of kohort's own in groups, for tests that have several."""

from __future__ import annotations

from typing import Any

import kohort


class OurMember:
    """A consumer of kohort's own, by the names that `confluent_member.settle` asks for; reads topic "t"."""

    def __init__(self, address: str, group_id: str = "g", **options: Any) -> None:
        self.consumer = kohort.Consumer(
            "t", bootstrap_servers=address, group_id=group_id, auto_offset_reset="earliest", **options
        )

    def __enter__(self) -> OurMember:
        return self

    def __exit__(self, *_: object) -> None:
        self.consumer.close()

    @property
    def owned(self) -> set[int]:
        return {each.partition for each in self.consumer.assignment()}

    def poll(self) -> None:
        self.consumer.poll(0.05)
