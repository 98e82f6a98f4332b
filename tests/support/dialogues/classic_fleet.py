"""Classic members with names who heartbeat, rejoin when they are told to and share out what there is, on one clock.

Times are "minutes:seconds" since the fleet began to be at work.
"""

from __future__ import annotations

from typing import Any

from kohort.coordinator import commands
from kohort.coordinator.classic.state import ClassicGroup, RebalanceBegun
from kohort.coordinator.commands import Refusal
from kohort.errors import ErrorCode
from kohort.wire.embedded import decode_assignment, decode_subscription
from support.dialogues.coordinator_dialogue import Answer
from support.dialogues.mixed_dialogue import MixedDialogue, subscription

SESSION_MS = 10_000
BEAT_EVERY_MS = 3_000
MINUTE_MS = 60_000


def milliseconds(time: str) -> int:
    """Of "minutes:seconds"."""
    minutes, seconds = time.split(":")
    return int(minutes) * MINUTE_MS + int(float(seconds) * 1000)


class Sailor:
    """One process of a named member."""

    def __init__(self, name: str, member_id: str, **fields: Any) -> None:
        self.name, self.member_id, self.fields = name, member_id, fields
        self.instance_id: str | None = fields.get("instance_id", name)
        self.generation = -1
        self.owned: list[int] = []
        self.waiting: Answer | None = None
        self.syncing: Answer | None = None
        self.errors: list[ErrorCode] = []


class Fleet:
    """A static group of classic members.

    Args:
        partitions: of topic "t".
        is_cooperative: members keep what they have while the group rebalances, and the leader gives nothing to two.
        session_ms: of its members.
        check_every: see `GroupDialogue`.
    """

    def __init__(
        self,
        *,
        partitions: int = 12,
        is_cooperative: bool = False,
        session_ms: int = SESSION_MS,
        check_every: int = 1,
        **limits: Any,
    ) -> None:
        limits = {
            "group_membership": "static",
            "group_registration_timeout_ms": 15 * MINUTE_MS,
            "group_expansion_timeout_ms": 5 * MINUTE_MS,
            "group_min_session_timeout_ms": 1_000,
            **limits,
        }
        self.partitions = partitions
        self.is_cooperative = is_cooperative
        self.session_ms = session_ms
        self.dialogue = MixedDialogue({"t": partitions}, check_every=check_every, **limits)
        self.living: dict[str, Sailor] = {}
        self.lives = 0
        self.began_ms = self.dialogue.now_ms
        #: When each rebalance began, minutes:seconds, and why.
        self.rebalances: list[tuple[str, str]] = []
        self.dialogue.new_records()

    # What happens.

    def start(self, *names: str) -> None:
        """The first members: they come together, and the clock begins."""
        for name in names:
            self.join(name)
        # Those behind the first wait for the window; an administrator does not.
        if len(names) > 1 and self.dialogue.shard.settings_for("g").is_static:
            self.dialogue.alter_configs({"group.rebalance.token": "begin"}).is_done()
        for _ in range(10):
            self.step()
        assert self.state == "Stable", self.group.state
        self.began_ms = self.dialogue.now_ms
        self.look()
        self.rebalances.clear()
        for sailor in self.living.values():
            sailor.errors.clear()

    def join(self, name: str, **fields: Any) -> Sailor:
        """A process begins under that name; whoever was there under it lives on, if it does."""
        self.lives += 1
        sailor = Sailor(name, "", fresh=f"{name}-{self.lives}", **fields)
        self.living[name] = sailor
        self._send_join(sailor)
        self.step_one(sailor)
        return sailor

    def off(self, *names: str, is_silent: bool = False) -> None:
        """Processes end: their connections are closed; `is_silent`: nobody hears of that."""
        for name in names:
            sailor = self.living.pop(name)
            if not is_silent:
                self.dialogue.disconnect(sailor.member_id)
            self.look()

    def until(self, time: str) -> None:
        """Let time pass; who lives heartbeats."""
        end_ms = self.began_ms + milliseconds(time)
        while self.dialogue.now_ms < end_ms:
            self.dialogue.advance(min(BEAT_EVERY_MS, end_ms - self.dialogue.now_ms))
            self.look()
            self.step()
            self.look()

    def restart(self, *, down_ms: int = 0) -> None:
        """The broker is killed and comes back: whoever waits for an answer asks again."""
        self.dialogue.now_ms += down_ms
        self.dialogue.restart()
        for sailor in self.living.values():
            if sailor.waiting is not None:
                self._send_join(sailor)
            sailor.syncing = None
        self.look()

    def step(self) -> None:
        """Every living member does what is next for it."""
        for sailor in list(self.living.values()):
            self.step_one(sailor)
        self.look()

    def step_one(self, sailor: Sailor) -> None:
        """What is next: an answer to read, a rebalance to take part in, a heartbeat."""
        if sailor.waiting is not None:
            if not sailor.waiting.is_parked:
                self._read_join(sailor)
        elif sailor.syncing is not None:
            if not sailor.syncing.is_parked:
                self._read_sync(sailor)
        elif sailor.member_id:
            code = self.dialogue.beat(sailor.member_id, sailor.generation, instance_id=sailor.instance_id)
            if code != ErrorCode.NONE:
                self._on_error(sailor, code)

    def look(self) -> None:
        """Note what began since."""
        for record in self.dialogue.new_records():
            if isinstance(record, RebalanceBegun):
                at_s = (record.timestamp_ms - self.began_ms) // 1000
                self.rebalances.append((f"{at_s // 60:02}:{at_s % 60:02}", record.reason))

    # What there is to see.

    @property
    def group(self) -> ClassicGroup:
        return self.dialogue.shard.groups.classic["g"]

    @property
    def state(self) -> str:
        return self.group.state.value

    @property
    def offline(self) -> list[str]:
        """Names of the members that are offline."""
        clock = self.dialogue.shard.groups.clocks.get("g")
        ids = () if clock is None else clock.offline
        return sorted(member.instance_id or "" for member in self.group.members.values() if member.member_id in ids)

    @property
    def names(self) -> list[str]:
        """Names of all members, ascending."""
        return sorted(member.instance_id or member.member_id for member in self.group.members.values())

    def shares(self) -> dict[str, list[int]]:
        """What each member has been given."""
        return {
            member.instance_id or "": sorted(decode_assignment(member.assignment).partitions.get("t", ()))
            for member in self.group.members.values()
        }

    # How members are.

    def _send_join(self, sailor: Sailor) -> None:
        owned = sailor.owned if self.is_cooperative else ()
        fields = {"session_timeout_ms": self.session_ms, "instance_id": sailor.instance_id, **sailor.fields}
        blob = subscription(owned=owned, generation=sailor.generation)
        name = "cooperative-sticky" if self.is_cooperative else "range"
        fields.setdefault("protocols", [(name, blob)])
        sailor.waiting = self.dialogue.join(sailor.member_id, **fields)
        self.look()

    def _read_join(self, sailor: Sailor) -> None:
        assert sailor.waiting is not None
        body, sailor.waiting = sailor.waiting.body, None
        if isinstance(body, Refusal):
            self._on_error(sailor, body.code)
            return
        assert isinstance(body, commands.JoinGroupReply)
        if body.error != ErrorCode.NONE:
            self._on_error(sailor, body.error)
            return
        sailor.member_id, sailor.generation = body.member_id, body.generation_id
        given = self._share_out(body) if body.leader == body.member_id and not body.skip_assignment else {}
        sailor.syncing = self.dialogue.sync(sailor.member_id, sailor.generation, given, instance_id=sailor.instance_id)
        self.look()
        self.step_one(sailor)

    def _read_sync(self, sailor: Sailor) -> None:
        assert sailor.syncing is not None
        body, sailor.syncing = sailor.syncing.body, None
        if isinstance(body, Refusal):
            self._on_error(sailor, body.code)
            return
        assert isinstance(body, commands.SyncGroupReply)
        if body.error != ErrorCode.NONE:
            self._on_error(sailor, body.error)
            return
        assert body.assignment, "no bytes at all make the Java client throw"
        before, sailor.owned = sailor.owned, sorted(decode_assignment(body.assignment).partitions.get("t", ()))
        if self.is_cooperative and set(before) - set(sailor.owned):
            self._send_join(sailor)

    def _on_error(self, sailor: Sailor, code: ErrorCode) -> None:
        sailor.errors.append(code)
        if code == ErrorCode.FENCED_INSTANCE_ID:
            sailor.waiting = sailor.syncing = None
            sailor.member_id = ""
            return
        if code == ErrorCode.UNKNOWN_MEMBER_ID:
            sailor.member_id, sailor.generation, sailor.owned = "", -1, []
        if not self.is_cooperative:
            sailor.owned = []
        self._send_join(sailor)

    def _share_out(self, body: commands.JoinGroupReply) -> dict[str, list[int]]:
        """Evenly, and so that as much as can stays where it is."""
        said = {member.member_id: decode_subscription(member.metadata) for member in body.members}
        owners = {
            number: member_id for member_id, each in said.items() for number in each.owned_partitions.get("t", ())
        }
        least, more = divmod(self.partitions, len(said))
        shares: dict[str, list[int]] = {}
        for rank, member_id in enumerate(sorted(said, key=lambda each: (-list(owners.values()).count(each), each))):
            room = least + (rank < more)
            shares[member_id] = sorted(number for number, owner in owners.items() if owner == member_id)[:room]
        taken = {number for numbers in shares.values() for number in numbers}
        for number in sorted(set(range(self.partitions)) - taken):
            poorest = min(shares, key=lambda each: (len(shares[each]), each))
            if owners.get(number, poorest) == poorest or not self.is_cooperative:
                shares[poorest].append(number)
        return shares
