"""A simulated member's published metadata, and its picture of the others' metadata.

Laws: what it wants to publish is said until it was taken, and again with everything that is said anew.
"""

from __future__ import annotations

from random import Random

from kohort.coordinator.commands.groups import ConsumerGroupHeartbeatReply

#: How often a member that publishes has something new to say, ms.
PUBLISHES_EVERY_MS = (300, 6_000)


class Publisher:
    """The publishing of one member; half of the members publish, and half watch.

    Args:
        random: of its own, so that nothing else in a world is another for it.
    """

    def __init__(self, random: Random, name: str) -> None:
        self._random = random
        self._name = name
        self.publishes = random.random() < 0.5
        self.watches = random.random() < 0.5
        #: What it has drawn last; `None` before that. Empty: nothing any more.
        self.wanted: bytes | None = None
        self._said: bytes | None = None
        self._taken: bytes | None = None
        #: What its coordinator has told it, by member id, and up to which version.
        self.picture: dict[str, bytes] = {}
        self._version = 0
        self._count = 0

    def draw_delay_ms(self) -> int:
        """Draw the time until the next new metadata."""
        return self._random.randint(*PUBLISHES_EVERY_MS)

    def draw(self) -> None:
        """Draw new metadata."""
        self._count += 1
        self.wanted = b"" if self._random.random() < 0.15 else f"{self._name} {self._count}".encode()

    def say(self, *, is_full: bool) -> tuple[bytes | None, int]:
        """Return `metadata` and `watched_version` for the next heartbeat."""
        self._said = self.wanted
        is_said = self.wanted is not None and (is_full or self.wanted != self._taken)
        return self.wanted if is_said else None, self._version if self.watches else -1

    def on_answer(self, body: ConsumerGroupHeartbeatReply) -> None:
        """Note that the sent metadata is taken, and take the others' metadata from the answer."""
        self._taken = self._said
        news = body.metadata_news
        if news is None or not self.watches:
            return
        if news.is_whole:
            self.picture.clear()
        for each in news.members:
            self.picture.pop(each.member_id, None)
            if each.metadata is not None:
                self.picture[each.member_id] = each.metadata
        self._version = news.version
