"""A decision in the making: several steps, each of which sees what the ones before it changed.

Laws: the living group is never touched; the steps are applied to a copy by the same `apply` that the shard uses, so
that the copy is what the group will be. What a draft collects becomes one `Decision`.
"""

from __future__ import annotations

from kohort.coordinator.classic.apply import apply_classic
from kohort.coordinator.classic.state import ClassicGroup
from kohort.coordinator.commands import ReplyBody
from kohort.coordinator.decision import Arm, Decision, Disarm, Effect, Reply, TimerKey, TimerKind
from kohort.coordinator.records import Record
from kohort.coordinator.topics import TopicImage
from kohort.ids import RequestToken


class Draft:
    """Records and effects of one decision, and the group as they leave it.

    Args:
        group: the living group, `None` if there is none yet.
        group_id: its name.
        now_ms: coordinator time.
        image: the topics that there are, `None` where they do not matter.
    """

    __slots__ = ("_effects", "_groups", "_records", "group_id", "image", "now_ms")

    def __init__(
        self, group: ClassicGroup | None, group_id: str, *, now_ms: int, image: TopicImage | None = None
    ) -> None:
        self.group_id = group_id
        self.now_ms = now_ms
        self.image = image
        self._groups = {} if group is None else {group_id: group.copy()}
        self._records: list[Record] = []
        self._effects: list[Effect] = []

    @property
    def group(self) -> ClassicGroup:
        """The group after the steps so far."""
        return self._groups[self.group_id]

    def record(self, record: Record) -> None:
        """One more fact."""
        apply_classic(self._groups, record)
        self._records.append(record)

    def reply(self, request: RequestToken, body: ReplyBody) -> None:
        """Answer one request."""
        self._effects.append(Reply(request, body))

    def arm(self, kind: TimerKind, after_ms: int, member_id: str = "") -> None:
        """Set a deadline of the group or of one member, `after_ms` from now."""
        self._effects.append(Arm(TimerKey(kind, self.group_id, member_id), self.now_ms + after_ms))

    def disarm(self, kind: TimerKind, member_id: str = "") -> None:
        """Forget a deadline."""
        self._effects.append(Disarm(TimerKey(kind, self.group_id, member_id)))

    def decision(self) -> Decision:
        """What came together."""
        return Decision(tuple(self._records), tuple(self._effects))
